//! `schema_of_variant_agg`: the type that all VARIANTs of a group have in common.

use std::mem::{size_of_val, take};

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue, exec_datafusion_err};
use datafusion::logical_expr::Accumulator;

use super::super::define::Param;
use super::super::variant_casts::failed;
use super::define::{Aggregate, Make, counted};
use crate::variant::schema::Schema;
use crate::variant::{Variants, schema_text};

pub(super) const AGGREGATES: &[Aggregate] = &[Aggregate {
    name: "schema_of_variant_agg",
    aliases: &[],
    coerce: |given| {
        counted("schema_of_variant_agg", given, 1, 1)?;
        Ok(vec![Param::Variant.coerced(&given[0])?])
    },
    returns: |_| Ok(DataType::Utf8),
    state: |_| vec![DataType::Utf8],
    never_null: false,
    make: Make::Single(|_| Ok(Box::new(Common::default()))),
    moving: None,
}];

/// The common type so far, of which the text is the partial state.
#[derive(Debug, Default)]
struct Common(Schema);

impl Common {
    fn add(&mut self, other: Schema) {
        self.0 = take(&mut self.0).merged(other);
    }

    fn text(&self) -> ScalarValue {
        let mut text = String::new();
        self.0.write(&mut text);
        ScalarValue::Utf8(Some(text))
    }
}

impl Accumulator for Common {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let variants = Variants::of(&values[0]);
        for row in 0..values[0].len() {
            if let Some(value) = variants.get(row).map_err(failed)? {
                self.add(Schema::of(value).map_err(failed)?);
            }
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for text in states[0].as_string::<i32>().iter().flatten() {
            let read = schema_text::read(text);
            let wrong = || exec_datafusion_err!("{text} is no partial state of a schema");
            self.add(read.ok_or_else(wrong)?);
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.text()])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(self.text())
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.0.size()
    }
}

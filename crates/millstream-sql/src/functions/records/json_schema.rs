//! `schema_of_json`.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, StringArray};
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, plan_datafusion_err};

use super::options::{boolean, options, unknown};
use super::prepared::{Literals, Prepared, plain};
use crate::json::{Leniency, infer};
use crate::types::spark_type;

/// `schema_of_json(text [, options])`.
pub(super) struct SchemaOfJson {
    pub ddl: String,
}

impl Prepared for SchemaOfJson {
    const NAME: &'static str = "schema_of_json";
    const USAGE: &'static str = "schema_of_json(text [, options])";
    const ARGUMENTS: (usize, usize) = (1, 2);

    fn data(given: &DataType) -> DataType {
        plain(given)
    }

    fn prepare(_: &FieldRef, literals: &Literals<'_>) -> Result<Self> {
        let text = literals.text(0, "JSON")?;
        let mut primitives_are_texts = false;
        let mut lenient = Leniency::of_records();
        for (name, value) in options(Self::NAME, literals, 1)? {
            if let Some(option) = lenient.option(&name) {
                *option = boolean(Self::NAME, &name, &value)?;
                continue;
            }
            match name.as_str() {
                "primitivesasstring" => {
                    primitives_are_texts = boolean(Self::NAME, "primitivesAsString", &value)?;
                }
                _ => {
                    let known = "primitivesAsString and those that begin with allow";
                    return unknown(Self::NAME, &name, known);
                }
            }
        }
        let found = infer(text, primitives_are_texts, lenient);
        let found = found.map_err(|problem| plan_datafusion_err!("schema_of_json: {problem}"))?;
        Ok(Self { ddl: spark_type(&found) })
    }

    fn returns(&self) -> (DataType, bool) {
        (DataType::Utf8, false)
    }

    fn compute(&self, data: &ArrayRef) -> Result<ArrayRef> {
        let texts = std::iter::repeat_n(Some(self.ddl.as_str()), data.len());
        Ok(Arc::new(texts.collect::<StringArray>()))
    }
}

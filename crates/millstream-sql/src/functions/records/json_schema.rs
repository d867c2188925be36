//! `schema_of_json`.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, StringArray};
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, plan_datafusion_err, plan_err};

use super::options::{options, unknown};
use super::prepared::{Literals, Prepared, plain};
use crate::json::infer;
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
        for (name, value) in options(Self::NAME, literals, 1)? {
            match (name.as_str(), value.to_lowercase().as_str()) {
                ("primitivesasstring", "true") => primitives_are_texts = true,
                ("primitivesasstring", "false") => primitives_are_texts = false,
                ("primitivesasstring", _) => {
                    return plan_err!(
                        "schema_of_json: primitivesAsString is true or false, not {value}"
                    );
                }
                _ => return unknown(Self::NAME, &name, "primitivesAsString"),
            }
        }
        let found = infer(text, primitives_are_texts);
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

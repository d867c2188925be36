//! Columns of tables that do not declare them, from records that are there.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef};
use serde_json::Value;

use crate::csv::{CsvOptions, split_once};

/// The columns of CSV whose first line is `line`: names from the header, or `_c0`, `_c1` and so on
/// as Spark has them; all STRING.
pub fn csv_columns(line: &[u8], options: &CsvOptions) -> SchemaRef {
    let name = |(index, value): (usize, String)| {
        let is_named = options.header && !value.is_empty();
        let name = if is_named { value } else { format!("_c{index}") };
        Field::new(name, DataType::Utf8, true)
    };
    let values = split_once(line, options).into_iter().enumerate();
    Arc::new(Schema::new(values.map(name).collect::<Vec<_>>()))
}

/// The columns of the objects in `sample`: by name, as Spark orders them; those in which there was
/// never a value are taken for text.
/// Errors: values of one name that have no type in common.
pub fn json_columns(sample: &[Value]) -> Result<SchemaRef, String> {
    match arrow_json::reader::infer_json_schema_from_iterator(sample.iter().map(Ok)) {
        Ok(schema) => Ok(Arc::new(Schema::new(known_fields(schema.fields())))),
        Err(error) => Err(error.to_string()),
    }
}

fn known_fields(fields: &Fields) -> Fields {
    let field = |field: &Arc<Field>| Field::new(field.name(), known_type(field.data_type()), true);
    let mut fields: Vec<Field> = fields.iter().map(field).collect();
    fields.sort_by(|a, b| a.name().cmp(b.name()));
    fields.into()
}

fn known_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Null => DataType::Utf8,
        DataType::List(item) => {
            let item = Field::new("item", known_type(item.data_type()), true);
            DataType::List(Arc::new(item))
        }
        DataType::Struct(fields) => DataType::Struct(known_fields(fields)),
        other => other.clone(),
    }
}

//! The schema of columns, as values of them are written.
//!
//! Objects are closed, as those that Confluent's serializers derive: so a registry that looks for
//! backward compatibility takes a column more. A null is left out of its object, so that a column
//! that can be null is a property that is not required.

use arrow::datatypes::{DataType, Field, Fields, Schema, TimeUnit};
use serde_json::{Map, Value, json};

use super::{DEPTH_MAX, JsonSchema};

impl JsonSchema {
    /// The text of the schema of rows, with a title.
    ///
    /// # Errors
    /// The column whose type JSON does not have.
    pub fn text_of(columns: &Schema, title: &str) -> Result<String, String> {
        let mut schema = object(columns.fields(), "", 0)?;
        schema.insert("$schema".to_owned(), json!("http://json-schema.org/draft-07/schema#"));
        schema.insert("title".to_owned(), json!(title));
        Ok(Value::Object(schema).to_string())
    }
}

fn object(fields: &Fields, path: &str, depth: usize) -> Result<Map<String, Value>, String> {
    let mut properties = Map::new();
    for field in fields {
        let path = super::fit::within(path, field.name());
        let schema = of(field.data_type(), &path, depth + 1)?;
        properties.insert(field.name().clone(), Value::Object(schema));
    }
    let required = fields.iter().filter(|field| !field.is_nullable());
    let required: Vec<Value> = required.map(|field| json!(field.name())).collect();
    let mut schema = Map::new();
    schema.insert("type".to_owned(), json!("object"));
    schema.insert("properties".to_owned(), Value::Object(properties));
    schema.insert("additionalProperties".to_owned(), json!(false));
    if !required.is_empty() {
        schema.insert("required".to_owned(), Value::Array(required));
    }
    Ok(schema)
}

/// A part of an array or a map, where null is written.
fn part(field: &Field, path: &str, depth: usize) -> Result<Value, String> {
    let mut schema = of(field.data_type(), path, depth)?;
    if field.is_nullable() {
        let own = schema.get("type").cloned();
        schema.insert("type".to_owned(), json!([own, "null"]));
    }
    Ok(Value::Object(schema))
}

fn of(data_type: &DataType, path: &str, depth: usize) -> Result<Map<String, Value>, String> {
    if depth >= DEPTH_MAX / 2 {
        return Err(format!("column {path}: types are nested too deep"));
    }
    let schema = match data_type {
        DataType::Struct(fields) => return object(fields, path, depth),
        DataType::List(item) => {
            json!({"type": "array", "items": part(item, path, depth + 1)?})
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(fields) if fields.len() == 2 => {
                let values = part(&fields[1], path, depth + 1)?;
                json!({"type": "object", "additionalProperties": values})
            }
            _ => return Err(super::fit::unwritable(data_type, path)),
        },
        DataType::Binary => json!({"type": "string", "contentEncoding": "base64"}),
        DataType::Date32 => json!({"type": "string", "format": "date"}),
        DataType::Timestamp(TimeUnit::Microsecond, Some(_)) => {
            json!({"type": "string", "format": "date-time"})
        }
        other => json!({"type": super::fit::written_as(other, path)?}),
    };
    match schema {
        Value::Object(schema) => Ok(schema),
        _ => unreachable!("all of them are objects"),
    }
}

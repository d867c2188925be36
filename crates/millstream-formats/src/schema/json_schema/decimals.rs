//! Decimals with more digits than a parsed number of JSON keeps: what a schema says of their values
//! cannot be checked, so it is refused beside such columns.
//!
//! A number that is not whole is a `f64`, which keeps any 15 digits, and one that is whole an `i64`
//! if it has at most 18. Zero is no other number's neighbour, so that limits of zero are exact.

use arrow::datatypes::{DataType, Schema};
use serde_json::Value;

use super::JsonSchema;
use super::fit::within;

const LIMITS: [&str; 4] = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"];

impl JsonSchema {
    /// Whether all that the schema says of decimals can be checked.
    ///
    /// # Errors
    /// The column where it cannot, in words.
    pub(super) fn fit_decimals(&self, columns: &Schema) -> Result<(), String> {
        let row = DataType::Struct(columns.fields().clone());
        self.decimals(vec![self.root()], &row, "")
    }

    fn decimals(
        &self,
        schemas: Vec<&Value>,
        data_type: &DataType,
        path: &str,
    ) -> Result<(), String> {
        if !has_wide(data_type) {
            return Ok(());
        }
        let schemas = self.applied(schemas);
        if let Some(keyword) = schemas.iter().find_map(|schema| inexact(schema, data_type)) {
            let what = if path.is_empty() { "a row" } else { &format!("column {path}") };
            return Err(format!(
                "{what}: '{keyword}' of the schema is not checked for a DECIMAL of more than 15 \
                 digits, or 18 where it is whole; cast it in the query, or leave '{keyword}' out"
            ));
        }
        let parts = |name: &str| schemas.iter().filter_map(|schema| schema.get(name)).collect();
        match data_type {
            DataType::Struct(fields) => fields.iter().try_for_each(|field| {
                let of = schemas.iter().filter_map(|schema| {
                    let property = schema.get("properties").and_then(|all| all.get(field.name()));
                    property.or_else(|| schema.get("additionalProperties"))
                });
                self.decimals(of.collect(), field.data_type(), &within(path, field.name()))
            }),
            DataType::List(item) => self.decimals(parts("items"), item.data_type(), path),
            DataType::Map(entries, _) => {
                let DataType::Struct(fields) = entries.data_type() else { return Ok(()) };
                let Some(value) = fields.get(1) else { return Ok(()) };
                // Any key may be one of the properties.
                let mut of: Vec<&Value> = parts("additionalProperties");
                let all = schemas.iter().filter_map(|it| it.get("properties")?.as_object());
                of.extend(all.flat_map(|properties| properties.values()));
                self.decimals(of, value.data_type(), path)
            }
            _ => Ok(()),
        }
    }
}

/// The keyword that would have to compare all digits.
fn inexact(schema: &Value, data_type: &DataType) -> Option<&'static str> {
    let has = |name: &str| schema.get(name).is_some_and(has_number);
    if let Some(found) = ["enum", "const"].into_iter().find(|name| has(name)) {
        return Some(found);
    }
    match data_type {
        DataType::Decimal128(_, scale) => {
            let names = |name: &str| match schema.get("type") {
                Some(Value::Array(several)) => several.iter().any(|it| it == name),
                one => one.is_some_and(|it| it == name),
            };
            if *scale > 0 && names("integer") && !names("number") {
                return Some("type");
            }
            LIMITS.into_iter().find(|name| has(name))
        }
        DataType::List(_) if schema.get("uniqueItems") == Some(&Value::Bool(true)) => {
            Some("uniqueItems")
        }
        _ => None,
    }
}

/// Whether there is a number but zero in a value.
fn has_number(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::Array(items) => items.iter().any(has_number),
        Value::Object(object) => object.values().any(has_number),
        _ => false,
    }
}

fn has_wide(data_type: &DataType) -> bool {
    match data_type {
        DataType::Decimal128(precision, scale) => *precision > if *scale == 0 { 18 } else { 15 },
        DataType::List(item) => has_wide(item.data_type()),
        DataType::Map(entries, _) => has_wide(entries.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| has_wide(field.data_type())),
        _ => false,
    }
}

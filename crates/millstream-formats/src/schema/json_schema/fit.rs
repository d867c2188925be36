//! Columns beside a schema: what no row could change is said before there are rows.

use std::collections::HashSet;

use arrow::datatypes::{DataType, Fields, Schema, TimeUnit};
use serde_json::Value;

use super::{DEPTH_MAX, JsonSchema};
use millstream_sql::types::spark_type;

impl JsonSchema {
    /// Whether rows of these columns can be what the schema says.
    ///
    /// # Errors
    /// The column that cannot, in words.
    pub fn fit(&self, columns: &Schema) -> Result<(), String> {
        self.fit_value(self.root(), &DataType::Struct(columns.fields().clone()), "", 0)?;
        self.fit_decimals(columns)
    }

    fn fit_value(
        &self,
        schema: &Value,
        data_type: &DataType,
        path: &str,
        depth: usize,
    ) -> Result<(), String> {
        let written = written_as(data_type, path)?;
        let mut all = Vec::new();
        self.alternatives(schema, depth, &mut HashSet::new(), &mut all);
        let what = if path.is_empty() { "a row" } else { &format!("column {path}") };
        let admits = |schema: &&Value| match schema.get("type") {
            None => *schema != &Value::Bool(false),
            Some(Value::String(one)) => is_one(written, one),
            Some(Value::Array(several)) => {
                several.iter().filter_map(Value::as_str).any(|one| is_one(written, one))
            }
            Some(_) => false,
        };
        let fitting: Vec<&Value> = all.iter().copied().filter(admits).collect();
        match fitting[..] {
            [] if all.is_empty() => {
                Err(format!("{what}: the schema's references do not end at any schema"))
            }
            [] => {
                let types: Vec<String> = all
                    .iter()
                    .map(|schema| schema.get("type").unwrap_or(schema).to_string())
                    .collect();
                Err(format!(
                    "{what}: {} is written as {written}, and the schema has {}",
                    spark_type(data_type),
                    types.join(" or ")
                ))
            }
            // Which of several it is, each row shows.
            [only] if depth < DEPTH_MAX => self.fit_parts(only, data_type, path, depth + 1),
            _ => Ok(()),
        }
    }

    fn fit_parts(
        &self,
        schema: &Value,
        data_type: &DataType,
        path: &str,
        depth: usize,
    ) -> Result<(), String> {
        match data_type {
            DataType::Struct(fields) => self.fit_fields(schema, fields, path, depth),
            DataType::List(item) => match schema.get("items") {
                Some(of) => self.fit_value(of, item.data_type(), path, depth),
                None => Ok(()),
            },
            DataType::Map(entries, _) => match (entries.data_type(), additional(schema)) {
                (DataType::Struct(fields), Some(of)) if fields.len() == 2 => {
                    self.fit_value(of, fields[1].data_type(), path, depth)
                }
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }

    fn fit_fields(
        &self,
        schema: &Value,
        fields: &Fields,
        path: &str,
        depth: usize,
    ) -> Result<(), String> {
        for field in fields {
            let path = within(path, field.name());
            let property = schema.get("properties").and_then(|all| all.get(field.name()));
            if let (None, Some(other)) = (property, similar(schema, field.name(), fields)) {
                return Err(format!(
                    "column {path}: the schema's property is {other}; name the column so (AS \
                     `{other}`)"
                ));
            }
            match property.or_else(|| additional(schema)) {
                Some(Value::Bool(false)) => {
                    return Err(format!(
                        "column {path}: the schema has no such property, and allows no others"
                    ));
                }
                Some(of) => self.fit_value(of, field.data_type(), &path, depth)?,
                None => written_as(field.data_type(), &path).map(drop)?,
            }
        }
        let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
        for name in required.filter_map(Value::as_str) {
            if !fields.iter().any(|field| field.name() == name) {
                let path = within(path, name);
                return Err(format!(
                    "the schema requires the property {path}, and there is no column for it"
                ));
            }
        }
        Ok(())
    }

    /// The schemas of which a value has to be one, each once, but those that were `seen`.
    fn alternatives<'a>(
        &'a self,
        schema: &'a Value,
        depth: usize,
        seen: &mut HashSet<*const Value>,
        all: &mut Vec<&'a Value>,
    ) {
        if !seen.insert(std::ptr::from_ref(schema)) {
            return;
        }
        if depth >= DEPTH_MAX {
            return all.push(schema);
        }
        if let Some(referred) = schema.get("$ref").and_then(|it| self.referred(it)) {
            return self.alternatives(referred, depth + 1, seen, all);
        }
        let several = schema.get("anyOf").or_else(|| schema.get("oneOf"));
        match several.and_then(Value::as_array) {
            Some(several) => {
                several.iter().for_each(|one| self.alternatives(one, depth + 1, seen, all));
            }
            None => all.push(schema),
        }
    }
}

/// The property that has a column's name but for case, and is no other column's.
fn similar<'a>(schema: &'a Value, name: &str, fields: &Fields) -> Option<&'a str> {
    let properties = schema.get("properties")?.as_object()?;
    let mut names = properties.keys().map(String::as_str);
    let found = names.find(|other| other.eq_ignore_ascii_case(name))?;
    let is_a_column = fields.iter().any(|field| field.name() == found);
    (!is_a_column).then_some(found)
}

fn additional(schema: &Value) -> Option<&Value> {
    schema.get("additionalProperties")
}

fn is_one(written: &str, schema_type: &str) -> bool {
    written == schema_type || (written == "integer" && schema_type == "number")
}

/// JSON's type of a column's values.
///
/// # Errors
/// There is none.
pub(super) fn written_as(data_type: &DataType, path: &str) -> Result<&'static str, String> {
    Ok(match data_type {
        DataType::Boolean => "boolean",
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => "integer",
        DataType::Decimal128(_, 0) => "integer",
        DataType::Float32 | DataType::Float64 | DataType::Decimal128(..) => "number",
        DataType::Utf8
        | DataType::Binary
        | DataType::Date32
        | DataType::Timestamp(TimeUnit::Microsecond, _) => "string",
        DataType::List(_) => "array",
        DataType::Map(..) | DataType::Struct(_) => "object",
        _ => return Err(unwritable(data_type, path)),
    })
}

pub(super) fn unwritable(data_type: &DataType, path: &str) -> String {
    format!(
        "column {path}: {} cannot be written as JSON; cast it in the query",
        spark_type(data_type)
    )
}

pub(super) fn within(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

//! The text of a .proto file for columns, which a table registers as its schema.

use std::collections::HashSet;
use std::fmt::Write as _;

use arrow::datatypes::{DataType, FieldRef, Schema as Columns, TimeUnit};

use super::files::is_identifier;
use super::pairing::struct_fields;
use super::schema::Schema;
use super::schema_error::SchemaError;
use super::wire::MAX_DEPTH;
use crate::types::spark_type;

/// Columns that no message has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// A type without a counterpart.
    #[error(
        "the column {column} has the type {column_type}, which Protobuf does not have: {remedy}"
    )]
    Type {
        /// The column, with those around it.
        column: String,
        /// Its type in Spark's terms.
        column_type: String,
        /// What can be done.
        remedy: &'static str,
    },
    /// A name that no field can have.
    #[error(
        "the column {column} cannot be a field, whose name has letters, digits and _ only: \
         give it another name in the query"
    )]
    Name {
        /// The column, with those around it.
        column: String,
    },
    /// A name that no message can have.
    #[error("a message cannot be called \"{0}\": its name has letters, digits and _ only")]
    MessageName(String),
    /// Columns nested too deep.
    #[error("the column {column} is nested deeper than {MAX_DEPTH} levels")]
    TooDeep {
        /// The column, with those around it.
        column: String,
    },
    /// Columns whose names are too similar.
    #[error("the columns cannot be a message: {0}")]
    Invalid(#[from] SchemaError),
}

/// The text of a proto3 file with a message that has the columns as fields, numbered in their
/// order. What comes before the last dot of `message_name` is the package.
///
/// The field of a nullable column is optional, so that null and the default value differ. An
/// ARRAY or a MAP has no null, and a null in it cannot be encoded, whether or not its type says
/// that there may be some.
///
/// # Errors
/// When a column has no counterpart in Protobuf.
pub fn proto_text_of(columns: &Columns, message_name: &str) -> Result<String, TextError> {
    if !message_name.split('.').all(is_identifier) {
        return Err(TextError::MessageName(message_name.to_owned()));
    }
    let (package, name) = match message_name.rsplit_once('.') {
        Some((package, name)) => (Some(package), name),
        None => (None, message_name),
    };
    let mut text = Text { out: String::new(), path: Vec::new(), has_time: false };
    text.message(name, columns.fields(), 0)?;
    let mut file = "syntax = \"proto3\";\n\n".to_owned();
    if let Some(package) = package {
        let _ = write!(file, "package {package};\n\n");
    }
    if text.has_time {
        file.push_str("import \"google/protobuf/timestamp.proto\";\n\n");
    }
    file.push_str(&text.out);
    Schema::from_text(&file, &[], Some(message_name))?;
    Ok(file)
}

struct Text {
    out: String,
    path: Vec<String>,
    has_time: bool,
}

impl Text {
    fn message(&mut self, name: &str, fields: &[FieldRef], depth: usize) -> Result<(), TextError> {
        let indent = "  ".repeat(depth);
        let _ = writeln!(self.out, "{indent}message {name} {{");
        // A nested message must not be called like a field or like another one.
        let mut taken: HashSet<String> = fields.iter().map(|field| field.name().clone()).collect();
        taken.insert(name.to_owned());
        let mut lines = Vec::new();
        for (index, field) in fields.iter().enumerate() {
            self.path.push(field.name().clone());
            let declared = self.field(field, &mut taken, depth)?;
            lines.push(format!("{indent}  {declared} {} = {};", field.name(), number(index)));
            self.path.pop();
        }
        for line in lines {
            let _ = writeln!(self.out, "{line}");
        }
        let _ = writeln!(self.out, "{indent}}}");
        Ok(())
    }

    fn field(
        &mut self,
        field: &FieldRef,
        taken: &mut HashSet<String>,
        depth: usize,
    ) -> Result<String, TextError> {
        if !is_identifier(field.name()) {
            return Err(TextError::Name { column: self.path.join(".") });
        }
        if depth >= MAX_DEPTH {
            return Err(TextError::TooDeep { column: self.path.join(".") });
        }
        match field.data_type() {
            DataType::List(item) => {
                let one = self.value(field, item.data_type(), taken, depth)?;
                Ok(format!("repeated {one}"))
            }
            DataType::Map(entries, _) => {
                let Some([key, value]) = struct_fields(entries) else {
                    return Err(self.unsupported(field.data_type()));
                };
                let keys = match key.data_type() {
                    DataType::Utf8 => "string",
                    DataType::Boolean => "bool",
                    DataType::Int8 | DataType::Int16 | DataType::Int32 => "int32",
                    DataType::Int64 => "int64",
                    _ => return Err(self.unsupported(field.data_type())),
                };
                let values = self.value(field, value.data_type(), taken, depth)?;
                Ok(format!("map<{keys}, {values}>"))
            }
            data_type => {
                let one = self.value(field, data_type, taken, depth)?;
                let is_message = matches!(data_type, DataType::Struct(_) | DataType::Timestamp(..));
                Ok(match field.is_nullable() && !is_message {
                    true => format!("optional {one}"),
                    false => one,
                })
            }
        }
    }

    fn value(
        &mut self,
        field: &FieldRef,
        data_type: &DataType,
        taken: &mut HashSet<String>,
        depth: usize,
    ) -> Result<String, TextError> {
        let name = match data_type {
            DataType::Boolean => "bool",
            DataType::Int8 | DataType::Int16 | DataType::Int32 => "int32",
            DataType::Int64 => "int64",
            DataType::Float32 => "float",
            DataType::Float64 => "double",
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "string",
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView => "bytes",
            DataType::Timestamp(TimeUnit::Microsecond, Some(_)) => {
                self.has_time = true;
                ".google.protobuf.Timestamp"
            }
            DataType::Struct(fields) => {
                let name = message_name(field.name(), taken);
                self.message(&name, fields, depth + 1)?;
                return Ok(name);
            }
            other => return Err(self.unsupported(other)),
        };
        Ok(name.to_owned())
    }

    fn unsupported(&self, data_type: &DataType) -> TextError {
        TextError::Type {
            column: self.path.join("."),
            column_type: spark_type(data_type),
            remedy: match data_type {
                DataType::Decimal128(..) => "cast it to STRING or to DOUBLE",
                DataType::Date32 => "cast it to STRING or to TIMESTAMP",
                DataType::Timestamp(..) => "cast it to TIMESTAMP",
                DataType::List(_) => "put the inner ARRAY into a STRUCT",
                DataType::Map(entries, _) => match struct_fields(entries) {
                    Some([_, value]) if matches!(value.data_type(), DataType::List(_)) => {
                        "put the ARRAY in the MAP into a STRUCT"
                    }
                    _ => {
                        "a MAP has keys that are STRING, BOOLEAN or whole numbers, and cannot be \
                         in an ARRAY or another MAP without a STRUCT around it"
                    }
                },
                _ => "cast it to STRING",
            },
        }
    }
}

/// The number of the field at an index. Those from 19000 to 19999 are reserved.
fn number(index: usize) -> usize {
    if index + 1 < 19_000 { index + 1 } else { index + 1_001 }
}

/// The name of the message for a field, in camel case.
fn message_name(field: &str, taken: &mut HashSet<String>) -> String {
    let capital = |part: &str| {
        let (first, rest) = part.split_at(1);
        first.to_ascii_uppercase() + rest
    };
    let parts = field.split('_').filter(|part| !part.is_empty());
    let mut name: String = parts.map(capital).collect();
    if !is_identifier(&name) {
        name.insert_str(0, "Struct");
    }
    while !taken.insert(name.clone()) {
        name.push_str("Struct");
    }
    name
}

//! Rows to records, once it is known by which schema.

use arrow::array::{Array, BinaryArray, BinaryBuilder, RecordBatch, StructArray};
use arrow::datatypes::{DataType, Schema};
use millstream_records::{avro, protobuf};
use millstream_sql::json::{self, EncodeOptions};

use super::SchemaKind;
use super::json_schema::JsonSchema;
use super::parsed::Parsed;

/// What rows are written by.
pub(super) enum Engine {
    Avro(avro::Encoder),
    /// With the path to the message, which stands before each record.
    Protobuf(protobuf::Encoder, Vec<i32>),
    /// With the schema, where objects of the columns may not be what it says.
    Json(Option<JsonSchema>),
}

/// The columns of a part of a record, and those of the query that are none of it.
#[derive(Clone, Copy)]
pub(super) struct Given<'a> {
    pub columns: &'a Schema,
    pub elsewhere: &'a [Elsewhere],
}

/// A column of the query that is no field, as it is something else of a record.
#[derive(Clone, Debug)]
pub struct Elsewhere {
    /// Its name.
    pub name: String,
    /// What it is, after "a column of this name".
    pub what: &'static str,
    /// What to do where a schema has a field of the name.
    pub remedy: &'static str,
}

/// Why rows cannot be written by a schema.
#[derive(Debug)]
pub(super) enum Unfit {
    /// Columns that do not fit, in words.
    Columns(String),
    /// A field is called as a column that is no field; with a remedy.
    Taken(String, &'static str),
}

impl From<String> for Unfit {
    fn from(problem: String) -> Self {
        Self::Columns(problem)
    }
}

impl Given<'_> {
    /// Refuses fields that would be null whatever the query says.
    fn check_fields(&self, fields: &[String]) -> Result<(), Unfit> {
        for column in self.elsewhere {
            if let Some(field) = fields.iter().find(|it| it.eq_ignore_ascii_case(&column.name)) {
                let what = column.what;
                let problem = format!(
                    "the field {field} of the schema cannot be written, as a column of this name \
                     {what}"
                );
                return Err(Unfit::Taken(problem, column.remedy));
            }
        }
        Ok(())
    }
}

/// Why rows are not written.
#[derive(Debug)]
pub(super) enum Fault {
    /// A value that the schema does not have, of a row.
    Row(usize, String),
    /// Something else, in words.
    Other(String),
}

impl Engine {
    /// For columns, by a schema of theirs; with its text.
    ///
    /// # Errors
    /// A column that the format has no type for, in words.
    pub fn derived(
        kind: SchemaKind,
        columns: &Schema,
        name: &str,
    ) -> Result<(Self, String), String> {
        match kind {
            SchemaKind::Avro => {
                let schema = avro::Schema::of_columns(columns, name);
                let schema = schema.map_err(|error| error.to_string())?;
                let text = schema.text().to_owned();
                Ok((Self::by(&Parsed::Avro(schema), columns)?, text))
            }
            SchemaKind::Protobuf => {
                let text = protobuf::proto_text_of(columns, name);
                let text = text.map_err(|error| error.to_string())?;
                let schema = protobuf::Schema::from_text(&text, &[], Some(name));
                let schema = schema.map_err(|error| error.to_string())?;
                Ok((Self::by(&Parsed::Protobuf(schema), columns)?, text))
            }
            SchemaKind::Json => {
                let text = JsonSchema::text_of(columns, name)?;
                let has_floats = columns.fields().iter().any(|field| has_floats(field.data_type()));
                // NaN and the infinities are no numbers of JSON; all else is as the schema says.
                let schema = has_floats.then(|| JsonSchema::parse(&text)).transpose()?;
                Ok((Self::Json(schema), text))
            }
        }
    }

    /// For columns, by a schema of Avro or Protobuf that was given.
    ///
    /// # Errors
    /// What does not fit.
    pub fn of(schema: &Parsed, given: Given<'_>) -> Result<Self, Unfit> {
        given.check_fields(&schema.field_names())?;
        Ok(Self::by(schema, given.columns)?)
    }

    fn by(schema: &Parsed, columns: &Schema) -> Result<Self, String> {
        match schema {
            Parsed::Avro(schema) => {
                let encoder = avro::Encoder::of_columns(columns, Some(schema));
                encoder.map(Self::Avro).map_err(|error| error.to_string())
            }
            Parsed::Protobuf(schema) => {
                let encoder = protobuf::Encoder::exact(schema, columns);
                let encoder = encoder.map_err(|error| error.to_string())?;
                let path = schema.message_index().map_err(|error| error.to_string())?;
                Ok(Self::Protobuf(encoder, path))
            }
        }
    }

    /// For columns, by a JSON Schema.
    ///
    /// # Errors
    /// What does not fit.
    pub fn of_json(text: &str, given: Given<'_>) -> Result<Self, Unfit> {
        let schema = JsonSchema::parse(text)?;
        given.check_fields(&schema.property_names())?;
        schema.fit(given.columns)?;
        Ok(Self::Json(Some(schema)))
    }

    /// What stands between a schema's id and a record.
    pub fn path(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if let Self::Protobuf(_, path) = self {
            protobuf::frame::write_indexes(path, &mut bytes);
        }
        bytes
    }

    /// Each row as a record, with `prefix` before it.
    ///
    /// # Errors
    /// The first row that cannot be one.
    pub fn encode(&self, rows: &RecordBatch, prefix: &[u8]) -> Result<BinaryArray, Fault> {
        match self {
            Self::Avro(encoder) => {
                encoder.encode_batch(rows, prefix).map_err(|error| match error {
                    avro::EncodeError::Value { column, row, problem } => {
                        Fault::Row(row, format!("column {column}: {problem}"))
                    }
                    other => Fault::Other(other.to_string()),
                })
            }
            Self::Protobuf(encoder, _) => {
                encoder.encode(rows, prefix).map_err(|error| match error.in_row() {
                    Some((row, problem)) => Fault::Row(row, problem),
                    None => Fault::Other(error.to_string()),
                })
            }
            Self::Json(schema) => encode_json(schema.as_ref(), rows, prefix),
        }
    }
}

fn encode_json(
    schema: Option<&JsonSchema>,
    rows: &RecordBatch,
    prefix: &[u8],
) -> Result<BinaryArray, Fault> {
    let objects = StructArray::from(rows.clone());
    let texts = json::encode(&objects, EncodeOptions::default());
    let texts = texts.map_err(|error| Fault::Other(error.to_string()))?;
    let bytes = texts.value_data().len() + texts.len() * prefix.len();
    if i32::try_from(bytes).is_err() {
        let problem = format!("the records of {} rows take more than 2 GiB", texts.len());
        return Err(Fault::Other(problem));
    }
    let mut builder = BinaryBuilder::with_capacity(texts.len(), bytes);
    let mut record = Vec::new();
    for row in 0..texts.len() {
        let text = texts.value(row);
        if let Some(schema) = schema {
            let object = serde_json::from_str(text);
            let object = object.map_err(|error| Fault::Row(row, error.to_string()))?;
            schema.check(&object).map_err(|problem| Fault::Row(row, problem))?;
        }
        record.clear();
        record.extend_from_slice(prefix);
        record.extend_from_slice(text.as_bytes());
        builder.append_value(&record);
    }
    Ok(builder.finish())
}

fn has_floats(data_type: &DataType) -> bool {
    match data_type {
        DataType::Float32 | DataType::Float64 => true,
        DataType::List(item) => has_floats(item.data_type()),
        DataType::Map(entries, _) => has_floats(entries.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| has_floats(field.data_type())),
        _ => false,
    }
}

//! Encodes rows as lines of any format.

use std::io::{self, Write};

use arrow::array::{AsArray, RecordBatch, StringArray, StructArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Schema};
use millstream_engine::api::options::OptionError;
use millstream_sql::json::{self, EncodeOptions};
use millstream_sql::types::spark_type;

use crate::csv::{self, CsvOptions};

/// How rows become lines.
///
/// Timestamps in JSON have milliseconds, as Spark writes them; in the other formats microseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordEncoder {
    /// A JSON object each.
    Json {
        /// Whether objects leave out null fields.
        ignore_null_fields: bool,
    },
    /// Separated values.
    Csv(CsvOptions),
    /// The text of the only column.
    Text,
}

impl RecordEncoder {
    /// Errors: rows of `schema` cannot be lines of the format.
    pub fn check(&self, schema: &Schema) -> Result<(), OptionError> {
        let fields = schema.fields();
        match self {
            Self::Text if fields.len() == 1 && is_text(fields[0].data_type()) => Ok(()),
            Self::Text => {
                let columns = fields
                    .iter()
                    .map(|field| format!("{} {}", field.name(), spark_type(field.data_type())));
                let columns: Vec<String> = columns.collect();
                Err(OptionError::table(
                    format!(
                        "text files hold one STRING column, and the query has {}",
                        columns.join(", ")
                    ),
                    Some("build one text column, for example with concat_ws, or write json".into()),
                ))
            }
            Self::Csv(_) => fields.iter().try_for_each(|field| {
                let data_type = field.data_type();
                let wanted = spark_type(data_type);
                if data_type.is_nested() || wanted == "BINARY" || json::check(data_type).is_err() {
                    return Err(OptionError::table(
                        format!("column {}: csv cannot hold {wanted}", field.name()),
                        Some("convert it to STRING in the query, or write json".into()),
                    ));
                }
                Ok(())
            }),
            Self::Json { .. } => fields.iter().try_for_each(|field| {
                json::check(field.data_type()).map_err(|error| {
                    OptionError::table(format!("column {}: {error}", field.name()), None)
                })
            }),
        }
    }

    /// Writes what precedes all rows: the header, where the options of CSV ask for one.
    pub fn begin(&self, schema: &Schema, out: &mut impl Write) -> io::Result<()> {
        match self {
            Self::Csv(options) if options.header => csv::write_header(out, options, schema),
            _ => Ok(()),
        }
    }

    /// Writes a line for each row.
    pub fn write(&self, rows: &RecordBatch, out: &mut impl Write) -> io::Result<()> {
        match self {
            Self::Json { ignore_null_fields } => {
                let ignore_null_fields = *ignore_null_fields;
                let options = EncodeOptions { ignore_null_fields, ..EncodeOptions::default() };
                let objects = StructArray::from(rows.clone());
                write_lines(out, &json::encode(&objects, options).map_err(io::Error::other)?)
            }
            Self::Csv(options) => csv::write_rows(out, options, rows),
            Self::Text => {
                let text = cast(rows.column(0), &DataType::Utf8).map_err(io::Error::other)?;
                write_lines(out, text.as_string())
            }
        }
    }
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

fn write_lines(out: &mut impl Write, lines: &StringArray) -> io::Result<()> {
    for line in lines {
        out.write_all(line.unwrap_or_default().as_bytes())?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

//! Separated values, a record on each line.
//!
//! Each record is split by itself, as Spark does without `multiLine`, so an unclosed quote spoils
//! its own record and no other. All values are first taken as text and then cast, column by column;
//! a value that was there and is null after the cast makes its record malformed, and so does a
//! record with too many or too few values, an empty one, one with a line break outside quotes, or
//! one that is not UTF-8. Line breaks at its ends do not count.
//!
//! A value of no characters is null unless it is quoted, and so is one that equals `nullValue`,
//! quoted or not; `nullValue` is empty by default. That is Spark's rule.

mod decode;
mod encode;

use std::sync::Arc;

use arrow::compute::can_cast_types;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use millstream_engine::api::options::{OptionError, Options};
use millstream_sql::csv::{Dialect, Splitter};
use millstream_sql::json::ParseMode;
use millstream_sql::types::spark_type;

use crate::records::Malformed;

pub use decode::CsvDecoder;
pub use encode::{write_header, write_rows};

/// How separated values are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsvOptions {
    /// Whether the first line is one of column names.
    pub header: bool,
    /// Between values.
    pub separator: u8,
    /// Around values; `None` where quotes mean nothing.
    pub quote: Option<u8>,
    /// Before a quote inside a quoted value.
    pub escape: Option<u8>,
    /// Text that stands for null, besides nothing at all.
    pub null_value: String,
}

impl CsvOptions {
    /// The options of a table: `header`, `sep` or `delimiter`, `quote`, `escape`, `nullValue`.
    /// Errors: one with a value that cannot be.
    pub fn parse(options: &Options) -> Result<Self, OptionError> {
        let separator = match (options.get("sep"), options.get("delimiter")) {
            (Some(_), Some(_)) => {
                let help = Some("keep one, they mean the same".to_owned());
                return Err(OptionError::of("sep", "both 'sep' and 'delimiter' are given", help));
            }
            (None, Some(_)) => character(options, "delimiter")?,
            _ => character(options, "sep")?,
        };
        Ok(Self {
            header: options.parse_bool("header")?.unwrap_or(false),
            separator: separator.flatten().unwrap_or(b','),
            quote: character(options, "quote")?.unwrap_or(Some(b'"')),
            escape: character(options, "escape")?.unwrap_or(Some(b'\\')),
            null_value: options.get("nullValue").unwrap_or_default().to_owned(),
        })
    }

    /// How the values stand on a line.
    pub(crate) fn dialect(&self) -> Dialect {
        Dialect {
            separator: self.separator,
            quote: self.quote,
            escape: self.escape,
            null_value: self.null_value.clone(),
        }
    }
}

/// The values of one line.
pub fn split_once(line: &[u8], options: &CsvOptions) -> Vec<String> {
    let mut splitter = Splitter::new(&options.dialect());
    let values = splitter.split(line);
    (0..values).map(|index| String::from_utf8_lossy(splitter.value(index)).into_owned()).collect()
}

/// One ASCII character, perhaps written as `\t`; `Some(None)` where the option is empty.
fn character(options: &Options, key: &str) -> Result<Option<Option<u8>>, OptionError> {
    match options.get(key).map(|text| (text, text.as_bytes())) {
        None => Ok(None),
        Some((_, b"")) if key == "quote" || key == "escape" => Ok(Some(None)),
        Some((_, b"\\t")) => Ok(Some(Some(b'\t'))),
        Some((_, &[byte])) if byte.is_ascii() && byte != b'\n' && byte != b'\r' => {
            Ok(Some(Some(byte)))
        }
        Some((text, _)) => Err(OptionError::invalid(key, text, "one ASCII character")),
    }
}

/// The columns of a table, and how its lines are decoded into them. Cheap to clone.
#[derive(Clone, Debug)]
pub struct CsvFormat {
    schema: SchemaRef,
    /// The place of the column for malformed records, if it is declared.
    corrupt: Option<usize>,
    mode: ParseMode,
    options: CsvOptions,
}

impl CsvFormat {
    /// Errors: a column that text cannot be converted to.
    pub fn new(
        columns: &Schema,
        malformed: &Malformed,
        options: CsvOptions,
    ) -> Result<Self, OptionError> {
        let corrupt = columns.fields().iter().position(|field| *field.name() == malformed.column);
        for (index, field) in columns.fields().iter().enumerate() {
            check(field, Some(index) == corrupt)?;
        }
        let fields = columns.fields().iter().enumerate().map(|(index, field)| {
            // Malformed records give nulls in any column. Only where they become dead letters can a
            // declared NOT NULL be kept.
            let is_nullable =
                field.is_nullable() || !malformed.dead_letters || Some(index) == corrupt;
            Field::clone(field).with_nullable(is_nullable)
        });
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        Ok(Self { schema, corrupt, mode: malformed.mode, options })
    }

    /// The columns a query sees.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// A decoder for the columns `projection`.
    pub fn decoder(&self, projection: &[usize]) -> CsvDecoder {
        CsvDecoder::new(self.clone(), projection)
    }
}

fn check(field: &Field, is_for_malformed: bool) -> Result<(), OptionError> {
    let (name, data_type) = (field.name(), field.data_type());
    if is_for_malformed && *data_type != DataType::Utf8 {
        let problem = format!("column {name} is for malformed records");
        return Err(OptionError::table(problem, Some("declare it as STRING".into())));
    }
    let converts = !data_type.is_nested()
        && !matches!(data_type, DataType::Binary)
        && can_cast_types(&DataType::Utf8, data_type);
    if !converts {
        return Err(OptionError::table(
            format!("column {name}: csv cannot hold {}", spark_type(data_type)),
            Some("declare it as STRING and convert it in the query".into()),
        ));
    }
    Ok(())
}

//! Values that are lines of CSV.
//!
//! Lines of a chunk are parsed together, which is fast. Only if something is wrong among them are
//! they parsed one by one, so that one bad record does not hide the good ones.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryArray, RecordBatch, StringArray, new_empty_array, new_null_array,
};
use arrow::compute::concat;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow_csv::ReaderBuilder;
use arrow_csv::reader::Decoder;
use millstream_engine::connector::{OptionError, Options};
use millstream_engine::json::ParseMode;
use regex::Regex;

use super::value::corrupt_column;

/// How CSV is read.
#[derive(Clone, Debug)]
pub struct CsvFormat {
    /// The columns of a line; the one for malformed records is not among them.
    line: SchemaRef,
    /// Where in the table's columns the one for malformed records stands.
    corrupt: Option<usize>,
    mode: ParseMode,
    delimiter: u8,
    quote: u8,
    escape: Option<u8>,
    null: Option<Regex>,
}

/// What came out of some records.
#[derive(Debug)]
pub struct Decoded {
    /// The projected columns.
    pub columns: Vec<ArrayRef>,
    /// How many rows they have.
    pub rows: usize,
    /// How many records were malformed.
    pub malformed: u64,
}

impl CsvFormat {
    /// Checks columns and options; also gives the columns that a query sees.
    pub fn new(
        columns: &SchemaRef,
        mode: ParseMode,
        options: &Options,
    ) -> Result<(SchemaRef, Self), OptionError> {
        let corrupt_name = corrupt_column(options);
        let corrupt = columns.fields().iter().position(|field| *field.name() == corrupt_name);
        for (index, field) in columns.fields().iter().enumerate() {
            let fits = if Some(index) == corrupt {
                *field.data_type() == DataType::Utf8
            } else {
                is_supported(field.data_type())
            };
            if !fits {
                let problem = format!("the column '{}' cannot be read from CSV", field.name());
                return Err(OptionError::table(problem, None));
            }
        }
        if options.parse_bool("header")?.unwrap_or(false) {
            let help = "Each record is one line; a header line would be a record of its own";
            let problem = "'header' cannot be true for a Kafka table";
            return Err(OptionError::of("header", problem, Some(help.to_owned())));
        }
        let nullable = |field: &Arc<Field>| field.as_ref().clone().with_nullable(true);
        let schema = Schema::new(columns.fields().iter().map(nullable).collect::<Vec<_>>());
        let mut line = schema.fields().to_vec();
        if let Some(index) = corrupt {
            line.remove(index);
        }
        let separator = if options.get("delimiter").is_some() { "delimiter" } else { "sep" };
        let format = Self {
            line: Arc::new(Schema::new(line)),
            corrupt,
            mode,
            delimiter: byte(options, separator)?.unwrap_or(b','),
            quote: byte(options, "quote")?.unwrap_or(b'"'),
            escape: byte(options, "escape")?.or(Some(b'\\')),
            null: null_value(options),
        };
        Ok((Arc::new(schema), format))
    }
}

fn null_value(options: &Options) -> Option<Regex> {
    let text = options.get("nullValue").unwrap_or_default();
    Some(Regex::new(&format!("^{}$", regex::escape(text))).expect("an escaped text is a pattern"))
}

fn byte(options: &Options, key: &str) -> Result<Option<u8>, OptionError> {
    let Some(text) = options.get(key) else { return Ok(None) };
    match (text, text.as_bytes()) {
        ("\\t", _) => Ok(Some(b'\t')),
        (_, [byte]) => Ok(Some(*byte)),
        _ => Err(OptionError::invalid(key, text, "one character, or \\t")),
    }
}

fn is_supported(data_type: &DataType) -> bool {
    data_type.is_integer()
        || data_type.is_floating()
        || matches!(
            data_type,
            DataType::Boolean
                | DataType::Utf8
                | DataType::Date32
                | DataType::Timestamp(_, _)
                | DataType::Decimal128(_, _)
        )
}

/// Reads chunks of values.
pub struct CsvReader {
    format: CsvFormat,
    projection: Vec<usize>,
}

impl CsvReader {
    /// A reader for the table's columns `projection`.
    pub fn new(format: &CsvFormat, projection: &[usize]) -> Self {
        Self { format: format.clone(), projection: projection.to_vec() }
    }

    /// Reads all `values`.
    /// Errors: the first malformed record and what is wrong with it, if the mode is FAILFAST.
    pub fn read(&self, values: &BinaryArray) -> Result<Decoded, (usize, String)> {
        match self.read_together(values) {
            Some(lines) => Ok(self.assemble(&[lines], None, values.len(), 0)),
            None => self.read_one_by_one(values, None),
        }
    }

    /// Reads `values` but for malformed ones, whatever the mode; `reject` hears of each.
    pub fn read_apart(
        &self,
        values: &BinaryArray,
        reject: &mut dyn FnMut(usize, String),
    ) -> Decoded {
        match self.read_together(values) {
            Some(lines) => self.assemble(&[lines], None, values.len(), 0),
            None => self
                .read_one_by_one(values, Some(reject))
                .expect("nothing fails where malformed records are told of"),
        }
    }

    fn decoder(&self, rows: usize) -> Decoder {
        let format = &self.format;
        let mut builder = ReaderBuilder::new(format.line.clone())
            .with_header(false)
            .with_batch_size(rows)
            .with_delimiter(format.delimiter)
            .with_quote(format.quote);
        if let Some(escape) = format.escape {
            builder = builder.with_escape(escape);
        }
        if let Some(null) = &format.null {
            builder = builder.with_null_regex(null.clone());
        }
        builder.build_decoder()
    }

    /// All rows, or `None` if anything is odd: a bad value, a null, or a line break in a value.
    fn read_together(&self, values: &BinaryArray) -> Option<RecordBatch> {
        if values.null_count() > 0 || values.is_empty() {
            return None;
        }
        let mut text = Vec::with_capacity(values.value_data().len() + values.len());
        for value in values.iter().flatten() {
            text.extend_from_slice(value);
            text.push(b'\n');
        }
        let lines = decode(self.decoder(values.len()), &text).ok()??;
        (lines.num_rows() == values.len()).then_some(lines)
    }

    fn read_one_by_one(
        &self,
        values: &BinaryArray,
        mut reject: Option<&mut dyn FnMut(usize, String)>,
    ) -> Result<Decoded, (usize, String)> {
        let mut lines = Vec::with_capacity(values.len());
        let mut corrupt = Vec::with_capacity(values.len());
        let mut malformed = 0;
        let nothing = || {
            let columns = self.format.line.fields().iter();
            let columns = columns.map(|field| new_null_array(field.data_type(), 1)).collect();
            RecordBatch::try_new(self.format.line.clone(), columns).expect("one row of nulls")
        };
        for (row, value) in values.iter().enumerate() {
            let Some(value) = value else {
                lines.push(nothing());
                corrupt.push(None);
                continue;
            };
            let problem = match self.read_one(value) {
                Ok(line) => {
                    lines.push(line);
                    corrupt.push(None);
                    continue;
                }
                Err(problem) => problem,
            };
            malformed += 1;
            if let Some(reject) = &mut reject {
                reject(row, problem);
                continue;
            }
            if self.format.mode == ParseMode::FailFast {
                return Err((row, problem));
            }
            if self.format.mode == ParseMode::Permissive {
                lines.push(nothing());
                corrupt.push(Some(String::from_utf8_lossy(value).into_owned()));
            }
        }
        let rows = lines.len();
        let corrupt = StringArray::from(corrupt);
        Ok(self.assemble(&lines, Some(Arc::new(corrupt)), rows, malformed))
    }

    fn read_one(&self, value: &[u8]) -> Result<RecordBatch, String> {
        let mut text = value.to_vec();
        text.push(b'\n');
        match decode(self.decoder(2), &text) {
            Ok(Some(line)) if line.num_rows() == 1 => Ok(line),
            Ok(Some(lines)) => Err(format!("the record has {} lines", lines.num_rows())),
            Ok(None) => Err("the record is empty".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// The projected columns of some lines.
    fn assemble(
        &self,
        lines: &[RecordBatch],
        corrupt: Option<ArrayRef>,
        rows: usize,
        malformed: u64,
    ) -> Decoded {
        let column = |index: &usize| -> ArrayRef {
            if Some(*index) == self.format.corrupt {
                return corrupt.clone().unwrap_or_else(|| new_null_array(&DataType::Utf8, rows));
            }
            // Columns behind the one for malformed records have moved up by one.
            let moved = self.format.corrupt.is_some_and(|corrupt| *index > corrupt);
            let index = *index - usize::from(moved);
            match lines {
                [] => new_empty_array(self.format.line.field(index).data_type()),
                [one] => one.column(index).clone(),
                many => {
                    let parts: Vec<&dyn Array> =
                        many.iter().map(|line| line.column(index).as_ref()).collect();
                    concat(&parts).expect("the parts have one type")
                }
            }
        };
        Decoded { columns: self.projection.iter().map(column).collect(), rows, malformed }
    }
}

fn decode(
    mut decoder: Decoder,
    mut text: &[u8],
) -> Result<Option<RecordBatch>, arrow::error::ArrowError> {
    loop {
        let read = decoder.decode(text)?;
        text = &text[read..];
        if text.is_empty() || read == 0 {
            return decoder.flush();
        }
    }
}

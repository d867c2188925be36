//! Values that are lines of CSV.
//!
//! Lines of a chunk are parsed together, which is fast. If something is wrong among them, each half
//! is parsed by itself, and so on down to single records: one bad record neither hides the good
//! ones nor makes them slow.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, RecordBatch, StringArray, new_empty_array,
    new_null_array,
};
use arrow::compute::concat;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow_csv::ReaderBuilder;
use arrow_csv::reader::Decoder;
use millstream_engine::api::dead_letter;
use millstream_engine::api::options::{OptionError, Options};
use millstream_sql::json::ParseMode;
use millstream_sql::types::spark_type;
use regex::Regex;

use super::value::corrupt_column;
use millstream_formats::excerpt;

/// How CSV is read.
#[derive(Clone, Debug)]
pub struct CsvFormat {
    /// The columns of a line, all nullable; the one for malformed records is not among them.
    line: SchemaRef,
    /// By column of a line, whether a null makes the record malformed: where those are dead letters
    /// and the column was declared NOT NULL.
    required: Vec<bool>,
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
        let apart = options.get(dead_letter::OPTION).is_some();
        let seen = |(index, field): (usize, &Arc<Field>)| {
            let is_nullable = field.is_nullable() || !apart || Some(index) == corrupt;
            field.as_ref().clone().with_nullable(is_nullable)
        };
        let schema = columns.fields().iter().enumerate().map(seen).collect::<Vec<_>>();
        let mut line = schema.clone();
        if let Some(index) = corrupt {
            line.remove(index);
        }
        let required = line.iter().map(|field| !field.is_nullable()).collect();
        let line = line.into_iter().map(|field| field.with_nullable(true)).collect::<Vec<_>>();
        let separator = if options.get("delimiter").is_some() { "delimiter" } else { "sep" };
        let format = Self {
            line: Arc::new(Schema::new(line)),
            required,
            corrupt,
            mode,
            delimiter: byte(options, separator)?.unwrap_or(b','),
            quote: byte(options, "quote")?.unwrap_or(b'"'),
            escape: byte(options, "escape")?.or(Some(b'\\')),
            null: null_value(options),
        };
        Ok((Arc::new(Schema::new(schema)), format))
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
        self.read_all(values, None)
    }

    /// Reads `values` but for malformed ones, whatever the mode; `reject` hears of each.
    pub fn read_apart(
        &self,
        values: &BinaryArray,
        reject: &mut dyn FnMut(usize, String),
    ) -> Decoded {
        let decoded = self.read_all(values, Some(reject));
        decoded.expect("nothing fails where malformed records are told of")
    }

    fn read_all<'a>(
        &'a self,
        values: &'a BinaryArray,
        reject: Option<&'a mut (dyn FnMut(usize, String) + 'a)>,
    ) -> Result<Decoded, (usize, String)> {
        if let Some(lines) = self.read_together(values) {
            return Ok(self.assemble(&[lines], None, values.len(), 0));
        }
        let mut pieces = Pieces {
            reader: self,
            values,
            lines: Vec::new(),
            corrupt: Vec::new(),
            malformed: 0,
            reject,
        };
        pieces.add(0..values.len())?;
        let Pieces { lines, corrupt, malformed, .. } = pieces;
        let rows = corrupt.len();
        let corrupt = StringArray::from(corrupt);
        Ok(self.assemble(&lines, Some(Arc::new(corrupt)), rows, malformed))
    }

    fn decoder(&self, line: SchemaRef, rows: usize) -> Decoder {
        let format = &self.format;
        let mut builder = ReaderBuilder::new(line)
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
        if values.null_count() > 0 || values.is_empty() || has_line_breaks(values) {
            return None;
        }
        let mut text = Vec::with_capacity(values.value_data().len().min(1 << 20) + values.len());
        for value in values.iter().flatten() {
            text.extend_from_slice(value);
            text.push(b'\n');
        }
        let lines = decode(self.decoder(self.format.line.clone(), values.len()), &text).ok()??;
        let is_whole = lines.num_rows() == values.len() && self.missing(&lines).is_none();
        is_whole.then_some(lines)
    }

    /// The first column declared NOT NULL that has a null in `lines`.
    fn missing(&self, lines: &RecordBatch) -> Option<&str> {
        let columns = lines.columns().iter().zip(&self.format.required);
        let is_missing =
            |(column, required): (&ArrayRef, &bool)| *required && column.null_count() > 0;
        let at = columns.map(is_missing).position(|missing| missing)?;
        Some(self.format.line.field(at).name())
    }

    /// The record of no value, or a line.
    fn read_one(&self, value: Option<&[u8]>) -> Result<RecordBatch, String> {
        let Some(value) = value else {
            let fields = self.format.line.fields().iter();
            let columns = fields.map(|field| new_null_array(field.data_type(), 1)).collect();
            let line = RecordBatch::try_new(self.format.line.clone(), columns);
            return self.complete(line.expect("one row of nulls"));
        };
        match self.decode_one(&self.format.line, value) {
            Ok(Some(line)) if line.num_rows() == 1 => self.complete(line),
            Ok(Some(lines)) => Err(format!("the record has {} lines", lines.num_rows())),
            Ok(None) => Err("the record is empty".to_owned()),
            Err(error) => Err(self.describe(value, &error)),
        }
    }

    fn complete(&self, line: RecordBatch) -> Result<RecordBatch, String> {
        match self.missing(&line) {
            None => Ok(line),
            Some(column) => {
                Err(format!("there is no value for column {column}, which is NOT NULL"))
            }
        }
    }

    fn decode_one(
        &self,
        line: &SchemaRef,
        value: &[u8],
    ) -> Result<Option<RecordBatch>, ArrowError> {
        let mut text = value.to_vec();
        text.push(b'\n');
        decode(self.decoder(line.clone(), 2), &text)
    }

    /// What is wrong with a record, in words of our own: the parser's have all of its text.
    fn describe(&self, value: &[u8], error: &ArrowError) -> String {
        if std::str::from_utf8(value).is_err() {
            return "the record is not UTF-8".to_owned();
        }
        let text = |field: &Arc<Field>| field.as_ref().clone().with_data_type(DataType::Utf8);
        let texts: Vec<Field> = self.format.line.fields().iter().map(text).collect();
        let as_text = |typed: Option<usize>| {
            let mut fields = texts.clone();
            if let Some(column) = typed {
                fields[column] = self.format.line.field(column).clone();
            }
            self.decode_one(&Arc::new(Schema::new(fields)), value)
        };
        let Ok(Some(found)) = as_text(None) else {
            // It is not about a value, so there is none in it.
            let text = error.to_string().replace(" for line 1,", ",");
            return text.trim_start_matches("Csv error: ").to_owned();
        };
        let Some(column) = (0..texts.len()).find(|column| as_text(Some(*column)).is_err()) else {
            return "the record cannot be read as its columns say".to_owned();
        };
        let field = self.format.line.field(column);
        let value = found.column(column).as_string::<i32>().value(0).as_bytes();
        let wanted = spark_type(field.data_type());
        format!("'{}' is no {wanted} for column {}", excerpt(value), field.name())
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

/// Records that are not all sound, read in pieces.
struct Pieces<'a> {
    reader: &'a CsvReader,
    values: &'a BinaryArray,
    /// The rows, in order.
    lines: Vec<RecordBatch>,
    /// By row, the text of a malformed record.
    corrupt: Vec<Option<String>>,
    malformed: u64,
    reject: Option<&'a mut (dyn FnMut(usize, String) + 'a)>,
}

impl Pieces<'_> {
    /// Reads the records `rows`: together, or else each half by itself.
    fn add(&mut self, rows: Range<usize>) -> Result<(), (usize, String)> {
        if rows.len() < 2 {
            return rows.into_iter().try_for_each(|row| self.add_one(row));
        }
        if let Some(lines) = self.reader.read_together(&self.values.slice(rows.start, rows.len())) {
            self.corrupt.extend(std::iter::repeat_n(None, rows.len()));
            self.lines.push(lines);
            return Ok(());
        }
        let middle = rows.start + rows.len() / 2;
        self.add(rows.start..middle)?;
        self.add(middle..rows.end)
    }

    fn add_one(&mut self, row: usize) -> Result<(), (usize, String)> {
        let value = self.values.is_valid(row).then(|| self.values.value(row));
        let problem = match self.reader.read_one(value) {
            Ok(line) => {
                self.lines.push(line);
                self.corrupt.push(None);
                return Ok(());
            }
            Err(problem) => problem,
        };
        self.malformed += 1;
        if let Some(reject) = &mut self.reject {
            reject(row, problem);
            return Ok(());
        }
        match self.reader.format.mode {
            ParseMode::FailFast => return Err((row, problem)),
            ParseMode::DropMalformed => {}
            ParseMode::Permissive => {
                let nothing = self.reader.read_one(None);
                self.lines.push(nothing.expect("nulls are malformed only where they are letters"));
                let text = value.map(|value| String::from_utf8_lossy(value).into_owned());
                self.corrupt.push(text);
            }
        }
        Ok(())
    }
}

/// Whether a value has more than one line, or may have.
fn has_line_breaks(values: &BinaryArray) -> bool {
    let offsets = values.value_offsets();
    let all = &values.value_data()[offsets[0] as usize..offsets[values.len()] as usize];
    if !all.contains(&b'\n') && !all.contains(&b'\r') {
        return false;
    }
    let breaks = |value: &[u8]| {
        let value = value.strip_suffix(b"\r").unwrap_or(value);
        value.contains(&b'\n') || value.contains(&b'\r')
    };
    values.iter().flatten().any(breaks)
}

fn decode(mut decoder: Decoder, mut text: &[u8]) -> Result<Option<RecordBatch>, ArrowError> {
    loop {
        let read = decoder.decode(text)?;
        text = &text[read..];
        if text.is_empty() || read == 0 {
            return decoder.flush();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(options: &[(&str, &str)]) -> CsvReader {
        let fields =
            vec![Field::new("n", DataType::Int64, true), Field::new("s", DataType::Utf8, true)];
        let options = options.iter().map(|(key, value)| ((*key).into(), (*value).into()));
        let options = Options::new(options);
        let columns = Arc::new(Schema::new(fields));
        let (_, format) = CsvFormat::new(&columns, ParseMode::DropMalformed, &options).unwrap();
        CsvReader::new(&format, &[0, 1])
    }

    /// The rows that are malformed, the others, and in how many pieces those were parsed.
    fn pieces(reader: &CsvReader, values: &[String]) -> (Vec<usize>, usize, usize) {
        let values = BinaryArray::from_iter_values(values);
        let mut malformed = Vec::new();
        let mut reject = |row, _| malformed.push(row);
        let mut pieces = Pieces {
            reader,
            values: &values,
            lines: Vec::new(),
            corrupt: Vec::new(),
            malformed: 0,
            reject: Some(&mut reject),
        };
        pieces.add(0..values.len()).unwrap();
        let rows = pieces.lines.iter().map(RecordBatch::num_rows).sum();
        let parsed = pieces.lines.len();
        (malformed, rows, parsed)
    }

    #[test]
    fn one_bad_record_leaves_the_others_together() {
        let mut values: Vec<String> = (0..8_192).map(|n| format!("{n},a")).collect();
        for bad in [0, 777, 8_191] {
            values[bad] = "x,a".to_owned();
        }
        let (malformed, rows, parsed) = pieces(&reader(&[]), &values);
        assert_eq!((malformed, rows), (vec![0, 777, 8_191], 8_189));
        assert!(parsed < 40, "{parsed} pieces");
    }

    #[test]
    fn a_line_break_in_one_record_takes_nothing_from_the_next() {
        // Together they have as many lines as there are records.
        let values = ["1,\"a", "2,b\",c", "3,d\n4,e", "5,f\r"].map(str::to_owned);
        let (malformed, rows, _) = pieces(&reader(&[]), &values);
        assert_eq!((malformed, rows), (vec![0, 1, 2], 1), "a quote is closed in its own record");
        let whole = ["1,\"a\nb\"".to_owned(), "2,c".to_owned()];
        assert_eq!(pieces(&reader(&[]), &whole), (vec![], 2, 2));
    }
}

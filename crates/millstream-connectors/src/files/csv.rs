//! Separated values, a record on each line.
//!
//! Each line is split by itself, as Spark does without `multiLine`, so an unclosed quote spoils its
//! own record and not the rest of the file. All values are first taken as text and then cast,
//! column
//! by column; a value that was there and is null after the cast makes its record malformed, and so
//! does a line with too many or too few values, or one that is not UTF-8.
//!
//! A value of no characters is null unless it is quoted, and so is one that equals `nullValue`,
//! quoted or not; `nullValue` is empty by default. That is Spark's rule.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::builder::{BooleanBuilder, StringBuilder};
use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch, StringArray};
use arrow::compute::{CastOptions, can_cast_types, cast_with_options, filter_record_batch};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use millstream_engine::api::options::OptionError;
use millstream_sql::json::ParseMode;
use millstream_sql::types::spark_type;

use super::error::FileError;
use super::lines::{Block, Lines};
use super::options::{CsvOptions, Format};
use super::read::{Reader, line_error, loose, project, record_batch};
use millstream_formats::excerpt;

/// Errors if a column has a type that text does not convert to.
pub(super) fn check(schema: &Schema, corrupt_record_column: &str) -> Result<(), OptionError> {
    for field in schema.fields() {
        let is_corrupt_record = field.name() == corrupt_record_column;
        if is_corrupt_record && *field.data_type() != DataType::Utf8 {
            let problem = format!("column {} is for malformed records", field.name());
            return Err(OptionError::table(problem, Some("declare it as STRING".into())));
        }
        let converts = !field.data_type().is_nested()
            && !matches!(field.data_type(), DataType::Binary)
            && can_cast_types(&DataType::Utf8, field.data_type());
        if !converts {
            return Err(OptionError::table(
                format!(
                    "column {}: csv cannot hold {}",
                    field.name(),
                    spark_type(field.data_type())
                ),
                Some("declare it as STRING and convert it in the query".into()),
            ));
        }
    }
    Ok(())
}

/// Why a record is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    NotUtf8,
    Values { found: usize },
    Value { column: usize },
    Null { column: usize },
}

/// The rows of one file.
pub(super) struct CsvRows {
    lines: Lines,
    path: PathBuf,
    decoder: CsvDecoder,
}

impl CsvRows {
    pub(super) fn new(lines: Lines, path: PathBuf, reader: &Reader, projection: &[usize]) -> Self {
        Self { lines, path, decoder: CsvDecoder::new(reader, projection) }
    }
}

/// Makes rows of blocks of lines.
pub(super) struct CsvDecoder {
    reader: Reader,
    projection: Vec<usize>,
    projected: SchemaRef,
    /// The columns that stand in the file: all but the one for malformed records.
    columns: Vec<usize>,
    splitter: Splitter,
}

impl CsvDecoder {
    pub(super) fn new(reader: &Reader, projection: &[usize]) -> Self {
        let corrupt = &reader.options.corrupt_record_column;
        let fields = reader.schema.fields();
        let columns = (0..fields.len()).filter(|column| fields[*column].name() != corrupt);
        Self {
            projection: projection.to_vec(),
            projected: project(&reader.schema, projection),
            columns: columns.collect(),
            splitter: Splitter::new(&reader.options.csv),
            reader: reader.clone(),
        }
    }

    pub(super) fn decode(&mut self, block: &Block, path: &Path) -> Result<RecordBatch, FileError> {
        let mut faults: Vec<Option<Fault>> = vec![None; block.len()];
        let texts = self.split(block, &mut faults);
        let mut arrays: Vec<Option<ArrayRef>> = vec![None; self.reader.schema.fields().len()];
        for (text, &column) in texts.iter().zip(&self.columns) {
            let field = self.reader.schema.field(column);
            let values = cast(text, field.data_type());
            for (row, fault) in faults.iter_mut().enumerate() {
                if fault.is_none() && values.is_null(row) {
                    *fault = match text.is_valid(row) {
                        true => Some(Fault::Value { column }),
                        false => (!field.is_nullable()).then_some(Fault::Null { column }),
                    };
                }
            }
            arrays[column] = Some(values);
        }
        self.report(block, path, &faults)?;
        let columns = self.projection.iter().map(|&column| match &arrays[column] {
            Some(values) => values.clone(),
            None => Arc::new(corrupt_records(block, &faults)) as ArrayRef,
        });
        let rows = record_batch(&loose(&self.projected), columns.collect(), block.len())
            .expect("columns have the types that were declared");
        let rows = match self.reader.options.mode {
            ParseMode::DropMalformed => {
                let sound = faults.iter().map(|fault| Some(fault.is_none()));
                let sound: BooleanArray = sound.collect();
                filter_record_batch(&rows, &sound).expect("a flag for each row")
            }
            _ => rows,
        };
        Ok(record_batch(&self.projected, rows.columns().to_vec(), rows.num_rows())
            .expect("rows with nulls that must not be are gone"))
    }

    /// The values of each column as text, null where there are none.
    fn split(&mut self, block: &Block, faults: &mut [Option<Fault>]) -> Vec<StringArray> {
        let builder = || StringBuilder::with_capacity(block.len(), block.bytes.len());
        let mut builders: Vec<StringBuilder> = self.columns.iter().map(|_| builder()).collect();
        for (row, fault) in faults.iter_mut().enumerate() {
            let line = block.line(row);
            if std::str::from_utf8(line).is_err() {
                *fault = Some(Fault::NotUtf8);
                builders.iter_mut().for_each(StringBuilder::append_null);
                continue;
            }
            let found = self.splitter.split(line);
            if found != builders.len() {
                *fault = Some(Fault::Values { found });
            }
            for (index, builder) in builders.iter_mut().enumerate() {
                let value = self.splitter.value_or_null(index);
                // The parts of UTF-8 text between ASCII characters are UTF-8.
                builder.append_option(value.and_then(|value| std::str::from_utf8(value).ok()));
            }
        }
        builders.iter_mut().map(StringBuilder::finish).collect()
    }

    fn report(
        &mut self,
        block: &Block,
        path: &Path,
        faults: &[Option<Fault>],
    ) -> Result<(), FileError> {
        let malformed = faults.iter().flatten().count() as u64;
        self.reader.counters.rows_malformed.fetch_add(malformed, Ordering::Relaxed);
        let mut faults =
            faults.iter().enumerate().filter_map(|(row, fault)| Some((row, (*fault)?)));
        if let Some(rejected) = self.reader.rejected.clone() {
            let file: Arc<str> = path.display().to_string().into();
            let letters = faults.map(|(row, fault)| {
                let error = self.describe(block, row, fault);
                block.letter(&file, row, error)
            });
            rejected.lock().extend(letters);
            return Ok(());
        }
        if self.reader.options.mode != ParseMode::FailFast {
            return Ok(());
        }
        let Some((row, fault)) = faults.next() else { return Ok(()) };
        let problem = self.describe(block, row, fault);
        let help = "repair the data, or set the option mode to PERMISSIVE or DROPMALFORMED";
        Err(FileError::Malformed {
            path: path.to_owned(),
            line: block.numbers[row],
            problem: format!("{problem}: {help}"),
        })
    }

    fn describe(&mut self, block: &Block, row: usize, fault: Fault) -> String {
        match fault {
            Fault::NotUtf8 => "the record is not UTF-8".to_owned(),
            Fault::Values { found } => {
                format!("the record has {found} values for {} columns", self.columns.len())
            }
            Fault::Null { column } => {
                let name = self.reader.schema.field(column).name();
                format!("there is no value for column {name}, which is NOT NULL")
            }
            Fault::Value { column } => {
                let field = self.reader.schema.field(column);
                self.splitter.split(block.line(row));
                let index = self.columns.iter().position(|known| *known == column);
                let value = index.map_or(&b""[..], |index| self.splitter.value(index));
                format!(
                    "'{}' is no {} for column {}",
                    excerpt(value),
                    spark_type(field.data_type()),
                    field.name()
                )
            }
        }
    }
}

impl Iterator for CsvRows {
    type Item = Result<RecordBatch, FileError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.lines.next_block() {
            Ok(None) => None,
            Ok(Some(block)) => Some(self.decoder.decode(&block, &self.path)),
            Err(error) => Some(Err(line_error(&self.path, Format::Csv, error))),
        }
    }
}

fn corrupt_records(block: &Block, faults: &[Option<Fault>]) -> StringArray {
    let text = |(row, fault): (usize, &Option<Fault>)| {
        fault.map(|_| String::from_utf8_lossy(block.line(row)))
    };
    faults.iter().enumerate().map(text).collect()
}

/// Text as `wanted`; null where it is none.
fn cast(text: &StringArray, wanted: &DataType) -> ArrayRef {
    match wanted {
        DataType::Utf8 => Arc::new(text.clone()),
        // Spark takes nothing but these two words.
        DataType::Boolean => {
            let mut values = BooleanBuilder::with_capacity(text.len());
            text.iter().for_each(|value| {
                values.append_option(value.and_then(|value| {
                    let is = |word| value.eq_ignore_ascii_case(word);
                    if is("true") { Some(true) } else { is("false").then_some(false) }
                }));
            });
            Arc::new(values.finish())
        }
        _ => {
            let options = CastOptions { safe: true, ..CastOptions::default() };
            cast_with_options(text, wanted, &options).expect("the columns were checked")
        }
    }
}

/// Splits one line after the other into values.
///
/// Inside quotes the escape character before a quote or before itself gives that character, and two
/// quotes give one; anywhere else both stand for themselves. A quoted value with more text behind
/// it is taken as it stands. This is what Spark's parser (univocity) does by default.
struct Splitter {
    options: CsvOptions,
    values: Vec<u8>,
    /// Where each value ends in `values`, and whether it was quoted.
    ends: Vec<(usize, bool)>,
}

impl Splitter {
    fn new(options: &CsvOptions) -> Self {
        Self { options: options.clone(), values: Vec::new(), ends: Vec::new() }
    }

    /// Splits `line` and gives the number of values.
    fn split(&mut self, line: &[u8]) -> usize {
        self.values.clear();
        self.ends.clear();
        let mut rest = line;
        loop {
            let is_quoted =
                self.options.quote.is_some() && rest.first().copied() == self.options.quote;
            let (length, is_quoted) = match is_quoted.then(|| self.quoted(rest)).flatten() {
                Some(length) => (length, true),
                None => (self.unquoted(rest), false),
            };
            self.ends.push((self.values.len(), is_quoted));
            match rest.get(length + 1..) {
                Some(after) => rest = after,
                None => return self.ends.len(),
            }
        }
    }

    /// Takes the value that ends before the next separator; gives its length.
    fn unquoted(&mut self, text: &[u8]) -> usize {
        let separator = self.options.separator;
        let length = text.iter().position(|byte| *byte == separator).unwrap_or(text.len());
        self.values.extend_from_slice(&text[..length]);
        length
    }

    /// Takes the quoted value that `text` starts with, if nothing but spaces stands between its
    /// closing quote and the separator; gives the length with quotes and spaces.
    fn quoted(&mut self, text: &[u8]) -> Option<usize> {
        let quote = self.options.quote?;
        let start = self.values.len();
        let mut at = 1;
        loop {
            let Some(&byte) = text.get(at) else { return Some(text.len()) };
            let next = text.get(at + 1).copied();
            let is_escape = Some(byte) == self.options.escape && byte != quote;
            if is_escape && (next == Some(quote) || next == Some(byte)) {
                self.values.extend(next);
                at += 2;
            } else if byte == quote && next == Some(quote) {
                self.values.push(quote);
                at += 2;
            } else if byte == quote {
                break;
            } else {
                self.values.push(byte);
                at += 1;
            }
        }
        let after = text[at + 1..].iter().take_while(|byte| **byte == b' ').count() + at + 1;
        if text.get(after).is_none_or(|byte| *byte == self.options.separator) {
            return Some(after);
        }
        self.values.truncate(start);
        None
    }

    fn value(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).map_or(0, |previous| self.ends[previous].0);
        &self.values[start..self.ends[index].0]
    }

    /// The value, or `None` where it stands for null.
    fn value_or_null(&self, index: usize) -> Option<&[u8]> {
        let (_, is_quoted) = *self.ends.get(index)?;
        let value = self.value(index);
        let is_null = value.is_empty() && !is_quoted || value == self.options.null_value.as_bytes();
        (!is_null).then_some(value)
    }
}

/// The values of one line.
pub(super) fn split_once(line: &[u8], options: &CsvOptions) -> Vec<String> {
    let mut splitter = Splitter::new(options);
    let values = splitter.split(line);
    (0..values).map(|index| String::from_utf8_lossy(splitter.value(index)).into_owned()).collect()
}

/// Appends `value` to a line so that splitting gives it back; `None` is null.
pub(super) fn write_value(value: Option<&str>, options: &CsvOptions, line: &mut String) {
    let Some(value) = value else { return line.push_str(&options.null_value) };
    let Some(quote) = options.quote else { return line.push_str(value) };
    let special = [options.separator, quote, b'\n', b'\r'];
    let is_plain = !value.bytes().any(|byte| special.contains(&byte));
    if is_plain && !value.is_empty() && value != options.null_value {
        return line.push_str(value);
    }
    let escape = options.escape.unwrap_or(quote);
    line.push(char::from(quote));
    for character in value.chars() {
        if character == char::from(quote) || character == char::from(escape) {
            line.push(char::from(escape));
        }
        line.push(character);
    }
    line.push(char::from(quote));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> CsvOptions {
        CsvOptions {
            header: false,
            separator: b',',
            quote: Some(b'"'),
            escape: Some(b'\\'),
            null_value: String::new(),
        }
    }

    #[test]
    fn lines_are_split_as_spark_splits_them() {
        let cases: &[(&str, &[&str])] = &[
            ("a,b,c", &["a", "b", "c"]),
            ("", &[""]),
            (",", &["", ""]),
            (r#""a,b",c"#, &["a,b", "c"]),
            (r#""say ""hi""",c"#, &[r#"say "hi""#, "c"]),
            (r#""say \"hi\"",c"#, &[r#"say "hi""#, "c"]),
            (r#""C:\new\\",C:\new"#, &[r"C:\new\", r"C:\new"]),
            (r#""a" ,b"#, &["a", "b"]),
            (r#""a"x,b"#, &[r#""a"x"#, "b"]),
            (r#"5" pipe,b"#, &[r#"5" pipe"#, "b"]),
            (r#"a,"never closed, so to the end"#, &["a", "never closed, so to the end"]),
            ("größe,水", &["größe", "水"]),
        ];
        for (line, values) in cases {
            assert_eq!(split_once(line.as_bytes(), &options()), *values, "{line}");
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let null_value_set = CsvOptions { null_value: "NA".into(), ..options() };
        let semicolons = CsvOptions { separator: b';', quote: Some(b'\''), ..options() };
        let doubled = CsvOptions { escape: Some(b'"'), ..options() };
        let parts = ["", "a", ",", ";", "\"", "\\", "'", " ", "NA"];
        for options in [null_value_set, semicolons, doubled] {
            for (a, b) in parts.iter().flat_map(|a| parts.iter().map(move |b| (a, b))) {
                let value = format!("{a}{b}");
                // A quoted null value is null too; see the module's head.
                let is_null = value == options.null_value;
                let mut line = String::new();
                write_value(Some(&value), &options, &mut line);
                line.push(char::from(options.separator));
                write_value(None, &options, &mut line);
                let mut splitter = Splitter::new(&options);
                assert_eq!(splitter.split(line.as_bytes()), 2, "{line}");
                let read = splitter.value_or_null(0).map(<[u8]>::to_vec);
                let wanted = (!is_null).then(|| value.clone().into_bytes());
                assert_eq!(read, wanted, "{value:?} was written as {line}");
                assert_eq!(splitter.value_or_null(1), None, "{line}");
            }
        }
    }

    #[test]
    fn nulls_are_unquoted_or_equal_to_the_null_value() {
        let options = CsvOptions { null_value: "NA".into(), ..options() };
        let mut splitter = Splitter::new(&options);
        splitter.split(br#"NA,"NA",,"",x"#);
        let values: Vec<_> = (0..6).map(|index| splitter.value_or_null(index)).collect();
        assert_eq!(values, [None, None, None, Some(&b""[..]), Some(b"x"), None]);
    }
}

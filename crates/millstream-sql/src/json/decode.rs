//! Decodes JSON records into record batches; a source's splits call this for every record they
//! read.
//!
//! Each record is passed over once to check it and to find the wanted values ([`super::scan`]),
//! and then every wanted value is appended to its column ([`super::column`]). Nothing is allocated
//! for a record, and nothing is appended before the record is known to be JSON. A value that does
//! not fit its column becomes null and makes the record malformed; what then happens to the record
//! is the [`ParseMode`].

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryArray, BooleanArray, RecordBatch, RecordBatchOptions, StringArray,
    UInt32Array,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use thiserror::Error;

use super::column::{Column, Fit, nullable};
use super::keys::{Keys, MatchedValues, key_text};
use super::lenient::Leniency;
use super::readers::{Readers, Reading};
use super::scan::{self, Kind, Problem, Scanner, Span};
use crate::types::spark_type;

/// What happens to a malformed record. Spark's option `mode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ParseMode {
    /// The record stays, with null where there was nothing to read.
    #[default]
    Permissive,
    /// The record is left out.
    DropMalformed,
    /// The query fails.
    FailFast,
}

/// How JSON is read.
#[derive(Clone, Debug)]
pub struct DecodeOptions {
    /// What happens to malformed records.
    pub mode: ParseMode,
    /// The column of type STRING that gets the text of malformed records, if the schema has it.
    pub column_name_of_corrupt_record: Option<String>,
    /// Whether a key may differ from its column's name in case. An exact match overrides others.
    pub ignore_case: bool,
}

impl Default for DecodeOptions {
    fn default() -> Self {
        Self {
            mode: ParseMode::Permissive,
            column_name_of_corrupt_record: Some("_corrupt_record".to_owned()),
            ignore_case: true,
        }
    }
}

/// Records as they came over the wire: one after the other in one buffer.
#[derive(Clone, Copy, Debug)]
pub struct Values<'a> {
    bytes: &'a [u8],
    offsets: &'a [i32],
    nulls: Option<&'a NullBuffer>,
}

impl<'a> Values<'a> {
    /// Record `i` is `bytes[offsets[i]..offsets[i + 1]]`, unless `nulls` says that it has no value.
    ///
    /// Panics if the offsets fall, or end beyond the bytes.
    pub fn new(bytes: &'a [u8], offsets: &'a [i32], nulls: Option<&'a NullBuffer>) -> Self {
        assert!(!offsets.is_empty(), "offsets have one entry more than there are records");
        assert!(offsets.is_sorted() && offsets[0] >= 0, "offsets rise from zero or more");
        assert!(offsets[offsets.len() - 1] as usize <= bytes.len(), "offsets end within the bytes");
        Self { bytes, offsets, nulls }
    }

    /// How many records there are.
    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Record `row`; `None` for one that has no value.
    pub fn get(&self, row: usize) -> Option<&'a [u8]> {
        (!self.is_null(row)).then(|| &self.bytes[self.range(row)])
    }

    /// All records, one after the other.
    pub fn concatenated(&self) -> &'a [u8] {
        &self.bytes[self.offsets[0] as usize..self.offsets[self.len()] as usize]
    }

    fn range(&self, row: usize) -> std::ops::Range<usize> {
        self.offsets[row] as usize..self.offsets[row + 1] as usize
    }

    fn is_null(&self, row: usize) -> bool {
        self.nulls.is_some_and(|nulls| nulls.is_null(row))
    }
}

impl<'a> From<&'a BinaryArray> for Values<'a> {
    fn from(array: &'a BinaryArray) -> Self {
        Self::new(array.value_data(), array.value_offsets(), array.nulls())
    }
}

impl<'a> From<&'a StringArray> for Values<'a> {
    fn from(array: &'a StringArray) -> Self {
        Self::new(array.value_data(), array.value_offsets(), array.nulls())
    }
}

/// The rows decoded from some records.
#[derive(Clone, Debug)]
pub struct Decoded {
    /// The rows, with the projected columns.
    pub rows: RecordBatch,
    /// The records that `rows` has, in order, if some were left out.
    pub kept: Option<UInt32Array>,
    /// How many records were malformed.
    pub malformed: u64,
}

/// A record that cannot be decoded.
#[derive(Debug, Error)]
#[error(
    "the record is not what its columns say, at byte {position}: {problem}. The record: \
     {excerpt}. Repair the data, or set the option mode to PERMISSIVE or DROPMALFORMED"
)]
pub struct MalformedRecord {
    /// Which of the records, from 0.
    pub row: usize,
    /// The byte of the record where it was noticed.
    pub position: usize,
    /// What is wrong.
    pub problem: Problem,
    /// The record's text around that place.
    pub excerpt: String,
}

impl MalformedRecord {
    /// What is wrong and where in the record, for whoever has the record beside it.
    pub fn in_short(&self) -> String {
        format!("at byte {}: {}", self.position, self.problem)
    }
}

/// A declared column that JSON cannot be decoded into.
#[derive(Debug, Error)]
pub enum UnsupportedSchema {
    /// There is no conversion from JSON to the type.
    #[error("column {column}: JSON cannot be decoded into {}", spark_type(data_type))]
    Type {
        /// The column's name.
        column: String,
        /// The type, or the part of it that is the reason.
        data_type: DataType,
    },
    /// The column for malformed records has another type than STRING.
    #[error("column {column} is for malformed records and must be a STRING")]
    CorruptRecord {
        /// The column's name.
        column: String,
    },
}

/// Decodes records into the columns that a query reads.
pub struct Decoder {
    mode: ParseMode,
    schema: SchemaRef,
    /// The columns as the builders make them, all of them nullable.
    loose: SchemaRef,
    /// By column: whether it was declared NOT NULL.
    required: Vec<bool>,
    corrupt: Option<usize>,
    /// What is taken beyond RFC 8259.
    lenient: Option<Leniency>,
    keys: Keys,
    found: MatchedValues,
    columns: Vec<Column>,
    reading: Reading,
    scratch: String,
}

/// Why a record is malformed; text is made of it only if somebody will read it.
enum Fault {
    Json(usize, Problem),
    Unfit(usize),
    Null(usize),
}

impl Decoder {
    /// A decoder for the columns `projection` (indices into `schema`, in that order).
    pub fn new(
        schema: &Schema,
        projection: &[usize],
        options: DecodeOptions,
    ) -> Result<Self, UnsupportedSchema> {
        Self::with_readers(schema, projection, options, Readers::default())
    }

    /// The same, for dates and times in other forms.
    pub(crate) fn with_readers(
        schema: &Schema,
        projection: &[usize],
        options: DecodeOptions,
        readers: Readers,
    ) -> Result<Self, UnsupportedSchema> {
        let lenient = readers.lenient;
        let reading = Reading { ignore_case: options.ignore_case, readers };
        let declared: Vec<&Field> = projection.iter().map(|&at| schema.field(at)).collect();
        let corrupt_name = options.column_name_of_corrupt_record.as_deref();
        let corrupt = declared.iter().position(|field| Some(field.name().as_str()) == corrupt_name);
        if let Some(field) = corrupt.map(|at| declared[at])
            && *field.data_type() != DataType::Utf8
        {
            return Err(UnsupportedSchema::CorruptRecord { column: field.name().clone() });
        }
        let loose: Vec<Field> = declared
            .iter()
            .map(|field| Field::new(field.name(), nullable(field.data_type()), true))
            .collect();
        let columns = loose.iter().map(|field| {
            Column::new(field.data_type(), &reading).map_err(|data_type| UnsupportedSchema::Type {
                column: field.name().clone(),
                data_type,
            })
        });
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let names = loose.iter().map(|field| field.name().as_str()).enumerate();
        let names = names.filter(|(at, _)| Some(*at) != corrupt);
        let strict = |(at, (field, declared)): (usize, (&Field, &&Field))| {
            // A permissive query continues with nulls in columns declared NOT NULL, and sound
            // records have nothing in the column for malformed ones.
            let is_permissive = options.mode == ParseMode::Permissive;
            let can_be_null = declared.is_nullable() || is_permissive || Some(at) == corrupt;
            field.clone().with_nullable(can_be_null)
        };
        let strict = loose.iter().zip(&declared).enumerate().map(strict);
        let strict: Vec<Field> = strict.collect();
        Ok(Self {
            mode: options.mode,
            required: declared.iter().map(|field| !field.is_nullable()).collect(),
            corrupt,
            lenient,
            keys: Keys::new(names, options.ignore_case),
            found: MatchedValues::new(loose.len()),
            columns,
            reading,
            scratch: String::new(),
            schema: Arc::new(Schema::new(strict)),
            loose: Arc::new(Schema::new(loose)),
        })
    }

    /// The schema of the rows: the projected columns, nullable wherever a null may come out.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Decodes all of `values`. Only with [`ParseMode::FailFast`] is there an error.
    pub fn decode<'a>(
        &mut self,
        values: impl Into<Values<'a>>,
    ) -> Result<Decoded, MalformedRecord> {
        self.decode_all(values.into(), None)
    }

    /// Decodes `values` except malformed records, whatever the mode; `reject` is called with each.
    pub fn decode_apart<'a>(
        &mut self,
        values: impl Into<Values<'a>>,
        mut reject: impl FnMut(MalformedRecord),
    ) -> Decoded {
        let decoded = self.decode_all(values.into(), Some(&mut reject));
        decoded.expect("nothing fails where malformed records are rejected")
    }

    fn decode_all(
        &mut self,
        values: Values<'_>,
        mut reject: Option<&mut dyn FnMut(MalformedRecord)>,
    ) -> Result<Decoded, MalformedRecord> {
        let whole = values.offsets[0] as usize..values.offsets[values.len()] as usize;
        let text = Text::new(values.bytes, whole);
        let mut kept = vec![true; values.len()];
        let mut malformed = 0;
        for (row, kept) in kept.iter_mut().enumerate() {
            let record = if values.is_null(row) { None } else { Some(text.get(values.range(row))) };
            let Err(fault) = self.append(record) else { continue };
            malformed += 1;
            *kept = self.mode != ParseMode::DropMalformed && reject.is_none();
            if let Some(reject) = &mut reject {
                reject(self.describe(row, &values.bytes[values.range(row)], fault));
            } else if self.mode == ParseMode::FailFast {
                // The builders must be empty for the next call.
                self.columns.iter_mut().for_each(|column| drop(column.finish()));
                return Err(self.describe(row, &values.bytes[values.range(row)], fault));
            }
        }
        Ok(self.finish(kept, malformed))
    }

    /// Appends one row. `record` is `None` for a record without value, and has `None` in it for one
    /// that is not UTF-8.
    fn append(&mut self, record: Option<Result<&str, &[u8]>>) -> Result<(), Fault> {
        let located = match record {
            Some(Ok(record)) => self.locate(record),
            Some(Err(_)) => Err(Fault::Json(0, Problem::NotUtf8)),
            None => {
                self.found.clear();
                Ok(())
            }
        };
        let rewritten = match (&located, record) {
            (Err(_), Some(Ok(record))) => self.rewritten(record),
            _ => None,
        };
        let located = if rewritten.is_some() { Ok(()) } else { located };
        if located.is_err() {
            // Values found before the mistake do not count: the record is no JSON.
            self.found.clear();
        }
        let text = match &rewritten {
            Some(text) => text.as_str(),
            None => record.and_then(Result::ok).unwrap_or_default(),
        };
        let fitted = self.append_found(text);
        let result = located.and(fitted);
        if let Some(corrupt) = self.corrupt {
            match (&result, record) {
                (Err(_), Some(Ok(record))) => self.columns[corrupt].append_text(record),
                (Err(_), Some(Err(bytes))) => {
                    self.columns[corrupt].append_text(&String::from_utf8_lossy(bytes));
                }
                _ => self.columns[corrupt].append_null(),
            }
        }
        result
    }

    /// A record that is JSON to Spark's parser alone, as RFC 8259 has it, with its values found.
    #[cold]
    fn rewritten(&mut self, record: &str) -> Option<String> {
        let strict = self.lenient?.strict(record)?;
        self.locate(&strict).ok()?;
        Some(strict)
    }

    /// Phase 1: checks the record and finds the wanted values.
    fn locate(&mut self, record: &str) -> Result<(), Fault> {
        let mut scanner = Scanner::new(record.as_bytes());
        self.scan(record, &mut scanner).map_err(|problem| Fault::Json(scanner.at, problem))
    }

    fn scan(&mut self, record: &str, scanner: &mut Scanner<'_>) -> Result<(), Problem> {
        self.keys.begin();
        self.found.clear();
        match scanner.peek() {
            Some(b'{') => scanner.at += 1,
            Some(_) => {
                return Err(match scan::record(record.as_bytes()) {
                    Ok(_) => Problem::NotAnObject,
                    Err((at, problem)) => {
                        scanner.at = at;
                        problem
                    }
                });
            }
            None => return Err(Problem::Empty),
        }
        if scanner.peek() == Some(b'}') {
            scanner.at += 1;
        } else {
            self.scan_members(record, scanner)?;
        }
        if scanner.peek().is_some() { Err(Problem::TrailingText) } else { Ok(()) }
    }

    fn scan_members(&mut self, record: &str, scanner: &mut Scanner<'_>) -> Result<(), Problem> {
        loop {
            let key = scanner.key()?;
            let hit = self.keys.find(key_text(record, key, &mut self.scratch));
            let value = scanner.value()?;
            if let Some(hit) = hit {
                self.found.put(hit, value);
            }
            match scanner.peek() {
                Some(b',') => scanner.at += 1,
                Some(b'}') => {
                    scanner.at += 1;
                    return Ok(());
                }
                Some(_) => return Err(Problem::Expected("a comma or }")),
                None => return Err(Problem::UnexpectedEnd),
            }
        }
    }

    /// Phase 2: appends what was found, or null, to every column but the one for malformed records.
    fn append_found(&mut self, record: &str) -> Result<(), Fault> {
        let mut result = Ok(());
        for (at, column) in self.columns.iter_mut().enumerate() {
            if Some(at) == self.corrupt {
                continue;
            }
            let span = self.found.get(at);
            let fit = match self.found.is_repeated(at) {
                true => {
                    let rules = (self.loose.field(at).data_type(), &self.reading);
                    column.append_repeated((&self.found, at), rules, record, &mut self.scratch)
                }
                false => column.append(record, span, &mut self.scratch),
            };
            let is_null = fit == Fit::Not || matches!(span.kind, Kind::Missing | Kind::Null);
            if result.is_ok() && fit != Fit::Whole {
                result = Err(Fault::Unfit(at));
            } else if result.is_ok() && is_null && self.required[at] {
                result = Err(Fault::Null(at));
            }
        }
        result
    }

    fn describe(&self, row: usize, record: &[u8], fault: Fault) -> MalformedRecord {
        let name = |at: usize| self.loose.field(at).name().clone();
        let (position, problem) = match fault {
            Fault::Json(position, problem) => (position, problem),
            Fault::Null(at) => (0, Problem::NullColumn { column: name(at) }),
            Fault::Unfit(at) => {
                let expected = spark_type(self.loose.field(at).data_type());
                let position = self.found.get(at).start;
                (position, Problem::WrongType { column: name(at), expected })
            }
        };
        MalformedRecord { row, position, problem, excerpt: excerpt(record, position) }
    }

    fn finish(&mut self, kept: Vec<bool>, malformed: u64) -> Decoded {
        let columns: Vec<ArrayRef> = self.columns.iter_mut().map(Column::finish).collect();
        if malformed == 0 || kept.iter().all(|kept| *kept) {
            return Decoded { rows: self.batch(columns, kept.len()), kept: None, malformed };
        }
        let rows = (0_u32..).zip(&kept).filter(|(_, kept)| **kept).map(|(row, _)| row);
        let rows = UInt32Array::from_iter_values(rows);
        let mask = BooleanArray::from(kept);
        let filter = |column: &ArrayRef| {
            arrow::compute::filter(column, &mask).expect("mask and columns have one row per record")
        };
        let columns = columns.iter().map(filter).collect();
        Decoded { rows: self.batch(columns, rows.len()), kept: Some(rows), malformed }
    }

    fn batch(&self, columns: Vec<ArrayRef>, rows: usize) -> RecordBatch {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options).expect(
            "the builders were made for this schema, and rows with forbidden nulls are gone",
        )
    }
}

/// Decodes texts into values of `data_type`, an ARRAY or a MAP, instead of columns. A malformed
/// text becomes null, or an error with [`ParseMode::FailFast`].
pub(crate) fn decode_values(
    texts: &StringArray,
    data_type: &DataType,
    mode: ParseMode,
    readers: Readers,
) -> Result<ArrayRef, MalformedRecord> {
    let lenient = readers.lenient;
    let reading = Reading { ignore_case: false, readers };
    let mut column = Column::new(data_type, &reading).expect("the type was checked when planning");
    let mut scratch = String::new();
    for (row, text) in texts.iter().enumerate() {
        let problem = match text.map(|text| located(text, lenient)) {
            None => {
                column.append_null();
                None
            }
            Some(Ok((text, span))) => {
                let fit = column.append(&text, span, &mut scratch);
                let expected = || spark_type(data_type);
                let wrong = || Problem::WrongType { column: "value".into(), expected: expected() };
                (fit != Fit::Whole).then(|| (span.start, wrong()))
            }
            Some(Err(problem)) => {
                column.append_null();
                Some(problem)
            }
        };
        if let (Some((position, problem)), ParseMode::FailFast) = (problem, mode) {
            let excerpt = excerpt(text.unwrap_or_default().as_bytes(), position);
            return Err(MalformedRecord { row, position, problem, excerpt });
        }
    }
    Ok(column.finish())
}

/// The value of a text, and the text that it lies in.
fn located(
    text: &str,
    lenient: Option<Leniency>,
) -> Result<(Cow<'_, str>, Span), (usize, Problem)> {
    let problem = match scan::record(text.as_bytes()) {
        Ok(span) => return Ok((Cow::Borrowed(text), span)),
        Err(problem) => problem,
    };
    let strict = lenient.and_then(|lenient| lenient.strict(text)).ok_or(problem)?;
    let span = scan::record(strict.as_bytes())?;
    Ok((Cow::Owned(strict), span))
}

/// The buffer of all records: checked as a whole, since that is fastest, and where that fails
/// record by record.
enum Text<'a> {
    Valid(&'a str, usize),
    Unknown(&'a [u8]),
}

impl<'a> Text<'a> {
    fn new(bytes: &'a [u8], range: std::ops::Range<usize>) -> Self {
        let start = range.start;
        match std::str::from_utf8(&bytes[range]) {
            Ok(text) => Self::Valid(text, start),
            Err(_) => Self::Unknown(bytes),
        }
    }

    /// One record, or its bytes if they are not UTF-8.
    fn get(&self, range: std::ops::Range<usize>) -> Result<&'a str, &'a [u8]> {
        match self {
            Self::Valid(text, start) => {
                let range = range.start - start..range.end - start;
                // A character that is cut in two by the border between records belongs to neither.
                text.get(range.clone()).ok_or(&text.as_bytes()[range])
            }
            Self::Unknown(bytes) => {
                std::str::from_utf8(&bytes[range.clone()]).map_err(|_| &bytes[range])
            }
        }
    }
}

/// At most 120 bytes around `position`, for people.
fn excerpt(record: &[u8], position: usize) -> String {
    const BEFORE: usize = 60;
    const AFTER: usize = 60;
    let start = position.saturating_sub(BEFORE).min(record.len());
    let end = position.saturating_add(AFTER).min(record.len());
    let text = String::from_utf8_lossy(&record[start..end]);
    let (before, after) =
        (if start > 0 { "..." } else { "" }, if end < record.len() { "..." } else { "" });
    format!("{before}{text}{after}")
}

//! Decodes lines of separated values into columns.

use std::sync::Arc;

use arrow::array::builder::{BooleanBuilder, StringBuilder};
use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, StringArray};
use arrow::compute::{CastOptions, cast_with_options, filter_record_batch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use millstream_sql::csv::Splitter;
use millstream_sql::json::{ParseMode, Values};
use millstream_sql::types::spark_type;

use super::CsvFormat;
use crate::excerpt::excerpt;
use crate::records::{Decoded, MalformedRecord};

/// Why a record is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    NotUtf8,
    Empty,
    Lines,
    Values { found: usize },
    Value { column: usize },
    Null { column: usize },
}

/// Decodes lines into columns.
pub struct CsvDecoder {
    format: CsvFormat,
    projection: Vec<usize>,
    projected: SchemaRef,
    /// The columns that a line has values for: all but the one for malformed records.
    columns: Vec<usize>,
    splitter: Splitter,
}

impl CsvDecoder {
    pub(super) fn new(format: CsvFormat, projection: &[usize]) -> Self {
        let all = 0..format.schema.fields().len();
        let projected = format.schema.project(projection);
        Self {
            projection: projection.to_vec(),
            projected: Arc::new(projected.expect("a projection names columns of the table")),
            columns: all.filter(|column| Some(*column) != format.corrupt).collect(),
            splitter: Splitter::new(&format.options.dialect()),
            format,
        }
    }

    /// Decodes `values`; malformed ones as the mode says.
    /// Errors: the first malformed record, if the mode is FAILFAST.
    pub fn decode(&mut self, values: Values<'_>) -> Result<Decoded, MalformedRecord> {
        let (columns, faults) = self.columns(values);
        let first = faults.iter().enumerate().find_map(|(row, fault)| Some((row, (*fault)?)));
        if let (ParseMode::FailFast, Some((row, fault))) = (self.format.mode, first) {
            let help = "repair the data, or set the option mode to PERMISSIVE or DROPMALFORMED";
            let problem = format!("{}: {help}", self.describe(values, row, fault));
            return Err(MalformedRecord { row, problem });
        }
        Ok(self.finish(columns, &faults, self.format.mode == ParseMode::DropMalformed))
    }

    /// Decodes `values` but for malformed ones, whatever the mode; `reject` gets each one's row and
    /// what is wrong with it.
    pub fn decode_apart(
        &mut self,
        values: Values<'_>,
        reject: &mut dyn FnMut(usize, String),
    ) -> Decoded {
        let (columns, faults) = self.columns(values);
        for (row, fault) in faults.iter().enumerate() {
            if let Some(fault) = fault {
                reject(row, self.describe(values, row, *fault));
            }
        }
        self.finish(columns, &faults, true)
    }

    /// The projected columns of all records, null where there is nothing to read, and by record why
    /// it is malformed.
    fn columns(&mut self, values: Values<'_>) -> (Vec<ArrayRef>, Vec<Option<Fault>>) {
        let mut faults: Vec<Option<Fault>> = vec![None; values.len()];
        let texts = self.split(values, &mut faults);
        let mut columns: Vec<Option<ArrayRef>> = vec![None; self.format.schema.fields().len()];
        for (text, &column) in texts.iter().zip(&self.columns) {
            let field = self.format.schema.field(column);
            let typed = cast(text, field.data_type());
            if typed.null_count() > 0 {
                note_nulls(text, &typed, column, field.is_nullable(), &mut faults);
            }
            columns[column] = Some(typed);
        }
        let projected = self.projection.iter().map(|&column| match &columns[column] {
            Some(typed) => Arc::clone(typed),
            None => Arc::new(corrupt_records(values, &faults)) as ArrayRef,
        });
        (projected.collect(), faults)
    }

    /// The values of each column as text, null where there are none.
    fn split(&mut self, values: Values<'_>, faults: &mut [Option<Fault>]) -> Vec<StringArray> {
        let builder = || StringBuilder::with_capacity(values.len(), values.concatenated().len());
        let mut builders: Vec<StringBuilder> = self.columns.iter().map(|_| builder()).collect();
        // One search over all bytes; nearly always it saves a search in each line.
        let may_break = values.concatenated().contains(&b'\n');
        for (row, fault) in faults.iter_mut().enumerate() {
            let line = values.get(row).map(|value| (value, trim_line_breaks(value)));
            let Some((value, line)) = line else {
                builders.iter_mut().for_each(StringBuilder::append_null);
                continue;
            };
            if std::str::from_utf8(value).is_err() {
                *fault = Some(Fault::NotUtf8);
                builders.iter_mut().for_each(StringBuilder::append_null);
                continue;
            }
            let found = self.splitter.split(line);
            if line.is_empty() {
                *fault = Some(Fault::Empty);
            } else if may_break && self.splitter.has_line_break() {
                *fault = Some(Fault::Lines);
            } else if found != builders.len() {
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

    fn finish(&self, columns: Vec<ArrayRef>, faults: &[Option<Fault>], leave_out: bool) -> Decoded {
        let malformed = faults.iter().flatten().count() as u64;
        let mut rows = record_batch(&loose(&self.projected), columns, faults.len());
        if leave_out && malformed > 0 {
            let sound: BooleanArray = faults.iter().map(|fault| Some(fault.is_none())).collect();
            rows = filter_record_batch(&rows, &sound).expect("a flag for each row");
        }
        // Rows with nulls in NOT NULL columns are left out by now, so the strict schema holds.
        let rows = record_batch(&self.projected, rows.columns().to_vec(), rows.num_rows());
        Decoded { rows, malformed }
    }

    /// What is wrong with a record. At most one value of its text is shown.
    fn describe(&mut self, values: Values<'_>, row: usize, fault: Fault) -> String {
        match fault {
            Fault::NotUtf8 => "the record is not UTF-8".to_owned(),
            Fault::Empty => "the record is empty".to_owned(),
            Fault::Lines => "the record has more than one line".to_owned(),
            Fault::Values { found } => {
                format!("the record has {found} values for {} columns", self.columns.len())
            }
            Fault::Null { column } => {
                let name = self.format.schema.field(column).name();
                format!("there is no value for column {name}, which is NOT NULL")
            }
            Fault::Value { column } => {
                let field = self.format.schema.field(column);
                self.splitter.split(trim_line_breaks(values.get(row).unwrap_or_default()));
                let index = self.columns.iter().position(|known| *known == column);
                let value = index.map_or(&b""[..], |index| self.splitter.value(index));
                let wanted = spark_type(field.data_type());
                format!("'{}' is no {wanted} for column {}", excerpt(value), field.name())
            }
        }
    }
}

/// Notes records whose value in `column` does not fit its type, or is missing in a NOT NULL column.
fn note_nulls(
    text: &StringArray,
    typed: &ArrayRef,
    column: usize,
    is_nullable: bool,
    faults: &mut [Option<Fault>],
) {
    for (row, fault) in faults.iter_mut().enumerate() {
        if fault.is_none() && typed.is_null(row) {
            *fault = if text.is_valid(row) {
                Some(Fault::Value { column })
            } else {
                (!is_nullable).then_some(Fault::Null { column })
            };
        }
    }
}

/// `value` without line breaks before and after it.
fn trim_line_breaks(mut value: &[u8]) -> &[u8] {
    while let [rest @ .., b'\n' | b'\r'] | [b'\n' | b'\r', rest @ ..] = value {
        value = rest;
    }
    value
}

fn corrupt_records(values: Values<'_>, faults: &[Option<Fault>]) -> StringArray {
    let text = |(row, fault): (usize, &Option<Fault>)| {
        let value = fault.and_then(|_| values.get(row));
        value.map(String::from_utf8_lossy)
    };
    faults.iter().enumerate().map(text).collect()
}

/// The columns, all of them nullable, as they are before malformed records are left out.
fn loose(schema: &Schema) -> SchemaRef {
    let nullable = |field: &Arc<Field>| Field::clone(field).with_nullable(true);
    Arc::new(Schema::new(schema.fields().iter().map(nullable).collect::<Vec<_>>()))
}

fn record_batch(schema: &SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> RecordBatch {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema.clone(), columns, &options)
        .expect("columns have the types that were declared")
}

/// Text cast to the type `wanted`; null where that is not possible.
fn cast(text: &StringArray, wanted: &DataType) -> ArrayRef {
    match wanted {
        DataType::Utf8 => Arc::new(text.clone()),
        // Spark accepts only these two words, in any case; Arrow's cast accepts more.
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

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, BinaryArray};
    use arrow::datatypes::Int64Type;
    use millstream_engine::api::options::Options;

    use super::*;
    use crate::csv::CsvOptions;
    use crate::records::Malformed;

    fn decoder(entries: &[(&str, &str)]) -> CsvDecoder {
        let columns = Schema::new(vec![
            Field::new("n", DataType::Int64, true),
            Field::new("_corrupt_record", DataType::Utf8, true),
            Field::new("s", DataType::Utf8, true),
        ]);
        let entries = entries.iter().map(|(key, value)| ((*key).into(), (*value).into()));
        let options = Options::new(entries);
        let malformed = Malformed::parse(&options).unwrap();
        let csv = CsvOptions::parse(&options).unwrap();
        CsvFormat::new(&columns, &malformed, csv).unwrap().decoder(&[2, 0, 1])
    }

    fn values(texts: &[Option<&str>]) -> BinaryArray {
        texts.iter().map(|text| text.map(str::as_bytes)).collect()
    }

    #[test]
    fn a_record_is_one_line_whatever_stands_at_its_ends() {
        let texts = ["1,a\n", "2,\"b\nc\"\r\n", "\n3,d", "4,e\n5,f", "", "\n", "6,\"g"];
        let values = values(&texts.map(Some));
        let mut malformed = Vec::new();
        let mut reject = |row, problem| malformed.push((row, problem));
        let decoded = decoder(&[]).decode_apart((&values).into(), &mut reject);
        let texts: Vec<_> = decoded.rows.column(0).as_string::<i32>().iter().flatten().collect();
        assert_eq!(texts, ["a", "b\nc", "d", "g"]);
        let problems: Vec<_> = malformed.iter().map(|(row, why)| (*row, why.as_str())).collect();
        let (lines, empty) = ("the record has more than one line", "the record is empty");
        assert_eq!(problems, [(3, lines), (4, empty), (5, empty)]);
    }

    #[test]
    fn a_malformed_record_keeps_the_values_that_can_be_read() {
        let values = values(&[Some("1,a"), Some("x,b"), None, Some("2,c,3")]);
        let decoded = decoder(&[]).decode((&values).into()).unwrap();
        assert_eq!((decoded.malformed, decoded.rows.num_rows()), (2, 4));
        let numbers: Vec<_> = decoded.rows.column(1).as_primitive::<Int64Type>().iter().collect();
        assert_eq!(numbers, [Some(1), None, None, Some(2)]);
        let corrupt: Vec<_> = decoded.rows.column(2).as_string::<i32>().iter().collect();
        assert_eq!(corrupt, [None, Some("x,b"), None, Some("2,c,3")]);
    }

    #[test]
    fn the_first_malformed_record_fails_a_strict_query() {
        let values = values(&[Some("1,a"), Some("x,b"), Some("y,c")]);
        let error = decoder(&[("mode", "FAILFAST")]).decode((&values).into()).unwrap_err();
        assert_eq!(error.row, 1);
        assert!(error.problem.starts_with("'x' is no BIGINT for column n: repair"), "{error:?}");
    }
}

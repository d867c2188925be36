//! `from_csv` and `to_csv`.
//!
//! A text is one record, whatever line breaks it has: they are characters like others, unlike in
//! the lines of files. As in Spark, a malformed record keeps the values that can be read.

use std::sync::Arc;

use arrow::array::builder::StringBuilder;
use arrow::array::{Array, ArrayRef, AsArray, StringArray, StructArray};
use arrow::datatypes::{
    DataType, Date32Type, FieldRef, Fields, Time64MicrosecondType, TimeUnit,
    TimestampMicrosecondType,
};
use datafusion::common::{Result, exec_datafusion_err, exec_err, internal_err, plan_err};

use super::super::define::within_column;
use super::super::time_pattern::TimePattern;
use super::csv_options::CsvOptions;
use super::csv_values;
use super::options::Mode;
use super::prepared::{Literals, Prepared, columns_of, expect_texts, plain, texts};
use crate::csv::Writer;
use crate::json;
use crate::types::spark_type;
use crate::values::calendar::DAY_US;

/// `from_csv(text, schema [, options])`.
pub(super) struct FromCsv {
    options: CsvOptions,
    fields: Fields,
    /// The place of the field for malformed texts, if the schema has it.
    corrupt: Option<usize>,
    /// What the first argument is, to be refused when types are final.
    given: DataType,
}

impl Prepared for FromCsv {
    const NAME: &'static str = "from_csv";
    const USAGE: &'static str = "from_csv(text, schema [, options])";
    const ARGUMENTS: (usize, usize) = (2, 3);

    fn data(given: &DataType) -> DataType {
        texts(given)
    }

    fn prepare(data: &FieldRef, literals: &Literals<'_>) -> Result<Self> {
        let ddl = literals.text(1, "the schema")?;
        let options = CsvOptions::of(Self::NAME, literals, 2, true)?;
        let fields = columns_of(Self::NAME, ddl)?;
        let corrupt = fields.iter().position(|field| *field.name() == options.corrupt);
        for (at, field) in fields.iter().enumerate() {
            if Some(at) == corrupt && *field.data_type() != DataType::Utf8 {
                return plan_err!(
                    "from_csv: {} is for malformed texts, so it is a STRING",
                    field.name()
                );
            }
            csv_values::check(field.name(), field.data_type())?;
        }
        Ok(Self { options, fields, corrupt, given: data.data_type().clone() })
    }

    fn check(&self) -> Result<()> {
        expect_texts(Self::NAME, &self.given)
    }

    fn returns(&self) -> (DataType, bool) {
        (DataType::Struct(self.fields.clone()), true)
    }

    fn compute(&self, data: &ArrayRef) -> Result<ArrayRef> {
        let Some(texts) = data.as_string_opt::<i32>() else {
            return internal_err!("from_csv was planned for {}", data.data_type());
        };
        let mut is_malformed = vec![false; texts.len()];
        let values = self.split(texts, &mut is_malformed);
        let mut columns: Vec<Option<ArrayRef>> = vec![None; self.fields.len()];
        for (values, at) in values.iter().zip(self.places()) {
            let typed = csv_values::typed(values, self.fields[at].data_type(), &self.options)?;
            for (row, is_malformed) in is_malformed.iter_mut().enumerate() {
                *is_malformed |= typed.is_null(row) && values.is_valid(row);
            }
            columns[at] = Some(typed);
        }
        if self.options.mode == Mode::FailFast
            && let Some(row) = is_malformed.iter().position(|is_malformed| *is_malformed)
        {
            return exec_err!(
                "from_csv: '{}' is no record of {}; the mode PERMISSIVE makes nulls of what cannot \
                 be read",
                excerpt(texts.value(row)),
                spark_type(&self.returns().0)
            );
        }
        let corrupt = || -> ArrayRef {
            let texts = texts.iter().zip(&is_malformed);
            let texts = texts.map(|(text, is_malformed)| text.filter(|_| *is_malformed));
            Arc::new(texts.collect::<StringArray>())
        };
        let columns = columns.into_iter().map(|column| column.unwrap_or_else(corrupt)).collect();
        let nulls = texts.nulls().filter(|nulls| nulls.null_count() > 0).cloned();
        let fields = self.fields.clone();
        let rows = StructArray::try_new_with_length(fields, columns, nulls, texts.len())?;
        Ok(Arc::new(rows))
    }
}

impl FromCsv {
    /// The places of the fields that a record has values for.
    fn places(&self) -> impl Iterator<Item = usize> {
        let corrupt = self.corrupt;
        (0..self.fields.len()).filter(move |at| Some(*at) != corrupt)
    }

    /// The values of each field as text, null where there is none. A record that is empty, or that
    /// has more or fewer values than there are fields, is malformed.
    fn split(&self, texts: &StringArray, is_malformed: &mut [bool]) -> Vec<StringArray> {
        let mut splitter = self.options.splitter();
        let mut builders: Vec<_> = self.places().map(|_| StringBuilder::new()).collect();
        for (text, is_malformed) in texts.iter().zip(is_malformed) {
            let Some(text) = text else {
                builders.iter_mut().for_each(StringBuilder::append_null);
                continue;
            };
            let found = splitter.split(text.as_bytes());
            *is_malformed = text.is_empty() || found != builders.len();
            for (index, builder) in builders.iter_mut().enumerate() {
                let value = splitter.value_or_null(index).filter(|_| !text.is_empty());
                // The parts of a text between ASCII characters are text.
                builder.append_option(value.and_then(|value| std::str::from_utf8(value).ok()));
            }
        }
        builders.iter_mut().map(StringBuilder::finish).collect()
    }
}

/// The beginning of a text, for a message.
fn excerpt(text: &str) -> String {
    const CHARACTERS_MAX: usize = 80;
    match text.char_indices().nth(CHARACTERS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// `to_csv(struct [, options])`.
pub(super) struct ToCsv {
    options: CsvOptions,
    given: DataType,
}

impl Prepared for ToCsv {
    const NAME: &'static str = "to_csv";
    const USAGE: &'static str = "to_csv(struct [, options])";
    const ARGUMENTS: (usize, usize) = (1, 2);

    fn data(given: &DataType) -> DataType {
        plain(given)
    }

    fn prepare(data: &FieldRef, literals: &Literals<'_>) -> Result<Self> {
        let options = CsvOptions::of(Self::NAME, literals, 1, false)?;
        if Writer::new(options.rules.clone()).is_none() {
            return plan_err!("to_csv: quote and escape cannot be empty; name a character");
        }
        Ok(Self { options, given: data.data_type().clone() })
    }

    fn check(&self) -> Result<()> {
        let DataType::Struct(fields) = &self.given else {
            return plan_err!(
                "to_csv takes a STRUCT and got {}; for columns, write to_csv(struct(a, b))",
                spark_type(&self.given)
            );
        };
        match fields.iter().find(|field| !is_written(field.data_type())) {
            Some(field) => plan_err!(
                "to_csv: {} is {}, which is not written here; cast it to STRING",
                field.name(),
                spark_type(field.data_type())
            ),
            None => Ok(()),
        }
    }

    fn returns(&self) -> (DataType, bool) {
        (DataType::Utf8, true)
    }

    fn compute(&self, data: &ArrayRef) -> Result<ArrayRef> {
        let (Some(rows), Some(writer)) =
            (data.as_struct_opt(), Writer::new(self.options.rules.clone()))
        else {
            return internal_err!("to_csv was planned for {}", data.data_type());
        };
        let columns = rows.columns().iter().map(|column| self.texts(column));
        let columns = columns.collect::<Result<Vec<StringArray>>>()?;
        let mut out = StringBuilder::with_capacity(rows.len(), rows.len() * 16);
        let (mut line, mut total) = (String::new(), 0);
        for row in 0..rows.len() {
            if rows.is_null(row) {
                out.append_null();
                continue;
            }
            line.clear();
            for (at, column) in columns.iter().enumerate() {
                let value = column.is_valid(row).then(|| column.value(row));
                writer.write(at, value, &mut line);
            }
            within_column(&mut total, line.len())?;
            out.append_value(&line);
        }
        Ok(Arc::new(out.finish()))
    }
}

impl ToCsv {
    /// The values of a field as text.
    fn texts(&self, column: &ArrayRef) -> Result<StringArray> {
        let options = &self.options;
        let written = match (column.data_type(), options) {
            (DataType::Date32, CsvOptions { dates: Some(pattern), .. }) => {
                let days = column.as_primitive::<Date32Type>().iter();
                written(pattern, days.map(|days| Some(i64::from(days?) * DAY_US)))
            }
            (DataType::Time64(_), CsvOptions { times: Some(pattern), .. }) => {
                written(pattern, column.as_primitive::<Time64MicrosecondType>().iter())
            }
            (DataType::Binary, _) => {
                column.as_binary::<i32>().iter().map(|bytes| bytes.map(bytes_in_brackets)).collect()
            }
            (DataType::Timestamp(_, Some(_)), CsvOptions { timestamps: Some(pattern), .. })
            | (DataType::Timestamp(_, None), CsvOptions { local_times: Some(pattern), .. }) => {
                written(pattern, column.as_primitive::<TimestampMicrosecondType>().iter())
            }
            _ => return json::plain_texts(column).map_err(|error| exec_datafusion_err!("{error}")),
        };
        Ok(written)
    }
}

fn written(pattern: &TimePattern, times: impl Iterator<Item = Option<i64>>) -> StringArray {
    let text = |us: Option<i64>| {
        let mut text = String::new();
        pattern.write(us?, &mut text).then_some(text)
    };
    times.map(text).collect()
}

/// Bytes in Spark's default form of them.
fn bytes_in_brackets(bytes: &[u8]) -> String {
    let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
    format!("[{}]", digits.join(" "))
}

/// Whether values of a type are written as in Spark: how it writes nested values and intervals
/// depends on settings.
fn is_written(data_type: &DataType) -> bool {
    match data_type {
        DataType::Timestamp(unit, _) => *unit == TimeUnit::Microsecond,
        DataType::Null | DataType::Utf8 | DataType::Boolean | DataType::Date32 => true,
        DataType::Binary | DataType::Decimal128(..) => true,
        DataType::Time64(unit) => *unit == TimeUnit::Microsecond,
        other => other.is_signed_integer() || other.is_floating(),
    }
}

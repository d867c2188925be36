//! `schema_of_csv`: the types that the values of a record could have.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, StringArray};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, plan_err};

use super::csv_options::CsvOptions;
use super::csv_values::{boolean, date, number, special, timestamp};
use super::prepared::{Literals, Prepared, plain};
use crate::types::{spark_type, timestamp as timestamp_type};
use crate::values::calendar::{parse_date, parse_timestamp, parse_timestamp_without_zone};

/// `schema_of_csv(text [, options])`.
pub(super) struct SchemaOfCsv {
    pub ddl: String,
}

impl Prepared for SchemaOfCsv {
    const NAME: &'static str = "schema_of_csv";
    const USAGE: &'static str = "schema_of_csv(text [, options])";
    const ARGUMENTS: (usize, usize) = (1, 2);

    fn data(given: &DataType) -> DataType {
        plain(given)
    }

    fn prepare(_: &FieldRef, literals: &Literals<'_>) -> Result<Self> {
        let text = literals.text(0, "a record")?;
        let options = CsvOptions::of(Self::NAME, literals, 1, true)?;
        if text.is_empty() {
            return plan_err!("schema_of_csv: the text is empty; write one with values");
        }
        let mut splitter = options.splitter();
        let count = splitter.split(text.as_bytes());
        let mut fields = Vec::with_capacity(count);
        for at in 0..count {
            let value =
                splitter.value_or_null(at).and_then(|value| std::str::from_utf8(value).ok());
            let data_type = match value.filter(|value| !value.is_empty()) {
                Some(value) => type_of(value, &options)?,
                None => DataType::Utf8,
            };
            fields.push(Field::new(format!("_c{at}"), data_type, true));
        }
        Ok(Self { ddl: spark_type(&DataType::Struct(fields.into())) })
    }

    fn returns(&self) -> (DataType, bool) {
        (DataType::Utf8, false)
    }

    fn compute(&self, data: &ArrayRef) -> Result<ArrayRef> {
        let texts = std::iter::repeat_n(Some(self.ddl.as_str()), data.len());
        Ok(Arc::new(texts.collect::<StringArray>()))
    }
}

/// The first type, in Spark's order, that a value can be read as.
fn type_of(value: &str, options: &CsvOptions) -> Result<DataType> {
    if value.parse::<i32>().is_ok() {
        return Ok(DataType::Int32);
    }
    if value.parse::<i64>().is_ok() {
        return Ok(DataType::Int64);
    }
    if let Some(precision) = whole_digits(value) {
        return Ok(DataType::Decimal128(precision, 0));
    }
    if special(options, value).is_some() || number::<f64>(value).is_some() {
        if value.ends_with(['d', 'D', 'f', 'F']) {
            return plan_err!(
                "schema_of_csv: whether '{value}' is a number is not clear; leave its letter out"
            );
        }
        return Ok(DataType::Float64);
    }
    let is_date = match options.dates {
        Some(_) => date(options, value).is_some(),
        None => is_whole_date(value),
    };
    if is_date {
        return Ok(DataType::Date32);
    }
    if is_time(value, options) {
        return Ok(timestamp_type());
    }
    Ok(if boolean(value).is_some() { DataType::Boolean } else { DataType::Utf8 })
}

/// How many digits a number without a fraction has, if a DECIMAL can hold them. An exponent may
/// take a fraction away, but not add zeros: Spark has no DECIMAL for such a number.
fn whole_digits(value: &str) -> Option<u8> {
    let unsigned = value.strip_prefix(['+', '-']).unwrap_or(value);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (unsigned, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let is_whole = usize::try_from(exponent).is_ok_and(|exponent| exponent == fraction.len());
    let count = u8::try_from(digits.trim_start_matches('0').len().max(1)).ok()?;
    (is_number && is_whole && count <= 38).then_some(count)
}

/// Whether a value is a date of the form `yyyy-MM-dd`, which is what is tried without a format.
fn is_whole_date(value: &str) -> bool {
    let is_right = |(at, byte): (usize, u8)| match at {
        4 | 7 => byte == b'-',
        _ => byte.is_ascii_digit(),
    };
    value.len() == 10 && value.bytes().enumerate().all(is_right) && parse_date(value).is_some()
}

/// Whether a value is a time: as the format says, or as a cast reads it, which in Spark also reads
/// the time of a day alone.
fn is_time(value: &str, options: &CsvOptions) -> bool {
    let time = value.trim();
    let time = time.strip_prefix('T').unwrap_or(time);
    let is_of_day = time.contains(':') && parse_timestamp(&format!("1970-01-01T{time}")).is_some();
    // With a format Spark still tries the form of a cast, but for a time with a zone.
    timestamp(options, value).is_some()
        || (options.timestamps.is_none() && is_of_day)
        || parse_timestamp_without_zone(value).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_have_digits() {
        assert_eq!(whole_digits("12345678901234567890"), Some(20));
        assert_eq!(whole_digits("-0012"), Some(2));
        assert_eq!(whole_digits(&"9".repeat(39)), None);
        assert_eq!((whole_digits("1."), whole_digits("1.5e1")), (Some(1), Some(2)));
        assert_eq!((whole_digits("1.0"), whole_digits("1e5")), (None, None));
        assert_eq!(whole_digits(""), None);
    }

    #[test]
    fn a_date_is_whole() {
        assert!(is_whole_date("2026-03-02"));
        for value in ["2026-3-2", "2026-02-30", "2026-03-02 ", "2026/03/02"] {
            assert!(!is_whole_date(value), "{value}");
        }
    }
}

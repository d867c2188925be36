//! Values of a CSV record as the types of a schema have them.
//!
//! The rules are those of Spark's reader, which is stricter than a cast: numbers are not trimmed,
//! and a BOOLEAN is `true` or `false`.

use std::str::FromStr;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, PrimitiveArray, StringArray};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type,
    Int16Type, Int32Type, Int64Type, Time64MicrosecondType, TimeUnit, TimestampMicrosecondType,
};
use datafusion::common::{Result, internal_err, plan_err};

use super::csv_options::CsvOptions;
use crate::json::parse_decimal;
use crate::types::spark_type;
use crate::values::calendar::{DAY_US, parse_date, parse_timestamp, parse_timestamp_without_zone};
use crate::values::time_of_day::parse_time;

/// Refuses what no text of a record becomes.
pub(super) fn check(name: &str, data_type: &DataType) -> Result<()> {
    match data_type {
        DataType::Utf8
        | DataType::Boolean
        | DataType::Int8
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::Float32
        | DataType::Float64
        | DataType::Decimal128(..)
        | DataType::Date32
        | DataType::Time64(TimeUnit::Microsecond)
        | DataType::Timestamp(TimeUnit::Microsecond, _) => Ok(()),
        other => plan_err!(
            "from_csv: {name} is {}, which no value of a record becomes; read a STRING, and \
             convert it in the query",
            spark_type(other)
        ),
    }
}

/// The values of one field; null where there is no text, or where it is none of the type.
pub(super) fn typed(
    texts: &StringArray,
    data_type: &DataType,
    options: &CsvOptions,
) -> Result<ArrayRef> {
    Ok(match data_type {
        DataType::Utf8 => Arc::new(texts.clone()),
        DataType::Boolean => {
            let values = texts.iter().map(|text| text.and_then(boolean));
            Arc::new(values.collect::<BooleanArray>())
        }
        DataType::Int8 => read::<Int8Type>(texts, data_type, |text| text.parse().ok()),
        DataType::Int16 => read::<Int16Type>(texts, data_type, |text| text.parse().ok()),
        DataType::Int32 => read::<Int32Type>(texts, data_type, |text| text.parse().ok()),
        DataType::Int64 => read::<Int64Type>(texts, data_type, |text| text.parse().ok()),
        DataType::Float32 => {
            let word = |text: &str| special(options, text).map(|value| value as f32);
            read::<Float32Type>(texts, data_type, |text| word(text).or_else(|| number(text)))
        }
        DataType::Float64 => read::<Float64Type>(texts, data_type, |text| {
            special(options, text).or_else(|| number(text))
        }),
        DataType::Decimal128(precision, scale) => {
            // Spark leaves commas out, whatever they separate.
            let decimal = |text: &str| parse_decimal(&text.replace(',', ""), *precision, *scale);
            read::<Decimal128Type>(texts, data_type, decimal)
        }
        DataType::Date32 => read::<Date32Type>(texts, data_type, |text| date(options, text)),
        DataType::Time64(TimeUnit::Microsecond) => {
            read::<Time64MicrosecondType>(texts, data_type, |text| time_of_day(options, text))
        }
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            read::<TimestampMicrosecondType>(texts, data_type, |text| match zone {
                Some(_) => timestamp(options, text),
                None => parse_timestamp_without_zone(text),
            })
        }
        other => return internal_err!("from_csv was planned with a field of type {other}"),
    })
}

fn read<T: ArrowPrimitiveType>(
    texts: &StringArray,
    data_type: &DataType,
    parse: impl Fn(&str) -> Option<T::Native>,
) -> ArrayRef {
    let values = texts.iter().map(|text| text.and_then(&parse));
    let values: PrimitiveArray<T> = values.collect();
    Arc::new(values.with_data_type(data_type.clone()))
}

pub(super) fn boolean(text: &str) -> Option<bool> {
    let is = |word| text.eq_ignore_ascii_case(word);
    if is("true") { Some(true) } else { is("false").then_some(false) }
}

/// The numbers that have words.
pub(super) fn special(options: &CsvOptions, text: &str) -> Option<f64> {
    let words = [
        (&options.not_a_number, f64::NAN),
        (&options.minus_infinity, f64::NEG_INFINITY),
        (&options.infinity, f64::INFINITY),
    ];
    words.into_iter().find(|(word, _)| *word == text).map(|(_, value)| value)
}

/// Reads a number as Java does, but for hexadecimal ones: spaces and control characters around it
/// do not count, and a letter behind it may say of which type it is.
pub(super) fn number<T: FromStr>(text: &str) -> Option<T> {
    let text = text.trim_matches(|char: char| char <= ' ');
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if matches!(unsigned, "NaN" | "Infinity") {
        return text.parse().ok();
    }
    let digits = text.strip_suffix(['d', 'D', 'f', 'F']).unwrap_or(text);
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit() || b".eE+-".contains(&byte));
    if is_plain { digits.parse().ok() } else { None }
}

pub(super) fn date(options: &CsvOptions, text: &str) -> Option<i32> {
    match &options.dates {
        Some(pattern) => i32::try_from(pattern.read_clock(text)?.div_euclid(DAY_US)).ok(),
        None => parse_date(text),
    }
}

/// Microseconds since midnight.
fn time_of_day(options: &CsvOptions, text: &str) -> Option<i64> {
    match &options.times {
        Some(pattern) => pattern.read(text),
        None => parse_time(text),
    }
}

pub(super) fn timestamp(options: &CsvOptions, text: &str) -> Option<i64> {
    match &options.timestamps {
        Some(pattern) => pattern.read(text),
        None => parse_timestamp(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_java_reads_them() {
        for (text, value) in [
            ("1", 1.0),
            (" 2.75", 2.75),
            ("1.", 1.0),
            (".5", 0.5),
            ("+1e3", 1000.0),
            ("2d", 2.0),
            ("-Infinity", f64::NEG_INFINITY),
        ] {
            assert_eq!(number::<f64>(text), Some(value), "{text}");
        }
        for text in ["", " ", ".", "d", "inf", "infinity", "nan", "1e", "0x10", "1 2"] {
            assert_eq!(number::<f64>(text), None, "{text}");
        }
    }
}

//! Values in one form for both sides, and when two of them are the same.

use std::cmp::Ordering;

use arrow::array::{Array, AsArray as _, StructArray};
use arrow::datatypes::{
    DataType, Date32Type, Date64Type, Decimal128Type, Decimal256Type, DurationMicrosecondType,
    DurationMillisecondType, DurationNanosecondType, DurationSecondType, Float32Type, Float64Type,
    Int8Type, Int16Type, Int32Type, Int64Type, IntervalDayTimeType, IntervalMonthDayNano,
    IntervalMonthDayNanoType, IntervalUnit, IntervalYearMonthType, Time64MicrosecondType, TimeUnit,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow::util::display::array_value_to_string;
use millstream_sql::types::is_variant;
use millstream_sql::variant::text_of;
use serde_json::Value;

/// Sums of doubles depend on the order of the terms: this part of a value may be another one.
const SUM_TOLERANCE: f64 = 1e-13;
const DAY_US: i64 = 86_400_000_000;
const DAY_MS: i64 = 86_400_000;

/// A value. Dates, timestamps and intervals are whole numbers, as `values.py` says.
#[derive(Clone, Debug)]
pub enum Cell {
    /// NULL.
    Null,
    /// A boolean.
    Bool(bool),
    /// A whole number.
    Whole(i128),
    /// A float; one of 32 bits has another value as one of 64 bits than its text says.
    Float(f64),
    /// A text, a decimal, bytes in hexadecimal digits.
    Text(String),
    /// An array, a struct, or a map: its entries sorted by their text.
    List(Vec<Cell>),
}

impl Cell {
    /// Whether they are the same. With `is_sum` floats may differ by what the order of terms does.
    pub fn is(&self, other: &Self, is_sum: bool) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(one), Self::Bool(other)) => one == other,
            (Self::Whole(one), Self::Whole(other)) => one == other,
            (Self::Text(one), Self::Text(other)) => one == other,
            (Self::Float(one), Self::Float(other)) => same_float(*one, *other, is_sum),
            (Self::List(one), Self::List(other)) => {
                let pairs = || one.iter().zip(other);
                one.len() == other.len() && pairs().all(|(one, other)| one.is(other, is_sum))
            }
            _ => false,
        }
    }

    /// A text to sort rows by, which the last digits of floats are not in.
    pub fn rough(&self) -> String {
        match self {
            Self::Null => "null".to_owned(),
            Self::Bool(value) => value.to_string(),
            Self::Whole(value) => value.to_string(),
            Self::Float(value) if *value == 0.0 => "0".to_owned(),
            Self::Float(value) => format!("{value:.9e}"),
            Self::Text(text) => format!("{text:?}"),
            Self::List(cells) => {
                let cells: Vec<String> = cells.iter().map(Self::rough).collect();
                format!("[{}]", cells.join(","))
            }
        }
    }
}

/// The order of rows in which both sides are compared.
pub fn by_rough_text(one: &[Cell], other: &[Cell]) -> Ordering {
    one.iter().map(Cell::rough).cmp(other.iter().map(Cell::rough))
}

fn same_float(one: f64, other: f64, is_sum: bool) -> bool {
    let is_near = || (one - other).abs() <= SUM_TOLERANCE * one.abs().max(other.abs());
    one.to_bits() == other.to_bits() || (one.is_nan() && other.is_nan()) || (is_sum && is_near())
}

/// What Spark's answer says, where `data_type` is known.
pub fn of_json(value: &Value, data_type: Option<&DataType>) -> Cell {
    match (value, data_type) {
        (Value::Null, _) => Cell::Null,
        (Value::Bool(value), _) => Cell::Bool(*value),
        (Value::Number(number), _) => Cell::Whole(number.as_i64().map_or(0, i128::from)),
        (Value::String(text), Some(DataType::Float64)) => float(text.parse().ok(), text),
        (Value::String(text), Some(DataType::Float32)) => {
            float(text.parse::<f32>().ok().map(f64::from), text)
        }
        (Value::String(text), _) => Cell::Text(text.clone()),
        (Value::Array(items), Some(DataType::Map(entries, _))) => {
            sorted(items.iter().map(|item| of_json(item, Some(entries.data_type()))).collect())
        }
        (Value::Array(items), Some(DataType::Struct(fields))) => {
            let types = fields.iter().map(|field| Some(field.data_type()));
            let types = types.chain(std::iter::repeat(None));
            Cell::List(items.iter().zip(types).map(|(item, kind)| of_json(item, kind)).collect())
        }
        (Value::Array(items), Some(DataType::List(element))) => {
            Cell::List(items.iter().map(|item| of_json(item, Some(element.data_type()))).collect())
        }
        (Value::Array(items), _) => {
            Cell::List(items.iter().map(|item| of_json(item, None)).collect())
        }
        (Value::Object(_), _) => Cell::Text(value.to_string()),
    }
}

fn float(value: Option<f64>, text: &str) -> Cell {
    value.map_or_else(|| Cell::Text(text.to_owned()), Cell::Float)
}

fn sorted(mut entries: Vec<Cell>) -> Cell {
    entries.sort_by_cached_key(Cell::rough);
    Cell::List(entries)
}

/// A value of ours.
pub fn of_array(array: &dyn Array, row: usize) -> Cell {
    if array.is_null(row) || *array.data_type() == DataType::Null {
        return Cell::Null;
    }
    match array.data_type() {
        DataType::Boolean => Cell::Bool(array.as_boolean().value(row)),
        DataType::Float32 => Cell::Float(array.as_primitive::<Float32Type>().value(row).into()),
        DataType::Float64 => Cell::Float(array.as_primitive::<Float64Type>().value(row)),
        DataType::Utf8 => Cell::Text(array.as_string::<i32>().value(row).to_owned()),
        DataType::LargeUtf8 => Cell::Text(array.as_string::<i64>().value(row).to_owned()),
        DataType::Utf8View => Cell::Text(array.as_string_view().value(row).to_owned()),
        DataType::Binary => hex(array.as_binary::<i32>().value(row)),
        DataType::LargeBinary => hex(array.as_binary::<i64>().value(row)),
        DataType::BinaryView => hex(array.as_binary_view().value(row)),
        DataType::FixedSizeBinary(_) => hex(array.as_fixed_size_binary().value(row)),
        DataType::Decimal128(..) => {
            Cell::Text(array.as_primitive::<Decimal128Type>().value_as_string(row))
        }
        DataType::Decimal256(..) => {
            Cell::Text(array.as_primitive::<Decimal256Type>().value_as_string(row))
        }
        DataType::List(_) => list(&array.as_list::<i32>().value(row)),
        DataType::LargeList(_) => list(&array.as_list::<i64>().value(row)),
        DataType::FixedSizeList(..) => list(&array.as_fixed_size_list().value(row)),
        DataType::Map(..) => {
            let entries = array.as_map().value(row);
            sorted((0..entries.len()).map(|entry| fields(&entries, entry)).collect())
        }
        of if is_variant(of) => match text_of(array, row) {
            Ok(text) => text.map_or(Cell::Null, Cell::Text),
            Err(error) => Cell::Text(error.to_string()),
        },
        DataType::Struct(_) => fields(array.as_struct(), row),
        DataType::Dictionary(..) => {
            let dictionary = array.as_any_dictionary();
            of_array(dictionary.values(), dictionary.normalized_keys()[row])
        }
        DataType::Interval(IntervalUnit::MonthDayNano) => Cell::Text(calendar_interval(
            array.as_primitive::<IntervalMonthDayNanoType>().value(row),
        )),
        DataType::Time64(TimeUnit::Microsecond) => {
            Cell::Text(time_of_day(array.as_primitive::<Time64MicrosecondType>().value(row)))
        }
        _ => whole(array, row).map_or_else(
            || Cell::Text(array_value_to_string(array, row).unwrap_or_default()),
            Cell::Whole,
        ),
    }
}

fn list(items: &dyn Array) -> Cell {
    Cell::List((0..items.len()).map(|item| of_array(items, item)).collect())
}

fn fields(values: &StructArray, row: usize) -> Cell {
    Cell::List(values.columns().iter().map(|column| of_array(column, row)).collect())
}

fn hex(bytes: &[u8]) -> Cell {
    Cell::Text(bytes.iter().map(|byte| format!("{byte:02X}")).collect())
}

/// What is written as a whole number: numbers, dates, timestamps in microseconds, intervals.
fn whole(array: &dyn Array, row: usize) -> Option<i128> {
    macro_rules! value {
        ($of:ty) => {
            array.as_primitive::<$of>().value(row).into()
        };
    }
    let value: i64 = match array.data_type() {
        DataType::Int8 => value!(Int8Type),
        DataType::Int16 => value!(Int16Type),
        DataType::Int32 => value!(Int32Type),
        DataType::Int64 => value!(Int64Type),
        DataType::UInt8 => value!(UInt8Type),
        DataType::UInt16 => value!(UInt16Type),
        DataType::UInt32 => value!(UInt32Type),
        DataType::UInt64 => return Some(value!(UInt64Type)),
        DataType::Date32 => value!(Date32Type),
        DataType::Date64 => array.as_primitive::<Date64Type>().value(row).div_euclid(DAY_MS),
        DataType::Timestamp(TimeUnit::Second, _) => {
            array.as_primitive::<TimestampSecondType>().value(row) * 1_000_000
        }
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            array.as_primitive::<TimestampMillisecondType>().value(row) * 1_000
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => value!(TimestampMicrosecondType),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            array.as_primitive::<TimestampNanosecondType>().value(row).div_euclid(1_000)
        }
        DataType::Duration(TimeUnit::Second) => {
            array.as_primitive::<DurationSecondType>().value(row) * 1_000_000
        }
        DataType::Duration(TimeUnit::Millisecond) => {
            array.as_primitive::<DurationMillisecondType>().value(row) * 1_000
        }
        DataType::Duration(TimeUnit::Microsecond) => value!(DurationMicrosecondType),
        DataType::Duration(TimeUnit::Nanosecond) => {
            array.as_primitive::<DurationNanosecondType>().value(row).div_euclid(1_000)
        }
        DataType::Interval(unit) => interval(array, row, *unit)?,
        _ => return None,
    };
    Some(value.into())
}

/// An interval of the type INTERVAL as Spark writes it: `1 years 2 months -3 days 4 hours`.
fn calendar_interval(value: IntervalMonthDayNano) -> String {
    let micros = value.nanoseconds / 1_000;
    let parts = [
        (i64::from(value.months) / 12, "years"),
        (i64::from(value.months) % 12, "months"),
        (i64::from(value.days), "days"),
        (micros / 3_600_000_000, "hours"),
        (micros / 60_000_000 % 60, "minutes"),
    ];
    let parts = parts.iter().filter(|(count, _)| *count != 0);
    let mut parts: Vec<String> = parts.map(|(count, unit)| format!("{count} {unit}")).collect();
    let rest = micros % 60_000_000;
    if rest != 0 {
        let sign = if rest < 0 { "-" } else { "" };
        let (seconds, below) = (rest.abs() / 1_000_000, rest.abs() % 1_000_000);
        let fraction = format!(".{below:06}");
        let fraction = fraction.trim_end_matches('0').trim_end_matches('.');
        parts.push(format!("{sign}{seconds}{fraction} seconds"));
    }
    if parts.is_empty() { "0 seconds".to_owned() } else { parts.join(" ") }
}

/// A time of a day as Spark writes it, without trailing zeros of its fraction.
fn time_of_day(us: i64) -> String {
    let (seconds, fraction) = (us / 1_000_000, us % 1_000_000);
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    let text = format!("{hour:02}:{minute:02}:{second:02}.{fraction:06}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Months or microseconds; `None` for an interval of both, which is written as text.
fn interval(array: &dyn Array, row: usize, unit: IntervalUnit) -> Option<i64> {
    match unit {
        IntervalUnit::YearMonth => {
            Some(array.as_primitive::<IntervalYearMonthType>().value(row).into())
        }
        IntervalUnit::DayTime => {
            let value = array.as_primitive::<IntervalDayTimeType>().value(row);
            Some(i64::from(value.days) * DAY_US + i64::from(value.milliseconds) * 1_000)
        }
        IntervalUnit::MonthDayNano => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn floats_are_the_same_to_the_bit_unless_they_are_sums() {
        let [one, next] = [0.3, 0.1 + 0.2].map(Cell::Float);
        assert!(!one.is(&next, false) && one.is(&next, true));
        assert!(!Cell::Float(0.0).is(&Cell::Float(-0.0), false));
        let text = |text: &str| of_json(&json!(text), Some(&DataType::Float64));
        assert!(text("NaN").is(&Cell::Float(f64::NAN), false));
        assert!(text("-Infinity").is(&Cell::Float(f64::NEG_INFINITY), false));
        assert!(text("1.0E10").is(&Cell::Float(1e10), false));
    }

    #[test]
    fn times_of_a_day_are_texts() {
        assert_eq!(time_of_day(0), "00:00:00");
        assert_eq!(time_of_day(45_296_100_000), "12:34:56.1");
    }

    #[test]
    fn entries_of_maps_have_no_order() {
        let map = millstream_sql::types::map_of(DataType::Int64, DataType::Utf8);
        let [one, other] = [json!([[1, "a"], [2, "b"]]), json!([[2, "b"], [1, "a"]])];
        assert!(of_json(&one, Some(&map)).is(&of_json(&other, Some(&map)), false));
        assert!(!of_json(&one, None).is(&of_json(&other, None), false));
    }
}

//! Values of XML as the types of a schema have them, and columns of them.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, ListArray, MapArray, PrimitiveArray, StringArray,
    StructArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Decimal128Type, Field, Fields, Float32Type,
    Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, Time64MicrosecondType, TimeUnit,
    TimestampMicrosecondType,
};
use datafusion::common::{Result, internal_err, plan_err};

use super::csv_values::number;
use super::xml_options::XmlOptions;
use crate::json::parse_decimal;
use crate::types::{TIME, TIME_DIGITS, spark_type};
use crate::values::calendar::{DAY_US, parse_date, parse_timestamp, parse_timestamp_without_zone};
use crate::values::time_of_day::parse_time;

/// A value that was read.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Null,
    Boolean(bool),
    /// A whole number, a date or a time.
    Whole(i64),
    Float(f64),
    Decimal(i128),
    Text(String),
    Binary(Vec<u8>),
    Struct(Vec<Value>),
    List(Vec<Value>),
    Map(Vec<(String, Value)>),
}

/// Why there is no value.
#[derive(Debug)]
pub(super) enum Fail {
    /// What stands there is no value of the type.
    Bad,
    /// The text is no XML.
    Malformed,
    /// It is not certain what Spark makes of it.
    Unclear(String),
}

/// Refuses what no text of an element becomes.
pub(super) fn check(name: &str, of: &DataType) -> Result<()> {
    match of {
        DataType::Struct(fields) => {
            fields.iter().try_for_each(|field| check(field.name(), field.data_type()))
        }
        DataType::List(item)
            if !matches!(item.data_type(), DataType::List(_) | DataType::Map(..)) =>
        {
            check(name, item.data_type())
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(parts)
                if parts[0].data_type().is_string()
                    && !matches!(parts[1].data_type(), DataType::List(_)) =>
            {
                check(name, parts[1].data_type())
            }
            _ => refused(name, of),
        },
        DataType::Utf8
        | DataType::Boolean
        | DataType::Binary
        | DataType::Float32
        | DataType::Float64
        | DataType::Decimal128(..)
        | DataType::Date32
        | DataType::Timestamp(TimeUnit::Microsecond, _) => Ok(()),
        of if of.is_signed_integer() || *of == TIME => Ok(()),
        other => refused(name, other),
    }
}

fn refused(name: &str, of: &DataType) -> Result<()> {
    plan_err!(
        "from_xml: {name} is {}, which no text of an element becomes; read a STRING, and convert \
         it in the query",
        spark_type(of)
    )
}

/// The value of a type that a text is.
pub(super) fn scalar(text: &str, field: &Field, options: &XmlOptions) -> Result<Value, Fail> {
    let text = options.trimmed(text);
    if options.null_value.as_deref() == Some(text) {
        return Ok(Value::Null);
    }
    let found = match field.data_type() {
        DataType::Utf8 => Some(Value::Text(text.to_owned())),
        DataType::Boolean => match text.to_lowercase().as_str() {
            "true" | "1" => Some(Value::Boolean(true)),
            "false" | "0" => Some(Value::Boolean(false)),
            _ => None,
        },
        DataType::Int8 => text.parse::<i8>().ok().map(|value| Value::Whole(value.into())),
        DataType::Int16 => text.parse::<i16>().ok().map(|value| Value::Whole(value.into())),
        DataType::Int32 => signed(text, |digits| digits.parse::<i32>().ok(), i32::wrapping_neg)
            .map(|value| Value::Whole(value.into())),
        DataType::Int64 => {
            signed(text, |digits| digits.parse().ok(), i64::wrapping_neg).map(Value::Whole)
        }
        DataType::Float32 => {
            let value = signed(text, number::<f32>, |value| -value);
            return float(text, value.map(f64::from));
        }
        DataType::Float64 => return float(text, signed(text, number::<f64>, |value| -value)),
        DataType::Decimal128(precision, scale) => {
            parse_decimal(&text.replace(',', ""), *precision, *scale).map(Value::Decimal)
        }
        DataType::Binary => return binary(text),
        DataType::Date32 => date(text, options).map(|days| Value::Whole(days.into())),
        DataType::Timestamp(_, Some(_)) => timestamp(text, options).map(Value::Whole),
        DataType::Timestamp(_, None) => {
            let us = match &options.local_times {
                Some(pattern) => pattern.read_clock(text),
                None => parse_timestamp_without_zone(text),
            };
            us.map(Value::Whole)
        }
        of if *of == TIME => return time(text, field, options),
        _ => None,
    };
    found.ok_or(Fail::Bad)
}

/// A number behind a sign, which Spark takes off first: two signs are one number.
fn signed<N>(text: &str, parse: impl Fn(&str) -> Option<N>, negate: impl Fn(N) -> N) -> Option<N> {
    if let Some(digits) = text.strip_prefix('-') {
        return parse(digits).map(negate);
    }
    parse(text.strip_prefix('+').unwrap_or(text))
}

/// Where a text is no number to Java, Spark takes the one that it begins with.
fn float(text: &str, value: Option<f64>) -> Result<Value, Fail> {
    let unsigned = text.trim_start_matches(['+', '-']);
    match value {
        Some(value) => Ok(Value::Float(value)),
        None if unsigned.starts_with(|char: char| !char.is_ascii_alphabetic()) => {
            Err(Fail::Unclear(format!("whether '{text}' is a number")))
        }
        None => Err(Fail::Bad),
    }
}

/// `[45 61]`, as bytes are written.
fn binary(text: &str) -> Result<Value, Fail> {
    let inner = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let byte = |digits: &str| {
        let is_byte = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        u8::from_str_radix(digits, 16).ok().filter(|_| is_byte)
    };
    let bytes = inner.and_then(|inner| match inner {
        "" => Some(Vec::new()),
        digits => digits.split(' ').map(byte).collect(),
    });
    let unclear = || Fail::Unclear(format!("which bytes '{text}' is"));
    bytes.map(Value::Binary).ok_or_else(unclear)
}

/// A date as the option says, else of exactly the form `yyyy-MM-dd`.
pub(super) fn date(text: &str, options: &XmlOptions) -> Option<i32> {
    match &options.dates {
        Some(pattern) => i32::try_from(pattern.read_clock(text)?.div_euclid(DAY_US)).ok(),
        None => {
            let is_whole =
                text.len() == 10 && text.bytes().filter(|byte| *byte == b'-').count() == 2;
            parse_date(text).filter(|_| is_whole)
        }
    }
}

/// A time as the option says, else as a cast reads it.
pub(super) fn timestamp(text: &str, options: &XmlOptions) -> Option<i64> {
    match &options.timestamps {
        Some(pattern) => pattern.read(text),
        None => parse_timestamp(text),
    }
}

fn time(text: &str, field: &Field, options: &XmlOptions) -> Result<Value, Fail> {
    let us = match &options.times {
        Some(pattern) => pattern.read_clock(text).filter(|us| (0..DAY_US).contains(us)),
        None => parse_time(text),
    };
    let us = us.ok_or(Fail::Bad)?;
    let digits = field.metadata().get(TIME_DIGITS).and_then(|digits| digits.parse::<u32>().ok());
    let unit = 10_i64.pow(6 - digits.unwrap_or(6).min(6));
    match us % unit {
        0 => Ok(Value::Whole(us)),
        _ => Err(Fail::Unclear(format!("what is left of '{text}' with fewer digits"))),
    }
}

/// A column of values.
pub(super) fn column(of: &DataType, values: &[&Value]) -> Result<ArrayRef> {
    Ok(match of {
        DataType::Boolean => {
            let value = |value: &&Value| match value {
                Value::Boolean(value) => Some(*value),
                _ => None,
            };
            Arc::new(values.iter().map(value).collect::<BooleanArray>())
        }
        DataType::Utf8 => {
            let texts = values.iter().map(|value| match value {
                Value::Text(text) => Some(text.as_str()),
                _ => None,
            });
            Arc::new(texts.collect::<StringArray>())
        }
        DataType::Binary => {
            let value = |value: &&Value| match value {
                Value::Binary(bytes) => Some(bytes.clone()),
                _ => None,
            };
            Arc::new(values.iter().map(value).collect::<BinaryArray>())
        }
        DataType::Int8 => whole::<Int8Type>(of, values),
        DataType::Int16 => whole::<Int16Type>(of, values),
        DataType::Int32 => whole::<Int32Type>(of, values),
        DataType::Int64 => whole::<Int64Type>(of, values),
        DataType::Date32 => whole::<Date32Type>(of, values),
        DataType::Timestamp(..) => whole::<TimestampMicrosecondType>(of, values),
        DataType::Time64(_) => whole::<Time64MicrosecondType>(of, values),
        DataType::Float32 | DataType::Float64 | DataType::Decimal128(..) => numbers(of, values),
        DataType::List(item) => {
            let lists = values.iter().map(|value| match value {
                Value::List(items) => Some(items.iter().collect::<Vec<_>>()),
                _ => None,
            });
            let lists: Vec<Option<Vec<&Value>>> = lists.collect();
            let nulls: NullBuffer = lists.iter().map(Option::is_some).collect();
            let lengths = lists.iter().map(|list| list.as_ref().map_or(0, Vec::len));
            let offsets = OffsetBuffer::from_lengths(lengths);
            let items: Vec<&Value> = lists.into_iter().flatten().flatten().collect();
            let items = column(item.data_type(), &items)?;
            Arc::new(ListArray::try_new(Arc::clone(item), offsets, items, Some(nulls))?)
        }
        DataType::Map(entries, sorted) => map(entries, *sorted, values)?,
        DataType::Struct(fields) => {
            let nulls = values.iter().map(|value| matches!(value, Value::Struct(_))).collect();
            rows(fields, values, Some(nulls))?
        }
        other => return internal_err!("from_xml was planned with {other}"),
    })
}

/// A column of STRUCTs.
pub(super) fn rows(
    fields: &Fields,
    values: &[&Value],
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    let of_field = |(at, field): (usize, &Arc<Field>)| {
        let parts = values.iter().map(|value| match value {
            Value::Struct(parts) => parts.get(at).unwrap_or(&Value::Null),
            _ => &Value::Null,
        });
        column(field.data_type(), &parts.collect::<Vec<_>>())
    };
    let columns = fields.iter().enumerate().map(of_field).collect::<Result<Vec<_>>>()?;
    let nulls = nulls.filter(|nulls| nulls.null_count() > 0);
    let rows = StructArray::try_new_with_length(fields.clone(), columns, nulls, values.len())?;
    Ok(Arc::new(rows))
}

fn map(entries: &Arc<Field>, sorted: bool, values: &[&Value]) -> Result<ArrayRef> {
    let DataType::Struct(parts) = entries.data_type() else {
        return internal_err!("a MAP has a key and a value");
    };
    let maps = values.iter().map(|value| match value {
        Value::Map(pairs) => Some(pairs),
        _ => None,
    });
    let maps: Vec<Option<&Vec<(String, Value)>>> = maps.collect();
    let nulls: NullBuffer = maps.iter().map(Option::is_some).collect();
    let offsets = OffsetBuffer::from_lengths(maps.iter().map(|map| map.map_or(0, Vec::len)));
    let pairs: Vec<&(String, Value)> = maps.into_iter().flatten().flatten().collect();
    let keys: StringArray = pairs.iter().map(|(key, _)| Some(key.as_str())).collect();
    let found: Vec<&Value> = pairs.iter().map(|(_, value)| value).collect();
    let columns = vec![Arc::new(keys) as ArrayRef, column(parts[1].data_type(), &found)?];
    let pairs = StructArray::try_new(parts.clone(), columns, None)?;
    Ok(Arc::new(MapArray::try_new(Arc::clone(entries), offsets, pairs, Some(nulls), sorted)?))
}

fn whole<T>(of: &DataType, values: &[&Value]) -> ArrayRef
where
    T: ArrowPrimitiveType,
    T::Native: TryFrom<i64>,
{
    let number = |value: &&Value| match value {
        Value::Whole(number) => T::Native::try_from(*number).ok(),
        _ => None,
    };
    let numbers: PrimitiveArray<T> = values.iter().map(number).collect();
    Arc::new(numbers.with_data_type(of.clone()))
}

fn numbers(of: &DataType, values: &[&Value]) -> ArrayRef {
    let float = |value: &&Value| match value {
        Value::Float(number) => Some(*number),
        _ => None,
    };
    let decimal = |value: &&Value| match value {
        Value::Decimal(number) => Some(*number),
        _ => None,
    };
    match of {
        DataType::Float64 => {
            Arc::new(values.iter().map(float).collect::<PrimitiveArray<Float64Type>>())
        }
        DataType::Float32 => {
            let floats = values.iter().map(|value| float(value).map(|number| number as f32));
            Arc::new(floats.collect::<PrimitiveArray<Float32Type>>())
        }
        _ => {
            let decimals = values.iter().map(decimal).collect::<PrimitiveArray<Decimal128Type>>();
            Arc::new(decimals.with_data_type(of.clone()))
        }
    }
}

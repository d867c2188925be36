//! Casts as Spark does them with ANSI mode on, where Arrow's casts give something else.
//!
//! Times are written and read in Spark's form, numbers become times as seconds, doubles are
//! spelled as in Java, text is trimmed before it becomes a number, and bytes that are not UTF-8
//! become a string with U+FFFD in it instead of ending the query.

use std::hash::Hash;
use std::sync::Arc;

use arrow::array::builder::StringBuilder;
use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, Decimal128Array, PrimitiveArray,
    StringArray,
};
use arrow::compute::CastOptions;
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Field, FieldRef, Float32Type, Float64Type, Int8Type,
    Int16Type, Int32Type, Int64Type, TimeUnit, TimestampMicrosecondType,
};
use datafusion::common::{Result, exec_err, internal_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::decimals::{cast_decimal, casts_decimals};
use super::define::{call, invalid};
use super::nested_casts::{self, cast_nested};
use super::{interval_casts, interval_text, spans, times_of_day, variant_casts};
use crate::json::parse_decimal;
use crate::types::{INTERVAL_FIELDS, is_variant, spark_type};
use crate::values::calendar::{
    DAY_US, SECOND_US, parse_date, parse_timestamp, parse_timestamp_ntz, write_timestamp,
};
use crate::values::digits::in_ascii;
use crate::values::java_numbers::{floating, spaceless};
use crate::values::java_text::{write_double, write_float};
use crate::variant::texts;

/// Whether a cast is done here and not by Arrow.
pub(super) fn is_spark_cast(from: &DataType, to: &DataType) -> bool {
    let is_text = |data_type: &DataType| {
        matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
    };
    let is_bytes = |data_type: &DataType| {
        matches!(data_type, DataType::Binary | DataType::LargeBinary | DataType::BinaryView)
    };
    let is_us =
        |data_type: &DataType| matches!(data_type, DataType::Timestamp(TimeUnit::Microsecond, _));
    match (from, to) {
        (from, to) if variant_casts::casts(from, to) => true,
        (from, to) if casts_decimals(from, to) || spans::casts(from, to) => true,
        (from, to) if nested_casts::casts(from, to, is_spark_cast) => true,
        (from, to) if times_of_day::casts(from, to) => true,
        (from, DataType::Utf8View | DataType::LargeUtf8) if is_bytes(from) => true,
        (from, to) if is_text(from) => {
            to.is_signed_integer()
                || is_us(to)
                || matches!(
                    to,
                    DataType::Float32
                        | DataType::Float64
                        | DataType::Boolean
                        | DataType::Date32
                        | DataType::Decimal128(..)
                )
        }
        (from, DataType::Utf8) => {
            from.is_floating()
                || is_bytes(from)
                || matches!(
                    from,
                    DataType::Timestamp(..)
                        | DataType::List(_)
                        | DataType::Map(..)
                        | DataType::Struct(_)
                )
        }
        (DataType::Timestamp(_, Some(_)), to) => {
            to.is_signed_integer()
                || to.is_floating()
                || matches!(to, DataType::Date32 | DataType::Decimal128(..))
        }
        (DataType::Timestamp(_, None), DataType::Date32) => true,
        (from, DataType::Timestamp(TimeUnit::Microsecond, Some(_))) => {
            from.is_signed_integer()
                || from.is_floating()
                || matches!(from, DataType::Decimal128(..))
        }
        _ => false,
    }
}

/// Casts `values`. A value that has no counterpart is an error if `strict`, else null.
pub(super) fn cast(values: &ArrayRef, to: &DataType, strict: bool) -> Result<ArrayRef> {
    let from = values.data_type();
    if !is_spark_cast(from, to) {
        return arrow_cast(values, to, strict);
    }
    match (from, to) {
        (from, to) if variant_casts::casts(from, to) => {
            variant_casts::cast_variant(values, to, strict, cast)
        }
        (from, to) if casts_decimals(from, to) => cast_decimal(values, to, strict),
        (from, to) if nested_casts::casts(from, to, is_spark_cast) => {
            cast_nested(values, to, strict, cast)
        }
        (from, to) if spans::casts(from, to) => {
            spans::cast_span(values, to, |numbers, to| cast(numbers, to, true))
        }
        (from, to) if times_of_day::casts(from, to) => {
            times_of_day::cast_time(values, to, |seconds, to| cast(seconds, to, strict))
        }
        (DataType::LargeUtf8 | DataType::Utf8View, _) => {
            cast(&arrow_cast(values, &DataType::Utf8, strict)?, to, strict)
        }
        (_, DataType::LargeUtf8 | DataType::Utf8View) => {
            arrow_cast(&cast(values, &DataType::Utf8, strict)?, to, strict)
        }
        (DataType::Utf8, _) => from_text(values.as_string(), to, strict),
        (_, DataType::Utf8) => Ok(Arc::new(to_text(values)?)),
        (DataType::Timestamp(..), _) => from_time(values, to, strict),
        _ => to_time(values, to, strict),
    }
}

fn arrow_cast(values: &ArrayRef, to: &DataType, strict: bool) -> Result<ArrayRef> {
    let options = CastOptions { safe: !strict, ..CastOptions::default() };
    Ok(arrow::compute::cast_with_options(values, to, &options)?)
}

fn from_text(values: &StringArray, to: &DataType, strict: bool) -> Result<ArrayRef> {
    Ok(match to {
        DataType::Int8 => parsed::<Int8Type>(values, to, strict, |text| bare(text).parse().ok())?,
        DataType::Int16 => parsed::<Int16Type>(values, to, strict, |text| bare(text).parse().ok())?,
        DataType::Int32 => parsed::<Int32Type>(values, to, strict, |text| bare(text).parse().ok())?,
        DataType::Int64 => parsed::<Int64Type>(values, to, strict, |text| bare(text).parse().ok())?,
        DataType::Float32 => {
            parsed::<Float32Type>(values, to, strict, |text| floating(text, |value| value as f32))?
        }
        DataType::Float64 => {
            parsed::<Float64Type>(values, to, strict, |text| floating(text, |value| value))?
        }
        DataType::Date32 => parsed::<Date32Type>(values, to, strict, parse_date)?,
        DataType::Timestamp(_, Some(_)) => {
            parsed::<TimestampMicrosecondType>(values, to, strict, parse_timestamp)?
        }
        DataType::Timestamp(_, None) => {
            parsed::<TimestampMicrosecondType>(values, to, strict, parse_timestamp_ntz)?
        }
        DataType::Decimal128(precision, scale) => {
            let decimal =
                |text: &str| parse_decimal(&in_ascii(spaceless(text)), *precision, *scale);
            let values = values.iter().map(|text| match text.map(|text| (text, decimal(text))) {
                Some((text, None))
                    if strict && text.trim().parse::<f64>().is_ok_and(f64::is_finite) =>
                {
                    exec_err!(
                        "{text} does not fit {} (NUMERIC_VALUE_OUT_OF_RANGE); use try_cast to get \
                         NULL instead",
                        spark_type(to)
                    )
                }
                Some((text, None)) if strict => invalid(text, &spark_type(to)),
                found => Ok(found.and_then(|(_, value)| value)),
            });
            let values: Decimal128Array = values.collect::<Result<_>>()?;
            Arc::new(values.with_data_type(to.clone()))
        }
        DataType::Boolean => {
            let parse = |text: Option<&str>| parse_or(text, to, strict, parse_boolean);
            Arc::new(values.iter().map(parse).collect::<Result<BooleanArray>>()?)
        }
        other => return internal_err!("text is cast to {other} by Arrow"),
    })
}

/// Without what Spark passes over around whole numbers and BOOLEANs.
fn bare(text: &str) -> &str {
    text.trim_matches(|char: char| char <= ' ' || char == '\u{7F}')
}

fn parse_boolean(text: &str) -> Option<bool> {
    match bare(text).to_ascii_lowercase().as_str() {
        "t" | "true" | "y" | "yes" | "1" => Some(true),
        "f" | "false" | "n" | "no" | "0" => Some(false),
        _ => None,
    }
}

fn parsed<T: ArrowPrimitiveType>(
    values: &StringArray,
    to: &DataType,
    strict: bool,
    parse: impl Fn(&str) -> Option<T::Native>,
) -> Result<ArrayRef> {
    let parse = |text| parse_or(text, to, strict, &parse);
    let values: Vec<_> = values.iter().map(parse).collect::<Result<_>>()?;
    let values: PrimitiveArray<T> = values.into_iter().collect();
    Ok(Arc::new(values.with_data_type(to.clone())))
}

fn parse_or<N>(
    text: Option<&str>,
    to: &DataType,
    strict: bool,
    parse: impl Fn(&str) -> Option<N>,
) -> Result<Option<N>> {
    let Some(text) = text else { return Ok(None) };
    match parse(text) {
        None if strict => invalid(text, &spark_type(to)),
        value => Ok(value),
    }
}

/// Values as Spark's casts write them: `[1, 2]`, `{k -> v}`, `{a, b}`, `null` within those.
fn to_text(values: &ArrayRef) -> Result<StringArray> {
    let text = |write: &dyn Fn(usize, &mut String)| {
        let mut out = StringBuilder::with_capacity(values.len(), values.len() * 16);
        let mut text = String::new();
        for row in 0..values.len() {
            if values.is_null(row) {
                out.append_null();
                continue;
            }
            text.clear();
            write(row, &mut text);
            out.append_value(&text);
        }
        Ok(out.finish())
    };
    match values.data_type() {
        DataType::Float32 => {
            let values = values.as_primitive::<Float32Type>();
            text(&|row, out| write_float(values.value(row), out))
        }
        DataType::Float64 => {
            let values = values.as_primitive::<Float64Type>();
            text(&|row, out| write_double(values.value(row), out))
        }
        DataType::Timestamp(_, zone) => {
            let us = DataType::Timestamp(TimeUnit::Microsecond, zone.clone());
            let values = arrow_cast(values, &us, true)?;
            let values = values.as_primitive::<TimestampMicrosecondType>();
            text(&|row, out| write_timestamp(values.value(row), out))
        }
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => {
            let values = arrow_cast(values, &DataType::Binary, true)?;
            let values = values.as_binary::<i32>();
            text(&|row, out| out.push_str(&String::from_utf8_lossy(values.value(row))))
        }
        DataType::List(_) => {
            let list = values.as_list::<i32>();
            let items = parts(list.values())?;
            text(&|row, out| {
                let offsets = list.value_offsets();
                let range = offsets[row] as usize..offsets[row + 1] as usize;
                joined(range, ['[', ']'], out, |item, out| push(&items, item, out));
            })
        }
        DataType::Map(..) => {
            let map = values.as_map();
            let (keys, values) = (parts(map.keys())?, parts(map.values())?);
            text(&|row, out| {
                let offsets = map.value_offsets();
                let range = offsets[row] as usize..offsets[row + 1] as usize;
                joined(range, ['{', '}'], out, |entry, out| {
                    push(&keys, entry, out);
                    out.push_str(" -> ");
                    push(&values, entry, out);
                });
            })
        }
        DataType::Struct(_) => {
            let columns = values.as_struct().columns().iter().map(parts);
            let columns = columns.collect::<Result<Vec<_>>>()?;
            text(&|row, out| {
                joined(0..columns.len(), ['{', '}'], out, |at, out| push(&columns[at], row, out));
            })
        }
        other => internal_err!("{other} is cast to text by Arrow"),
    }
}

/// Parts as texts. A VARIANT is one in its JSON then, whose texts have quotation marks.
fn parts(values: &ArrayRef) -> Result<StringArray> {
    if is_variant(values.data_type()) {
        return texts(values).map_err(variant_casts::failed);
    }
    Ok(cast(values, &DataType::Utf8, true)?.as_string::<i32>().clone())
}

fn push(values: &StringArray, row: usize, out: &mut String) {
    out.push_str(if values.is_null(row) { "null" } else { values.value(row) });
}

fn joined(
    range: std::ops::Range<usize>,
    [open, close]: [char; 2],
    out: &mut String,
    write: impl Fn(usize, &mut String),
) {
    let start = range.start;
    out.push(open);
    for at in range {
        out.push_str(if at > start { ", " } else { "" });
        write(at, out);
    }
    out.push(close);
}

/// A time as a date, or as a number: seconds since the epoch, whole ones for whole numbers.
fn from_time(values: &ArrayRef, to: &DataType, strict: bool) -> Result<ArrayRef> {
    let DataType::Timestamp(_, zone) = values.data_type() else {
        return internal_err!("{} is not a time", values.data_type());
    };
    let us = DataType::Timestamp(TimeUnit::Microsecond, zone.clone());
    let values = arrow_cast(values, &us, strict)?;
    let values = values.as_primitive::<TimestampMicrosecondType>();
    match to {
        DataType::Date32 => {
            // Towards the past, not towards zero: the day before the epoch is day -1.
            let days = values.unary::<_, Date32Type>(|us| us.div_euclid(DAY_US) as i32);
            Ok(Arc::new(days))
        }
        DataType::Decimal128(..) => {
            let seconds = values.unary::<_, Decimal128Type>(i128::from);
            let seconds = seconds.with_data_type(DataType::Decimal128(20, 6));
            arrow_cast(&(Arc::new(seconds) as ArrayRef), to, strict)
        }
        to if to.is_floating() => {
            let seconds = values.unary::<_, Float64Type>(|us| us as f64 / SECOND_US as f64);
            arrow_cast(&(Arc::new(seconds) as ArrayRef), to, strict)
        }
        _ => {
            let seconds = values.unary::<_, Int64Type>(|us| us.div_euclid(SECOND_US));
            arrow_cast(&(Arc::new(seconds) as ArrayRef), to, strict)
        }
    }
}

/// Seconds since the epoch as a time.
fn to_time(values: &ArrayRef, to: &DataType, strict: bool) -> Result<ArrayRef> {
    let times: Vec<Option<i64>> = if values.data_type().is_floating() {
        let seconds = arrow_cast(values, &DataType::Float64, true)?;
        // What is less than a microsecond is left out, towards the epoch.
        let time = |seconds: f64| {
            let us = seconds * SECOND_US as f64;
            let fits = us.floor() <= i64::MAX as f64 && us.ceil() >= i64::MIN as f64;
            (us.is_finite() && (fits || !strict)).then_some(us as i64)
        };
        seconds.as_primitive::<Float64Type>().iter().map(|value| value.and_then(time)).collect()
    } else if let DataType::Decimal128(_, scale) = values.data_type() {
        // What is less than a microsecond is left out here too, and not rounded.
        let time = |value: i128| {
            let us = match u32::try_from(i32::from(*scale) - 6) {
                Ok(dropped) => value / 10_i128.checked_pow(dropped)?,
                Err(_) => value.checked_mul(10_i128.pow(6 - u32::try_from(*scale).ok()?))?,
            };
            i64::try_from(us).ok()
        };
        values.as_primitive::<Decimal128Type>().iter().map(|value| value.and_then(time)).collect()
    } else {
        let seconds = arrow_cast(values, &DataType::Int64, true)?;
        let time = |seconds: i64| seconds.checked_mul(SECOND_US);
        seconds.as_primitive::<Int64Type>().iter().map(|value| value.and_then(time)).collect()
    };
    if strict
        && let Some(row) =
            (0..times.len()).find(|row| times[*row].is_none() && values.is_valid(*row))
    {
        let value = cast(&values.slice(row, 1), &DataType::Utf8, true)?;
        return exec_err!("{} cannot be cast to TIMESTAMP", value.as_string::<i32>().value(0));
    }
    let times: PrimitiveArray<TimestampMicrosecondType> = times.into_iter().collect();
    Ok(Arc::new(times.with_data_type(to.clone())))
}

/// A cast as a function, since a plan's own casts are Arrow's.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct SparkCast {
    to: FieldRef,
    strict: bool,
    signature: Signature,
}

/// `expr` cast to the type of `to`; null where that fails unless `strict`.
pub(super) fn cast_expr(expr: Expr, to: FieldRef, strict: bool) -> Expr {
    let signature = Signature::any(1, Volatility::Immutable);
    let udf = ScalarUDF::from(SparkCast { to, strict, signature });
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(udf), vec![expr]))
}

impl SparkCast {
    /// The type that values get.
    pub(super) fn to(&self) -> &DataType {
        self.to.data_type()
    }
}

impl ScalarUDFImpl for SparkCast {
    fn name(&self) -> &str {
        if self.strict { "spark_cast" } else { "spark_try_cast" }
    }

    fn display_name(&self, args: &[Expr]) -> Result<String> {
        let word = if self.strict { "CAST" } else { "TRY_CAST" };
        Ok(format!("{word}({} AS {})", args[0], spark_type(self.to.data_type())))
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        let word = if self.strict { "CAST" } else { "TRY_CAST" };
        Ok(format!("{word}({} AS {})", args[0].schema_name(), self.to.data_type()))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.to.data_type().clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let nullable = !self.strict || args.arg_fields[0].is_nullable();
        Ok(Arc::new(Field::new(self.name(), self.to.data_type().clone(), nullable)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let fields = args.arg_fields[0].metadata().get(INTERVAL_FIELDS).cloned();
        call(&args, |arguments| {
            let (values, to) = (arguments.array(0).0, self.to.data_type());
            match &fields {
                Some(fields)
                    if *to == DataType::Utf8
                        && interval_text::is_of(values.data_type(), fields) =>
                {
                    interval_text::texts(values, fields)
                }
                _ if to.is_numeric() && interval_casts::is_interval(values.data_type()) => {
                    let to_type = |numbers: &ArrayRef| cast(numbers, to, self.strict);
                    interval_casts::to_numbers(values, fields.as_deref(), to_type, to)
                }
                _ => cast(values, to, self.strict),
            }
        })
    }
}

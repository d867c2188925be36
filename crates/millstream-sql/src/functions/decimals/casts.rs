//! Casts from decimals and to them. Rounded half up; a value that does not fit is an error.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, PrimitiveArray};
use arrow::compute::cast as arrow_cast;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type,
    Int32Type, Int64Type, i256,
};
use datafusion::common::{Result, exec_err, internal_err};

use super::narrow::Target;
use super::types::{Digits, digits_of, type_of};
use super::unscaled::{rescaled, written};
use crate::json::parse_decimal;
use crate::types::spark_type;

/// Whether a cast between these types is done here.
pub(in crate::functions) fn casts(from: &DataType, to: &DataType) -> bool {
    let is_decimal = |data_type: &DataType| matches!(data_type, DataType::Decimal128(..));
    let is_other = |data_type: &DataType| {
        data_type.is_floating()
            || data_type.is_signed_integer()
            || matches!(data_type, DataType::Boolean)
    };
    (is_decimal(from) && (is_decimal(to) || is_other(to))) || (is_decimal(to) && is_other(from))
}

/// Does the casts that [`casts`] accepts; null where a value does not fit unless `strict`.
pub(in crate::functions) fn cast_decimal(
    values: &ArrayRef,
    to: &DataType,
    strict: bool,
) -> Result<ArrayRef> {
    match (values.data_type(), to) {
        (DataType::Boolean, DataType::Decimal128(..)) => {
            cast_decimal(&arrow_cast(values, &DataType::Int32)?, to, strict)
        }
        (from, DataType::Decimal128(precision, scale)) if from.is_floating() => {
            doubles_to_decimals(values, (*precision, *scale), strict)
        }
        (_, DataType::Decimal128(precision, scale)) => {
            rounded(values, (*precision, *scale), strict)
        }
        (DataType::Decimal128(_, scale), _) => {
            let decimals = values.as_primitive::<Decimal128Type>();
            from_decimals(decimals, *scale, to, strict)
        }
        (from, to) => internal_err!("{from} to {to} is no cast of decimals"),
    }
}

fn out_of_range<T>(value: &str, to: &DataType, strict: bool) -> Result<Option<T>> {
    if !strict {
        return Ok(None);
    }
    exec_err!(
        "{value} does not fit {} (NUMERIC_VALUE_OUT_OF_RANGE); use try_cast to get NULL instead",
        spark_type(to)
    )
}

fn decimals(
    values: impl Iterator<Item = Result<Option<i128>>>,
    (precision, scale): Digits,
) -> Result<ArrayRef> {
    let values = values.collect::<Result<Decimal128Array>>()?;
    Ok(Arc::new(values.with_precision_and_scale(precision, scale)?))
}

/// Casts doubles by way of their shortest text, as Java's `BigDecimal.valueOf` does, so 2.345 to
/// two digits is 2.35. NaN and infinities become NULL, as in Spark.
fn doubles_to_decimals(values: &ArrayRef, digits: Digits, strict: bool) -> Result<ArrayRef> {
    let wide = arrow_cast(values, &DataType::Float64)?;
    let wide = wide.as_primitive::<Float64Type>();
    let cast = |value: Option<f64>| {
        let Some(value) = value.filter(|value| value.is_finite()) else { return Ok(None) };
        match parse_decimal(&format!("{value:e}"), digits.0, digits.1) {
            None => out_of_range(&value.to_string(), &type_of(digits), strict),
            unscaled => Ok(unscaled),
        }
    };
    decimals(wide.iter().map(cast), digits)
}

/// Casts whole numbers and decimals.
fn rounded(values: &ArrayRef, digits: Digits, strict: bool) -> Result<ArrayRef> {
    let Some((_, from)) = digits_of(values.data_type()) else {
        return internal_err!("{} does not become a decimal here", values.data_type());
    };
    let exact = match values.data_type() {
        DataType::Decimal128(..) => Arc::clone(values),
        _ => arrow_cast(values, &DataType::Decimal128(38, 0))?,
    };
    let target = Target::new(i32::from(from), digits);
    let cast = |value: Option<i128>| {
        let Some(value) = value else { return Ok(None) };
        if let Some(cast) = target.as_ref().and_then(|target| target.rounded(value)) {
            return Ok(Some(cast));
        }
        match rescaled(i256::from_i128(value), from, digits) {
            None => out_of_range(&written(value, from), &type_of(digits), strict),
            unscaled => Ok(unscaled),
        }
    };
    decimals(exact.as_primitive::<Decimal128Type>().iter().map(cast), digits)
}

fn from_decimals(
    values: &Decimal128Array,
    scale: i8,
    to: &DataType,
    strict: bool,
) -> Result<ArrayRef> {
    Ok(match to {
        DataType::Boolean => {
            Arc::new(values.iter().map(|it| it.map(|it| it != 0)).collect::<BooleanArray>())
        }
        DataType::Float32 => {
            // By way of text: a division of two floats would round twice.
            let float = |value| format!("{value}e{}", -i32::from(scale)).parse().unwrap_or(0.0);
            Arc::new(values.unary::<_, Float32Type>(float))
        }
        DataType::Float64 => Arc::new(values.unary::<_, Float64Type>(|value| double(value, scale))),
        DataType::Int8 => whole::<Int8Type>(values, scale, to, strict)?,
        DataType::Int16 => whole::<Int16Type>(values, scale, to, strict)?,
        DataType::Int32 => whole::<Int32Type>(values, scale, to, strict)?,
        DataType::Int64 => whole::<Int64Type>(values, scale, to, strict)?,
        other => return internal_err!("decimals are not cast to {other} here"),
    })
}

/// The nearest double.
fn double(unscaled: i128, scale: i8) -> f64 {
    // Up to here both operands are exact doubles, so the division is the only rounding.
    if unscaled.unsigned_abs() < 1 << 53 && (0..=22).contains(&scale) {
        return unscaled as f64 / 10_f64.powi(scale.into());
    }
    format!("{unscaled}e{}", -i32::from(scale)).parse().unwrap_or(f64::NAN)
}

/// Casts to whole numbers; the digits after the point are cut off, as in Spark.
fn whole<T: ArrowPrimitiveType>(
    values: &Decimal128Array,
    scale: i8,
    to: &DataType,
    strict: bool,
) -> Result<ArrayRef>
where
    T::Native: TryFrom<i128>,
{
    let unit = 10_i128.pow(u32::try_from(scale).unwrap_or(0));
    let cast = |value: Option<i128>| {
        let Some(value) = value else { return Ok(None) };
        match T::Native::try_from(value / unit) {
            Err(_) => out_of_range(&written(value, scale), to, strict),
            Ok(whole) => Ok(Some(whole)),
        }
    };
    let values = values.iter().map(cast).collect::<Result<Vec<_>>>()?;
    Ok(Arc::new(values.into_iter().collect::<PrimitiveArray<T>>()))
}

//! Casts that do not fail: whole numbers keep the low bits of what is too large for them, texts
//! that are no values are NULL, and of those that are numbers with a fraction a whole number is
//! what stands before the point.
//!
//! The type to cast to is that of the second argument, a NULL: where a plan is computed elsewhere
//! functions are known by their names.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray, StringArray};
use arrow::datatypes::{
    DataType, Decimal128Type, Field, FieldRef, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type,
};
use datafusion::common::Result;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::super::cast::cast;
use super::super::define::{call, known_by_name};
use super::super::nested_casts::cast_nested;
use crate::types::spark_type;

/// The function.
pub(super) fn function() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(PlainCast { signature: Signature::any(2, Volatility::Immutable) }))
}

struct PlainCast {
    signature: Signature,
}

known_by_name!(PlainCast);

impl ScalarUDFImpl for PlainCast {
    fn name(&self) -> &str {
        "__cast_without_ansi"
    }

    fn display_name(&self, args: &[Expr]) -> Result<String> {
        let to = match &args[1] {
            Expr::Literal(value, _) => spark_type(&value.data_type()),
            other => other.to_string(),
        };
        Ok(format!("CAST({} AS {to} WITHOUT ANSI)", args[0]))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, args: &[DataType]) -> Result<DataType> {
        Ok(args[1].clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        Ok(Arc::new(Field::new(self.name(), args.arg_fields[1].data_type().clone(), true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        call(&args, |arguments| cast_plainly(&arguments.expanded(0)?, &arguments.returns))
    }
}

fn cast_plainly(values: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    use DataType::{Decimal128, LargeUtf8, List, Map, Struct, Utf8, Utf8View};
    match (values.data_type(), to) {
        (List(_), List(_)) | (Map(..), Map(..)) | (Struct(_), Struct(_)) => {
            cast_nested(values, to, false, |values, to, _| cast_plainly(values, to))
        }
        (LargeUtf8 | Utf8View, _) => cast_plainly(&cast(values, &Utf8, true)?, to),
        (Utf8, to) if to.is_signed_integer() => Ok(of_texts(values.as_string(), to)),
        (from, to) if from.is_signed_integer() && to.is_signed_integer() => {
            let longs = cast(values, &DataType::Int64, true)?;
            Ok(narrowed(longs.as_primitive(), to))
        }
        (from, to) if from.is_floating() && to.is_signed_integer() => {
            let doubles = cast(values, &DataType::Float64, true)?;
            Ok(of_doubles(doubles.as_primitive(), to))
        }
        (Decimal128(_, scale), to) if *scale >= 0 && to.is_signed_integer() => {
            let unit = 10_i128.pow(u32::from(scale.unsigned_abs()));
            let decimals = values.as_primitive::<Decimal128Type>();
            let longs = decimals.unary::<_, Int64Type>(|value| (value / unit) as i64);
            Ok(narrowed(&longs, to))
        }
        (Decimal128(_, scale), Utf8) if is_short_text(*scale) => short_texts(values, *scale),
        _ => cast(values, to, false),
    }
}

/// The low bits of each number.
fn narrowed(longs: &PrimitiveArray<Int64Type>, to: &DataType) -> ArrayRef {
    match to {
        DataType::Int8 => Arc::new(longs.unary::<_, Int8Type>(|value| value as i8)),
        DataType::Int16 => Arc::new(longs.unary::<_, Int16Type>(|value| value as i16)),
        DataType::Int32 => Arc::new(longs.unary::<_, Int32Type>(|value| value as i32)),
        _ => Arc::new(longs.clone()),
    }
}

/// As in Java the nearest whole number, of which only a BIGINT is a long, and of an INT the low
/// bits are what is smaller.
fn of_doubles(doubles: &PrimitiveArray<Float64Type>, to: &DataType) -> ArrayRef {
    let longs = match to {
        DataType::Int64 => doubles.unary::<_, Int64Type>(|value| value as i64),
        _ => doubles.unary::<_, Int64Type>(|value| i64::from(value as i32)),
    };
    narrowed(&longs, to)
}

fn of_texts(texts: &StringArray, to: &DataType) -> ArrayRef {
    match to {
        DataType::Int8 => read::<Int8Type>(texts, |value| value.try_into().ok()),
        DataType::Int16 => read::<Int16Type>(texts, |value| value.try_into().ok()),
        DataType::Int32 => read::<Int32Type>(texts, |value| value.try_into().ok()),
        _ => read::<Int64Type>(texts, Some),
    }
}

fn read<T: ArrowPrimitiveType>(
    texts: &StringArray,
    fitting: impl Fn(i64) -> Option<T::Native>,
) -> ArrayRef {
    let numbers = texts.iter().map(|text| fitting(whole(text?)?));
    Arc::new(numbers.collect::<PrimitiveArray<T>>())
}

/// The whole number before the point of a number without exponent.
fn whole(text: &str) -> Option<i64> {
    let is_blank = |byte: u8| byte <= b' ' || byte == 0x7f;
    let bytes = text.as_bytes();
    let start = bytes.iter().position(|byte| !is_blank(*byte))?;
    let end = bytes.iter().rposition(|byte| !is_blank(*byte))? + 1;
    let (is_negative, digits) = match &bytes[start..end] {
        [b'-' | b'+'] => return None,
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    let point = digits.iter().position(|byte| *byte == b'.').unwrap_or(digits.len());
    let (whole, fraction) = digits.split_at(point);
    let is_number = |digits: &[u8]| digits.iter().all(u8::is_ascii_digit);
    if !is_number(whole) || !is_number(fraction.get(1..).unwrap_or_default()) {
        return None;
    }
    // There is one number more below zero than above it.
    let below = whole.iter().try_fold(0_i64, |below, digit| {
        below.checked_mul(10)?.checked_sub(i64::from(digit - b'0'))
    })?;
    if is_negative { Some(below) } else { below.checked_neg() }
}

/// Digits after the point that a DECIMAL is always written with.
const PLAIN_SCALE_MAX: i8 = 6;

/// Whether small decimals of a scale are texts with an exponent.
pub(crate) fn is_short_text(scale: i8) -> bool {
    scale > PLAIN_SCALE_MAX
}

fn short_texts(values: &ArrayRef, scale: i8) -> Result<ArrayRef> {
    let plain = cast(values, &DataType::Utf8, true)?;
    let (texts, decimals) = (plain.as_string::<i32>(), values.as_primitive::<Decimal128Type>());
    let text = |row: usize| {
        let plain = || texts.value(row).to_owned();
        decimals.is_valid(row).then(|| short(decimals.value(row), scale).unwrap_or_else(plain))
    };
    Ok(Arc::new((0..decimals.len()).map(text).collect::<StringArray>()))
}

/// A decimal with an exponent, if Java writes it so.
fn short(unscaled: i128, scale: i8) -> Option<String> {
    let digits = unscaled.unsigned_abs().to_string();
    let exponent = i32::try_from(digits.len()).ok()? - 1 - i32::from(scale);
    if exponent >= -i32::from(PLAIN_SCALE_MAX) {
        return None;
    }
    let (sign, (first, rest)) = (if unscaled < 0 { "-" } else { "" }, digits.split_at(1));
    let point = if rest.is_empty() { "" } else { "." };
    Some(format!("{sign}{first}{point}{rest}E{exponent}"))
}

#[cfg(test)]
mod tests {
    use arrow::array::{Decimal128Array, Float64Array, Int64Array};

    use super::*;

    #[test]
    fn a_whole_number_of_a_text_ends_at_the_point() {
        for (text, number) in [
            ("1.5", Some(1)),
            (" 1\n", Some(1)),
            ("-1.9", Some(-1)),
            (".5", Some(0)),
            (".", Some(0)),
            ("+7", Some(7)),
            ("\u{0}\u{7f}7", Some(7)),
            ("-9223372036854775808.7", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("1e2", None),
            ("-", None),
            ("", None),
            ("1.x", None),
            ("1.2.3", None),
            ("\u{a0}1", None),
            ("+-1", None),
        ] {
            assert_eq!(whole(text), number, "{text}");
        }
        let texts = StringArray::from(vec!["127.9", "128.9", "300"]);
        let bytes = of_texts(&texts, &DataType::Int8);
        let bytes = bytes.as_primitive::<Int8Type>();
        assert_eq!(bytes.iter().collect::<Vec<_>>(), [Some(127), None, None]);
    }

    #[test]
    fn numbers_keep_their_low_bits() {
        let longs: ArrayRef = Arc::new(Int64Array::from(vec![300, -129, i64::MAX]));
        let bytes = cast_plainly(&longs, &DataType::Int8).expect("it does not fail");
        assert_eq!(bytes.as_primitive::<Int8Type>().values().to_vec(), [44, 127, -1]);
        let doubles: ArrayRef = Arc::new(Float64Array::from(vec![1e10, -1e10, f64::NAN, 300.7]));
        let bytes = cast_plainly(&doubles, &DataType::Int8).expect("it does not fail");
        assert_eq!(bytes.as_primitive::<Int8Type>().values().to_vec(), [-1, 0, 0, 44]);
        let ints = cast_plainly(&doubles, &DataType::Int32).expect("it does not fail");
        let ints = ints.as_primitive::<Int32Type>().values().to_vec();
        assert_eq!(ints, [i32::MAX, i32::MIN, 0, 300]);
        let decimals = Decimal128Array::from(vec![10_i128.pow(20), -3_007]);
        let decimals = decimals.with_precision_and_scale(38, 1).expect("they fit");
        let decimals: ArrayRef = Arc::new(decimals);
        let longs = cast_plainly(&decimals, &DataType::Int64).expect("it does not fail");
        let longs = longs.as_primitive::<Int64Type>().values().to_vec();
        assert_eq!(longs, [-8_446_744_073_709_551_616, -300]);
    }

    #[test]
    fn small_decimals_have_an_exponent() {
        assert_eq!(short(0, 17).as_deref(), Some("0E-17"));
        assert_eq!(short(-12, 9).as_deref(), Some("-1.2E-8"));
        assert_eq!(short(1, 6), None);
        assert_eq!(short(123, 8), None);
    }
}

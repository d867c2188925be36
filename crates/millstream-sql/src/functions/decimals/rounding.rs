//! `round`, `bround`, `ceil` and `floor`.
//!
//! A decimal loses digits, and its type changes accordingly; a whole number keeps its type; a
//! double is rounded by way of its shortest text, as in Java, so `round(1.005e0, 2)` is 1.01, and
//! a zero that has been rounded has no sign.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Decimal128Array};
use arrow::compute::cast as arrow_cast;
use arrow::datatypes::{
    DataType, Decimal128Type, Field, FieldRef, Float32Type, Float64Type, Int64Type, i256,
};
use datafusion::common::{Result, ScalarValue, exec_datafusion_err, exec_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::super::cast::cast;
use super::super::define::{Arguments, call, known_by_name};
use super::types::{Digits, bounded, digits_of, type_of};
use super::unscaled::{Rounding, divided, fits, power_of_ten, written};
use crate::types::spark_type;

/// The functions, for registration.
pub(in crate::functions) fn functions() -> Vec<Arc<ScalarUDF>> {
    let function = |name, aliases: &[&str], rounding| {
        let signature = Signature::user_defined(Volatility::Immutable);
        let aliases = aliases.iter().map(|&alias| alias.to_owned()).collect();
        Arc::new(ScalarUDF::from(Round { name, aliases, rounding, signature }))
    };
    vec![
        function("round", &[], Rounding::HalfUp),
        function("bround", &[], Rounding::HalfEven),
        function("ceil", &["ceiling"], Rounding::Up),
        function("floor", &[], Rounding::Down),
    ]
}

struct Round {
    name: &'static str,
    aliases: Vec<String>,
    rounding: Rounding,
    signature: Signature,
}

known_by_name!(Round);

impl Round {
    /// `ceil` and `floor` without places give a whole number.
    fn gives_whole(&self, args: usize) -> bool {
        args == 1 && matches!(self.rounding, Rounding::Up | Rounding::Down)
    }
}

impl ScalarUDFImpl for Round {
    fn name(&self) -> &str {
        self.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let name = self.name;
        if !(1..=2).contains(&given.len()) {
            return plan_err!("{name} takes 1 to 2 arguments and got {}", given.len());
        }
        let to_decimal = given.len() == 2 && matches!(self.rounding, Rounding::Up | Rounding::Down);
        let of = match &given[0] {
            found if to_decimal && found.is_integer() => {
                type_of(digits_of(found).unwrap_or((20, 0)))
            }
            DataType::Decimal128(..) => given[0].clone(),
            // As many digits as Spark gives what becomes a DECIMAL: a FLOAT, a NULL, a DOUBLE.
            DataType::Float32 if to_decimal => type_of((14, 7)),
            DataType::Null if to_decimal => type_of((38, 18)),
            found if to_decimal && (found.is_numeric() || found.is_string()) => type_of((30, 15)),
            found if found.is_signed_integer() || found.is_floating() => found.clone(),
            found if found.is_numeric() || found.is_string() || found.is_null() => {
                DataType::Float64
            }
            other => return plan_err!("{name} takes a number, not {}", spark_type(other)),
        };
        Ok([of, DataType::Int32].into_iter().take(given.len()).collect())
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        plan_err!("the type of {} depends on its arguments' values", self.name)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let places = match args.scalar_arguments.get(1) {
            None => Some(0),
            Some(Some(value)) => places_of(value)?,
            Some(None) => {
                return plan_err!("the second argument of {} must be a literal", self.name);
            }
        };
        let whole = self.gives_whole(args.arg_fields.len());
        let returns = match args.arg_fields[0].data_type() {
            DataType::Decimal128(precision, scale) if whole => {
                type_of(bounded(i32::from(*precision) - i32::from(*scale) + 1, 0))
            }
            DataType::Decimal128(precision, scale) => {
                type_of(rounded_digits((*precision, *scale), places.unwrap_or(0)))
            }
            _ if whole => DataType::Int64,
            other => other.clone(),
        };
        let returns = match (args.arg_fields[0].data_type(), whole) {
            // A decimal without places is not rounded, so it needs no digit more.
            (DataType::Decimal128(precision, 0), true) => type_of((*precision, 0)),
            _ => returns,
        };
        Ok(Arc::new(Field::new(self.name, returns, true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        call(&args, |arguments| self.rows(arguments))
    }
}

fn places_of(value: &ScalarValue) -> Result<Option<i32>> {
    match value.cast_to(&DataType::Int32)? {
        ScalarValue::Int32(places) => Ok(places),
        other => plan_err!("{other} is no number of places"),
    }
}

/// The digits of a rounded decimal: one more before the point, as 9.9 becomes 10.
fn rounded_digits((precision, scale): Digits, places: i32) -> Digits {
    let whole = i32::from(precision) - i32::from(scale) + 1;
    if places < 0 {
        return bounded(whole.max(places.saturating_neg().saturating_add(1)), 0);
    }
    let scale = i32::from(scale).min(places);
    bounded(whole + scale, scale)
}

impl Round {
    fn rows(&self, args: &Arguments) -> Result<ArrayRef> {
        let places = match args.len() {
            1 => Some(0),
            _ => args.int(1).get(0),
        };
        let Some(places) = places else {
            return Ok(arrow::array::new_null_array(&args.returns, args.rows));
        };
        match args.data_type(0) {
            DataType::Decimal128(_, scale) => self.decimals(args, *scale, places),
            _ if self.gives_whole(args.len()) => self.whole(args),
            DataType::Float32 => {
                let values = args.primitive::<Float32Type>(0);
                args.primitives::<Float32Type>(|row| {
                    let rounded = |value: f32| {
                        if value.is_finite() {
                            // What is rounded are the digits of the DOUBLE of the same value.
                            let shown = format!("{:e}", f64::from(value));
                            self.text(&shown, places).parse::<f32>().unwrap_or(value) + 0.0
                        } else {
                            value
                        }
                    };
                    Ok(values.get(row).map(rounded))
                })
            }
            DataType::Float64 => {
                let values = args.primitive::<Float64Type>(0);
                args.primitives::<Float64Type>(|row| {
                    let rounded = |value: f64| {
                        if value.is_finite() {
                            self.text(&format!("{value:e}"), places).parse::<f64>().unwrap_or(value)
                                + 0.0
                        } else {
                            value
                        }
                    };
                    Ok(values.get(row).map(rounded))
                })
            }
            _ => self.whole_numbers(args, places),
        }
    }

    fn decimals(&self, args: &Arguments, from: i8, places: i32) -> Result<ArrayRef> {
        let DataType::Decimal128(precision, scale) = args.returns else {
            return exec_err!("a rounded decimal is a decimal");
        };
        let values = args.primitive::<Decimal128Type>(0);
        // Rounding to more places than there are changes nothing; beyond 76 dropped digits, which
        // is all that 256 bits hold, the result is 0.
        let dropped = u32::try_from(i32::from(from).saturating_sub(places)).unwrap_or(0);
        let rounded = |value: i128| {
            let wide = i256::from_i128(value);
            let Some(base) = power_of_ten(dropped) else { return Some(0) };
            let kept = divided(wide, base, self.rounding)?;
            let zeros = i32::from(scale) - (i32::from(from) - dropped as i32);
            fits(kept.checked_mul(power_of_ten(u32::try_from(zeros).ok()?)?)?, precision)
        };
        let value = |row: usize| match values.get(row) {
            None => Ok(None),
            Some(value) => match rounded(value) {
                None => exec_err!(
                    "{} of {} does not fit DECIMAL({precision},{scale}) \
                     (NUMERIC_VALUE_OUT_OF_RANGE); cast it to a narrower DECIMAL before",
                    self.name,
                    written(value, from)
                ),
                rounded => Ok(rounded),
            },
        };
        let values = (0..args.rows).map(value).collect::<Result<Decimal128Array>>()?;
        Ok(Arc::new(values.with_precision_and_scale(precision, scale)?))
    }

    /// `ceil` and `floor` of numbers that are no decimals.
    fn whole(&self, args: &Arguments) -> Result<ArrayRef> {
        if args.data_type(0).is_integer() {
            return Ok(arrow_cast(&args.expanded(0)?, &DataType::Int64)?);
        }
        let values = arrow_cast(&args.expanded(0)?, &DataType::Float64)?;
        let values = values.as_primitive::<Float64Type>();
        // As Java's cast to a long: values out of range give the nearest one, and NaN gives 0.
        let whole = |value: f64| match self.rounding {
            Rounding::Up => value.ceil() as i64,
            _ => value.floor() as i64,
        };
        Ok(Arc::new(values.unary::<_, Int64Type>(whole)))
    }

    /// Only places before the point change a whole number.
    fn whole_numbers(&self, args: &Arguments, places: i32) -> Result<ArrayRef> {
        let values = args.expanded(0)?;
        let Some(dropped) = u32::try_from(-i64::from(places)).ok().filter(|places| *places > 0)
        else {
            return Ok(values);
        };
        let base = power_of_ten(dropped);
        let wide = arrow_cast(&values, &DataType::Int64)?;
        let rounded = |value: i64| -> Result<i64> {
            let Some(base) = base else { return Ok(0) };
            let kept = divided(i256::from_i128(value.into()), base, self.rounding);
            let rounded = kept.and_then(|kept| kept.checked_mul(base)?.to_i128());
            rounded.and_then(|rounded| i64::try_from(rounded).ok()).ok_or_else(|| {
                exec_datafusion_err!(
                    "{}({value}, {places}) overflows; cast it to DECIMAL",
                    self.name
                )
            })
        };
        let rounded = wide.as_primitive::<Int64Type>().try_unary::<_, Int64Type, _>(rounded)?;
        cast(&(Arc::new(rounded) as ArrayRef), values.data_type(), true)
    }

    /// A number in scientific form, rounded to `places` after the point, as text that is a number.
    fn text(&self, scientific: &str, places: i32) -> String {
        let (mantissa, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
        let exponent: i32 = exponent.parse().unwrap_or(0);
        let (sign, mantissa) = match mantissa.strip_prefix('-') {
            Some(positive) => ("-", positive),
            None => ("", mantissa),
        };
        let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
        // The value is `digits` times ten to the power of `power`.
        let power = exponent - (digits.len() as i32 - 1);
        let dropped = (-i64::from(power) - i64::from(places)).max(0);
        if dropped == 0 {
            return scientific.to_owned();
        }
        if dropped > digits.len() as i64 {
            return format!("{sign}0");
        }
        let kept = i256::from_string(&digits).and_then(|digits| {
            divided(digits, power_of_ten(u32::try_from(dropped).ok()?)?, self.rounding)
        });
        let kept = kept.map_or_else(|| "0".to_owned(), |kept| kept.to_string());
        format!("{sign}{kept}e{}", i64::from(power) + dropped)
    }
}

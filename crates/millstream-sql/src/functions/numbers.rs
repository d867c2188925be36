//! Functions of doubles that differ from DataFusion's at their edges: a logarithm of what has none
//! is NULL, a root of what has none is NaN, `log(x)` is the natural one. Natural logarithms and
//! powers of e are those of Java's library.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Float64Array};
use arrow::datatypes::{
    DataType, DurationMicrosecondType, Float64Type, Int64Type, IntervalUnit, IntervalYearMonthType,
};
use datafusion::common::{Result, ScalarValue, internal_err, plan_err};
use datafusion::logical_expr::{ColumnarValue, Operator};
use datafusion::physical_expr_common::datum::apply_cmp;

use super::common_types::{check_intervals, compared};
use super::define::{Arguments, Function, Param, returns_boolean, returns_double, returns_long};
use super::interval_text::MICROSECONDS;
use super::one_zero::ones;
use crate::types::spark_type;
use crate::values::java_math;

use Param::{Any, Double, Int};

macro_rules! of_double {
    ($name:literal, $of:expr) => {
        Function::new($name, &[Double], returns_double, |args| each(args, $of))
    };
}

macro_rules! of_doubles {
    ($name:literal, $of:expr) => {
        Function::new($name, &[Double, Double], returns_double, |args| each_two(args, $of))
    };
}

pub(super) const FUNCTIONS: &[Function] = &[
    of_double!("sqrt", |value| Some(one_nan(value.sqrt()))),
    of_double!("cbrt", |value| Some(value.cbrt())),
    of_double!("rint", |value| Some(value.round_ties_even())),
    of_double!("ln", |value| logarithm(value, java_math::ln)),
    of_double!("exp", |value| Some(java_math::exp(value))),
    of_double!("cosh", |value| Some(java_math::cosh(value))),
    of_double!("log2", |value| logarithm(value, |value| {
        java_math::ln(value) / java_math::ln(2.0)
    })),
    of_double!("log10", |value| logarithm(value, f64::log10)),
    of_double!("log1p", |value| (value > -1.0 || value.is_nan()).then(|| value.ln_1p())),
    Function::new("log", &[Double, Double], returns_double, log).required(1),
    of_doubles!("pow", power).aliases(&["power"]),
    // A zero below zero is one above it, so that the angle of (-1, -0.0) is pi.
    of_doubles!("atan2", |y, x| (y + 0.0).atan2(x + 0.0)),
    of_doubles!("hypot", java_math::hypot),
    Function::new("signum", &[Any], sign_type, sign).aliases(&["sign"]),
    Function::new("isnan", &[Double], returns_boolean, |args| {
        let values = args.primitive::<Float64Type>(0);
        args.booleans(|row| Ok(Some(values.get(row).is_some_and(f64::is_nan))))
    }),
    Function::new("factorial", &[Int], returns_long, |args| {
        let values = args.int(0);
        args.primitives::<Int64Type>(|row| {
            let value = values.get(row).map(i64::from).filter(|value| (0..=20).contains(value));
            Ok(value.map(|value| (1..=value).product()))
        })
    }),
    Function::new("e", &[], returns_double, |args| {
        args.primitives::<Float64Type>(|_| Ok(Some(std::f64::consts::E)))
    }),
    Function::new("positive", &[Any], positive_type, |args| {
        super::cast::cast(&args.expanded(0)?, &args.returns, true)
    }),
    Function::new("nanvl", &[Any, Any], number_type, number_or_other),
    Function::new("equal_null", &[Any, Any], equal_null_type, equal_null),
    Function::new("nullif", &[Any, Any], null_if_type, null_if),
];

/// As in Java, where 1 is no exception among the bases.
fn power(base: f64, exponent: f64) -> f64 {
    if exponent.is_nan() || (base.abs() == 1.0 && exponent.is_infinite()) {
        return f64::NAN;
    }
    one_nan(base.powf(exponent))
}

/// The processor's NaN has a sign, and would be less than all numbers.
fn one_nan(value: f64) -> f64 {
    if value.is_nan() { f64::NAN } else { value }
}

fn sign_type(args: &[DataType]) -> Result<DataType> {
    match &args[0] {
        DataType::Duration(_) | DataType::Interval(IntervalUnit::YearMonth) => {}
        of if of.is_numeric() || of.is_string() || of.is_null() => {}
        other => {
            return plan_err!("signum takes a number or an INTERVAL, not {}", spark_type(other));
        }
    }
    returns_double(args)
}

/// -1, 0 or 1; both zeros and NaN are their own signs.
fn sign(args: &Arguments) -> Result<ArrayRef> {
    let values = args.expanded(0)?;
    let signs: Float64Array = match values.data_type() {
        DataType::Interval(_) => {
            let months = values.as_primitive::<IntervalYearMonthType>();
            months.unary::<_, Float64Type>(|months| months.signum().into())
        }
        DataType::Duration(_) => {
            let us = arrow::compute::cast(&values, &MICROSECONDS)?;
            let us = us.as_primitive::<DurationMicrosecondType>();
            us.unary::<_, Float64Type>(|us| us.signum() as f64)
        }
        _ => {
            let numbers = super::cast::cast(&values, &DataType::Float64, true)?;
            let sign = |number: f64| if number == 0.0 { number } else { number.signum() };
            numbers.as_primitive::<Float64Type>().unary::<_, Float64Type>(sign)
        }
    };
    Ok(Arc::new(signs))
}

/// The type of `+x`: text is a DOUBLE.
fn positive_type(args: &[DataType]) -> Result<DataType> {
    match &args[0] {
        of if of.is_string() || of.is_null() => Ok(DataType::Float64),
        of if of.is_numeric() => Ok(of.clone()),
        of @ (DataType::Interval(_) | DataType::Duration(_)) => Ok(of.clone()),
        other => plan_err!("`+` takes a number or an INTERVAL, not a {}", spark_type(other)),
    }
}

fn each(args: &Arguments, of: fn(f64) -> Option<f64>) -> Result<ArrayRef> {
    let values = args.primitive::<Float64Type>(0);
    args.primitives::<Float64Type>(|row| Ok(values.get(row).and_then(of)))
}

fn each_two(args: &Arguments, of: fn(f64, f64) -> f64) -> Result<ArrayRef> {
    let (left, right) = (args.primitive::<Float64Type>(0), args.primitive::<Float64Type>(1));
    args.primitives::<Float64Type>(|row| {
        Ok(left.get(row).zip(right.get(row)).map(|(left, right)| of(left, right)))
    })
}

fn logarithm(value: f64, of: fn(f64) -> f64) -> Option<f64> {
    (value > 0.0 || value.is_nan()).then(|| of(value))
}

/// `log(x)`, or `log(base, x)`.
fn log(args: &Arguments) -> Result<ArrayRef> {
    let first = args.primitive::<Float64Type>(0);
    if args.len() == 1 {
        return each(args, |value| logarithm(value, java_math::ln));
    }
    let second = args.primitive::<Float64Type>(1);
    args.primitives::<Float64Type>(|row| {
        let sides = first.get(row).zip(second.get(row));
        let logarithms = sides.and_then(|(base, value)| {
            Some((logarithm(base, java_math::ln)?, logarithm(value, java_math::ln)?))
        });
        Ok(logarithms.map(|(base, value)| value / base))
    })
}

/// FLOAT of two FLOATs, else DOUBLE.
fn number_type(args: &[DataType]) -> Result<DataType> {
    let is_number = |of: &&DataType| of.is_numeric() || of.is_string() || of.is_null();
    if let Some(other) = args.iter().find(|of| !is_number(of)) {
        return plan_err!("nanvl takes numbers, not {}", spark_type(other));
    }
    let floats = args.iter().all(|of| *of == DataType::Float32);
    Ok(if floats { DataType::Float32 } else { DataType::Float64 })
}

/// The first number, or the second one where it is NaN.
fn number_or_other(args: &Arguments) -> Result<ArrayRef> {
    let [values, others] = [0, 1].map(|at| -> Result<ArrayRef> {
        super::cast::cast(&args.expanded(at)?, &DataType::Float64, true)
    });
    let (values, others) = (values?, others?);
    let (values, others) =
        (values.as_primitive::<Float64Type>(), others.as_primitive::<Float64Type>());
    let chosen = values.iter().zip(others.iter()).map(|(value, other)| match value {
        Some(value) if value.is_nan() => other,
        value => value,
    });
    let chosen: Float64Array = chosen.collect();
    Ok(arrow::compute::cast(&chosen, &args.returns)?)
}

/// `a <=> b` as a function.
fn equal_null(args: &Arguments) -> Result<ArrayRef> {
    let [left, right] = together(args)?;
    apply_cmp(Operator::IsNotDistinctFrom, &left, &right)?.into_array(args.rows)
}

/// Both arguments as their common type, whose zeros and NaNs are equal also within arrays and
/// structs.
fn together(args: &Arguments) -> Result<[ColumnarValue; 2]> {
    let common = compared(args.data_type(0), args.data_type(1));
    let Some(common) = common else { return internal_err!("types are checked before") };
    let side = |at: usize| -> Result<ColumnarValue> {
        let (values, constant) = args.array(at);
        let values = ones(&super::cast::cast(values, &common, true)?)?;
        Ok(match constant {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&values, 0)?),
            false => ColumnarValue::Array(values),
        })
    };
    Ok([side(0)?, side(1)?])
}

fn equal_null_type(args: &[DataType]) -> Result<DataType> {
    comparable("equal_null", args)?;
    returns_boolean(args)
}

/// The type of the first argument, whatever it is compared as.
fn null_if_type(args: &[DataType]) -> Result<DataType> {
    comparable("nullif", args)?;
    Ok(args[0].clone())
}

/// Refuses two values that cannot be compared.
fn comparable(function: &str, args: &[DataType]) -> Result<()> {
    check_intervals(args)?;
    let [left, right] = args else { return plan_err!("{function} takes two arguments") };
    if compared(left, right).is_none() {
        let (left, right) = (spark_type(left), spark_type(right));
        return plan_err!("{function}: {left} and {right} have no common type; cast one of them");
    }
    Ok(())
}

/// The first argument as it is, and NULL where it equals the second one.
fn null_if(args: &Arguments) -> Result<ArrayRef> {
    let [left, right] = together(args)?;
    let equal = apply_cmp(Operator::Eq, &left, &right)?.into_array(args.rows)?;
    Ok(arrow::compute::nullif(&args.expanded(0)?, equal.as_boolean())?)
}

//! Intervals multiplied and divided by numbers. What has a fraction is rounded half up.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast as arrow_cast;
use arrow::datatypes::{
    DataType, Decimal128Type, DurationMicrosecondType, Float64Type, Int64Type, IntervalUnit,
    IntervalYearMonthType,
};
use datafusion::common::{DFSchema, Result, exec_err, plan_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::planner::RawBinaryExpr;
use datafusion::logical_expr::{Expr, ExprSchemable, ScalarUDF, cast};
use datafusion::sql::sqlparser::ast::BinaryOperator;

use super::define::{Arguments, Function, Param};
use super::interval_text::MICROSECONDS;
use crate::types::spark_type;

use Param::Any;

pub(super) const MULTIPLY: &str = "interval_multiply";
pub(super) const DIVIDE: &str = "interval_divide";

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new(MULTIPLY, &[Any, Any], scaled_type, |args| scaled(args, false)),
    Function::new(DIVIDE, &[Any, Any], scaled_type, |args| scaled(args, true)),
];

/// The call for `interval * number`, `number * interval` or `interval / number`.
pub(super) fn planned(
    expr: &RawBinaryExpr,
    schema: &DFSchema,
    [multiply, divide]: [&Arc<ScalarUDF>; 2],
) -> Option<Expr> {
    let of = |side: &Expr| side.get_type(schema).unwrap_or(DataType::Boolean);
    let is_interval =
        |side: &Expr| matches!(of(side), DataType::Interval(_) | DataType::Duration(_));
    let number = |side: &Expr| match of(side) {
        of if of.is_string() => Some(cast(side.clone(), DataType::Float64)),
        of if of.is_null() => Some(cast(side.clone(), DataType::Int64)),
        of if of.is_numeric() => Some(side.clone()),
        _ => None,
    };
    let (left, right) = (&expr.left, &expr.right);
    let (function, interval, number) = match expr.op {
        BinaryOperator::Multiply if is_interval(left) => (multiply, left, number(right)?),
        BinaryOperator::Multiply if is_interval(right) => (multiply, right, number(left)?),
        BinaryOperator::Divide if is_interval(left) => (divide, left, number(right)?),
        _ => return None,
    };
    let args = vec![interval.clone(), number];
    Some(Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(function), args)))
}

fn scaled_type(args: &[DataType]) -> Result<DataType> {
    match &args[0] {
        of @ DataType::Interval(unit) if *unit == IntervalUnit::YearMonth => Ok(of.clone()),
        DataType::Duration(_) => Ok(MICROSECONDS),
        other => plan_err!("an {} cannot be multiplied or divided", spark_type(other)),
    }
}

/// A number to multiply with: whole, or `unscaled / scale`, or a double.
enum Number {
    Exact { unscaled: i128, scale: i128 },
    Double(f64),
}

fn scaled(args: &Arguments, divides: bool) -> Result<ArrayRef> {
    let fails = |failure: &str| exec_err!("{failure}");
    scaled_by(args, &args.expanded(0)?, &args.expanded(1)?, divides, fails)
}

/// Multiplies or divides the INTERVALs in `spans` by `numbers`. Where there is no result, `failed`
/// gets the reason and decides between an error and NULL.
pub(super) fn scaled_by(
    args: &Arguments,
    spans: &ArrayRef,
    numbers: &ArrayRef,
    divides: bool,
    failed: impl Fn(&str) -> Result<()>,
) -> Result<ArrayRef> {
    let numbers = Numbers::of(numbers)?;
    let result = |count: i64, row: usize| -> Result<Option<i64>> {
        let Some(number) = numbers.at(row) else { return Ok(None) };
        if divides && number.is_zero() {
            failed("an interval is divided by zero (INTERVAL_DIVIDED_BY_ZERO)")?;
            return Ok(None);
        }
        let product = product(count, &number, divides);
        let fits = |count: &i64| !is_of_months(&args.returns) || i32::try_from(*count).is_ok();
        let product = product.filter(fits);
        if product.is_none() {
            failed("the interval is too long (INTERVAL_ARITHMETIC_OVERFLOW)")?;
        }
        Ok(product)
    };
    if is_of_months(&args.returns) {
        let months = spans.as_primitive::<IntervalYearMonthType>();
        return args.primitives::<IntervalYearMonthType>(|row| {
            if months.is_null(row) {
                return Ok(None);
            }
            let months = result(months.value(row).into(), row)?;
            Ok(months.and_then(|months| i32::try_from(months).ok()))
        });
    }
    let us = arrow_cast(spans, &MICROSECONDS)?;
    let us = us.as_primitive::<DurationMicrosecondType>();
    args.primitives::<DurationMicrosecondType>(|row| {
        if us.is_null(row) { Ok(None) } else { result(us.value(row), row) }
    })
}

fn is_of_months(of: &DataType) -> bool {
    matches!(of, DataType::Interval(_))
}

impl Number {
    fn is_zero(&self) -> bool {
        match self {
            Self::Exact { unscaled, .. } => *unscaled == 0,
            Self::Double(value) => *value == 0.0,
        }
    }
}

/// The numbers of a column.
struct Numbers(ArrayRef);

impl Numbers {
    fn of(values: &ArrayRef) -> Result<Self> {
        let of = match values.data_type() {
            of if of.is_integer() => DataType::Int64,
            of @ DataType::Decimal128(..) => of.clone(),
            _ => DataType::Float64,
        };
        Ok(Self(arrow_cast(values, &of)?))
    }

    fn at(&self, row: usize) -> Option<Number> {
        let values = &self.0;
        if values.is_null(row) {
            return None;
        }
        Some(match values.data_type() {
            DataType::Int64 => {
                let unscaled = values.as_primitive::<Int64Type>().value(row).into();
                Number::Exact { unscaled, scale: 1 }
            }
            DataType::Decimal128(_, scale) => {
                let unscaled = values.as_primitive::<Decimal128Type>().value(row);
                Number::Exact { unscaled, scale: 10_i128.pow(scale.unsigned_abs().into()) }
            }
            _ => Number::Double(values.as_primitive::<Float64Type>().value(row)),
        })
    }
}

/// `None` beyond what an interval holds. Nothing is divided by zero.
fn product(count: i64, number: &Number, divides: bool) -> Option<i64> {
    match number {
        Number::Double(value) => {
            let count = count as f64;
            let exact = if divides { count / value } else { count * value };
            let rounded = exact.round();
            // The largest i64 is no double; the next smaller double is.
            let fits = rounded.abs() < i64::MAX as f64;
            fits.then_some(rounded as i64)
        }
        Number::Exact { unscaled, scale } => {
            let (factor, divisor) = if divides { (scale, unscaled) } else { (unscaled, scale) };
            let product = i128::from(count).checked_mul(*factor);
            product.map(|product| half_up(product, *divisor)).and_then(|all| all.try_into().ok())
        }
    }
}

/// A quotient, of which half is rounded away from zero.
pub(super) fn half_up(value: i128, divisor: i128) -> i128 {
    let (quotient, rest) = (value / divisor, value % divisor);
    let rounds = rest.unsigned_abs() >= divisor.unsigned_abs() - rest.unsigned_abs();
    let away = if (value < 0) == (divisor < 0) { 1 } else { -1 };
    if rest != 0 && rounds { quotient + away } else { quotient }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_rounded_away_from_zero() {
        for (value, divisor, wanted) in [(5, 2, 3), (-5, 2, -3), (5, -2, -3), (4, 3, 1), (6, 3, 2)]
        {
            assert_eq!(half_up(value, divisor), wanted, "{value} / {divisor}");
        }
    }
}

//! Operators on numbers that are errors with some operands, and no matter to DataFusion: `x % 0` of
//! DOUBLEs, also as `mod` and `pmod`, which is NaN to it, and `-x` of the least whole number, which
//! it leaves as it is.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ArrowNativeTypeOp, AsArray, PrimitiveArray};
use arrow::compute::kernels::numeric;
use arrow::datatypes::{ArrowPrimitiveType, DataType, Float32Type, Float64Type};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, ScalarValue, exec_err, internal_err};
use datafusion::logical_expr::expr::BinaryExpr;
use datafusion::logical_expr::{Expr, ExprSchemable as _, Operator, ScalarUDF};

use super::define::{Arguments, Function, Param};
use super::java_formats;
use super::operators::checked;

const REMAINDER: Function =
    Function::new("__remainder", &[Param::Any, Param::Any], |args| Ok(args[0].clone()), remainder);

const POSITIVE_REMAINDER: Function = Function::new(
    "__positive_remainder",
    &[Param::Any, Param::Any],
    |args| Ok(args[0].clone()),
    positive_remainder,
);

/// The functions for `%` and `pmod` of FLOATs and DOUBLEs.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    vec![REMAINDER.udf(), POSITIVE_REMAINDER.udf()]
}

/// Whether [`with_errors`] may change `expr`.
pub(crate) fn may_fail(expr: &Expr) -> bool {
    match expr {
        Expr::BinaryExpr(BinaryExpr { op, .. }) => *op == Operator::Modulo,
        Expr::Negative(_) => true,
        Expr::ScalarFunction(call) => matches!(call.name(), "mod" | "pmod" | "format_string"),
        _ => false,
    }
}

/// `expr`, whose operands have their types, with Spark's errors, and its digits in texts.
pub(crate) fn with_errors(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    Ok(match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Modulo, right })
            if is_floating(&left, schema) && is_floating(&right, schema) =>
        {
            Transformed::yes(REMAINDER.udf().call(vec![*left, *right]))
        }
        Expr::Negative(value) if !matches!(*value, Expr::Literal(..)) => {
            match value.get_type(schema) {
                Ok(of) if of.is_signed_integer() => {
                    let zero = Expr::Literal(ScalarValue::new_zero(&of)?, None);
                    Transformed::yes(checked(zero, Operator::Minus, *value))
                }
                _ => Transformed::no(Expr::Negative(value)),
            }
        }
        Expr::ScalarFunction(call) if call.name() == "format_string" => {
            java_formats::adapted(call, schema)?
        }
        Expr::ScalarFunction(call) if call.args.iter().all(|arg| is_floating(arg, schema)) => {
            match call.name() {
                "mod" => Transformed::yes(REMAINDER.udf().call(call.args)),
                "pmod" => Transformed::yes(POSITIVE_REMAINDER.udf().call(call.args)),
                _ => Transformed::no(Expr::ScalarFunction(call)),
            }
        }
        other => Transformed::no(other),
    })
}

fn is_floating(expr: &Expr, schema: &DFSchema) -> bool {
    matches!(expr.get_type(schema), Ok(DataType::Float32 | DataType::Float64))
}

fn remainder(args: &Arguments) -> Result<ArrayRef> {
    let (left, right) = (args.expanded(0)?, args.expanded(1)?);
    match (left.data_type(), right.data_type()) {
        (DataType::Float64, DataType::Float64) => remainders::<Float64Type>(&left, &right),
        (DataType::Float32, DataType::Float32) => remainders::<Float32Type>(&left, &right),
        (left, right) => internal_err!("a remainder of {left} by {right}"),
    }
}

fn remainders<T: ArrowPrimitiveType>(left: &ArrayRef, right: &ArrayRef) -> Result<ArrayRef> {
    let divisors = right.as_primitive::<T>();
    // Both zeros are equal to the default, as IEEE compares.
    let is_zero = |row: usize| divisors.is_valid(row) && divisors.value(row) == T::default_value();
    if (0..left.len()).any(|row| left.is_valid(row) && is_zero(row)) {
        return exec_err!("division by zero; try_mod has NULL then");
    }
    Ok(numeric::rem(left, right)?)
}

fn positive_remainder(args: &Arguments) -> Result<ArrayRef> {
    let found = remainder(args)?;
    let divisors = args.expanded(1)?;
    match found.data_type() {
        DataType::Float64 => Ok(positive::<Float64Type>(&found, &divisors)),
        _ => Ok(positive::<Float32Type>(&found, &divisors)),
    }
}

/// The remainders below zero are those of the next multiple of the divisor.
fn positive<T: ArrowPrimitiveType>(found: &ArrayRef, divisors: &ArrayRef) -> ArrayRef {
    let (found, divisors) = (found.as_primitive::<T>(), divisors.as_primitive::<T>());
    let value = |row: usize| {
        let (of, by) = (found.value(row), divisors.value(row));
        let is_below = of < T::default_value();
        found
            .is_valid(row)
            .then(|| if is_below { of.add_wrapping(by).mod_wrapping(by) } else { of })
    };
    Arc::new((0..found.len()).map(value).collect::<PrimitiveArray<T>>())
}

#[cfg(test)]
mod tests {
    use arrow::array::Float64Array;

    use super::*;

    fn of(left: Option<f64>, right: Option<f64>) -> Result<ArrayRef> {
        let column = |value: Option<f64>| -> ArrayRef { Arc::new(Float64Array::from(vec![value])) };
        remainders::<Float64Type>(&column(left), &column(right))
    }

    #[test]
    fn nothing_is_divided_by_zero() {
        assert!(of(Some(1.0), Some(0.0)).is_err() && of(Some(1.0), Some(-0.0)).is_err());
        for (left, right) in [(None, Some(0.0)), (Some(1.0), None)] {
            assert!(of(left, right).expect("there is a NULL").is_null(0));
        }
        let found = of(Some(-7.5), Some(2.0)).expect("it is none");
        assert_eq!(found.as_primitive::<Float64Type>().value(0), -1.5);
    }
}

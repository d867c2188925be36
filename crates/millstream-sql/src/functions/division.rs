//! `/` of numbers that are no decimals: a division of doubles that fails where it is by zero.
//!
//! `/` is planned as this function while the SQL is read, when the sides may not have their types
//! yet: the column of a subquery that is `CASE WHEN c THEN 1 ELSE price END` is taken for an INT
//! until its types are coerced. If one side is a decimal by then, `common_types` divides decimals.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::Float64Type;
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Expr, ScalarUDF};

use super::define::{Arguments, Function, Param, returns_double};

pub(super) const NAME: &str = "divide";

pub(super) const FUNCTION: Function =
    Function::new(NAME, &[Param::Double, Param::Double], returns_double, divide);

/// `left / right`
pub(super) fn of(left: Expr, right: Expr) -> Expr {
    let function: Arc<ScalarUDF> = FUNCTION.udf();
    Expr::ScalarFunction(ScalarFunction::new_udf(function, vec![left, right]))
}

fn divide(args: &Arguments) -> Result<ArrayRef> {
    let (left, right) = (args.primitive::<Float64Type>(0), args.primitive::<Float64Type>(1));
    args.primitives::<Float64Type>(|row| match (left.get(row), right.get(row)) {
        (Some(_), Some(0.0)) => {
            exec_err!("division by zero; use try_divide to get NULL instead")
        }
        (Some(left), Some(right)) => Ok(Some(left / right)),
        _ => Ok(None),
    })
}

//! The setting by which digits after the point do not give way to those before it, on its way to
//! the plan.

use datafusion::common::config::{ConfigExtension, ConfigOptions};
use datafusion::logical_expr::Expr;

use super::super::define::without_options;
use super::arithmetic::DecimalOperation;

/// Among the options of a session, says that its plans keep digits after the point
/// (`spark.sql.decimalOperations.allowPrecisionLoss = false`).
#[derive(Clone, Debug)]
pub struct KeepsDigits;

impl ConfigExtension for KeepsDigits {
    const PREFIX: &'static str = "millstream_keeps_digits";
}

without_options!(KeepsDigits);

/// An operation on decimals as `options` want it; any other expression as it is.
pub(in crate::functions) fn as_wanted(expr: Expr, options: &ConfigOptions) -> Expr {
    if options.extensions.get::<KeepsDigits>().is_none() {
        return expr;
    }
    let Expr::ScalarFunction(call) = &expr else { return expr };
    let Some(operation) = call.func.inner().downcast_ref::<DecimalOperation>() else {
        return expr;
    };
    operation.kept(call.args.clone()).unwrap_or(expr)
}

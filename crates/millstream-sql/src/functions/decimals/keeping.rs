//! The setting by which digits after the point do not give way to those before it, on its way to
//! the plan.

use std::any::Any;

use datafusion::common::config::{ConfigEntry, ConfigExtension, ConfigOptions, ExtensionOptions};
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::Expr;

use super::arithmetic::DecimalOperation;

/// Among the options of a session, says that its plans keep digits after the point
/// (`spark.sql.decimalOperations.allowPrecisionLoss = false`).
#[derive(Clone, Debug)]
pub struct KeepsDigits;

impl ConfigExtension for KeepsDigits {
    const PREFIX: &'static str = "millstream_keeps_digits";
}

/// It is there or not, and has no options. It is for who makes a plan: in one that is made the
/// functions say it.
impl ExtensionOptions for KeepsDigits {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, key: &str, _: &str) -> Result<()> {
        plan_err!("there is no option {key}")
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        Vec::new()
    }
}

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

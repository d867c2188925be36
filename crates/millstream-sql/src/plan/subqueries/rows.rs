//! `(a, b) IN (SELECT ...)`: the text's rewrite makes a struct of each side, and here the structs
//! are taken apart again, since each part is compared by itself.

use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::{Alias, ScalarFunction};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};

use crate::query::rows::FIRST_PART;

/// Whether `expr` is such a struct.
pub(super) fn is_row(expr: &Expr) -> bool {
    parts(expr).is_some()
}

/// The parts of such a struct.
pub(super) fn parts(expr: &Expr) -> Option<Vec<Expr>> {
    let expr = match expr {
        Expr::Alias(Alias { expr, .. }) => expr.as_ref(),
        other => other,
    };
    let Expr::ScalarFunction(ScalarFunction { func, args }) = expr else { return None };
    let first = args.first()?;
    let is_first = match first {
        Expr::Literal(ScalarValue::Utf8(Some(name)), _) => name == FIRST_PART,
        _ => false,
    };
    let is_row = is_first && func.name() == "named_struct";
    is_row.then(|| args.iter().skip(1).step_by(2).cloned().collect())
}

/// The rows of a subquery whose only column is such a struct, with a column for each part; as they
/// are if it has another column.
pub(super) fn of_subquery(plan: &LogicalPlan) -> datafusion::common::Result<LogicalPlan> {
    if let LogicalPlan::Projection(projection) = plan
        && let [only] = projection.expr.as_slice()
        && let Some(parts) = parts(only)
    {
        let input = LogicalPlan::clone(&projection.input);
        return LogicalPlanBuilder::from(input).project(parts)?.build();
    }
    Ok(plan.clone())
}

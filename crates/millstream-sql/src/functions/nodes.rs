//! How the expressions of a node of a plan are rewritten.

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result, ScalarValue, plan_err};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Union};

use super::lambda_variables;

/// A number in the text, with the type that it has in Spark.
pub(super) fn literal(expr: Expr) -> Result<Expr> {
    let Expr::Literal(value, metadata) = expr else { return Ok(expr) };
    let value = match value {
        ScalarValue::Int64(Some(value)) => match i32::try_from(value) {
            Ok(small) => ScalarValue::Int32(Some(small)),
            Err(_) => ScalarValue::Int64(Some(value)),
        },
        ScalarValue::UInt64(Some(value)) => {
            let digits = value.to_string().len();
            ScalarValue::Decimal128(Some(value.into()), u8::try_from(digits).unwrap_or(20), 0)
        }
        ScalarValue::Decimal256(..) => {
            return plan_err!("a number in the text has more than the 38 digits of a DECIMAL");
        }
        other => other,
    };
    Ok(Expr::Literal(value, metadata))
}

/// A NULL without the type that it was given when the numbers beside it had other ones.
fn plain_null(cell: Expr) -> Expr {
    match cell {
        Expr::Literal(value, None) if value.is_null() => Expr::Literal(ScalarValue::Null, None),
        cell => cell,
    }
}

/// Rewrites all expressions of one node from the inside out; its columns keep their names.
pub(crate) fn rewrite(
    plan: LogicalPlan,
    change: impl Fn(Expr, &DFSchema) -> Result<Transformed<Expr>>,
) -> Result<Transformed<LogicalPlan>> {
    let mut schema = merge_schema(&plan.inputs());
    if let LogicalPlan::TableScan(scan) = &plan {
        schema.merge(&scan.projected_schema);
    }
    let names = NamePreserver::new(&plan);
    let is_values = matches!(plan, LogicalPlan::Values(_));
    let plan = plan.map_expressions(|expr| {
        let named = |expr: Expr| {
            let name = names.save(&expr);
            let expr = lambda_variables::transform_up(expr, &schema, &change)?;
            Ok(expr.update_data(|expr| if is_values { expr } else { name.restore(expr) }))
        };
        match expr {
            // A grouping set is no column itself; its members are.
            Expr::GroupingSet(_) => expr.map_children(named),
            expr => named(expr),
        }
    })?;
    // A node's types follow from its inputs, and those may have changed even if it did not.
    let changes = plan.transformed;
    plan.map_data(|plan| match plan {
        // The column types follow from the expressions, and only the builder derives them.
        LogicalPlan::Values(values) if changes => {
            let rows = values.values.into_iter();
            let rows = rows.map(|row| row.into_iter().map(plain_null).collect());
            LogicalPlanBuilder::values(rows.collect())?.build()
        }
        LogicalPlan::Union(union) => {
            Ok(LogicalPlan::Union(Union::try_new_with_loose_types(union.inputs)?))
        }
        plan => plan.recompute_schema(),
    })
}

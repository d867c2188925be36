//! What `grouping` and `grouping_id` are asked about, in the form that the keys have by now.
//!
//! DataFusion looks an argument up among the keys. A key whose numbers have become INTs is called
//! as before by an alias, which the argument has not.

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode as _};
use datafusion::logical_expr::utils::grouping_set_to_exprlist;
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan};

/// The aggregation, whose calls of `grouping` have the keys themselves as arguments.
pub(super) fn as_keys(node: Aggregate) -> Result<LogicalPlan> {
    let Aggregate { input, group_expr, aggr_expr, schema, .. } = node;
    let keys: Vec<Expr> = grouping_set_to_exprlist(&group_expr)?.into_iter().cloned().collect();
    let key = |arg: Expr| {
        let is_meant = |key: &&Expr| matches!(key, Expr::Alias(alias) if *alias.expr == arg);
        keys.iter().find(is_meant).cloned().unwrap_or(arg)
    };
    let asked = |expr: Expr| match expr {
        Expr::AggregateFunction(mut call) if call.func.name() == "grouping" => {
            call.params.args = call.params.args.into_iter().map(key).collect();
            Ok(Transformed::yes(Expr::AggregateFunction(call)))
        }
        other => Ok(Transformed::no(other)),
    };
    let aggr_expr = aggr_expr.into_iter().map(|expr| Ok(expr.transform_up(asked)?.data));
    let aggr_expr = aggr_expr.collect::<Result<Vec<_>>>()?;
    Aggregate::try_new_with_schema(input, group_expr, aggr_expr, schema).map(LogicalPlan::Aggregate)
}

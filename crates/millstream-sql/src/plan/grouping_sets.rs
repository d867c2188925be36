//! Grouping sets over no rows: Spark has no result then, and DataFusion a row for each empty set.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::{
    Aggregate, Expr, GroupingSet, LogicalPlan, LogicalPlanBuilder, col, lit,
};

/// The name of the number of rows of a group.
const ROWS: &str = "__rows_of_group";

/// Leaves groups without rows out, but for those over a stream.
pub(super) fn without_empty(
    plan: LogicalPlan,
    is_stream: fn(&LogicalPlan) -> bool,
) -> Result<LogicalPlan> {
    let changed = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Aggregate(aggregate)
            if has_empty_set(&aggregate) && !is_stream(&aggregate.input) =>
        {
            counted(aggregate).map(Transformed::yes)
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(changed.data)
}

fn has_empty_set(aggregate: &Aggregate) -> bool {
    aggregate.group_expr.iter().any(|group| match group {
        // The empty set alone is an aggregate without GROUP BY.
        Expr::GroupingSet(GroupingSet::GroupingSets(sets)) => {
            sets.len() > 1 && sets.iter().any(Vec::is_empty)
        }
        Expr::GroupingSet(_) => true,
        _ => false,
    })
}

fn counted(aggregate: Aggregate) -> Result<LogicalPlan> {
    let columns: Vec<Expr> = aggregate.schema.columns().into_iter().map(Expr::Column).collect();
    let counts = aggregate.aggr_expr.into_iter().chain([count(lit(1)).alias(ROWS)]).collect();
    let counted = Aggregate::try_new(aggregate.input, aggregate.group_expr, counts)?;
    let counted = LogicalPlan::Aggregate(counted);
    LogicalPlanBuilder::from(Arc::new(counted))
        .filter(col(ROWS).gt(lit(0_i64)))?
        .project(columns)?
        .build()
}

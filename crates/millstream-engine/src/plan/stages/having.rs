//! Conditions of HAVING that look at keys alone, once more below the aggregation.
//!
//! Spark moves them there (`PushPredicateThroughNonJoin`): rows of groups that are left out keep no
//! state. Spark moves them below the watermark too, which then follows other rows; here they stay
//! above it. They also stay above the aggregation, since the state of a checkpoint may have such
//! groups.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{Aggregate, Expr, Filter, LogicalPlan, LogicalPlanBuilder};

use super::reads_stream;

/// `plan`, whose aggregations over streams leave the rows of groups out that HAVING leaves out for
/// their keys.
pub(super) fn keys_below(plan: LogicalPlan, stream_prefix: &str) -> Result<LogicalPlan> {
    let lowered = plan.transform_up(|node| {
        let LogicalPlan::Filter(Filter { predicate, input, .. }) = &node else {
            return Ok(Transformed::no(node));
        };
        let LogicalPlan::Aggregate(aggregate) = input.as_ref() else {
            return Ok(Transformed::no(node));
        };
        let parts = split_conjunction(predicate);
        let below = parts.into_iter().filter_map(|part| over_input(part, aggregate));
        let Some(below) = conjunction(below) else { return Ok(Transformed::no(node)) };
        if !reads_stream(&aggregate.input, stream_prefix) {
            return Ok(Transformed::no(node));
        }
        let Aggregate { input, group_expr, aggr_expr, schema, .. } = aggregate.clone();
        let input = LogicalPlanBuilder::from(input).filter(below)?.build()?;
        let input = Arc::new(input);
        let aggregate = Aggregate::try_new_with_schema(input, group_expr, aggr_expr, schema)?;
        let input = Arc::new(LogicalPlan::Aggregate(aggregate));
        Ok(Transformed::yes(LogicalPlan::Filter(Filter::try_new(predicate.clone(), input)?)))
    });
    Ok(lowered?.data)
}

/// A condition on groups as one on the rows of the aggregation's input; `None` where it is about
/// more than plain keys, or has not the same value each time.
fn over_input(part: &Expr, aggregate: &Aggregate) -> Option<Expr> {
    let is_subquery = |expr: &Expr| {
        Ok(matches!(expr, Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_)))
    };
    let keys = &aggregate.group_expr;
    if keys.iter().any(|key| matches!(key, Expr::GroupingSet(_)) || key.is_volatile())
        || part.is_volatile()
        || part.column_refs().is_empty()
        || part.exists(is_subquery).unwrap_or(true)
    {
        return None;
    }
    let mut is_of_keys = true;
    let over_input = part.clone().transform(|expr| {
        let Expr::Column(column) = &expr else { return Ok(Transformed::no(expr)) };
        let key = aggregate.schema.maybe_index_of_column(column).and_then(|at| keys.get(at));
        is_of_keys &= key.is_some();
        Ok(key.map_or(Transformed::no(expr.clone()), |key| Transformed::yes(key.clone().unalias())))
    });
    over_input.ok().filter(|_| is_of_keys).map(|over_input| over_input.data)
}

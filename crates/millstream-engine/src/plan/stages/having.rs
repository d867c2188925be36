//! Conditions of HAVING that look at keys alone, once more below the aggregation.
//!
//! Spark moves them there (`PushPredicateThroughNonJoin`): rows of groups that are left out keep no
//! state. Spark moves them below the watermark too, which then follows other rows; here they stay
//! above it. They also stay above the aggregation, since the state of a checkpoint may have such
//! groups. Conditions on a session stay there alone: Spark holds them against the session that each
//! row begins with, here they are about the merged one.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{Aggregate, Expr, Filter, LogicalPlan, LogicalPlanBuilder};
use millstream_sql::plan::windows::{WindowCall, WindowKind};

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
        let key = key.filter(|key| !is_session(&aggregate.input, key));
        is_of_keys &= key.is_some();
        Ok(key.map_or(Transformed::no(expr.clone()), |key| Transformed::yes(key.clone().unalias())))
    });
    over_input.ok().filter(|_| is_of_keys).map(|over_input| over_input.data)
}

/// Whether `key` of the rows of `input` is a session. A row has one of its own, and the condition
/// is about that which its group makes of several.
fn is_session(input: &LogicalPlan, key: &Expr) -> bool {
    match key {
        Expr::Alias(alias) => is_session(input, &alias.expr),
        Expr::Column(column) => {
            let at = input.schema().maybe_index_of_column(column);
            at.is_some_and(|at| is_session_column(input, at))
        }
        other => WindowCall::read(other).is_some_and(|call| call.kind == WindowKind::Session),
    }
}

/// Whether the column at this place is one.
fn is_session_column(plan: &LogicalPlan, at: usize) -> bool {
    match plan {
        LogicalPlan::Projection(node) => {
            node.expr.get(at).is_some_and(|expr| is_session(&node.input, expr))
        }
        LogicalPlan::Filter(node) => is_session_column(&node.input, at),
        LogicalPlan::SubqueryAlias(node) => is_session_column(&node.input, at),
        LogicalPlan::Union(node) => node.inputs.iter().any(|input| is_session_column(input, at)),
        LogicalPlan::Join(node) => match at.checked_sub(node.left.schema().fields().len()) {
            None => is_session_column(&node.left, at),
            Some(at) => is_session_column(&node.right, at),
        },
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
    use datafusion::logical_expr::{col, lit, table_scan};

    use super::*;

    #[test]
    fn a_session_is_known_through_subqueries_and_filters() {
        let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        let schema = Schema::new(vec![Field::new("ts", time, true)]);
        let (time, gap) = (col("ts"), lit(4_000_000_i64));
        let (size_us, slide_us, start_us, kind) = (0, 0, 0, WindowKind::Session);
        let session = WindowCall { kind, time, size_us, slide_us, start_us, gap };
        let session = session.definition().alias("w");
        let rows = table_scan(Some("t"), &schema, None).unwrap();
        let rows = rows.project(vec![col("ts"), session]).unwrap();
        let rows = rows.alias("x").unwrap().filter(col("w").is_not_null()).unwrap();
        let rows = rows.build().unwrap();
        assert!(is_session(&rows, &col("x.w").alias("k")));
        assert!(!is_session(&rows, &col("x.ts")));
    }
}

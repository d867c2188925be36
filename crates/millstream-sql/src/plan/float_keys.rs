//! FLOATs and DOUBLEs as keys of groups: all NaNs are equal, and both zeros, also within arrays and
//! structs.
//!
//! DataFusion takes NaNs of different bits for different keys. So an aggregation reads such keys
//! from a projection in which they have one form ([`one_zero`]). Those over streams get it where
//! the plan is cut, since checkpoints know keys by their words.

use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::utils::grouping_set_to_exprlist;
use datafusion::logical_expr::{Aggregate, Expr, ExprSchemable as _, LogicalPlan};

use super::map_keys::by_form;
use crate::functions::one_zero::{holds_float, one_zero};

/// `plan`, whose aggregations have one NaN and one zero in their keys, but for those over a stream.
/// Types have been checked.
pub(super) fn with_one_nan(
    plan: LogicalPlan,
    is_stream: fn(&LogicalPlan) -> bool,
) -> Result<LogicalPlan> {
    let changed = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Aggregate(aggregate) if !is_stream(&aggregate.input) => {
            let floats = floats_of(&aggregate)?;
            if floats.is_empty() {
                return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
            }
            by_form(aggregate, floats, &one_zero(), "__float").map(Transformed::yes)
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(changed.data)
}

/// The keys that are or have FLOATs or DOUBLEs.
fn floats_of(aggregate: &Aggregate) -> Result<Vec<Expr>> {
    let mut found: Vec<Expr> = Vec::new();
    for key in grouping_set_to_exprlist(&aggregate.group_expr)? {
        let of = key.get_type(aggregate.input.schema())?;
        if holds_float(&of) && !found.contains(key) {
            found.push(key.clone());
        }
    }
    Ok(found)
}

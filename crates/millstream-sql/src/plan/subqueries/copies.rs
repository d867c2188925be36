//! What may stand in a plan twice.
//!
//! Rows around a subquery are read once for themselves and once for its domain, and what IN
//! compares with is read for what is equal and for what is NULL. So a chain of such subqueries, or
//! one within the other, has a plan that is twice as large with each. What all of them copy is
//! counted, and refused beyond a size that people's queries do not come near. Both readings must
//! give the same rows, so there can be no random numbers among them.

use std::cell::Cell;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::{Expr, LogicalPlan};

use crate::functions::random::is_random;

/// How many nodes all copies may have together. A LATERAL subquery that aggregates triples them and
/// the time of planning: five are planned, in a few seconds by a debug build, and six are not.
const NODES_MAX: usize = 6_500;
/// As many expressions count as much as a node.
const EXPRESSIONS_OF_NODE: usize = 16;

/// The nodes that were copied for a query.
#[derive(Default)]
pub(super) struct Copies(Cell<usize>);

impl Copies {
    /// A copy of `plan`.
    pub(super) fn copy(&self, plan: &LogicalPlan) -> Result<LogicalPlan> {
        let mut all = self.0.get();
        let mut random = false;
        plan.apply_with_subqueries(|node| {
            let mut exprs = 0;
            node.apply_expressions(|expr| {
                exprs += 1;
                random |= is_random(expr)?;
                Ok(TreeNodeRecursion::Continue)
            })?;
            all += 1 + exprs / EXPRESSIONS_OF_NODE;
            let is_refused = random || all > NODES_MAX;
            Ok(if is_refused { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })?;
        self.0.set(all);
        if random {
            return refuse_random();
        }
        if all > NODES_MAX {
            return plan_err!(
                "the subqueries of this query are too many within or after each other to be \
                 planned; write them as joins, or divide the query into several, with a table \
                 between them"
            );
        }
        Ok(plan.clone())
    }
}

/// Refuses values that would be computed several times for a row.
pub(super) fn check_steady(exprs: &[Expr]) -> Result<()> {
    for expr in exprs {
        if is_random(expr)? {
            return refuse_random();
        }
    }
    Ok(())
}

/// Whether `plan` may have other rows when it is computed again.
pub(super) fn has_random(plan: &LogicalPlan) -> Result<bool> {
    let mut random = false;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            random |= is_random(expr)?;
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(random)
}

fn refuse_random<T>() -> Result<T> {
    plan_err!(
        "rows with random values cannot stand around a subquery like this or be compared by its \
         IN, since they are read twice; write them to a table first"
    )
}

//! Conditions that stay above an aggregation or a window.
//!
//! DataFusion moves a condition below an aggregation if all its columns are keys of the groups. One
//! without columns moves, too: below an aggregation of all rows, which has a row of none, so that
//! `SELECT count(*) FROM t HAVING (SELECT max(b) FROM u) > 100` would always have an answer. A
//! random condition is about groups, or about rows that a window has numbered, and below it would
//! be about other rows. Spark moves neither.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::expr::GroupingSet;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{Aggregate, Expr, Filter, LogicalPlan};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

use crate::functions::random::is_random;

/// The name of DataFusion's rule.
pub(super) const RULE: &str = "push_down_filter";

/// DataFusion's rule, for all conditions but those.
#[derive(Debug)]
pub(super) struct Held(pub(super) Arc<dyn OptimizerRule + Send + Sync>);

impl OptimizerRule for Held {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let Some((held, moved, input)) = divided(&plan)? else {
            return self.0.rewrite(plan, config);
        };
        let below = match conjunction(moved) {
            Some(moved) => self.0.rewrite(filter(moved, Arc::clone(&input)), config)?,
            None => Transformed::no(LogicalPlan::clone(&input)),
        };
        let is_one = matches!(&plan, LogicalPlan::Filter(one) if Arc::ptr_eq(&one.input, &input));
        let changed = below.transformed || !is_one;
        let plan = match conjunction(held) {
            Some(held) => filter(held, Arc::new(below.data)),
            None => below.data,
        };
        Ok(if changed { Transformed::yes(plan) } else { Transformed::no(plan) })
    }
}

fn filter(condition: Expr, input: Arc<LogicalPlan>) -> LogicalPlan {
    LogicalPlan::Filter(Filter::new(condition, input))
}

/// Conditions that stay and that may move, those closer to the rows first, and what they are about;
/// `None` where all may move.
type Divided = Option<(Vec<Expr>, Vec<Expr>, Arc<LogicalPlan>)>;

fn divided(plan: &LogicalPlan) -> Result<Divided> {
    let LogicalPlan::Filter(outermost) = plan else { return Ok(None) };
    let mut filters = vec![outermost];
    // DataFusion makes one of several before it moves them.
    while let LogicalPlan::Filter(inner) = filters[filters.len() - 1].input.as_ref() {
        filters.push(inner);
    }
    let input = &filters[filters.len() - 1].input;
    let has_row_of_none = match input.as_ref() {
        LogicalPlan::Aggregate(aggregate) => has_row_of_none(aggregate),
        LogicalPlan::Window(_) => false,
        _ => return Ok(None),
    };
    let (mut held, mut moved) = (Vec::new(), Vec::new());
    for filter in filters.iter().rev() {
        for condition in split_conjunction_owned(filter.predicate.clone()) {
            let stays = has_row_of_none && condition.column_refs().is_empty();
            if stays || is_random(&condition)? {
                held.push(condition);
            } else {
                moved.push(condition);
            }
        }
    }
    Ok(if held.is_empty() { None } else { Some((held, moved, Arc::clone(input))) })
}

/// Whether the aggregation has a row where its input has none.
fn has_row_of_none(aggregate: &Aggregate) -> bool {
    aggregate.group_expr.is_empty()
        || aggregate.group_expr.iter().any(|group| match group {
            Expr::GroupingSet(GroupingSet::GroupingSets(sets)) => sets.iter().any(Vec::is_empty),
            Expr::GroupingSet(_) => true,
            _ => false,
        })
}

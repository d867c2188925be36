//! Sums of sums, beside an aggregate of DISTINCT values.
//!
//! DataFusion computes `count(DISTINCT a), sum(b)` in two steps: by the groups and `a`, and then by
//! the groups alone. So `sum` is over sums, and a sum of DECIMALs has ten digits more than its
//! values each time. Here the second sum becomes of the type that the first one had.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::Alias;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, Projection, cast};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// The name of DataFusion's rule.
pub(super) const RULE: &str = "single_distinct_aggregation_to_group_by";

/// DataFusion's rule, with the types that the columns had before it.
#[derive(Debug)]
pub(super) struct OfSameTypes(pub(super) Arc<dyn OptimizerRule + Send + Sync>);

impl OptimizerRule for OfSameTypes {
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
        let before = Arc::clone(plan.schema());
        let rewritten = self.0.rewrite(plan, config)?;
        if !rewritten.transformed {
            return Ok(rewritten);
        }
        rewritten.map_data(|plan| match plan {
            LogicalPlan::Projection(Projection { expr, input, .. }) => {
                let exprs = expr.into_iter().enumerate();
                let exprs = exprs.map(|(at, expr)| as_before(expr, &before, at, input.schema()));
                let exprs = exprs.collect::<Result<Vec<_>>>()?;
                Ok(LogicalPlan::Projection(Projection::try_new(exprs, input)?))
            }
            plan => Ok(plan),
        })
    }
}

/// An item with the type that the column in its place had.
fn as_before(expr: Expr, before: &DFSchema, at: usize, input: &DFSchema) -> Result<Expr> {
    let Some(wanted) = before.fields().get(at).map(|field| field.data_type()) else {
        return Ok(expr);
    };
    if !wanted.is_decimal() || expr.get_type(input)? == *wanted {
        return Ok(expr);
    }
    match expr {
        Expr::Alias(Alias { expr, relation, name, .. }) => {
            Ok(cast(*expr, wanted.clone()).alias_qualified(relation, name))
        }
        other => Ok(other),
    }
}

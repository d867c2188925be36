//! Subqueries that are values and may have no row, which makes the value NULL.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Subquery};

use super::references::{has_subquery, is_correlated};
use crate::functions::if_any::if_any;

/// `plan`, whose subqueries without columns of the query around them say that their values may be
/// NULL, if they may have no row. The others become outer joins, whose columns say so.
pub(super) fn nullable(plan: LogicalPlan) -> Result<LogicalPlan> {
    let changed = plan.transform_up_with_subqueries(|node| {
        let names = NamePreserver::new(&node);
        node.map_expressions(|expr| {
            if !has_subquery(&expr) {
                return Ok(Transformed::no(expr));
            }
            let name = names.save(&expr);
            let changed = expr.transform_up(|expr| match expr {
                Expr::ScalarSubquery(subquery) => value(subquery),
                other => Ok(Transformed::no(other)),
            })?;
            Ok(changed.update_data(|expr| name.restore(expr)))
        })
    })?;
    Ok(changed.data)
}

fn value(subquery: Subquery) -> Result<Transformed<Expr>> {
    let plan = &subquery.subquery;
    let is_said = plan.schema().fields().iter().all(|field| field.is_nullable());
    if is_said || plan.schema().fields().len() != 1 || has_row(plan) || is_correlated(plan)? {
        return Ok(Transformed::no(Expr::ScalarSubquery(subquery)));
    }
    let (qualifier, field) = plan.schema().qualified_field(0);
    let column = Expr::Column((qualifier, field).into());
    let value = if_any().call(vec![column]).alias(field.name());
    let plan = LogicalPlanBuilder::from(Arc::clone(plan)).project([value])?.build()?;
    Ok(Transformed::yes(Expr::ScalarSubquery(Subquery { subquery: Arc::new(plan), ..subquery })))
}

/// Whether there is a row, whatever the tables have.
fn has_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(_) | LogicalPlan::SubqueryAlias(_) | LogicalPlan::Sort(_) => {
            has_row(plan.inputs()[0])
        }
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        LogicalPlan::EmptyRelation(empty) => empty.produce_one_row,
        LogicalPlan::Values(values) => !values.values.is_empty(),
        _ => false,
    }
}

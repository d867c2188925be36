//! `FROM t, LATERAL (SELECT ...)`: a subquery of FROM that refers to what stands before it.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::{
    Expr, Join, JoinType, LogicalPlan, LogicalPlanBuilder, SubqueryAlias,
};

use super::Walk;
use super::copies::has_random;
use super::domain::{Domain, is_same};
use super::references::outer_columns;

/// A join whose right side is such a subquery, and that side without what makes a subquery of it.
pub(in crate::plan) fn of_join(node: &LogicalPlan) -> Result<Option<(&Join, LogicalPlan)>> {
    let LogicalPlan::Join(join) = node else { return Ok(None) };
    let subquery = match join.right.as_ref() {
        LogicalPlan::Subquery(subquery) => LogicalPlan::clone(&subquery.subquery),
        LogicalPlan::SubqueryAlias(alias) => {
            let LogicalPlan::Subquery(subquery) = alias.input.as_ref() else { return Ok(None) };
            let plan = Arc::clone(&subquery.subquery);
            LogicalPlan::SubqueryAlias(SubqueryAlias::try_new(plan, alias.alias.clone())?)
        }
        _ => return Ok(None),
    };
    Ok(Some((join, subquery)))
}

impl Walk {
    /// Joins in the place of all such subqueries. Those within others come first, so that what
    /// they refer to there is not taken for columns outside of the others.
    pub(super) fn laterals(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let changed = plan.transform_up_with_subqueries(|node| {
            let Some((join, subquery)) = of_join(&node)? else {
                return Ok(Transformed::no(node));
            };
            self.lateral(join, subquery).map(Transformed::yes)
        })?;
        if changed.transformed
            && let Some(unknown) = outer_columns(&changed.data)?.first()
        {
            return plan_err!("a LATERAL subquery cannot refer to `{}` here", unknown.name);
        }
        Ok(changed.data)
    }

    /// A join with the rows of `subquery` for all rows of its left side.
    fn lateral(&self, join: &Join, subquery: LogicalPlan) -> Result<LogicalPlan> {
        if (self.is_stream)(&join.left) || (self.is_stream)(&subquery) {
            return plan_err!("LATERAL over a stream is not supported");
        }
        if !matches!(join.join_type, JoinType::Inner | JoinType::Left) {
            return plan_err!("LATERAL is for an inner JOIN or a LEFT JOIN");
        }
        // Rows with the same values outside have the same rows of the subquery here. Spark refuses
        // random ones, too, unless the left side is a single row.
        if has_random(&subquery)? {
            return plan_err!(
                "a LATERAL subquery cannot have random values; take them from a table"
            );
        }
        // What is no column of the left side is one of a query around this one.
        let mut outer = outer_columns(&subquery)?;
        outer.retain(|one| join.left.schema().has_column(one));
        let domain = Domain::new(&join.left, &outer, self)?;
        let right = if outer.is_empty() { subquery } else { domain.rows(&subquery)? };
        let keys = domain.columns().iter().cloned().map(Expr::Column);
        let same = outer.into_iter().map(Expr::Column).zip(keys);
        let same = same.map(|(left, right)| is_same(left, right));
        let filter = join.filter.iter().cloned().chain(same).reduce(Expr::and);
        let joined = Join::try_new(
            Arc::clone(&join.left),
            Arc::new(right),
            join.on.clone(),
            filter,
            join.join_type,
            join.join_constraint,
            join.null_equality,
            false,
        )?;
        let columns: Vec<Expr> = join.schema.columns().into_iter().map(Expr::Column).collect();
        LogicalPlanBuilder::from(LogicalPlan::Join(joined)).project(columns)?.build()
    }
}

//! `FROM t, LATERAL (SELECT ...)`: a subquery of FROM that refers to what stands before it.

use std::sync::Arc;

use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::{
    Expr, Join, JoinType, LogicalPlan, LogicalPlanBuilder, SubqueryAlias,
};

use super::Walk;
use super::domain::{Domain, is_same};
use super::references::outer_columns;

/// The right side of a join without what makes a subquery of it, if it is one.
pub(super) fn of_join(node: &LogicalPlan) -> Option<LogicalPlan> {
    let LogicalPlan::Join(join) = node else { return None };
    match join.right.as_ref() {
        LogicalPlan::Subquery(subquery) => Some(LogicalPlan::clone(&subquery.subquery)),
        LogicalPlan::SubqueryAlias(alias) => match alias.input.as_ref() {
            LogicalPlan::Subquery(subquery) => {
                let plan = Arc::clone(&subquery.subquery);
                let alias = SubqueryAlias::try_new(plan, alias.alias.clone());
                alias.ok().map(LogicalPlan::SubqueryAlias)
            }
            _ => None,
        },
        _ => None,
    }
}

impl Walk {
    /// A join with the rows of `subquery` for all rows of its left side.
    pub(super) fn lateral(&self, node: &LogicalPlan, subquery: LogicalPlan) -> Result<LogicalPlan> {
        let LogicalPlan::Join(join) = node else { return Ok(node.clone()) };
        if (self.is_stream)(node) {
            return plan_err!("LATERAL over a stream is not supported");
        }
        if !matches!(join.join_type, JoinType::Inner | JoinType::Left) {
            return plan_err!("LATERAL is for an inner JOIN or a LEFT JOIN");
        }
        let outer = outer_columns(&subquery)?;
        if let Some(unknown) = outer.iter().find(|one| !join.left.schema().has_column(one)) {
            return plan_err!("a LATERAL subquery cannot refer to `{}` here", unknown.name);
        }
        let domain = Domain::new(&join.left, &outer, self)?;
        let right = Arc::new(domain.rows(&subquery)?);
        let keys = domain.columns().iter().cloned().map(Expr::Column);
        let same = outer.into_iter().map(Expr::Column).zip(keys);
        let same = same.map(|(left, right)| is_same(left, right));
        let filter = join.filter.iter().cloned().chain(same).reduce(Expr::and);
        let joined = Join::try_new(
            Arc::clone(&join.left),
            right,
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

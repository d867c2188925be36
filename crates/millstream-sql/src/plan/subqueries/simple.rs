//! Subqueries that DataFusion makes joins of itself, with Spark's answers: these it does without
//! reading the query around them twice.

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::{Alias, BinaryExpr, Cast, Exists, InSubquery, TryCast};
use datafusion::logical_expr::utils::{merge_schema, split_conjunction};
use datafusion::logical_expr::{
    Aggregate, Distinct, Expr, ExprSchemable, Filter, JoinType, LogicalPlan, Operator, Projection,
    Subquery,
};

use super::references::{
    has_subquery, is_correlated, outer_columns_of_expr, plan_has_subquery, subquery_of,
};
use super::rows::is_row;

/// Whether a condition of WHERE, one of those that AND joins, can stay as it is.
pub(super) fn is_simple_condition(condition: &Expr) -> Result<bool> {
    match condition {
        Expr::Exists(Exists { subquery, .. }) => is_filtered(subquery, |_, _| true),
        Expr::InSubquery(InSubquery { expr, .. }) if is_row(expr) || has_subquery(expr) => {
            Ok(false)
        }
        Expr::InSubquery(InSubquery { subquery, negated, .. }) => {
            Ok(!is_correlated(&subquery.subquery)?
                || (!negated
                    && is_filtered(subquery, |_, _| true)?
                    && !compares_selected(&subquery.subquery)?))
        }
        other => has_simple_values(other),
    }
}

/// Whether a condition that refers to the query around the subquery is about what is selected, too,
/// and is not just that two values are equal. DataFusion would have two columns of one name, once
/// the value that is compared gets another type.
fn compares_selected(plan: &LogicalPlan) -> Result<bool> {
    let LogicalPlan::Projection(projection) = plan else { return Ok(false) };
    let selected: Vec<_> = projection.expr.iter().flat_map(Expr::column_refs).collect();
    plan.exists(|node| {
        let LogicalPlan::Filter(filter) = node else { return Ok(false) };
        Ok(split_conjunction(&filter.predicate).into_iter().any(|condition| {
            condition.contains_outer()
                && equal_sides(condition).is_none()
                && condition.column_refs().into_iter().any(|column| selected.contains(&column))
        }))
    })
}

/// Whether all subqueries in an expression of WHERE or SELECT can stay as they are.
pub(super) fn has_simple_values(expr: &Expr) -> Result<bool> {
    let mut all = true;
    expr.apply(|expr| {
        if let Some(subquery) = subquery_of(expr) {
            all &= matches!(expr, Expr::ScalarSubquery(_)) && is_simple_value(subquery)?;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(all)
}

/// Whether the value is an aggregate's, over rows that equal columns of the query around it.
fn is_simple_value(subquery: &Subquery) -> Result<bool> {
    let mut plan = subquery.subquery.as_ref();
    if !is_correlated(plan)? {
        return Ok(true);
    }
    let is_column = |expr: &Expr| match expr {
        Expr::Alias(Alias { expr, .. }) => matches!(expr.as_ref(), Expr::Column(_)),
        expr => matches!(expr, Expr::Column(_)),
    };
    loop {
        plan = match plan {
            LogicalPlan::Projection(Projection { expr, input, .. })
                if expr.iter().all(is_column) =>
            {
                input
            }
            LogicalPlan::SubqueryAlias(alias) => &alias.input,
            LogicalPlan::Aggregate(Aggregate { input, group_expr, aggr_expr, .. })
                if group_expr.is_empty() && !plan_has_subquery(plan) =>
            {
                let is_own =
                    |expr: &Expr| Ok(outer_columns_of_expr(expr, input.schema())?.is_empty());
                let own = aggr_expr.iter().map(is_own).collect::<Result<Vec<_>>>()?;
                return Ok(own.iter().all(|own| *own) && is_filtered_plan(input, is_equality)?);
            }
            _ => return Ok(false),
        };
    }
}

/// Whether a column of `here` is compared with one outside. DataFusion groups by the column, so
/// its values must be different if and only if they are equal to different values outside: they
/// have the same type, and it has no second zero.
fn is_equality(condition: &Expr, here: &DFSchema) -> bool {
    let Some((left, right)) = equal_sides(condition) else { return false };
    match (left, right) {
        (own @ Expr::Column(_), Expr::OuterReferenceColumn(outer, _))
        | (Expr::OuterReferenceColumn(outer, _), own @ Expr::Column(_)) => own
            .get_type(here)
            .is_ok_and(|found| found == *outer.data_type() && !found.is_floating()),
        _ => false,
    }
}

fn equal_sides(condition: &Expr) -> Option<(&Expr, &Expr)> {
    match condition {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => {
            Some((left.as_ref(), right.as_ref()))
        }
        _ => None,
    }
}

/// Whether a condition compares a CAST of a column with what is outside of `plan`. DataFusion
/// groups by the column, several values of which may become the same.
pub(super) fn has_equal_cast(plan: &LogicalPlan) -> Result<bool> {
    let is_cast = |side: &Expr| match side {
        Expr::Cast(Cast { expr, .. }) | Expr::TryCast(TryCast { expr, .. }) => {
            !expr.column_refs().is_empty()
        }
        _ => false,
    };
    plan.exists(|node| {
        let LogicalPlan::Filter(filter) = node else { return Ok(false) };
        Ok(split_conjunction(&filter.predicate).into_iter().any(|condition| {
            condition.contains_outer()
                && equal_sides(condition)
                    .is_some_and(|(left, right)| is_cast(left) || is_cast(right))
        }))
    })
}

/// Which conditions over columns of a schema may refer to the query around the subquery.
type MayBe = fn(&Expr, &DFSchema) -> bool;

/// Whether only conditions of WHERE refer to the query around the subquery. DataFusion finds none
/// of them below an ORDER BY of what is not selected.
fn is_filtered(subquery: &Subquery, may_be: MayBe) -> Result<bool> {
    let plan = subquery.subquery.as_ref();
    if !is_correlated(plan)? {
        return Ok(true);
    }
    Ok(!plan_has_subquery(plan) && is_filtered_plan(plan, may_be)?)
}

fn is_filtered_plan(plan: &LogicalPlan, may_be: MayBe) -> Result<bool> {
    let own = || -> Result<bool> {
        let here = merge_schema(&plan.inputs());
        let mut own = true;
        plan.apply_expressions(|expr| {
            own &= outer_columns_of_expr(expr, &here)?.is_empty();
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(own)
    };
    match plan {
        LogicalPlan::Filter(Filter { predicate, input, .. }) => {
            for condition in split_conjunction(predicate) {
                let is_own = outer_columns_of_expr(condition, input.schema())?.is_empty();
                if !is_own && !may_be(condition, input.schema()) {
                    return Ok(false);
                }
            }
            is_filtered_plan(input, may_be)
        }
        LogicalPlan::Projection(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Distinct(Distinct::All(_)) => {
            Ok(own()? && is_filtered_plan(plan.inputs()[0], may_be)?)
        }
        LogicalPlan::Join(join) if join.join_type == JoinType::Inner => Ok(own()?
            && is_filtered_plan(&join.left, may_be)?
            && is_filtered_plan(&join.right, may_be)?),
        other => Ok(!is_correlated(other)?),
    }
}

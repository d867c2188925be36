//! Which columns of the query around it a subquery refers to, and what stands in their place.
//!
//! A subquery within a subquery may refer to either's columns. So what a reference means depends
//! on the queries between: the innermost that has the column is meant.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result};
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, LogicalPlan, Subquery};

/// The subquery that `expr` itself is or has, not within its arguments.
pub(in crate::plan) fn subquery_of(expr: &Expr) -> Option<&Subquery> {
    match expr {
        Expr::Exists(Exists { subquery, .. })
        | Expr::InSubquery(InSubquery { subquery, .. })
        | Expr::SetComparison(SetComparison { subquery, .. })
        | Expr::ScalarSubquery(subquery) => Some(subquery),
        _ => None,
    }
}

/// Whether there is a subquery anywhere in `expr`.
pub(super) fn has_subquery(expr: &Expr) -> bool {
    expr.exists(|expr| Ok(subquery_of(expr).is_some())).unwrap_or(true)
}

/// Whether there is a subquery in an expression of `plan`, or of a plan below it.
pub(super) fn plan_has_subquery(plan: &LogicalPlan) -> bool {
    plan.exists(node_has_subquery).unwrap_or(true)
}

/// Whether there is a subquery in an expression of this node.
pub(super) fn node_has_subquery(node: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    node.apply_expressions(|expr| {
        found |= has_subquery(expr);
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

/// The columns outside of `plan` that it refers to, each once.
pub(in crate::plan) fn outer_columns(plan: &LogicalPlan) -> Result<Vec<Column>> {
    let mut found = Vec::new();
    of_plan(plan, &[], &mut found)?;
    Ok(found)
}

/// The columns outside of its plan that `expr` refers to. `here` are the columns that it sees.
pub(super) fn outer_columns_of_expr(expr: &Expr, here: &DFSchema) -> Result<Vec<Column>> {
    let mut found = Vec::new();
    of_expr(expr, here, &[], &mut found)?;
    Ok(found)
}

/// Whether `plan` refers to columns outside of it.
pub(in crate::plan) fn is_correlated(plan: &LogicalPlan) -> Result<bool> {
    Ok(!outer_columns(plan)?.is_empty())
}

fn of_plan(plan: &LogicalPlan, scopes: &[&DFSchema], found: &mut Vec<Column>) -> Result<()> {
    plan.apply(|node| {
        let here = merge_schema(&node.inputs());
        node.apply_expressions(|expr| {
            of_expr(expr, &here, scopes, found)?;
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(())
}

fn of_expr(
    expr: &Expr,
    here: &DFSchema,
    scopes: &[&DFSchema],
    found: &mut Vec<Column>,
) -> Result<()> {
    expr.apply(|expr| {
        if let Expr::OuterReferenceColumn(_, column) = expr {
            let is_between = scopes.iter().any(|scope| scope.has_column(column));
            if !is_between && !found.contains(column) {
                found.push(column.clone());
            }
        }
        if let Some(subquery) = subquery_of(expr) {
            let scopes: Vec<&DFSchema> = scopes.iter().copied().chain([here]).collect();
            of_plan(&subquery.subquery, &scopes, found)?;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// Puts `columns` in the place of what `expr` refers to outside. Subqueries within it refer to
/// these columns then. `here` are the columns that `expr` sees.
pub(super) fn bound(
    expr: Expr,
    here: &DFSchema,
    columns: &HashMap<Column, Column>,
) -> Result<Expr> {
    bound_in(expr, here, &[], columns)
}

fn bound_in(
    expr: Expr,
    here: &DFSchema,
    scopes: &[&DFSchema],
    columns: &HashMap<Column, Column>,
) -> Result<Expr> {
    let inner = |subquery: Subquery| -> Result<Subquery> {
        let scopes: Vec<&DFSchema> = scopes.iter().copied().chain([here]).collect();
        let plan = bound_plan(Arc::unwrap_or_clone(subquery.subquery), &scopes, columns)?;
        let outer_ref_columns = plan.all_out_ref_exprs();
        Ok(Subquery { subquery: Arc::new(plan), outer_ref_columns, spans: subquery.spans })
    };
    let changed = expr.transform_up(|expr| {
        Ok(match expr {
            Expr::OuterReferenceColumn(field, column) => {
                let is_between = scopes.iter().any(|scope| scope.has_column(&column));
                match columns.get(&column).filter(|_| !is_between) {
                    Some(own) if scopes.is_empty() => Transformed::yes(Expr::Column(own.clone())),
                    Some(own) => Transformed::yes(Expr::OuterReferenceColumn(field, own.clone())),
                    None => Transformed::no(Expr::OuterReferenceColumn(field, column)),
                }
            }
            Expr::Exists(Exists { subquery, negated }) => {
                let subquery = inner(subquery)?;
                Transformed::yes(Expr::Exists(Exists { subquery, negated }))
            }
            Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
                let subquery = inner(subquery)?;
                Transformed::yes(Expr::InSubquery(InSubquery { expr, subquery, negated }))
            }
            Expr::ScalarSubquery(subquery) => {
                Transformed::yes(Expr::ScalarSubquery(inner(subquery)?))
            }
            other => Transformed::no(other),
        })
    })?;
    Ok(changed.data)
}

fn bound_plan(
    plan: LogicalPlan,
    scopes: &[&DFSchema],
    columns: &HashMap<Column, Column>,
) -> Result<LogicalPlan> {
    let changed = plan.transform_up(|node| {
        let here = merge_schema(&node.inputs());
        let names = NamePreserver::new(&node);
        node.map_expressions(|expr| {
            let name = names.save(&expr);
            let expr = bound_in(expr, &here, scopes, columns)?;
            Ok(Transformed::yes(name.restore(expr)))
        })
    })?;
    Ok(changed.data)
}

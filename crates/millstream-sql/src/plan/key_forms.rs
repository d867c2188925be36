//! Keys of groups that are equal have one form: maps with the same entries, NaNs, and both zeros.
//! So have rows of which DISTINCT and set operations keep one, and keys of joins.
//!
//! DataFusion compares their bytes. So an aggregation reads such keys from a projection, in which
//! maps are sorted by their keys ([`sorted_maps`]) and FLOATs and DOUBLEs have one NaN and one zero
//! ([`one_zero`]), also within arrays and structs. Streams keep the keys that their checkpoints
//! have: their FLOATs and DOUBLEs get the form where the plan is cut.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode as _};
use datafusion::common::{Column, DFSchema, JoinConstraint, Result};
use datafusion::logical_expr::utils::grouping_set_to_exprlist;
use datafusion::logical_expr::{
    Aggregate, Distinct, Expr, ExprSchemable as _, Join, LogicalPlan, LogicalPlanBuilder,
};

use crate::functions::one_zero::{holds_float, one_zero};
use crate::functions::sorted_maps::{holds_map, sorted_maps};

/// `plan`, whose keys have one form, but for those over a stream. Types have been checked.
pub(super) fn equal(plan: LogicalPlan, is_stream: fn(&LogicalPlan) -> bool) -> Result<LogicalPlan> {
    let changed = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Aggregate(aggregate) if !is_stream(&aggregate.input) => {
            let formed = formed(&aggregate)?;
            if formed.is_empty() {
                return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
            }
            by_form(aggregate, &formed).map(Transformed::yes)
        }
        LogicalPlan::Distinct(Distinct::All(rows)) if !is_stream(&rows) => once(rows),
        LogicalPlan::Join(join) if !is_stream(&join.left) && !is_stream(&join.right) => {
            joined(join)
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(changed.data)
}

/// The rows that differ in their form.
fn once(rows: Arc<LogicalPlan>) -> Result<Transformed<LogicalPlan>> {
    let (mut columns, mut changed) = (Vec::new(), false);
    for (table, field) in rows.schema().iter() {
        let column = Expr::Column(Column::from((table, field)));
        columns.push(match form(&column, rows.schema())? {
            None => column,
            Some(form) => {
                changed = true;
                form.alias_qualified(table.cloned(), field.name())
            }
        });
    }
    if !changed {
        return Ok(Transformed::no(LogicalPlan::Distinct(Distinct::All(rows))));
    }
    let rows = LogicalPlanBuilder::from(rows).project(columns)?.build()?;
    Ok(Transformed::yes(LogicalPlan::Distinct(Distinct::All(Arc::new(rows)))))
}

/// The join by keys that have a form. Its columns stay what they are.
fn joined(mut join: Join) -> Result<Transformed<LogicalPlan>> {
    let mut changed = false;
    for (left, right) in &mut join.on {
        let forms = (form(left, join.left.schema())?, form(right, join.right.schema())?);
        if let (Some(of_left), Some(of_right)) = forms {
            (*left, *right) = (of_left, of_right);
            changed = true;
        }
    }
    if changed {
        // The keys of USING must be columns; which of them are merged has been decided before.
        join.join_constraint = JoinConstraint::On;
    }
    Ok(Transformed::new_transformed(LogicalPlan::Join(join), changed))
}

/// The keys that are given a form, with it.
fn formed(aggregate: &Aggregate) -> Result<Vec<(Expr, Expr)>> {
    let mut found: Vec<(Expr, Expr)> = Vec::new();
    for key in grouping_set_to_exprlist(&aggregate.group_expr)? {
        let form = form(key, aggregate.input.schema())?;
        if let Some(form) = form.filter(|_| !found.iter().any(|(known, _)| known == key)) {
            found.push((key.clone(), form));
        }
    }
    Ok(found)
}

/// What is the same for all values that are equal, where a key is not.
fn form(key: &Expr, schema: &DFSchema) -> Result<Option<Expr>> {
    let of = key.get_type(schema)?;
    let functions = [(holds_float(&of), one_zero()), (holds_map(&of), sorted_maps())];
    let needed = functions.into_iter().filter_map(|(is_needed, form)| is_needed.then_some(form));
    Ok(needed.fold(None, |inner, form| {
        Some(form.call(vec![inner.unwrap_or_else(|| key.clone().unalias())]))
    }))
}

/// `aggregate` by columns that have the forms of its keys.
fn by_form(aggregate: Aggregate, formed: &[(Expr, Expr)]) -> Result<LogicalPlan> {
    let names: Vec<Column> =
        (0..formed.len()).map(|at| Column::new_unqualified(format!("__key_{at}"))).collect();
    let columns = aggregate.input.schema().columns().into_iter().map(Expr::Column);
    let forms = formed.iter().zip(&names).map(|((_, form), name)| form.clone().alias(&name.name));
    let columns: Vec<Expr> = columns.chain(forms).collect();
    let input = LogicalPlanBuilder::from(aggregate.input).project(columns)?.build()?;
    let named = |expr: Expr| {
        Ok(match formed.iter().position(|(key, _)| *key == expr) {
            Some(at) => Transformed::yes(Expr::Column(names[at].clone())),
            None => Transformed::no(expr),
        })
    };
    let keys = aggregate.group_expr.into_iter().map(|key| match key {
        // A grouping set is no key itself; its members are.
        Expr::GroupingSet(_) => key.map_children(named).map(|key| key.data),
        key => named(key).map(|key| key.data),
    });
    let keys = keys.collect::<Result<Vec<_>>>()?;
    let grouped = Aggregate::try_new(Arc::new(input), keys, aggregate.aggr_expr)?;
    let wanted = aggregate.schema.iter().zip(grouped.schema.columns());
    let columns = wanted.map(|((qualifier, field), column)| {
        let is_same = qualifier == column.relation.as_ref() && *field.name() == column.name;
        let column = Expr::Column(column);
        if is_same { column } else { column.alias_qualified(qualifier.cloned(), field.name()) }
    });
    let columns: Vec<Expr> = columns.collect();
    LogicalPlanBuilder::from(LogicalPlan::Aggregate(grouped)).project(columns)?.build()
}

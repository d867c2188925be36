//! Keys of groups that are equal have one form: maps with the same entries, NaNs, and both zeros.
//!
//! DataFusion compares their bytes. So an aggregation reads such keys from a projection, in which
//! maps are sorted by their keys ([`sorted_maps`]) and FLOATs and DOUBLEs have one NaN and one zero
//! ([`one_zero`]), also within arrays and structs. Streams keep the keys that their checkpoints
//! have: their FLOATs and DOUBLEs get the form where the plan is cut.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode as _};
use datafusion::common::{Column, DFSchema, Result};
use datafusion::logical_expr::utils::grouping_set_to_exprlist;
use datafusion::logical_expr::{
    Aggregate, Expr, ExprSchemable as _, LogicalPlan, LogicalPlanBuilder,
};

use crate::functions::one_zero::{holds_float, one_zero};
use crate::functions::sorted_maps::{holds_map, sorted_maps};

/// `plan`, whose aggregations have keys of one form, but for those over a stream. Types have been
/// checked.
pub(super) fn equal(plan: LogicalPlan, is_stream: fn(&LogicalPlan) -> bool) -> Result<LogicalPlan> {
    let changed = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Aggregate(aggregate) if !is_stream(&aggregate.input) => {
            let formed = formed(&aggregate)?;
            if formed.is_empty() {
                return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
            }
            by_form(aggregate, &formed).map(Transformed::yes)
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(changed.data)
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

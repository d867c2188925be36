//! Maps are compared as keys of groups alone: there they are equal if they have the same entries,
//! in whatever order ([`key_forms`](super::key_forms)). Nothing else compares maps in Spark, so the
//! rest is refused.

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, NullEquality, Result, plan_err};
use datafusion::logical_expr::expr::{BinaryExpr, Case, InList, WindowFunction};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Distinct, Expr, ExprSchemable as _, LogicalPlan};

use crate::functions::known_as;
use crate::functions::operators::is_comparison;
use crate::functions::sorted_maps::holds_map;

/// Refuses to compare maps but as keys of groups, in a query that reads no stream.
pub(super) fn check(node: &LogicalPlan) -> Result<()> {
    let schema = merge_schema(&node.inputs());
    match node {
        LogicalPlan::Distinct(Distinct::All(rows)) => no_column_is_a_map(rows)?,
        LogicalPlan::Join(join) if join.null_equality == NullEquality::NullEqualsNull => {
            no_column_is_a_map(&join.left)?;
        }
        LogicalPlan::Join(join) => {
            for (key, _) in &join.on {
                not_a_map(key, join.left.schema(), "the condition of a JOIN")?;
            }
        }
        LogicalPlan::Sort(sort) => {
            for key in &sort.expr {
                not_a_map(&key.expr, &schema, "ORDER BY")?;
            }
        }
        _ => {}
    }
    node.apply_expressions(|expr| {
        expr.apply(|expr| {
            compared(expr, &schema)?;
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(())
}

/// Rows of a set operation, which are compared as a whole.
fn no_column_is_a_map(rows: &LogicalPlan) -> Result<()> {
    if rows.schema().fields().iter().any(|field| holds_map(field.data_type())) {
        return plan_err!(
            "DISTINCT, UNION, INTERSECT and EXCEPT do not compare columns of the type MAP: write \
             UNION ALL, or GROUP BY the columns"
        );
    }
    Ok(())
}

fn compared(expr: &Expr, schema: &DFSchema) -> Result<()> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, .. }) if is_comparison(*op) => {
            not_a_map(left, schema, &format!("`{op}`"))
        }
        Expr::InList(InList { expr, list, .. }) => {
            no_maps(list.iter().chain([&**expr]), schema, "IN")
        }
        Expr::InSubquery(of) => not_a_map(&of.expr, schema, "IN"),
        Expr::SetComparison(of) => not_a_map(&of.expr, schema, &format!("`{}`", of.op)),
        Expr::Between(of) => not_a_map(&of.expr, schema, "BETWEEN"),
        Expr::Case(Case { expr: Some(of), .. }) => not_a_map(of, schema, "`CASE x WHEN`"),
        Expr::ScalarFunction(call) => match compares_arguments(call.name()) {
            Some(name) => no_maps(&call.args, schema, name),
            None => Ok(()),
        },
        Expr::WindowFunction(function) => {
            let WindowFunction { fun, params } = function.as_ref();
            of_rows(fun.name(), &params.args, schema)?;
            let order = params.order_by.iter().map(|key| &key.expr);
            no_maps(order, schema, "ORDER BY of a window")?;
            no_maps(&params.partition_by, schema, "PARTITION BY of a window")
        }
        Expr::AggregateFunction(function) => {
            if function.params.distinct {
                no_maps(&function.params.args, schema, "DISTINCT in an aggregate")?;
            }
            of_rows(function.func.name(), &function.params.args, schema)
        }
        _ => Ok(()),
    }
}

/// What Spark calls a function that compares its arguments, or the elements of those that are
/// arrays.
fn compares_arguments(name: &str) -> Option<&str> {
    let name = known_as(name);
    let compares = matches!(
        name,
        "array_contains"
            | "array_distinct"
            | "array_except"
            | "array_intersect"
            | "array_max"
            | "array_min"
            | "array_position"
            | "array_remove"
            | "array_sort"
            | "array_union"
            | "arrays_overlap"
            | "equal_null"
            | "greatest"
            | "least"
            | "nullif"
            | "sort_array"
    );
    compares.then_some(name)
}

/// What an aggregate compares of its rows.
fn of_rows(name: &str, args: &[Expr], schema: &DFSchema) -> Result<()> {
    let compared = match name {
        "collect_set" | "max" | "min" => args.first(),
        "max_by" | "min_by" => args.get(1),
        _ => None,
    };
    compared.map_or(Ok(()), |value| not_a_map(value, schema, name))
}

fn no_maps<'a>(
    values: impl IntoIterator<Item = &'a Expr>,
    schema: &DFSchema,
    here: &str,
) -> Result<()> {
    values.into_iter().try_for_each(|value| not_a_map(value, schema, here))
}

/// What `here` compares is no map, and has none in it.
fn not_a_map(key: &Expr, schema: &DFSchema, here: &str) -> Result<()> {
    // What has no type yet is refused for that where it is looked at.
    if key.get_type(schema).is_ok_and(|of| holds_map(&of)) {
        return plan_err!(
            "{here} does not compare values of the type MAP: compare \
             array_sort(map_entries(m)), in which entries have an order"
        );
    }
    Ok(())
}

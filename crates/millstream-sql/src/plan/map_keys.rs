//! Maps as keys of groups: they are equal if they have the same entries, in whatever order.
//!
//! Spark groups by the maps with their entries in the order of the keys, and shows them so. Here an
//! aggregation reads its keys from a projection that sorts them. Nothing else compares maps in
//! Spark, so that the rest is refused. Streams keep the keys that their checkpoints have.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, NullEquality, Result, plan_err};
use datafusion::logical_expr::expr::{BinaryExpr, Case, InList, WindowFunction};
use datafusion::logical_expr::utils::{grouping_set_to_exprlist, merge_schema};
use datafusion::logical_expr::{
    Aggregate, Distinct, Expr, ExprSchemable as _, LogicalPlan, LogicalPlanBuilder, Operator,
    ScalarUDF,
};

use crate::functions::sorted_maps::{holds_map, sorted_maps};

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
    Some(match name {
        "array_has" => "array_contains",
        "array_remove_all" => "array_remove",
        "array_contains" | "array_distinct" | "array_except" | "array_intersect" | "array_max"
        | "array_min" | "array_position" | "array_remove" | "array_sort" | "array_union"
        | "arrays_overlap" | "equal_null" | "greatest" | "least" | "nullif" | "sort_array" => name,
        _ => return None,
    })
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

fn is_comparison(op: Operator) -> bool {
    matches!(
        op,
        Operator::Eq
            | Operator::NotEq
            | Operator::Lt
            | Operator::LtEq
            | Operator::Gt
            | Operator::GtEq
            | Operator::IsDistinctFrom
            | Operator::IsNotDistinctFrom
    )
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

/// `plan`, whose aggregations sort maps in their keys, but for those over a stream. Types have been
/// checked.
pub(super) fn sorted(
    plan: LogicalPlan,
    is_stream: fn(&LogicalPlan) -> bool,
) -> Result<LogicalPlan> {
    let changed = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Aggregate(aggregate) if !is_stream(&aggregate.input) => {
            let maps = maps_of(&aggregate)?;
            if maps.is_empty() {
                return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
            }
            by_form(aggregate, maps, &sorted_maps(), "__map").map(Transformed::yes)
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(changed.data)
}

/// The keys that are or have maps.
fn maps_of(aggregate: &Aggregate) -> Result<Vec<Expr>> {
    let mut found: Vec<Expr> = Vec::new();
    for key in grouping_set_to_exprlist(&aggregate.group_expr)? {
        let of: DataType = key.get_type(aggregate.input.schema())?;
        if holds_map(&of) && !found.contains(key) {
            found.push(key.clone());
        }
    }
    Ok(found)
}

/// `aggregate` by the keys, of which `maps` have the form that a function gives them, in columns
/// of this name and a number.
pub(super) fn by_form(
    aggregate: Aggregate,
    maps: Vec<Expr>,
    form: &ScalarUDF,
    name: &str,
) -> Result<LogicalPlan> {
    let names: Vec<Column> =
        (0..maps.len()).map(|at| Column::new_unqualified(format!("{name}_{at}"))).collect();
    let columns = aggregate.input.schema().columns().into_iter().map(Expr::Column);
    let of_maps = maps.iter().zip(&names).map(|(map, name)| {
        let map = map.clone().unalias();
        form.call(vec![map]).alias(&name.name)
    });
    let columns: Vec<Expr> = columns.chain(of_maps).collect();
    let input = LogicalPlanBuilder::from(aggregate.input).project(columns)?.build()?;
    let named = |expr: Expr| {
        Ok(match maps.iter().position(|map| *map == expr) {
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

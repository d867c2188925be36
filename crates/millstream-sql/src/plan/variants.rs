//! What a query does with a VARIANT. Arrow's type for it is a STRUCT of bytes, of which DataFusion
//! would compare, sort and group the bytes; to Spark no two VARIANTs are equal or in an order. So
//! they are for the functions and operators named here, and anything else is refused.
//!
//! Over a stream there are none, since what is kept of rows and written to sinks would have to
//! know them.

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result, plan_err};
use datafusion::logical_expr::utils::{grouping_set_to_exprlist, merge_schema};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};

use crate::functions::variants::makes_variant;
use crate::types::{VARIANT_HELP, holds_variant, is_variant};

/// Functions that take a VARIANT, or what has one in it. Names of internal functions begin with
/// `__`.
const SCALARS: &[&str] = &[
    "array",
    "array_element",
    "array_length",
    "array_size",
    "at_index",
    "cardinality",
    "coalesce",
    "element_at",
    "entries_of",
    "field_of",
    "get",
    "get_field",
    "ifnull",
    "is_valid_variant",
    "is_variant_null",
    "isnotnull",
    "isnull",
    "make_array",
    "map",
    "map_entries",
    "map_keys",
    "map_values",
    "named_struct",
    "nvl",
    "part_of",
    "positions_of",
    "schema_of_variant",
    "size",
    "spark_cast",
    "spark_try_cast",
    "struct",
    "to_json",
    "to_variant_object",
    "try_element_at",
    "try_variant_get",
    "typeof",
    "variant_entries",
    "variant_get",
];

/// Of these the ones that take a part out of a value, which no VARIANT has.
const OF_PARTS: &[&str] = &["field_of", "get_field", "part_of"];

/// Aggregates and functions of windows that take one.
const ROWS: &[&str] = &[
    "any_value",
    "array_agg",
    "collect_list",
    "count",
    "first_value",
    "lag",
    "last_value",
    "lead",
    "nth_value",
    "schema_of_variant_agg",
];

/// Refuses what cannot be done with a VARIANT.
pub(super) fn check(plan: &LogicalPlan, is_stream: fn(&LogicalPlan) -> bool) -> Result<()> {
    if !has_any(plan)? {
        return Ok(());
    }
    if is_stream(plan) {
        return plan_err!(
            "VARIANT is not supported over a stream ({VARIANT_HELP}); write \
             get_json_object(text, '$.a') or from_json(text, 'a INT')"
        );
    }
    plan.apply_with_subqueries(|node| {
        node_of(node)?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// Whether there is a VARIANT in a plan.
fn has_any(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        let mut fields = node.schema().fields().iter();
        found = fields.any(|field| holds_variant(field.data_type()));
        if !found {
            let schema = merge_schema(&node.inputs());
            for expr in node.expressions() {
                found |= expr.exists(|part| Ok(makes_variant(part, &schema)))?;
            }
        }
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

fn refused(what: &str) -> Result<()> {
    plan_err!(
        "{what} of a VARIANT is not possible (DATATYPE_MISMATCH): take a value out of it, as in \
         v:a::INT or variant_get(v, '$.a', 'INT')"
    )
}

fn holds(expr: &Expr, schema: &DFSchema) -> bool {
    expr.get_type(schema).is_ok_and(|of| holds_variant(&of))
}

fn node_of(node: &LogicalPlan) -> Result<()> {
    match node {
        LogicalPlan::Aggregate(aggregate) => {
            let schema = aggregate.input.schema();
            let keys = grouping_set_to_exprlist(&aggregate.group_expr)?;
            if keys.into_iter().any(|key| holds(key, schema)) {
                return refused("GROUP BY");
            }
        }
        LogicalPlan::Distinct(_) => {
            let mut fields = node.schema().fields().iter();
            if fields.any(|field| holds_variant(field.data_type())) {
                return refused("DISTINCT");
            }
        }
        LogicalPlan::Sort(sort) => {
            let schema = sort.input.schema();
            if sort.expr.iter().any(|key| holds(&key.expr, schema)) {
                return refused("ORDER BY");
            }
        }
        LogicalPlan::Join(join) => {
            let (left, right) = (join.left.schema(), join.right.schema());
            if join.on.iter().any(|(one, other)| holds(one, left) || holds(other, right)) {
                return refused("a comparison");
            }
        }
        _ => {}
    }
    let schema = merge_schema(&node.inputs());
    for expr in node.expressions() {
        expr.apply(|part| {
            part_of(part, &schema)?;
            Ok(TreeNodeRecursion::Continue)
        })?;
    }
    Ok(())
}

fn part_of(expr: &Expr, schema: &DFSchema) -> Result<()> {
    let any = |parts: &[Expr]| parts.iter().any(|part| holds(part, schema));
    match expr {
        Expr::ScalarFunction(call) => {
            let name = call.func.name();
            let is_known = SCALARS.contains(&name) || name.starts_with("__");
            let of = call.args.first().and_then(|arg| arg.get_type(schema).ok());
            let is_whole = |of: &DataType| OF_PARTS.contains(&name) && is_variant(of);
            if (!is_known && any(&call.args)) || of.as_ref().is_some_and(is_whole) {
                return refused(name);
            }
        }
        Expr::AggregateFunction(call) => {
            let (name, params) = (call.func.name(), &call.params);
            let is_plain = ROWS.contains(&name) && !params.distinct;
            let is_sorted = params.order_by.iter().any(|sort| holds(&sort.expr, schema));
            if is_sorted || (!is_plain && any(&params.args)) {
                return refused(name);
            }
        }
        Expr::WindowFunction(call) => {
            let (name, params) = (call.fun.name(), &call.params);
            let is_plain = ROWS.contains(&name) && !params.distinct;
            let is_sorted = params.order_by.iter().any(|sort| holds(&sort.expr, schema));
            if is_sorted || any(&params.partition_by) || (!is_plain && any(&params.args)) {
                return refused(name);
            }
        }
        Expr::Case(case) if case.expr.as_ref().is_some_and(|of| holds(of, schema)) => {
            return refused("CASE");
        }
        Expr::Alias(_)
        | Expr::Case(_)
        | Expr::Cast(_)
        | Expr::TryCast(_)
        | Expr::Exists(_)
        | Expr::HigherOrderFunction(_)
        | Expr::IsNotNull(_)
        | Expr::IsNull(_)
        | Expr::Lambda(_)
        | Expr::Unnest(_) => {}
        // What is left compares or computes, or has no parts.
        other => {
            let mut is_of_one = false;
            other.apply_children(|part| {
                is_of_one |= holds(part, schema);
                Ok(TreeNodeRecursion::Continue)
            })?;
            if is_of_one {
                return refused("an operator");
            }
        }
    }
    Ok(())
}

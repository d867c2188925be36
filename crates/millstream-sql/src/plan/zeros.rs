//! FLOATs and DOUBLEs that are equal although their bits differ: the two zeros, and NaNs.
//!
//! DataFusion compares zeros so in `=` and its like, in joins and in groups. In a list of IN, in
//! `CASE x WHEN`, in DISTINCT aggregates, in the keys of windows and of ORDER BY, and within arrays
//! and structs everywhere, it looks at the bits. So there a list of constants that has one zero
//! gets the other, and the rest is computed of values with one zero ([`one_zero`]).
//!
//! Of a NaN it looks at the bits everywhere, and that which a processor makes, as of `x - x` where
//! `x` is infinite, is less than all numbers by them. So what may make such a NaN makes the plain
//! one ([`one_nan`]), and columns that are compared with each other have no other. On the way
//! other operators get the errors that they have ([`with_errors`]), `min` and `max` of structs and
//! arrays the order ([`of_rows`]), and keys of ORDER BY theirs for NULLs within them
//! ([`nulls_apart`]).
//!
//! In a query that reads a stream this is done for columns of SELECT, and for conditions below its
//! joins: a checkpoint knows groups, aggregates and the conditions of joins by their words.

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::{AggregateFunction, BinaryExpr, Case, Cast, InList, TryCast};
use datafusion::logical_expr::{Expr, ExprSchemable as _, LogicalPlan, Operator, SortExpr, lit};
use datafusion::optimizer::simplify_expressions::expr_simplifier::THRESHOLD_INLINE_INLIST;

use crate::functions::nested_extremes::{of_rows, of_window};
use crate::functions::number_edges::{may_fail, with_errors};
use crate::functions::one_zero::{holds_float, one_nan, one_zero};
use crate::functions::operators::is_comparison;
use crate::functions::rules::rewrite;

/// Aggregates that are looked at whether they have DISTINCT or not.
const ONCE_OR_BEST: [&str; 3] = ["collect_set", "max", "min"];

/// Functions whose NaN may be that of the processor.
const OF_PROCESSOR: [&str; 12] = [
    "cos",
    "cot",
    "csc",
    "divide",
    "negative",
    "sec",
    "sin",
    "tan",
    "try_add",
    "try_divide",
    "try_multiply",
    "try_subtract",
];

/// Functions that compare their arguments, or elements of them, by their bits.
const OF_BITS: [&str; 4] = ["array_contains", "array_distinct", "array_has", "equal_null"];

/// `plan`, whose zeros are equal wherever they are compared. Types have been checked.
pub(super) fn equal(plan: LogicalPlan, is_stream: fn(&LogicalPlan) -> bool) -> Result<LogicalPlan> {
    let is_stream = is_stream(&plan);
    let changed = plan.transform_up_with_subqueries(|mut node| {
        if let (false, LogicalPlan::Sort(sort)) = (is_stream, &mut node) {
            // Rows that differ in the last key alone, by the sign of a zero, are in any order.
            let schema = sort.input.schema();
            let keys = sort.expr.split_last_mut().map(|(_, keys)| keys).unwrap_or_default();
            ones(keys.iter_mut().map(|key| &mut key.expr), schema);
            nulls_apart(&mut sort.expr, schema);
        }
        let is_changed = match &node {
            _ if !is_stream => true,
            LogicalPlan::Projection(_) => true,
            LogicalPlan::Filter(filter) => !has_join(&filter.input)?,
            _ => false,
        };
        if is_changed && may_change(&node)? {
            rewrite(node, compared)
        } else {
            Ok(Transformed::no(node))
        }
    })?;
    Ok(changed.data)
}

fn has_join(plan: &LogicalPlan) -> Result<bool> {
    plan.exists(|node| Ok(matches!(node, LogicalPlan::Join(_))))
}

/// Whether the node has an expression of those that are changed.
fn may_change(node: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    node.apply_expressions(|expr| {
        expr.apply(|expr| {
            found |= match expr {
                Expr::InList(_) | Expr::WindowFunction(_) => true,
                Expr::Case(case) => case.expr.is_some(),
                Expr::BinaryExpr(of) if is_comparison(of.op) => {
                    of.left.any_column_refs() && of.right.any_column_refs()
                        || may_be_nested(&of.left) && may_be_nested(&of.right)
                }
                Expr::BinaryExpr(of) if is_arithmetic(of.op) => true,
                Expr::ScalarFunction(call)
                    if OF_BITS.contains(&call.name()) || OF_PROCESSOR.contains(&call.name()) =>
                {
                    true
                }
                Expr::AggregateFunction(call) => {
                    call.params.distinct || ONCE_OR_BEST.contains(&call.func.name())
                }
                other => may_fail(other),
            };
            Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })
    })?;
    Ok(found)
}

/// Whether a side of a comparison may be an array or a struct, as far as its form tells.
fn may_be_nested(side: &Expr) -> bool {
    match side {
        Expr::Literal(value, _) => value.data_type().is_nested(),
        Expr::Cast(Cast { field, .. }) | Expr::TryCast(TryCast { field, .. }) => {
            field.data_type().is_nested()
        }
        Expr::BinaryExpr(_) | Expr::Negative(_) | Expr::Not(_) => false,
        _ => true,
    }
}

fn compared(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    Ok(match expr {
        Expr::InList(list) if is_floating(&list.expr, schema) => {
            Transformed::yes(listed(list, schema))
        }
        Expr::InList(mut list) if has_float(&list.expr, schema) => {
            ones(list.list.iter_mut().chain([&mut *list.expr]), schema);
            Transformed::yes(Expr::InList(list))
        }
        Expr::BinaryExpr(mut of) if is_of_nested(&of, schema) || is_of_columns(&of, schema) => {
            ones([&mut *of.left, &mut *of.right], schema);
            Transformed::yes(Expr::BinaryExpr(of))
        }
        made if makes_nan(&made, schema) => Transformed::yes(one_nan().call(vec![made])),
        Expr::ScalarFunction(mut call) if OF_BITS.contains(&call.name()) => {
            let changed = ones(&mut call.args, schema);
            Transformed::new_transformed(Expr::ScalarFunction(call), changed)
        }
        Expr::Case(case) => of_case(case, schema),
        Expr::AggregateFunction(mut call) if counts_once(&call, schema) => {
            let changed = ones(&mut call.params.args, schema);
            Transformed::new_transformed(Expr::AggregateFunction(call), changed)
        }
        Expr::AggregateFunction(call) => of_rows(call, schema),
        Expr::WindowFunction(mut call) => {
            let mut changed = of_window(&mut call, schema);
            changed |= ones(&mut call.params.partition_by, schema);
            changed |= ones(call.params.order_by.iter_mut().map(|key| &mut key.expr), schema);
            changed |= nulls_apart(&mut call.params.order_by, schema);
            Transformed::new_transformed(Expr::WindowFunction(call), changed)
        }
        other => with_errors(other, schema)?,
    })
}

/// Whether equal values count as one, which makes no difference to the least and the greatest.
/// Arrays and structs in a set are told apart by their bits in Spark, too.
fn counts_once(call: &AggregateFunction, schema: &DFSchema) -> bool {
    match call.func.name() {
        "collect_set" => call.params.args.iter().all(|value| is_floating(value, schema)),
        name => call.params.distinct && !matches!(name, "min" | "max"),
    }
}

fn is_of_nested(of: &BinaryExpr, schema: &DFSchema) -> bool {
    is_comparison(of.op)
        && may_be_nested(&of.left)
        && may_be_nested(&of.right)
        && !is_floating(&of.left, schema)
        && has_float(&of.left, schema)
}

/// Whether columns are compared with each other, which may have any NaN. A constant has the plain
/// one, and beside it a column stays as it is: tables leave out files by such conditions.
fn is_of_columns(of: &BinaryExpr, schema: &DFSchema) -> bool {
    is_comparison(of.op)
        && is_floating(&of.left, schema)
        && is_floating(&of.right, schema)
        && of.left.any_column_refs()
        && of.right.any_column_refs()
}

/// Whether an expression computes a FLOAT or DOUBLE by the processor alone.
fn makes_nan(expr: &Expr, schema: &DFSchema) -> bool {
    match expr {
        Expr::BinaryExpr(of) => is_arithmetic(of.op) && is_floating(expr, schema),
        Expr::Negative(of) => !matches!(**of, Expr::Literal(..)) && is_floating(of, schema),
        Expr::ScalarFunction(call) => {
            OF_PROCESSOR.contains(&call.name()) && is_floating(expr, schema)
        }
        _ => false,
    }
}

fn is_arithmetic(op: Operator) -> bool {
    matches!(op, Operator::Plus | Operator::Minus | Operator::Multiply | Operator::Divide)
}

/// Whether values are FLOATs or DOUBLEs, or have such in them.
fn has_float(expr: &Expr, schema: &DFSchema) -> bool {
    expr.get_type(schema).is_ok_and(|of| holds_float(&of))
}

/// NULLs that stand on the side where Spark has not the least values get a key of their own. Where
/// they stand says where DataFusion has the NULLs within arrays and structs, which are the least
/// values in Spark. Whether there were such keys.
fn nulls_apart(keys: &mut Vec<SortExpr>, schema: &DFSchema) -> bool {
    let is_nested = |key: &SortExpr| {
        matches!(key.expr.get_type(schema), Ok(DataType::Struct(_) | DataType::List(_)))
    };
    let is_apart = |key: &SortExpr| key.asc != key.nulls_first && is_nested(key);
    if !keys.iter().any(is_apart) {
        return false;
    }
    let parts = std::mem::take(keys).into_iter().flat_map(|mut key| {
        let nulls = is_apart(&key).then(|| {
            key.nulls_first = key.asc;
            SortExpr::new(key.expr.clone().is_null(), key.asc, key.asc)
        });
        nulls.into_iter().chain([key])
    });
    *keys = parts.collect();
    true
}

fn is_floating(expr: &Expr, schema: &DFSchema) -> bool {
    matches!(expr.get_type(schema), Ok(DataType::Float32 | DataType::Float64))
}

fn one(expr: Expr) -> Expr {
    one_zero().call(vec![expr])
}

/// Makes those of `exprs` that are FLOATs or DOUBLEs, or have such in them, have one zero; whether
/// there are any.
pub(super) fn ones<'a>(exprs: impl IntoIterator<Item = &'a mut Expr>, schema: &DFSchema) -> bool {
    let mut changed = false;
    for expr in exprs.into_iter().filter(|expr| has_float(expr, schema)) {
        *expr = one(std::mem::take(expr));
        changed = true;
    }
    changed
}

fn listed(list: InList, schema: &DFSchema) -> Expr {
    let InList { mut expr, mut list, negated } = list;
    let found: Vec<_> = list.iter().map(|value| is_zero(value, schema)).collect();
    if found.contains(&Some(true)) {
        let is_single = matches!(expr.get_type(schema), Ok(DataType::Float32));
        let both =
            if is_single { [lit(-0.0_f32), lit(0.0_f32)] } else { [lit(-0.0_f64), lit(0.0_f64)] };
        list.retain(|value| is_zero(value, schema) != Some(true));
        list.extend(both);
    }
    if found.contains(&None) && !is_compared_by_equals(&expr, &list) {
        ones(list.iter_mut().chain([&mut *expr]), schema);
    }
    Expr::InList(InList { expr, list, negated })
}

fn of_case(case: Case, schema: &DFSchema) -> Transformed<Expr> {
    let is_of_numbers = case.expr.as_ref().is_some_and(|of| has_float(of, schema))
        && case.when_then_expr.iter().all(|(when, _)| has_float(when, schema));
    if !is_of_numbers {
        return Transformed::no(Expr::Case(case));
    }
    let of = case.expr.map(|of| Box::new(one(*of)));
    let when_then = case.when_then_expr.into_iter();
    let when_then = when_then.map(|(when, then)| (Box::new(one(*when)), then)).collect();
    Transformed::yes(Expr::Case(Case::new(of, when_then, case.else_expr)))
}

/// Whether DataFusion makes `=` and OR of the list, to which both zeros are equal.
fn is_compared_by_equals(expr: &Expr, list: &[Expr]) -> bool {
    list.len() == 1 || (list.len() <= THRESHOLD_INLINE_INLIST && expr.try_as_col().is_some())
}

/// Whether a constant is zero; `None` of what is no constant, and of casts that may make a zero of
/// another number.
fn is_zero(expr: &Expr, schema: &DFSchema) -> Option<bool> {
    match expr {
        Expr::Literal(value, _) if value.is_null() => Some(false),
        Expr::Literal(value, _) => match value {
            ScalarValue::Float64(Some(value)) => Some(*value == 0.0),
            ScalarValue::Float32(Some(value)) => Some(*value == 0.0),
            ScalarValue::Decimal128(Some(value), ..) => Some(*value == 0),
            ScalarValue::Int64(Some(value)) => Some(*value == 0),
            ScalarValue::Int32(Some(value)) => Some(*value == 0),
            ScalarValue::Int16(Some(value)) => Some(*value == 0),
            ScalarValue::Int8(Some(value)) => Some(*value == 0),
            _ => None,
        },
        Expr::Cast(Cast { expr: of, .. }) | Expr::TryCast(TryCast { expr: of, .. }) => {
            is_cast_zero(of, &expr.get_type(schema).ok()?, schema)
        }
        Expr::Negative(of) => is_zero(of, schema),
        Expr::ScalarFunction(call) => match (call.name(), &call.args[..]) {
            ("spark_cast" | "spark_try_cast", [of]) => {
                is_cast_zero(of, &expr.get_type(schema).ok()?, schema)
            }
            // A whole number with a minus before it.
            ("checked_subtract", [zero, of]) if is_zero(zero, schema) == Some(true) => {
                is_zero(of, schema)
            }
            _ => None,
        },
        _ => None,
    }
}

fn is_cast_zero(of: &Expr, to: &DataType, schema: &DFSchema) -> Option<bool> {
    if let Expr::Literal(ScalarValue::Utf8(Some(text)), _) = of {
        return match to {
            DataType::Float64 => text.trim().parse::<f64>().ok().map(|value| value == 0.0),
            DataType::Float32 => text.trim().parse::<f32>().ok().map(|value| value == 0.0),
            _ => None,
        };
    }
    let found = is_zero(of, schema)?;
    (found || makes_no_zero(&of.get_type(schema).ok()?, to)).then_some(found)
}

/// Whether a cast of a number other than zero is never zero.
fn makes_no_zero(from: &DataType, to: &DataType) -> bool {
    let is_exact = from.is_null() || from.is_signed_integer();
    match (from, to) {
        (_, DataType::Float64)
        | (DataType::Float32 | DataType::Decimal128(..), DataType::Float32) => true,
        (DataType::Decimal128(_, from), DataType::Decimal128(_, to)) => from <= to,
        (_, DataType::Float32 | DataType::Decimal128(..)) => is_exact,
        (_, to) => is_exact && to.is_signed_integer(),
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{Field, Schema};
    use datafusion::logical_expr::{case, cast, col};

    use super::*;

    fn found(expr: Expr) -> String {
        let schema = Schema::new(vec![Field::new("x", DataType::Float64, true)]);
        let schema = DFSchema::try_from(schema).expect("names differ");
        compared(expr, &schema).expect("its types are known").data.to_string()
    }

    #[test]
    fn a_list_has_both_zeros_or_none() {
        let list = |values: Vec<Expr>| found(col("x").in_list(values, false));
        let both = "x IN ([Float64(1.5), Float64(-0), Float64(0)])";
        assert_eq!(list(vec![lit(0.0), lit(1.5)]), both);
        assert_eq!(list(vec![lit(1.5), lit(-0.0), lit(0.0)]), both);
        assert_eq!(list(vec![lit(1.5), lit(2.5)]), "x IN ([Float64(1.5), Float64(2.5)])");
    }

    #[test]
    fn of_values_that_are_not_known_there_is_one_zero() {
        let list = |values: Vec<Expr>| found(col("x").in_list(values, false));
        let long = list(vec![col("x"), lit(1.5), lit(2.5), lit(3.5)]);
        assert!(long.starts_with("__one_zero(x) IN ([__one_zero(x), __one_zero(Float64(1.5)"));
        assert_eq!(list(vec![col("x"), lit(1.5)]), "x IN ([x, Float64(1.5)])");
        let text = |text: &str| cast(lit(text), DataType::Float64);
        assert!(list(vec![text("-0.0")]).ends_with("([Float64(-0), Float64(0)])"));
        let known = list(vec![text("1"), lit(2.5), lit(3.5), cast(lit(3), DataType::Float64)]);
        assert!(known.starts_with("x IN ("));
    }

    #[test]
    fn a_case_compares_values_with_one_zero() {
        let made = case(col("x")).when(lit(0.0), lit(1)).end().expect("it is a CASE");
        assert!(found(made).starts_with("CASE __one_zero(x) WHEN __one_zero(Float64(0))"));
    }
}

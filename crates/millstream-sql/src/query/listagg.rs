//! `listagg(DISTINCT x, ',') WITHIN GROUP (ORDER BY x)` in a batch query.
//!
//! DataFusion orders what it joins, which is text, and Spark the values before they become text:
//! 2 comes before 10. So the values are collected, ordered and joined. What two values of a type
//! could be written alike is refused by `__listed`, as in Spark.

use datafusion::sql::sqlparser::ast::{
    ArrayElemTypeDef, BinaryOperator, CaseWhen, DataType, DuplicateTreatment, Expr, Function,
    FunctionArguments, Spanned, Value, ValueWithSpan, helpers::attached_token::AttachedToken,
};

use super::ast::{arguments, binary, call, cast, function_name, text};
use crate::functions::LISTED;

/// The expression for such a call; `None` for others.
pub(super) fn distinct_in_order(expr: &Expr) -> Option<Expr> {
    let Expr::Function(function) = expr else { return None };
    let [order] = function.within_group.as_slice() else { return None };
    let is_meant = matches!(function_name(function).as_str(), "listagg" | "string_agg")
        && is_distinct(function)
        && function.over.is_none();
    let args: Vec<&Expr> = arguments(function).collect();
    let (value, delimiter) = match args.as_slice() {
        [value] if is_meant => (*value, None),
        [value, delimiter] if is_meant => (*value, Some(*delimiter)),
        _ => return None,
    };
    let value = ordered(value, &order.expr)?;
    let span = function.name.span();
    let of = |value: Value| Expr::Value(ValueWithSpan { value, span });
    let listed = call(LISTED, vec![value.clone()], span);
    let count = filtered(call("count", vec![listed], span), function);
    let values = filtered(call("collect_set", vec![value.clone()], span), function);
    let ascending = of(Value::Boolean(order.options.asc.unwrap_or(true)));
    let values = call("sort_array", vec![values, ascending], span);
    let item = ArrayElemTypeDef::AngleBracket(Box::new(DataType::String(None)));
    let texts = cast(values, DataType::Array(item));
    let delimiter = delimiter.filter(|delimiter| !is_null(delimiter)).cloned();
    let delimiter = delimiter.unwrap_or_else(|| text(String::new(), span));
    let is_there = binary(count, BinaryOperator::Gt, of(Value::Number("0".to_owned(), false)));
    let joined = call("array_join", vec![texts, delimiter], span);
    Some(Expr::Case {
        case_token: AttachedToken::empty(),
        end_token: AttachedToken::empty(),
        operand: None,
        conditions: vec![CaseWhen { condition: is_there, result: joined }],
        else_result: None,
    })
}

/// What is ordered, where that is what is joined, or what is made a text to be joined.
fn ordered<'a>(value: &'a Expr, order: &Expr) -> Option<&'a Expr> {
    match value {
        value if value == order => Some(value),
        Expr::Cast { expr, data_type, .. } if **expr == *order => {
            data_type.to_string().eq_ignore_ascii_case("STRING").then_some(expr.as_ref())
        }
        _ => None,
    }
}

/// An aggregate of the rows that another one is of.
fn filtered(mut aggregate: Expr, of: &Function) -> Expr {
    if let Expr::Function(function) = &mut aggregate {
        function.filter.clone_from(&of.filter);
    }
    aggregate
}

fn is_distinct(function: &Function) -> bool {
    let FunctionArguments::List(list) = &function.args else { return false };
    list.duplicate_treatment == Some(DuplicateTreatment::Distinct) && list.clauses.is_empty()
}

fn is_null(expr: &Expr) -> bool {
    matches!(expr, Expr::Value(ValueWithSpan { value: Value::Null, .. }))
}

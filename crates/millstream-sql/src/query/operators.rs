//! Spark's operators that DataFusion has as calls, and the other way round.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CaseWhen, CeilFloorKind, DataType, Expr, Function, FunctionArguments, Spanned,
    UnaryOperator, Value, helpers::attached_token::AttachedToken,
};

use super::ast::{arguments, call, cast, function_name, text};
use super::casts::as_int;
use crate::syntax::lexer::UNSIGNED_SHIFT;

/// `a RLIKE b` as a call.
pub(crate) fn rlike(expr: Expr) -> Expr {
    let Expr::RLike { negated, expr, pattern, .. } = expr else { return expr };
    let span = expr.span();
    let call = call("rlike", vec![*expr, *pattern], span);
    if negated { Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(call) } } else { call }
}

/// `a >>> b` and `~a` as calls.
pub(crate) fn of_bits(expr: &mut Expr) {
    let (name, mut args) = match &*expr {
        Expr::BinaryOp { left, op: BinaryOperator::Custom(op), right }
            if op.as_str() == UNSIGNED_SHIFT =>
        {
            ("shiftrightunsigned", vec![(**left).clone(), (**right).clone()])
        }
        Expr::UnaryOp { op: UnaryOperator::BitwiseNot, expr } => {
            ("bitwise_not", vec![(**expr).clone()])
        }
        _ => return,
    };
    args.iter_mut().for_each(as_int);
    *expr = call(name, args, expr.span());
}

/// `ceil(a, places)` and `floor(a, places)` as calls, which sqlparser reads as something else.
pub(crate) fn rounded(expr: Expr) -> Expr {
    let span = expr.span();
    let (name, value, places) = match expr {
        Expr::Ceil { expr, field: CeilFloorKind::Scale(places) } => ("ceil", *expr, places),
        Expr::Floor { expr, field: CeilFloorKind::Scale(places) } => ("floor", *expr, places),
        other => return other,
    };
    call(name, vec![value, Expr::Value(places)], span)
}

/// `if(condition, then, else)` as a CASE.
pub(crate) fn conditional(expr: Expr) -> Expr {
    let Expr::Function(function) = &expr else { return expr };
    let args: Vec<&Expr> = arguments(function).collect();
    let [condition, result, otherwise] = args.as_slice() else { return expr };
    case((*condition).clone(), (*result).clone(), (*otherwise).clone())
}

fn case(condition: Expr, result: Expr, otherwise: Expr) -> Expr {
    Expr::Case {
        case_token: AttachedToken::empty(),
        end_token: AttachedToken::empty(),
        operand: None,
        conditions: vec![CaseWhen { condition, result }],
        else_result: Some(Box::new(otherwise)),
    }
}

/// Calls that are another one with a constant: `zeroifnull(x)` is `coalesce(x, 0)`.
pub(crate) fn with_constant(expr: Expr) -> Expr {
    let Expr::Function(function) = &expr else { return expr };
    let span = function.name.span();
    let args: Vec<&Expr> = arguments(function).collect();
    let zero = Expr::Value(Value::Number("0".into(), false).with_span(span));
    match (function_name(function).as_str(), args.as_slice()) {
        ("zeroifnull", [value]) => {
            let zero = cast(zero, DataType::Int(None));
            call("coalesce", vec![(*value).clone(), zero], span)
        }
        ("nullifzero", [value]) => call("nullif", vec![(*value).clone(), zero], span),
        ("assert_true", [condition]) => {
            let message = text(format!("'{condition}' is not true!"), span);
            call("assert_true", vec![(*condition).clone(), message], span)
        }
        ("convert_timezone", [target, time]) => {
            let source = text("UTC".to_owned(), span);
            call("convert_timezone", vec![source, (*target).clone(), (*time).clone()], span)
        }
        _ => expr,
    }
}

/// `ltrim(what, text)` and `rtrim(what, text)` name the text last, unlike DataFusion's.
pub(crate) fn trimmed_last(function: &mut Function) {
    if matches!(function_name(function).as_str(), "ltrim" | "rtrim")
        && let FunctionArguments::List(list) = &mut function.args
        && list.args.len() == 2
    {
        list.args.reverse();
    }
}

/// Functions whose result has the type of their arguments.
pub(crate) const KEEPS_TYPES: &[&str] = &[
    "aggregate",
    "array",
    "coalesce",
    "greatest",
    "if",
    "ifnull",
    "least",
    "map",
    "named_struct",
    "nullifzero",
    "nvl",
    "nvl2",
    "reduce",
    "zeroifnull",
];

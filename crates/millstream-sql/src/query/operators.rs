//! Spark's operators that DataFusion has as calls, and the other way round.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CaseWhen, CeilFloorKind, DataType, Expr, Function, FunctionArguments, Spanned,
    UnaryOperator, Value, ValueWithSpan, helpers::attached_token::AttachedToken, visit_expressions,
};

use super::ast::{any, arguments, binary, call, cast, function_name, take, text};
use super::casts::as_int;
use crate::diagnostic::Diagnostic;
use crate::functions::collated::COLLATE;
use crate::syntax::lexer::{Lexed, UNSIGNED_SHIFT};

/// `a RLIKE b` as a call.
pub(crate) fn rlike(expr: Expr) -> Expr {
    let Expr::RLike { negated, expr, pattern, .. } = expr else { return expr };
    let span = expr.span();
    let call = call("rlike", vec![*expr, *pattern], span);
    if negated { Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(call) } } else { call }
}

/// `a COLLATE name` as a call.
pub(crate) fn collated(expr: Expr) -> Expr {
    let Expr::Collate { expr, collation } = expr else { return expr };
    let span = expr.span();
    let parts = collation.0.iter().filter_map(|part| part.as_ident());
    let name = parts.map(|part| part.value.as_str()).collect::<Vec<_>>().join(".");
    call(COLLATE, vec![*expr, text(name, span)], span)
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
fn conditional(expr: Expr) -> Expr {
    let Expr::Function(function) = &expr else { return expr };
    let args: Vec<&Expr> = arguments(function).collect();
    let [condition, result, otherwise] = args.as_slice() else { return expr };
    let condition = match is_null(condition) {
        // A CASE takes no condition without a type.
        true => cast((*condition).clone(), DataType::Boolean),
        false => (*condition).clone(),
    };
    case(condition, (*result).clone(), (*otherwise).clone())
}

/// `CASE WHEN condition THEN result ELSE otherwise END`
fn case(condition: Expr, result: Expr, otherwise: Expr) -> Expr {
    Expr::Case {
        case_token: AttachedToken::empty(),
        end_token: AttachedToken::empty(),
        operand: None,
        conditions: vec![CaseWhen { condition, result }],
        else_result: Some(Box::new(otherwise)),
    }
}

/// Calls that DataFusion has other words for. `is_batch` is false where plans have to stay what
/// checkpoints know of them.
pub(crate) fn in_other_words(
    lexed: &Lexed,
    expr: &mut Expr,
    is_batch: bool,
) -> Result<(), Diagnostic> {
    let Expr::Function(function) = &*expr else { return Ok(()) };
    if function_name(function) == "if" && function.over.is_none() {
        take(expr, conditional);
    } else if let Some(case) = decoded(lexed, function)? {
        *expr = case;
    } else if let Some(case) = by_null(function).filter(|_| is_batch) {
        *expr = case;
    } else if let Some(case) = number_or_other(function).filter(|_| is_batch) {
        *expr = case;
    } else {
        take(expr, |expr| with_constant(expr, is_batch));
    }
    Ok(())
}

/// `nvl2(value, one, other)` as a CASE: the value may have any type, and only the others have one
/// in common.
fn by_null(function: &Function) -> Option<Expr> {
    let args: Vec<&Expr> = arguments(function).collect();
    let ([value, one, other], "nvl2") = (args.as_slice(), function_name(function).as_str()) else {
        return None;
    };
    let is_given = Expr::IsNotNull(Box::new(nested(value)));
    function.over.is_none().then(|| case(is_given, (*one).clone(), (*other).clone()))
}

/// `nanvl(value, other)` as a CASE that computes the other value where it is needed alone. The call
/// stays in it for the type. A value that is itself computed by a call or a query would be there
/// three times, and those within it as often again.
fn number_or_other(function: &Function) -> Option<Expr> {
    let args: Vec<&Expr> = arguments(function).collect();
    let ([value, other], "nanvl") = (args.as_slice(), function_name(function).as_str()) else {
        return None;
    };
    let is_costly = |part: &Expr| {
        matches!(
            part,
            Expr::Function(_)
                | Expr::Subquery(_)
                | Expr::InSubquery { .. }
                | Expr::Exists { .. }
                | Expr::Nested(_)
        )
    };
    if any(value, is_costly) || function.over.is_some() {
        return None;
    }
    let span = function.name.span();
    let is_none = call("isnan", vec![nested(value)], span);
    let chosen = call("nanvl", vec![nested(value), (*other).clone()], span);
    Some(case(is_none, chosen, nested(value)))
}

/// How large what `decode` compares becomes at most when it is written out for each comparison.
const DECODED_BYTES_MAX: usize = 1 << 20;

/// `decode(value, search, result, ..., default)` as a CASE. NULL is found where NULL is searched.
///
/// # Errors
/// The value would be written out too often: it is there once for each comparison.
fn decoded(lexed: &Lexed, function: &Function) -> Result<Option<Expr>, Diagnostic> {
    let args: Vec<&Expr> = arguments(function).collect();
    let [value, rest @ ..] = args.as_slice() else { return Ok(None) };
    if function_name(function) != "decode" || rest.len() < 2 {
        return Ok(None);
    }
    let (pairs, default) = rest.as_chunks::<2>();
    let written = value.to_string().to_lowercase();
    // In queries within it, too: each would be written out again for each comparison.
    let is_nested = visit_expressions(*value, |part: &Expr| match part {
        Expr::Function(call) if function_name(call) == "decode" && arguments(call).count() > 2 => {
            ControlFlow::Break(())
        }
        _ => ControlFlow::Continue(()),
    })
    .is_break();
    if is_nested || written.len().saturating_mul(pairs.len()) > DECODED_BYTES_MAX {
        let diagnostic = Diagnostic::nowhere("the value that `decode` compares is too large");
        let help = "compute it in a subquery and give it a name, or write CASE x WHEN ...";
        return Err(Diagnostic { span: lexed.span(value.span()), ..diagnostic.help(help) });
    }
    let conditions = pairs.iter().map(|[search, result]| CaseWhen {
        condition: is_same(value, search),
        result: (*result).clone(),
    });
    let null = || cast(Expr::Value(Value::Null.with_span(value.span())), DataType::String(None));
    let otherwise = default.first().map_or_else(null, |default| (*default).clone());
    Ok(Some(Expr::Case {
        case_token: AttachedToken::empty(),
        end_token: AttachedToken::empty(),
        operand: None,
        conditions: conditions.collect(),
        else_result: Some(Box::new(otherwise)),
    }))
}

/// Whether two values are equal, or both NULL.
fn is_same(one: &Expr, other: &Expr) -> Expr {
    match (is_null(one), is_null(other)) {
        (_, true) => Expr::IsNull(Box::new(one.clone())),
        (true, _) => Expr::IsNull(Box::new(other.clone())),
        _ => binary(nested(one), BinaryOperator::Spaceship, nested(other)),
    }
}

fn nested(expr: &Expr) -> Expr {
    Expr::Nested(Box::new(expr.clone()))
}

fn is_null(expr: &Expr) -> bool {
    matches!(expr, Expr::Value(ValueWithSpan { value: Value::Null, .. }))
}

/// Calls that are another one with a constant: `zeroifnull(x)` is `coalesce(x, 0)`.
fn with_constant(expr: Expr, is_batch: bool) -> Expr {
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
            // A stream has the zone UTC.
            let source = match is_batch {
                true => call("current_timezone", Vec::new(), span),
                false => text("UTC".to_owned(), span),
            };
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
    "decode",
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

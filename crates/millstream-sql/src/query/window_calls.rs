//! Windows of event time in the text of a query.
//!
//! The intervals of `window(ts, '1 minute')` become microseconds here, where their places are
//! known, so that two calls that mean the same are the same. And in a query block that groups by a
//! window, the names `window` and `session_window` mean that window, unless something in FROM is
//! called so.

use arrow::datatypes::DataType;
use datafusion::sql::sqlparser::ast::{
    AccessExpr, DataType as SqlType, Expr, Function, GroupByExpr, Ident, Select, SelectItem,
    Spanned, UnaryOperator, Value, ValueWithSpan,
};
use datafusion::sql::sqlparser::tokenizer;

use super::ast::{arguments, call, function_name, item_expr, text};
use super::frame::Frame;
use super::shapes::leading_name;
use crate::diagnostic::Diagnostic;
use crate::functions::windows::{SESSION, WINDOW, window_type};
use crate::nearest::suggest;
use crate::syntax::lexer::Lexed;
use crate::types::timestamp;
use crate::values::interval::parse_interval;

/// The name of the window that `expr` calls.
pub(crate) fn window_name(expr: &Expr) -> Option<&'static str> {
    match expr {
        Expr::Function(function) => {
            let name = function_name(function);
            [WINDOW, SESSION].into_iter().find(|window| *window == name)
        }
        Expr::Nested(inner) => window_name(inner),
        _ => None,
    }
}

/// The window that a query block groups by: as a call, or by an alias, a number or ALL.
pub(crate) fn grouped_window(select: &Select) -> Option<Expr> {
    let items = || select.projection.iter();
    let groups = match &select.group_by {
        GroupByExpr::All(_) => {
            return items().filter_map(item_expr).find(|expr| window_name(expr).is_some()).cloned();
        }
        GroupByExpr::Expressions(groups, _) => groups,
    };
    let aliased = |name: &str| {
        items().find_map(|item| match item {
            SelectItem::ExprWithAlias { expr, alias } if alias.value.eq_ignore_ascii_case(name) => {
                Some(expr)
            }
            _ => None,
        })
    };
    let numbered = |digits: &str| {
        let number: usize = digits.parse().ok()?;
        items().nth(number.checked_sub(1)?).and_then(item_expr)
    };
    let sets = |group: &Expr| match group {
        Expr::Rollup(sets) | Expr::Cube(sets) | Expr::GroupingSets(sets) => {
            sets.iter().flatten().cloned().collect()
        }
        other => vec![other.clone()],
    };
    groups.iter().flat_map(sets).find_map(|group| {
        let meant = match &group {
            Expr::Identifier(ident) => aliased(&ident.value)?,
            Expr::Value(ValueWithSpan { value: Value::Number(digits, _), .. }) => numbered(digits)?,
            other => other,
        };
        window_name(meant).map(|_| meant.clone())
    })
}

/// The type of a window's column, for the names of its fields.
pub(crate) fn type_of(call: &Expr, frame: &Frame) -> Option<DataType> {
    window_name(call)?;
    let Expr::Function(function) = call else { return None };
    let time = arguments(function).next().and_then(|time| frame.data_type(time));
    window_type(&time.unwrap_or_else(timestamp)).or_else(|_| window_type(&timestamp())).ok()
}

/// Puts the window that the block groups by in the place of its name.
pub(crate) fn put_in(lexed: &Lexed, frame: &Frame, expr: &mut Expr) -> Result<(), Diagnostic> {
    let parts = match expr {
        Expr::Identifier(ident) => std::slice::from_ref(ident),
        Expr::CompoundIdentifier(parts) => parts.as_slice(),
        _ => return Ok(()),
    };
    let Some(window) = frame.group_window(parts) else { return Ok(()) };
    let mut value = window.clone();
    if parts.len() == 1 && frame.result_first && frame.alias(&parts[0].value).is_some() {
        return Ok(());
    }
    for part in &parts[1..] {
        value = field(lexed, value, part)?;
    }
    *expr = value;
    Ok(())
}

/// A bound of a window.
fn field(lexed: &Lexed, window: Expr, name: &Ident) -> Result<Expr, Diagnostic> {
    let known = ["start", "end"];
    let Some(known) = known.into_iter().find(|known| known.eq_ignore_ascii_case(&name.value))
    else {
        let message = format!("a window has no field `{}`", name.value);
        let span = lexed.span(name.span);
        let help = suggest(&name.value, "fields", known);
        return Err(Diagnostic { span, ..Diagnostic::nowhere(message).help(help) });
    };
    Ok(call("get_field", vec![window, text(known.to_owned(), name.span)], name.span))
}

/// Makes calls of `value.field`, for values that are no columns: DataFusion reads no such path.
pub(crate) fn fields_of_values(lexed: &Lexed, expr: &mut Expr) -> Result<(), Diagnostic> {
    let Expr::CompoundFieldAccess { root, access_chain } = expr else { return Ok(()) };
    let Some((mut value, rest)) = leading_name(root, access_chain) else { return Ok(()) };
    if rest.len() == access_chain.len()
        && !rest.iter().any(|access| matches!(access, AccessExpr::Dot(_)))
    {
        return Ok(());
    }
    for access in rest {
        value = match access {
            AccessExpr::Dot(Expr::Identifier(name)) => match window_name(&value) {
                Some(_) => field(lexed, value, name)?,
                None => {
                    let args = vec![value, text(name.value.clone(), name.span)];
                    call("field_of", args, name.span)
                }
            },
            AccessExpr::Subscript(_) => Expr::CompoundFieldAccess {
                root: Box::new(value),
                access_chain: vec![access.clone()],
            },
            AccessExpr::Dot(_) => return Ok(()),
        };
    }
    *expr = value;
    Ok(())
}

/// The name of `window(...).start`, where `expr` is that or another path into a value.
pub(crate) fn path_name(expr: &Expr, name_of: fn(&Expr) -> String) -> Option<String> {
    let Expr::CompoundFieldAccess { root, access_chain } = expr else { return None };
    let mut name = name_of(root);
    for access in access_chain {
        let AccessExpr::Dot(Expr::Identifier(field)) = access else { return None };
        name = format!("{name}.{}", field.value);
    }
    Some(name)
}

/// Checks the arguments of a window and makes its intervals microseconds.
pub(crate) fn normalise(lexed: &Lexed, function: &mut Function) -> Result<(), Diagnostic> {
    let name = function_name(function);
    let args: Vec<Expr> = arguments(function).cloned().collect();
    let normalised = match name.as_str() {
        WINDOW => time_window(lexed, function, args)?,
        SESSION => session_window(lexed, function, args)?,
        _ => return Ok(()),
    };
    let span = function.name.0[0].span();
    if let Expr::Function(Function { args, .. }) = call(&name, normalised, span) {
        function.args = args;
    }
    Ok(())
}

fn wrong(lexed: &Lexed, at: &impl Spanned, message: impl Into<String>) -> Diagnostic {
    Diagnostic { span: lexed.span(at.span()), ..Diagnostic::nowhere(message) }
}

fn time_window(
    lexed: &Lexed,
    function: &Function,
    args: Vec<Expr>,
) -> Result<Vec<Expr>, Diagnostic> {
    let [time, lengths @ ..] = args.as_slice() else { return Err(count(lexed, function)) };
    if lengths.is_empty() || lengths.len() > 3 {
        return Err(count(lexed, function));
    }
    let names = ["size", "slide", "start"];
    let lengths_us = lengths.iter().zip(names).map(|(length, name)| length_us(lexed, length, name));
    let lengths_us = lengths_us.collect::<Result<Vec<_>, _>>()?;
    let size_us = lengths_us[0];
    let slide_us = lengths_us.get(1).copied().unwrap_or(size_us);
    let start_us = lengths_us.get(2).copied().unwrap_or(0);
    if size_us <= 0 {
        return Err(wrong(lexed, &lengths[0], "the size of a window must be more than nothing"));
    }
    if slide_us <= 0 {
        return Err(wrong(lexed, &lengths[1], "the slide of a window must be more than nothing"));
    }
    if slide_us > size_us {
        let message = "windows must not be further apart than they are long";
        let help = "the slide is at most the size: window(ts, '10 minutes', '5 minutes')";
        return Err(wrong(lexed, &lengths[1], message).help(help));
    }
    if start_us.checked_abs().is_none_or(|start_us| start_us >= slide_us) {
        let message = "the start of a window must be shorter than its slide";
        return Err(wrong(lexed, &lengths[2], message));
    }
    let mut normalised = vec![time.clone()];
    for (at, us) in [size_us, slide_us, start_us].into_iter().enumerate() {
        let span = lengths.get(at).unwrap_or(&lengths[0]).span();
        normalised.push(number(us, span));
    }
    Ok(normalised)
}

fn count(lexed: &Lexed, function: &Function) -> Diagnostic {
    let message = "a window has a time and a size, and may have a slide and a start";
    let help = "write window(ts, '10 minutes') or window(ts, '10 minutes', '5 minutes')";
    wrong(lexed, &function.name, message).help(help)
}

fn session_window(
    lexed: &Lexed,
    function: &Function,
    mut args: Vec<Expr>,
) -> Result<Vec<Expr>, Diagnostic> {
    let help = "write session_window(ts, '5 minutes')";
    let [_, gap] = args.as_mut_slice() else {
        let message = "a session window has a time and a gap";
        return Err(wrong(lexed, &function.name, message).help(help));
    };
    if whole_number(gap).is_some() {
        let message = "a session window needs an interval as its gap";
        return Err(wrong(lexed, gap, message).help(help));
    }
    if let Some(text) = literal_text(gap) {
        let interval = parse_interval(text);
        let interval = interval.map_err(|error| wrong(lexed, gap, error.to_string()).help(help))?;
        // Months go by the calendar, so the text stays.
        if interval.months == 0 {
            *gap = number(interval.us, gap.span());
        }
    }
    Ok(args)
}

fn literal_text(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), .. }) => Some(text),
        _ => None,
    }
}

/// The microseconds of a literal, which is an interval's text or a number of them.
fn length_us(lexed: &Lexed, length: &Expr, name: &str) -> Result<i64, Diagnostic> {
    let help = "write an interval in quotes, such as '10 seconds'";
    if let Some(text) = literal_text(length) {
        let interval = parse_interval(text);
        let interval =
            interval.map_err(|error| wrong(lexed, length, error.to_string()).help(help))?;
        if interval.months != 0 {
            let message = "a window of months has no fixed length";
            return Err(wrong(lexed, length, message).help("write days: '30 days'"));
        }
        return Ok(interval.us);
    }
    if let Expr::UnaryOp { op: UnaryOperator::Minus, expr } = length
        && let Some(us) = whole_number(expr).and_then(i64::checked_neg)
    {
        return Ok(us);
    }
    whole_number(length).ok_or_else(|| {
        wrong(lexed, length, format!("the {name} of a window must be a literal")).help(help)
    })
}

/// A whole number, also with a type (`10L`), which has been made a cast of its digits.
fn whole_number(expr: &Expr) -> Option<i64> {
    match expr {
        Expr::Value(ValueWithSpan { value: Value::Number(digits, _), .. }) => digits.parse().ok(),
        Expr::Cast { expr, data_type: SqlType::BigInt(_), .. } => {
            literal_text(expr).and_then(|digits| digits.parse().ok())
        }
        _ => None,
    }
}

fn number(us: i64, span: tokenizer::Span) -> Expr {
    let value = Value::Number(us.unsigned_abs().to_string(), false);
    let number = Expr::Value(ValueWithSpan { value, span });
    match us {
        0.. => number,
        _ => Expr::UnaryOp { op: UnaryOperator::Minus, expr: Box::new(number) },
    }
}

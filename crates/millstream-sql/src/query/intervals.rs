//! `INTERVAL ...` as a call that gives an interval of Spark's types; DataFusion would make one of
//! months, days and less at the same time.
//!
//! In the frame of a window it stays an interval, since DataFusion reads it there itself.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, DataType, Expr, Function, Interval, NamedWindowDefinition, NamedWindowExpr,
    Spanned, UnaryOperator, Value, ValueWithSpan, WindowFrame, WindowFrameBound, WindowFrameUnits,
    WindowSpec, WindowType,
};
use datafusion::sql::sqlparser::tokenizer::Span;

use super::ast::{call, text};
use crate::diagnostic::Diagnostic;
use crate::syntax::lexer::Lexed;
use crate::values::calendar::DAY_US;
use crate::values::interval_literal::{
    CALENDAR_INTERVAL, INTERVAL_OF, IntervalLiteral, is_of_months, with_fields, with_units,
};

/// Marks an interval that is to stay one: no precision is so large.
const IN_FRAME: u64 = u64::MAX;

/// Rewrites an interval in place, and a cast to INTERVAL: over a stream that stays DataFusion's, as
/// checkpoints know it.
pub(crate) fn rewrite(lexed: &Lexed, expr: &mut Expr, is_batch: bool) -> Result<(), Diagnostic> {
    if is_batch
        && let Expr::Cast { expr: value, data_type, .. } = &*expr
        && matches!(data_type, DataType::Interval { fields: None, .. })
    {
        *expr = call(CALENDAR_INTERVAL, vec![value.as_ref().clone()], expr.span());
        return Ok(());
    }
    let (negative, interval) = match &*expr {
        Expr::Interval(interval) => (false, interval),
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match &**expr {
            Expr::Interval(interval) => (true, interval),
            _ => return Ok(()),
        },
        _ => return Ok(()),
    };
    if interval.leading_precision == Some(IN_FRAME) {
        return Ok(());
    }
    let span = expr.span();
    let found = read(interval, negative)
        .map_err(|problem| Diagnostic { span: lexed.span(span), ..Diagnostic::nowhere(problem) })?;
    let args = vec![text(found.count.to_string(), span), text(found.fields, span)];
    *expr = call(INTERVAL_OF, args, span);
    Ok(())
}

/// The frame of a call OVER a window, with its intervals as DataFusion reads them.
pub(crate) fn frame_of_call(lexed: &Lexed, function: &mut Function) -> Result<(), Diagnostic> {
    match &mut function.over {
        Some(WindowType::WindowSpec(spec)) => frame_of(lexed, spec),
        _ => Ok(()),
    }
}

/// The same for windows with names.
pub(crate) fn frames_of(lexed: &Lexed, windows: &mut [NamedWindowDefinition]) -> Vec<Diagnostic> {
    let frames = windows.iter_mut().filter_map(|window| match &mut window.1 {
        NamedWindowExpr::WindowSpec(spec) => frame_of(lexed, spec).err(),
        NamedWindowExpr::NamedWindow(_) => None,
    });
    frames.collect()
}

fn frame_of(lexed: &Lexed, spec: &mut WindowSpec) -> Result<(), Diagnostic> {
    let span = spec.order_by.first().map_or_else(Span::empty, |order| order.expr.span());
    let Some(WindowFrame { units, start_bound, end_bound }) = &mut spec.window_frame else {
        return Ok(());
    };
    if *units == WindowFrameUnits::Groups {
        let message = "a frame has ROWS or RANGE, and no GROUPS";
        let help = "number the groups with dense_rank(), and write RANGE over that number";
        return Err(Diagnostic {
            span: lexed.span(span),
            ..Diagnostic::nowhere(message).help(help)
        });
    }
    if *units == WindowFrameUnits::Range
        && let Some(end) = end_bound
    {
        same_fields(lexed, span, start_bound, end)?;
    }
    for bound in std::iter::once(start_bound).chain(end_bound) {
        if *units == WindowFrameUnits::Rows {
            rows_of(lexed, bound)?;
        }
        let (WindowFrameBound::Preceding(Some(of)) | WindowFrameBound::Following(Some(of))) = bound
        else {
            continue;
        };
        let Expr::Interval(interval) = of.as_mut() else { continue };
        if let Ok(found) = read(interval, false) {
            **of = Expr::Interval(in_frame(&found));
        } else if let Some(number) = boundless(interval) {
            **of = number;
        }
    }
    Ok(())
}

/// Refuses a RANGE between INTERVALs of two types, such as one of days and one of hours.
fn same_fields(
    lexed: &Lexed,
    at: Span,
    start: &WindowFrameBound,
    end: &WindowFrameBound,
) -> Result<(), Diagnostic> {
    let fields = |bound: &WindowFrameBound| match bound {
        WindowFrameBound::Preceding(Some(of)) | WindowFrameBound::Following(Some(of)) => {
            let Expr::Interval(interval) = of.as_ref() else { return None };
            let found = read(interval, false).ok()?;
            Some(found.fields)
        }
        _ => None,
    };
    let (Some(start), Some(end)) = (fields(start), fields(end)) else { return Ok(()) };
    if start == end {
        return Ok(());
    }
    let message = format!(
        "the bounds of a RANGE are INTERVALs of {start} and of {end}, and must be of one type \
         (DATATYPE_MISMATCH)"
    );
    let help = "write both in one unit";
    Err(Diagnostic { span: lexed.span(at), ..Diagnostic::nowhere(message).help(help) })
}

/// Computes a number of rows, which is a constant: DataFusion reads numbers, and none below zero.
/// What is no INT is refused.
fn rows_of(lexed: &Lexed, bound: &mut WindowFrameBound) -> Result<(), Diagnostic> {
    let (of, is_before) = match &*bound {
        WindowFrameBound::Preceding(Some(of)) => (of.as_ref(), true),
        WindowFrameBound::Following(Some(of)) => (of.as_ref(), false),
        _ => return Ok(()),
    };
    if matches!(of, Expr::Interval(_)) {
        return Ok(());
    }
    let count = whole(of);
    let Some(count) = count.filter(|count| i32::try_from(*count).is_ok()) else {
        let is_number = matches!(of, Expr::Value(_)) || count.is_some();
        let message = match is_number {
            true => format!("the bounds of ROWS are INTs, and {of} is none"),
            false => "a bound of ROWS is a number here, not an expression".to_owned(),
        };
        let help = "write a whole number up to 2147483647, or UNBOUNDED";
        let diagnostic = Diagnostic::nowhere(message).help(help);
        return Err(Diagnostic { span: lexed.span(of.span()), ..diagnostic });
    };
    let digits = Value::Number(count.unsigned_abs().to_string(), false);
    let rows = Some(Box::new(Expr::Value(digits.with_span(of.span()))));
    *bound = match is_before == (count >= 0) {
        true => WindowFrameBound::Preceding(rows),
        false => WindowFrameBound::Following(rows),
    };
    Ok(())
}

/// The whole number that an expression of such numbers is.
fn whole(expr: &Expr) -> Option<i64> {
    match expr {
        Expr::Value(ValueWithSpan { value: Value::Number(digits, false), .. }) => {
            digits.parse().ok()
        }
        Expr::Nested(inner) => whole(inner),
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => whole(expr)?.checked_neg(),
        Expr::UnaryOp { op: UnaryOperator::Plus, expr } => whole(expr),
        Expr::BinaryOp { left, op, right } => {
            let (left, right) = (whole(left)?, whole(right)?);
            match op {
                BinaryOperator::Plus => left.checked_add(right),
                BinaryOperator::Minus => left.checked_sub(right),
                BinaryOperator::Multiply => left.checked_mul(right),
                _ => None,
            }
        }
        _ => None,
    }
}

/// A text in a frame that is read as an interval, and says that there is no end or no number.
fn boundless(interval: &Interval) -> Option<Expr> {
    let Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(word), span }) =
        interval.value.as_ref()
    else {
        return None;
    };
    let number = match word.trim().to_lowercase().as_str() {
        "inf" | "infinity" => "inf",
        "nan" => "NaN",
        _ => return None,
    };
    let is_alone = interval.leading_field.is_none() && interval.last_field.is_none();
    let number = Value::Number(number.to_owned(), false).with_span(*span);
    is_alone.then_some(Expr::Value(number))
}

fn in_frame(found: &IntervalLiteral) -> Interval {
    let content = if is_of_months(&found.fields) {
        format!("{} months", found.count)
    } else {
        let (days, us) = (found.count / DAY_US, found.count % DAY_US);
        format!("{days} days {us} microseconds")
    };
    let nowhere = Span::empty();
    Interval {
        value: Box::new(text(content, nowhere)),
        leading_field: None,
        leading_precision: Some(IN_FRAME),
        last_field: None,
        fractional_seconds_precision: None,
    }
}

/// Reads an interval, with a minus before it if it is `negated`.
fn read(interval: &Interval, negated: bool) -> Result<IntervalLiteral, String> {
    let (negative, value) = written(&interval.value)?;
    let found = match (&interval.leading_field, &interval.last_field) {
        (None, _) => with_units(&value),
        (Some(unit), None)
            if value.trim().trim_start_matches(['-', '+']).trim().contains(char::is_whitespace) =>
        {
            Err(format!("'{value}' is no number of {unit}"))
        }
        (Some(unit), None) => with_units(&format!("{} {unit}", value.trim())),
        (Some(from), Some(to)) => with_fields(&value, &from.to_string(), &to.to_string()),
    }?;
    let count = if negative != negated { found.count.checked_neg() } else { Some(found.count) };
    let count = count.filter(|count| !is_of_months(&found.fields) || i32::try_from(*count).is_ok());
    match count {
        Some(count) => Ok(IntervalLiteral { count, ..found }),
        None => Err("the interval is too long".to_owned()),
    }
}

/// The text or number of an interval, and whether a minus stands before it.
fn written(value: &Expr) -> Result<(bool, String), String> {
    match value {
        Expr::Value(ValueWithSpan { value, .. }) => match value {
            Value::SingleQuotedString(text) | Value::DoubleQuotedString(text) => {
                Ok((false, text.clone()))
            }
            Value::Number(digits, false) => Ok((false, digits.clone())),
            other => Err(format!("{other} is no interval")),
        },
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => {
            written(expr).map(|(negative, text)| (!negative, text))
        }
        Expr::UnaryOp { op: UnaryOperator::Plus, expr } => written(expr),
        other => Err(format!("an interval is a number or a text with a unit, and not {other}")),
    }
}

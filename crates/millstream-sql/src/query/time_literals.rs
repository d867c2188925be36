//! `TIME '12:30:00'` as a call that gives the time; to DataFusion it would be a cast, and there are
//! no casts to TIME.
//!
//! `DATE 'today'` and its like as calls too, and `CAST('today' AS DATE)`: only a text that stands
//! in the query can be such a word, a column cannot. A stream goes on for days, in which Spark
//! keeps the day that the query began on; so over a stream the word is refused, as a text that is
//! no date.

use datafusion::sql::sqlparser::ast::{
    DataType, Expr, Spanned, TimezoneInfo, TypedString, Value, ValueWithSpan,
};
use datafusion::sql::sqlparser::tokenizer;

use super::ast::{arguments_mut, call, cast, function_name, text};
use crate::diagnostic::Diagnostic;
use crate::functions::times_of_day::TIME_OF;
use crate::syntax::lexer::Lexed;
use crate::values::calendar::parse_timestamp_without_zone;
use crate::values::time_of_day::parse_time;

/// Rewrites a literal in place.
pub(super) fn rewrite(lexed: &Lexed, expr: &mut Expr, is_batch: bool) -> Result<(), Diagnostic> {
    word_of_time(expr, is_batch);
    time_alone(expr);
    time_of_day(lexed, expr)
}

/// `hour('10:11:12')`: a time without a date is one of today, which these functions do not ask for.
fn time_alone(expr: &mut Expr) {
    let Expr::Function(function) = expr else { return };
    if !matches!(function_name(function).as_str(), "hour" | "minute" | "second") {
        return;
    }
    let mut args = arguments_mut(function);
    if let (Some(Expr::Value(literal)), None) = (args.next(), args.next())
        && let Value::SingleQuotedString(text) | Value::DoubleQuotedString(text) =
            &mut literal.value
    {
        let time = text.trim();
        let dated = format!("1970-01-01T{}", time.strip_prefix('T').unwrap_or(time));
        if time.contains(':') && parse_timestamp_without_zone(&dated).is_some() {
            *text = dated;
        }
    }
}

/// A DATE or a TIMESTAMP of which a word says when it is.
fn word_of_time(expr: &mut Expr, is_batch: bool) {
    let (data_type, literal) = match expr {
        Expr::TypedString(TypedString { data_type, value: literal, .. }) => (data_type, literal),
        Expr::Cast { expr: of, data_type, .. } => match of.as_mut() {
            Expr::Value(literal) => (data_type, literal),
            _ => return,
        },
        _ => return,
    };
    let is_date = match data_type.to_string().to_uppercase().trim_matches('`') {
        "DATE" => true,
        "TIMESTAMP" | "TIMESTAMP_LTZ" | "TIMESTAMP_NTZ" => false,
        _ => return,
    };
    let (span, data_type) = (literal.span, data_type.clone());
    let (Value::SingleQuotedString(written) | Value::DoubleQuotedString(written)) =
        &mut literal.value
    else {
        return;
    };
    let today = || call("current_date", Vec::new(), span);
    let day = match written.trim().to_lowercase().as_str() {
        "epoch" => {
            let epoch = if is_date || !is_batch { "1970-01-01" } else { "1970-01-01 00:00:00Z" };
            epoch.clone_into(written);
            return;
        }
        _ if !is_batch => return,
        "now" if !is_date => call("current_timestamp", Vec::new(), span),
        "now" | "today" => today(),
        "tomorrow" => call("date_add", vec![today(), number("1", span)], span),
        "yesterday" => call("date_sub", vec![today(), number("1", span)], span),
        _ => return,
    };
    *expr = if is_date { day } else { cast(day, data_type) };
}

fn number(digits: &str, span: tokenizer::Span) -> Expr {
    Expr::Value(Value::Number(digits.to_owned(), false).with_span(span))
}

fn time_of_day(lexed: &Lexed, expr: &mut Expr) -> Result<(), Diagnostic> {
    let Expr::TypedString(TypedString {
        data_type: DataType::Time(None, TimezoneInfo::None),
        value: ValueWithSpan { value, span },
        ..
    }) = &*expr
    else {
        return Ok(());
    };
    let (Value::SingleQuotedString(written) | Value::DoubleQuotedString(written)) = value else {
        return Ok(());
    };
    let Some(us) = parse_time(written) else {
        let message = format!("'{written}' is no TIME (INVALID_TYPED_LITERAL)");
        let diagnostic = Diagnostic::nowhere(message).help("write TIME'12:30:00.5'");
        return Err(Diagnostic { span: lexed.span(*span), ..diagnostic });
    };
    let (us, span) = (text(us.to_string(), *span), expr.span());
    *expr = call(TIME_OF, vec![us], span);
    Ok(())
}

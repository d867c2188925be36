//! Calls that name a unit of time: `timestampadd(MONTH, 1, t)` and `timestampdiff(DAY, a, b)`, and
//! `dateadd`, `date_add`, `datediff`, `date_diff` and `timediff` with three arguments.
//!
//! The unit is a word, no text and no column, so it is read here.

use datafusion::sql::sqlparser::ast::{Expr, Spanned};

use super::ast::{arguments, call, function_name, text};
use crate::diagnostic::Diagnostic;
use crate::syntax::lexer::Lexed;

const UNITS: &[&str] = &[
    "YEAR",
    "QUARTER",
    "MONTH",
    "WEEK",
    "DAY",
    "DAYOFYEAR",
    "HOUR",
    "MINUTE",
    "SECOND",
    "MILLISECOND",
    "MICROSECOND",
];

/// Rewrites a call where it is one of these.
pub(super) fn rewrite(lexed: &Lexed, expr: &mut Expr) -> Result<(), Diagnostic> {
    let Expr::Function(function) = &*expr else { return Ok(()) };
    let name = function_name(function);
    let moves = match name.as_str() {
        "timestampadd" | "dateadd" | "date_add" => true,
        "timestampdiff" | "datediff" | "date_diff" | "timediff" => false,
        _ => return Ok(()),
    };
    let args: Vec<&Expr> = arguments(function).collect();
    let [unit, first, second] = args.as_slice() else { return Ok(()) };
    let span = function.name.0[0].span();
    let known = match unit {
        Expr::Identifier(word) if word.quote_style.is_none() => {
            let upper = word.value.to_uppercase();
            UNITS.iter().find(|unit| **unit == upper)
        }
        _ => None,
    };
    let Some(known) = known else {
        let message = format!("`{name}` has a unit of time as its first argument, not `{unit}`");
        let help = format!("the units are {}", UNITS.join(", "));
        let span = lexed.span(unit.span());
        return Err(Diagnostic { span, ..Diagnostic::nowhere(message).help(help) });
    };
    let function = if moves { "time_moved" } else { "time_between" };
    let unit = text((*known).to_owned(), span);
    *expr = call(function, vec![unit, (*first).clone(), (*second).clone()], span);
    Ok(())
}

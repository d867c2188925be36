//! `timestampadd(DAY, n, t)` and `timestampdiff(MONTH, a, b)`, by all their names: the unit is a
//! word, which must not be taken for a column.

use datafusion::sql::sqlparser::ast::{Expr, Function, Ident, Spanned};

use super::ast::{arguments, call, function_name, text};
use crate::diagnostic::Diagnostic;
use crate::syntax::lexer::Lexed;
use crate::values::time_units::{TIME_ADD, TIME_DIFFERENCE, unit_names, unit_of};

/// The function that a call with a unit is one of, and its arguments.
fn parts(function: &Function) -> Option<(&'static str, [&Expr; 3])> {
    let name = match function_name(function).as_str() {
        "timestampadd" | "dateadd" | "date_add" => TIME_ADD,
        "timestampdiff" | "datediff" | "date_diff" | "timediff" => TIME_DIFFERENCE,
        _ => return None,
    };
    let args: Vec<&Expr> = arguments(function).collect();
    let [unit, first, second] = args[..] else { return None };
    Some((name, [unit, first, second]))
}

/// The word that is the unit of a call, and no name.
pub(super) fn unit(function: &Function) -> Option<&Ident> {
    let (_, [unit, ..]) = parts(function)?;
    match unit {
        Expr::Identifier(word) if is_unit(unit) => Some(word),
        _ => None,
    }
}

/// Rewrites a call with three arguments to one that has the unit as text.
pub(super) fn rewrite(lexed: &Lexed, expr: &mut Expr) -> Result<(), Diagnostic> {
    let Expr::Function(function) = &*expr else { return Ok(()) };
    let Some((name, [unit, first, second])) = parts(function) else { return Ok(()) };
    if !is_unit(unit) {
        let name = function_name(function);
        let message = format!("`{name}` has a unit of time as its first argument, not `{unit}`");
        let names: Vec<&str> = unit_names().collect();
        let help = format!("write one of {} as a word", names.join(", "));
        let span = lexed.span(unit.span());
        return Err(Diagnostic { span, ..Diagnostic::nowhere(message).help(help) });
    }
    let unit = text(unit.to_string(), unit.span());
    *expr = call(name, vec![unit, first.clone(), second.clone()], expr.span());
    Ok(())
}

fn is_unit(expr: &Expr) -> bool {
    match expr {
        Expr::Identifier(word) => word.quote_style.is_none() && unit_of(&word.value).is_some(),
        _ => false,
    }
}

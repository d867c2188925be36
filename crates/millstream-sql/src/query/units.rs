//! `timestampadd(DAY, n, t)` and `timestampdiff(MONTH, a, b)`, by all their names: the unit is a
//! word, which must not be taken for a column.

use datafusion::sql::sqlparser::ast::{Expr, Function, Spanned};

use super::ast::{arguments, call, function_name, text};
use crate::values::time_units::{TIME_ADD, TIME_DIFFERENCE, unit_of};

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

/// Whether the call has a unit of time as its first argument.
pub(crate) fn has_unit(function: &Function) -> bool {
    let unit = parts(function).map(|(_, [unit, ..])| unit);
    matches!(unit, Some(Expr::Identifier(word)) if unit_of(&word.value).is_some())
}

/// The call with its unit as text.
pub(crate) fn with_text(expr: Expr) -> Expr {
    let Expr::Function(function) = &expr else { return expr };
    let Some((name, [unit, first, second])) = parts(function) else { return expr };
    let (span, unit) = (expr.span(), text(unit.to_string(), unit.span()));
    call(name, vec![unit, first.clone(), second.clone()], span)
}

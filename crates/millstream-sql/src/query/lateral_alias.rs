//! An alias that is used further on in its own SELECT list, in a subquery whose FROM has columns
//! that are not known.
//!
//! To Spark `a` in `SELECT max(x) AS a, a + 1` is the alias, unless FROM has such a column. Where
//! it is not known whether it has, the alias is not put in ([`super::lateral_values`]), and
//! DataFusion takes `a` for a column of the query around the subquery where there is one. That is
//! refused, as it would be another answer.

use datafusion::sql::sqlparser::ast::{Expr, Select, SelectItem, Spanned};
use datafusion::sql::sqlparser::tokenizer;

use super::ast::{any, item_expr};
use super::frame::Frame;
use crate::diagnostic::Diagnostic;
use crate::syntax::lexer::Lexed;

/// The first use of an alias that a query around `select` has a column for. `around` are the
/// frames of these queries.
pub(super) fn check(
    lexed: &Lexed,
    select: &Select,
    own: &Frame,
    around: &[&Frame],
) -> Option<Diagnostic> {
    if around.is_empty() {
        return None;
    }
    let mut aliases = Vec::new();
    let mut found = None;
    for item in &select.projection {
        let is_use = |part: &Expr| {
            found = used(part, &aliases, own, around);
            found.is_some()
        };
        if item_expr(item).is_some_and(|expr| any(expr, is_use)) {
            break;
        }
        if let SelectItem::ExprWithAlias { alias, .. } = item {
            aliases.push(alias.value.as_str());
        }
    }
    let (name, span) = found?;
    let message = format!("`{name}` is an alias here, and a column outside of the subquery");
    let help = "give the alias another name, or say of which table the column is";
    Some(Diagnostic { span: lexed.span(span), ..Diagnostic::nowhere(message).help(help) })
}

/// The one of `aliases`, which stand before, that `part` is where a query around this one has a
/// column of the name.
fn used(
    part: &Expr,
    aliases: &[&str],
    own: &Frame,
    around: &[&Frame],
) -> Option<(String, tokenizer::Span)> {
    let parts = match part {
        Expr::Identifier(name) => std::slice::from_ref(name),
        Expr::CompoundIdentifier(parts) => parts.as_slice(),
        _ => return None,
    };
    let is_alias = |alias: &&str| alias.eq_ignore_ascii_case(&parts[0].value);
    let is_taken_from_around = aliases.iter().any(is_alias)
        && own.resolve(parts).is_none()
        && around.iter().any(|frame| frame.resolve(parts).is_some());
    is_taken_from_around.then(|| (parts[0].value.clone(), part.span()))
}

//! Names in the value of `a JOIN b EXACT NEAREST 3 BY DISTANCE value` that both sides have. Spark
//! refuses them; in the LATERAL subquery that the join becomes they would be of the right side.

use datafusion::sql::sqlparser::ast::{Expr, Ident, Select};

use super::ast::any;
use super::frame::Frame;
use super::twins::ambiguous;
use crate::diagnostic::Diagnostic;
use crate::syntax::lexer::Lexed;

/// Refuses such a name, where `select` is such a subquery, which has the place of the clause's
/// first word. `around` are the frames around it, the innermost first.
pub(super) fn check(
    lexed: &Lexed,
    select: &Select,
    frame: &Frame,
    around: &[&Frame],
) -> Option<Diagnostic> {
    let word = lexed.text.get(lexed.span(select.select_token.0.span)?.range())?;
    let is_nearest = ["APPROX", "EXACT"].iter().any(|kind| word.eq_ignore_ascii_case(kind));
    let left = around.first().filter(|around| is_nearest && around.is_before_lateral)?;
    let mut found: Option<Ident> = None;
    let is_of_both = |part: &Expr| match part {
        Expr::Identifier(name) => {
            let one = std::slice::from_ref(name);
            let is_found = frame.resolve(one).is_some() && left.resolve(one).is_some();
            found = Some(name.clone()).filter(|_| is_found);
            is_found
        }
        _ => false,
    };
    if !any(select.selection.as_ref()?, is_of_both) {
        return None;
    }
    found.map(|name| ambiguous(lexed, std::slice::from_ref(&name)))
}

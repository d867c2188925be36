//! Names that are functions without parentheses in Spark, unless a column is called so.
//!
//! `current_user`, `session_user` and `user` are taken for columns here. Where Spark would take
//! them for the function although a query around has such a column, they are refused.

use datafusion::sql::sqlparser::ast::{Expr, Ident, SelectItem};

use super::frame::Frame;
use crate::diagnostic::Diagnostic;
use crate::syntax::lexer::Lexed;

const WORDS: [&str; 3] = ["current_user", "session_user", "user"];

/// Whether a name is one of them, whatever its case.
pub(super) fn is_word(name: &str) -> bool {
    WORDS.iter().any(|word| word.eq_ignore_ascii_case(name))
}

/// Whether an item of a SELECT list is one of them, so that its name says nothing of a column.
pub(super) fn is_alone(item: &SelectItem) -> bool {
    matches!(item, SelectItem::UnnamedExpr(Expr::Identifier(ident)) if is_word(&ident.value))
}

/// Refuses a name that only a query around the innermost of `frames` has as a column.
pub(super) fn check(lexed: &Lexed, frames: &[Frame], name: &Ident) -> Result<(), Diagnostic> {
    let (true, Some((own, outer))) = (is_word(&name.value), frames.split_last()) else {
        return Ok(());
    };
    let has = |frame: &Frame| frame.resolve(std::slice::from_ref(name)).is_some();
    let may_have = has(own)
        || own.alias(&name.value).is_some()
        || own.relations.iter().any(|relation| relation.columns.is_none());
    if may_have || !outer.iter().any(has) {
        return Ok(());
    }
    let word = &name.value;
    let message = format!("`{word}` is a column of a query around this one");
    let help = format!("write table.{word} for the column, or {word}() for the function");
    Err(Diagnostic { span: lexed.span(name.span), ..Diagnostic::nowhere(message).help(help) })
}

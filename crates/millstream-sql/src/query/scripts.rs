//! Programs that a query would run: `SELECT TRANSFORM(a) USING 'cat'`, which is refused.

use datafusion::sql::sqlparser::tokenizer::Token;

use crate::diagnostic::Diagnostic;
use crate::syntax::cursor::Cursor;

/// Refuses the name of a program, or the form of its input, at the next token. Behind USING of a
/// join stands a parenthesis.
pub(super) fn check(cursor: &Cursor<'_>) -> Result<(), Diagnostic> {
    let is_text = |at: usize| {
        cursor.nth(at).is_some_and(|next| matches!(next.token, Token::SingleQuotedString(_)))
    };
    let names_program = cursor.is_word("USING") && is_text(1);
    let names_form = cursor.are_words(&["ROW", "FORMAT", "DELIMITED"])
        || cursor.are_words(&["ROW", "FORMAT", "SERDE"]);
    if !names_program && !names_form {
        return Ok(());
    }
    let message = "a query runs no programs: TRANSFORM ... USING is not supported";
    Err(Diagnostic::at(cursor.here(), message).help(
        "compute the columns by functions, a declared one (CREATE FUNCTION) among them, \
         or write the rows to a table that the program reads",
    ))
}

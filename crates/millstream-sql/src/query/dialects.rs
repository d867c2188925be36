//! Forms of other dialects that sqlparser would read, refused with Spark's form.

use datafusion::sql::sqlparser::tokenizer::Token;

use crate::diagnostic::Diagnostic;
use crate::syntax::cursor::Cursor;

/// Refuses such a form at the next token.
pub(crate) fn check(cursor: &Cursor<'_>) -> Result<(), Diagnostic> {
    refuse_window_table_functions(cursor)?;
    refuse_replace(cursor)
}

/// Flink's window functions in FROM or GROUP BY.
fn refuse_window_table_functions(cursor: &Cursor<'_>) -> Result<(), Diagnostic> {
    let calls = cursor.nth(1).is_some_and(|next| next.token == Token::LParen);
    let help = match () {
        () if !calls => return Ok(()),
        () if cursor.is_word("TUMBLE") => "GROUP BY window(ts, '1 minute')",
        () if cursor.is_word("HOP") => "GROUP BY window(ts, '10 minutes', '1 minute')",
        () => return Ok(()),
    };
    let word = &cursor.lexed.text[cursor.here().range()];
    Err(Diagnostic::at(cursor.here(), format!("{word} is not Spark's form of a window"))
        .help(format!("write {help}")))
}

/// `* REPLACE (...)`, which stands for `|> SET` where both words have the place of that.
fn refuse_replace(cursor: &Cursor<'_>) -> Result<(), Diagnostic> {
    let star = cursor.peek().filter(|star| star.token == Token::Mul);
    let (Some(star), Some(replace)) = (star, cursor.nth(1)) else { return Ok(()) };
    // A product has something before the star.
    let before = cursor.at.checked_sub(1).map(|before| &cursor.lexed.lexemes[before]);
    let is_wildcard = before.is_some_and(|before| {
        ["SELECT", "DISTINCT", "ALL"].iter().any(|word| before.is_word(word))
            || matches!(before.token, Token::Comma | Token::Period)
    });
    let is_written = is_wildcard
        && replace.is_word("REPLACE")
        && star.span != replace.span
        && cursor.nth(2).is_some_and(|next| next.token == Token::LParen);
    if !is_written {
        return Ok(());
    }
    Err(Diagnostic::at(replace.span, "`* REPLACE (...)` is not Spark's")
        .help("write FROM t |> SET column = expression, or list the columns"))
}

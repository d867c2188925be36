//! The tokens of `*` among values, `coalesce(* EXCEPT (a))`, and of the parts of names in
//! `* EXCEPT (a.b)`, as tokens that sqlparser takes: it knows `*` only where a SELECT list has it,
//! and only names of one part behind EXCEPT.
//!
//! `*` becomes a name, and with EXCEPT a call of it; `a.b` becomes one name. What these stand for
//! is put in where the columns are known, by [`super::stars`].

use datafusion::sql::sqlparser::tokenizer::Token;

use crate::syntax::cursor::Cursor;
use crate::syntax::limits::RESERVED;

/// Stands for `*` where sqlparser takes only expressions; called, for `* EXCEPT (...)`.
pub(crate) const ALL_COLUMNS: &str = "__all_columns";

/// Stands between the parts of a name behind EXCEPT.
pub(crate) const PART: char = RESERVED;

/// True at the `*` of `f(*)`, `f(t.*, a)` and `f(* EXCEPT (a))`.
pub(super) fn is_star(cursor: &Cursor<'_>) -> bool {
    let before = cursor.at.checked_sub(1).map(|before| &cursor.lexed.lexemes[before].token);
    let begins = matches!(before, Some(Token::LParen | Token::Comma | Token::Period));
    let ends = cursor.nth(1).is_some_and(|next| matches!(next.token, Token::RParen | Token::Comma));
    begins && (ends || has_except(cursor))
}

/// True at the `*` of `count(DISTINCT *)`, which stands for columns as that of other calls does.
pub(super) fn is_distinct_star(cursor: &Cursor<'_>) -> bool {
    let before = cursor.at.checked_sub(1).map(|before| &cursor.lexed.lexemes[before]);
    let ends = cursor.nth(1).is_some_and(|next| matches!(next.token, Token::RParen | Token::Comma));
    before.is_some_and(|word| word.is_word("DISTINCT")) && (ends || has_except(cursor))
}

/// True where `EXCEPT (` follows the next token.
pub(super) fn has_except(cursor: &Cursor<'_>) -> bool {
    let is_open = cursor.nth(2).is_some_and(|open| open.token == Token::LParen);
    is_open && cursor.nth(1).is_some_and(|next| next.is_word("EXCEPT"))
}

/// True at the parenthesis of `* EXCEPT (`.
pub(super) fn opens_except(cursor: &Cursor<'_>) -> bool {
    let before = |count: usize| cursor.at.checked_sub(count).map(|at| &cursor.lexed.lexemes[at]);
    before(1).is_some_and(|word| word.is_word("EXCEPT"))
        && before(2).is_some_and(|star| star.token == Token::Mul)
}

/// How many tokens the name of several parts has that is next, and the name that stands for it.
pub(super) fn path(cursor: &Cursor<'_>) -> Option<(usize, Token)> {
    let part = |ahead: usize| match &cursor.nth(ahead)?.token {
        Token::Word(word) => Some(word.value.as_str()),
        _ => None,
    };
    let mut path = part(0)?.to_owned();
    let mut length = 1;
    while cursor.nth(length).is_some_and(|next| next.token == Token::Period)
        && let Some(next) = part(length + 1)
    {
        path.push(PART);
        path.push_str(next);
        length += 2;
    }
    (length > 1).then(|| (length, Token::make_word(&path, Some('`'))))
}

//! `VALUES 1, 2`, whose rows of one value need no parentheses in Spark, as `VALUES (1), (2)`.
//!
//! Behind FROM and JOIN a relation may be called `values`, and the rows end where a name or another
//! clause begins.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::primary::{ends_primary, may_begin};
use super::tokens::{Added, items, outside, starts_step};
use crate::syntax::lexer::Lexeme;

/// True at a VALUES whose first row has no parentheses. What follows can be no continuation of an
/// expression in which `values` is a name.
pub(super) fn begins(tokens: &[Lexeme], at: usize) -> bool {
    if !tokens[at].is_word("VALUES") {
        return false;
    }
    let Some(next) = tokens.get(at + 1) else { return false };
    let is_token =
        |at: usize, token: &Token| tokens.get(at).is_some_and(|lexeme| lexeme.token == *token);
    let is_call = is_token(at + 2, &Token::LParen);
    match next.token {
        Token::Number(..) | Token::SingleQuotedString(_) => may_be_inline(tokens, at),
        // `FROM values v(a)` gives a table and its column names, of which there is one at least.
        Token::Word(_) if is_behind_from(tokens, at) => is_call && is_token(at + 3, &Token::RParen),
        Token::Word(_) => is_call && may_begin(tokens, at),
        _ => false,
    }
}

/// True where a VALUES makes rows: it begins a query, or is a relation.
pub(super) fn may_be_inline(tokens: &[Lexeme], at: usize) -> bool {
    may_begin(tokens, at) || is_behind_from(tokens, at)
}

fn is_behind_from(tokens: &[Lexeme], at: usize) -> bool {
    let before = at.checked_sub(1).map(|before| &tokens[before]);
    before.is_some_and(|before| before.is_word("FROM") || before.is_word("JOIN"))
}

/// Puts such rows into parentheses.
pub(super) fn enclosed(tokens: Vec<Lexeme>) -> Vec<Lexeme> {
    let mut plain = Vec::new();
    let mut rest = tokens.as_slice();
    loop {
        let begin = outside(rest).find(|at| begins(rest, *at));
        let Some(begin) = begin else {
            plain.extend_from_slice(rest);
            return plain;
        };
        let is_relation = is_behind_from(rest, begin);
        let is_end = |at: &usize| {
            *at > begin && (ends(rest, *at) || (is_relation && ends_relation(rest, *at)))
        };
        let end = outside(rest).find(is_end).unwrap_or(rest.len());
        plain.extend_from_slice(&rest[..=begin]);
        for (number, row) in items(&rest[begin + 1..end]).into_iter().enumerate() {
            let added = Added(&rest[begin]);
            if number > 0 {
                plain.push(added.token(Token::Comma));
            }
            plain.extend(added.nested(row.to_vec()));
        }
        rest = &rest[end..];
    }
}

fn ends(tokens: &[Lexeme], at: usize) -> bool {
    let words = ["AS", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "LIMIT", "OFFSET"];
    words.iter().any(|word| tokens[at].is_word(word))
        || ends_primary(tokens, at)
        || starts_step(tokens, at)
}

/// Words that continue an expression behind a value.
const CONTINUE: &[&str] = &[
    "AND", "AT", "BETWEEN", "COLLATE", "DIV", "ELSE", "END", "ESCAPE", "FILTER", "ILIKE", "IN",
    "IS", "LIKE", "NOT", "OR", "OVER", "REGEXP", "RLIKE", "THEN", "WHEN",
];

/// True at a word behind the rows of a relation: its name, or what goes on after it.
fn ends_relation(tokens: &[Lexeme], at: usize) -> bool {
    let is_value = matches!(
        tokens[at - 1].token,
        Token::Number(..) | Token::SingleQuotedString(_) | Token::RParen
    );
    is_value
        && matches!(tokens[at].token, Token::Word(_))
        && !CONTINUE.iter().any(|word| tokens[at].is_word(word))
}

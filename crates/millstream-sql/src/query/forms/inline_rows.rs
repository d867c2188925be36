//! `VALUES 1, 2`, whose rows of one value need no parentheses in Spark, as `VALUES (1), (2)`.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::primary::{ends_primary, may_begin};
use super::tokens::{Added, items, outside, starts_step};
use crate::syntax::lexer::Lexeme;

/// True at a VALUES whose first row has no parentheses. What follows can be no continuation of an
/// expression in which `values` is a name.
pub(super) fn begins(tokens: &[Lexeme], at: usize) -> bool {
    let Some(next) = tokens.get(at + 1) else { return false };
    let is_row = match next.token {
        Token::Number(..) | Token::SingleQuotedString(_) => true,
        Token::Word(_) => tokens.get(at + 2).is_some_and(|open| open.token == Token::LParen),
        _ => false,
    };
    is_row && tokens[at].is_word("VALUES") && may_begin(tokens, at)
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
        let end = outside(rest).find(|at| *at > begin && ends(rest, *at)).unwrap_or(rest.len());
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

//! `struct(1 a, 2 b)`, which names its fields without AS, as `struct(1 AS a, 2 AS b)`.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::pivot_literals::is_unit;
use super::tokens::{Added, end_of_parenthesis, items};
use crate::syntax::lexer::Lexeme;

/// Words behind which an expression goes on.
const GO_ON: &[&str] = &[
    "ALL", "AND", "ANY", "AS", "AT", "BETWEEN", "BY", "CASE", "COLLATE", "DISTINCT", "DIV", "ELSE",
    "ESCAPE", "EXISTS", "FROM", "ILIKE", "IN", "INTERVAL", "IS", "LIKE", "NOT", "OR", "OVER",
    "REGEXP", "RLIKE", "SOME", "THEN", "TO", "WHEN", "ZONE",
];
/// Words that end an expression and are no names behind one.
const NO_NAMES: &[&str] = &["END", "FALSE", "NULL", "NULLS", "TRUE", "UNKNOWN"];

/// True at a `struct(` with such a name in it.
pub(super) fn begins(tokens: &[Lexeme], at: usize) -> bool {
    !names(tokens, at).is_empty()
}

/// Puts AS before these names.
pub(super) fn plain(tokens: Vec<Lexeme>) -> Vec<Lexeme> {
    let mut all: Vec<usize> = (0..tokens.len()).flat_map(|at| names(&tokens, at)).collect();
    if all.is_empty() {
        return tokens;
    }
    // The names of a struct within another one come behind those of that.
    all.sort_unstable();
    let mut plain = Vec::with_capacity(tokens.len() + all.len());
    let mut from = 0;
    for name in all {
        plain.extend_from_slice(&tokens[from..name]);
        plain.push(Added(&tokens[name]).word("AS"));
        from = name;
    }
    plain.extend_from_slice(&tokens[from..]);
    plain
}

/// Where the names without AS are in `struct(...)`, if that is what begins at a place.
fn names(tokens: &[Lexeme], at: usize) -> Vec<usize> {
    let opens = tokens.get(at + 1).is_some_and(|open| open.token == Token::LParen);
    if !opens || !tokens[at].is_word("STRUCT") {
        return Vec::new();
    }
    let end = end_of_parenthesis(tokens, at + 2);
    let mut names = Vec::new();
    let mut start = at + 2;
    for field in items(&tokens[at + 2..end]) {
        if ends_with_name(field) {
            names.push(start + field.len() - 1);
        }
        // Behind it is a comma.
        start += field.len() + 1;
    }
    names
}

/// True for a value with a name right behind it.
fn ends_with_name(field: &[Lexeme]) -> bool {
    let [.., before, name] = field else { return false };
    let is_one_of = |lexeme: &Lexeme, words: &[&str]| words.iter().any(|word| lexeme.is_word(word));
    let ends_value = match before.token {
        // The letter right behind a number says its type.
        Token::Number(..) => before.span.end < name.span.start,
        Token::RParen | Token::RBracket | Token::SingleQuotedString(_) => true,
        Token::Word(_) => !is_one_of(before, GO_ON),
        _ => false,
    };
    let is_name = matches!(name.token, Token::Word(_)) && !is_one_of(name, NO_NAMES);
    let ends_interval = is_unit(name) && field.iter().any(|part| part.is_word("INTERVAL"));
    ends_value && is_name && !ends_interval
}

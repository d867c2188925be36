//! Rows with names: `(a AS x, b AS y)` as `struct(a AS x, b AS y)`, and rows of VALUES, whose names
//! say nothing, without them.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::inline_rows::may_be_inline;
use super::tokens::{Added, end_of_parenthesis, items, outside};
use crate::syntax::lexer::Lexeme;

/// Words behind which a value begins.
const BEFORE_VALUES: &[&str] = &[
    "SELECT", "DISTINCT", "WHERE", "AND", "OR", "NOT", "WHEN", "THEN", "ELSE", "BY", "ON",
    "HAVING", "VALUES",
];

/// Words with which a query begins.
const BEGIN_QUERY: &[&str] = &["SELECT", "WITH", "FROM", "TABLE", "VALUES"];

/// True where some parenthesis that can be a row has names.
pub(super) fn are_in(tokens: &[Lexeme]) -> bool {
    let mut may_be_rows = Vec::new();
    tokens.iter().enumerate().any(|(at, lexeme)| {
        match lexeme.token {
            Token::LParen => may_be_rows.push(may_be_row(tokens, at)),
            Token::RParen => {
                may_be_rows.pop();
            }
            _ => {}
        }
        may_be_rows.last() == Some(&true) && is_named_at(tokens, at)
    })
}

/// True at `AS name` with a comma or the end of a parenthesis behind it.
fn is_named_at(tokens: &[Lexeme], at: usize) -> bool {
    let is_word = |lexeme: &Lexeme| matches!(lexeme.token, Token::Word(_));
    tokens[at].is_word("AS")
        && tokens.get(at + 1).is_some_and(is_word)
        && tokens.get(at + 2).is_some_and(|end| matches!(end.token, Token::Comma | Token::RParen))
}

/// True at a parenthesis that stands where a value does and holds no query.
fn may_be_row(tokens: &[Lexeme], at: usize) -> bool {
    let begins_query = |first: &Lexeme| BEGIN_QUERY.iter().any(|word| first.is_word(word));
    if tokens[at].token != Token::LParen || tokens.get(at + 1).is_none_or(begins_query) {
        return false;
    }
    let Some(before) = at.checked_sub(1).map(|before| &tokens[before]) else { return true };
    match before.token {
        Token::LParen
        | Token::Comma
        | Token::Arrow
        | Token::RArrow
        | Token::Eq
        | Token::DoubleEq
        | Token::Neq
        | Token::Lt
        | Token::LtEq
        | Token::Gt
        | Token::GtEq
        | Token::Spaceship => true,
        _ => BEFORE_VALUES.iter().any(|word| before.is_word(word)),
    }
}

/// Reads both outside of the parentheses of `tokens`.
pub(super) fn plain(tokens: Vec<Lexeme>) -> Vec<Lexeme> {
    structs(without_names(tokens))
}

/// `VALUES (1 AS a, 2 AS b)` as `VALUES (1, 2)`.
fn without_names(tokens: Vec<Lexeme>) -> Vec<Lexeme> {
    if !tokens.iter().any(|one| one.is_word("VALUES")) {
        return tokens;
    }
    let mut plain = Vec::with_capacity(tokens.len());
    let mut at = 0;
    let mut is_row = false;
    while at < tokens.len() {
        if is_row && tokens[at].token == Token::LParen {
            let end = end_of_parenthesis(&tokens, at + 1);
            plain.push(tokens[at].clone());
            unnamed(&tokens[at + 1..end], &mut plain);
            at = end;
            continue;
        }
        // A comma is behind a row, and the parenthesis behind that is another one.
        is_row = match tokens[at].token {
            Token::RParen => is_row,
            Token::Comma => is_row && at > 0 && tokens[at - 1].token == Token::RParen,
            _ => tokens[at].is_word("VALUES") && may_be_inline(&tokens, at),
        };
        plain.push(tokens[at].clone());
        at += 1;
    }
    plain
}

fn unnamed(row: &[Lexeme], plain: &mut Vec<Lexeme>) {
    for (number, item) in items(row).into_iter().enumerate() {
        if number > 0 {
            plain.push(Added(&row[0]).token(Token::Comma));
        }
        plain.extend_from_slice(if is_named(item) { &item[..item.len() - 2] } else { item });
    }
}

/// True for an item that ends with `AS name`.
fn is_named(item: &[Lexeme]) -> bool {
    let Some((name, before)) = item.split_last() else { return false };
    let has_as = before.len() > 1 && before[before.len() - 1].is_word("AS");
    has_as && matches!(name.token, Token::Word(_))
}

/// `(a AS x, b AS y)` as `struct(a AS x, b AS y)`.
fn structs(tokens: Vec<Lexeme>) -> Vec<Lexeme> {
    let starts: Vec<usize> = outside(&tokens).filter(|at| is_named_row(&tokens, *at)).collect();
    let mut plain = Vec::with_capacity(tokens.len() + starts.len());
    let mut from = 0;
    for start in starts {
        plain.extend_from_slice(&tokens[from..start]);
        plain.push(Added(&tokens[start]).word("STRUCT"));
        from = start;
    }
    plain.extend_from_slice(&tokens[from..]);
    plain
}

fn is_named_row(tokens: &[Lexeme], at: usize) -> bool {
    if !may_be_row(tokens, at) {
        return false;
    }
    let end = end_of_parenthesis(tokens, at + 1);
    let items = items(&tokens[at + 1..end]);
    items.len() > 1 && items.into_iter().any(is_named)
}

//! The names of a relation's columns, where its text has all of them: `(SELECT 1 AS a, b FROM ...)`
//! and `VALUES (1, 2) AS t(a, b)`.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::primary::{ends_items, ends_primary};
use super::tokens::{end_of_parenthesis, items, position};
use crate::syntax::lexer::Lexeme;

/// The names in the order of the columns.
pub(super) fn of(relation: &[Lexeme]) -> Option<Vec<&Lexeme>> {
    let first = relation.first()?;
    if first.is_word("VALUES") {
        return of_alias(relation);
    }
    let is_one =
        first.token == Token::LParen && end_of_parenthesis(relation, 1) + 1 == relation.len();
    if is_one { of_select(&relation[1..relation.len() - 1]) } else { None }
}

/// `VALUES ... AS t(a, b)`
fn of_alias(relation: &[Lexeme]) -> Option<Vec<&Lexeme>> {
    let at = position(relation, |at| relation[at].is_word("AS"))?;
    let [_, _, open, columns @ .., close] = &relation[at..] else { return None };
    let is_list = open.token == Token::LParen && close.token == Token::RParen;
    if is_list { items(columns).into_iter().map(only_name).collect() } else { None }
}

fn only_name(item: &[Lexeme]) -> Option<&Lexeme> {
    match item {
        [name] if is_name(name) => Some(name),
        _ => None,
    }
}

fn of_select(query: &[Lexeme]) -> Option<Vec<&Lexeme>> {
    if !query.first()?.is_word("SELECT") {
        return None;
    }
    let is_end = |at: usize| {
        at > 0 && (query[at].is_word("FROM") || ends_items(query, at) || ends_primary(query, at))
    };
    let end = position(query, is_end).unwrap_or(query.len());
    let quantified =
        query.get(1).is_some_and(|word| word.is_word("DISTINCT") || word.is_word("ALL"));
    let list = query.get(1 + usize::from(quantified)..end)?;
    items(list).into_iter().map(item_name).collect()
}

/// The name of `x`, `t.x`, `... AS x` or `1 x`.
fn item_name(item: &[Lexeme]) -> Option<&Lexeme> {
    let (last, before) = item.split_last()?;
    let is_named = match before.last() {
        None => true,
        Some(before) => {
            before.is_word("AS")
                || matches!(
                    before.token,
                    Token::Period | Token::Number(..) | Token::SingleQuotedString(_)
                )
        }
    };
    (is_named && is_name(last)).then_some(last)
}

fn is_name(lexeme: &Lexeme) -> bool {
    matches!(lexeme.token, Token::Word(_))
}

//! Calls of `trim` that sqlparser does not read: `trim(BOTH FROM x)`, which names no characters, as
//! `trim(x)`, and `trim(characters, x)` as `trim(BOTH characters FROM x)`.

use std::collections::HashSet;

use datafusion::sql::sqlparser::tokenizer::Token;

use super::tokens::{Added, end_of_parenthesis, outside, position};
use crate::syntax::lexer::Lexeme;

/// Sides of a text, with the functions that take blanks from there.
const SIDES: &[(&str, &str)] = &[("BOTH", "trim"), ("LEADING", "ltrim"), ("TRAILING", "rtrim")];

/// True at the first token of a call of `trim`.
fn is_call(tokens: &[Lexeme], at: usize) -> bool {
    tokens[at].is_word("TRIM") && tokens.get(at + 1).is_some_and(|open| open.token == Token::LParen)
}

/// The function that `trim(BOTH FROM` at a place stands for.
fn function(tokens: &[Lexeme], at: usize) -> Option<&'static str> {
    let is_sided =
        is_call(tokens, at) && tokens.get(at + 3).is_some_and(|from| from.is_word("FROM"));
    let side = tokens.get(at + 2).filter(|_| is_sided)?;
    SIDES.iter().find(|(word, _)| side.is_word(word)).map(|(_, name)| *name)
}

/// Where the comma is between the two arguments of `trim(characters, x)` at a place.
fn comma(tokens: &[Lexeme], at: usize) -> Option<usize> {
    if !is_call(tokens, at) {
        return None;
    }
    let arguments = &tokens[at + 2..end_of_parenthesis(tokens, at + 2)];
    let mut commas = outside(arguments).filter(|at| arguments[*at].token == Token::Comma);
    let only = commas.next().filter(|_| commas.next().is_none())?;
    let has_other_form = SIDES.iter().any(|(word, _)| arguments[0].is_word(word))
        || position(arguments, |at| arguments[at].is_word("FROM")).is_some();
    (!has_other_form).then_some(at + 2 + only)
}

/// True at a call that is read otherwise.
pub(super) fn begins(tokens: &[Lexeme], at: usize) -> bool {
    function(tokens, at).is_some() || comma(tokens, at).is_some()
}

/// Writes them as sqlparser reads them.
pub(super) fn plain(tokens: Vec<Lexeme>) -> Vec<Lexeme> {
    let mut commas = HashSet::new();
    let mut plain = Vec::with_capacity(tokens.len());
    let mut at = 0;
    while at < tokens.len() {
        if let Some(name) = function(&tokens, at) {
            plain.extend([Added(&tokens[at]).word(name), tokens[at + 1].clone()]);
            at += 4;
        } else if let Some(found) = comma(&tokens, at) {
            commas.insert(found);
            plain.extend_from_slice(&tokens[at..at + 2]);
            plain.push(Added(&tokens[at]).word("BOTH"));
            at += 2;
        } else {
            let is_between = commas.contains(&at);
            plain.push(match is_between {
                true => Added(&tokens[at]).word("FROM"),
                false => tokens[at].clone(),
            });
            at += 1;
        }
    }
    plain
}

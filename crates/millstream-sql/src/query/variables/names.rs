//! `IDENTIFIER(variable)`, which means the name that the variable's text is.

use std::sync::Arc;

use datafusion::sql::sqlparser::tokenizer::Token;

use super::known::{Variable, places};
use crate::syntax::lexer::{Lexed, Lexeme};

/// Bytes of a text that may be a name of several parts.
const BYTES_MAX: usize = 8_192;

/// The tokens of a text with the texts of variables in place of their names in `IDENTIFIER(...)`,
/// where there are any. Each token stays one, so that places among them stay what they are.
pub(crate) fn named(lexed: &Lexed, variables: &[Arc<Variable>]) -> Option<Lexed> {
    let tokens = &lexed.lexemes;
    if !tokens.iter().any(|lexeme| lexeme.is_word("IDENTIFIER")) {
        return None;
    }
    let places = places(variables);
    let mut named: Option<Vec<Lexeme>> = None;
    for start in (0..tokens.len()).filter(|at| begins(tokens, *at)) {
        let inside = tokens[start + 2..].iter();
        let inside = inside.take_while(|lexeme| lexeme.token != Token::RParen);
        for at in start + 2..start + 2 + inside.count() {
            let found = match &tokens[at].token {
                Token::Word(word) => places.get(&word.value.to_lowercase()),
                _ => None,
            };
            let text = found.and_then(|place| variables[*place].text());
            if let Some(text) = text.filter(|text| text.len() <= BYTES_MAX) {
                let named = named.get_or_insert_with(|| tokens.clone());
                named[at].token = Token::SingleQuotedString(text.to_owned());
            }
        }
    }
    named.map(|named| lexed.with(named))
}

/// True at `IDENTIFIER(` of names and texts that `||` joins, and nothing else.
fn begins(tokens: &[Lexeme], at: usize) -> bool {
    let is_open = tokens.get(at + 1).is_some_and(|next| next.token == Token::LParen);
    if !tokens[at].is_word("IDENTIFIER") || !is_open {
        return false;
    }
    for (place, lexeme) in tokens[at + 2..].iter().enumerate() {
        match lexeme.token {
            Token::Word(_) | Token::SingleQuotedString(_) if place % 2 == 0 => {}
            Token::StringConcat if place % 2 == 1 => {}
            Token::RParen => return place % 2 == 1,
            _ => return false,
        }
    }
    false
}

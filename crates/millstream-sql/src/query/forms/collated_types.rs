//! `STRING COLLATE name` as a type in a cast, which sqlparser does not read: as one name in
//! backticks, which stands for the type where types are read.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::tokens::{Added, are_words};
use crate::syntax::lexer::Lexeme;

/// True at such a type: behind AS, or as the type of an array's elements.
pub(super) fn begins(tokens: &[Lexeme], at: usize) -> bool {
    let is_behind = |back: usize, word: &str| {
        at.checked_sub(back).is_some_and(|before| tokens[before].is_word(word))
    };
    let is_element = at > 0 && tokens[at - 1].token == Token::Lt && is_behind(2, "ARRAY");
    are_words(tokens, at, &["STRING", "COLLATE"])
        && tokens.get(at + 2).is_some_and(|name| name.word().is_some())
        && (is_behind(1, "AS") || is_element)
}

/// Names these types.
pub(super) fn plain(tokens: Vec<Lexeme>) -> Vec<Lexeme> {
    if !tokens.iter().any(|one| one.is_word("COLLATE")) {
        return tokens;
    }
    let mut plain = Vec::with_capacity(tokens.len());
    let mut at = 0;
    while at < tokens.len() {
        match tokens.get(at + 2).and_then(Lexeme::word).filter(|_| begins(&tokens, at)) {
            Some(name) => {
                let text = format!("STRING COLLATE {name}");
                plain.push(Added(&tokens[at]).token(Token::make_word(&text, Some('`'))));
                at += 3;
            }
            None => {
                plain.push(tokens[at].clone());
                at += 1;
            }
        }
    }
    plain
}

//! `trim(BOTH FROM x)`, which names no characters, as `trim(x)`.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::tokens::Added;
use crate::syntax::lexer::Lexeme;

/// Sides of a text, with the functions that take blanks from there.
const SIDES: &[(&str, &str)] = &[("BOTH", "trim"), ("LEADING", "ltrim"), ("TRAILING", "rtrim")];

/// The function that `trim(BOTH FROM` at a place stands for.
fn function(tokens: &[Lexeme], at: usize) -> Option<&'static str> {
    let is_trim = tokens[at].is_word("TRIM")
        && tokens.get(at + 1).is_some_and(|open| open.token == Token::LParen)
        && tokens.get(at + 3).is_some_and(|from| from.is_word("FROM"));
    let side = tokens.get(at + 2).filter(|_| is_trim)?;
    SIDES.iter().find(|(word, _)| side.is_word(word)).map(|(_, name)| *name)
}

/// True at such a call.
pub(super) fn is_sided(tokens: &[Lexeme], at: usize) -> bool {
    function(tokens, at).is_some()
}

/// Names these functions.
pub(super) fn plain(tokens: Vec<Lexeme>) -> Vec<Lexeme> {
    let mut plain = Vec::with_capacity(tokens.len());
    let mut at = 0;
    while at < tokens.len() {
        match function(&tokens, at) {
            Some(name) => {
                plain.extend([Added(&tokens[at]).word(name), tokens[at + 1].clone()]);
                at += 4;
            }
            None => {
                plain.push(tokens[at].clone());
                at += 1;
            }
        }
    }
    plain
}

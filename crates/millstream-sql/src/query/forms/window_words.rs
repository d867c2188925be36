//! `OVER (DISTRIBUTE BY a SORT BY b)` as `OVER (PARTITION BY a ORDER BY b)`, and CLUSTER BY as
//! PARTITION BY: in a window they are the same words to Spark.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::tokens::{Added, are_words, end_of_parenthesis, outside};
use crate::syntax::lexer::Lexeme;

/// Words that divide rows, or order them, with the one that sqlparser knows.
const WORDS: &[(&str, &str)] =
    &[("DISTRIBUTE", "PARTITION"), ("CLUSTER", "PARTITION"), ("SORT", "ORDER")];

/// True at the parenthesis of a window with such a word.
pub(super) fn begins(tokens: &[Lexeme], at: usize) -> bool {
    !words(tokens, at).is_empty()
}

/// Writes the words that sqlparser knows.
pub(super) fn plain(mut tokens: Vec<Lexeme>) -> Vec<Lexeme> {
    for open in 0..tokens.len() {
        for (at, word) in words(&tokens, open) {
            let known = Added(&tokens[at]).word(word);
            tokens[at] = known;
        }
    }
    tokens
}

/// Where such words are in the window whose parenthesis opens at a place, and what they stand for.
/// A query in parentheses begins with another word.
fn words(tokens: &[Lexeme], open: usize) -> Vec<(usize, &'static str)> {
    let known = |at: usize| {
        let found = WORDS.iter().find(|(word, _)| are_words(tokens, at, &[*word, "BY"]));
        found.map(|(_, known)| *known)
    };
    let first = open + 1;
    let begins_window = are_words(tokens, first, &["PARTITION", "BY"]) || known(first).is_some();
    if tokens[open].token != Token::LParen || !begins_window {
        return Vec::new();
    }
    let window = &tokens[first..end_of_parenthesis(tokens, first)];
    let places = outside(window).map(|at| first + at);
    places.filter_map(|at| known(at).map(|word| (at, word))).collect()
}

//! TABLESAMPLE that takes all rows, or the first ones; which others Spark takes depends on how it
//! splits a table into partitions.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::tokens::{are_words, end_of_parenthesis};
use crate::syntax::lexer::Lexeme;

/// What can be written instead of another TABLESAMPLE.
pub(super) const HELP: &str = "there are (100 PERCENT) and (n ROWS); |> WHERE hash(id) % 10 = 0 \
                               takes a tenth of the rows";

/// Which rows are taken.
pub(super) enum Sample<'a> {
    All,
    /// As many as the token says.
    First(&'a Lexeme),
}

/// What the clause behind the word TABLESAMPLE at `at` takes, and where it ends.
pub(super) fn read(tokens: &[Lexeme], at: usize) -> Option<(Sample<'_>, usize)> {
    let is_open = |at: usize| tokens.get(at).is_some_and(|open| open.token == Token::LParen);
    if !is_open(at + 1) {
        return None;
    }
    let mut end = end_of_parenthesis(tokens, at + 2);
    let sample = sample(&tokens[at + 2..end])?;
    // What is taken without chance is the same each time.
    if tokens.get(end + 1).is_some_and(|word| word.is_word("REPEATABLE")) && is_open(end + 2) {
        end = end_of_parenthesis(tokens, end + 3);
    }
    Some((sample, (end + 1).min(tokens.len())))
}

fn sample(inner: &[Lexeme]) -> Option<Sample<'_>> {
    let number = |at: usize| match &inner.get(at)?.token {
        Token::Number(digits, _) => digits.parse::<f64>().ok(),
        _ => None,
    };
    match inner.len() {
        2 if inner[1].is_word("PERCENT") && number(0) == Some(100.0) => Some(Sample::All),
        2 if inner[1].is_word("ROWS") && is_whole(&inner[0]) => Some(Sample::First(&inner[0])),
        5 if are_words(inner, 0, &["BUCKET"])
            && are_words(inner, 2, &["OUT", "OF"])
            && number(1) == Some(1.0)
            && number(4) == Some(1.0) =>
        {
            Some(Sample::All)
        }
        _ => None,
    }
}

/// Whether it is a number of rows.
fn is_whole(number: &Lexeme) -> bool {
    matches!(&number.token, Token::Number(digits, _) if digits.parse::<u64>().is_ok())
}

/// True at a TABLESAMPLE of a relation, which is no step of a pipe, that takes all rows.
pub(super) fn takes_all(tokens: &[Lexeme], at: usize) -> bool {
    end_of_all(tokens, at).is_some()
}

fn end_of_all(tokens: &[Lexeme], at: usize) -> Option<usize> {
    let before = at.checked_sub(1).map(|before| &tokens[before].token);
    let is_step = matches!(before, Some(Token::VerticalBarRightAngleBracket | Token::Pipe));
    if is_step || before.is_none() || !tokens[at].is_word("TABLESAMPLE") {
        return None;
    }
    match read(tokens, at)? {
        (Sample::All, end) => Some(end),
        (Sample::First(_), _) => None,
    }
}

/// Leaves those out.
pub(super) fn without_all(tokens: Vec<Lexeme>) -> Vec<Lexeme> {
    if !tokens.iter().any(|one| one.is_word("TABLESAMPLE")) {
        return tokens;
    }
    let mut plain = Vec::with_capacity(tokens.len());
    let mut at = 0;
    while at < tokens.len() {
        match end_of_all(&tokens, at) {
            Some(end) => at = end,
            None => {
                plain.push(tokens[at].clone());
                at += 1;
            }
        }
    }
    plain
}

//! What the tokens end with that have been taken so far: a parenthesis, and what it belongs to.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

/// Where the parenthesis begins that the tokens end with.
pub(super) fn parenthesis_at_end(tokens: &[TokenWithSpan]) -> Option<usize> {
    let mut depth = 0_usize;
    let open = tokens.iter().rposition(|token| {
        match token.token {
            Token::RParen => depth += 1,
            Token::LParen => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0
    })?;
    (tokens[open].token == Token::LParen).then_some(open)
}

fn is_word(tokens: &[TokenWithSpan], at: usize, words: &[&str]) -> bool {
    match tokens.get(at).map(|token| &token.token) {
        Some(Token::Word(found)) => words.iter().any(|word| found.value.eq_ignore_ascii_case(word)),
        _ => false,
    }
}

/// Where the parenthesis of `DISTINCT ON (...)` begins that the tokens end with.
pub(super) fn keys_of_distinct(tokens: &[TokenWithSpan]) -> Option<usize> {
    let open = parenthesis_at_end(tokens)?;
    let follows =
        open >= 2 && is_word(tokens, open - 1, &["ON"]) && is_word(tokens, open - 2, &["DISTINCT"]);
    follows.then_some(open)
}

/// Where the subquery begins that the tokens end with.
pub(super) fn subquery_at_end(tokens: &[TokenWithSpan]) -> Option<usize> {
    let open = parenthesis_at_end(tokens)?;
    is_word(tokens, open + 1, &["SELECT", "WITH", "FROM", "VALUES"]).then_some(open)
}

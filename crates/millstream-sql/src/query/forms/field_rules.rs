//! `NOT NULL` and `COMMENT '...'` behind the fields of a STRUCT that is the type of a cast, which
//! sqlparser does not read. They change nothing in a value, and are left out.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::tokens::are_words;
use crate::syntax::lexer::Lexeme;

/// True at the type of a cast that says such a thing of a field.
pub(super) fn begins(tokens: &[Lexeme], at: usize) -> bool {
    let end = end_of_type(tokens, at);
    end.is_some_and(|end| (at..end).any(|within| length(tokens, within) > 0))
}

/// Leaves out what is said of fields.
pub(super) fn without(tokens: Vec<Lexeme>) -> Vec<Lexeme> {
    let mut plain = Vec::with_capacity(tokens.len());
    let (mut at, mut end) = (0, 0);
    while at < tokens.len() {
        end = end_of_type(&tokens, at).unwrap_or(end);
        let left_out = if at < end { length(&tokens, at) } else { 0 };
        if left_out == 0 {
            plain.push(tokens[at].clone());
        }
        at += left_out.max(1);
    }
    plain
}

/// Where the type of a cast ends that begins at a place and has others within: `AS STRUCT<...>`.
fn end_of_type(tokens: &[Lexeme], at: usize) -> Option<usize> {
    let before = &tokens[at.checked_sub(1)?];
    let is_of_cast = before.is_word("AS") || before.token == Token::DoubleColon;
    let has_parts = ["ARRAY", "MAP", "STRUCT"].iter().any(|word| tokens[at].is_word(word));
    if !is_of_cast || !has_parts || tokens.get(at + 1)?.token != Token::Lt {
        return None;
    }
    let mut depth = 0_usize;
    for (ahead, lexeme) in tokens[at + 1..].iter().enumerate() {
        match lexeme.token {
            Token::Lt => depth += 1,
            Token::Gt => depth = depth.saturating_sub(1),
            Token::ShiftRight => depth = depth.saturating_sub(2),
            // No type has this word; so nothing is searched twice.
            _ if lexeme.is_word("AS") => return None,
            _ => {}
        }
        if depth == 0 {
            return Some(at + 1 + ahead);
        }
    }
    None
}

/// How many tokens are left out at a place within a type.
fn length(tokens: &[Lexeme], at: usize) -> usize {
    let text = tokens.get(at + 1).map(|next| &next.token);
    let is_comment =
        tokens[at].is_word("COMMENT") && matches!(text, Some(Token::SingleQuotedString(_)));
    if is_comment || are_words(tokens, at, &["NOT", "NULL"]) { 2 } else { 0 }
}

//! What sqlparser cannot read, in words for people.

use datafusion::sql::sqlparser::parser::ParserError;
use datafusion::sql::sqlparser::tokenizer::{Location, Token};

use super::guard::too_deep;
use super::lexer::{Lexed, Lexeme};
use crate::diagnostic::{Diagnostic, Span};
use crate::nearest::nearest;

/// sqlparser's error at its place; `end` is where the query ends.
pub(crate) fn unreadable(lexed: &Lexed, error: &ParserError, end: usize) -> Diagnostic {
    let text = match error {
        ParserError::ParserError(text) | ParserError::TokenizerError(text) => text,
        ParserError::RecursionLimitExceeded => return too_deep(Span::new(end, end)),
    };
    let (text, place) = split_place(text);
    let text = text.trim_start_matches("sql parser error: ");
    let at = place.map(|place| lexed.byte(place)).and_then(|start| lexed.lexeme_at(start));
    let mut at = at.map_or(Span::new(end, end), |lexeme| lexeme.span);
    let rest = text.strip_prefix("Expected").map(|rest| rest.trim_start_matches(':').trim());
    let Some((expected, found)) = rest.and_then(|rest| rest.split_once(", found:")) else {
        return Diagnostic::at(at, lower_first(text));
    };
    // Some errors come when the word they are about has been read already; STREAM, which sqlparser
    // does not see, may stand between.
    if !lexed.text[at.range()].eq_ignore_ascii_case(found.trim()) {
        let before = lexed.lexemes.iter().take_while(|lexeme| lexeme.span.start < at.start);
        let mut before = before.collect::<Vec<_>>().into_iter().rev().take(2);
        if let Some(word) = before.find(|lexeme| lexeme.is_word(found.trim())) {
            at = word.span;
        }
    }
    unexpected(lexed, at, expected)
}

fn word_before(lexed: &Lexed, at: Span) -> Option<&Lexeme> {
    lexed.lexemes.iter().take_while(|lexeme| lexeme.span.start < at.start).last()
}

/// Words that continue a query after its tables; a misspelled one is read as an alias.
const CLAUSES: &[&str] = &["WHERE", "GROUP", "ORDER", "HAVING", "JOIN", "LIMIT", "UNION", "FROM"];

pub(crate) fn unexpected(lexed: &Lexed, at: Span, expected: &str) -> Diagnostic {
    let expected = match expected {
        "an expression" => "an expression",
        "identifier" => "a name",
        "end of statement" => "the end of the query",
        ")" => "`)`",
        "(" => "`(`",
        other => other,
    };
    let found = &lexed.text[at.range()];
    if found.is_empty() {
        return Diagnostic::at(at, format!("expected {expected}, but the query ends here"));
    }
    let diagnostic = Diagnostic::at(at, format!("expected {expected}, found `{found}`"));
    let before = word_before(lexed, at);
    let meant = before.and_then(Lexeme::word).and_then(|word| {
        let near = nearest(word, CLAUSES.iter().copied());
        near.filter(|near| !near.eq_ignore_ascii_case(word))
    });
    match before {
        Some(comma) if comma.token == Token::Comma => {
            diagnostic.help("is there a comma too many before it?")
        }
        Some(word) if found.eq_ignore_ascii_case("STREAM") => diagnostic.help(format!(
            "STREAM stands before a table's name after FROM, JOIN or a comma, not after `{}`",
            &lexed.text[word.span.range()]
        )),
        Some(word) if meant.is_some() => diagnostic.help(format!(
            "is `{}` before it meant to be {}?",
            &lexed.text[word.span.range()],
            meant.unwrap_or_default()
        )),
        _ => diagnostic,
    }
}

/// Splits ` at Line: 3, Column: 7` off an error of sqlparser.
fn split_place(text: &str) -> (&str, Option<Location>) {
    let Some((message, place)) = text.rsplit_once(" at Line: ") else { return (text, None) };
    let Some((line, column)) = place.split_once(", Column: ") else { return (text, None) };
    match (line.trim().parse(), column.trim().parse()) {
        (Ok(line), Ok(column)) => (message, Some(Location::new(line, column))),
        _ => (text, None),
    }
}

pub(crate) fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    match (chars.next(), chars.clone().next()) {
        (Some(first), Some(second)) if !second.is_uppercase() => {
            first.to_lowercase().chain(chars).collect()
        }
        _ => text.to_owned(),
    }
}

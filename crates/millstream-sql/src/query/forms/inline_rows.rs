//! `VALUES 1, 2`, whose rows of one value need no parentheses in Spark, as `VALUES (1), (2)`.
//!
//! Behind FROM and JOIN, and behind a comma in the list of a FROM, a relation may be called
//! `values`, and the rows end where a name or another clause begins.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::pivot_literals::is_unit;
use super::primary::{ends_primary, may_begin};
use super::tokens::{Added, end_of_parenthesis, items, outside, starts_step};
use crate::query::streams::can_name_a_table;
use crate::syntax::lexer::Lexeme;
use crate::syntax::limits::JOINS_MAX;

/// Words that are literals.
const CONSTANTS: &[&str] = &["FALSE", "NULL", "TRUE"];
/// Words that make a literal of a text.
const TYPES: &[&str] = &["DATE", "TIME", "TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ"];

fn is_one_of(lexeme: &Lexeme, words: &[&str]) -> bool {
    words.iter().any(|word| lexeme.is_word(word))
}

/// True at a VALUES of whose rows one has no parentheses. What follows can be no continuation of an
/// expression in which `values` is a name.
pub(super) fn begins(tokens: &[Lexeme], at: usize) -> bool {
    if !tokens[at].is_word("VALUES") {
        return false;
    }
    let row = &tokens[at + 1..];
    match row.first().map(|first| &first.token) {
        // Elsewhere `values - 1` is a difference.
        Some(Token::Minus | Token::Plus) => is_signed(row) && is_relation(tokens, at),
        Some(Token::LParen) => has_literal_behind(row) && may_be_inline(tokens, at),
        Some(_) if is_literal(row) => may_be_inline(tokens, at),
        Some(Token::Word(_)) => is_call(row) && is_of_rows(tokens, at),
        _ => false,
    }
}

/// True where a VALUES makes rows: it begins a query, or is a relation.
pub(super) fn may_be_inline(tokens: &[Lexeme], at: usize) -> bool {
    may_begin(tokens, at) || is_relation(tokens, at)
}

/// True where a relation begins.
fn is_relation(tokens: &[Lexeme], at: usize) -> bool {
    let Some(before) = at.checked_sub(1) else { return false };
    match tokens[before].token {
        Token::Comma => is_in_from(tokens, before),
        _ => is_one_of(&tokens[before], &["FROM", "JOIN"]),
    }
}

/// Words that begin another clause than FROM.
const CLAUSES: &[&str] = &[
    "CLUSTER",
    "DISTRIBUTE",
    "GROUP",
    "HAVING",
    "LIMIT",
    "ORDER",
    "QUALIFY",
    "SELECT",
    "SORT",
    "WHERE",
    "WINDOW",
];

/// True where the clause that a place is in, as far as its parenthesis tells, is a FROM. No FROM
/// has more commas than are looked behind, so that a text full of VALUES is not read over and over.
fn is_in_from(tokens: &[Lexeme], place: usize) -> bool {
    let (mut depth, mut commas) = (0_usize, 0);
    for at in (0..place).rev() {
        let lexeme = &tokens[at];
        match lexeme.token {
            Token::RParen => depth += 1,
            Token::LParen if depth == 0 => return false,
            Token::LParen => depth -= 1,
            _ if depth > 0 => {}
            Token::Comma if commas == JOINS_MAX => return false,
            Token::Comma => commas += 1,
            // `IS DISTINCT FROM` is an operator.
            Token::Word(_) if lexeme.is_word("FROM") => {
                let is_operator = at > 0 && tokens[at - 1].is_word("DISTINCT");
                if !is_operator {
                    return true;
                }
            }
            Token::Word(_) if is_one_of(lexeme, CLAUSES) => return false,
            _ if starts_step(tokens, at) => return false,
            _ => {}
        }
    }
    false
}

/// True at a literal that cannot stand behind a name.
fn is_literal(tokens: &[Lexeme]) -> bool {
    let Some(first) = tokens.first() else { return false };
    let next = tokens.get(1).map(|next| &next.token);
    match first.token {
        Token::Number(..) | Token::SingleQuotedString(_) | Token::HexStringLiteral(_) => true,
        Token::Word(_) if first.is_word("INTERVAL") => {
            matches!(next, Some(Token::Number(..) | Token::SingleQuotedString(_) | Token::Minus))
        }
        Token::Word(_) if is_one_of(first, TYPES) => {
            matches!(next, Some(Token::SingleQuotedString(_)))
        }
        _ => is_one_of(first, CONSTANTS),
    }
}

/// True at a number with a sign.
fn is_signed(tokens: &[Lexeme]) -> bool {
    let signs = [Token::Minus, Token::Plus];
    tokens.first().is_some_and(|sign| signs.contains(&sign.token))
        && tokens.get(1).is_some_and(|number| matches!(number.token, Token::Number(..)))
}

/// True at rows in parentheses with a literal as the next row.
fn has_literal_behind(rows: &[Lexeme]) -> bool {
    let is = |at: usize, token: &Token| rows.get(at).is_some_and(|lexeme| lexeme.token == *token);
    let mut next = 0;
    while is(next, &Token::LParen) {
        next = end_of_parenthesis(rows, next + 1) + 1;
        if !is(next, &Token::Comma) {
            return false;
        }
        next += 1;
    }
    let rest = rows.get(next..).unwrap_or(&[]);
    is_literal(rest) || is_signed(rest)
}

fn is_call(tokens: &[Lexeme]) -> bool {
    tokens.get(1).is_some_and(|open| open.token == Token::LParen)
}

/// Whether a word with a parenthesis behind `values` calls a function.
fn is_of_rows(tokens: &[Lexeme], at: usize) -> bool {
    let (word, arguments) = (&tokens[at + 1], &tokens[at + 3..]);
    if is_relation(tokens, at) {
        // `FROM values v(a)` gives a table and its column names, of which there is one at least.
        return can_name_a_table(word)
            && !is_one_of(word, &["OFFSET", "PIVOT", "SELECT", "UNPIVOT"])
            && !are_names(arguments);
    }
    may_begin(tokens, at) && !is_one_of(word, CONTINUE)
}

/// True at `a, b)`.
fn are_names(tokens: &[Lexeme]) -> bool {
    let (pairs, _) = tokens.as_chunks::<2>();
    for [name, next] in pairs {
        match (&name.token, &next.token) {
            (Token::Word(_), Token::RParen) => return true,
            (Token::Word(_), Token::Comma) => {}
            _ => return false,
        }
    }
    false
}

/// Puts such rows into parentheses.
pub(super) fn enclosed(tokens: Vec<Lexeme>) -> Vec<Lexeme> {
    let places: Vec<usize> = outside(&tokens).collect();
    let mut plain = Vec::with_capacity(tokens.len());
    let mut from = 0;
    for (number, begin) in places.iter().copied().enumerate() {
        if begin < from || !begins(&tokens, begin) {
            continue;
        }
        let in_from = is_relation(&tokens, begin);
        let is_end = |at: &usize| ends(&tokens, *at) || (in_from && ends_relation(&tokens, *at));
        let end = places[number + 1..].iter().copied().find(is_end).unwrap_or(tokens.len());
        plain.extend_from_slice(&tokens[from..=begin]);
        let added = Added(&tokens[begin]);
        for (number, row) in items(&tokens[begin + 1..end]).into_iter().enumerate() {
            if number > 0 {
                plain.push(added.token(Token::Comma));
            }
            plain.extend(added.nested(row.to_vec()));
        }
        from = end;
    }
    plain.extend_from_slice(&tokens[from..]);
    plain
}

fn ends(tokens: &[Lexeme], at: usize) -> bool {
    let words = ["AS", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "LIMIT", "OFFSET"];
    is_one_of(&tokens[at], &words) || ends_primary(tokens, at) || starts_step(tokens, at)
}

/// Words that continue an expression behind a value.
const CONTINUE: &[&str] = &[
    "AND", "AT", "BETWEEN", "COLLATE", "DIV", "ELSE", "END", "ESCAPE", "FILTER", "ILIKE", "IN",
    "IS", "LIKE", "NOT", "OR", "OVER", "REGEXP", "RLIKE", "THEN", "TO", "WHEN",
];

/// True at a word behind the rows of a relation: its name, or what goes on after it.
fn ends_relation(tokens: &[Lexeme], at: usize) -> bool {
    matches!(tokens[at].token, Token::Word(_))
        && !is_one_of(&tokens[at], CONTINUE)
        && !is_part_of_literal(tokens, at)
        && ends_value(tokens, at - 1)
}

fn ends_value(tokens: &[Lexeme], at: usize) -> bool {
    match tokens[at].token {
        Token::Number(..)
        | Token::SingleQuotedString(_)
        | Token::HexStringLiteral(_)
        | Token::RParen
        | Token::RBracket => true,
        _ => {
            is_one_of(&tokens[at], CONSTANTS)
                || tokens[at].is_word("END")
                || is_part_of_literal(tokens, at)
        }
    }
}

/// How many tokens an INTERVAL has at most in which a unit is looked for.
const INTERVAL_TOKENS_MAX: usize = 16;

/// True at the letters right behind a number, which say its type, and at a unit of an INTERVAL.
fn is_part_of_literal(tokens: &[Lexeme], at: usize) -> bool {
    let before = &tokens[at.saturating_sub(INTERVAL_TOKENS_MAX)..at];
    let is_suffix = before.last().is_some_and(|last| {
        matches!(last.token, Token::Number(..)) && last.span.end == tokens[at].span.start
    });
    let is_of_interval =
        || is_unit(&tokens[at]) && before.iter().any(|part| part.is_word("INTERVAL"));
    tokens[at].word().is_some() && (is_suffix || is_of_interval())
}

//! What a pipe or a set operation can begin with: `TABLE t`, `FROM t`, `VALUES ... AS t`.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::tokens::{Added, are_words, end_of_parenthesis, outside, position};
use crate::syntax::lexer::Lexeme;
use crate::syntax::limits::SET_OPERATORS;

/// True where a query can begin at a token.
pub(super) fn may_begin(tokens: &[Lexeme], at: usize) -> bool {
    let Some(before) = at.checked_sub(1) else { return true };
    if tokens[before].token == Token::LParen {
        return true;
    }
    let quantified = tokens[before].is_word("ALL") || tokens[before].is_word("DISTINCT");
    let operator = if quantified { before.checked_sub(1) } else { Some(before) };
    operator.is_some_and(|at| {
        // `* EXCEPT (...)` is no set operation.
        SET_OPERATORS.iter().any(|word| tokens[at].is_word(word))
            && at.checked_sub(1).is_none_or(|star| tokens[star].token != Token::Mul)
    })
}

/// True at the TABLE of `TABLE t`.
pub(super) fn is_table(tokens: &[Lexeme], at: usize) -> bool {
    tokens[at].is_word("TABLE")
        && tokens.get(at + 1).is_some_and(|next| matches!(next.token, Token::Word(_)))
        && (may_begin(tokens, at) || follows_with(tokens, at))
}

/// True at a VALUES that begins a query and whose rows have a name: `VALUES (1), (2) AS t(a)`.
pub(super) fn is_named_values(tokens: &[Lexeme], at: usize) -> bool {
    if !tokens[at].is_word("VALUES") || !(may_begin(tokens, at) || follows_with(tokens, at)) {
        return false;
    }
    let is = |at: usize, token: Token| tokens.get(at).is_some_and(|lexeme| lexeme.token == token);
    let mut next = at + 1;
    loop {
        if !is(next, Token::LParen) {
            return false;
        }
        next = end_of_parenthesis(tokens, next + 1) + 1;
        if !is(next, Token::Comma) {
            break;
        }
        next += 1;
    }
    let is_name = |name: &Lexeme| {
        matches!(name.token, Token::Word(_))
            && !ends_primary(tokens, next)
            && !AFTER_VALUES.iter().any(|word| name.is_word(word))
    };
    tokens.get(next).is_some_and(is_name)
}

/// Words behind the rows of a VALUES that are no name of it.
const AFTER_VALUES: &[&str] =
    &["CLUSTER", "DISTRIBUTE", "LIMIT", "OFFSET", "ORDER", "SORT", "WATERMARK", "WINDOW"];

/// True where a WITH clause may end before a token.
fn follows_with(tokens: &[Lexeme], at: usize) -> bool {
    at > 0 && tokens[at - 1].token == Token::RParen && tokens[0].is_word("WITH")
}

/// Where the WITH clause ends that tokens begin with.
pub(super) fn end_of_with(tokens: &[Lexeme]) -> usize {
    if !are_words(tokens, 0, &["WITH"]) {
        return 0;
    }
    let mut after_body = false;
    for at in outside(tokens).skip(1) {
        match &tokens[at].token {
            Token::RParen => after_body = true,
            Token::LParen | Token::Comma => after_body = false,
            Token::Word(_) => {
                let goes_on = ["AS", "MAX", "RECURSION", "LEVEL"];
                if after_body && !goes_on.iter().any(|word| tokens[at].is_word(word)) {
                    return at;
                }
            }
            _ => {}
        }
    }
    tokens.len()
}

/// The queries of a set operation, and of one that is none, with `TABLE t`, `FROM t` and
/// `VALUES ... AS t` as SELECTs.
pub(super) fn all(tokens: Vec<Lexeme>) -> Vec<Lexeme> {
    let with = end_of_with(&tokens);
    let is_begin = |at: usize| {
        let place = &tokens[at];
        (at == with || may_begin(&tokens, at))
            && (place.is_word("FROM") || is_table(&tokens, at) || is_named_values(&tokens, at))
    };
    let Some(begin) = position(&tokens, is_begin) else { return tokens };
    let end = outside(&tokens).find(|at| *at > begin && ends_primary(&tokens, *at));
    let end = end.unwrap_or(tokens.len());
    let mut plain = tokens[..begin].to_vec();
    plain.extend(one(&tokens[begin..end]));
    let rest = all_behind(&tokens[end..]);
    plain.extend(rest);
    plain
}

/// What follows a query: an operator and other queries.
fn all_behind(tokens: &[Lexeme]) -> Vec<Lexeme> {
    let Some(first) = tokens.first() else { return Vec::new() };
    let mut plain = vec![first.clone()];
    // The operator stays before the rest, where the rest is looked at with it.
    plain.extend(all_after(tokens));
    plain
}

fn all_after(tokens: &[Lexeme]) -> Vec<Lexeme> {
    let quantified =
        tokens.get(1).is_some_and(|next| next.is_word("ALL") || next.is_word("DISTINCT"));
    let from = 1 + usize::from(quantified);
    let mut plain = tokens[1..from.min(tokens.len())].to_vec();
    plain.extend(all(tokens.get(from..).unwrap_or(&[]).to_vec()));
    plain
}

/// True at an operator between two queries; `* EXCEPT (...)` is none.
pub(super) fn ends_primary(tokens: &[Lexeme], at: usize) -> bool {
    SET_OPERATORS.iter().any(|word| tokens[at].is_word(word)) && tokens[at - 1].token != Token::Mul
}

/// `TABLE t`, `FROM t [SELECT ...]` and `VALUES ... AS t` as a SELECT.
pub(super) fn one(tokens: &[Lexeme]) -> Vec<Lexeme> {
    let Some(first) = tokens.first() else { return Vec::new() };
    let added = Added(first);
    let all = [added.word("SELECT"), added.token(Token::Mul), added.word("FROM")];
    if first.is_word("TABLE") {
        return all.into_iter().chain(tokens[1..].iter().cloned()).collect();
    }
    if is_named_values(tokens, 0) {
        return all.into_iter().chain(tokens.iter().cloned()).collect();
    }
    if !first.is_word("FROM") {
        return tokens.to_vec();
    }
    match position(tokens, |at| tokens[at].is_word("SELECT")) {
        None => all.into_iter().chain(tokens[1..].iter().cloned()).collect(),
        Some(select) => with_from(&tokens[select..], &tokens[..select]),
    }
}

/// `SELECT items rest` with a FROM clause between the items and the rest.
pub(super) fn with_from(select: &[Lexeme], from: &[Lexeme]) -> Vec<Lexeme> {
    let end = position(select, |at| ends_items(select, at)).unwrap_or(select.len());
    let mut plain = select[..end].to_vec();
    plain.extend(from.iter().cloned());
    plain.extend(select[end..].iter().cloned());
    plain
}

/// True for the first word behind the items of a SELECT without FROM.
pub(super) fn ends_items(tokens: &[Lexeme], at: usize) -> bool {
    let with_by = ["GROUP", "ORDER", "CLUSTER", "DISTRIBUTE", "SORT"];
    let alone = ["WHERE", "HAVING", "QUALIFY", "LIMIT", "OFFSET"];
    at > 0
        && (alone.iter().any(|word| tokens[at].is_word(word))
            || with_by.iter().any(|word| are_words(tokens, at, &[word, "BY"]))
            || are_words(tokens, at, &["LATERAL", "VIEW"])
            || (tokens[at].is_word("WINDOW")
                && tokens.get(at + 2).is_some_and(|next| next.is_word("AS"))))
}

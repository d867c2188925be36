//! `GROUPING SETS (ROLLUP (a, b), GROUPING SETS (...))` as `GROUPING SETS ((a, b), (a), (), ...)`:
//! sets within sets are theirs.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::tokens::{Added, are_words, end_of_parenthesis, items, listed};
use crate::syntax::lexer::Lexeme;

/// The most items of a CUBE that is written out: each one doubles the sets.
const CUBE_MAX: usize = 5;
/// The most items of a ROLLUP that is written out: the sets have all that come before each.
const ROLLUP_MAX: usize = 30;
/// Tokens of a CUBE or ROLLUP that is written out: what stands in it is there once for each set,
/// and again for each set of what is around it.
const TOKENS_MAX: usize = 100_000;

/// True at GROUPING SETS whose sets have others within.
pub(super) fn begin(tokens: &[Lexeme], at: usize) -> bool {
    if !is_grouping_sets(tokens, at) {
        return false;
    }
    let end = end_of_parenthesis(tokens, at + 3);
    items(&tokens[at + 3..end]).into_iter().any(has_sets)
}

fn is_grouping_sets(tokens: &[Lexeme], at: usize) -> bool {
    are_words(tokens, at, &["GROUPING", "SETS"]) && opens(tokens, at + 2)
}

fn opens(tokens: &[Lexeme], at: usize) -> bool {
    tokens.get(at).is_some_and(|open| open.token == Token::LParen)
}

fn has_sets(item: &[Lexeme]) -> bool {
    let is_call = |word: &str| are_words(item, 0, &[word]) && opens(item, 1);
    is_grouping_sets(item, 0) || is_call("ROLLUP") || is_call("CUBE")
}

/// Writes them out, outside of the parentheses of `tokens`.
pub(super) fn plain(tokens: Vec<Lexeme>) -> Vec<Lexeme> {
    if !(0..tokens.len()).any(|at| is_grouping_sets(&tokens, at)) {
        return tokens;
    }
    let mut plain = Vec::with_capacity(tokens.len());
    let mut at = 0;
    while at < tokens.len() {
        if is_grouping_sets(&tokens, at) {
            let end = end_of_parenthesis(&tokens, at + 3);
            plain.extend_from_slice(&tokens[at..at + 3]);
            let sets = items(&tokens[at + 3..end])
                .into_iter()
                .flat_map(|item| if has_sets(item) { sets_of(item) } else { vec![item.to_vec()] });
            for (number, set) in sets.enumerate() {
                if number > 0 {
                    plain.push(Added(&tokens[at]).token(Token::Comma));
                }
                plain.extend(set);
            }
            at = end;
            continue;
        }
        plain.push(tokens[at].clone());
        at += 1;
    }
    plain
}

/// The sets that GROUPING SETS, ROLLUP or CUBE stands for. What is within the parentheses of sets
/// has been looked at before.
fn sets_of(item: &[Lexeme]) -> Vec<Vec<Lexeme>> {
    let open = if is_grouping_sets(item, 0) { 2 } else { 1 };
    let end = end_of_parenthesis(item, open + 1);
    let parts = items(&item[open + 1..end]);
    if open == 2 {
        return parts.into_iter().map(<[Lexeme]>::to_vec).collect();
    }
    let is_rollup = item[0].is_word("ROLLUP");
    let most = if is_rollup { ROLLUP_MAX } else { CUBE_MAX };
    let sets = if is_rollup { parts.len() + 1 } else { 1_usize << parts.len().min(CUBE_MAX) };
    if parts.len() > most || item.len().saturating_mul(sets) > TOKENS_MAX {
        return vec![item.to_vec()];
    }
    let added = Added(&item[0]);
    if is_rollup {
        let lengths = (0..=parts.len()).rev();
        return lengths.map(|length| set(&added, &parts, 0..length)).collect();
    }
    let chosen = (0..1_usize << parts.len()).rev();
    let of = |bits: usize| (0..parts.len()).filter(move |at| bits & (1 << *at) != 0);
    chosen.map(|bits| set(&added, &parts, of(bits))).collect()
}

/// The columns of some parts, in parentheses.
fn set(added: &Added<'_>, parts: &[&[Lexeme]], chosen: impl Iterator<Item = usize>) -> Vec<Lexeme> {
    let mut columns = Vec::new();
    for column in chosen.filter(|at| !parts[*at].is_empty()).flat_map(|at| listed(parts[at])) {
        if !columns.is_empty() {
            columns.push(added.token(Token::Comma));
        }
        columns.extend_from_slice(column);
    }
    added.nested(columns)
}

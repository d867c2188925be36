//! What PIVOT gives where there are no rows for a value.
//!
//! That is NULL here. Spark gives NULL where all aggregates are numbers; else it computes each of
//! them over no rows, which is 0 for `count`, an empty array for `collect_list`, and for `coalesce`
//! what that says. What could differ is refused.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::tokens::outside;
use crate::diagnostic::{Diagnostic, Span};
use crate::query::routines::built_in;
use crate::syntax::lexer::Lexeme;

/// Aggregates that are an empty array over no rows.
const ARRAYS: &[&str] = &["array_agg", "collect_list", "collect_set"];

/// What is not NULL over no rows, or makes something else of NULL.
const NEVER_NULL: &[&str] = &[
    "approx_count_distinct",
    "array",
    "case",
    "coalesce",
    "concat_ws",
    "count",
    "count_if",
    "if",
    "ifnull",
    "map",
    "named_struct",
    "nvl",
    "nvl2",
    "regr_count",
    "struct",
];

/// Functions whose result is a number.
const NUMBERS: &[&str] = &[
    "approx_count_distinct",
    "avg",
    "ceil",
    "count",
    "count_if",
    "floor",
    "mean",
    "regr_count",
    "round",
    "std",
    "stddev",
    "stddev_pop",
    "stddev_samp",
    "sum",
    "var_pop",
    "var_samp",
    "variance",
];

const BY_FILTER: &str = "write a column for each value: count(*) FILTER (WHERE key = 'x') AS x, \
                         ... GROUP BY ...";

/// Refuses aggregates that could give something else than NULL.
pub(super) fn check(aggregates: &[&[Lexeme]], place: Span) -> Result<(), Diagnostic> {
    let (mut differs, mut other) = (None, None);
    for aggregate in aggregates {
        let calls: Vec<usize> = (0..aggregate.len()).filter(|at| calls(aggregate, *at)).collect();
        let is_none = |at: &usize| aggregate[*at].word().is_some_and(built_in::is_no_aggregate);
        if calls.iter().all(is_none) {
            let at = aggregate.first().map_or(place, |first| first.span);
            let message = "PIVOT computes aggregates, and here is none";
            return Err(Diagnostic::at(at, message).help("write PIVOT (sum(a) FOR ...)"));
        }
        if let Some(at) = calls.iter().find(|at| is_one_of(&aggregate[**at], ARRAYS)) {
            return Err(refused(&aggregate[*at], "in PIVOT"));
        }
        differs = differs.or(calls
            .iter()
            .find(|at| is_one_of(&aggregate[**at], NEVER_NULL))
            .map(|at| &aggregate[*at]));
        let is_number = |at: &usize| is_one_of(&aggregate[*at], NUMBERS);
        let result = outside(aggregate).find(|at| calls.contains(at) && !is_number(at));
        other = other.or(result.map(|at| &aggregate[at]));
    }
    match (differs, other) {
        (Some(differs), Some(_)) => Err(refused(differs, "beside what is no number in PIVOT")),
        _ => Ok(()),
    }
}

/// True at the name of a function that is called, and at CASE.
fn calls(tokens: &[Lexeme], at: usize) -> bool {
    let next = tokens.get(at + 1).map(|next| &next.token);
    let is_word = tokens[at].word().is_some();
    tokens[at].is_word("CASE") || (is_word && next == Some(&Token::LParen))
}

fn is_one_of(lexeme: &Lexeme, names: &[&str]) -> bool {
    names.iter().any(|name| lexeme.is_word(name))
}

fn refused(function: &Lexeme, place: &str) -> Diagnostic {
    let name = function.word().unwrap_or_default().to_lowercase();
    let message = format!("`{name}` {place} is not supported yet");
    Diagnostic::at(function.span, message).help(BY_FILTER)
}

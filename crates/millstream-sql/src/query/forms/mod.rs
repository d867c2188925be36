//! Forms of queries that sqlparser does not know, as those that it knows: Spark's pipe syntax,
//! `TABLE t`, FROM before SELECT, PIVOT, texts side by side, `VALUES 1, 2`, `(1 AS a, 2 AS b)`,
//! sets within GROUPING SETS, `trim(BOTH FROM x)`, `IDENTIFIER('...')`, `TIMESTAMP_LTZ '...'`,
//! `X '1F'`, `VALUES (1) AS t(a)`, joins with NEAREST BY, `STRING COLLATE name` and
//! `STRUCT<a: INT NOT NULL>` in casts, `struct(1 a)`, `OVER (DISTRIBUTE BY a SORT BY b)`.
//!
//! `FROM t |> WHERE a > 1 |> EXTEND a + 1 AS b |> ORDER BY b` is read here, before sqlparser sees
//! it, and becomes `SELECT * FROM (SELECT *, a + 1 AS b FROM t WHERE (a > 1)) ORDER BY b`. All
//! that comes later knows only SELECTs, so that a pipe means over a stream what its SELECT means.
//!
//! Tokens keep their places in the text; those that are added have the place of the operator that
//! they stand for. [`tokens`] finds words outside of parentheses, [`primary`] reads what a pipe can
//! begin with, [`relation`] is what its steps have made so far, and [`steps`] are the operators;
//! [`pivots`] are PIVOT and UNPIVOT.

mod collated_types;
mod column_names;
mod field_rules;
mod inline_rows;
pub(crate) mod literals;
mod missing;
mod named_rows;
mod nearest;
mod nested_sets;
mod pivot_literals;
mod pivot_names;
mod pivots;
mod primary;
mod relation;
mod samples;
mod steps;
mod struct_names;
mod tokens;
mod trims;
mod window_words;

use std::borrow::Cow;
use std::ops::Range;

use datafusion::sql::sqlparser::tokenizer::Token;

use crate::diagnostic::Diagnostic;
use crate::syntax::lexer::{Lexed, Lexeme};
use crate::syntax::limits;
use tokens::{outside, starts_step};

/// The query of `ranges` without these forms, where it has any.
///
/// # Errors
/// An operator that is not there, or one that is not supported.
pub(crate) fn plain(lexed: &Lexed, ranges: &[Range<usize>]) -> Result<Option<Lexed>, Diagnostic> {
    let of = |range: &Range<usize>| &lexed.lexemes[range.clone()];
    let tokens: Cow<'_, [Lexeme]> = match ranges {
        [range] => Cow::Borrowed(of(range)),
        _ => Cow::Owned(ranges.iter().flat_map(of).cloned().collect()),
    };
    if !has_other_forms(&tokens) {
        return Ok(None);
    }
    let plain = trims::plain(samples::without_all(literals::plain(&tokens)));
    let plain = field_rules::without(collated_types::plain(plain));
    let plain = window_words::plain(struct_names::plain(plain));
    let plain = lexed.with(level(&plain)?);
    // Each step is a subquery around those before it.
    match limits::check(&plain).0.into_iter().next() {
        Some(exceeded) => Err(exceeded),
        None => Ok(Some(plain)),
    }
}

/// The first `|` that begins a step.
pub(crate) fn bar_that_begins_step(tokens: &[Lexeme]) -> Option<&Lexeme> {
    let begins = |at: &usize| tokens[*at].token == Token::Pipe && starts_step(tokens, *at);
    (0..tokens.len()).find(begins).map(|at| &tokens[at])
}

fn has_other_forms(tokens: &[Lexeme]) -> bool {
    let begins_one = (0..tokens.len()).any(|at| {
        starts_step(tokens, at)
            || tokens[at].is_word("TABLE")
            || literals::continues_text(tokens, at)
            || inline_rows::begins(tokens, at)
            || samples::takes_all(tokens, at)
            || literals::is_identifier(tokens, at)
            || literals::is_local_timestamp(tokens, at)
            || literals::bytes(tokens, at).is_some()
            || literals::is_column_all(tokens, at)
            || trims::begins(tokens, at)
            || collated_types::begins(tokens, at)
            || field_rules::begins(tokens, at)
            || struct_names::begins(tokens, at)
            || window_words::begins(tokens, at)
            || nested_sets::begin(tokens, at)
            || pivots::begins(tokens, at)
            || (tokens[at].is_word("FROM") && primary::may_begin(tokens, at))
            || primary::is_named_values(tokens, at)
            || nearest::begins(tokens, at)
    });
    begins_one || named_rows::are_in(tokens)
}

/// What stands within one parenthesis, or within none.
fn level(tokens: &[Lexeme]) -> Result<Vec<Lexeme>, Diagnostic> {
    let mut plain = Vec::with_capacity(tokens.len());
    let mut at = 0;
    while at < tokens.len() {
        plain.push(tokens[at].clone());
        at += 1;
        if plain.last().is_some_and(|last| last.token == Token::LParen) {
            let end = tokens::end_of_parenthesis(tokens, at);
            plain.extend(level(&tokens[at..end])?);
            at = end;
        }
    }
    let plain = nearest::as_laterals(nested_sets::plain(named_rows::plain(plain)))?;
    let plain = pivots::all(inline_rows::enclosed(plain))?;
    if outside(&plain).any(|at| starts_step(&plain, at)) {
        return steps::run(plain);
    }
    Ok(primary::all(plain))
}

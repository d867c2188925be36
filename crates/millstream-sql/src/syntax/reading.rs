//! Reading tokens with sqlparser in bounded time and depth.
//!
//! sqlparser tries one form, and where that fails goes back and tries another: a CAST that cannot
//! be read as such is read again as a call, with all that is within it, so that every level of
//! nesting doubles the time. Here each place is given up only once: what cannot be read there is
//! remembered, and a second try fails at once. What is left, forms that can be read and are thrown
//! away, is bounded by a count of steps.

use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::TokenWithSpan;

use super::guard::Guard;
use super::lexer::{Lexed, SparkDialect};
use super::unreadable::unreadable;
use crate::diagnostic::{Diagnostic, Span};

/// How deep sqlparser goes; brackets are counted before, this is for what has none (`NOT NOT a`).
const DEPTH_MAX: usize = 300;
/// Steps per token. Reading a token once is one at most; ordinary queries read few twice.
const STEPS_PER_TOKEN: usize = 20;
/// Steps that every query has, so that small ones may be as intricate as they like.
const STEPS_MIN: usize = 20_000;

/// Reads `tokens`, which end at byte `end`, with `read`; gives what comes after as well.
///
/// # Errors
/// What cannot be read, at its place.
pub(crate) fn read<T>(
    lexed: &Lexed,
    tokens: Vec<TokenWithSpan>,
    end: usize,
    read: impl FnOnce(&mut Parser<'_>) -> Result<T, ParserError>,
) -> Result<(T, TokenWithSpan), Diagnostic> {
    let steps = STEPS_MIN + STEPS_PER_TOKEN * tokens.len();
    let dialect = SparkDialect { guard: Guard::new(steps) };
    let parser = Parser::new(&dialect).with_recursion_limit(DEPTH_MAX);
    let mut parser = parser.with_tokens_with_locations(tokens);
    match read(&mut parser) {
        Ok(read) => Ok((read, parser.peek_token())),
        Err(ParserError::RecursionLimitExceeded) => {
            let at = lexed.span(dialect.guard.farthest.get()).unwrap_or(Span::new(end, end));
            Err(dialect.guard.exceeded(at))
        }
        Err(error) => Err(unreadable(lexed, &error, end)),
    }
}

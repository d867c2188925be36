//! From tokens to sqlparser's tree, without what sqlparser does not know.

use std::collections::HashMap;
use std::ops::Range;

use datafusion::sql::sqlparser::ast::Query;
use datafusion::sql::sqlparser::tokenizer::Token;

use super::streams::{self, Mark, SubqueryWatermark};
use super::{forms, inline_tables, joins};
use crate::diagnostic::{Diagnostic, Span};
use crate::syntax::lexer::Lexed;
use crate::syntax::unreadable::unexpected;
use crate::syntax::{balance, reading};

/// Where some tokens stand; `None` where there are none.
pub(crate) fn piece(lexed: &Lexed, range: &Range<usize>) -> Option<Span> {
    let lexemes = &lexed.lexemes[range.clone()];
    Some(lexemes.first()?.span.to(lexemes.last()?.span))
}

/// A query, the marks of its tables by the first byte of each one's name, and its subqueries with a
/// watermark.
pub(crate) type Parsed = (Query, HashMap<usize, Mark>, Vec<SubqueryWatermark>);

/// Reads a query.
pub(crate) fn parse(lexed: &Lexed, ranges: &[Range<usize>]) -> Result<Parsed, Diagnostic> {
    let end = ranges.iter().filter_map(|range| piece(lexed, range)).map(|piece| piece.end);
    let end = end.max().unwrap_or(0);
    let plain = forms::plain(lexed, ranges)?;
    let extracted = match &plain {
        None => streams::extract(lexed, ranges)?,
        Some(plain) => streams::extract(plain, std::slice::from_ref(&(0..plain.lexemes.len())))?,
    };
    let (mut query, next) =
        reading::read(lexed, extracted.tokens, end, |parser| parser.parse_query())?;
    if next.token != Token::EOF {
        let at = lexed.span(next.span).unwrap_or(Span::new(end, end));
        return Err(unexpected(lexed, at, "the end of the query"));
    }
    balance::balance(&mut query);
    joins::complete(&mut query);
    inline_tables::name_columns(&mut query);
    Ok((*query, extracted.marks, extracted.subqueries))
}

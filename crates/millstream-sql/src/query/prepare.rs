//! From a query's tokens to a statement that DataFusion plans as Spark would.
//!
//! 1. [`super::forms`] makes SELECTs of pipes and the like, and [`super::streams`] takes out what
//!    sqlparser does not know (`STREAM`, `WATERMARK`);
//! 2. sqlparser reads the rest;
//! 3. [`super::routines`] puts the bodies of declared functions in the places of their calls;
//! 4. [`super::relations`] finds the tables that are read and gives each read a name of its own;
//! 5. [`super::variables`] puts in the values of variables;
//! 6. [`super::stateless`] refuses what needs state over a stream;
//! 7. [`super::refusals`] refuses what DataFusion would answer otherwise than Spark;
//! 8. [`super::rewrite`] says in DataFusion's words what Spark says in others.

use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::sql::sqlparser::ast::{Query, Statement};

use super::parse::{Parsed, parse, piece};
use super::prepared::{PreparedQuery, ReadMode, TableCatalog, TableRead};
use super::routines::expand::expand;
use super::routines::resolve::Within;
use super::routines::template::{self, Contents};
use super::streams::SubqueryWatermark;
use super::variables::{bind, names};
use super::{joins, legacy, refusals, relations, rewrite, stateless};
use crate::diagnostic::{Diagnostic, Diagnostics, Span};
use crate::nearest::suggest;
use crate::syntax::lexer::Lexed;
use crate::syntax::limits;

/// Prepares `text`, one query and nothing else, over tables that `catalog` knows: for queries that
/// do not stand in a pipeline file.
///
/// # Errors
/// Whatever the query gets wrong, pointing into `text`.
pub fn prepare_query(text: &str, catalog: &dyn TableCatalog) -> Result<PreparedQuery, Diagnostics> {
    let lexed = Lexed::new(text)?;
    limits::check(&lexed).into_result()?;
    let all = 0..lexed.lexemes.len();
    prepare(&lexed, std::slice::from_ref(&all), catalog)
}

/// Prepares the query whose tokens are `ranges`, one after the other.
pub fn prepare(
    lexed: &Lexed,
    ranges: &[Range<usize>],
    catalog: &dyn TableCatalog,
) -> Result<PreparedQuery, Diagnostics> {
    let pieces: Vec<Span> = ranges.iter().filter_map(|range| piece(lexed, range)).collect();
    let (Some(first), Some(last)) = (pieces.first(), ranges.last()) else {
        return Err(Diagnostic::nowhere("there is no query").into());
    };
    let span = piece(lexed, last).map_or(*first, |last| first.to(last));
    let named = names::named(lexed, catalog.variables());
    let lexed = named.as_ref().unwrap_or(lexed);
    catalog.settings().check_text(lexed)?;
    let earlier = legacy::read(catalog.settings(), lexed);
    let lexed = earlier.as_ref().unwrap_or(lexed);
    let Read { query, reads, subquery_watermarks, orders } =
        read(lexed, parse(lexed, ranges)?, catalog)?;
    let statement = Statement::Query(Box::new(query));
    let text = Arc::clone(&lexed.text);
    Ok(PreparedQuery { statement, reads, subquery_watermarks, orders, span, pieces, text })
}

/// Prepares the expression whose tokens are `tokens`, as a query of one row that has its value.
///
/// # Errors
/// Whatever it gets wrong.
pub fn prepare_value(
    lexed: &Lexed,
    tokens: &Range<usize>,
    catalog: &dyn TableCatalog,
) -> Result<PreparedQuery, Diagnostics> {
    let span = template::span_of(lexed, tokens);
    let named = names::named(lexed, catalog.variables());
    let lexed = named.as_ref().unwrap_or(lexed);
    catalog.settings().check_text(lexed)?;
    let earlier = legacy::read(catalog.settings(), lexed);
    let lexed = earlier.as_ref().unwrap_or(lexed);
    let parsed = value(lexed, tokens)?;
    let Read { query, reads, subquery_watermarks, orders } = read(lexed, parsed, catalog)?;
    let statement = Statement::Query(Box::new(query));
    let (text, pieces) = (Arc::clone(&lexed.text), vec![span]);
    Ok(PreparedQuery { statement, reads, subquery_watermarks, orders, span, pieces, text })
}

/// Whether an expression has neither a query nor an aggregate in it.
///
/// # Errors
/// It is no expression.
pub fn is_plain(lexed: &Lexed, tokens: &Range<usize>) -> Result<bool, Diagnostics> {
    let (query, ..) = value(lexed, tokens)?;
    let contents = template::lone(&query).map(Contents::of).unwrap_or_default();
    Ok(contents.queries == 0 && !contents.aggregates)
}

/// Reads one expression without a name.
fn value(lexed: &Lexed, tokens: &Range<usize>) -> Result<Parsed, Diagnostics> {
    let parsed = template::value(lexed, tokens)?;
    if template::lone(&parsed.0).is_none() || template::has_alias(&parsed.0) {
        let message = "this is more than an expression";
        let help = "write one value; a query stands in parentheses";
        return Err(Diagnostic::at(template::span_of(lexed, tokens), message).help(help).into());
    }
    Ok(parsed)
}

/// What [`PreparedQuery`] has of a query, which is as DataFusion plans it.
struct Read {
    query: Query,
    reads: Vec<TableRead>,
    subquery_watermarks: Vec<SubqueryWatermark>,
    orders: Vec<Diagnostic>,
}

fn read(lexed: &Lexed, parsed: Parsed, catalog: &dyn TableCatalog) -> Result<Read, Diagnostics> {
    let (mut query, mut marks, mut subquery_watermarks) = parsed;
    let within = Within::default();
    expand(lexed, &mut query, &mut marks, catalog, &within, relations::resolve)?;
    let watermarks = &mut subquery_watermarks;
    let reads = relations::resolve(lexed, &mut query, marks, watermarks, catalog, &within)?;
    check_watermarks(&reads)?;
    bind::put_in(lexed, &mut query, &reads, catalog.variables())?;
    let orders = stateless::check(lexed, &query, &reads)?;
    refusals::check(lexed, &query, &reads)?;
    if reads.iter().all(|read| read.mode == ReadMode::Batch) {
        joins::name(&mut query);
    }
    rewrite::rewrite(lexed, &mut query, &reads, catalog.settings())?;
    Ok(Read { query, reads, subquery_watermarks, orders })
}

fn check_watermarks(reads: &[TableRead]) -> Result<(), Diagnostics> {
    let mut found = Diagnostics::default();
    for read in reads {
        let Some(watermark) = &read.watermark else { continue };
        let column = &watermark.column;
        if read.mode == ReadMode::Batch {
            found.0.push(
                Diagnostic::at(
                    watermark.span,
                    "a watermark is for a table that is read as a stream",
                )
                .help(format!("write FROM STREAM {} WATERMARK ...", read.table)),
            );
            continue;
        }
        let mut fields = read.schema.fields().iter();
        match fields.find(|field| field.name().eq_ignore_ascii_case(&column.text)) {
            None => {
                let names = read.schema.fields().iter().map(|field| field.name().as_str());
                found.0.push(
                    Diagnostic::at(
                        column.span,
                        format!("table `{}` has no column `{}`", read.table, column.text),
                    )
                    .help(suggest(&column.text, "columns", names)),
                );
            }
            Some(field) if !matches!(field.data_type(), DataType::Timestamp(..)) => {
                found.0.push(
                    Diagnostic::at(
                        column.span,
                        format!(
                            "a watermark needs a TIMESTAMP, but `{}` is {}",
                            field.name(),
                            crate::types::spark_type(field.data_type())
                        ),
                    )
                    .help("declare the column as TIMESTAMP"),
                );
            }
            Some(_) => {}
        }
    }
    found.into_result()
}

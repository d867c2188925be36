//! From a query's tokens to a statement that DataFusion plans as Spark would.
//!
//! 1. [`super::forms`] makes SELECTs of pipes and the like, and [`super::streams`] takes out what
//!    sqlparser does not know (`STREAM`, `WATERMARK`);
//! 2. sqlparser reads the rest;
//! 3. [`super::routines`] puts the bodies of declared functions in the places of their calls;
//! 4. [`super::relations`] finds the tables that are read and gives each read a name of its own;
//! 5. [`super::stateless`] refuses what needs state over a stream;
//! 6. [`super::refusals`] refuses what DataFusion would answer otherwise than Spark;
//! 7. [`super::rewrite`] says in DataFusion's words what Spark says in others.

use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::sql::sqlparser::ast::Statement;

use super::parse::{parse, piece};
use super::prepared::{PreparedQuery, ReadMode, TableCatalog, TableRead};
use super::routines::expand::expand;
use super::{refusals, relations, rewrite, stateless};
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
    let settings = catalog.settings();
    settings.check_text(lexed)?;
    let (mut query, mut marks, mut subquery_watermarks) = parse(lexed, ranges)?;
    expand(lexed, &mut query, &mut marks, catalog, &[], relations::resolve)?;
    let watermarks = &mut subquery_watermarks;
    let reads = relations::resolve(lexed, &mut query, marks, watermarks, catalog, &[])?;
    check_watermarks(&reads)?;
    stateless::check(lexed, &query, &reads)?;
    refusals::check(lexed, &query, &reads)?;
    rewrite::rewrite(lexed, &mut query, &reads, settings)?;
    let statement = Statement::Query(Box::new(query));
    let text = Arc::clone(&lexed.text);
    Ok(PreparedQuery { statement, reads, subquery_watermarks, span, pieces, text })
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

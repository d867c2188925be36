//! From a query's tokens to a statement that DataFusion plans as Spark would.
//!
//! 1. [`super::streams`] takes out what sqlparser does not know (`STREAM`, `WATERMARK`);
//! 2. sqlparser reads the rest;
//! 3. [`super::relations`] finds the tables that are read and gives each read a name of its own;
//! 4. [`super::stateless`] refuses what needs state over a stream;
//! 5. [`super::rewrite`] says in DataFusion's words what Spark says in others.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use datafusion::sql::sqlparser::ast::{Query, Statement};
use datafusion::sql::sqlparser::parser::ParserError;
use datafusion::sql::sqlparser::tokenizer::{Location, Token};

use crate::api::connector::ReadMode;

use super::diagnostic::{Diagnostic, Diagnostics, Span};
use super::lexer::{Lexed, Lexeme};
use super::nearest::{nearest, suggest};
use super::streams::{self, Mark};
pub use super::streams::{SubqueryWatermark, Watermark};
use super::{balance, limits, reading, relations, rewrite, stateless};

/// A query that is ready to be planned.
#[derive(Clone, Debug)]
pub struct PreparedQuery {
    /// The statement, in DataFusion's words.
    pub statement: Statement,
    /// The tables it reads. Two reads of one stream are two entries, each a source of its own;
    /// a table that is read as a batch has one entry however often it is named.
    pub reads: Vec<TableRead>,
    /// Its subqueries with a watermark.
    pub subquery_watermarks: Vec<SubqueryWatermark>,
    /// Where the query stands in the pipeline file, without a FROM clause that it shares.
    pub span: Span,
    /// All its pieces, in the order in which they are read.
    pub(super) pieces: Vec<Span>,
    /// The pipeline file.
    pub(super) text: Arc<str>,
}

impl PreparedQuery {
    /// What is wrong with the query as a whole, as a message about it.
    pub fn refused(&self, message: impl Into<String>, help: impl Into<String>) -> Diagnostics {
        Diagnostic::at(super::blame::first_word(self), message).help(help).into()
    }

    /// True where at least one table is read as a stream.
    pub fn is_stream(&self) -> bool {
        self.reads.iter().any(|read| read.mode == ReadMode::Stream)
    }
}

/// One table that a query reads.
#[derive(Clone, Debug)]
pub struct TableRead {
    /// The table's name as declared.
    pub table: String,
    /// As a stream or as a batch.
    pub mode: ReadMode,
    /// The name under which the plan looks for the table's provider.
    pub registered_as: String,
    /// The columns.
    pub schema: SchemaRef,
    /// Where the query names the table, `STREAM` included.
    pub span: Span,
    /// `WATERMARK ...`, which has no effect on a query without state.
    pub watermark: Option<Watermark>,
}

/// What a query can read.
pub trait TableCatalog {
    /// The declared name of the table called `name`, whatever its case.
    fn table(&self, name: &str) -> Option<String>;
    /// The names of all tables, for suggestions.
    fn names(&self) -> Vec<String>;
    /// The columns of a declared table when read in `mode`, by the query at `span`.
    fn schema(&self, table: &str, mode: ReadMode, span: Span) -> Result<SchemaRef, Diagnostic>;
    /// The tokens of the view called `name`, whatever its case.
    fn view(&self, _name: &str) -> Option<Range<usize>> {
        None
    }
}

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
pub(super) fn prepare(
    lexed: &Lexed,
    ranges: &[Range<usize>],
    catalog: &dyn TableCatalog,
) -> Result<PreparedQuery, Diagnostics> {
    let pieces: Vec<Span> = ranges.iter().filter_map(|range| piece(lexed, range)).collect();
    let (Some(first), Some(last)) = (pieces.first(), ranges.last()) else {
        return Err(Diagnostic::nowhere("there is no query").into());
    };
    let span = piece(lexed, last).map_or(*first, |last| first.to(last));
    let (mut query, marks, mut subquery_watermarks) = parse(lexed, ranges)?;
    let reads = relations::resolve(lexed, &mut query, marks, &mut subquery_watermarks, catalog)?;
    check_watermarks(&reads)?;
    stateless::check(lexed, &query, &reads)?;
    rewrite::rewrite(lexed, &mut query, &reads)?;
    let statement = Statement::Query(Box::new(query));
    let text = Arc::clone(&lexed.text);
    Ok(PreparedQuery { statement, reads, subquery_watermarks, span, pieces, text })
}

/// Where some tokens stand; `None` where there are none.
fn piece(lexed: &Lexed, range: &Range<usize>) -> Option<Span> {
    let lexemes = &lexed.lexemes[range.clone()];
    Some(lexemes.first()?.span.to(lexemes.last()?.span))
}

/// A query, the marks of its tables by the first byte of each one's name, and its subqueries with a
/// watermark.
type Parsed = (Query, HashMap<usize, Mark>, Vec<SubqueryWatermark>);

/// Reads a query.
pub(super) fn parse(lexed: &Lexed, ranges: &[Range<usize>]) -> Result<Parsed, Diagnostic> {
    let end = ranges.iter().filter_map(|range| piece(lexed, range)).map(|piece| piece.end);
    let end = end.max().unwrap_or(0);
    let extracted = streams::extract(lexed, ranges)?;
    let (mut query, next) =
        reading::read(lexed, extracted.tokens, end, |parser| parser.parse_query())?;
    if next.token != Token::EOF {
        let at = lexed.span(next.span).unwrap_or(Span::new(end, end));
        return Err(unexpected(lexed, at, "the end of the query"));
    }
    balance::balance(&mut query);
    Ok((*query, extracted.marks, extracted.subqueries))
}

/// sqlparser's error at its place; `end` is where the query ends.
pub(super) fn unreadable(lexed: &Lexed, error: &ParserError, end: usize) -> Diagnostic {
    let text = match error {
        ParserError::ParserError(text) | ParserError::TokenizerError(text) => text,
        ParserError::RecursionLimitExceeded => return reading::too_deep(Span::new(end, end)),
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

/// Words that go on a query after its tables; a misspelled one is read as an alias.
const CLAUSES: &[&str] = &["WHERE", "GROUP", "ORDER", "HAVING", "JOIN", "LIMIT", "UNION", "FROM"];

fn unexpected(lexed: &Lexed, at: Span, expected: &str) -> Diagnostic {
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

pub(super) fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    match (chars.next(), chars.clone().next()) {
        (Some(first), Some(second)) if !second.is_uppercase() => {
            first.to_lowercase().chain(chars).collect()
        }
        _ => text.to_owned(),
    }
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
                            super::types::spark_type(field.data_type())
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

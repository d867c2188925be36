//! A query that was read: its statement, and the tables that it reads.

use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::sql::sqlparser::ast::Statement;

use super::routines::declare::Routine;
use super::settings::Settings;
use super::streams::{AsOf, SubqueryWatermark, Watermark};
use super::variables::known::Variable;
use crate::diagnostic::{Diagnostic, Diagnostics, Span};
use crate::types::collation::Collation;

/// Starts the names of relations that are streams.
pub const STREAM_PREFIX: &str = "__stream_";

/// How a table is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadMode {
    /// `FROM STREAM t`: micro-batches, from the starting position on.
    Stream,
    /// `FROM t`: from the earliest row to what is there at the start.
    Batch,
}

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
    /// Its ORDER BY and LIMIT over a stream, each with why it is refused: only `outputMode`
    /// 'complete' has all rows of an aggregation, again and again.
    pub orders: Vec<Diagnostic>,
    /// The query's place in the pipeline file, without a FROM clause that it shares.
    pub span: Span,
    /// All its pieces, in the order in which they are read.
    pub pieces: Vec<Span>,
    /// The pipeline file.
    pub text: Arc<str>,
}

impl PreparedQuery {
    /// A diagnostic about the query as a whole.
    pub fn refused(&self, message: impl Into<String>, help: impl Into<String>) -> Diagnostics {
        Diagnostic::at(self.first_word(), message).help(help).into()
    }

    /// The query's first word, to point at when nothing better is known.
    pub(crate) fn first_word(&self) -> Span {
        let text = &self.text[self.span.range()];
        let length = text.find(|ch: char| !ch.is_alphanumeric()).unwrap_or(text.len());
        Span::new(self.span.start, self.span.start + length.max(1))
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
    /// The columns whose STRINGs have collations, with one for each of these.
    pub collations: Vec<(String, Vec<Collation>)>,
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
    /// The declared name of the table that is at `path` and has the format before it, as in
    /// ``delta.`/lake/orders` ``. `None` where tables have to be declared.
    fn table_at(&self, _format: &str, _path: &str) -> Option<Result<String, NotThere>> {
        None
    }
    /// The declared name of `table` as it was earlier. `None` where only the newest state is read.
    fn table_as_of(&self, _table: &str, _when: &AsOf) -> Option<Result<String, NotThere>> {
        None
    }
    /// The tokens of the view called `name`, whatever its case.
    fn view(&self, _name: &str) -> Option<Range<usize>> {
        None
    }
    /// Whether the rows of a declared table are those of files, of which a query can ask by
    /// `_metadata`.
    fn has_files(&self, _table: &str) -> bool {
        false
    }
    /// How the query is read.
    fn settings(&self) -> Settings {
        Settings::default()
    }
    /// Whether columns of its tables may have collations.
    fn has_collations(&self) -> bool {
        false
    }
    /// Whether there are declared functions: where there are none, no call is looked for.
    fn has_functions(&self) -> bool {
        false
    }
    /// The declared function called `name`, whatever its case.
    fn function(&self, _name: &str) -> Option<Arc<Routine>> {
        None
    }
    /// The variables that a name can mean which is no column; of two of one name the last one is
    /// meant.
    fn variables(&self) -> &[Arc<Variable>] {
        &[]
    }
}

/// Why a query cannot read a table that it names, and what to do about it.
#[derive(Clone, Debug)]
pub struct NotThere {
    /// What is wrong.
    pub problem: String,
    /// What to write instead, where something is known.
    pub help: Option<String>,
}

//! Side outputs of a query: which rows are rejected, by what, and which of its dead-letter tables
//! gets them.
//!
//! Rows are rejected at three places: a record that cannot be decoded, by decoding; a record that
//! a plan cannot compute, by an expression; a row that breaks a constraint, by that. Each is a
//! dead letter, and a side output is the dead letters of one table. Its sink is one of the query's
//! [`outputs`](super::outputs).
//!
//! Which records are malformed follows from the range and the table's columns alone, not from what
//! the query reads of them, so a replay finds the same ones. With constraints, and with expressions
//! that read the clock, it follows from the micro-batch's time, too. Then each micro-batch has its
//! intent in the log, durable, before any sink publishes.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use millstream_store::error::{Classified, Kind};
use thiserror::Error;

use super::dead_letter_tables::RecordedTable;
use super::decoded::Columns;
use super::outputs::Partitions;
use crate::api::dead_letter::{Group, Layout, Letter, Stamp};
use crate::api::progress::ConstraintProgress;
use crate::api::source::Failure;
use crate::constraints::Checks;
use crate::state::codec;

/// What is rejected of a query's rows, and for which side output. Without any by default.
#[derive(Default)]
pub(super) struct SideOutputs {
    /// The flow's name, which each letter has.
    flow: String,
    rejections: Rejections,
    /// By source, whether decoding rejects its malformed records.
    takes_malformed: Vec<bool>,
    tables: Vec<SideOutput>,
}

/// What the rows of a flow are rejected by.
#[derive(Default)]
pub struct Rejections {
    /// By source, what becomes of its malformed records; `None` where its table's mode decides.
    pub decoding: Vec<Option<DecodingRoute>>,
    /// What becomes of records that a plan cannot compute; `None` where the query fails.
    pub expressions: Option<ExpressionRoutes>,
    /// What the rows are validated against. Only a query with one branch has constraints.
    pub checks: Option<Checks>,
}

/// The letters of one table.
pub(super) struct SideOutput {
    /// The table's name in lower case.
    pub(super) name: String,
    /// Which columns its letters have.
    pub(super) layout: Layout,
}

/// What becomes of the malformed records of one source.
#[derive(Clone, Debug)]
pub struct DecodingRoute {
    /// The source's table, which each letter names.
    pub source_table: Arc<str>,
    /// How many columns the source has: all are decoded, read or not.
    pub columns: usize,
    /// The side output. `None` where another source of the query reads the same table, and keeps
    /// the letters.
    pub side_output: Option<usize>,
}

/// What becomes of records that a plan cannot compute.
#[derive(Clone, Debug)]
pub struct ExpressionRoutes {
    /// By source, its table, which each letter names, and the side output.
    pub sources: Vec<(Arc<str>, usize)>,
    /// Whether a plan reads the clock: then which records these are may follow from the time.
    pub reads_clock: bool,
}

/// What a micro-batch has for one side output.
#[derive(Clone, Debug, Default)]
pub(super) struct Rejected {
    /// Rows of the table that are made already; they come before the letters.
    pub(super) rows: Vec<RecordBatch>,
    letters: Vec<Group>,
}

/// Why the letters of an entry of the state log cannot be given again.
#[derive(Debug, Error)]
pub(super) enum SectionError {
    /// A section is damaged.
    #[error("{problem}")]
    Damaged {
        /// What is wrong.
        problem: String,
    },
    /// A section has other columns than the table.
    #[error("the state log has letters that are not of the table '{table}'")]
    OtherTable {
        /// The table's name in lower case.
        table: String,
    },
}

impl Classified for SectionError {
    fn kind(&self) -> Kind {
        Kind::Data
    }
}

impl SideOutputs {
    /// Side outputs of the flow `flow`, whose routes and constraints name them by their place in
    /// `tables`.
    pub(super) fn new(flow: &str, rejections: Rejections, tables: Vec<SideOutput>) -> Self {
        let takes_malformed = rejections.decoding.iter().map(Option::is_some).collect();
        Self { flow: flow.to_owned(), rejections, takes_malformed, tables }
    }

    /// Whether nothing is rejected, nor checked.
    pub(super) fn is_empty(&self) -> bool {
        self.tables.is_empty() && self.rejections.checks.is_none()
    }

    /// What the rows of the query's only branch are validated against.
    pub(super) fn checks(&self) -> Option<&Checks> {
        self.rejections.checks.as_ref()
    }

    /// Whether expressions reject records: then all plans have to run before anything is
    /// published.
    pub(super) fn take_failing_records(&self) -> bool {
        self.rejections.expressions.is_some()
    }

    /// Whether decoding rejects records of any source.
    pub(super) fn take_malformed_records(&self) -> bool {
        self.takes_malformed.contains(&true)
    }

    /// By source, whether decoding rejects its malformed records; sources without an entry keep
    /// them.
    pub(super) fn takes_malformed(&self) -> &[bool] {
        &self.takes_malformed
    }

    /// Whether the time of a micro-batch may decide which rows are rejected.
    pub(super) fn follow_time(&self) -> bool {
        self.rejections.checks.as_ref().is_some_and(|checks| checks.tables().next().is_some())
            || self.rejections.expressions.as_ref().is_some_and(|routes| routes.reads_clock)
    }

    /// All columns of the sources whose malformed records are rejected, instead of those that plans
    /// read.
    pub(super) fn widen(&self, columns: &mut [Columns]) {
        for (columns, route) in columns.iter_mut().zip(&self.rejections.decoding) {
            if let Some(route) = route {
                *columns = (0..route.columns).collect();
            }
        }
    }

    /// The tables, as the checkpoint knows them.
    pub(super) fn recorded_tables(&self) -> Vec<RecordedTable> {
        let recorded = |table: &SideOutput| RecordedTable {
            name: table.name.clone(),
            columns: millstream_sql::types::spark_schema(table.layout.schema()),
        };
        self.tables.iter().map(recorded).collect()
    }

    /// Nothing rejected, by side output.
    pub(super) fn nothing(&self) -> Vec<Rejected> {
        vec![Rejected::default(); self.tables.len()]
    }

    /// Adds records that decoding rejected, by source, to what is `rejected` by side output.
    pub(super) fn add_malformed(&self, letters: Vec<Vec<Letter>>, rejected: &mut [Rejected]) {
        for (letters, route) in letters.into_iter().zip(&self.rejections.decoding) {
            if let Some(DecodingRoute { source_table, side_output: Some(side_output), .. }) = route
            {
                rejected[*side_output].add(source_table, letters);
            }
        }
    }

    /// Adds records that plans could not compute, by source, to what is `rejected` by side output.
    pub(super) fn add_failing(&self, letters: Vec<Vec<Letter>>, rejected: &mut [Rejected]) {
        let sources = self.rejections.expressions.iter().flat_map(|routes| &routes.sources);
        for (letters, (source_table, side_output)) in letters.into_iter().zip(sources) {
            rejected[*side_output].add(source_table, letters);
        }
    }

    /// Validates rows against the constraints. What these reject is added to what is `rejected` by
    /// side output; the others go on.
    pub(super) fn check(
        &self,
        partitions: Partitions,
        rejected: &mut [Rejected],
    ) -> Result<(Partitions, Vec<ConstraintProgress>), Failure> {
        let Some(checks) = &self.rejections.checks else { return Ok((partitions, Vec::new())) };
        let checked = checks.apply(partitions)?;
        for (side_output, group) in checked.letters {
            rejected[side_output].letters.push(group);
        }
        Ok((checked.partitions, checked.progress))
    }

    /// What is rejected for a side output as rows of its table; `found_ms` is the micro-batch's
    /// time.
    pub(super) fn rows(
        &self,
        side_output: usize,
        rejected: Rejected,
        found_ms: i64,
    ) -> Vec<RecordBatch> {
        let Rejected { mut rows, letters } = rejected;
        let stamp = Stamp { flow: &self.flow, found_ms };
        rows.extend(self.tables[side_output].layout.rows(&letters, stamp));
        rows
    }

    /// By side output, the schema of its rows.
    pub(super) fn schemas(&self) -> impl Iterator<Item = SchemaRef> {
        self.tables.iter().map(|table| Arc::clone(table.layout.schema()))
    }

    /// By side output, its rows out of the sections of an entry of the state log. A table that was
    /// added since has none.
    ///
    /// Errors: sections that are not of these tables.
    pub(super) fn rows_again(
        &self,
        sections: &[Vec<u8>],
    ) -> Result<Vec<Vec<RecordBatch>>, SectionError> {
        let mut rows_again = Vec::with_capacity(self.tables.len());
        for (index, table) in self.tables.iter().enumerate() {
            let section = sections.get(index).map_or(&[][..], Vec::as_slice);
            let rows = codec::decode(section)
                .map_err(|error| SectionError::Damaged { problem: error.to_string() })?;
            if rows.iter().any(|rows| rows.schema() != *table.layout.schema()) {
                return Err(SectionError::OtherTable { table: table.name.clone() });
            }
            rows_again.push(rows);
        }
        Ok(rows_again)
    }
}

impl Rejected {
    /// Rows that are made already.
    pub(super) fn from_rows(rows: Vec<RecordBatch>) -> Self {
        Self { rows, letters: Vec::new() }
    }

    fn add(&mut self, source_table: &Arc<str>, letters: Vec<Letter>) {
        if !letters.is_empty() {
            let source_table = Some(Arc::clone(source_table));
            self.letters.push(Group { source_table, constraint: None, letters });
        }
    }
}

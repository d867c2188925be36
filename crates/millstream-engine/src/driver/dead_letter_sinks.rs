//! Where a query's dead letters go: sinks beside those of its branches, fed with what decoding or a
//! constraint rejected.
//!
//! To recovery they are sinks like the others: they come after the branches' own, answer for
//! themselves, and get a micro-batch again that they lack. Which records are letters follows from
//! the range and the table's columns alone, not from what the query reads of them, so a replay
//! finds the same ones.
//!
//! With constraints it follows from the micro-batch's time, too, if a condition names that. Then
//! each micro-batch has its intent in the log, durable, before any sink publishes.
//!
//! A micro-batch without letters is not handed over, and nobody asks whether such a sink is ready:
//! good rows do not wait until a table of bad ones commits. What is waited for is the hand-over of
//! letters, after that of the rows: until the sink has room for them, or, of a sink that publishes
//! at once as a directory of files does, until they are published.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use millstream_store::log_writer::Ticket;
use millstream_store::offset::BatchId;

use super::all_ran::AllRan;
use super::decoded::Columns;
use super::letter_tables::LetterTable;
use crate::api::dead_letter::{Group, Layout, Letter, Stamp};
use crate::api::progress::{ConstraintProgress, SinkProgress};
use crate::api::sink::{Acknowledgement, Delivery, EndOffsets, Output, Sink};
use crate::api::source::{Failure, Kind};
use crate::constraints::Checks;
use crate::state::codec;

/// The sinks of a query's dead letters, and what goes to which.
pub struct DeadLetterSinks {
    /// The flow's name, which each letter tells.
    flow: String,
    routes: Vec<Option<Route>>,
    /// By source, whether it has a route.
    apart: Vec<bool>,
    letter_sinks: Vec<DeadLetterSink>,
    /// What the rows of the query's only branch are held against.
    checks: Option<Checks>,
    /// Where records go that a plan cannot compute, if they are put aside.
    aside: Option<Aside>,
}

/// What becomes of records that a plan cannot compute.
#[derive(Clone, Debug)]
pub struct Aside {
    /// By source, its table, which each letter tells, and the sink among those of dead letters.
    pub routes: Vec<(Arc<str>, usize)>,
    /// Whether a plan reads the clock, so that it may follow from the time which they are.
    pub reads_clock: bool,
}

/// What becomes of the letters of one source.
#[derive(Clone, Debug)]
pub struct Route {
    /// The source's table, which each letter tells.
    pub source_table: Arc<str>,
    /// How many columns the source has: all are decoded, read or not.
    pub columns: usize,
    /// The sink, among those of dead letters. `None` where another source of the query reads the
    /// same table, and keeps the letters.
    pub letter_sink: Option<usize>,
}

/// A sink of dead letters.
pub struct DeadLetterSink {
    /// What tells it from the others: its table's name in lower case.
    pub name: String,
    /// The sink.
    pub sink: Box<dyn Sink>,
    /// Which columns it gets.
    pub layout: Layout,
}

/// A micro-batch's letters, by sink.
pub(super) type Letters = Vec<Vec<Group>>;

/// The same as rows.
pub(super) type LetterRows = Vec<Vec<RecordBatch>>;

impl DeadLetterSinks {
    /// The dead letters of the flow `flow`. `routes` has an entry for each source, `None` for one
    /// whose records are all taken as its table's mode says.
    pub fn new(flow: &str, routes: Vec<Option<Route>>, letter_sinks: Vec<DeadLetterSink>) -> Self {
        let apart = routes.iter().map(Option::is_some).collect();
        Self { flow: flow.to_owned(), routes, apart, letter_sinks, checks: None, aside: None }
    }

    /// The same, with records put aside that a plan cannot compute.
    pub fn with_aside(self, aside: Option<Aside>) -> Self {
        Self { aside, ..self }
    }

    /// Whether all plans have to run before anything is published: what one cannot compute is a
    /// letter.
    pub(super) fn puts_aside(&self) -> bool {
        self.aside.is_some()
    }

    /// Adds what plans could not compute to `letters`.
    pub(super) fn put_aside(&self, mut ran: AllRan, letters: &mut Letters) -> AllRan {
        self.add_aside(std::mem::take(&mut ran.rejected), letters);
        ran
    }

    /// Adds records that plans could not compute, by source, to `letters`.
    pub(super) fn add_aside(&self, rejected: Vec<Vec<Letter>>, letters: &mut Letters) {
        let routes = self.aside.iter().flat_map(|aside| &aside.routes);
        for (rejected, (source_table, letter_sink)) in rejected.into_iter().zip(routes) {
            if !rejected.is_empty() {
                let source_table = Some(Arc::clone(source_table));
                letters[*letter_sink].push(Group {
                    source_table,
                    constraint: None,
                    letters: rejected,
                });
            }
        }
    }

    /// The same, with constraints on the rows of the query, which then has one branch.
    pub fn with_checks(mut self, checks: Option<Checks>) -> Self {
        self.checks = checks;
        self
    }

    /// What the rows of the query's only branch are validated against.
    pub(super) fn checks(&self) -> Option<&Checks> {
        self.checks.as_ref()
    }

    /// Whether a plan has to run though its own sink has the micro-batch: its rows may be letters.
    pub(super) fn has_checks(&self) -> bool {
        self.checks.is_some()
    }

    /// Whether constraints decide which rows are letters, or what is computed of the clock.
    pub(super) fn choose_rows(&self) -> bool {
        self.checks.as_ref().is_some_and(|checks| checks.tables().next().is_some())
            || self.aside.as_ref().is_some_and(|aside| aside.reads_clock)
    }

    /// The tables, as the checkpoint knows them.
    pub(super) fn tables(&self) -> impl Iterator<Item = LetterTable> {
        self.letter_sinks.iter().map(|letter_sink| LetterTable {
            name: letter_sink.name.clone(),
            columns: millstream_sql::types::spark_schema(letter_sink.layout.schema()),
        })
    }

    /// Letters of decoding out of the sections of an entry of the state log, by sink. A table that
    /// was added since has none.
    ///
    /// Errors: sections that are not of these tables.
    pub(super) fn letters_again(&self, sections: &[Vec<u8>]) -> Result<LetterRows, Failure> {
        let mut letters = LetterRows::with_capacity(self.letter_sinks.len());
        for (index, schema) in self.schemas().enumerate() {
            let section = sections.get(index).map_or(&[][..], Vec::as_slice);
            let rows = codec::decode(section);
            let rows = rows.map_err(|error| Failure::new(Kind::Data, error.to_string()))?;
            if rows.iter().any(|rows| rows.schema() != schema) {
                let name = &self.letter_sinks[index].name;
                let text = format!("the state log has letters that are not of the table '{name}'");
                return Err(Failure::new(Kind::Data, text));
            }
            letters.push(rows);
        }
        Ok(letters)
    }

    /// Holds rows against the constraints. What they reject is added to `letters`.
    pub(super) fn check(
        &self,
        partitions: Vec<Vec<RecordBatch>>,
        letters: &mut Letters,
    ) -> Result<(Vec<Vec<RecordBatch>>, Vec<ConstraintProgress>), Failure> {
        let Some(checks) = &self.checks else { return Ok((partitions, Vec::new())) };
        let checked = checks.apply(partitions)?;
        for (letter_sink, group) in checked.letters {
            letters[letter_sink].push(group);
        }
        Ok((checked.partitions, checked.progress))
    }

    pub(super) fn sinks(&self) -> impl Iterator<Item = &dyn Sink> {
        self.letter_sinks.iter().map(|letter_sink| &*letter_sink.sink)
    }

    pub(super) fn sinks_mut(&mut self) -> impl Iterator<Item = &mut Box<dyn Sink>> {
        self.letter_sinks.iter_mut().map(|letter_sink| &mut letter_sink.sink)
    }

    /// Whether letters are kept until a sink publishes many micro-batches at once.
    pub(super) fn gather(&self) -> bool {
        self.sinks().any(|sink| sink.micro_batches_in_flight_max().is_some())
    }

    /// All columns of the sources that have letters, instead of those that plans read.
    pub(super) fn widen(&self, columns: &mut [Columns]) {
        for (columns, route) in columns.iter_mut().zip(&self.routes) {
            if let Some(route) = route {
                *columns = (0..route.columns).collect();
            }
        }
    }

    /// By source, whether its malformed records are letters.
    pub(super) fn apart(&self) -> &[bool] {
        &self.apart
    }

    /// Sorts what decoding rejected, by source, into letters by sink.
    pub(super) fn sort(&self, rejected: Vec<Vec<Letter>>) -> Letters {
        let mut sorted: Letters = self.letter_sinks.iter().map(|_| Vec::new()).collect();
        for (letters, route) in rejected.into_iter().zip(&self.routes) {
            let Some(Route { source_table, letter_sink: Some(letter_sink), .. }) = route else {
                continue;
            };
            if !letters.is_empty() {
                let source_table = Some(Arc::clone(source_table));
                sorted[*letter_sink].push(Group { source_table, constraint: None, letters });
            }
        }
        sorted
    }

    /// Holds the rows of a query that runs once against the constraints, and publishes what they
    /// reject. Gives the others.
    pub(super) async fn check_once(
        &mut self,
        partitions: Vec<Vec<RecordBatch>>,
        end_offsets: &EndOffsets,
    ) -> Result<Vec<Vec<RecordBatch>>, Failure> {
        let mut letters = self.sort(Vec::new());
        let (partitions, counts) = self.check(partitions, &mut letters)?;
        for ConstraintProgress { name, passed, failed } in counts {
            tracing::info!(constraint = name, passed, failed, "the rows were checked");
        }
        for sink in self.sinks_mut() {
            sink.open().await?;
        }
        let of_batch = (BatchId(0), end_offsets);
        let published = self.publish(letters, of_batch, &mut None, |_| true).await?;
        for sink in self.sinks_mut() {
            sink.flush().await;
        }
        for (_, acknowledgement) in published {
            acknowledgement.accepted().await?;
        }
        for sink in self.sinks_mut() {
            sink.close().await?;
        }
        Ok(partitions)
    }

    /// Hands a micro-batch's letters over, to those sinks for which `is_meant` holds. Gives what
    /// each sink got, and its acknowledgement.
    pub(super) async fn publish(
        &mut self,
        letters: Letters,
        (id, end_offsets): (BatchId, &EndOffsets),
        intent: &mut Option<Ticket>,
        is_meant: impl Fn(usize) -> bool,
    ) -> Result<Vec<(SinkProgress, Acknowledgement)>, Failure> {
        let rows = self.rows(&letters, end_offsets.batch_time_ms);
        self.publish_rows(rows, (id, end_offsets), intent, is_meant).await
    }

    /// The rows of letters, by sink; `found_ms` is the micro-batch's time.
    pub(super) fn rows(&self, letters: &Letters, found_ms: i64) -> LetterRows {
        let stamp = Stamp { flow: &self.flow, found_ms };
        let rows = self.letter_sinks.iter().zip(letters);
        rows.map(|(letter_sink, groups)| letter_sink.layout.rows(groups, stamp)).collect()
    }

    /// By sink, the schema of its letters' rows.
    pub(super) fn schemas(&self) -> impl Iterator<Item = SchemaRef> {
        self.letter_sinks.iter().map(|letter_sink| Arc::clone(letter_sink.layout.schema()))
    }

    /// As [`Self::publish`], of rows by sink.
    pub(super) async fn publish_rows(
        &mut self,
        rows: LetterRows,
        (id, end_offsets): (BatchId, &EndOffsets),
        intent: &mut Option<Ticket>,
        is_meant: impl Fn(usize) -> bool,
    ) -> Result<Vec<(SinkProgress, Acknowledgement)>, Failure> {
        let mut publish_result = Vec::with_capacity(self.letter_sinks.len());
        for (index, (letter_sink, rows)) in self.letter_sinks.iter_mut().zip(rows).enumerate() {
            let description = letter_sink.sink.description();
            let mut progress = SinkProgress { description, rows: 0, latency: Duration::ZERO };
            let mut acknowledgement = Acknowledgement::Done;
            if is_meant(index) && !rows.is_empty() {
                progress.rows = rows.iter().map(|rows| rows.num_rows() as u64).sum();
                let (partitions, end_offsets) = (vec![rows], end_offsets.clone());
                let output = Output { batch_id: id, partitions, end_offsets };
                logged_for(letter_sink.sink.delivery(), intent).await?;
                acknowledgement = letter_sink.sink.publish(output).await?;
            }
            publish_result.push((progress, acknowledgement));
        }
        Ok(publish_result)
    }
}

/// Waits until the intent is durable if a sink of this kind relies on that.
pub(super) async fn logged_for(
    delivery: Delivery,
    intent: &mut Option<Ticket>,
) -> Result<(), Failure> {
    if delivery == Delivery::Idempotent
        && let Some(ticket) = intent.take()
    {
        ticket.written().await?;
    }
    Ok(())
}

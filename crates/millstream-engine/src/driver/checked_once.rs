//! Constraints on the result of a batch query, piece by piece.
//!
//! What constraints reject goes to the sinks of the side outputs as it is found, and is published
//! before the result.

use arrow::array::RecordBatch;
use millstream_store::offset::BatchId;

use super::dead_letter_sinks::DeadLetterSinks;
use super::outputs::Order;
use crate::api::progress::ConstraintProgress;
use crate::api::sink::{EndOffsets, Ending, Failure};

/// The constraints of a batch query, and what they have rejected so far.
pub struct CheckedOnce<'a> {
    sinks: &'a mut DeadLetterSinks,
    /// When the query runs, milliseconds since the epoch.
    batch_time_ms: i64,
    /// How many rows met each constraint.
    progress: Vec<ConstraintProgress>,
    /// By side output, rows that its sink cannot take before all of them are there.
    held: Vec<Vec<RecordBatch>>,
    /// By side output, whether it has rows.
    has_rows: Vec<bool>,
    is_open: bool,
}

impl<'a> CheckedOnce<'a> {
    /// Nothing checked so far.
    pub fn new(sinks: &'a mut DeadLetterSinks, batch_time_ms: i64) -> Self {
        let count = sinks.side_outputs.nothing().len();
        Self {
            sinks,
            batch_time_ms,
            progress: Vec::new(),
            held: vec![Vec::new(); count],
            has_rows: vec![false; count],
            is_open: false,
        }
    }

    /// Validates `rows` against the constraints, and gives those that go on, if there are any.
    ///
    /// Errors: the first row that breaks a constraint with FAIL UPDATE; failures of a sink of dead
    /// letters.
    pub(super) async fn check(
        &mut self,
        rows: RecordBatch,
    ) -> Result<Option<RecordBatch>, Failure> {
        let side_outputs = &self.sinks.side_outputs;
        let mut rejected = side_outputs.nothing();
        let (partitions, progress) = side_outputs.check(vec![vec![rows]], &mut rejected)?;
        let rows = |(index, rejected)| side_outputs.rows(index, rejected, self.batch_time_ms);
        let rejected: Vec<_> = rejected.into_iter().enumerate().map(rows).collect();
        self.count(progress);
        for (index, rows) in rejected.into_iter().enumerate() {
            self.write(index, rows).await?;
        }
        Ok(partitions.into_iter().flatten().next())
    }

    fn count(&mut self, progress: Vec<ConstraintProgress>) {
        if self.progress.is_empty() {
            self.progress = progress;
            return;
        }
        for (all, one) in self.progress.iter_mut().zip(progress) {
            all.passed += one.passed;
            all.failed += one.failed;
        }
    }

    async fn open(&mut self) -> Result<(), Failure> {
        if !self.is_open {
            self.sinks.outputs.open().await?;
            self.is_open = true;
        }
        Ok(())
    }

    /// Hands rejected rows over to the sink of the side output `index`.
    async fn write(&mut self, index: usize, rows: Vec<RecordBatch>) -> Result<(), Failure> {
        for rows in rows.into_iter().filter(|rows| rows.num_rows() > 0) {
            self.open().await?;
            self.has_rows[index] = true;
            let sink = self.sinks.outputs.sinks_mut().nth(index);
            match sink.expect("each side output has a sink").piece_writer() {
                Some(writer) => writer.write(0, rows).await?,
                None => self.held[index].push(rows),
            }
        }
        Ok(())
    }

    /// Publishes what was rejected, and waits until the sinks have it.
    pub(super) async fn publish(mut self) -> Result<(), Failure> {
        for ConstraintProgress { name, passed, failed } in &self.progress {
            tracing::info!(constraint = name, passed, failed, "the rows were checked");
        }
        self.open().await?;
        let outputs = &mut self.sinks.outputs;
        let batch_time_ms = self.batch_time_ms;
        let end_offsets = EndOffsets { batch_time_ms, ..EndOffsets::default() };
        let mut order = Order { id: BatchId(0), end_offsets, sinks: None, intent: None };
        let mut acknowledgements = Vec::new();
        for (index, held) in self.held.into_iter().enumerate() {
            if self.has_rows[index] {
                acknowledgements.push(outputs.publish(index, vec![held], &mut order).await?);
            }
        }
        outputs.end(Ending::Complete).await;
        for acknowledgement in acknowledgements {
            acknowledgement.accepted().await?;
        }
        outputs.close().await
    }
}

//! The driver's view of a stateful operator.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::common::Result;
use millstream_store::env::Env;
use millstream_store::offset::BatchId;

use super::micro_batch::{Applied, MicroBatchFacts};
use super::snapshot_builder::SnapshotBuilder;
use crate::api::progress::OperatorMetrics;

/// An operator whose output depends on rows of earlier micro-batches.
///
/// It is a function of its inputs, in order: the same calls of [`Self::apply`] give the same state
/// and the same output. A restart relies on that: it applies the entries of the state log.
#[async_trait]
pub trait Operator: Send {
    /// Applies the rows of a micro-batch, by input, and its watermark to the state; returns the
    /// output.
    async fn apply(
        &mut self,
        env: &Env,
        facts: &MicroBatchFacts,
        inputs: Vec<Vec<RecordBatch>>,
    ) -> Result<Applied>;

    /// The schema of each input's rows.
    fn input_schemas(&self) -> Vec<SchemaRef>;

    /// Whether a watermark of `evict_us`, microseconds since the epoch, would give output without
    /// any input.
    fn is_due(&self, evict_us: i64) -> bool;

    /// The first micro-batch whose rows are still in the state; `None` where there is none.
    fn needs_from(&self) -> Option<BatchId>;

    /// The size of its state and the counts of the last micro-batch, without
    /// [`OperatorMetrics::bytes`].
    fn metrics(&self) -> OperatorMetrics;

    /// The memory of its state, in bytes; may take a walk through all of it.
    fn bytes(&self) -> u64;

    /// A builder of snapshots of its state, which begins without state.
    fn snapshot_builder(&self) -> Result<Box<dyn SnapshotBuilder>>;
}

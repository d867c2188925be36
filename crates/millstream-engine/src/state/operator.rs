//! What the driver knows of a stateful operator.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::common::Result;
use millstream_store::env::Env;
use millstream_store::offset::BatchId;

use super::replica::Replica;
use super::watermark::Watermark;
use crate::api::progress::OperatorMetrics;

/// What an operator is told of a micro-batch besides its rows.
#[derive(Clone, Copy, Debug)]
pub struct MicroBatchFacts {
    /// Its number.
    pub id: BatchId,
    /// Its watermarks.
    pub watermark: Watermark,
    /// Whether the rows are those of a snapshot: they make the state again.
    pub is_snapshot: bool,
    /// Whether what comes of them is looked at. Where it is not, only the state matters, and there
    /// need be no output.
    pub is_wanted: bool,
}

impl MicroBatchFacts {
    /// With this nothing is late, and nothing closes.
    pub const NOTHING_LATE: Watermark = Watermark { evict_ms: i64::MIN, late_ms: i64::MIN };

    /// Of a micro-batch.
    pub fn new(id: BatchId, watermark: Watermark) -> Self {
        Self { id, watermark, is_snapshot: false, is_wanted: true }
    }

    /// Of a snapshot of the state up to the micro-batch `id`: nothing in it is late, and nothing
    /// closes.
    pub fn of_snapshot(id: BatchId) -> Self {
        Self { id, watermark: Self::NOTHING_LATE, is_snapshot: true, is_wanted: false }
    }

    /// The same where nobody looks at the output.
    pub fn for_state_alone(self) -> Self {
        Self { is_wanted: false, ..self }
    }
}

/// What came of a micro-batch in an operator.
#[derive(Debug, Default)]
pub struct Applied {
    /// Its output rows, in groups that may be worked on by one core each.
    pub output: Vec<Vec<RecordBatch>>,
    /// By input, the rows that the state log keeps: given those alone, it would do the same.
    pub changes: Vec<Vec<RecordBatch>>,
}

/// State of an operator as rows of its inputs, by input.
pub type Snapshot = Vec<Vec<RecordBatch>>;

/// An operator whose output depends on rows of earlier micro-batches.
///
/// It is a function of what it was given, in order: the same calls of [`Self::apply`] give the same
/// state and the same output. That is what a restart rests on, which applies what the state log
/// kept.
#[async_trait]
pub trait Operator: Send {
    /// Takes the rows of a micro-batch, by input, and gives what follows from them and from the
    /// watermark.
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

    /// What it has and did, without [`OperatorMetrics::bytes`].
    fn metrics(&self) -> OperatorMetrics;

    /// The memory of its state, in bytes; may take a walk through all of it.
    fn bytes(&self) -> u64;

    /// What makes a snapshot of its state, without state yet.
    fn replica(&self) -> Result<Box<dyn Replica>>;
}

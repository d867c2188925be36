//! The state of some keys of an operator: what an operator has to say to be spread over the cores.

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use millstream_store::offset::BatchId;

use super::micro_batch::{MicroBatchFacts, Snapshot};

/// What is the same for all shards of an operator.
pub trait ShardSpec: Send + Sync + 'static {
    /// What the operator is, for progress.
    fn name(&self) -> &'static str;

    /// By input, the schema of its rows.
    fn inputs(&self) -> Vec<SchemaRef>;

    /// The columns of an input's rows that say which rows belong together.
    fn keys(&self, input: usize, columns: &[ArrayRef]) -> Vec<ArrayRef>;
}

/// The state of some keys.
pub trait Shard: Send + Sized + 'static {
    /// What it shares with the others.
    type Spec: ShardSpec;

    /// Whether all state is published in each micro-batch, be there rows or not.
    const PUBLISHES_ALL: bool = false;

    /// No state yet.
    fn new(spec: &Self::Spec) -> Result<Self>;

    /// Takes the rows of a micro-batch, by input.
    fn apply(
        &mut self,
        spec: &Self::Spec,
        facts: &MicroBatchFacts,
        inputs: Vec<Vec<RecordBatch>>,
    ) -> Result<Outcome>;

    /// The watermark, microseconds since the epoch, that would give output without any rows;
    /// `None` where none would.
    fn due_us(&self, spec: &Self::Spec) -> Option<i64>;

    /// What is left of a micro-batch's rows where they can wait until the watermark has come to a
    /// time; `None` where output follows from them at once.
    fn put_aside(
        _: &Self::Spec,
        _: &MicroBatchFacts,
        _: &[Vec<RecordBatch>],
    ) -> Result<Option<Aside>> {
        Ok(None)
    }

    /// The first micro-batch whose rows are still in the state; `None` where there is none.
    fn needs_from(&self) -> Option<BatchId>;

    /// How many rows of state there are.
    fn rows(&self) -> u64;

    /// Their memory, in bytes.
    fn bytes(&self) -> u64;

    /// All state as rows of the inputs.
    fn snapshot(self, spec: &Self::Spec) -> Result<Snapshot>;
}

/// What a micro-batch did to a shard.
#[derive(Default)]
pub struct Outcome {
    /// Output rows.
    pub published: Vec<RecordBatch>,
    /// Rows of state that went.
    pub removed: u64,
    /// Input rows that were late.
    pub late: u64,
    /// Input rows that change nothing.
    pub dropped: u64,
    /// By input, the rows without which the state would be another, where those are not all.
    pub changes: Option<Vec<Vec<RecordBatch>>>,
}

/// Rows of a micro-batch that can wait until their state is needed.
pub struct Aside {
    /// By input, those that are not late.
    pub rows: Vec<Vec<RecordBatch>>,
    /// How many are late.
    pub late: u64,
    /// When their state is needed, microseconds since the epoch; `None` where there are none.
    pub due_us: Option<i64>,
}

//! The state of some keys of an operator: what an operator implements to be spread over the cores.

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use millstream_store::offset::BatchId;

use super::micro_batch::{MicroBatchFacts, Snapshot};

/// The specification that all shards of an operator share.
pub trait ShardSpec: Send + Sync + 'static {
    /// The operator's name in progress reports, as Spark has it.
    fn name(&self) -> &'static str;

    /// By input, the schema of its rows.
    fn inputs(&self) -> Vec<SchemaRef>;

    /// The columns of an input's rows that say which rows belong together.
    fn keys(&self, input: usize, columns: &[ArrayRef]) -> Vec<ArrayRef>;
}

/// The state of some keys.
pub trait Shard: Send + Sized + 'static {
    /// The specification that all shards share.
    type Spec: ShardSpec;

    /// Whether all state is published in each micro-batch, be there rows or not.
    const PUBLISHES_ALL: bool = false;

    /// A shard without state.
    fn new(spec: &Self::Spec) -> Result<Self>;

    /// Applies the rows of a micro-batch, by input.
    fn apply(
        &mut self,
        spec: &Self::Spec,
        facts: &MicroBatchFacts,
        inputs: Vec<Vec<RecordBatch>>,
    ) -> Result<Outcome>;

    /// The watermark, microseconds since the epoch, that would give output without any rows;
    /// `None` where none would.
    fn due_us(&self, spec: &Self::Spec) -> Option<i64>;

    /// How many rows of state the watermark `evict_us` would close at once, where that is known
    /// without a look at each of them; none otherwise.
    fn closing_rows(&self, _evict_us: i64) -> u64 {
        0
    }

    /// The rows of a micro-batch that can wait unapplied until the watermark has reached a time, so
    /// that state in a file need not be read; `None` where they give output at once.
    fn put_aside(
        _: &Self::Spec,
        _: &MicroBatchFacts,
        _: &[Vec<RecordBatch>],
    ) -> Result<Option<Aside>> {
        Ok(None)
    }

    /// The first micro-batch whose rows are still in the state, or that something in the state
    /// follows from; `None` where there is none.
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
    /// Rows of state that were evicted.
    pub removed: u64,
    /// Input rows that were late.
    pub late: u64,
    /// Input rows that change nothing.
    pub dropped: u64,
    /// By input, the rows that changed the state, where those are not all.
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

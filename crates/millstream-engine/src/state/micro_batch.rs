//! The facts of a micro-batch that an operator needs besides its rows, and what it returns.

use arrow::array::RecordBatch;
use millstream_store::offset::BatchId;

use super::watermark::Watermark;

/// The facts of a micro-batch that an operator needs besides its rows.
#[derive(Clone, Copy, Debug)]
pub struct MicroBatchFacts {
    /// Its number.
    pub id: BatchId,
    /// Its watermarks.
    pub watermark: Watermark,
    /// True for the rows of a snapshot, from which the state is rebuilt.
    pub is_snapshot: bool,
    /// Whether the output is used. Where it is not, only the state matters, and the operator may
    /// leave the output out.
    pub is_wanted: bool,
}

impl MicroBatchFacts {
    /// Watermarks at which no row is late and nothing closes.
    pub const NOTHING_LATE: Watermark = Watermark { evict_ms: i64::MIN, late_ms: i64::MIN };

    /// The facts of a micro-batch.
    pub fn new(id: BatchId, watermark: Watermark) -> Self {
        Self { id, watermark, is_snapshot: false, is_wanted: true }
    }

    /// The facts of a snapshot of the state up to the micro-batch `id`: nothing in it is late, and
    /// nothing closes.
    pub fn from_snapshot(id: BatchId) -> Self {
        Self { id, watermark: Self::NOTHING_LATE, is_snapshot: true, is_wanted: false }
    }

    /// The same facts for a call whose output is not used.
    pub fn for_state_alone(self) -> Self {
        Self { is_wanted: false, ..self }
    }
}

/// What an operator returns for a micro-batch.
#[derive(Debug, Default)]
pub struct Applied {
    /// Its output rows, in groups that may be worked on by one core each.
    pub output: Vec<Vec<RecordBatch>>,
    /// By input, the rows that the state log keeps: applying them alone gives the same state and
    /// output.
    pub changes: Vec<Vec<RecordBatch>>,
}

/// State of an operator as rows of its inputs, by input.
pub type Snapshot = Vec<Vec<RecordBatch>>;

//! What an operator is given of a micro-batch besides its rows, and what it gives.

use arrow::array::RecordBatch;
use millstream_store::offset::BatchId;

use super::watermark::Watermark;

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

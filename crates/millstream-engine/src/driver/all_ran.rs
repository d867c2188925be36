//! What all branches of a query have made of a micro-batch, before anything is published.

use arrow::array::RecordBatch;

use crate::api::dead_letter::Letter;

/// What came of a micro-batch.
pub(super) struct AllRan {
    /// By branch, its result, until it is taken.
    pub(super) results: Vec<Vec<Vec<RecordBatch>>>,
    /// By source, the records that were put aside, in order.
    pub(super) rejected: Vec<Vec<Letter>>,
}

impl AllRan {
    /// The result of a branch, once.
    pub(super) fn take(&mut self, branch: usize) -> Vec<Vec<RecordBatch>> {
        std::mem::take(&mut self.results[branch])
    }
}

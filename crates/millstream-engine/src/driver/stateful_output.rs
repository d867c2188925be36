//! What came of a micro-batch of a query with state, on its way to the state log and the sinks.

use arrow::array::RecordBatch;

use super::outputs::Partitions;
use crate::api::dead_letter::Letter;
use crate::plan::stateful_plan::Ran;

/// What all branches of a query with state made of a micro-batch.
#[derive(Default)]
pub(super) struct Computed {
    /// By branch, its result.
    pub(super) results: Vec<Partitions>,
    /// By input of the operators of all branches, what they were given; then by side output, its
    /// rows.
    pub(super) sections: Vec<Vec<RecordBatch>>,
    /// By side output, the rows that decoding and expressions rejected.
    pub(super) side_outputs: Vec<Vec<RecordBatch>>,
    /// By source, the records that a plan could not compute.
    pub(super) rejected: Vec<Vec<Letter>>,
}

impl Computed {
    pub(super) fn add(&mut self, mut ran: Ran) {
        let sources = self.rejected.len().max(ran.rejected.len());
        self.rejected.resize(sources, Vec::new());
        for (all, own) in self.rejected.iter_mut().zip(&mut ran.rejected) {
            all.append(own);
        }
        self.results.push(ran.partitions);
        self.sections.extend(ran.changes.into_iter().flatten());
    }

    pub(super) fn has_rows(&self) -> bool {
        let results = self.results.iter().flatten().flatten();
        results.chain(self.side_outputs.iter().flatten()).any(|rows| rows.num_rows() > 0)
    }
}

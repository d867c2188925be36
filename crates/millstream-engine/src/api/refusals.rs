//! Rows that a sink could not deliver, and that the query goes on without: they become dead
//! letters.
//!
//! A sink learns of them long after the query has computed them, from the answer of its receiver.
//! It puts each row here before it acknowledges the row's micro-batch; whoever awaits the
//! acknowledgement takes them out, and has them in the table of dead letters before the micro-batch
//! counts as done.

use std::collections::BTreeMap;
use std::sync::Arc;

use millstream_store::offset::BatchId;
use parking_lot::Mutex;

/// A row that was not delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The row as a JSON object.
    pub row: Vec<u8>,
    /// Why, and what to find it by at the receiver.
    pub error: String,
}

/// Where a sink puts refused rows. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Refusals {
    by_micro_batch: Arc<Mutex<BTreeMap<BatchId, Vec<Refusal>>>>,
}

impl Refusals {
    /// Puts rows of micro-batch `batch_id` aside, which is not acknowledged yet.
    pub fn add(&self, batch_id: BatchId, rows: impl IntoIterator<Item = Refusal>) {
        self.by_micro_batch.lock().entry(batch_id).or_default().extend(rows);
    }

    /// What was put aside of micro-batch `batch_id`, which comes once and is handed over again
    /// from the beginning where it fails. In an order of its own: a sink delivers side by side.
    pub(crate) fn take(&self, batch_id: BatchId) -> Vec<Refusal> {
        let mut refused = self.by_micro_batch.lock().remove(&batch_id).unwrap_or_default();
        refused.sort_by(|one, other| one.row.cmp(&other.row));
        refused
    }
}

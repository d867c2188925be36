//! Rows that a sink could not deliver, and that the query goes on without: they become dead
//! letters.
//!
//! A sink learns of them long after the query has computed them, from the answer of its receiver.
//! It puts each row here before it acknowledges the row's micro-batch; whoever awaits the
//! acknowledgement has them in the table of dead letters before the micro-batch counts as done, and
//! takes them out then.
//!
//! A sink that gets a micro-batch again after a crash finds its refused rows again. One that does
//! not, since the micro-batch is published, keeps the rows with its own record of that
//! ([`unpublished`](Refusals::unpublished)), and puts them here again when it is opened.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
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

/// The refused rows of one micro-batch, or of several that are acknowledged together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedRows {
    /// The first of the micro-batches.
    pub first: BatchId,
    /// The last of them.
    pub batch_id: BatchId,
    /// Its time, milliseconds since the epoch; 0 where whoever awaits the acknowledgement knows it.
    pub found_ms: i64,
    /// The rows.
    pub rows: Vec<Refusal>,
}

/// Where a sink puts refused rows. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Refusals {
    unpublished: Arc<Mutex<BTreeMap<BatchId, RefusedRows>>>,
}

impl Refusals {
    /// Puts rows of a micro-batch aside that is not acknowledged yet, or of one that was published
    /// before a crash.
    pub fn add(&self, refused: RefusedRows) {
        if refused.rows.is_empty() {
            return;
        }
        match self.unpublished.lock().entry(refused.batch_id) {
            Entry::Vacant(entry) => {
                entry.insert(refused);
            }
            Entry::Occupied(mut known) => known.get_mut().rows.extend(refused.rows),
        }
    }

    /// What is not in the table of dead letters yet, in the order of the micro-batches.
    pub fn unpublished(&self) -> Vec<RefusedRows> {
        self.unpublished.lock().values().cloned().collect()
    }

    /// What was put aside of micro-batch `batch_id`, alone or with others, in an order of its own:
    /// a sink delivers side by side.
    pub(crate) fn of(&self, batch_id: BatchId) -> Option<RefusedRows> {
        let unpublished = self.unpublished.lock();
        let mut refused = containing(&unpublished, batch_id)?.clone();
        refused.rows.sort_by(|one, other| one.row.cmp(&other.row));
        Some(refused)
    }

    /// Whether rows of micro-batch `batch_id` are not in the table of dead letters yet.
    pub fn has(&self, batch_id: BatchId) -> bool {
        containing(&self.unpublished.lock(), batch_id).is_some()
    }

    /// The rows of which micro-batch `batch_id` is the last are in the table.
    pub(crate) fn published(&self, batch_id: BatchId) {
        self.unpublished.lock().remove(&batch_id);
    }
}

/// The rows of micro-batch `batch_id`, which are under the last micro-batch that they are of.
fn containing(
    unpublished: &BTreeMap<BatchId, RefusedRows>,
    batch_id: BatchId,
) -> Option<&RefusedRows> {
    let (_, refused) = unpublished.range(batch_id..).next()?;
    (refused.first <= batch_id).then_some(refused)
}

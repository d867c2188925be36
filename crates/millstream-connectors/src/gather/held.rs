//! How many bytes of rows wait to be encoded.
//!
//! Rows are counted from the moment they are handed over until they are dropped, whoever drops
//! them: a writer that has encoded them, or one that has failed and encodes nothing any more. So
//! nobody waits for rows that will never be encoded.

use std::sync::Arc;

use arrow::array::RecordBatch;
use tokio::sync::watch;

/// While more is held, no other micro-batch is asked for. It is far above what micro-batches of a
/// flow without state have, so that those are computed while others are encoded.
const FEW_BYTES: usize = if cfg!(test) { 4 << 10 } else { 256 << 20 };

/// Bytes of rows that are held.
#[derive(Clone, Default)]
pub(super) struct Held(Arc<watch::Sender<usize>>);

/// Rows, counted until they are dropped.
pub(super) struct HeldRows {
    rows: RecordBatch,
    bytes: usize,
    of: Held,
}

impl Held {
    /// Counts rows.
    pub(super) fn hold(&self, rows: RecordBatch) -> HeldRows {
        let bytes = rows.get_array_memory_size();
        self.0.send_modify(|held| *held += bytes);
        HeldRows { rows, bytes, of: self.clone() }
    }

    /// Waits until few are held.
    pub(super) async fn few(&self) {
        let mut held = self.0.subscribe();
        // It fails once there is no sender, and `self` has one.
        let _ = held.wait_for(|held| *held <= FEW_BYTES).await;
    }
}

impl HeldRows {
    pub(super) fn get(&self) -> &RecordBatch {
        &self.rows
    }

    /// Of their arrays, with what those share with others.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for HeldRows {
    fn drop(&mut self) {
        self.of.0.send_modify(|held| *held -= self.bytes);
    }
}

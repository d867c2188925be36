//! Which micro-batches still have rows in the state.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use millstream_store::offset::BatchId;

/// By micro-batch, how many of its rows, or groups of them, are in the state. The first of them
/// says from where on the state log is needed.
#[derive(Default)]
pub struct RetainedMicroBatches(BTreeMap<BatchId, usize>);

impl RetainedMicroBatches {
    /// Adds `count` to the micro-batch `id`.
    pub fn add(&mut self, id: BatchId, count: usize) {
        *self.0.entry(id).or_default() += count;
    }

    /// Subtracts one from the micro-batch `id`.
    pub fn remove(&mut self, id: BatchId) {
        if let Entry::Occupied(mut known) = self.0.entry(id) {
            *known.get_mut() -= 1;
            if *known.get() == 0 {
                known.remove();
            }
        }
    }

    /// Whether the micro-batch still has anything in the state.
    pub fn has(&self, id: BatchId) -> bool {
        self.0.contains_key(&id)
    }

    /// How many micro-batches have something in the state.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The first of them.
    pub fn first(&self) -> Option<BatchId> {
        self.0.keys().next().copied()
    }
}

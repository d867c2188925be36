//! Which micro-batches the state still has something of.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use millstream_store::offset::BatchId;

/// By micro-batch, how much of it is in the state.
#[derive(Default)]
pub struct RetainedMicroBatches(BTreeMap<BatchId, usize>);

impl RetainedMicroBatches {
    /// So much more of the micro-batch `id` is there.
    pub fn add(&mut self, id: BatchId, count: usize) {
        *self.0.entry(id).or_default() += count;
    }

    /// One less is there.
    pub fn remove(&mut self, id: BatchId) {
        if let Entry::Occupied(mut known) = self.0.entry(id) {
            *known.get_mut() -= 1;
            if *known.get() == 0 {
                known.remove();
            }
        }
    }

    /// Whether something of it is there.
    pub fn has(&self, id: BatchId) -> bool {
        self.0.contains_key(&id)
    }

    /// Of how many micro-batches something is there.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The first of them.
    pub fn first(&self) -> Option<BatchId> {
        self.0.keys().next().copied()
    }
}

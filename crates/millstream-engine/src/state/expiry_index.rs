//! An index of state by the time at which the watermark evicts it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use millstream_store::offset::BatchId;

use super::retained_micro_batches::RetainedMicroBatches;

/// Entries by the time at which they are evicted, microseconds since the epoch, and for each time
/// the first micro-batch of its entries: the state log is needed from there.
pub struct ExpiryIndex<T> {
    at: BTreeMap<i64, (BatchId, Vec<T>)>,
    /// How many times began with each micro-batch: `first` is asked for in every micro-batch, and
    /// would otherwise be a search through all times.
    firsts: RetainedMicroBatches,
    entries: usize,
}

impl<T> Default for ExpiryIndex<T> {
    fn default() -> Self {
        Self { at: BTreeMap::new(), firsts: RetainedMicroBatches::default(), entries: 0 }
    }
}

impl<T> ExpiryIndex<T> {
    /// Adds an entry of the micro-batch `id`, which is not below those of earlier calls.
    pub fn add(&mut self, at_us: i64, id: BatchId, entry: T) {
        self.entries += 1;
        match self.at.entry(at_us) {
            Entry::Occupied(mut known) => known.get_mut().1.push(entry),
            Entry::Vacant(new) => {
                self.firsts.add(id, 1);
                new.insert((id, vec![entry]));
            }
        }
    }

    /// When the first entry is evicted.
    pub fn next_us(&self) -> Option<i64> {
        self.at.keys().next().copied()
    }

    /// Takes the entries that are evicted by `evict_us`.
    pub fn take_until(&mut self, evict_us: i64) -> impl Iterator<Item = T> + use<T> {
        let staying = match evict_us.checked_add(1) {
            // Most micro-batches evict nothing; splitting the tree would cost its depth each time.
            _ if self.next_us().is_none_or(|next_us| next_us > evict_us) => {
                std::mem::take(&mut self.at)
            }
            Some(after) => self.at.split_off(&after),
            None => BTreeMap::new(),
        };
        let expiry = std::mem::replace(&mut self.at, staying);
        for (first, entries) in expiry.values() {
            self.firsts.remove(*first);
            self.entries -= entries.len();
        }
        expiry.into_values().flat_map(|(_, entries)| entries)
    }

    /// The first micro-batch that has an entry here.
    pub fn first(&self) -> Option<BatchId> {
        self.firsts.first()
    }

    /// Memory of it, about, where an entry that is owned takes `entry_bytes` bytes.
    pub fn bytes(&self, entry_bytes: usize) -> usize {
        let time_bytes = size_of::<(i64, BatchId, Vec<T>)>() + 2 * size_of::<usize>();
        self.at.len() * time_bytes + self.entries * (size_of::<T>() + entry_bytes)
    }

    /// Everything, by time.
    pub fn into_all(self) -> impl Iterator<Item = (i64, Vec<T>)> {
        self.at.into_iter().map(|(at, (_, entries))| (at, entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_micro_batch_is_that_of_what_is_left() {
        let mut expiry = ExpiryIndex::default();
        for (at, id) in [(30, 1), (10, 2), (20, 2), (30, 3), (20, 4), (40, 5)] {
            expiry.add(at, BatchId(id), id);
        }
        let mut left = Vec::new();
        for evict_us in [5, 10, 25, 39, i64::MAX] {
            let gone: Vec<u64> = expiry.take_until(evict_us).collect();
            left.push((gone, expiry.first().map(|id| id.0), expiry.entries));
        }
        let expected = [
            (vec![], Some(1), 6),
            (vec![2], Some(1), 5),
            (vec![2, 4], Some(1), 3),
            (vec![1, 3], Some(5), 1),
            (vec![5], None, 0),
        ];
        assert_eq!(left, expected);
    }
}

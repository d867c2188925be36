//! What goes when the watermark has passed its time.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use millstream_store::offset::BatchId;

use super::retained_micro_batches::RetainedMicroBatches;

/// Things by the time at which they go, microseconds since the epoch, and where each time began to
/// need the state log.
pub struct ExpiryIndex<T> {
    at: BTreeMap<i64, (BatchId, Vec<T>)>,
    /// Of the times: asked for every micro-batch, so it is not searched for.
    firsts: RetainedMicroBatches,
    things: usize,
}

impl<T> Default for ExpiryIndex<T> {
    fn default() -> Self {
        Self { at: BTreeMap::new(), firsts: RetainedMicroBatches::default(), things: 0 }
    }
}

impl<T> ExpiryIndex<T> {
    /// Adds something of the micro-batch `id`, which is none before those of earlier calls.
    pub fn add(&mut self, at_us: i64, id: BatchId, thing: T) {
        self.things += 1;
        match self.at.entry(at_us) {
            Entry::Occupied(mut known) => known.get_mut().1.push(thing),
            Entry::Vacant(new) => {
                self.firsts.add(id, 1);
                new.insert((id, vec![thing]));
            }
        }
    }

    /// When the first one goes.
    pub fn next_us(&self) -> Option<i64> {
        self.at.keys().next().copied()
    }

    /// Takes what goes by `evict_us`.
    pub fn take_until(&mut self, evict_us: i64) -> impl Iterator<Item = T> + use<T> {
        let staying = match evict_us.checked_add(1) {
            _ if self.next_us().is_none_or(|next_us| next_us > evict_us) => {
                std::mem::take(&mut self.at)
            }
            Some(after) => self.at.split_off(&after),
            None => BTreeMap::new(),
        };
        let expiry = std::mem::replace(&mut self.at, staying);
        for (first, things) in expiry.values() {
            self.firsts.remove(*first);
            self.things -= things.len();
        }
        expiry.into_values().flat_map(|(_, things)| things)
    }

    /// The first micro-batch of which something is there.
    pub fn first(&self) -> Option<BatchId> {
        self.firsts.first()
    }

    /// Memory of it, about, where a thing that is owned takes `of_thing` bytes.
    pub fn bytes(&self, of_thing: usize) -> usize {
        let of_time = size_of::<(i64, BatchId, Vec<T>)>() + 2 * size_of::<usize>();
        self.at.len() * of_time + self.things * (size_of::<T>() + of_thing)
    }

    /// Everything, by time.
    pub fn into_all(self) -> impl Iterator<Item = (i64, Vec<T>)> {
        self.at.into_iter().map(|(at, (_, things))| (at, things))
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
            left.push((gone, expiry.first().map(|id| id.0), expiry.things));
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

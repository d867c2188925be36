//! What goes when the watermark has passed its time.

use std::collections::BTreeMap;

use millstream_store::offset::BatchId;

/// Things by the time at which they go, microseconds since the epoch, and where each time began to
/// need the state log.
pub struct Leaving<T> {
    at: BTreeMap<i64, (BatchId, Vec<T>)>,
}

impl<T> Default for Leaving<T> {
    fn default() -> Self {
        Self { at: BTreeMap::new() }
    }
}

impl<T> Leaving<T> {
    /// Adds something of the micro-batch `id`.
    pub fn add(&mut self, at_us: i64, id: BatchId, thing: T) {
        let (first, things) = self.at.entry(at_us).or_insert_with(|| (id, Vec::new()));
        *first = id.min(*first);
        things.push(thing);
    }

    /// When the first one goes.
    pub fn next_us(&self) -> Option<i64> {
        self.at.keys().next().copied()
    }

    /// Takes what goes by `evict_us`.
    pub fn take_until(&mut self, evict_us: i64) -> impl Iterator<Item = T> + use<T> {
        let staying = match evict_us.checked_add(1) {
            Some(after) => self.at.split_off(&after),
            None => BTreeMap::new(),
        };
        let leaving = std::mem::replace(&mut self.at, staying);
        leaving.into_values().flat_map(|(_, things)| things)
    }

    /// The first micro-batch of which something is there.
    pub fn first(&self) -> Option<BatchId> {
        self.at.values().map(|(first, _)| *first).min()
    }

    /// Everything, by time.
    pub fn into_all(self) -> impl Iterator<Item = (i64, Vec<T>)> {
        self.at.into_iter().map(|(at, (_, things))| (at, things))
    }
}

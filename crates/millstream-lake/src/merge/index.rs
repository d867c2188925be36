//! Where the row of each key is, as far as memory goes.
//!
//! A map in memory, of some thirty bytes for each key. Whether a file that it names is live still,
//! and its row not deleted, is up to whoever asks: entries of rows that are gone stay until there
//! are too many of them.

use std::collections::HashMap;

use super::keys::{Key, KeyHasher};

/// Maps that grow one at a time: one large map would need twice its memory whenever it does.
const SHARDS: usize = 64;
/// Bytes of an entry, with the map's own byte for it.
const ENTRY_BYTES: usize = 25;

/// A row of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place {
    /// The file's number, given by whoever holds the index.
    pub(super) file: u32,
    /// Its place in the file, from 0.
    pub(super) row: u32,
}

/// Keys and where they are.
pub(super) struct KeyIndex {
    shards: Vec<HashMap<Key, Place, KeyHasher>>,
    /// Further rows of keys that have several: others may have written them.
    more: HashMap<Key, Vec<Place>, KeyHasher>,
}

impl KeyIndex {
    pub(super) fn new() -> Self {
        let shards = (0..SHARDS).map(|_| HashMap::default()).collect();
        Self { shards, more: HashMap::default() }
    }

    /// Memory that so many keys may take, about: a map may be half empty.
    pub(super) fn bytes_of(keys: usize) -> usize {
        keys.saturating_mul(ENTRY_BYTES * 3 / 2)
    }

    /// Memory that it takes, about.
    pub(super) fn bytes(&self) -> usize {
        // A map is seven eighths full at most.
        let shards: usize = self.shards.iter().map(|shard| shard.capacity() / 7 * 8).sum();
        let more: usize = self.more.values().map(|places| 8 * places.capacity() + 64).sum();
        shards * ENTRY_BYTES + more
    }

    /// Adds a row of `key`. A former one for which `is_live` stays known beside it.
    pub(super) fn insert(&mut self, key: Key, place: Place, is_live: impl Fn(Place) -> bool) {
        let before = self.shards[key.shard(SHARDS)].insert(key, place);
        if let Some(before) = before.filter(|before| *before != place && is_live(*before)) {
            let more = self.more.entry(key).or_default();
            more.retain(|other| *other != place && is_live(*other));
            more.push(before);
        }
    }

    /// The rows of `key`; some may be gone.
    pub(super) fn places(&self, key: Key) -> impl Iterator<Item = Place> + '_ {
        let first = self.shards[key.shard(SHARDS)].get(&key);
        first.into_iter().chain(self.more.get(&key).into_iter().flatten()).copied()
    }

    /// Forgets all rows of `key`.
    pub(super) fn remove(&mut self, key: Key) {
        self.shards[key.shard(SHARDS)].remove(&key);
        self.more.remove(&key);
    }

    /// Forgets rows other than those `kept`, and gives their memory back.
    pub(super) fn retain(&mut self, kept: impl Fn(Place) -> bool) {
        for shard in &mut self.shards {
            shard.retain(|_, place| kept(*place));
            shard.shrink_to_fit();
        }
        // A key whose first row is forgotten is found by the others.
        let more = std::mem::take(&mut self.more);
        for (key, places) in more {
            for place in places.into_iter().filter(|place| kept(*place)) {
                self.insert(key, place, |_| true);
            }
        }
    }
}

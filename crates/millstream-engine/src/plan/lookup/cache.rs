//! Rows of a look-up table that are kept for later micro-batches.
//!
//! Bounded in rows and bytes, and in time: a row counts for so long after it was asked for. What
//! was written first goes first, which is also what expires first, so one queue serves both.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::api::lookup::CacheLimits;

/// What an entry takes beside the bytes of its key and its row, about.
const ENTRY_BYTES: usize = 160;

/// Rows by key, both in Arrow's row format.
pub(super) struct Cache {
    limits: CacheLimits,
    entries: HashMap<Arc<[u8]>, Entry>,
    /// Keys in the order in which they were written.
    written: VecDeque<Written>,
    /// Of the entries, about.
    bytes: usize,
    /// Writes so far.
    writes: u64,
}

struct Entry {
    /// `None` for a key that has no row.
    row: Option<Arc<[u8]>>,
    at: Duration,
    write: u64,
}

struct Written {
    key: Arc<[u8]>,
    write: u64,
}

impl Cache {
    pub(super) fn new(limits: CacheLimits) -> Self {
        let (entries, written) = (HashMap::new(), VecDeque::new());
        Self { limits, entries, written, bytes: 0, writes: 0 }
    }

    /// What is known of `key` at the time `now`: its row, or that it has none.
    pub(super) fn get(&self, key: &[u8], now: Duration) -> Option<Option<Arc<[u8]>>> {
        let entry = self.entries.get(key)?;
        let is_fresh = now.saturating_sub(entry.at) < self.limits.expire_after_write;
        is_fresh.then(|| entry.row.clone())
    }

    /// Keeps what was asked for at the time `at`.
    pub(super) fn put(&mut self, key: &[u8], row: Option<&[u8]>, at: Duration) {
        if row.is_none() && !self.limits.keeps_missing_keys {
            self.remove(key);
            return;
        }
        let size = size(key, row);
        if size > self.limits.bytes_max {
            self.remove(key);
            return;
        }
        self.remove(key);
        self.bytes += size;
        self.writes += 1;
        let (key, write): (Arc<[u8]>, _) = (key.into(), self.writes);
        self.written.push_back(Written { key: Arc::clone(&key), write });
        self.entries.insert(key, Entry { row: row.map(Into::into), at, write });
        while self.entries.len() > self.limits.rows_max || self.bytes > self.limits.bytes_max {
            self.drop_oldest();
        }
        self.tidy();
    }

    /// Drops what has expired.
    pub(super) fn expire(&mut self, now: Duration) {
        while let Some(oldest) = self.written.front() {
            let entry = self.entries.get(&oldest.key);
            let current = entry.filter(|entry| entry.write == oldest.write);
            let is_fresh = current
                .is_some_and(|entry| now.saturating_sub(entry.at) < self.limits.expire_after_write);
            if is_fresh {
                return;
            }
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        let Some(oldest) = self.written.pop_front() else { return };
        let entry = self.entries.get(&oldest.key);
        if entry.is_some_and(|entry| entry.write == oldest.write) {
            self.remove(&oldest.key);
        }
    }

    fn remove(&mut self, key: &[u8]) {
        if let Some(entry) = self.entries.remove(key) {
            self.bytes -= size(key, entry.row.as_deref());
        }
    }

    /// Forgets the places in the queue of entries that were written again since, where these are
    /// more than the entries: keys that are written again and again would let it grow.
    fn tidy(&mut self) {
        if self.written.len() > 2 * self.entries.len() + 64 {
            let entries = &self.entries;
            self.written.retain(|written| {
                entries.get(&written.key).is_some_and(|entry| entry.write == written.write)
            });
        }
    }
}

fn size(key: &[u8], row: Option<&[u8]>) -> usize {
    ENTRY_BYTES + key.len() + row.map_or(0, <[u8]>::len)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: CacheLimits = CacheLimits {
        rows_max: 3,
        bytes_max: 10_000,
        expire_after_write: Duration::from_secs(10),
        keeps_missing_keys: true,
    };

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_row_counts_until_it_expires() {
        let mut cache = Cache::new(LIMITS);
        cache.put(b"a", Some(b"1"), at(5));
        cache.put(b"b", None, at(6));
        assert_eq!(cache.get(b"a", at(14)), Some(Some(b"1".as_slice().into())));
        assert_eq!(cache.get(b"a", at(15)), None);
        assert_eq!(cache.get(b"b", at(15)), Some(None));
        cache.expire(at(15));
        assert_eq!((cache.entries.len(), cache.written.len()), (1, 1));
        cache.expire(at(16));
        assert_eq!((cache.entries.len(), cache.written.len(), cache.bytes), (0, 0, 0));
    }

    #[test]
    fn the_oldest_rows_go_first() {
        let mut cache = Cache::new(LIMITS);
        for (second, key) in [b"a", b"b", b"c", b"a", b"d"].into_iter().enumerate() {
            cache.put(key, Some(b"1"), at(second as u64));
        }
        let known = |key: &[u8]| cache.get(key, at(4)).is_some();
        assert_eq!([b"a", b"b", b"c", b"d"].map(|key| known(key)), [true, false, true, true]);
    }

    #[test]
    fn bytes_are_bounded() {
        let mut cache = Cache::new(CacheLimits { rows_max: usize::MAX, ..LIMITS });
        for number in 0..1_000_u32 {
            cache.put(&number.to_be_bytes(), Some(&[7; 500]), at(1));
            assert!(cache.bytes <= LIMITS.bytes_max);
        }
        assert!(cache.entries.len() > 10);
        // One that is larger than all of it is not kept, nor is what was known of its key.
        cache.put(&999_u32.to_be_bytes(), Some(&[7; 20_000]), at(1));
        assert_eq!(cache.get(&999_u32.to_be_bytes(), at(1)), None);
    }

    #[test]
    fn missing_keys_are_kept_where_that_is_wanted() {
        let mut cache = Cache::new(CacheLimits { keeps_missing_keys: false, ..LIMITS });
        cache.put(b"a", Some(b"1"), at(1));
        cache.put(b"a", None, at(2));
        assert_eq!(cache.get(b"a", at(2)), None);
    }

    #[test]
    fn a_key_that_is_written_again_and_again_takes_no_more_room() {
        let mut cache = Cache::new(LIMITS);
        for second in 0..10_000 {
            cache.put(b"a", Some(b"1"), at(second));
        }
        assert_eq!(cache.entries.len(), 1);
        assert!(cache.written.len() < 100);
    }
}

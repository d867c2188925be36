//! Keys of records that may be sent again.
//!
//! A sender repeats what it has no confirmation of, and may do so after it too. So the key of a
//! record is known until its acknowledgement is confirmed, and then for a while longer, the window;
//! over restarts, from the segments and, of those that are dropped, from files of keys. When a
//! confirmation came is not written; after a restart it counts as late as it can have been: with
//! the first frame that tells of it, and where none does, from when the source says so.
//!
//! There is a bound on their number, beyond which the oldest are forgotten, but none whose
//! acknowledgement is open in this run.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use super::segment::{Key, KeysFile};

/// Keys of one segment, or of some that were dropped together.
struct Generation {
    /// The position of its first record; also the number of its file of keys.
    first: u64,
    /// The position behind its last record.
    end: u64,
    /// When its newest record was written, or the last acknowledgement of one was confirmed,
    /// whichever came later; microseconds since the epoch.
    newest_us: i64,
    keys: Vec<Key>,
    /// Whether the segment is dropped, and a file of keys is in its place.
    is_file: bool,
}

/// Keys of segments that are about to be dropped.
pub(super) struct Dropped {
    /// The position of their first record; the number of the file.
    pub first: u64,
    pub file: KeysFile,
}

/// All keys that are known.
pub(super) struct Keys {
    positions: HashMap<Key, u64>,
    generations: VecDeque<Generation>,
    window_us: i64,
    max: usize,
    forgotten_early: u64,
}

impl Keys {
    /// None yet, each to be kept for `window` and `max` at most.
    pub fn new(window: Duration, max: usize) -> Self {
        let (positions, generations) = (HashMap::new(), VecDeque::new());
        let mut keys = Self { positions, generations, window_us: 0, max, forgotten_early: 0 };
        keys.set_window(window);
        keys
    }

    pub fn set_window(&mut self, window: Duration) {
        self.window_us = i64::try_from(window.as_micros()).unwrap_or(i64::MAX);
    }

    /// Where the record with `key` is.
    pub fn position(&self, key: &Key) -> Option<u64> {
        self.positions.get(key).copied()
    }

    pub fn len(&self) -> usize {
        self.positions.len()
    }

    /// How many were forgotten because there were too many.
    pub fn forgotten_early(&self) -> u64 {
        self.forgotten_early
    }

    /// The next keys belong to the segment that begins at `first`.
    pub fn begin(&mut self, first: u64) {
        let (end, newest_us, keys) = (first, i64::MIN, Vec::new());
        self.generations.push_back(Generation { first, end, newest_us, keys, is_file: false });
    }

    /// The record at `position`, which is not written yet, has `key`.
    pub fn know(&mut self, key: Key, position: u64) {
        self.positions.insert(key, position);
    }

    /// The record at `position` was written to the segment begun last.
    pub fn add(&mut self, key: Option<Key>, position: u64, time_us: i64) {
        let last = self.generations.back_mut().expect("a segment was begun");
        last.newest_us = last.newest_us.max(time_us);
        last.end = position + 1;
        if let Some(key) = key {
            self.positions.insert(key, position);
            last.keys.push(key);
        }
    }

    /// The keys of a file, which is older than all segments.
    pub fn add_file(&mut self, first: u64, file: KeysFile) {
        let KeysFile { newest_us, end, keys } = file;
        for key in &keys {
            self.positions.entry(*key).or_insert(first);
        }
        self.generations.push_back(Generation { first, end, newest_us, keys, is_file: true });
    }

    /// The keys of the segments below `end`, which are about to be dropped; `None` if nobody needs
    /// them. What is at `acknowledged` and above is needed however old it is.
    pub fn of_dropped(&self, end: u64, now_us: i64, acknowledged: u64) -> Option<Dropped> {
        let dropped = || {
            let is_dropped = move |it: &&Generation| !it.is_file && it.end <= end;
            self.generations.iter().filter(is_dropped)
        };
        let first = dropped().next()?.first;
        let newest_us = dropped().map(|it| it.newest_us).max()?;
        let end = dropped().map(|it| it.end).max()?;
        let keys: Vec<Key> = dropped().flat_map(|it| it.keys.iter().copied()).collect();
        let is_young = newest_us.saturating_add(self.window_us) > now_us;
        let is_needed = !keys.is_empty() && (end > acknowledged || is_young);
        is_needed.then_some(Dropped { first, file: KeysFile { newest_us, end, keys } })
    }

    /// The segments below `end` are dropped, and their keys are in the file numbered `file`, if
    /// somebody needs them. Gives that number back if meanwhile nobody does.
    pub fn drop_below(&mut self, end: u64, file: Option<u64>) -> Option<u64> {
        let is_dropped = |it: &Generation| !it.is_file && it.end <= end;
        let mut merged: Option<Generation> = None;
        let mut kept = VecDeque::new();
        for generation in std::mem::take(&mut self.generations) {
            if !is_dropped(&generation) {
                kept.push_back(generation);
            } else if let Some(first) = file {
                let merged = merged.get_or_insert_with(|| Generation {
                    first,
                    end,
                    newest_us: i64::MIN,
                    keys: Vec::new(),
                    is_file: true,
                });
                merged.newest_us = merged.newest_us.max(generation.newest_us);
                merged.keys.extend(generation.keys);
            } else {
                self.forget(&generation);
            }
        }
        let unneeded = file.filter(|_| merged.is_none());
        if let Some(merged) = merged {
            let files = kept.iter().take_while(|it| it.is_file).count();
            kept.insert(files, merged);
        }
        self.generations = kept;
        unneeded
    }

    /// All keys that are in no file are forgotten: what was read of segments does not count.
    pub fn forget_segments(&mut self) {
        let of_segments: VecDeque<Generation>;
        let all = std::mem::take(&mut self.generations);
        (self.generations, of_segments) = all.into_iter().partition(|it| it.is_file);
        for generation in &of_segments {
            self.forget(generation);
        }
    }

    /// Forgets what nobody sends any more; gives the numbers of the files that are not needed.
    /// What is at `acknowledged` and above is kept.
    pub fn expire(&mut self, now_us: i64, acknowledged: u64) -> Vec<u64> {
        let newest_us = now_us.saturating_sub(self.window_us);
        self.forget_oldest(acknowledged, Some(newest_us))
    }

    /// Forgets what is too much, also what is not acknowledged: nobody waits for an acknowledgement
    /// yet. Gives the numbers of the files that are not needed.
    pub fn limit(&mut self) -> Vec<u64> {
        self.forget_oldest(u64::MAX, None)
    }

    /// Forgets what is below `below`, and is not newer than `newest_us` or too much.
    fn forget_oldest(&mut self, below: u64, newest_us: Option<i64>) -> Vec<u64> {
        let mut files = Vec::new();
        // The last one is still being written.
        while self.generations.len() > 1 {
            let oldest = &self.generations[0];
            let is_old = newest_us.is_some_and(|newest_us| oldest.newest_us <= newest_us);
            let is_too_much = self.positions.len() > self.max;
            if oldest.end > below || !(is_old || is_too_much) {
                break;
            }
            let oldest = self.generations.pop_front().expect("there is one");
            if oldest.is_file {
                files.push(oldest.first);
            }
            if !is_old {
                self.forgotten_early += oldest.keys.len() as u64;
            }
            self.forget(&oldest);
        }
        files
    }

    /// At `now_us` the acknowledgements of what is from `from` up to `to` were confirmed, or may
    /// have been at the latest: the window begins.
    pub fn confirmed(&mut self, from: u64, to: u64, now_us: i64) {
        let begin = self.generations.partition_point(|it| it.end <= from);
        for generation in self.generations.range_mut(begin..).take_while(|it| it.first < to) {
            generation.newest_us = generation.newest_us.max(now_us);
        }
    }

    fn forget(&mut self, generation: &Generation) {
        for key in &generation.keys {
            // A key that was forgotten and came again belongs to a later one.
            let is_own = |position: &u64| *position < generation.end;
            if self.positions.get(key).is_some_and(is_own) {
                self.positions.remove(key);
            }
        }
    }
}

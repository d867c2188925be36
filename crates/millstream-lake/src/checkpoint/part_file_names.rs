//! Names for new data files that all belong to one part of the next checkpoint.
//!
//! The writer of data files is free in their names, and a file's part follows from its name. So
//! names are drawn until one belongs to the *hot* part; the next checkpoint then writes that part,
//! and the small one with the actions that are not about files, and copies all others. A draw costs
//! a hash, and there are as many as there are parts, on average.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::placement::{part_of, part_of_other_actions};

/// Draws after which any name will do: a name outside the hot part costs a little, never more.
const DRAWS_PER_PART_MAX: u32 = 64;

/// Tells which names are good for new data files. Clones share it.
#[derive(Clone, Debug)]
pub struct PartFileNames {
    /// The number of parts above, the hot part below.
    now: Arc<AtomicU64>,
}

impl Default for PartFileNames {
    fn default() -> Self {
        Self { now: Arc::new(AtomicU64::new(1 << 32)) }
    }
}

impl PartFileNames {
    /// The number of parts, and the part, counted from zero, that new files should belong to.
    pub fn hot(&self) -> (u32, u32) {
        let now = self.now.load(Ordering::Relaxed);
        ((now >> 32) as u32, now as u32)
    }

    /// True if a file may have this path, as the log is to store it: with the directories of its
    /// partition, and URI-encoded.
    pub fn wants(&self, path_as_stored_in_log: &str) -> bool {
        let (parts, hot) = self.hot();
        parts <= 1 || part_of(path_as_stored_in_log, parts) == hot
    }

    /// A path in `directory` (as the log is to store it; empty, or with a `/` at its end) whose
    /// name is made of one of `names`.
    pub fn draw(&self, directory: &str, mut names: impl FnMut() -> String) -> String {
        let (parts, _) = self.hot();
        for _ in 0..parts.saturating_mul(DRAWS_PER_PART_MAX) {
            let path = format!("{directory}{}", names());
            if self.wants(&path) {
                return path;
            }
        }
        format!("{directory}{}", names())
    }

    /// Steers into the least full part, but stays where there is room.
    pub(super) fn update(&self, rows_by_part: &[u64], part_rows: u64) {
        let parts = u32::try_from(rows_by_part.len()).unwrap_or(1).max(1);
        let (parts_before, hot) = self.hot();
        let has_room =
            |part: u32| rows_by_part.get(part as usize).is_some_and(|rows| *rows < part_rows);
        let hot = if parts_before == parts && is_steerable(hot, parts) && has_room(hot) {
            hot
        } else {
            let steerable = (0..parts).filter(|part| is_steerable(*part, parts));
            let best = steerable.min_by_key(|part| rows_by_part[*part as usize]);
            best.unwrap_or(0)
        };
        self.now.store((u64::from(parts) << 32) | u64::from(hot), Ordering::Relaxed);
    }
}

/// The part of the actions that are not about files is written every time, so it is kept small.
pub(super) fn is_steerable(part: u32, parts: u32) -> bool {
    part != part_of_other_actions(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_belong_to_the_hot_part() {
        let part_file_names = PartFileNames::default();
        assert!(part_file_names.wants("anything"));
        part_file_names.update(&[5; 16], 10);
        let (parts, hot) = part_file_names.hot();
        assert_eq!(parts, 16);
        assert!(is_steerable(hot, parts));
        let mut count = 0;
        for _ in 0..100 {
            let path = part_file_names.draw("day=2026-01-01/", || {
                count += 1;
                format!("part-{count}.parquet")
            });
            assert_eq!(part_of(&path, 16), hot);
        }
    }

    #[test]
    fn the_hot_part_moves_when_it_is_full() {
        let part_file_names = PartFileNames::default();
        let mut rows = vec![1; 4];
        part_file_names.update(&rows, 10);
        let (_, first) = part_file_names.hot();
        rows[first as usize] = 9;
        part_file_names.update(&rows, 10);
        assert_eq!(part_file_names.hot(), (4, first));
        rows[first as usize] = 10;
        part_file_names.update(&rows, 10);
        assert_ne!(part_file_names.hot().1, first);
        assert!(is_steerable(part_file_names.hot().1, 4));
    }
}

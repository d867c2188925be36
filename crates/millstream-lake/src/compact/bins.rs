//! Which files become one.
//!
//! On request, all that fit together do, next to each other in the order of their sizes. Beside a
//! stream that would be too much: a file that is still small would be written again with each few
//! commits, and the whole partition dozens of times until it is large. There, files are in tiers
//! by size, a tier is rewritten when it has enough files, and the result belongs to a higher one.
//! So a row is rewritten as often as there are tiers at most.

use std::collections::BTreeMap;

use super::small_files::{Place, SmallFile};

/// Files of one place that become one file, or none if no row is left.
#[derive(Clone, Debug)]
pub(super) struct Bin {
    pub(super) place: Place,
    pub(super) files: Vec<SmallFile>,
}

impl Bin {
    /// Bytes before.
    pub(super) fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.file.size).sum()
    }

    /// Whether it makes the table better: one file that has all of its rows is as good as another.
    fn is_worthwhile(&self) -> bool {
        self.files.len() > 1 || self.files.iter().any(|file| file.file.has_vector)
    }
}

/// Files up to this size are one tier: what is written for one costs as much as for the other.
const LOWEST_TIER_BYTES: u64 = 64 << 10;
/// From tier to tier a file is this many times as large. Must be below the least number of files
/// that a tier is rewritten for, or the result might stay in it.
const TIER_FACTOR: u64 = 8;

/// Everything that fits together, in bins of `target_bytes` at most.
pub(super) fn packed(files: Vec<SmallFile>, target_bytes: u64) -> Vec<Bin> {
    let mut places: BTreeMap<Place, Vec<SmallFile>> = BTreeMap::new();
    for file in files {
        places.entry(file.place.clone()).or_default().push(file);
    }
    let bins = places.into_iter().flat_map(|(place, files)| pack(&place, files, target_bytes));
    bins.filter(Bin::is_worthwhile).collect()
}

/// Files in bins, each begun when the one before is full.
fn pack(place: &Place, mut files: Vec<SmallFile>, target_bytes: u64) -> Vec<Bin> {
    files.sort_by(|a, b| (a.file.size, &a.file.path).cmp(&(b.file.size, &b.file.path)));
    let mut bins: Vec<Bin> = Vec::new();
    let mut bytes = 0;
    for file in files {
        bytes += file.file.size;
        match bins.last_mut() {
            Some(bin) if bytes <= target_bytes => bin.files.push(file),
            _ => {
                bytes = file.file.size;
                bins.push(Bin { place: place.clone(), files: vec![file] });
            }
        }
    }
    bins.iter_mut().for_each(|bin| bin.files.sort_by(in_time));
    bins
}

/// Rows that came together stay together, for the bounds of columns that grow with time.
fn in_time(a: &SmallFile, b: &SmallFile) -> std::cmp::Ordering {
    (a.modified_ms, &a.file.path).cmp(&(b.modified_ms, &b.file.path))
}

/// Takes from `files`, which are of one place, a bin that is due: a tier with `files_min` files,
/// and what is smaller; or as much as makes a file of the target size. `None` if nothing is.
pub(super) fn due(
    place: &Place,
    files: &mut Vec<SmallFile>,
    (files_min, target_bytes): (usize, u64),
) -> Option<Bin> {
    files.sort_by(|a, b| (a.file.size, &a.file.path).cmp(&(b.file.size, &b.file.path)));
    let is_full =
        files.len() > 1 && files.iter().map(|file| file.file.size).sum::<u64>() >= target_bytes;
    let due = if is_full { Some(files.len()) } else { tier_that_is_due(files, files_min) }?;
    let mut bytes = 0;
    let fitting = files[..due].iter().take_while(|file| {
        bytes += file.file.size;
        bytes <= target_bytes
    });
    let count = fitting.count().max(2);
    let mut taken: Vec<SmallFile> = files.drain(..count).collect();
    taken.sort_by(in_time);
    Some(Bin { place: place.clone(), files: taken })
}

/// How many of `files`, which are in the order of their sizes, are in the lowest tier that has
/// enough of them, or below it.
fn tier_that_is_due(files: &[SmallFile], files_min: usize) -> Option<usize> {
    let mut begun = 0;
    for (at, file) in files.iter().enumerate() {
        if tier(file.file.size) != tier(files[begun].file.size) {
            begun = at;
        }
        let is_last =
            files.get(at + 1).is_none_or(|next| tier(next.file.size) != tier(file.file.size));
        if is_last && at + 1 - begun >= files_min {
            return Some(at + 1);
        }
    }
    None
}

fn tier(bytes: u64) -> u32 {
    let (mut tier, mut bound) = (0, LOWEST_TIER_BYTES);
    while bytes >= bound {
        (tier, bound) = (tier + 1, bound.saturating_mul(TIER_FACTOR));
    }
    tier
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::data_file::DataFile;

    fn file(day: &str, number: usize, size: u64) -> SmallFile {
        let path = format!("day={day}/{number:03}.parquet");
        let file = DataFile {
            name: path.clone(),
            path,
            partition_values: vec![("day".to_owned(), Some(day.to_owned()))],
            size,
            modified_ms: 1_000 - i64::try_from(number).expect("few"),
            rows: 1,
            statistics: json!({}),
        };
        SmallFile::written(&file, 0)
    }

    fn files(sizes: &[u64]) -> Vec<SmallFile> {
        sizes.iter().enumerate().map(|(number, size)| file("1", number, *size)).collect()
    }

    fn sizes(bin: &Bin) -> Vec<u64> {
        let mut sizes: Vec<_> = bin.files.iter().map(|file| file.file.size).collect();
        sizes.sort_unstable();
        sizes
    }

    #[test]
    fn files_of_one_partition_fill_bins() {
        let mut all = files(&[60, 10, 50, 20, 30]);
        all.push(file("2", 9, 5));
        let bins = packed(all, 100);
        assert_eq!(bins.iter().map(sizes).collect::<Vec<_>>(), [vec![10, 20, 30]]);
        let order: Vec<_> = bins[0].files.iter().map(|file| &*file.file.path).collect();
        assert_eq!(order, ["day=1/004.parquet", "day=1/003.parquet", "day=1/001.parquet"]);
    }

    #[test]
    fn one_file_is_rewritten_for_its_deleted_rows_only() {
        let mut lonely = files(&[10]);
        assert!(packed(lonely.clone(), 100).is_empty());
        lonely[0].file.has_vector = true;
        assert_eq!(packed(lonely, 100).len(), 1);
    }

    #[test]
    fn a_tier_is_due_when_it_has_enough_files() {
        let place = file("1", 0, 1).place;
        let mut few = files(&[1_000, 2_000, 70_000, 80_000, 90_000]);
        assert!(due(&place, &mut few, (4, 1 << 30)).is_none());
        few.push(file("1", 7, 100_000));
        let bin = due(&place, &mut few, (4, 1 << 30)).expect("four files of the second tier");
        assert_eq!(sizes(&bin), [1_000, 2_000, 70_000, 80_000, 90_000, 100_000]);
        assert!(few.is_empty());
    }

    #[test]
    fn as_much_as_makes_a_large_file_is_due_however_few_files_it_is() {
        let place = file("1", 0, 1).place;
        let mut large = files(&[40_000, 900_000, 300_000]);
        let bin = due(&place, &mut large, (50, 1_000_000)).expect("they are a file's worth");
        assert_eq!((sizes(&bin), large.len()), (vec![40_000, 300_000], 1));
        let mut alone = files(&[2_000_000]);
        assert!(due(&place, &mut alone, (50, 1_000_000)).is_none());
    }

    #[test]
    fn what_comes_of_a_tier_is_in_a_higher_one() {
        for size in [1, LOWEST_TIER_BYTES - 1, LOWEST_TIER_BYTES, 500_000, 5_000_000] {
            let least = LOWEST_TIER_BYTES.max(size);
            assert!(tier(least * TIER_FACTOR) > tier(size), "{size}");
        }
    }
}

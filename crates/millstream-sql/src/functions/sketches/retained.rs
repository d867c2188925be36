//! What theta and tuple sketches keep of a set: the hashes of its values below a limit, theta, each
//! with a summary. The share of all hashes that are below theta says how many values there are.
//!
//! The rules are those of DataSketches' Java library, at the same counts: a sketch that has taken
//! more values than it keeps depends on when it lowered theta. Hashes are kept in their order, so
//! that the same set always has the same bytes; Java writes those of a tuple sketch in the order of
//! its hash table.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Above all hashes: all that there are are kept.
pub(in crate::functions) const ALL: u64 = i64::MAX as u64;

/// A sketch that is complete.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::functions) struct Retained<S> {
    /// Each hash is below it.
    pub theta: u64,
    /// No value was added. A sketch without entries need not be empty: those of an intersection may
    /// all be above theta.
    pub is_empty: bool,
    /// Hashes with their summaries, in the order of the hashes, each once.
    pub entries: Vec<(u64, S)>,
}

impl<S: Copy> Retained<S> {
    /// The sketch of no values.
    pub const fn empty() -> Self {
        Self { theta: ALL, is_empty: true, entries: Vec::new() }
    }

    /// Whether only an estimate of how many values there are is known: not all hashes are kept.
    pub fn is_estimate(&self) -> bool {
        self.theta < ALL && !self.is_empty
    }

    /// The share of all hashes that is kept.
    pub fn share(&self) -> f64 {
        self.theta as f64 / ALL as f64
    }

    /// The same set, with a summary of each hash.
    pub fn with<T: Copy>(&self, summary: T) -> Retained<T> {
        let entries = self.entries.iter().map(|(hash, _)| (*hash, summary)).collect();
        Retained { theta: self.theta, is_empty: self.is_empty, entries }
    }

    /// What is in both sets.
    pub fn intersection(&self, other: &Self, combined: impl Fn(S, S) -> S) -> Self {
        if self.is_empty || other.is_empty {
            return Self::empty();
        }
        let theta = self.theta.min(other.theta);
        let mut entries = Vec::new();
        let (mut ours, mut theirs) = (self.below(theta).peekable(), other.below(theta).peekable());
        while let (Some((our, summary)), Some((their, with))) = (ours.peek(), theirs.peek()) {
            match our.cmp(their) {
                Ordering::Less => {
                    ours.next();
                }
                Ordering::Greater => {
                    theirs.next();
                }
                Ordering::Equal => {
                    entries.push((*our, combined(*summary, *with)));
                    ours.next();
                    theirs.next();
                }
            }
        }
        Self { theta, is_empty: false, entries }
    }

    /// What is in this set and not in the other one.
    pub fn difference<T: Copy>(&self, other: &Retained<T>) -> Self {
        if self.is_empty || other.is_empty {
            return self.clone();
        }
        let theta = self.theta.min(other.theta);
        let is_other = |hash: &u64| other.entries.binary_search_by_key(hash, |one| one.0).is_ok();
        let entries: Vec<_> =
            self.below(theta).filter(|(hash, _)| !is_other(hash)).copied().collect();
        Self { theta, is_empty: entries.is_empty() && theta == ALL, entries }
    }

    fn below(&self, theta: u64) -> impl Iterator<Item = &(u64, S)> {
        self.entries.iter().take_while(move |(hash, _)| *hash < theta)
    }
}

/// A sketch that takes values, or a union that takes sketches.
#[derive(Clone, Debug)]
pub(in crate::functions) struct Gathering<S> {
    /// The logarithm to base 2 of how many hashes are kept at least.
    lg_nominal: u8,
    /// That of the table; hashes from it on are not looked at.
    theta: u64,
    /// The smallest theta of the sketches that were added.
    theta_of_added: u64,
    is_empty: bool,
    kept: HashMap<u64, S>,
}

impl<S: Copy> Gathering<S> {
    /// Without values; `lg_nominal` is within [`LG_NOMINAL`](super::LG_NOMINAL).
    pub fn new(lg_nominal: u8) -> Self {
        let kept = HashMap::new();
        Self { lg_nominal, theta: ALL, theta_of_added: ALL, is_empty: true, kept }
    }

    /// Adds a value by its hash.
    pub fn add(&mut self, hash: u64, new: impl FnOnce(Option<S>) -> S) {
        self.is_empty = false;
        self.keep(hash, new);
    }

    /// Adds all values of a sketch.
    pub fn union(&mut self, other: &Retained<S>, combined: impl Fn(S, S) -> S) {
        if other.is_empty {
            return;
        }
        self.is_empty = false;
        self.theta_of_added = self.theta_of_added.min(other.theta);
        for (hash, summary) in other.below(self.theta_of_added) {
            self.keep(*hash, |known| known.map_or(*summary, |known| combined(known, *summary)));
        }
    }

    fn keep(&mut self, hash: u64, new: impl FnOnce(Option<S>) -> S) {
        if hash == 0 || hash >= self.theta.min(self.theta_of_added) {
            return;
        }
        match self.kept.entry(hash) {
            Entry::Occupied(mut known) => {
                let summary = new(Some(*known.get()));
                known.insert(summary);
            }
            Entry::Vacant(free) => {
                free.insert(new(None));
            }
        }
        if self.kept.len() > self.most() {
            self.theta = lowered(self.kept.keys().copied().collect(), self.nominal());
            let theta = self.theta;
            self.kept.retain(|hash, _| *hash < theta);
        }
    }

    const fn nominal(&self) -> usize {
        1 << self.lg_nominal
    }

    /// How many hashes are kept at most: as many as fill 15 of 16 places of a table of twice the
    /// nominal size.
    const fn most(&self) -> usize {
        (30 * self.nominal()) / 16
    }

    /// The sketch so far, with all that is kept.
    pub fn retained(&self) -> Retained<S> {
        let theta = self.theta.min(self.theta_of_added);
        self.below(theta)
    }

    /// The sketch so far, with no more hashes than are nominal.
    pub fn trimmed(&self) -> Retained<S> {
        let all = self.retained();
        if all.entries.len() <= self.nominal() {
            return all;
        }
        let theta = all.entries[self.nominal()].0;
        self.below(theta)
    }

    fn below(&self, theta: u64) -> Retained<S> {
        let kept = self.kept.iter().filter(|(hash, _)| **hash < theta);
        let mut entries: Vec<(u64, S)> = kept.map(|(hash, summary)| (*hash, *summary)).collect();
        entries.sort_unstable_by_key(|(hash, _)| *hash);
        Retained { theta, is_empty: self.is_empty, entries }
    }

    /// Bytes of memory.
    pub fn size(&self) -> usize {
        size_of::<Self>() + self.kept.capacity() * (size_of::<(u64, S)>() + 1)
    }
}

/// The theta below which `nominal` of more hashes are.
fn lowered(mut hashes: Vec<u64>, nominal: usize) -> u64 {
    *hashes.select_nth_unstable(nominal).1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spreads numbers over all hashes.
    fn hash(number: u64) -> u64 {
        (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 1).max(1)
    }

    fn of(numbers: std::ops::Range<u64>, lg_nominal: u8) -> Gathering<u32> {
        let mut gathering = Gathering::new(lg_nominal);
        numbers.for_each(|number| gathering.add(hash(number), |known| known.unwrap_or(0) + 1));
        gathering
    }

    fn estimate(sketch: &Retained<u32>) -> f64 {
        sketch.entries.len() as f64 / sketch.share()
    }

    #[test]
    fn few_values_are_counted_exactly() {
        let mut gathering = of(0..20, 4);
        gathering.add(hash(7), |known| known.unwrap_or(0) + 1);
        let sketch = gathering.retained();
        assert_eq!((sketch.theta, sketch.is_empty, sketch.entries.len()), (ALL, false, 20));
        let twice: Vec<u64> =
            sketch.entries.iter().filter(|entry| entry.1 == 2).map(|entry| entry.0).collect();
        assert_eq!(twice, [hash(7)]);
        assert!(sketch.entries.is_sorted_by(|one, next| one.0 < next.0));
    }

    #[test]
    fn a_sketch_keeps_no_more_than_it_may() {
        for lg_nominal in [4, 6, 10] {
            let gathering = of(0..100_000, lg_nominal);
            let (all, trimmed) = (gathering.retained(), gathering.trimmed());
            let nominal = 1 << lg_nominal;
            assert!(all.entries.len() >= nominal && all.entries.len() <= nominal * 15 / 8);
            assert_eq!(trimmed.entries.len(), nominal);
            assert!(trimmed.is_estimate() && trimmed.theta <= all.theta);
            let error = (estimate(&trimmed) - 100_000.0).abs() / 100_000.0;
            assert!(error < 4.0 / (nominal as f64).sqrt(), "{error} with {nominal}");
        }
    }

    #[test]
    fn sets_are_those_of_their_values() {
        let (left, right) = (of(0..300, 12).retained(), of(200..450, 12).retained());
        let mut union = Gathering::new(12);
        union.union(&left, |one, other| one + other);
        union.union(&right, |one, other| one + other);
        let union = union.trimmed();
        assert_eq!(union.entries.len(), 450);
        assert_eq!(union.entries.iter().filter(|entry| entry.1 == 2).count(), 100);
        let both = left.intersection(&right, |one, other| one + other);
        assert_eq!(both.entries.len(), 100);
        assert!(both.entries.iter().all(|entry| entry.1 == 2));
        assert_eq!(left.difference(&right).entries.len(), 200);
        assert_eq!(left.difference(&left), Retained::empty());
        assert_eq!(left.difference(&Retained::<u32>::empty()), left);
        assert!(left.intersection(&Retained::empty(), |one, _| one).is_empty);
    }

    /// A union takes no hash that one of its sketches would have thrown away.
    #[test]
    fn the_smallest_theta_counts() {
        let (small, large) = (of(0..10_000, 5).trimmed(), of(5_000..10_000, 12).trimmed());
        let mut union = Gathering::new(12);
        union.union(&large, |one, _| one);
        union.union(&small, |one, _| one);
        let union = union.trimmed();
        assert_eq!(union.theta, small.theta);
        assert!(union.entries.iter().all(|entry| entry.0 < union.theta));
        let both = small.intersection(&large, |one, _| one);
        assert_eq!(both.theta, small.theta.min(large.theta));
        assert!(!both.is_empty);
    }
}

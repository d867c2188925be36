//! When each record of a run is due.

use millstream_store::env::{Rng, SeededRng};

const SECOND_US: u64 = 1_000_000;

/// The times of the records of one run, in order: every record has a slot of `1 / rate` seconds and
/// is due at a random moment within it.
///
/// The spacing is irregular because a regular one can lock in phase with a timer of the system
/// under test and then shows that timer's best or worst case. The times do not depend on how the
/// run goes: latency counts from them, so a stall shows in every record that was due during it.
pub struct Schedule {
    start_us: i64,
    rate: u64,
    records: u64,
    next: u64,
    jitter: SeededRng,
}

/// A record of the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// Its number, from 0.
    pub number: u64,
    /// When it is due, microseconds since the epoch.
    pub due_us: i64,
}

impl Schedule {
    /// `rate` records a second for `seconds`, from `start_us` on.
    pub fn new(start_us: i64, rate: u64, seconds: u64, seed: u64) -> Self {
        assert!(rate > 0, "a rate of nothing has no schedule");
        Self { start_us, rate, records: rate * seconds, next: 0, jitter: SeededRng::new(seed) }
    }

    /// How many records there are in all.
    pub fn records(&self) -> u64 {
        self.records
    }
}

impl Iterator for Schedule {
    type Item = Due;

    fn next(&mut self) -> Option<Due> {
        if self.next == self.records {
            return None;
        }
        let number = self.next;
        self.next += 1;
        let within_slot = self.jitter.next_u64() % SECOND_US;
        let offset_us = (number * SECOND_US + within_slot) / self.rate;
        let offset_us = i64::try_from(offset_us).expect("a run is shorter than an age");
        Some(Due { number, due_us: self.start_us + offset_us })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_record_stays_in_its_slot() {
        for rate in [1, 3, 1_000, 50_000, 3_000_000] {
            let due: Vec<_> = Schedule::new(7_000_000, rate, 2, 1).collect();
            assert_eq!(due.len() as u64, rate * 2);
            for (number, record) in (0..).zip(&due) {
                assert_eq!(record.number, number);
                let slot_us = |slot: u64| 7_000_000 + (slot * SECOND_US / rate) as i64;
                assert!(record.due_us >= slot_us(number) && record.due_us <= slot_us(number + 1));
            }
            assert!(due.is_sorted_by_key(|record| record.due_us));
        }
    }

    #[test]
    fn spacing_is_irregular_and_repeatable() {
        let spacing = |seed| {
            let due: Vec<_> =
                Schedule::new(0, 1_000, 1, seed).map(|record| record.due_us).collect();
            due.windows(2).map(|pair| pair[1] - pair[0]).collect::<Vec<_>>()
        };
        let mut distinct = spacing(1);
        distinct.sort();
        distinct.dedup();
        assert!(distinct.len() > 200, "only {} distances", distinct.len());
        assert_eq!(spacing(1), spacing(1));
        assert_ne!(spacing(1), spacing(2));
    }
}

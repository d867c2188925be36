//! What a record of the check says, and what is known of those that came through.

use std::time::Duration;

use crate::histogram::Histogram;

/// Bytes that a record needs.
pub const SIZE_MIN: u32 = 24;

/// A value of `size` bytes: the run, which tells records from those of others in the same topic, a
/// number, and when the record was due in microseconds of the monotonic clock; 8 bytes each, little
/// endian, then zeros.
pub fn encode(run: u64, number: u64, due: Duration, size: u32) -> Vec<u8> {
    let words = [run, number, due.as_micros() as u64];
    let mut value: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
    value.resize(size as usize, 0);
    value
}

/// What was received so far.
pub struct Tally {
    run: u64,
    seen: Vec<bool>,
    measured_from: u64,
    /// Different records.
    pub received: u64,
    /// Latencies of what is measured.
    pub latencies: Histogram,
}

impl Tally {
    /// Expects the numbers below `records`; those from `measured_from` on are measured.
    pub fn new(run: u64, records: u64, measured_from: u64) -> Self {
        let (seen, latencies) = (vec![false; records as usize], Histogram::default());
        Self { run, seen, measured_from, received: 0, latencies }
    }

    /// Counts a value that was received at `now`.
    pub fn add(&mut self, value: &[u8], now: Duration) {
        let (words, _) = value.as_chunks::<8>();
        let [run, number, due] = match words {
            [run, number, due, ..] => [*run, *number, *due].map(u64::from_le_bytes),
            _ => return,
        };
        if run != self.run {
            return;
        }
        let is_first = |seen: &mut bool| !std::mem::replace(seen, true);
        if self.seen.get_mut(number as usize).is_some_and(is_first) {
            self.received += 1;
            if number >= self.measured_from {
                self.latencies.record(now.saturating_sub(Duration::from_micros(due)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_and_what_is_not_of_the_run_are_not_measured() {
        let (mut tally, ms) = (Tally::new(7, 3, 1), Duration::from_millis);
        for number in [0, 1, 1, 2, 9] {
            let value = encode(7, number, ms(number), 100);
            assert_eq!(value.len(), 100);
            tally.add(&value, ms(number + 10));
        }
        tally.add(&encode(8, 2, ms(2), 24), ms(99));
        tally.add(b"a user's record", ms(99));
        assert_eq!(tally.received, 3);
        assert_eq!(tally.latencies.quantile(1.0), Some(ms(10)));
    }
}

//! What is sent in a live run, record by record, and how late each was: arithmetic without a
//! broker.
//!
//! Records take turns on the partitions, so that partition and offset of each follow from its
//! number, and the first line of progress that lies behind it tells when it was published.

use crate::progress::Told;
use crate::quantiles::Latencies;
use crate::schedule::Schedule;

/// Records of a live run. Ahead of them each partition has one that shows that it is being read.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// When the first is due at the earliest, microseconds since the epoch.
    pub start_us: i64,
    /// Records a second.
    pub rate: u64,
    /// Seconds that do not count, at the beginning.
    pub warmup: u64,
    /// Seconds that count.
    pub seconds: u64,
    /// Partitions of the topic.
    pub partitions: usize,
    /// Decides about the moments.
    pub seed: u64,
}

/// What one window tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed {
    /// The former moment, microseconds since the epoch.
    pub due_us: i64,
    /// From the moment that the record which takes the watermark past its end was due, to the
    /// moment that its results were published. Microseconds.
    pub latency_us: i64,
    /// Rows published with it.
    pub rows: u64,
}

impl Plan {
    /// When each record is due.
    pub fn schedule(&self) -> Schedule {
        Schedule::new(self.start_us, self.rate, self.warmup + self.seconds, self.seed)
    }

    /// Partition and offset of a record.
    pub fn place(&self, number: u64) -> (usize, i64) {
        let partitions = self.partitions as u64;
        let partition = usize::try_from(number % partitions).expect("partitions are few");
        (partition, 1 + i64::try_from(number / partitions).expect("records are few"))
    }

    /// Where each partition ends.
    pub fn ends(&self) -> Vec<i64> {
        let mut ends = vec![1; self.partitions];
        let records = self.schedule().records();
        for number in records.saturating_sub(self.partitions as u64)..records {
            let (partition, offset) = self.place(number);
            ends[partition] = offset + 1;
        }
        ends
    }

    /// Where the warm-up ends, microseconds since the epoch.
    pub fn measured_from_us(&self) -> i64 {
        self.start_us + microseconds(self.warmup)
    }

    /// How late each record behind the warm-up was at the `moment` of the micro-batch that it
    /// was in. Those that no line covers are left out.
    pub fn latencies(&self, told: &[Told], moment: impl Fn(&Told) -> i64) -> Latencies {
        let mut latencies = Latencies::new();
        self.each_latency(told, moment, |_, latency_us| latencies.add(latency_us));
        latencies
    }

    /// As [`Self::latencies`], by slices of so many seconds behind the warm-up.
    pub fn slices(
        &self,
        told: &[Told],
        seconds: u64,
        moment: impl Fn(&Told) -> i64,
    ) -> Vec<Latencies> {
        let mut slices: Vec<Latencies> = Vec::new();
        self.each_latency(told, moment, |due_us, latency_us| {
            let slice = self.slice(due_us, seconds).expect("it is behind the warm-up");
            slices.resize_with(slices.len().max(slice + 1), Latencies::new);
            slices[slice].add(latency_us);
        });
        slices
    }

    /// Which slice of so many seconds a moment belongs to; `None` in the warm-up.
    pub fn slice(&self, at_us: i64, seconds: u64) -> Option<usize> {
        usize::try_from((at_us - self.measured_from_us()).div_euclid(microseconds(seconds))).ok()
    }

    /// Gives each record's due moment and its latency to `each`.
    fn each_latency(
        &self,
        told: &[Told],
        moment: impl Fn(&Told) -> i64,
        mut each: impl FnMut(i64, i64),
    ) {
        let mut lines = vec![0; self.partitions];
        for due in self.schedule() {
            let (partition, offset) = self.place(due.number);
            let line = &mut lines[partition];
            let is_before = |told: &Told| told.ends.get(partition).is_none_or(|end| *end <= offset);
            while told.get(*line).is_some_and(is_before) {
                *line += 1;
            }
            if due.due_us >= self.measured_from_us()
                && let Some(told) = told.get(*line)
            {
                each(due.due_us, moment(told) - due.due_us);
            }
        }
    }

    /// What the windows tell whose ends the watermark passes behind the warm-up: those of
    /// `window_ms`, with a watermark `delay_ms` behind the newest record.
    pub fn closed(&self, told: &[Told], window_ms: i64, delay_ms: i64) -> Vec<Closed> {
        let mut closed = Vec::new();
        let mut end_ms = (self.start_us / 1_000 / window_ms + 1) * window_ms;
        let mut lines = told.iter().peekable();
        for due in self.schedule() {
            if due.due_us / 1_000 < end_ms + delay_ms {
                continue;
            }
            while lines.next_if(|told| told.watermark_ms.is_none_or(|at| at < end_ms)).is_some() {}
            let Some(told) = lines.peek() else { break };
            if due.due_us >= self.measured_from_us() {
                let latency_us = told.published_us - due.due_us;
                closed.push(Closed { due_us: due.due_us, latency_us, rows: told.rows_out });
            }
            end_ms += window_ms;
        }
        closed
    }
}

fn microseconds(seconds: u64) -> i64 {
    i64::try_from(seconds * 1_000_000).expect("a run is shorter than an age")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan { start_us: 0, rate: 10, warmup: 1, seconds: 2, partitions: 3, seed: 1 }
    }

    fn told(ends: [i64; 3], published_us: i64) -> Told {
        Told { ends: ends.to_vec(), published_us, ..Told::default() }
    }

    #[test]
    fn a_record_is_as_late_as_the_first_line_behind_it() {
        let plan = plan();
        assert_eq!(plan.ends(), [11, 11, 11]);
        assert_eq!((plan.place(0), plan.place(4)), ((0, 1), (1, 2)));
        // All but the last record of partition 2 at second 4, that at second 9.
        let lines =
            [told([5, 5, 5], 2), told([11, 11, 10], 4_000_000), told([11, 11, 11], 9_000_000)];
        let latencies = plan.latencies(&lines, |told| told.published_us);
        assert_eq!(latencies.count(), 20);
        let due: Vec<_> = plan.schedule().map(|due| due.due_us).collect();
        let quantiles = latencies.of_stage();
        assert_eq!(quantiles.max_ms, (9_000_000 - due[29]) as f64 / 1e3);
        // Record 12 is the first that the first line does not cover.
        let without_last = plan.latencies(&lines[..2], |told| told.published_us);
        assert_eq!(without_last.count(), 19);
        assert_eq!(without_last.of_stage().max_ms, (4_000_000 - due[12]) as f64 / 1e3);
        let slices = plan.slices(&lines, 1, |told| told.published_us);
        assert_eq!(slices.iter().map(Latencies::count).collect::<Vec<_>>(), [10, 10]);
        assert_eq!((plan.slice(999_999, 1), plan.slice(2_000_000, 1)), (None, Some(1)));
    }

    #[test]
    fn a_window_is_as_late_as_the_line_whose_watermark_is_behind_it() {
        let plan = plan();
        let line = |watermark_ms, published_us, rows_out| Told {
            watermark_ms: Some(watermark_ms),
            published_us,
            rows_out,
            ..Told::default()
        };
        let lines =
            [line(0, 1, 0), line(999, 2, 0), line(1_000, 1_700_000, 7), line(2_100, 5_000_000, 8)];
        let closed = plan.closed(&lines, 1_000, 500);
        let first_from = |ms: i64| {
            let mut due = plan.schedule().map(|due| due.due_us);
            due.find(|due_us| due_us / 1_000 >= ms).expect("there is one")
        };
        let expected = [(1_500, 1_700_000, 7), (2_500, 5_000_000, 8)];
        let expected = expected.map(|(from_ms, published_us, rows)| {
            let due_us = first_from(from_ms);
            Closed { due_us, latency_us: published_us - due_us, rows }
        });
        assert_eq!(closed, expected);
    }
}

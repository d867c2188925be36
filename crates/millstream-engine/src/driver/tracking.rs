//! Which micro-batches get entries in the logs.
//!
//! Either all of them, or, with asynchronous progress tracking as in Spark, one every so often. A
//! restart goes on behind the last entry, so with the latter everything since then is read again.

use std::time::Duration;

/// Which micro-batches get entries in the logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProgressTracking {
    /// Every micro-batch.
    #[default]
    EveryMicroBatch,
    /// The first of a run, then at most one in this time: `asyncProgressTrackingEnabled`. Zero
    /// means every one, as in Spark.
    Interval(Duration),
}

/// Decides, micro-batch by micro-batch.
pub(super) struct Schedule {
    tracking: ProgressTracking,
    /// When entries were last written, on the monotonic clock.
    last: Option<Duration>,
}

impl Schedule {
    pub(super) fn new(tracking: ProgressTracking) -> Self {
        Self { tracking, last: None }
    }

    /// Whether there are micro-batches without entries.
    pub(super) fn is_sparse(&self) -> bool {
        self.tracking != ProgressTracking::EveryMicroBatch
    }

    /// Whether a micro-batch published at `now` gets its entries now.
    pub(super) fn is_due(&mut self, now: Duration) -> bool {
        let due = self.due_in(now).is_zero();
        if due {
            self.last = Some(now);
        }
        due
    }

    /// How long until entries are due.
    pub(super) fn due_in(&self, now: Duration) -> Duration {
        match (self.tracking, self.last) {
            (ProgressTracking::EveryMicroBatch, _) | (_, None) => Duration::ZERO,
            (ProgressTracking::Interval(interval), Some(last)) => {
                (last + interval).saturating_sub(now)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_first_is_due_and_then_one_an_interval() {
        let mut schedule = Schedule::new(ProgressTracking::Interval(ms(100)));
        let due = [0, 1, 99, 100, 150, 250].map(|now| schedule.is_due(ms(now)));
        assert_eq!(due, [true, false, false, true, false, true]);
        assert_eq!(schedule.due_in(ms(260)), ms(90));
    }

    #[test]
    fn without_an_interval_all_are_due() {
        for tracking in [ProgressTracking::default(), ProgressTracking::Interval(ms(0))] {
            let mut schedule = Schedule::new(tracking);
            assert_eq!([5, 5, 6].map(|now| schedule.is_due(ms(now))), [true; 3]);
        }
    }
}

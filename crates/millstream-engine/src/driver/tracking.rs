//! Which micro-batches get entries in the logs.
//!
//! Either all of them, or, with asynchronous progress tracking as in Spark, one every so often. A
//! restart goes on behind the last entry, so with the latter everything since then is read again.

use std::time::Duration;

use crate::api::settings::ProgressTracking;

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

    /// Whether entries are waited for.
    pub(super) fn is_blocking(&self) -> bool {
        self.tracking == ProgressTracking::Blocking
    }

    /// Whether there are micro-batches without entries.
    pub(super) fn is_sparse(&self) -> bool {
        matches!(self.tracking, ProgressTracking::Interval(_))
    }

    /// Entries were written at `now`.
    pub(super) fn logged(&mut self, now: Duration) {
        self.last = Some(now);
    }

    /// How long until entries are due; zero if they are.
    pub(super) fn due_in(&self, now: Duration) -> Duration {
        match (self.tracking, self.last) {
            (ProgressTracking::EveryMicroBatch | ProgressTracking::Blocking, _) | (_, None) => {
                Duration::ZERO
            }
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

    /// Which of the micro-batches published at these times get entries.
    fn due<const N: usize>(schedule: &mut Schedule, times_ms: [u64; N]) -> [bool; N] {
        times_ms.map(|now| {
            let is_due = schedule.due_in(ms(now)).is_zero();
            if is_due {
                schedule.logged(ms(now));
            }
            is_due
        })
    }

    #[test]
    fn the_first_is_due_and_then_one_an_interval() {
        let mut schedule = Schedule::new(ProgressTracking::Interval(ms(100)));
        let found = due(&mut schedule, [0, 1, 99, 100, 150, 250]);
        assert_eq!(found, [true, false, false, true, false, true]);
        assert_eq!(schedule.due_in(ms(260)), ms(90));
    }

    #[test]
    fn without_an_interval_all_are_due() {
        for tracking in [ProgressTracking::default(), ProgressTracking::Interval(ms(0))] {
            assert_eq!(due(&mut Schedule::new(tracking), [5, 5, 6]), [true; 3]);
        }
    }
}

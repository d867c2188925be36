//! How long a transaction waits for more rows.
//!
//! A transaction costs the brokers a few requests and a marker in each partition, however few rows
//! it holds. Where brokers have time the best is not to wait: the transaction before is gathering
//! enough. Where they are the bottleneck every transaction makes the others slower, and fewer,
//! larger ones make all rows faster.
//!
//! What tells one from the other is how long ending a transaction takes. It is one small request,
//! the same for one row and for a thousand, so it grows with the brokers' queues and with nothing
//! else. Beside the shortest of the last minute it shows how loaded they are, on any machine and
//! any network, as the round trip does for a connection that is to keep queues short (TCP Vegas,
//! Brakmo and Peterson 1995).

use std::time::Duration;

/// Of how many ends the median counts: single pauses of a broker are no load.
const WINDOW: usize = 15;
/// For how long the shortest end is remembered at least. Brokers get faster, and leaders move.
const MEMORY: Duration = Duration::from_secs(60);
/// How many times the shortest an end may take before transactions wait: the median of brokers that
/// have time is above their minimum, too.
const AT_EASE: u32 = 2;
/// How much longer than the shortest it may take in any case: so little is not worth a wait.
const WORTH_A_WAIT: Duration = Duration::from_millis(1);
/// How long to wait for each millisecond beyond. With 8, records of three brokers that were the
/// bottleneck came after half the time; 16 gave no more, 2 and 4 less.
const GAIN: u32 = 8;
/// The longest wait, whatever is measured.
const LONGEST: Duration = Duration::from_millis(100);

/// How long the next transaction waits for rows.
#[derive(Debug, Default)]
pub struct Pacing {
    recent: Vec<Duration>,
    next: usize,
    shortest: Shortest,
}

/// The shortest of at least the last [`MEMORY`], in two halves that follow each other.
#[derive(Debug, Default)]
struct Shortest {
    since: Duration,
    before: Option<Duration>,
    now: Option<Duration>,
}

impl Shortest {
    fn add(&mut self, took: Duration, at: Duration) {
        if at.saturating_sub(self.since) > MEMORY {
            self.since = at;
            self.before = self.now.take();
        }
        self.now = Some(self.now.map_or(took, |now| now.min(took)));
    }

    fn get(&self) -> Option<Duration> {
        self.before.into_iter().chain(self.now).min()
    }
}

impl Pacing {
    /// The end of a transaction took so long; `at` is the time on the monotonic clock. Returns how
    /// long the next transaction should wait once the one before it is filled; zero is not at all.
    pub fn ended(&mut self, took: Duration, at: Duration) -> Duration {
        self.shortest.add(took, at);
        match self.recent.get_mut(self.next) {
            Some(oldest) => *oldest = took,
            None => self.recent.push(took),
        }
        self.next = (self.next + 1) % WINDOW;
        let shortest = self.shortest.get().unwrap_or(took);
        let beyond =
            self.median().saturating_sub((shortest * AT_EASE).max(shortest + WORTH_A_WAIT));
        (beyond * GAIN).min(LONGEST)
    }

    /// Zero until there are enough of them to tell a load from a pause.
    fn median(&self) -> Duration {
        if self.recent.len() < WINDOW {
            return Duration::ZERO;
        }
        let mut sorted = self.recent.clone();
        sorted.sort_unstable();
        sorted[WINDOW / 2]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// The last answer after `count` ends of `took`, a millisecond apart.
    fn after(pacing: &mut Pacing, took: Duration, count: u32, at: &mut Duration) -> Duration {
        let mut gap = Duration::ZERO;
        for _ in 0..count {
            *at += MS;
            gap = pacing.ended(took, *at);
        }
        gap
    }

    #[test]
    fn transactions_wait_only_where_ends_take_longer_than_they_can() {
        let (mut pacing, mut at) = (Pacing::default(), Duration::ZERO);
        assert_eq!(after(&mut pacing, 2 * MS, 100, &mut at), Duration::ZERO);
        assert_eq!(after(&mut pacing, 4 * MS, 100, &mut at), Duration::ZERO);
        assert_eq!(after(&mut pacing, 9 * MS, 100, &mut at), 40 * MS);
        assert_eq!(after(&mut pacing, 900 * MS, 100, &mut at), LONGEST);
        assert_eq!(after(&mut pacing, 2 * MS, 100, &mut at), Duration::ZERO);
    }

    #[test]
    fn a_pause_of_a_broker_is_no_load() {
        let (mut pacing, mut at) = (Pacing::default(), Duration::ZERO);
        after(&mut pacing, MS, 20, &mut at);
        assert_eq!(after(&mut pacing, 500 * MS, 7, &mut at), Duration::ZERO);
        assert_eq!(after(&mut pacing, 500 * MS, 1, &mut at), LONGEST);
    }

    #[test]
    fn brokers_that_are_slower_for_good_are_not_waited_for() {
        let (mut pacing, mut at) = (Pacing::default(), Duration::ZERO);
        after(&mut pacing, MS, 20, &mut at);
        assert_eq!(after(&mut pacing, 10 * MS, 20, &mut at), 64 * MS);
        for _ in 0..2 {
            at += MEMORY + MS;
            after(&mut pacing, 10 * MS, 20, &mut at);
        }
        assert_eq!(after(&mut pacing, 10 * MS, 1, &mut at), Duration::ZERO);
    }

    #[test]
    fn less_than_a_millisecond_is_not_worth_a_wait() {
        let (mut pacing, mut at) = (Pacing::default(), Duration::ZERO);
        after(&mut pacing, MS / 10, 20, &mut at);
        assert_eq!(after(&mut pacing, MS, 20, &mut at), Duration::ZERO);
        assert_eq!(after(&mut pacing, 2 * MS, 20, &mut at), GAIN * (MS - MS / 10));
    }

    #[test]
    fn the_first_ends_are_of_connections_that_are_being_opened() {
        let (mut pacing, mut at) = (Pacing::default(), Duration::ZERO);
        after(&mut pacing, MS, 1, &mut at);
        assert_eq!(after(&mut pacing, 80 * MS, 7, &mut at), Duration::ZERO);
    }
}

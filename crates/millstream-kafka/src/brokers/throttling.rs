//! What quotas of the brokers cost: said in the log, since nothing else would tell why a
//! query is slow.

use std::time::Duration;

use parking_lot::Mutex;

use crate::protocol::responses::Address;

/// A shorter pause is not worth a warning.
const WARN_FROM: Duration = Duration::from_millis(100);
/// The warning is repeated after this time.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// Warns of quotas, once a minute for all clients of a table.
pub struct Throttling {
    table: String,
    /// What is done with rows.
    done: &'static str,
    /// When the last warning was given, on the monotonic clock.
    warned: Mutex<Option<Duration>>,
}

impl Throttling {
    /// Of the sink of `table`.
    pub fn new(table: &str) -> Self {
        Self { table: table.to_owned(), done: "written", warned: Mutex::default() }
    }

    /// Of the reader of `table`.
    pub fn of_reader(table: &str) -> Self {
        Self { done: "read", ..Self::new(table) }
    }

    /// Notes that `broker` reads nothing for so long, at `now` on the monotonic clock.
    pub fn note(&self, broker: &Address, pause: Duration, now: Duration) {
        if self.warns(pause, now) {
            let Address { host, port } = broker;
            tracing::warn!(
                table = self.table,
                broker = format!("{host}:{port}"),
                pause_ms = pause.as_millis(),
                "the broker throttles this client, as a quota of the user or of 'kafka.client.id' \
                is used up: rows are {} as fast as it allows",
                self.done
            );
        }
    }

    fn warns(&self, pause: Duration, now: Duration) -> bool {
        let mut warned = self.warned.lock();
        let is_due = warned.is_none_or(|warned| now.saturating_sub(warned) >= WARN_EVERY);
        let warns = is_due && pause >= WARN_FROM;
        if warns {
            *warned = Some(now);
        }
        warns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_come_once_a_minute_and_not_for_moments() {
        let throttling = Throttling::new("out");
        let pauses = [(50, 1), (150, 2), (9_000, 3), (150, 61), (150, 62), (20, 130), (150, 131)];
        let warned = pauses.map(|(pause_ms, now_s)| {
            let (pause, now) = (Duration::from_millis(pause_ms), Duration::from_secs(now_s));
            throttling.warns(pause, now)
        });
        assert_eq!(warned, [false, true, false, false, true, false, true]);
    }
}

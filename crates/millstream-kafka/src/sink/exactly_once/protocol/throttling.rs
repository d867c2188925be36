//! What quotas of the brokers cost a sink: said in the log, since nothing else would tell why a
//! query is slow.

use std::time::Duration;

use parking_lot::Mutex;

use crate::protocol::responses::Address;

/// A pause that is no longer is not worth a line.
const TOLD_FROM: Duration = Duration::from_millis(100);
/// How often it is told while it lasts.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// Tells of quotas, once a minute for all clients of a sink.
pub struct Throttling {
    table: String,
    /// When it was told last, on the monotonic clock.
    told: Mutex<Option<Duration>>,
}

impl Throttling {
    /// Of the sink of `table`.
    pub fn new(table: &str) -> Self {
        Self { table: table.to_owned(), told: Mutex::default() }
    }

    /// Notes that `broker` reads nothing for so long, at `now` on the monotonic clock.
    pub fn note(&self, broker: &Address, pause: Duration, now: Duration) {
        if self.is_told(pause, now) {
            let Address { host, port } = broker;
            tracing::warn!(
                table = self.table,
                broker = format!("{host}:{port}"),
                pause_ms = pause.as_millis(),
                "the broker throttles this client, as a quota of the user or of 'kafka.client.id' \
                is used up: rows are written as fast as it allows"
            );
        }
    }

    fn is_told(&self, pause: Duration, now: Duration) -> bool {
        let mut told = self.told.lock();
        let is_due = told.is_none_or(|told| now.saturating_sub(told) >= TOLD_EVERY);
        let is_told = is_due && pause >= TOLD_FROM;
        if is_told {
            *told = Some(now);
        }
        is_told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_once_a_minute_and_moments_are_not() {
        let throttling = Throttling::new("out");
        let told = [(50, 1), (150, 2), (9_000, 3), (150, 61), (150, 62), (20, 130), (150, 131)];
        let told = told.map(|(pause_ms, now_s)| {
            let (pause, now) = (Duration::from_millis(pause_ms), Duration::from_secs(now_s));
            throttling.is_told(pause, now)
        });
        assert_eq!(told, [false, true, false, false, true, false, true]);
    }
}

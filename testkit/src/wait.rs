//! Waiting for events in other processes, with a limit and a message.
//!
//! The only clock of the kit: it watches real processes, so there is no time to move.
#![allow(clippy::disallowed_methods)]

use std::time::{Duration, Instant};

/// How often a condition is looked at.
const PAUSE: Duration = Duration::from_millis(20);

/// A limit for what a process of ours does within moments; generous, because the machine may be
/// busy with other tests, and only a test that fails waits for so long.
pub const SOON: Duration = Duration::from_secs(180);

/// What is left of a limit, from when it was made.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    start: Instant,
    limit: Duration,
}

impl Deadline {
    /// From now on.
    pub fn after(limit: Duration) -> Self {
        Self { start: Instant::now(), limit }
    }

    /// How long ago it was made.
    pub fn passed(&self) -> Duration {
        self.start.elapsed()
    }

    /// True once it is over.
    pub fn is_over(&self) -> bool {
        self.start.elapsed() > self.limit
    }
}

/// Asks `probe` until it gives something.
///
/// # Panics
/// After `limit`, saying `what` was waited for.
pub fn until<T>(what: &str, limit: Duration, mut probe: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(start.elapsed() < limit, "waited {} s for {what}", limit.as_secs());
        std::thread::sleep(PAUSE);
    }
}

/// Waits until `condition` holds; panics as [`until`] does.
pub fn until_true(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    until(what, limit, || condition().then_some(()));
}

/// Runs `work` and says how long it took.
pub fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed())
}

/// Lets `duration` pass: only for showing that something does not happen meanwhile.
pub fn pause(duration: Duration) {
    std::thread::sleep(duration);
}

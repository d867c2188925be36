//! The time that arguments of functions ask for.

use std::cell::Cell;

/// The time while arguments are read. A year of two digits needs it; what has asked for it cannot
/// be prepared before the message.
pub(crate) struct Clock {
    now_ms: i64,
    was_read: Cell<bool>,
}

impl Clock {
    /// The clock at a time, milliseconds since the epoch.
    pub(crate) fn at(now_ms: i64) -> Self {
        Self { now_ms, was_read: Cell::new(false) }
    }

    pub(crate) fn now_ms(&self) -> i64 {
        self.was_read.set(true);
        self.now_ms
    }

    /// Whether somebody has asked for the time.
    pub(crate) fn was_read(&self) -> bool {
        self.was_read.get()
    }
}

//! The time that arguments of functions depend on.

use std::cell::Cell;

/// The time while arguments are read, which a year of two digits depends on. An action that has
/// read it cannot be prepared before the message.
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

    /// Whether the time was read.
    pub(crate) fn was_read(&self) -> bool {
        self.was_read.get()
    }
}

//! Times as microseconds since the epoch: what they are counted by.

use chrono::{DateTime, NaiveDateTime};

/// Microseconds in a second.
pub(crate) const SECOND_US: i64 = 1_000_000;
/// Microseconds in a day.
pub(crate) const DAY_US: i64 = 86_400 * SECOND_US;

/// The civil date and time of a timestamp, for chrono's calendar arithmetic; `None` if it is in no
/// calendar.
pub(crate) fn naive(us: i64) -> Option<NaiveDateTime> {
    Some(DateTime::from_timestamp_micros(us)?.naive_utc())
}

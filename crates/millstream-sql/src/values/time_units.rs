//! Units of time to count by: months and their multiples on the calendar, all others of a fixed
//! length.

use chrono::{Datelike, Months, NaiveDateTime, TimeDelta};

use super::calendar::{DAY_US, SECOND_US, naive};

/// The function that adds a count of a unit to a time.
pub(crate) const TIME_ADD: &str = "time_add";
/// The function that counts the units between two times.
pub(crate) const TIME_DIFFERENCE: &str = "time_difference";

/// A unit: so many months, or microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeUnit {
    Months(i64),
    Microseconds(i64),
}

const UNITS: [(&str, TimeUnit); 11] = [
    ("YEAR", TimeUnit::Months(12)),
    ("QUARTER", TimeUnit::Months(3)),
    ("MONTH", TimeUnit::Months(1)),
    ("WEEK", TimeUnit::Microseconds(7 * DAY_US)),
    ("DAY", TimeUnit::Microseconds(DAY_US)),
    ("DAYOFYEAR", TimeUnit::Microseconds(DAY_US)),
    ("HOUR", TimeUnit::Microseconds(3600 * SECOND_US)),
    ("MINUTE", TimeUnit::Microseconds(60 * SECOND_US)),
    ("SECOND", TimeUnit::Microseconds(SECOND_US)),
    ("MILLISECOND", TimeUnit::Microseconds(1000)),
    ("MICROSECOND", TimeUnit::Microseconds(1)),
];

/// The names of all units.
pub(crate) fn unit_names() -> impl Iterator<Item = &'static str> {
    UNITS.iter().map(|(name, _)| *name)
}

/// The unit of this name, whatever its case.
pub(crate) fn unit_of(name: &str) -> Option<TimeUnit> {
    UNITS.iter().find(|(unit, _)| unit.eq_ignore_ascii_case(name)).map(|(_, unit)| *unit)
}

/// `us` plus `count` units; `None` beyond all times.
pub(crate) fn added(us: i64, count: i64, unit: TimeUnit) -> Option<i64> {
    match unit {
        TimeUnit::Microseconds(length) => us.checked_add(count.checked_mul(length)?),
        TimeUnit::Months(months) => {
            let months = count.checked_mul(months)?;
            let shift = Months::new(u32::try_from(months.unsigned_abs()).ok()?);
            let time = naive(us)?;
            let moved = match months {
                0.. => time.checked_add_months(shift)?,
                _ => time.checked_sub_months(shift)?,
            };
            Some(moved.and_utc().timestamp_micros())
        }
    }
}

/// The whole units from `start` to `end`.
pub(crate) fn between(start: i64, end: i64, unit: TimeUnit) -> Option<i64> {
    match unit {
        TimeUnit::Microseconds(length) => Some(end.checked_sub(start)? / length),
        TimeUnit::Months(months) => Some(months_between(naive(start)?, naive(end)?)? / months),
    }
}

/// Whole months, where a month ends at the same time of the same day.
fn months_between(start: NaiveDateTime, end: NaiveDateTime) -> Option<i64> {
    let mut last = end.date();
    if last > start.date() && end.time() < start.time() {
        last = last.checked_sub_signed(TimeDelta::days(1))?;
    } else if last < start.date() && end.time() > start.time() {
        last = last.checked_add_signed(TimeDelta::days(1))?;
    }
    // With 32 days a month, a difference of days is never as much as one of a month.
    let packed = |date: chrono::NaiveDate| {
        (i64::from(date.year()) * 12 + i64::from(date.month0())) * 32 + i64::from(date.day())
    };
    Some((packed(last) - packed(start.date())) / 32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::calendar::parse_timestamp;

    fn us(text: &str) -> i64 {
        parse_timestamp(text).expect(text)
    }

    #[test]
    fn months_are_those_of_the_calendar() {
        let month = TimeUnit::Months(1);
        assert_eq!(added(us("2026-01-31 01:00:00"), 1, month), Some(us("2026-02-28 01:00:00")));
        let cases = [
            ("2026-01-31", "2026-02-28", 0),
            ("2026-01-28 12:00:00", "2026-02-28 11:00:00", 0),
            ("2026-01-28 12:00:00", "2026-02-28 12:00:00", 1),
            ("2026-02-28 12:00:00", "2026-01-28 13:00:00", 0),
            ("2026-03-01", "2025-03-01", -12),
        ];
        for (start, end, months) in cases {
            assert_eq!(between(us(start), us(end), month), Some(months), "{start} to {end}");
        }
    }
}

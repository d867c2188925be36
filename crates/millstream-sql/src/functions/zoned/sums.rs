//! Moments that are computed from a moment on the calendar and the clocks of a zone: a day later, a
//! month earlier, the beginning of an hour.
//!
//! A day or a month later the clocks show the same time, whatever they were changed by. What is
//! less than a day is of a fixed length. Where the clocks show the result twice, it has the offset
//! of the moment that it was computed from, if that is possible.
//!
//! Origin: java.time's ZonedDateTime, whose rules Spark's results follow.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast as arrow_cast;
use arrow::datatypes::{
    DataType, DurationMicrosecondType, Float64Type, IntervalMonthDayNanoType, IntervalUnit,
    IntervalYearMonthType, TimestampMicrosecondType,
};
use chrono::NaiveDate;
use datafusion::common::{Result, exec_datafusion_err, internal_err};

use super::super::datetime::{months_apart, truncated};
use super::super::define::{Arguments, Function, Param, returns_double, returns_timestamp};
use super::super::interval_text::MICROSECONDS;
use super::{beyond, zone_of};
use crate::values::calendar::{DAY_US, SECOND_US, months_later, naive_date};
use crate::values::time_units::{TimeUnit, unit_of};
use crate::values::zone::Zone;

use Param::{Any, Boolean, Long, Text, Timestamp};

/// A TIMESTAMP and an INTERVAL that is added to it.
pub(crate) const PLUS: &str = "__plus_in_zone";
/// A TIMESTAMP and an INTERVAL that is taken off it.
pub(crate) const MINUS: &str = "__minus_in_zone";
/// As [`PLUS`], NULL where there is no such TIMESTAMP.
pub(crate) const TRY_PLUS: &str = "__try_plus_in_zone";
/// As [`MINUS`], NULL where there is no such TIMESTAMP.
pub(crate) const TRY_MINUS: &str = "__try_minus_in_zone";
/// `timestampadd` of days and more: the unit, how many, and the TIMESTAMP.
pub(crate) const TIME_ADD_UNITS: &str = "__time_add_in_zone";
/// `date_trunc`.
pub(crate) const DATE_TRUNC: &str = "__date_trunc_in_zone";
/// `months_between` with all its arguments.
pub(crate) const MONTHS_BETWEEN: &str = "__months_between_in_zone";

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new(PLUS, &[Timestamp, Any, Text], returns_timestamp, |args| sum(args, 1, true)),
    Function::new(MINUS, &[Timestamp, Any, Text], returns_timestamp, |args| sum(args, -1, true)),
    Function::new(TRY_PLUS, &[Timestamp, Any, Text], returns_timestamp, |args| sum(args, 1, false)),
    Function::new(TRY_MINUS, &[Timestamp, Any, Text], returns_timestamp, |args| {
        sum(args, -1, false)
    }),
    Function::new(TIME_ADD_UNITS, &[Text, Long, Timestamp, Text], returns_timestamp, time_add),
    Function::new(DATE_TRUNC, &[Text, Timestamp, Text], returns_timestamp, date_trunc),
    Function::new(
        MONTHS_BETWEEN,
        &[Timestamp, Timestamp, Boolean, Text],
        returns_double,
        months_between,
    ),
];

/// The time between two moments on calendar and clocks: months, days, and microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Span {
    months: i32,
    days: i32,
    us: i64,
}

impl Span {
    /// Of microseconds, of which whole days are counted on the calendar.
    fn of_microseconds(us: i64) -> Option<Self> {
        let days = i32::try_from(us / DAY_US).ok()?;
        Some(Self { months: 0, days, us: us % DAY_US })
    }

    fn times(self, sign: i32) -> Option<Self> {
        let us = self.us.checked_mul(i64::from(sign))?;
        let (months, days) = (self.months.checked_mul(sign)?, self.days.checked_mul(sign)?);
        Some(Self { months, days, us })
    }

    /// The moment so much later than `us`.
    fn after(self, us: i64, zone: &Zone) -> Option<i64> {
        let by_months = on_calendar(us, zone, |day| months_later(day, self.months))?;
        let by_days = on_calendar(by_months, zone, |day| day.checked_add(self.days))?;
        by_days.checked_add(self.us)
    }
}

/// The moment of another day at which the clocks show the same time as at `us`.
fn on_calendar(us: i64, zone: &Zone, other: impl Fn(i32) -> Option<i32>) -> Option<i64> {
    let local = zone.clock_at(us)?;
    let day = i32::try_from(local.div_euclid(DAY_US)).ok()?;
    let moved = other(day)?;
    if moved == day {
        return Some(us);
    }
    let local = i64::from(moved).checked_mul(DAY_US)?.checked_add(local.rem_euclid(DAY_US))?;
    zone.moment_near(local, us)
}

/// INTERVALs of one of the types that they have.
struct Spans {
    values: ArrayRef,
    constant: bool,
}

impl Spans {
    fn new(args: &Arguments, at: usize) -> Result<Self> {
        let (values, constant) = args.array(at);
        let values = match values.data_type() {
            DataType::Duration(_) => arrow_cast(values, &MICROSECONDS)?,
            DataType::Interval(IntervalUnit::YearMonth | IntervalUnit::MonthDayNano) => {
                ArrayRef::clone(values)
            }
            other => return internal_err!("{other} is not added to a time"),
        };
        Ok(Self { values, constant })
    }

    /// `None` if it is NULL, and if nothing is so long.
    fn get(&self, row: usize) -> Option<Option<Span>> {
        let at = if self.constant { 0 } else { row };
        if self.values.is_null(at) {
            return None;
        }
        Some(match self.values.data_type() {
            DataType::Interval(IntervalUnit::YearMonth) => {
                let months = self.values.as_primitive::<IntervalYearMonthType>().value(at);
                Some(Span { months, ..Span::default() })
            }
            DataType::Interval(_) => {
                let value = self.values.as_primitive::<IntervalMonthDayNanoType>().value(at);
                let us = value.nanoseconds / 1000;
                Some(Span { months: value.months, days: value.days, us })
            }
            _ => {
                let us = self.values.as_primitive::<DurationMicrosecondType>().value(at);
                Span::of_microseconds(us)
            }
        })
    }
}

fn sum(args: &Arguments, sign: i32, strict: bool) -> Result<ArrayRef> {
    let (times, spans, zone) = (args.timestamp(0), Spans::new(args, 1)?, zone_of(args)?);
    args.primitives::<TimestampMicrosecondType>(|row| {
        let (Some(us), Some(span)) = (times.get(row), spans.get(row)) else { return Ok(None) };
        let span = span.and_then(|span| span.times(sign));
        match span.and_then(|span| span.after(us, &zone)) {
            None if strict => Err(beyond()),
            sum => Ok(sum),
        }
    })
}

fn time_add(args: &Arguments) -> Result<ArrayRef> {
    let (units, counts, times) = (args.text(0), args.long(1), args.timestamp(2));
    let zone = zone_of(args)?;
    args.primitives::<TimestampMicrosecondType>(|row| {
        let Some((count, us)) = counts.get(row).zip(times.get(row)) else { return Ok(None) };
        let name = units.get(row).unwrap_or_default();
        let unit =
            unit_of(name).ok_or_else(|| exec_datafusion_err!("'{name}' is no unit of time"))?;
        let later = span_of(unit, count).and_then(|span| span.after(us, &zone));
        later.map(Some).ok_or_else(beyond)
    })
}

/// So many of a unit. Hours and less are of a fixed length, however many they are.
fn span_of(unit: TimeUnit, count: i64) -> Option<Span> {
    Some(match unit {
        TimeUnit::Months(months) => {
            let months = i32::try_from(count.checked_mul(months)?).ok()?;
            Span { months, ..Span::default() }
        }
        TimeUnit::Microseconds(length) if length % DAY_US == 0 => {
            let days = i32::try_from(count.checked_mul(length / DAY_US)?).ok()?;
            Span { days, ..Span::default() }
        }
        TimeUnit::Microseconds(length) => {
            Span { us: count.checked_mul(length)?, ..Span::default() }
        }
    })
}

fn date_trunc(args: &Arguments) -> Result<ArrayRef> {
    let (units, times, zone) = (args.text(0), args.timestamp(1), zone_of(args)?);
    args.primitives::<TimestampMicrosecondType>(|row| {
        let (Some(unit), Some(us)) = (units.get(row), times.get(row)) else { return Ok(None) };
        let unit = unit.to_ascii_uppercase();
        let Some(local) = zone.clock_at(us) else { return Err(beyond()) };
        // An unknown unit has no beginning.
        let Some(start) = truncated(&unit, local) else { return Ok(None) };
        let moment = match unit.as_str() {
            "WEEK" | "MONTH" | "MON" | "MM" | "QUARTER" | "YEAR" | "YYYY" | "YY" => {
                let day = i32::try_from(start.div_euclid(DAY_US)).ok();
                day.and_then(|day| zone.start_of_day(day))
            }
            _ => zone.moment_near(start, us),
        };
        moment.map(Some).ok_or_else(beyond)
    })
}

/// A part of a month is counted from the beginning of a day, whatever the clocks show.
fn months_between(args: &Arguments) -> Result<ArrayRef> {
    let (left, right, round) = (args.timestamp(0), args.timestamp(1), args.boolean(2));
    let zone = zone_of(args)?;
    args.primitives::<Float64Type>(|row| {
        let (Some(left), Some(right), Some(round)) =
            (left.get(row), right.get(row), round.get(row))
        else {
            return Ok(None);
        };
        let of_day = |us: i64| day_and_seconds(us, &zone).ok_or_else(beyond);
        Ok(Some(months_apart(of_day(left)?, of_day(right)?, round)))
    })
}

/// The day of a moment, and how many seconds before it that began.
fn day_and_seconds(us: i64, zone: &Zone) -> Option<(NaiveDate, u32)> {
    let day = i32::try_from(zone.clock_at(us)?.div_euclid(DAY_US)).ok()?;
    let seconds = us.checked_sub(zone.start_of_day(day)?)? / SECOND_US;
    Some((naive_date(day)?, u32::try_from(seconds).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::calendar::{parse_timestamp, write_timestamp};

    fn us(text: &str) -> i64 {
        parse_timestamp(text).expect("it is a time")
    }

    fn after(text: &str, span: Span) -> String {
        let berlin = Zone::named("Europe/Berlin").expect("there is such a zone");
        let mut out = String::new();
        if let Some(us) = span.after(us(text), &berlin) {
            write_timestamp(us, &mut out);
        }
        out
    }

    #[test]
    fn days_and_months_are_those_of_the_clocks() {
        let days = |days| Span { days, ..Span::default() };
        let months = |months| Span { months, ..Span::default() };
        let hours = |hours: i64| Span { us: hours * 3600 * SECOND_US, ..Span::default() };
        for (from, span, to) in [
            ("2024-03-30 11:00:00", days(1), "2024-03-31 10:00:00"),
            ("2024-03-30 01:30:00", days(1), "2024-03-31 01:30:00"),
            ("2024-03-30 11:00:00", hours(24), "2024-03-31 11:00:00"),
            ("2024-10-27 01:30:00", months(0), "2024-10-27 01:30:00"),
            ("2024-11-27 01:30:00", months(-1), "2024-10-27 01:30:00"),
            ("2024-09-27 00:30:00", months(1), "2024-10-27 00:30:00"),
            ("2024-01-31 11:00:00", months(1), "2024-02-29 11:00:00"),
        ] {
            assert_eq!(after(from, span), to, "{from} and {span:?}");
        }
    }

    #[test]
    fn microseconds_have_whole_days_in_them() {
        let span = Span::of_microseconds(-DAY_US - 5).expect("it is short");
        assert_eq!(span, Span { months: 0, days: -1, us: -5 });
        assert_eq!(Span::of_microseconds(i64::MAX).map(|span| span.days), Some(106_751_991));
        assert_eq!(Span { months: i32::MIN, ..Span::default() }.times(-1), None);
        let day = unit_of("day").expect("it is one");
        assert_eq!(span_of(day, 2), Some(Span { days: 2, ..Span::default() }));
        let hour = unit_of("hour").expect("it is one");
        assert_eq!(span_of(hour, 48).map(|span| span.us), Some(2 * DAY_US));
    }
}

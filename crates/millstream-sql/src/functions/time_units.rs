//! Times moved by a number of a unit, and the time between two in a unit: what `timestampadd` and
//! `timestampdiff` become.

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Int64Type, TimestampMicrosecondType};
use datafusion::common::{Result, exec_err, plan_err};

use super::define::{Arguments, Function, Param, returns_long};
use crate::types::spark_type;
use crate::values::calendar::{DAY_US, SECOND_US, civil_of, days_of};

use Param::{EventTime, Long, Text};

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("time_moved", &[Text, Long, EventTime], |args| time(&args[2]), moved),
    Function::new(
        "time_between",
        &[Text, EventTime, EventTime],
        |args| {
            time(&args[1])?;
            time(&args[2])?;
            returns_long(args)
        },
        between,
    ),
];

/// More months than there are between the first TIMESTAMP and the last.
const MONTHS_MAX: i64 = 8_000_000;

/// # Errors
/// The type is not one of a time.
fn time(given: &DataType) -> Result<DataType> {
    match given {
        DataType::Timestamp(..) => Ok(given.clone()),
        DataType::Null => Ok(crate::types::timestamp()),
        other => plan_err!("expected a TIMESTAMP, found {}", spark_type(other)),
    }
}

/// What a unit is, in months or in microseconds.
enum Unit {
    Months(i64),
    Micros(i64),
}

fn unit(name: &str) -> Result<Unit> {
    Ok(match name {
        "YEAR" => Unit::Months(12),
        "QUARTER" => Unit::Months(3),
        "MONTH" => Unit::Months(1),
        "WEEK" => Unit::Micros(7 * DAY_US),
        "DAY" | "DAYOFYEAR" => Unit::Micros(DAY_US),
        "HOUR" => Unit::Micros(3600 * SECOND_US),
        "MINUTE" => Unit::Micros(60 * SECOND_US),
        "SECOND" => Unit::Micros(SECOND_US),
        "MILLISECOND" => Unit::Micros(1000),
        "MICROSECOND" => Unit::Micros(1),
        other => return exec_err!("there is no unit of time '{other}'"),
    })
}

fn moved(args: &Arguments) -> Result<ArrayRef> {
    let (units, counts) = (args.text(0), args.long(1));
    let times = args.timestamp(2);
    args.primitives::<TimestampMicrosecondType>(|row| {
        let (Some(name), Some(count), Some(us)) = (units.get(row), counts.get(row), times.get(row))
        else {
            return Ok(None);
        };
        let moved = match unit(name)? {
            Unit::Micros(unit) => count.checked_mul(unit).and_then(|by| us.checked_add(by)),
            Unit::Months(unit) => count.checked_mul(unit).and_then(|by| months_later(us, by)),
        };
        match moved {
            Some(us) => Ok(Some(us)),
            None => exec_err!("{count} {name} from there is beyond what a TIMESTAMP holds"),
        }
    })
}

/// The same day of a later month, or its last day if it is shorter, at the same time of the day.
fn months_later(us: i64, months: i64) -> Option<i64> {
    if !(-MONTHS_MAX..=MONTHS_MAX).contains(&months) {
        return None;
    }
    let (year, month, day) = civil_of(i32::try_from(us.div_euclid(DAY_US)).ok()?);
    let months = year * 12 + i64::from(month) - 1 + months;
    let (year, month) = (months.div_euclid(12), months.rem_euclid(12) as u32 + 1);
    let days = (1..=day).rev().find_map(|day| days_of(year, month, day))?;
    i64::from(days).checked_mul(DAY_US)?.checked_add(us.rem_euclid(DAY_US))
}

fn between(args: &Arguments) -> Result<ArrayRef> {
    let (units, starts, ends) = (args.text(0), args.timestamp(1), args.timestamp(2));
    args.primitives::<Int64Type>(|row| {
        let (Some(name), Some(start), Some(end)) = (units.get(row), starts.get(row), ends.get(row))
        else {
            return Ok(None);
        };
        let found = match unit(name)? {
            Unit::Micros(unit) => end.checked_sub(start).map(|us| us / unit),
            Unit::Months(unit) => whole_months(start, end).map(|months| months / unit),
        };
        match found {
            Some(found) => Ok(Some(found)),
            None => exec_err!("the time between the two is beyond what a BIGINT holds"),
        }
    })
}

/// The months from `start` to `end`, of which the last one counts if it is over.
fn whole_months(start: i64, end: i64) -> Option<i64> {
    // Days are counted up to 31 in each month, so that a month is over at the same day and time.
    let place = |us: i64| -> Option<i128> {
        let (year, month, day) = civil_of(i32::try_from(us.div_euclid(DAY_US)).ok()?);
        let days = (year * 12 + i64::from(month) - 1) * 32 + i64::from(day);
        Some(i128::from(days) * i128::from(DAY_US) + i128::from(us.rem_euclid(DAY_US)))
    };
    i64::try_from((place(end)? - place(start)?) / (32 * i128::from(DAY_US))).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(year: i64, month: u32, day: u32, seconds: i64) -> i64 {
        i64::from(days_of(year, month, day).expect("a day")) * DAY_US + seconds * SECOND_US
    }

    #[test]
    fn a_month_is_over_at_the_same_time() {
        let start = at(2022, 1, 14, 3723);
        assert_eq!(whole_months(start, at(2022, 2, 14, 3723)), Some(1));
        assert_eq!(whole_months(start, at(2022, 2, 14, 3722)), Some(0));
        assert_eq!(whole_months(at(2022, 2, 14, 3723), start), Some(-1));
        assert_eq!(whole_months(at(2022, 2, 14, 3722), start), Some(0));
    }

    #[test]
    fn a_shorter_month_has_its_last_day() {
        assert_eq!(months_later(at(2024, 1, 31, 5), 1), Some(at(2024, 2, 29, 5)));
        assert_eq!(months_later(at(2024, 3, 31, 5), -1), Some(at(2024, 2, 29, 5)));
    }
}

//! `trunc` and `next_day`: dates at which something begins.

use arrow::array::ArrayRef;
use arrow::datatypes::Date32Type;
use chrono::{Datelike, NaiveDate};
use datafusion::common::{Result, exec_err};

use super::define::{Arguments, Function, Param, returns_date};
use crate::values::calendar::naive_date;

use Param::{Date, Text};

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("trunc", &[Date, Text], returns_date, trunc),
    Function::new("next_day", &[Date, Text], returns_date, next_day),
];

/// The first day of a date's year, quarter, month or week; NULL for any other unit.
fn trunc(args: &Arguments) -> Result<ArrayRef> {
    let (dates, units) = (args.date(0), args.text(1));
    args.primitives::<Date32Type>(|row| {
        let (Some(days), Some(unit)) = (dates.get(row), units.get(row)) else { return Ok(None) };
        let Some(date) = naive_date(days) else { return Ok(None) };
        let begin = match unit.to_ascii_uppercase().as_str() {
            "YEAR" | "YYYY" | "YY" => NaiveDate::from_ymd_opt(date.year(), 1, 1),
            "QUARTER" => NaiveDate::from_ymd_opt(date.year(), date.month0() / 3 * 3 + 1, 1),
            "MONTH" | "MM" | "MON" => date.with_day(1),
            "WEEK" => {
                let back = date.weekday().num_days_from_monday();
                return Ok(days.checked_sub(back as i32));
            }
            _ => None,
        };
        Ok(begin.map(|begin| days - date.signed_duration_since(begin).num_days() as i32))
    })
}

/// The first day after a date that is the day of the week named.
fn next_day(args: &Arguments) -> Result<ArrayRef> {
    next_days(args, true)
}

/// `next_day` without ANSI mode: NULL of what is no day of the week.
pub(super) fn next_day_or_null(args: &Arguments) -> Result<ArrayRef> {
    next_days(args, false)
}

fn next_days(args: &Arguments, strict: bool) -> Result<ArrayRef> {
    let (dates, names) = (args.date(0), args.text(1));
    args.primitives::<Date32Type>(|row| {
        let (Some(days), Some(name)) = (dates.get(row), names.get(row)) else { return Ok(None) };
        let wanted = match day_of_week(name) {
            Some(wanted) => wanted,
            None if strict => {
                return exec_err!("'{name}' is no day of the week; write MO or MONDAY");
            }
            None => return Ok(None),
        };
        let Some(date) = naive_date(days) else { return Ok(None) };
        let today = date.weekday().num_days_from_monday();
        let ahead = (wanted + 6 - today) % 7 + 1;
        Ok(days.checked_add(ahead as i32))
    })
}

/// From Monday, 0. Blanks around a name make it none.
fn day_of_week(name: &str) -> Option<u32> {
    let days = ["MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY"];
    let name = name.to_ascii_uppercase();
    let is_meant = |day: &&str| name == **day || name == day[..3] || name == day[..2];
    days.iter().position(is_meant).map(|at| at as u32)
}

//! Literals of Spark's two types of intervals: of years and months, and of days and parts of them.
//!
//! `INTERVAL '1-2' YEAR TO MONTH` says its fields; `INTERVAL 1 DAY 2 HOURS` has those that its
//! units name, weeks being days and anything below a second a second.

use super::calendar::{DAY_US, SECOND_US};
use super::interval::parse_interval;

/// The function that a literal becomes a call of, with its count and its fields.
pub(crate) const INTERVAL_OF: &str = "interval_of";

/// Its third argument, for an interval of months, days and less in one.
pub(crate) const CALENDAR: &str = "calendar";

/// The fields of intervals, from the largest to the smallest.
const FIELDS: [&str; 6] = ["year", "month", "day", "hour", "minute", "second"];
/// The first field of an interval of days.
const DAY: usize = 2;
const SECOND: usize = 5;
/// The largest value of each field behind another one.
const MOST: [i64; 6] = [i64::MAX, 11, i64::MAX, 23, 59, 59];

/// An interval that a literal says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IntervalLiteral {
    /// Months, or microseconds.
    pub count: i64,
    /// Its fields as Spark writes them in the type's name: `year to month`, `day`.
    pub fields: String,
}

/// Whether intervals of these fields are counted in months.
pub(crate) fn is_of_months(fields: &str) -> bool {
    fields.starts_with("year") || fields.starts_with("month")
}

fn named(first: usize, last: usize) -> String {
    if first == last {
        return FIELDS[first].to_owned();
    }
    format!("{} to {}", FIELDS[first], FIELDS[last])
}

/// The field that a unit of time counts for.
fn field_of(word: &str) -> Option<usize> {
    let lower = word.to_ascii_lowercase();
    let unit = match lower.strip_suffix('s').unwrap_or(&lower) {
        "week" => "day",
        "millisecond" | "microsecond" => "second",
        other => other,
    };
    FIELDS.iter().position(|field| *field == unit)
}

/// Reads `1 day 2 hours`, numbers with units; also with `interval` before them.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn with_units(text: &str) -> Result<IntervalLiteral, String> {
    let interval = parse_interval(text).map_err(|error| error.to_string())?;
    let words = text.split_whitespace();
    let fields = words.filter(|word| word.starts_with(char::is_alphabetic)).filter_map(field_of);
    let fields: Vec<usize> = fields.collect();
    let (first, last) = (fields.iter().min().copied(), fields.iter().max().copied());
    let (Some(first), Some(last)) = (first, last) else {
        return Err("an interval is numbers with units, such as 10 seconds".to_owned());
    };
    if first < DAY && last >= DAY {
        return Err("an interval has years and months, or days and less, and not both; write two \
                    intervals"
            .to_owned());
    }
    let count = if first < DAY { interval.months.into() } else { interval.us };
    Ok(IntervalLiteral { count, fields: named(first, last) })
}

/// Reads the text of `INTERVAL '1 02:03' DAY TO MINUTE`.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn with_fields(text: &str, from: &str, to: &str) -> Result<IntervalLiteral, String> {
    let (first, last) = match (field_of(from), field_of(to)) {
        (Some(first), Some(last)) if first < last && (first < DAY) == (last < DAY) => (first, last),
        _ => return Err(format!("there is no INTERVAL {from} TO {to}")),
    };
    let form = || {
        let form = ["y", "-m", "d", " h", ":m", ":s"][first..=last].concat();
        let form = form.trim_start_matches([' ', ':', '-']);
        format!("'{text}' is no INTERVAL {from} TO {to}, which has the form '{form}'")
    };
    let trimmed = text.trim();
    let (negative, digits) = match trimmed.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, trimmed.strip_prefix('+').unwrap_or(trimmed)),
    };
    let mut rest = digits;
    let mut count = 0_i64;
    for field in first..=last {
        let end =
            if field == last { rest.len() } else { separator(rest, field).ok_or_else(form)? };
        let part = &rest[..end];
        rest = rest.get(end + 1..).unwrap_or("");
        let value = field_value(part, field, field == first).ok_or_else(form)?;
        count = count.checked_add(value).ok_or_else(form)?;
    }
    Ok(IntervalLiteral { count: if negative { -count } else { count }, fields: named(first, last) })
}

/// Where a field ends.
fn separator(text: &str, field: usize) -> Option<usize> {
    match FIELDS[field] {
        "year" => text.find('-'),
        "day" => text.find(' '),
        _ => text.find(':'),
    }
}

/// A field in months or microseconds.
fn field_value(text: &str, field: usize, is_first: bool) -> Option<i64> {
    let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = match text.split_once('.') {
        Some((whole, fraction)) if field == SECOND => (whole, fraction),
        Some(_) => return None,
        None => (text, ""),
    };
    if whole.is_empty() || !all_digits(whole) || !all_digits(fraction) || fraction.len() > 9 {
        return None;
    }
    let number: i64 = whole.parse().ok()?;
    if !is_first && number > MOST[field] {
        return None;
    }
    let one = match FIELDS[field] {
        "year" => 12,
        "month" => 1,
        "day" => DAY_US,
        "hour" => 3600 * SECOND_US,
        "minute" => 60 * SECOND_US,
        _ => SECOND_US,
    };
    let below: i64 = format!("{:0<6}", &fraction[..fraction.len().min(6)]).parse().ok()?;
    number.checked_mul(one)?.checked_add(below)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn literal(count: i64, fields: &str) -> Result<IntervalLiteral, String> {
        Ok(IntervalLiteral { count, fields: fields.to_owned() })
    }

    #[test]
    fn units_say_the_fields() {
        assert_eq!(with_units("1 year 2 months"), literal(14, "year to month"));
        assert_eq!(with_units("interval 3 weeks"), literal(21 * DAY_US, "day"));
        assert_eq!(with_units("-1 day 1 hour"), literal(-23 * 3600 * SECOND_US, "day to hour"));
        assert_eq!(with_units("8 millisecond 9 microsecond"), literal(8009, "second"));
        assert!(with_units("1 month 1 day").is_err());
        assert!(with_units("1").is_err());
    }

    #[test]
    fn forms_are_those_of_the_fields() {
        assert_eq!(with_fields("10-9", "YEAR", "MONTH"), literal(129, "year to month"));
        assert_eq!(with_fields("-1-1\t", "YEAR", "MONTH"), literal(-13, "year to month"));
        let us = ((DAY_US / SECOND_US + 2 * 3600 + 3 * 60 + 4) * SECOND_US) + 500_000;
        assert_eq!(with_fields("1 02:03:04.5", "DAY", "SECOND"), literal(us, "day to second"));
        assert_eq!(
            with_fields("40:32", "MINUTE", "SECOND"),
            literal(2432 * SECOND_US, "minute to second")
        );
        for (text, from, to) in [
            ("1-12", "YEAR", "MONTH"),
            ("1 24", "DAY", "HOUR"),
            ("1", "DAY", "HOUR"),
            ("1 2:3", "DAY", "HOUR"),
            ("1-2", "YEAR", "DAY"),
            ("1-2", "MONTH", "YEAR"),
        ] {
            assert!(with_fields(text, from, to).is_err(), "{text} {from} TO {to}");
        }
    }
}

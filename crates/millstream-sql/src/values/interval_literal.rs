//! Literals of Spark's two types of intervals: of years and months, and of days and parts of them.
//!
//! `INTERVAL '1-2' YEAR TO MONTH` says its fields; `INTERVAL 1 DAY 2 HOURS` has those that its
//! units name, weeks being days and anything below a second a second.

use super::calendar::{DAY_US, SECOND_US};
use super::interval::parse_interval;

/// The function that a literal becomes a call of, with its count and its fields.
pub(crate) const INTERVAL_OF: &str = "interval_of";

/// The function that a cast to an interval of months, days and less in one becomes.
pub(crate) const CALENDAR_INTERVAL: &str = "calendar_interval";

/// The count of an interval that is NULL.
pub(crate) const NO_COUNT: &str = "null";

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
        // Below 0, where one more fits than above.
        count = count.checked_sub(value).ok_or_else(form)?;
    }
    let count = if negative { Some(count) } else { count.checked_neg() };
    Ok(IntervalLiteral { count: count.ok_or_else(form)?, fields: named(first, last) })
}

/// The places of the first and the last of the fields in a type's name.
fn ends(fields: &str) -> Option<(usize, usize)> {
    let (first, last) = fields.split_once(" to ").unwrap_or((fields, fields));
    let at = |name: &str| FIELDS.iter().position(|field| *field == name);
    Some((at(first)?, at(last)?))
}

/// Whether intervals of these fields have `field`.
pub(crate) fn has_field(fields: &str, field: &str) -> bool {
    let at = FIELDS.iter().position(|name| *name == field);
    at.zip(ends(fields)).is_some_and(|(at, (first, last))| (first..=last).contains(&at))
}

/// The fields of intervals some of which have these and others those; `None` if some are counted
/// in months and others are not.
pub(crate) fn common_fields(some: &str, others: &str) -> Option<String> {
    let ((first, last), (other_first, other_last)) = (ends(some)?, ends(others)?);
    let same = (first < DAY) == (other_first < DAY);
    same.then(|| named(first.min(other_first), last.max(other_last)))
}

/// How many months or microseconds there are in one of the last of these fields.
pub(crate) fn last_unit(fields: &str) -> i64 {
    ends(fields).map_or(1, |(_, last)| length(last))
}

/// Reads an interval of certain fields as a cast from STRING does: `1-2` for `year to month`, or
/// `INTERVAL '1-2' YEAR TO MONTH`. The months or microseconds, if it is one.
pub(crate) fn of_text(text: &str, fields: &str) -> Option<i64> {
    let text = text.trim();
    let is_literal = text.get(..8).is_some_and(|word| word.eq_ignore_ascii_case("interval"));
    if !is_literal {
        return of_digits(text, fields, false);
    }
    let (sign, quoted) = text[8..].trim_start().split_once('\'')?;
    let (digits, named) = quoted.split_once('\'')?;
    let words: Vec<&str> = named.split_whitespace().collect();
    let same = text[8..].starts_with(char::is_whitespace)
        && named.starts_with(char::is_whitespace)
        && words.join(" ").eq_ignore_ascii_case(fields)
        && matches!(sign, "" | "-" | "+");
    if same { of_digits(digits, fields, sign == "-") } else { None }
}

fn of_digits(text: &str, fields: &str, negated: bool) -> Option<i64> {
    let (first, last) = ends(fields)?;
    if text.trim() != text {
        return None;
    }
    let count = if first < last {
        with_fields(text, FIELDS[first], FIELDS[last]).ok()?.count
    } else {
        let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
        let count = field_value(digits, first, true)?;
        if text.starts_with('-') { -count } else { count }
    };
    let count = if negated { count.checked_neg()? } else { count };
    let fits = first >= DAY || i32::try_from(count).is_ok();
    fits.then_some(count)
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
    let below: i64 = format!("{:0<6}", &fraction[..fraction.len().min(6)]).parse().ok()?;
    number.checked_mul(length(field))?.checked_add(below)
}

/// The months or microseconds of a field.
fn length(field: usize) -> i64 {
    match FIELDS[field] {
        "year" => 12,
        "month" => 1,
        "day" => DAY_US,
        "hour" => 3600 * SECOND_US,
        "minute" => 60 * SECOND_US,
        _ => SECOND_US,
    }
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
        let least = with_fields("-106751991 04:00:54.775808", "DAY", "SECOND");
        assert_eq!(least, literal(i64::MIN, "day to second"));
        assert!(with_fields("106751991 04:00:54.775808", "DAY", "SECOND").is_err());
    }

    #[test]
    fn common_fields_have_the_others() {
        let common = |some, others| common_fields(some, others).unwrap_or_default();
        assert_eq!(common("day", "hour to minute"), "day to minute");
        assert_eq!(common("month", "year"), "year to month");
        assert_eq!(common("second", "second"), "second");
        assert_eq!(common("month", "day"), "");
        assert!(has_field("day to minute", "hour"));
        assert!(!has_field("month", "year"));
        assert!(!has_field("day to second", "month"));
    }

    #[test]
    fn texts_are_cast_in_the_form_of_the_fields() {
        assert_eq!(of_text(" -3-1 ", "year to month"), Some(-37));
        assert_eq!(of_text("interval '3-1' year to  month", "year to month"), Some(37));
        assert_eq!(of_text("INTERVAL -'-3' MONTH", "month"), Some(3));
        assert_eq!(of_text("+10.5", "second"), Some(10_500_000));
        assert_eq!(of_text("1 02", "day to hour"), Some(26 * 3600 * SECOND_US));
        for (text, fields) in [
            ("3-1", "month"),
            ("1.5", "minute"),
            ("interval '3' year", "month"),
            ("interval 3 month", "month"),
            ("interval'3' month", "month"),
            ("interval ' 3-1' year to month", "year to month"),
            ("3000000000", "month"),
            ("--1", "day"),
            ("", "day"),
            ("intervals", "day"),
        ] {
            assert_eq!(of_text(text, fields), None, "{text} as {fields}");
        }
    }
}

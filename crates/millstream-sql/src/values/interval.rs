//! Spark's text of an interval: `10 seconds 500 milliseconds`, `interval -1.5 seconds`.

use std::fmt::Write as _;
use std::time::Duration;

use thiserror::Error;

use super::calendar::DAY_US;
use crate::nearest::nearest;

/// A length of time. Months have no fixed length, so they are kept apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Interval {
    /// Years and months.
    pub months: i32,
    /// Everything from weeks down to microseconds; a day has 24 hours.
    pub us: i64,
}

/// The text is not an interval.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub(crate) enum IntervalError {
    #[error("an interval is numbers with units, such as '10 seconds'")]
    Form,
    #[error("'{0}' is not a number")]
    Number(String),
    #[error("'{unit}' is not a unit of time{}", help(*.meant))]
    Unit {
        unit: String,
        /// The unit that was probably meant.
        meant: Option<&'static str>,
    },
    #[error("only seconds can have a fraction, not {0}")]
    Fraction(String),
    #[error("the interval is too long")]
    TooLong,
}

fn help(meant: Option<&str>) -> String {
    match meant {
        Some(meant) => format!(", did you mean '{meant}s'?"),
        None => "; units go from microseconds to weeks, months and years".to_owned(),
    }
}

const fn fixed(us: i64) -> Interval {
    Interval { months: 0, us }
}

const fn calendar(months: i32) -> Interval {
    Interval { months, us: 0 }
}

const SECOND: &str = "second";

/// All units, each with its length.
const UNITS: &[(&str, Interval)] = &[
    ("microsecond", fixed(1)),
    ("millisecond", fixed(1_000)),
    (SECOND, fixed(1_000_000)),
    ("minute", fixed(60_000_000)),
    ("hour", fixed(3_600_000_000)),
    ("day", fixed(86_400_000_000)),
    ("week", fixed(604_800_000_000)),
    ("month", calendar(1)),
    ("year", calendar(12)),
];

/// The unit that a word names, one or several of it, whatever its case.
fn unit(word: &str) -> Option<(&'static str, Interval)> {
    let lower = word.to_ascii_lowercase();
    let singular = lower.strip_suffix('s').unwrap_or(&lower);
    UNITS.iter().find(|(name, _)| *name == singular).copied()
}

/// True if a word names a unit of time.
pub(crate) fn is_unit(word: &str) -> bool {
    unit(word).is_some()
}

fn no_unit(word: &str) -> IntervalError {
    let singular = word.strip_suffix('s').unwrap_or(word);
    let meant = match word {
        "ms" => Some("millisecond"),
        "us" => Some("microsecond"),
        _ => nearest(singular, UNITS.iter().map(|(name, _)| *name)),
    };
    IntervalError::Unit { unit: word.to_owned(), meant }
}

/// Numbers and units in turn, in small letters.
fn words(text: &str) -> Result<Vec<String>, IntervalError> {
    let lower = text.trim().to_ascii_lowercase();
    let mut given = lower.split_whitespace().peekable();
    given.next_if_eq(&"interval");
    // A sign may stand apart from its number.
    let mut words = Vec::new();
    let mut sign = None;
    for word in given {
        match (word, sign.take()) {
            ("-" | "+", None) => sign = Some(word),
            (_, Some(sign)) => words.push(format!("{sign}{word}")),
            (_, None) => words.push(word.to_owned()),
        }
    }
    if words.is_empty() || words.len() % 2 == 1 || sign.is_some() {
        return Err(IntervalError::Form);
    }
    Ok(words)
}

/// Reads an interval in Spark's words, whatever their case.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn parse_interval(text: &str) -> Result<Interval, IntervalError> {
    let mut sum = Interval::default();
    for pair in words(text)?.chunks(2) {
        sum = add(sum, part(&pair[0], &pair[1])?).ok_or(IntervalError::TooLong)?;
    }
    Ok(sum)
}

/// Reads the same with months, days and microseconds apart, as a cast from STRING to INTERVAL does;
/// `None` if it is none.
pub(crate) fn parse_calendar(text: &str) -> Option<(i32, i32, i64)> {
    let (mut months, mut days, mut us) = (0_i32, 0_i32, 0_i64);
    for pair in words(text).ok()?.chunks(2) {
        let more = part(&pair[0], &pair[1]).ok()?;
        months = months.checked_add(more.months)?;
        match unit(&pair[1])?.0 {
            "day" | "week" => days = days.checked_add(i32::try_from(more.us / DAY_US).ok()?)?,
            _ => us = us.checked_add(more.us)?,
        }
    }
    Some((months, days, us))
}

fn add(left: Interval, right: Interval) -> Option<Interval> {
    let months = left.months.checked_add(right.months)?;
    Some(Interval { months, us: left.us.checked_add(right.us)? })
}

fn part(number: &str, word: &str) -> Result<Interval, IntervalError> {
    let (name, one) = unit(word).ok_or_else(|| no_unit(word))?;
    if number.contains('.') {
        return match name {
            SECOND => seconds(number).map(fixed),
            _ => Err(IntervalError::Fraction(word.to_owned())),
        };
    }
    let count: i64 = number.parse().map_err(|_| IntervalError::Number(number.to_owned()))?;
    let months = count.checked_mul(i64::from(one.months));
    let months = months.and_then(|months| i32::try_from(months).ok());
    let length = months.zip(count.checked_mul(one.us));
    length.map(|(months, us)| Interval { months, us }).ok_or(IntervalError::TooLong)
}

/// Seconds with up to nine digits of fraction, of which six count.
fn seconds(number: &str) -> Result<i64, IntervalError> {
    let wrong = || IntervalError::Number(number.to_owned());
    let (negative, digits) = match number.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, number.strip_prefix('+').unwrap_or(number)),
    };
    let (whole, fraction) = digits.split_once('.').ok_or_else(wrong)?;
    let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !all_digits(whole) || !all_digits(fraction) || fraction.len() > 9 || digits == "." {
        return Err(wrong());
    }
    let mut micros = String::new();
    let _ = write!(micros, "{whole}{:0<6}", &fraction[..fraction.len().min(6)]);
    let us: i64 = micros.parse().map_err(|_| IntervalError::TooLong)?;
    Ok(if negative { -us } else { us })
}

/// Reads `10 seconds`, `1 minute 30 seconds` or `interval 2 hours`: an interval in Spark's words
/// that has a fixed length and is not below 0.
///
/// # Errors
/// What to write instead.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let interval = parse_interval(text).map_err(|error| error.to_string())?;
    if interval.months != 0 {
        return Err("months and years have no fixed length; write days".into());
    }
    let us = u64::try_from(interval.us).map_err(|_| format!("'{text}' is below 0"))?;
    Ok(Duration::from_micros(us))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_sums_of_parts() {
        let cases = [
            ("1 minute", (0, 60_000_000)),
            ("INTERVAL 2 Hours", (0, 7_200_000_000)),
            (" 10  seconds 500 milliseconds ", (0, 10_500_000)),
            ("-1.5 seconds", (0, -1_500_000)),
            (".5 second", (0, 500_000)),
            ("1.0000009 seconds", (0, 1_000_000)),
            ("- 3 days +1 hour", (0, -255_600_000_000)),
            ("1 year 2 months 1 week", (14, 604_800_000_000)),
            ("1 day - 1 hour", (0, 82_800_000_000)),
            ("1. seconds", (0, 1_000_000)),
        ];
        for (text, (months, us)) in cases {
            assert_eq!(parse_interval(text), Ok(Interval { months, us }), "{text}");
        }
    }

    #[test]
    fn days_may_be_apart_from_what_is_less() {
        let text = "interval 1 year -1 month 1 week - 1 day 3 hours .5 seconds";
        assert_eq!(parse_calendar(text), Some((11, 6, 10_800_500_000)));
        assert_eq!(parse_calendar("+     1 second"), Some((0, 0, 1_000_000)));
        for wrong in ["- -1 second", "1.5 days", "interval", "3000000000 days"] {
            assert_eq!(parse_calendar(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_no_interval_says_why() {
        let cases = [
            ("", IntervalError::Form),
            ("1", IntervalError::Form),
            ("1 minute -", IntervalError::Form),
            ("x seconds", IntervalError::Number("x".into())),
            ("1 blah", IntervalError::Unit { unit: "blah".into(), meant: None }),
            ("1 ms", IntervalError::Unit { unit: "ms".into(), meant: Some("millisecond") }),
            ("1 monht", IntervalError::Unit { unit: "monht".into(), meant: Some("month") }),
            ("interval1 day", IntervalError::Number("interval1".into())),
            ("interval", IntervalError::Form),
            ("1e3 seconds", IntervalError::Number("1e3".into())),
            ("- +1 day", IntervalError::Number("-+1".into())),
            ("1.5 minutes", IntervalError::Fraction("minutes".into())),
            ("1.x seconds", IntervalError::Number("1.x".into())),
            ("9223372036854775807 weeks", IntervalError::TooLong),
        ];
        for (text, wanted) in cases {
            assert_eq!(parse_interval(text), Err(wanted), "{text}");
        }
    }
}

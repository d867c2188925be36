//! Spark's text of an interval: `10 seconds 500 milliseconds`, `interval -1.5 seconds`.

use std::fmt::Write as _;

use thiserror::Error;

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
    #[error("'{0}' is no number")]
    Number(String),
    #[error("'{0}' is no unit of time; units go from microseconds to weeks, months and years")]
    Unit(String),
    #[error("only seconds can have a fraction, not {0}")]
    Fraction(String),
    #[error("the interval is too long")]
    TooLong,
}

/// Units of a fixed length, in microseconds.
const UNITS: &[(&str, i64)] = &[
    ("microsecond", 1),
    ("millisecond", 1_000),
    ("second", 1_000_000),
    ("minute", 60_000_000),
    ("hour", 3_600_000_000),
    ("day", 86_400_000_000),
    ("week", 604_800_000_000),
];

/// Reads an interval in Spark's words, whatever their case.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn parse_interval(text: &str) -> Result<Interval, IntervalError> {
    let lower = text.trim().to_ascii_lowercase();
    let rest = lower.strip_prefix("interval").unwrap_or(&lower);
    // A sign may stand apart from its number.
    let mut words = Vec::new();
    let mut sign = None;
    for word in rest.split_whitespace() {
        match (word, sign.take()) {
            ("-" | "+", None) => sign = Some(word),
            (_, Some(sign)) => words.push(format!("{sign}{word}")),
            (_, None) => words.push(word.to_owned()),
        }
    }
    if words.is_empty() || words.len() % 2 == 1 || sign.is_some() {
        return Err(IntervalError::Form);
    }
    let mut sum = Interval::default();
    for pair in words.chunks(2) {
        sum = add(sum, part(&pair[0], &pair[1])?).ok_or(IntervalError::TooLong)?;
    }
    Ok(sum)
}

fn add(left: Interval, right: Interval) -> Option<Interval> {
    let months = left.months.checked_add(right.months)?;
    Some(Interval { months, us: left.us.checked_add(right.us)? })
}

fn part(number: &str, unit: &str) -> Result<Interval, IntervalError> {
    let singular = unit.strip_suffix('s').unwrap_or(unit);
    let per_unit = UNITS.iter().find(|(name, _)| *name == singular).map(|(_, us)| *us);
    let months_per_unit = match singular {
        "month" => Some(1),
        "year" => Some(12),
        _ => None,
    };
    if per_unit.is_none() && months_per_unit.is_none() {
        return Err(IntervalError::Unit(unit.to_owned()));
    }
    if number.contains('.') {
        return match singular {
            "second" => seconds(number).map(|us| Interval { months: 0, us }),
            _ => Err(IntervalError::Fraction(unit.to_owned())),
        };
    }
    let count: i64 = number.parse().map_err(|_| IntervalError::Number(number.to_owned()))?;
    let length = count.checked_mul(per_unit.unwrap_or(0)).ok_or(IntervalError::TooLong)?;
    let months = count.checked_mul(months_per_unit.unwrap_or(0));
    let months = months.and_then(|months| i32::try_from(months).ok());
    Ok(Interval { months: months.ok_or(IntervalError::TooLong)?, us: length })
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
        ];
        for (text, (months, us)) in cases {
            assert_eq!(parse_interval(text), Ok(Interval { months, us }), "{text}");
        }
    }

    #[test]
    fn what_is_no_interval_says_why() {
        let cases = [
            ("", IntervalError::Form),
            ("1", IntervalError::Form),
            ("1 minute -", IntervalError::Form),
            ("x seconds", IntervalError::Number("x".into())),
            ("1 blah", IntervalError::Unit("blah".into())),
            ("1.5 minutes", IntervalError::Fraction("minutes".into())),
            ("1.x seconds", IntervalError::Number("1.x".into())),
            ("9223372036854775807 weeks", IntervalError::TooLong),
        ];
        for (text, wanted) in cases {
            assert_eq!(parse_interval(text), Err(wanted), "{text}");
        }
    }
}

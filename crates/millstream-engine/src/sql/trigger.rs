//! When the next micro-batch starts, and Spark's words for lengths of time.

use std::str::FromStr;
use std::time::Duration;

use super::nearest::nearest;

/// When the next micro-batch starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trigger {
    /// As soon as the one before is done and there is input: `'0 seconds'`.
    #[default]
    BackToBack,
    /// Every so often.
    Interval(Duration),
    /// One micro-batch with all there is, whatever the limits; then the query ends.
    Once,
    /// Micro-batches within the limits until all there was at the start is read.
    AvailableNow,
}

impl FromStr for Trigger {
    /// What to write instead.
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bare = text.trim().to_lowercase();
        match bare.as_str() {
            "once" => return Ok(Self::Once),
            "availablenow" => return Ok(Self::AvailableNow),
            _ => {}
        }
        match parse_duration(&bare) {
            Ok(Duration::ZERO) => Ok(Self::BackToBack),
            Ok(interval) => Ok(Self::Interval(interval)),
            Err(_) if nearest(&bare, ["once"]).is_some() => Err("did you mean 'once'?".into()),
            Err(_) if nearest(&bare, ["availablenow"]).is_some() => {
                Err("did you mean 'availableNow'?".into())
            }
            Err(help) => Err(format!(
                "{help}\na trigger is '0 seconds' (back to back), an interval such as \
                 '500 milliseconds' or '1 minute', 'once' or 'availableNow'"
            )),
        }
    }
}

/// Units, each with its length in microseconds.
const UNITS: &[(&str, u64)] = &[
    ("microsecond", 1),
    ("millisecond", 1_000),
    ("second", 1_000_000),
    ("minute", 60_000_000),
    ("hour", 3_600_000_000),
    ("day", 86_400_000_000),
    ("week", 604_800_000_000),
];

/// Reads `10 seconds`, `1 minute 30 seconds` or `interval 2 hours`.
///
/// # Errors
/// What to write instead.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let lower = text.trim().to_lowercase();
    let lower = lower.strip_prefix("interval").unwrap_or(&lower).trim();
    let words: Vec<&str> = lower.split_whitespace().collect();
    if words.is_empty() || words.len() % 2 == 1 {
        return Err("an interval is numbers with units, such as '10 seconds'".into());
    }
    let mut total_us = 0_u64;
    for pair in words.chunks(2) {
        let unit_us = unit(pair[1])?;
        let number: f64 = pair[0].parse().map_err(|_| format!("'{}' is no number", pair[0]))?;
        if !(number >= 0.0 && number.is_finite()) {
            return Err(format!("'{}' is not a length of time", pair[0]));
        }
        // Whole numbers stay exact; fractions are rounded to the microsecond.
        let part_us = match pair[0].parse::<u64>() {
            Ok(whole) => whole.checked_mul(unit_us),
            Err(_) => Some((number * unit_us as f64).round() as u64),
        };
        let sum = part_us.and_then(|part_us| total_us.checked_add(part_us));
        total_us = sum.ok_or_else(|| format!("'{text}' is too long"))?;
    }
    Ok(Duration::from_micros(total_us))
}

fn unit(word: &str) -> Result<u64, String> {
    let singular = word.strip_suffix('s').unwrap_or(word);
    if let Some((_, unit_us)) = UNITS.iter().find(|(name, _)| *name == singular) {
        return Ok(*unit_us);
    }
    if singular == "month" || singular == "year" {
        return Err("months and years have no fixed length; write days".into());
    }
    if word == "ms" {
        return Err("write 'milliseconds' for 'ms'".into());
    }
    match nearest(singular, UNITS.iter().map(|(name, _)| *name)) {
        Some(known) => Err(format!("'{word}' is no unit of time, did you mean '{known}s'?")),
        None => Err(format!("'{word}' is no unit of time")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn triggers_are_read_whatever_their_case() {
        let seconds = |count| Trigger::Interval(Duration::from_secs(count));
        let cases = [
            ("0 seconds", Trigger::BackToBack),
            ("ONCE", Trigger::Once),
            ("AvailableNow", Trigger::AvailableNow),
            ("1 minute 30 seconds", seconds(90)),
            ("interval 2 hours", seconds(7200)),
            ("500 milliseconds", Trigger::Interval(Duration::from_millis(500))),
            ("0.5 SECONDS", Trigger::Interval(Duration::from_millis(500))),
        ];
        for (text, wanted) in cases {
            assert_eq!(text.parse::<Trigger>(), Ok(wanted), "{text}");
        }
    }

    #[test]
    fn what_is_no_trigger_gets_help() {
        let cases = [
            ("onse", "did you mean 'once'"),
            ("available now", "did you mean 'availableNow'"),
            ("10", "such as '10 seconds'"),
            ("5 secnds", "did you mean 'seconds'"),
            ("1 month", "write days"),
            ("100 ms", "write 'milliseconds'"),
            ("-1 seconds", "not a length of time"),
        ];
        for (text, wanted) in cases {
            let help = text.parse::<Trigger>().unwrap_err();
            assert!(help.contains(wanted), "{text}: {help}");
        }
    }
}

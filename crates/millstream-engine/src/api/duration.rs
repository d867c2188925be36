//! Durations in options, as Spark spells them: `500ms`, `10s`, `5 minutes`.

use std::time::Duration;

use super::options::{OptionError, Options};

/// Reads a duration: a whole number and a unit, with or without a space between; without a unit
/// the number means seconds. `None` where the text is anything else, or too large to count in
/// microseconds.
///
/// Origin: the short units of Spark's time strings (`us`, `ms`, `s`, `m`, `min`, `h`, `d`), and the
/// words of its intervals.
pub fn parse(text: &str) -> Option<Duration> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let count: u64 = text[..digits].parse().ok()?;
    let unit_us = match text[digits..].trim().to_ascii_lowercase().as_str() {
        "us" | "microsecond" | "microseconds" => 1,
        "ms" | "millisecond" | "milliseconds" => 1_000,
        "" | "s" | "sec" | "second" | "seconds" => 1_000_000,
        "m" | "min" | "minute" | "minutes" => 60_000_000,
        "h" | "hour" | "hours" => 3_600_000_000,
        "d" | "day" | "days" => 86_400_000_000,
        _ => return None,
    };
    Some(Duration::from_micros(count.checked_mul(unit_us)?))
}

/// The option `key` as a duration.
pub fn option(options: &Options, key: &str) -> Result<Option<Duration>, OptionError> {
    let Some(text) = options.get(key) else { return Ok(None) };
    match parse(text) {
        Some(duration) => Ok(Some(duration)),
        None => Err(OptionError::invalid(key, text, "a duration such as '100ms' or '5 minutes'")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_short_units_and_words() {
        assert_eq!(parse("0s"), Some(Duration::ZERO));
        assert_eq!(parse("12"), Some(Duration::from_secs(12)));
        assert_eq!(parse(" 250 ms "), Some(Duration::from_millis(250)));
        assert_eq!(parse("2 Minutes"), Some(Duration::from_secs(120)));
        assert_eq!(parse("7us"), Some(Duration::from_micros(7)));
    }

    #[test]
    fn refuses_what_is_no_duration() {
        for text in ["", "s", "-1s", "1.5s", "1 fortnight", "99999999999999999d"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }
}

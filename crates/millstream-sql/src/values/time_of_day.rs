//! Times of a day as text, as Spark reads and writes its TIME: microseconds since midnight.

use std::fmt::Write as _;

use super::calendar::SECOND_US;

/// Reads a time: `h:m[:s[.fraction]]`, a time of a half of the day with `AM` or `PM` behind it, and
/// `T` before it or not. The fraction may have nine digits, of which six count.
pub(crate) fn parse_time(text: &str) -> Option<i64> {
    let is_blank = |char: char| char.is_ascii_whitespace() || char.is_ascii_control();
    // Only spaces may stand behind the half, as in Spark.
    let (text, afternoon) = without_half(text.trim_end_matches(' '));
    let text = text.trim_matches(is_blank);
    let (text, is_marked) = match text.strip_prefix('T') {
        Some(text) => (text, true),
        None => (text, false),
    };
    let (hour, mut rest) = number(text)?;
    let (mut minute, mut second, mut fraction) = (0, 0, 0);
    if let Some(after) = rest.strip_prefix(':') {
        (minute, rest) = number(after)?;
        if let Some(after) = rest.strip_prefix(':') {
            (second, rest) = number(after)?;
            if let Some(after) = rest.strip_prefix('.') {
                (fraction, rest) = microseconds(after)?;
            }
        }
    } else if !is_marked {
        return None;
    }
    let hour = match afternoon {
        None => (hour < 24).then_some(hour)?,
        Some(afternoon) if (1..=12).contains(&hour) => hour % 12 + if afternoon { 12 } else { 0 },
        Some(_) => return None,
    };
    let is_time = rest.is_empty() && minute < 60 && second < 60;
    is_time.then(|| ((hour * 60 + minute) * 60 + second) * SECOND_US + fraction)
}

/// The text before `AM` or `PM`, and whether it is the latter.
fn without_half(text: &str) -> (&str, Option<bool>) {
    let Some(at) = text.len().checked_sub(2).filter(|at| *at > 0) else { return (text, None) };
    match text.get(at..) {
        Some(half) if half.eq_ignore_ascii_case("AM") => (&text[..at], Some(false)),
        Some(half) if half.eq_ignore_ascii_case("PM") => (&text[..at], Some(true)),
        _ => (text, None),
    }
}

/// One or two digits, and what stands behind them.
fn number(text: &str) -> Option<(i64, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    match digits {
        1 | 2 => Some((text[..digits].parse().ok()?, &text[digits..])),
        _ => None,
    }
}

/// The fraction of a second, and what stands behind it.
fn microseconds(text: &str) -> Option<(i64, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    if digits > 9 {
        return None;
    }
    let kept = &text[..digits.min(6)];
    let value: i64 = if kept.is_empty() { 0 } else { kept.parse().ok()? };
    Some((value * 10_i64.pow(6 - kept.len() as u32), &text[digits..]))
}

/// Appends a time as a cast to STRING does: `HH:mm:ss[.fraction]`, the fraction without trailing
/// zeros.
pub(crate) fn write_time(us: i64, out: &mut String) {
    let (seconds, fraction) = (us.div_euclid(SECOND_US), us.rem_euclid(SECOND_US));
    let (minutes, second) = (seconds / 60, seconds % 60);
    let (hour, minute) = (minutes / 60, minutes % 60);
    write!(out, "{hour:02}:{minute:02}:{second:02}").expect("a String takes everything");
    if fraction > 0 {
        write!(out, ".{fraction:06}").expect("a String takes everything");
        out.truncate(out.trim_end_matches('0').len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_in_spark() {
        let cases = [
            ("0:0:0", "00:00:00"),
            ("08:30", "08:30:00"),
            ("16:39:45\t", "16:39:45"),
            (" 23:59:59.999999999 ", "23:59:59.999999"),
            ("23:59:59.9", "23:59:59.9"),
            ("01:02:03 Am", "01:02:03"),
            ("01:02:03PM", "13:02:03"),
            ("12:00 AM", "00:00:00"),
            ("12:00:00. PM", "12:00:00"),
            ("T7", "07:00:00"),
        ];
        for (text, written) in cases {
            let mut out = String::new();
            write_time(parse_time(text).unwrap_or_else(|| panic!("{text} is a time")), &mut out);
            assert_eq!(out, written, "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "12",
            "24:00:00",
            "00:60:00",
            "00:00:60",
            "00:00:00 AM",
            "13:00:00 PM",
            "1:2:",
            "2026-01-31 10:00:00",
            "10:00:00Z",
            "100:00",
            "10:00:00.1234567890",
            "PM",
            "ä:PM",
        ] {
            assert_eq!(parse_time(text), None, "{text}");
        }
    }
}

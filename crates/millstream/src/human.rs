//! Numbers for people.

use std::time::Duration;

/// `1234567` as `1,234,567`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count with its noun: `1 row`, `2,000 rows`.
pub fn counted(number: u64, noun: &str) -> String {
    let plural = match (number, noun.ends_with("ch")) {
        (1, _) => "",
        (_, true) => "es",
        (_, false) => "s",
    };
    format!("{} {noun}{plural}", count(number))
}

/// A number in three or so digits: `950`, `20.1k`, `1.5M`.
pub fn short(number: f64) -> String {
    match number {
        n if n < 10.0 && n.fract() > 0.05 => format!("{n:.1}"),
        n if n < 999.5 => format!("{n:.0}"),
        n if n < 99_950.0 => format!("{:.1}k", n / 1e3),
        n if n < 999_500.0 => format!("{:.0}k", n / 1e3),
        n if n < 999.5e6 => format!("{:.1}M", n / 1e6),
        n => format!("{:.1}G", n / 1e9),
    }
}

/// A length of time in the unit that suits it: `850 µs`, `1.2 ms`, `34 ms`, `5.1 s`, `12 min`.
pub fn duration(length: Duration) -> String {
    let us = length.as_secs_f64() * 1e6;
    match us {
        us if us < 999.5 => format!("{us:.0} µs"),
        us if us < 9_950.0 => format!("{:.1} ms", us / 1e3),
        us if us < 999_500.0 => format!("{:.0} ms", us / 1e3),
        us if us < 99.95e6 => format!("{:.1} s", us / 1e6),
        us if us < 6_000e6 => format!("{:.0} min", us / 60e6),
        us => format!("{:.1} h", us / 3_600e6),
    }
}

/// A moment, UTC, of milliseconds since the epoch.
pub fn moment(ms: i64) -> String {
    let moment = chrono::DateTime::from_timestamp_millis(ms).unwrap_or_default();
    moment.format("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// A length of time in milliseconds, as [`duration`] writes it.
pub fn milliseconds(ms: i64) -> String {
    duration(Duration::from_millis(u64::try_from(ms).unwrap_or(0)))
}

/// A size: `312 bytes`, `4.0 KB`, `1.2 MB`.
pub fn bytes(size: u64) -> String {
    match size {
        0..1_000 => format!("{size} bytes"),
        1_000..1_000_000 => format!("{:.1} KB", size as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", size as f64 / 1e6),
        _ => format!("{:.1} GB", size as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_separated() {
        let cases = [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")];
        for (number, text) in cases {
            assert_eq!(count(number), text);
        }
        assert_eq!(counted(1, "micro-batch"), "1 micro-batch");
        assert_eq!(counted(2, "micro-batch"), "2 micro-batches");
        assert_eq!(counted(0, "row"), "0 rows");
    }

    #[test]
    fn rates_are_short() {
        let cases = [
            (0.0, "0"),
            (0.5, "0.5"),
            (12.4, "12"),
            (999.6, "1.0k"),
            (20_049.0, "20.0k"),
            (150_000.0, "150k"),
            (1_500_000.0, "1.5M"),
            (2e9, "2.0G"),
        ];
        for (number, text) in cases {
            assert_eq!(short(number), text);
        }
    }

    #[test]
    fn durations_choose_their_unit() {
        let cases = [
            (850, "850 µs"),
            (1_200, "1.2 ms"),
            (34_000, "34 ms"),
            (5_100_000, "5.1 s"),
            (720_000_000, "12 min"),
            (7_200_000_000, "2.0 h"),
        ];
        for (us, text) in cases {
            assert_eq!(duration(Duration::from_micros(us)), text);
        }
    }
}

//! What the language takes over from Java: numbers and dates as text, read and written.

pub(crate) mod calendar;
pub(crate) mod date_parse;
pub(crate) mod date_pattern;
pub(crate) mod decimal;
pub(crate) mod format;
pub(crate) mod time_pattern;

use crate::error::Problem;

fn no(what: &str, text: &str, remedy: &str) -> Problem {
    Problem::new(format!("`{text}` is no {what}"), remedy)
}

/// As `Integer.parseInt`, for ASCII digits.
pub(crate) fn parse_i32(text: &str) -> Result<i32, Problem> {
    text.parse().map_err(|_| no("integer", text, "write one between -2147483648 and 2147483647"))
}

/// As `Long.parseLong`, for ASCII digits.
pub(crate) fn parse_i64(text: &str) -> Result<i64, Problem> {
    text.parse().map_err(|_| no("long integer", text, "write digits only, with a minus at most"))
}

/// As `Float.parseFloat`, without hexadecimal numbers.
pub(crate) fn parse_f32(text: &str) -> Result<f32, Problem> {
    let number = float_digits(text).and_then(|digits| digits.parse().ok());
    number.ok_or_else(|| no("number", text, "write one as 1.5 or 1e-3"))
}

/// As `Double.parseDouble`, without hexadecimal numbers.
pub(crate) fn parse_f64(text: &str) -> Result<f64, Problem> {
    let number = float_digits(text).and_then(|digits| digits.parse().ok());
    number.ok_or_else(|| no("number", text, "write one as 1.5 or 1e-3"))
}

/// What Rust reads as the number that Java reads in `text`.
fn float_digits(text: &str) -> Option<&str> {
    let text = text.trim_matches(|letter| letter <= ' ');
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if matches!(unsigned, "NaN" | "Infinity") {
        return Some(text);
    }
    let digits = text.strip_suffix(['f', 'F', 'd', 'D']).unwrap_or(text);
    let plain =
        |byte: u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-');
    digits.bytes().all(plain).then_some(digits)
}

/// Appends the digits of `number`.
pub(crate) fn push_integer(number: i64, out: &mut Vec<u8>) {
    push_padded(number, 1, out);
}

/// Appends the digits of `number`, with zeros in front up to `digits`; a minus comes before them.
pub(crate) fn push_padded(number: i64, digits: usize, out: &mut Vec<u8>) {
    let mut text = [0; 20];
    let mut at = text.len();
    let mut left = number.unsigned_abs();
    while left > 0 {
        at -= 1;
        text[at] = b'0' + (left % 10) as u8;
        left /= 10;
    }
    if number < 0 {
        out.push(b'-');
    }
    for _ in text.len() - at..digits {
        out.push(b'0');
    }
    out.extend_from_slice(&text[at..]);
}

//! Strings of JSON in Rust: escapes resolved. They are written by [`crate::values::json_text`].
//! And values of it as texts.

use crate::values::java_text::write_double;
use crate::values::json_text::quote;

/// Appends the text of a JSON string, whose escapes the scanner has checked, to `out`.
///
/// Half of a surrogate pair without its other half becomes U+FFFD.
pub(super) fn unescape(raw: &str, out: &mut String) {
    let mut rest = raw;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let escape = rest.as_bytes()[at + 1];
        rest = &rest[at + 2..];
        match escape {
            b'b' => out.push('\u{8}'),
            b'f' => out.push('\u{c}'),
            b'n' => out.push('\n'),
            b'r' => out.push('\r'),
            b't' => out.push('\t'),
            b'u' => rest = unescape_unicode(rest, out),
            other => out.push(other as char),
        }
    }
    out.push_str(rest);
}

/// Resolves one `\uXXXX` (the `\u` is gone), with the second half of its pair; returns the rest.
fn unescape_unicode<'a>(rest: &'a str, out: &mut String) -> &'a str {
    let first = code_unit(rest);
    let rest = &rest[4..];
    if (0xD800..0xDC00).contains(&first) && rest.starts_with("\\u") {
        let second = code_unit(&rest[2..]);
        if (0xDC00..0xE000).contains(&second) {
            let point = 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
            out.push(char::from_u32(point).unwrap_or(char::REPLACEMENT_CHARACTER));
            return &rest[6..];
        }
    }
    out.push(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER));
    rest
}

fn code_unit(digits: &str) -> u32 {
    u32::from_str_radix(&digits[..4], 16).expect("the scanner has checked the digits")
}

/// Appends a valid JSON text to `out` without the white space between its tokens.
pub(super) fn compact(raw: &str, out: &mut String) {
    let bytes = raw.as_bytes();
    let mut start = 0;
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => at = end_of_string(bytes, at),
            b' ' | b'\n' | b'\r' | b'\t' => {
                out.push_str(&raw[start..at]);
                at += 1;
                start = at;
            }
            _ => at += 1,
        }
    }
    out.push_str(&raw[start..]);
}

/// Appends a valid JSON text to `out` as Spark's parser writes what it has read: without white
/// space between its tokens, strings with no more escapes than they need, numbers with a fraction
/// or an exponent as DOUBLEs, of which the infinite ones are strings.
pub(super) fn rewritten(raw: &str, out: &mut String) {
    let bytes = raw.as_bytes();
    let is_in_number = |byte: &u8| matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9');
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        match bytes[at] {
            b'"' => {
                at = end_of_string(bytes, at);
                string(&raw[start + 1..at - 1], out);
            }
            b' ' | b'\n' | b'\r' | b'\t' => at += 1,
            b'-' | b'0'..=b'9' => {
                at += bytes[at..].iter().take_while(|byte| is_in_number(byte)).count();
                number(&raw[start..at], out);
            }
            _ => {
                at += 1;
                out.push_str(&raw[start..at]);
            }
        }
    }
}

/// Appends a string, given without its quotation marks, with them.
pub(super) fn string(raw: &str, out: &mut String) {
    if raw.contains('\\') {
        let mut text = String::with_capacity(raw.len());
        unescape(raw, &mut text);
        return quote(&text, out);
    }
    out.push('"');
    out.push_str(raw);
    out.push('"');
}

fn number(raw: &str, out: &mut String) {
    match raw.parse::<f64>() {
        Ok(value) if raw.contains(['.', 'e', 'E']) => {
            let mark = if value.is_finite() { "" } else { "\"" };
            out.push_str(mark);
            write_double(value, out);
            out.push_str(mark);
        }
        // A whole number has no zero with a sign.
        _ => out.push_str(if raw == "-0" { "0" } else { raw }),
    }
}

fn end_of_string(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    at + 1
}

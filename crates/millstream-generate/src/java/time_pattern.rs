//! Times of day: `DateTimeFormatter` patterns, as far as a time of day has their fields.

use crate::error::Problem;
use crate::java::date_pattern::quoted;
use crate::java::push_padded;

/// The pattern that times are read by and, without another, written.
pub(crate) const DEFAULT: &str = "h[:mm][ ]a";

/// A pattern, read once. `[` and `]` mean nothing when writing, since a time has all its fields.
#[derive(Debug)]
pub(crate) struct TimePattern {
    pieces: Vec<PatternItem>,
}

#[derive(Debug)]
enum PatternItem {
    Literal(String),
    Field { letter: char, count: usize },
}

impl TimePattern {
    pub(crate) fn parse(text: &str) -> Result<Self, Problem> {
        let mut pieces = Vec::new();
        let mut letters = text.chars().peekable();
        let mut depth = 0_i32;
        while let Some(letter) = letters.next() {
            match letter {
                '\'' => pieces.push(PatternItem::Literal(quoted(&mut letters, text)?)),
                '[' => depth += 1,
                ']' => depth -= 1,
                letter if letter.is_ascii_alphabetic() => {
                    let mut count = 1;
                    while letters.next_if_eq(&letter).is_some() {
                        count += 1;
                    }
                    pieces.push(field(letter, count, text)?);
                }
                '{' | '}' | '#' => return Err(meaningless(letter, 1, text)),
                letter => pieces.push(PatternItem::Literal(letter.to_string())),
            }
            if depth < 0 {
                return Err(meaningless(letter, 1, text));
            }
        }
        Ok(Self { pieces })
    }

    /// Appends the time of day `ns` nanoseconds after midnight.
    pub(crate) fn write(&self, ns: i64, out: &mut Vec<u8>) {
        for piece in &self.pieces {
            match piece {
                PatternItem::Literal(text) => out.extend_from_slice(text.as_bytes()),
                PatternItem::Field { letter, count } => write_field(*letter, *count, ns, out),
            }
        }
    }
}

fn meaningless(letter: char, count: usize, pattern: &str) -> Problem {
    let what = format!("`{letter}`, {count} times, means nothing in the pattern `{pattern}`");
    Problem::new(what, "times have H, h, k, K, m, s, S, A, n, N and a; put text into quotes")
}

fn field(letter: char, count: usize, pattern: &str) -> Result<PatternItem, Problem> {
    let most = match letter {
        'a' => 1,
        'H' | 'h' | 'k' | 'K' | 'm' | 's' => 2,
        'S' => 9,
        'A' | 'n' | 'N' => 19,
        _ => 0,
    };
    if count > most {
        return Err(meaningless(letter, count, pattern));
    }
    Ok(PatternItem::Field { letter, count })
}

fn write_field(letter: char, count: usize, ns: i64, out: &mut Vec<u8>) {
    let (second, hour) = (ns / 1_000_000_000, ns / 3_600_000_000_000);
    let number = match letter {
        'a' => return out.extend_from_slice(if hour < 12 { b"AM" } else { b"PM" }),
        'H' => hour,
        'h' => (hour + 11) % 12 + 1,
        'k' => (hour + 23) % 24 + 1,
        'K' => hour % 12,
        'm' => second / 60 % 60,
        's' => second % 60,
        'S' => ns % 1_000_000_000 / 10_i64.pow(9 - count as u32),
        'A' => ns / 1_000_000,
        'n' => ns % 1_000_000_000,
        _ => ns,
    };
    push_padded(number, count, out);
}

/// Second of the day of a time like `6:05PM`, `6:05 PM` or `6PM`.
pub(crate) fn parse_second_of_day(text: &str) -> Result<i64, Problem> {
    read(text).ok_or_else(|| {
        let what = format!("`{text}` is no time of day");
        Problem::new(what, "write it as 6:05PM, 6:05 PM or 6PM")
    })
}

fn read(text: &str) -> Option<i64> {
    let (time, afternoon) = match (text.strip_suffix("AM"), text.strip_suffix("PM")) {
        (Some(time), _) => (time, false),
        (None, time) => (time?, true),
    };
    let time = time.strip_suffix(' ').unwrap_or(time);
    let (hour, minute) = time.split_once(':').unwrap_or((time, "00"));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(hour) || !digits(minute) || minute.len() != 2 {
        return None;
    }
    let hour: i64 = hour.parse().ok().filter(|hour| (1..=12).contains(hour))?;
    let minute: i64 = minute.parse().ok().filter(|minute| *minute < 60)?;
    Some((hour % 12 + if afternoon { 12 } else { 0 }) * 3_600 + minute * 60)
}

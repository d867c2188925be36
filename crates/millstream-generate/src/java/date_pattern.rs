//! `SimpleDateFormat` patterns: what they mean, and moments written by them, in English and UTC.

use crate::error::Problem;
use crate::java::calendar::{Fields, week};
use crate::java::{push_integer, push_padded};

#[rustfmt::skip]
pub(crate) const MONTHS: [&str; 12] = [
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
];
pub(crate) const WEEKDAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
/// Letters with a meaning.
const LETTERS: &str = "GyMdkHmsSEDFwWahKzZYuXL";
/// Names of months and weekdays, cut short.
const SHORT: usize = 3;

/// A pattern, read once.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    pub(crate) pieces: Vec<PatternItem>,
}

/// A piece of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PatternItem {
    Literal(String),
    Field { letter: char, count: usize },
}

impl Pattern {
    pub(crate) fn parse(text: &str) -> Result<Self, Problem> {
        let mut pieces = Vec::new();
        let mut letters = text.chars().peekable();
        while let Some(letter) = letters.next() {
            match letter {
                '\'' => push_literal(&quoted(&mut letters, text)?, &mut pieces),
                letter if letter.is_ascii_alphabetic() => {
                    let mut count = 1;
                    while letters.next_if_eq(&letter).is_some() {
                        count += 1;
                    }
                    check(letter, count, text)?;
                    pieces.push(PatternItem::Field { letter, count });
                }
                letter => push_literal(letter.encode_utf8(&mut [0; 4]), &mut pieces),
            }
        }
        Ok(Self { pieces })
    }

    /// Appends the moment `ms` milliseconds after the start of 1970.
    pub(crate) fn write(&self, ms: i64, out: &mut Vec<u8>) {
        let fields = Fields::of(ms);
        for piece in &self.pieces {
            match piece {
                PatternItem::Literal(text) => out.extend_from_slice(text.as_bytes()),
                PatternItem::Field { letter, count } => write_field(*letter, *count, &fields, out),
            }
        }
    }
}

fn push_literal(text: &str, pieces: &mut Vec<PatternItem>) {
    match pieces.last_mut() {
        Some(PatternItem::Literal(before)) => before.push_str(text),
        _ => pieces.push(PatternItem::Literal(text.to_owned())),
    }
}

/// The text after a quote, up to the next; two quotes are one.
pub(crate) fn quoted(
    letters: &mut std::iter::Peekable<std::str::Chars<'_>>,
    pattern: &str,
) -> Result<String, Problem> {
    let mut text = String::new();
    if letters.next_if_eq(&'\'').is_some() {
        return Ok("'".to_owned());
    }
    loop {
        match letters.next() {
            Some('\'') if letters.next_if_eq(&'\'').is_some() => text.push('\''),
            Some('\'') => return Ok(text),
            Some(letter) => text.push(letter),
            None => {
                let what = format!("the pattern `{pattern}` has a quote without its other one");
                return Err(Problem::new(what, "close it"));
            }
        }
    }
}

fn check(letter: char, count: usize, pattern: &str) -> Result<(), Problem> {
    if !LETTERS.contains(letter) || (letter == 'X' && count > 3) {
        let what = format!("`{letter}`, {count} times, means nothing in the pattern `{pattern}`");
        return Err(Problem::new(what, "put letters that are text into quotes"));
    }
    Ok(())
}

fn write_field(letter: char, count: usize, fields: &Fields, out: &mut Vec<u8>) {
    let hour = fields.ms_of_day / 3_600_000;
    let number = match letter {
        'G' => return out.extend_from_slice(if fields.year > 0 { b"AD" } else { b"BC" }),
        'y' => return write_year(year_of_era(fields.year), count, out),
        'Y' => return write_year(week(fields).0, count, out),
        'M' | 'L' if count >= SHORT => {
            return write_name(MONTHS[fields.month as usize - 1], count, out);
        }
        'E' => return write_name(WEEKDAYS[fields.weekday as usize], count, out),
        'a' => return out.extend_from_slice(if hour < 12 { b"AM" } else { b"PM" }),
        'z' if count > SHORT => return out.extend_from_slice(b"Coordinated Universal Time"),
        'z' => return out.extend_from_slice(b"UTC"),
        'Z' => return out.extend_from_slice(b"+0000"),
        'X' => return out.push(b'Z'),
        'M' | 'L' => fields.month,
        'w' => week(fields).1,
        'W' => (fields.day - 1 + (fields.weekday - (fields.day - 1)).rem_euclid(7)) / 7 + 1,
        'D' => fields.day_of_year,
        'd' => fields.day,
        'F' => (fields.day - 1) / 7 + 1,
        'u' => (fields.weekday + 6) % 7 + 1,
        'H' => hour,
        'k' => (hour + 23) % 24 + 1,
        'K' => hour % 12,
        'h' => (hour + 11) % 12 + 1,
        'm' => fields.ms_of_day / 60_000 % 60,
        's' => fields.ms_of_day / 1_000 % 60,
        _ => fields.ms_of_day % 1_000,
    };
    push_padded(number, count, out);
}

fn year_of_era(year: i64) -> i64 {
    if year > 0 { year } else { 1 - year }
}

fn write_year(year: i64, count: usize, out: &mut Vec<u8>) {
    match count {
        2 => push_padded(year % 100, 2, out),
        1 => push_integer(year, out),
        count => push_padded(year, count, out),
    }
}

fn write_name(name: &str, count: usize, out: &mut Vec<u8>) {
    let shown = if count > SHORT { name } else { &name[..SHORT] };
    out.extend_from_slice(shown.as_bytes());
}

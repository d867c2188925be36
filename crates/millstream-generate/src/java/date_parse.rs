//! Moments read by a [`Pattern`], as leniently as `SimpleDateFormat` does: what follows is ignored,
//! day 32 is in the next month, names count in any case.
//!
//! Not read, although they are written: weeks (`w`, `W`, `F`, `Y`), numbers of weekdays (`u`), and
//! a weekday without a date. Zones are UTC, GMT, offsets, and those of the United States.

use crate::clock::Clock;
use crate::error::Problem;
use crate::java::calendar::{DAY_MS, add_months, day_number};
use crate::java::date_pattern::{MONTHS, Pattern, PatternItem, WEEKDAYS};

/// Names of zones and their hours from UTC.
#[rustfmt::skip]
const ZONES: [(&str, i64); 10] = [
    ("UTC", 0), ("GMT", 0), ("EST", -5), ("EDT", -4), ("CST", -6), ("CDT", -5), ("MST", -7),
    ("MDT", -6), ("PST", -8), ("PDT", -7),
];
const HOUR_MS: i64 = 3_600_000;
/// Years of two digits lie less than this many years back.
const CENTURY_BACK: i64 = 80;

/// Later years are this one: beyond, milliseconds overflow, in Java as well.
const YEARS_MOST: i64 = 50_000_000;

/// A moment, and the zone that the text names, if it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parsed {
    pub(crate) ms: i64,
    pub(crate) zone: Option<&'static str>,
}

/// Reads `text` by `pattern`.
pub(crate) fn parse(text: &str, pattern: &Pattern, clock: &Clock) -> Result<Parsed, Problem> {
    let mut reader = DateReader { text, at: 0, clock, found: ParsedFields::default() };
    for (number, piece) in pattern.pieces.iter().enumerate() {
        let read = match piece {
            PatternItem::Literal(literal) => reader.literal(literal),
            PatternItem::Field { letter, count } => {
                let width = pattern.pieces.get(number + 1).filter(|next| is_number(next));
                reader.field(*letter, *count, width.map(|_| *count))
            }
        };
        if read.is_none() {
            let (what, rest) = (piece_name(piece), text.get(reader.at..).unwrap_or_default());
            let what = format!("the date `{text}` has no {what} at `{rest}`");
            return Err(Problem::new(what, "write it as its pattern says"));
        }
    }
    let found = &reader.found;
    if found.weekday && found.day.is_none() && found.day_of_year.is_none() {
        let what = format!("the weekday in `{text}` alone is no date");
        return Err(Problem::new(what, "give the day of the month too"));
    }
    Ok(found.resolve())
}

fn piece_name(piece: &PatternItem) -> String {
    match piece {
        PatternItem::Literal(literal) => format!("`{literal}`"),
        PatternItem::Field { letter, count } => format!("`{}`", letter.to_string().repeat(*count)),
    }
}

/// Whether digits of a field before it have to end where its letters do.
fn is_number(next: &PatternItem) -> bool {
    match next {
        PatternItem::Literal(_) => false,
        PatternItem::Field { letter: 'M' | 'L', count } => *count <= 2,
        PatternItem::Field { letter, .. } => "ydHhmsSDFwWkKYu".contains(*letter),
    }
}

/// What a text says; each with its place among the others, where that decides.
#[derive(Default)]
struct ParsedFields {
    order: usize,
    year: Option<i64>,
    /// A year of two digits that may belong to either century: the earliest moment it can mean.
    not_before: Option<i64>,
    month: Option<i64>,
    day: Option<(usize, i64)>,
    day_of_year: Option<(usize, i64)>,
    hour_of_day: Option<(usize, i64)>,
    hour: Option<(usize, i64)>,
    afternoon: Option<(usize, bool)>,
    minute: i64,
    second: i64,
    millisecond: i64,
    weekday: bool,
    offset_ms: i64,
    zone: Option<&'static str>,
}

impl ParsedFields {
    fn resolve(&self) -> Parsed {
        let year = self.year.unwrap_or(1970);
        let days = match (self.day, self.day_of_year) {
            (day, Some((order, number))) if day.is_none_or(|(other, _)| order > other) => {
                day_number(year, 1, 1) + number - 1
            }
            (day, _) => day_number(year, self.month.unwrap_or(1), day.map_or(1, |(_, day)| day)),
        };
        let in_day = self.hours() * HOUR_MS + self.minute * 60_000 + self.second * 1_000;
        let mut ms = days * DAY_MS + in_day + self.millisecond - self.offset_ms;
        if self.not_before.is_some_and(|not_before| ms < not_before) {
            ms = add_months(ms, 1_200);
        }
        Parsed { ms, zone: self.zone }
    }

    /// Of `H` and of `h` with `a`, the one that was complete last.
    fn hours(&self) -> i64 {
        let half = |(_, hour): (usize, i64)| {
            hour + 12 * i64::from(self.afternoon.is_some_and(|(_, afternoon)| afternoon))
        };
        let complete = self.hour.zip(self.afternoon).map(|(hour, half)| hour.0.max(half.0));
        match (self.hour_of_day, complete) {
            (Some((order, hour)), complete) if complete.is_none_or(|other| order > other) => hour,
            _ => half(self.hour.unwrap_or_default()),
        }
    }
}

struct DateReader<'a> {
    text: &'a str,
    at: usize,
    clock: &'a Clock,
    found: ParsedFields,
}

impl DateReader<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn literal(&mut self, literal: &str) -> Option<()> {
        self.rest().starts_with(literal).then(|| self.at += literal.len())
    }

    fn field(&mut self, letter: char, count: usize, width: Option<usize>) -> Option<()> {
        let start = self.at;
        let blank = |byte: &u8| matches!(*byte, b' ' | b'\t');
        self.at += self.rest().bytes().take_while(blank).count();
        self.found.order += 1;
        let order = self.found.order;
        match letter {
            'G' => return self.literal("AD"),
            'M' | 'L' if count > 2 => self.found.month = Some(self.name(&MONTHS)? + 1),
            'E' => {
                self.name(&WEEKDAYS)?;
                self.found.weekday = true;
            }
            'a' => self.found.afternoon = Some((order, self.name(&["AM", "PM"])? == 1)),
            'z' | 'Z' => self.zone()?,
            'X' => self.iso_zone(count)?,
            'Y' | 'w' | 'W' | 'F' | 'u' => return None,
            _ => {
                let limit = width.map(|width| start + width);
                let digits_from = self.at;
                let number = self.number(limit)?;
                let length = self.at - digits_from;
                self.set(letter, number, order, count <= 2 && length == 2 && number >= 0);
            }
        }
        Some(())
    }

    fn set(&mut self, letter: char, number: i64, order: usize, is_short: bool) {
        let found = &mut self.found;
        match letter {
            'y' if is_short => self.short_year(number),
            'y' => found.year = Some(number.clamp(-YEARS_MOST, YEARS_MOST)),
            'M' | 'L' => found.month = Some(number),
            'd' => found.day = Some((order, number)),
            'D' => found.day_of_year = Some((order, number)),
            'H' => found.hour_of_day = Some((order, number)),
            'k' => found.hour_of_day = Some((order, if number == 24 { 0 } else { number })),
            'K' => found.hour = Some((order, number)),
            'h' => found.hour = Some((order, if number == 12 { 0 } else { number })),
            'm' => found.minute = number,
            's' => found.second = number,
            _ => found.millisecond = number,
        }
    }

    /// The year of these two digits that is less than 80 years ago, or the next one.
    fn short_year(&mut self, number: i64) {
        let from_ms = add_months(self.clock.now_ms(), -12 * CENTURY_BACK);
        let from = crate::java::calendar::Fields::of(from_ms).year;
        let century = from / 100 * 100;
        let year = century + number + if number < from % 100 { 100 } else { 0 };
        self.found.year = Some(year);
        self.found.not_before = (number == from % 100).then_some(from_ms);
    }

    /// Digits, as many as there are, or up to offset `limit` in the text.
    fn number(&mut self, limit: Option<usize>) -> Option<i64> {
        let rest = match limit {
            Some(limit) => self.text.get(self.at..limit)?,
            None => self.rest(),
        };
        let unsigned = rest.strip_prefix('-').unwrap_or(rest);
        let digits = unsigned.bytes().take_while(u8::is_ascii_digit).count();
        let length = rest.len() - unsigned.len() + digits;
        // More digits than that overflow Java's calendar as well.
        let number: i32 = rest[..length].parse().ok()?;
        self.at += length;
        Some(i64::from(number))
    }

    /// Index of the name that the text continues with, in full or its first three letters.
    fn name(&mut self, names: &[&str]) -> Option<i64> {
        for shortened in [false, true] {
            for (index, name) in names.iter().enumerate() {
                let name = if shortened { &name[..name.len().min(3)] } else { name };
                let found = self.rest().get(..name.len());
                if found.is_some_and(|found| found.eq_ignore_ascii_case(name)) {
                    self.at += name.len();
                    return Some(index as i64);
                }
            }
        }
        None
    }

    /// `PST`, `GMT+1:30` or `+0130`.
    fn zone(&mut self) -> Option<()> {
        if self.rest().starts_with(['+', '-']) {
            return self.offset(4, false);
        }
        let is_named = |name: &str, rest: &str| {
            rest.get(..name.len()).is_some_and(|found| found.eq_ignore_ascii_case(name))
        };
        let (name, hours) = *ZONES.iter().find(|(name, _)| is_named(name, self.rest()))?;
        self.at += name.len();
        if name == "GMT" && self.rest().starts_with(['+', '-']) {
            return self.offset(4, true);
        }
        self.found.zone = Some(name);
        self.found.offset_ms = hours * HOUR_MS;
        Some(())
    }

    /// `Z`, `+01`, `+0130` or `+01:30`, by the number of letters.
    fn iso_zone(&mut self, count: usize) -> Option<()> {
        if self.literal("Z").is_some() {
            return Some(());
        }
        match count {
            1 => self.offset(2, false),
            2 => self.offset(4, false),
            _ => self.offset(4, true),
        }
    }

    fn offset(&mut self, digits: usize, colon: bool) -> Option<()> {
        let sign = if self.literal("-").is_some() { -1 } else { self.literal("+").map(|()| 1)? };
        let hour_digits = if colon { self.rest().find(':')?.min(2) } else { 2 };
        let hours =
            self.number(Some(self.at + hour_digits)).filter(|hours| (0..24).contains(hours))?;
        if colon {
            self.literal(":")?;
        }
        let minutes = if digits == 4 { self.number(Some(self.at + 2))? } else { 0 };
        let minutes = Some(minutes).filter(|minutes| (0..60).contains(minutes))?;
        self.found.offset_ms = sign * (hours * 60 + minutes) * 60_000;
        Some(())
    }
}

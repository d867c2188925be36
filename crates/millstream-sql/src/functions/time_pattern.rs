//! Java's patterns for dates and times, `yyyy-MM-dd HH:mm:ss`, to write and to read.
//!
//! The letters are those that Spark admits. Where nothing else is said the session's time zone is
//! UTC: writing a zone writes that; reading takes the zone that stands in the text.

use std::fmt::Write;

use chrono::{Datelike, NaiveDate, NaiveDateTime, Timelike};
use datafusion::common::{Result, exec_err, plan_datafusion_err, plan_err};

use super::hour_letters::HoursRead;
use super::zone_letters::{self, WrittenZone};
use super::{year_letters, zone_reading};
use crate::values::calendar::{DAY_US, SECOND_US, days_of, naive};
use crate::values::zone::{Zone, zone_offset_us};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] =
    ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

/// What follows from the others, and from which no date can be made.
const NEVER_READ: &str = "EFQq";

/// A parsed pattern.
#[derive(Clone, Debug)]
pub(super) struct TimePattern {
    items: Vec<Item>,
}

#[derive(Clone, Debug)]
enum Item {
    Text(String),
    /// A letter and how often it is repeated. `Y` is a year `y` beside the name of its era, which
    /// is counted in that; others go below zero.
    Field(char, usize),
    /// In square brackets: written always, read if it is there.
    Optional(Vec<Item>),
}

impl TimePattern {
    /// Reads a pattern.
    pub fn parse(pattern: &str) -> Result<Self> {
        let mut stack = vec![Vec::new()];
        let mut chars = pattern.chars().peekable();
        let refused = |what: String| plan_datafusion_err!("the pattern {pattern:?} {what}");
        while let Some(char) = chars.next() {
            let items = stack.last_mut().expect("the outermost list is never taken");
            match char {
                '\'' => items
                    .push(Item::Text(quoted(&mut chars).ok_or_else(|| {
                        refused("has a quotation mark that is not closed".into())
                    })?)),
                '[' => stack.push(Vec::new()),
                ']' => {
                    let inner = stack.pop().expect("the outermost list is never taken");
                    let outer = stack.last_mut();
                    outer
                        .ok_or_else(|| refused("has a ] without [".into()))?
                        .push(Item::Optional(inner));
                }
                letter if letter.is_ascii_alphabetic() => {
                    let mut count = 1;
                    while chars.next_if_eq(&letter).is_some() {
                        count += 1;
                    }
                    if !is_known(letter, count) {
                        let field = String::from(letter).repeat(count);
                        return Err(refused(format!(
                            "has {field}, which Spark does not know either"
                        )));
                    }
                    items.push(Item::Field(letter, count));
                }
                '#' | '{' | '}' => {
                    return Err(refused(format!("has the reserved character {char}")));
                }
                other => items.push(Item::Text(other.into())),
            }
        }
        if stack.len() != 1 {
            return Err(refused("has a [ without ]".into()));
        }
        let mut items = stack.remove(0);
        if first_of(&items, "G").is_some() {
            count_in_eras(&mut items);
        }
        Ok(Self { items })
    }

    /// The pattern itself, for who reads by it.
    ///
    /// # Errors
    /// It has letters that Spark only writes.
    pub fn to_read(&self) -> Result<&Self> {
        match self.first_of(NEVER_READ) {
            Some(letter) => plan_err!("the letter {letter} of a pattern is only written, not read"),
            None => Ok(self),
        }
    }

    /// Appends a timestamp. False, and nothing certain appended, if it is out of the calendar.
    pub fn write(&self, us: i64, out: &mut String) -> bool {
        let Some(time) = naive(us) else { return false };
        write_items(&self.items, time, None, out);
        true
    }

    /// Appends a timestamp as the clocks of `zone` show it, which Java calls `id`. False, and
    /// nothing certain appended, if it is out of the calendar.
    ///
    /// # Errors
    /// The pattern asks for a name of the zone that is not known.
    pub fn write_in(&self, us: i64, (zone, id): (&Zone, &str), out: &mut String) -> Result<bool> {
        if let Some(letter) = self.first_of(zone_letters::UNKNOWN) {
            return exec_err!(
                "the letter {letter} of a pattern writes a name of the zone {id}, which is not \
                 known here; write VV, its identifier, or XXX, its offset"
            );
        }
        let Some(offset_us) = zone.offset_at(us) else { return Ok(false) };
        let Some(time) = us.checked_add(offset_us).and_then(naive) else { return Ok(false) };
        write_items(&self.items, time, Some(WrittenZone { id, offset_us }), out);
        Ok(true)
    }

    /// Reads a timestamp, in microseconds; `None` if `text` does not follow the pattern.
    pub fn read(&self, text: &str) -> Option<i64> {
        self.read_in(text, &Zone::UTC)
    }

    /// Reads a timestamp as [`Self::read`] does; `session` is the zone of a text without one.
    pub fn read_in(&self, text: &str, session: &Zone) -> Option<i64> {
        self.fields(text)?.resolve(session)
    }

    /// Reads what a clock showed, whatever zone stands beside it.
    pub fn read_clock(&self, text: &str) -> Option<i64> {
        let fields = self.fields(text)?;
        // A text with a zone that there is not is none of a time.
        fields.clone().resolve(&Zone::UTC)?;
        Fields { zone: None, ..fields }.resolve(&Zone::UTC)
    }

    /// The first of its letters that is one of `letters`.
    pub fn first_of(&self, letters: &str) -> Option<char> {
        first_of(&self.items, letters)
    }

    fn fields(&self, text: &str) -> Option<Fields> {
        let mut fields = Fields::default();
        let rest = read_items(&self.items, text, &mut fields)?;
        rest.is_empty().then_some(fields)
    }
}

fn count_in_eras(items: &mut [Item]) {
    for item in items {
        match item {
            Item::Field(letter @ 'y', _) => *letter = 'Y',
            Item::Optional(items) => count_in_eras(items),
            _ => {}
        }
    }
}

fn first_of(items: &[Item], letters: &str) -> Option<char> {
    items.iter().find_map(|item| match item {
        Item::Text(_) => None,
        Item::Field(letter, _) => letters.contains(*letter).then_some(*letter),
        Item::Optional(items) => first_of(items, letters),
    })
}

fn quoted(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Option<String> {
    if chars.next_if_eq(&'\'').is_some() {
        return Some("'".into());
    }
    let mut text = String::new();
    loop {
        match chars.next()? {
            '\'' if chars.next_if_eq(&'\'').is_some() => text.push('\''),
            '\'' => return Some(text),
            other => text.push(other),
        }
    }
}

fn is_known(letter: char, count: usize) -> bool {
    let count_max = match letter {
        'y' => 6,
        'D' => 3,
        'd' | 'H' | 'h' | 'K' | 'k' | 'm' | 's' => 2,
        'M' | 'L' | 'E' | 'q' | 'Q' | 'G' => 4,
        'a' | 'F' => 1,
        'S' => 9,
        'X' | 'x' | 'Z' => 5,
        'z' => 4,
        'V' => 2,
        'O' => 4,
        _ => 0,
    };
    count <= count_max
        && (letter != 'V' || count == 2)
        && (letter != 'O' || count != 2 && count != 3)
}

/// Appends what the clocks of a zone show; without one those of UTC.
fn write_items(
    items: &[Item],
    time: NaiveDateTime,
    zone: Option<WrittenZone<'_>>,
    out: &mut String,
) {
    for item in items {
        match (item, zone) {
            (Item::Text(text), _) => out.push_str(text),
            (Item::Optional(items), _) => write_items(items, time, zone, out),
            (Item::Field(letter, count), Some(zone)) if zone_letters::ALL.contains(*letter) => {
                zone_letters::write(*letter, *count, zone, out);
            }
            (Item::Field(letter, count), _) => write_field(*letter, *count, time, out),
        }
    }
}

fn write_field(letter: char, count: usize, time: NaiveDateTime, out: &mut String) {
    let hour = time.hour();
    let number = match letter {
        'y' => return year_letters::write(time.year().into(), count, out),
        'Y' => return year_letters::write(time.year_ce().1.into(), count, out),
        'M' | 'L' if count <= 2 => time.month(),
        'M' | 'L' => return push_name(MONTHS[time.month0() as usize], count, out),
        'E' => {
            let day = time.weekday().num_days_from_monday() as usize;
            return push_name(WEEKDAYS[day], count, out);
        }
        'Q' | 'q' => {
            let quarter = time.month0() / 3 + 1;
            match count {
                1 | 2 => quarter,
                3 => return write_all(out, format_args!("Q{quarter}")),
                _ => {
                    let ordinal = ["1st", "2nd", "3rd", "4th"][quarter as usize - 1];
                    return write_all(out, format_args!("{ordinal} quarter"));
                }
            }
        }
        'D' => time.ordinal(),
        'd' => time.day(),
        // The day of a week that begins on the first of the month.
        'F' => time.day0() % 7 + 1,
        'H' => hour,
        'k' => {
            if hour == 0 {
                24
            } else {
                hour
            }
        }
        'K' => hour % 12,
        'h' => {
            if hour.is_multiple_of(12) {
                12
            } else {
                hour % 12
            }
        }
        'm' => time.minute(),
        's' => time.second(),
        'S' => {
            let nanoseconds = format!("{:09}", time.nanosecond());
            return out.push_str(&nanoseconds[..count]);
        }
        'a' => return out.push_str(if hour < 12 { "AM" } else { "PM" }),
        'G' if count == 4 => {
            return out.push_str(if time.year() > 0 { "Anno Domini" } else { "Before Christ" });
        }
        'G' => return out.push_str(if time.year() > 0 { "AD" } else { "BC" }),
        'X' => return out.push('Z'),
        'x' | 'Z' => return out.push_str(zero_offset(letter, count)),
        'O' => return out.push_str("GMT"),
        'z' if count == 4 => return out.push_str("Coordinated Universal Time"),
        _ => return out.push_str("UTC"),
    };
    write_all(out, format_args!("{number:0count$}"));
}

fn write_all(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("a String takes everything");
}

/// A name in full for four letters, else its first three characters.
fn push_name(name: &str, count: usize, out: &mut String) {
    out.push_str(if count == 4 { name } else { &name[..3] });
}

fn zero_offset(letter: char, count: usize) -> &'static str {
    match (letter, count) {
        ('x', 1) => "+00",
        ('x', 2 | 4) | ('Z', 1..=3) => "+0000",
        ('Z', 4) => "GMT",
        ('Z', _) => "Z",
        _ => "+00:00",
    }
}

/// The fields that were read from a text.
#[derive(Clone, Default)]
struct Fields {
    year: Option<i64>,
    /// Whether the era is that before the year 1, where there is one.
    is_before: Option<bool>,
    month: Option<u32>,
    day: Option<u32>,
    day_of_year: Option<u32>,
    hours: HoursRead,
    minute: u32,
    second: u32,
    fraction_us: i64,
    zone: Option<String>,
}

impl Fields {
    /// The moment; without a zone of its own that of `session`.
    fn resolve(self, session: &Zone) -> Option<i64> {
        let year = match (self.is_before, self.year) {
            // The years of both eras begin with 1, and the one before the year 1 is the year 0.
            (Some(_), Some(..1)) => return None,
            (Some(true), Some(year)) => 1 - year,
            (_, year) => year.unwrap_or(1970),
        };
        let days = match self.day_of_year {
            Some(day) => {
                let date = NaiveDate::from_yo_opt(i32::try_from(year).ok()?, day)?;
                // Beside the day of the year, month and day only say it again.
                let agrees = self.month.is_none_or(|month| month == date.month())
                    && self.day.is_none_or(|day| day == date.day());
                if !agrees {
                    return None;
                }
                date.to_epoch_days()
            }
            None => days_of(year, self.month.unwrap_or(1), self.day.unwrap_or(1))?,
        };
        let hour = self.hours.of_day()?;
        if self.minute > 59 || self.second > 59 {
            return None;
        }
        let seconds = i64::from(hour * 3600 + self.minute * 60 + self.second);
        let local = i64::from(days).checked_mul(DAY_US)?;
        let local = local.checked_add(seconds * SECOND_US + self.fraction_us)?;
        match self.zone.as_deref() {
            None => session.moment_of(local),
            Some("" | "Z" | "UTC" | "GMT") => Some(local),
            Some(zone) => local.checked_sub(zone_offset_us(zone, local)?),
        }
    }
}

fn read_items<'a>(items: &[Item], text: &'a str, fields: &mut Fields) -> Option<&'a str> {
    let mut rest = text;
    for (at, item) in items.iter().enumerate() {
        rest = match item {
            Item::Text(expected) => {
                let head = rest.get(..expected.len())?;
                head.eq_ignore_ascii_case(expected).then(|| &rest[expected.len()..])?
            }
            Item::Optional(inner) => {
                let mut attempt = fields.clone();
                match read_items(inner, rest, &mut attempt) {
                    Some(after) => {
                        *fields = attempt;
                        after
                    }
                    None => rest,
                }
            }
            Item::Field(letter, count) => {
                // Numbers without anything between them have exactly the width of their letters.
                let behind = &items[at + 1..];
                let adjacent = match behind.first() {
                    Some(Item::Field(next, width)) => is_number(*next, *width),
                    _ => false,
                };
                match letter {
                    'y' | 'Y' => {
                        let (year, rest) = year_letters::read(*count, digits_of(behind), rest)?;
                        fields.year = Some(year);
                        rest
                    }
                    _ => read_field(*letter, *count, adjacent, rest, fields)?,
                }
            }
        };
    }
    Some(rest)
}

/// How many digits the numbers have that follow one after the other. As in Java there are none if
/// one of them has no fixed width: a year before them takes all.
fn digits_of(items: &[Item]) -> usize {
    let mut digits = 0;
    for item in items {
        match item {
            Item::Field('M' | 'L' | 'd' | 'H' | 'h' | 'K' | 'k' | 'm' | 's', 2) => digits += 2,
            Item::Field('D', 3) => digits += 3,
            Item::Field('S', _) => return digits,
            Item::Field(letter, count) if is_number(*letter, *count) => return 0,
            _ => return digits,
        }
    }
    digits
}

fn is_number(letter: char, count: usize) -> bool {
    match letter {
        'y' | 'Y' | 'D' | 'd' | 'H' | 'h' | 'K' | 'k' | 'm' | 's' | 'S' => true,
        'M' | 'L' => count <= 2,
        _ => false,
    }
}

fn read_field<'a>(
    letter: char,
    count: usize,
    adjacent: bool,
    text: &'a str,
    fields: &mut Fields,
) -> Option<&'a str> {
    match letter {
        'M' | 'L' if count > 2 => {
            let (month, rest) = read_name(&MONTHS, count, text)?;
            fields.month = Some(month as u32 + 1);
            return Some(rest);
        }
        'a' => {
            let half = text.get(..2)?;
            fields.hours.afternoon = Some(half.eq_ignore_ascii_case("PM"));
            let is_half = half.eq_ignore_ascii_case("AM") || half.eq_ignore_ascii_case("PM");
            return is_half.then(|| &text[2..]);
        }
        'X' | 'x' | 'Z' | 'z' | 'V' | 'O' => {
            let (zone, rest) = zone_reading::read(letter, count, text)?;
            fields.zone = Some(zone);
            return Some(rest);
        }
        'G' => return read_era(count, text, fields),
        'E' | 'F' | 'Q' | 'q' => return None,
        _ => {}
    }
    let exact = adjacent || count == 2;
    let digits_max = match letter {
        'S' => count,
        'D' if !exact => 3,
        _ if exact => count,
        _ => 2,
    };
    let digits_min = if letter == 'S' && !adjacent { 1 } else { count.min(digits_max) };
    let digits = text.bytes().take(digits_max).take_while(u8::is_ascii_digit).count();
    if digits < digits_min {
        return None;
    }
    let (number, rest) = text.split_at(digits);
    let value: u32 = number.parse().ok()?;
    match letter {
        'M' | 'L' => fields.month = Some(value),
        'd' => fields.day = Some(value),
        'D' => fields.day_of_year = Some(value),
        'H' | 'k' | 'K' | 'h' => fields.hours.set(letter, value),
        'm' => fields.minute = value,
        's' => fields.second = value,
        _ => {
            let nanoseconds = i64::from(value) * 10_i64.pow(9 - digits as u32);
            fields.fraction_us = nanoseconds / 1000;
        }
    }
    Some(rest)
}

fn read_era<'a>(count: usize, text: &'a str, fields: &mut Fields) -> Option<&'a str> {
    let names = if count == 4 { ["Anno Domini", "Before Christ"] } else { ["AD", "BC"] };
    let is_there =
        |name: &str| text.get(..name.len()).is_some_and(|head| head.eq_ignore_ascii_case(name));
    let at = names.iter().position(|name| is_there(name))?;
    fields.is_before = Some(at == 1);
    Some(&text[names[at].len()..])
}

fn read_name<'a>(names: &[&str], count: usize, text: &'a str) -> Option<(usize, &'a str)> {
    names.iter().enumerate().find_map(|(at, name)| {
        let name = if count == 4 { name } else { &name[..3] };
        let head = text.get(..name.len())?;
        head.eq_ignore_ascii_case(name).then(|| (at, &text[name.len()..]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-03-07 15:04:05.006007, a Saturday.
    const TIME: i64 = 1_772_895_845_006_007;

    fn written(pattern: &str) -> String {
        let mut out = String::new();
        assert!(TimePattern::parse(pattern).expect(pattern).write(TIME, &mut out));
        out
    }

    fn read(pattern: &str, text: &str) -> Option<i64> {
        TimePattern::parse(pattern).expect(pattern).read(text)
    }

    #[test]
    fn patterns_write_what_java_writes() {
        for (pattern, text) in [
            ("yyyy-MM-dd HH:mm:ss.SSSSSS", "2026-03-07 15:04:05.006007"),
            ("yy/M/d h:m:s a", "26/3/7 3:4:5 PM"),
            ("EEE, d MMM yyyy", "Sat, 7 Mar 2026"),
            ("EEEE MMMM", "Saturday March"),
            ("yyyy-MM-dd'T'HH:mm:ss[.SSS][XXX]", "2026-03-07T15:04:05.006Z"),
            ("D q QQQ", "66 1 Q1"),
            ("K k ''", "3 15 '"),
            ("xxx Z VV z", "+00:00 +0000 UTC UTC"),
            ("yyyyMMdd", "20260307"),
            ("y yyyyy yy G", "2026 02026 26 AD"),
            ("F", "7"),
        ] {
            assert_eq!(written(pattern), text, "{pattern}");
        }
    }

    #[test]
    fn patterns_read_what_they_write() {
        let to_second = TIME - 6007;
        assert_eq!(read("yyyy-MM-dd HH:mm:ss.SSSSSS", "2026-03-07 15:04:05.006007"), Some(TIME));
        assert_eq!(read("yyyyMMddHHmmss", "20260307150405"), Some(to_second));
        assert_eq!(read("d MMM yyyy h:mm:ss a", "7 mar 2026 3:04:05 pm"), Some(to_second));
        assert_eq!(read("yyyy-MM-dd'T'HH:mm:ssXXX", "2026-03-07T16:04:05+01:00"), Some(to_second));
        assert_eq!(read("yyyy-MM-dd[ HH:mm:ss]", "2026-03-07"), Some(TIME - TIME % DAY_US));
        for (pattern, text) in [
            ("yyyy-MM-dd", "2026-3-7"),
            ("yyyy-MM-dd", "2026-02-30"),
            ("yyyy-MM-dd", "2026-03-07 "),
            ("EEE dd/MM/yy", "Sat 07/03/26"),
            ("yyyy-MM-dd hh a", "2026-03-07 13 PM"),
            ("yyyy-MM-dd HH a", "2026-03-07 15 AM"),
            ("HH", "24"),
            ("yyyy-MM-dd", "12026-03-07"),
            ("yyyyMMddHHmmssSSS", "20260307150405123"),
            ("yyyyM", "20263"),
        ] {
            assert_eq!(read(pattern, text), None, "{text} as {pattern}");
        }
    }

    #[test]
    fn letters_that_spark_refuses_are_refused() {
        for pattern in ["YYYY", "ww", "yyyy-MM-dd'", "]", "[", "MMMMM", "e"] {
            assert!(TimePattern::parse(pattern).is_err(), "{pattern}");
        }
        let to_read = |pattern: &str| TimePattern::parse(pattern).expect(pattern).to_read().is_ok();
        assert!(!to_read("[EEE] dd"));
        assert!(!to_read("yyyy-Q"));
        assert!(to_read("yyyy 'EQ'"));
    }
}

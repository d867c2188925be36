//! Dates and timestamps between text and numbers, in the form that Spark's casts read and write.
//!
//! A date is days, a timestamp microseconds since the epoch in the proleptic Gregorian calendar.
//! Where nothing else is said the session's time zone is UTC.

use std::fmt::Write;

use chrono::NaiveDate;

pub(crate) use super::microseconds::{DAY_US, SECOND_US, naive};
use super::zone::{Zone, long_name, zone_offset_us};

/// Days since the epoch of a civil date, or `None` if there is no such day.
///
/// Origin: Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", `days_from_civil`.
pub(crate) fn days_of(year: i64, month: u32, day: u32) -> Option<i32> {
    if !(1..=12).contains(&month) || day == 0 || day > month_length(year, month) {
        return None;
    }
    // Years are taken to begin in March, so that the leap day is the last of its year.
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month_from_march = i64::from((month + 9) % 12);
    // From March on the months' lengths repeat every five months, 153 days.
    let day_of_year = (153 * month_from_march + 2) / 5 + i64::from(day) - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    i32::try_from(era * 146_097 + day_of_era - 719_468).ok()
}

fn month_length(year: i64, month: u32) -> u32 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Year, month and day of a day since the epoch; the inverse of [`days_of`].
pub(crate) fn civil_of(days: i32) -> (i64, u32, u32) {
    let days = i64::from(days) + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = (day_of_year - (153 * month_from_march + 2) / 5 + 1) as u32;
    let month =
        (if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 }) as u32;
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

/// The same day of a month that is so many months later, or that month's last day if it is shorter.
/// `None` beyond the days of a DATE.
pub(crate) fn months_later(days: i32, months: i32) -> Option<i32> {
    let (year, month, day) = civil_of(days);
    let all = year * 12 + i64::from(month) - 1 + i64::from(months);
    let (year, month) = (all.div_euclid(12), all.rem_euclid(12) as u32 + 1);
    days_of(year, month, day.min(month_length(year, month)))
}

/// Without what Spark passes over around dates and times.
fn bare(text: &str) -> &str {
    text.trim_matches(|char: char| char <= ' ' || char == '\u{7F}')
}

/// Reads a date as a cast from STRING does: `yyyy[-M[-d]]`, then nothing, or `T` or a space and
/// anything. Only a whole date can have something behind it.
pub(crate) fn parse_date(text: &str) -> Option<i32> {
    let mut reader = DigitReader::new(bare(text));
    let days = reader.date(7)?;
    match reader.peek() {
        None => Some(days),
        Some(b'T' | b' ') => reader.is_behind_day().then_some(days),
        Some(_) => None,
    }
}

/// Reads a timestamp as a cast from STRING to TIMESTAMP does: `yyyy[-M[-d]]`, then `T` or a space
/// and `H[:m[:s[.fraction]]]`, then a zone (`Z`, `+hh:mm`, `UTC`, `PST`, a region); without a zone,
/// UTC. Only a whole date can have a time, and only one with seconds a zone. Of the fraction six
/// digits count.
pub(crate) fn parse_timestamp(text: &str) -> Option<i64> {
    parse_timestamp_in(text, &Zone::UTC)
}

/// Reads a timestamp as [`parse_timestamp`] does, in a session of the zone `session`: that is the
/// zone of a text without one.
pub(crate) fn parse_timestamp_in(text: &str, session: &Zone) -> Option<i64> {
    let (local, zone) = parse_local(text)?;
    match bare(zone) {
        "" => session.moment_of(local),
        "Z" | "UTC" | "GMT" => Some(local),
        zone => local.checked_sub(zone_offset_us(long_name(zone), local)?),
    }
}

/// Reads a TIMESTAMP_NTZ: as [`parse_timestamp`], with any zone checked and ignored.
pub(crate) fn parse_timestamp_ntz(text: &str) -> Option<i64> {
    let (local, zone) = parse_local(text)?;
    match bare(zone) {
        "" | "Z" | "UTC" | "GMT" => {}
        zone => drop(zone_offset_us(long_name(zone), local)?),
    }
    Some(local)
}

/// Reads a TIMESTAMP_NTZ as CSV has it: with a zone it is none.
pub(crate) fn parse_timestamp_without_zone(text: &str) -> Option<i64> {
    let (local, zone) = parse_local(text)?;
    bare(zone).is_empty().then_some(local)
}

/// The local time as microseconds, and the text after it.
fn parse_local(text: &str) -> Option<(i64, &str)> {
    let text = bare(text);
    let mut reader = DigitReader::new(text);
    let days = reader.date(6)?;
    let time = match reader.peek() {
        None => 0,
        Some(b'T' | b' ') if reader.is_behind_day() => {
            reader.at += 1;
            let read = reader.time()?;
            if !read.has_seconds && reader.peek().is_some() {
                return None;
            }
            read.us
        }
        Some(_) => return None,
    };
    // The day of the earliest time begins before it.
    let local = i128::from(days) * i128::from(DAY_US) + i128::from(time);
    Some((i64::try_from(local).ok()?, &text[reader.at..]))
}

/// A time without a date that a cast to TIMESTAMP takes: digits and a colon, or `T` as the first
/// letter of all, and what follows. What it is called behind the `T`.
pub(crate) fn time_alone(text: &str) -> Option<&str> {
    if let Some(time) = text.strip_prefix('T') {
        return Some(time);
    }
    let text = text.trim_start();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let is_hour = matches!(digits, 1 | 2) && text.as_bytes().get(digits) == Some(&b':');
    is_hour.then_some(text)
}

/// The text of a [`time_alone`] with the date that its zone, or else the zone `session`, has at
/// `now`, microseconds since the epoch. `None` if it is none.
pub(crate) fn dated(text: &str, now: i64, session: &Zone) -> Option<String> {
    let time = time_alone(text)?;
    let undated = format!("1970-01-01T{time}");
    let local = match parse_local(&undated)?.1.trim() {
        "" => session.clock_at(now)?,
        zone => Zone::named(long_name(zone))?.clock_at(now)?,
    };
    let mut whole = String::with_capacity(undated.len());
    write_date(local.div_euclid(DAY_US) as i32, &mut whole);
    whole.push('T');
    whole.push_str(time);
    Some(whole)
}

/// A time of a day that was read.
struct TimeRead {
    /// Microseconds since midnight.
    us: i64,
    has_seconds: bool,
}

/// Reads digits and separators.
struct DigitReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> DigitReader<'a> {
    fn new(text: &'a str) -> Self {
        Self { bytes: text.as_bytes(), at: 0 }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// A number of `digits_min` to `digits_max` digits.
    fn number(&mut self, digits_min: usize, digits_max: usize) -> Option<u32> {
        let start = self.at;
        let mut value = 0_u32;
        while let Some(digit @ b'0'..=b'9') = self.peek() {
            if self.at - start == digits_max {
                return None;
            }
            value = value * 10 + u32::from(digit - b'0');
            self.at += 1;
        }
        (self.at - start >= digits_min).then_some(value)
    }

    fn follows(&mut self, byte: u8) -> bool {
        let follows = self.peek() == Some(byte);
        self.at += usize::from(follows);
        follows
    }

    /// A date whose year has 4 to `year_digits_max` digits: 7 in Spark's dates, 6 in its times.
    fn date(&mut self, year_digits_max: usize) -> Option<i32> {
        let negative = match self.peek() {
            Some(b'-') => {
                self.at += 1;
                true
            }
            Some(b'+') => {
                self.at += 1;
                false
            }
            _ => false,
        };
        let year = i64::from(self.number(4, year_digits_max)?);
        let month = if self.follows(b'-') { self.number(1, 2)? } else { 1 };
        let day = if self.follows(b'-') { self.number(1, 2)? } else { 1 };
        days_of(if negative { -year } else { year }, month, day)
    }

    /// Whether what has been read is a date with its month and its day.
    fn is_behind_day(&self) -> bool {
        self.bytes[1..self.at].iter().filter(|byte| **byte == b'-').count() == 2
    }

    /// A time of a day. A fraction is one of seconds.
    fn time(&mut self) -> Option<TimeRead> {
        let hour = self.number(1, 2)?;
        let minute = if self.follows(b':') { Some(self.number(1, 2)?) } else { None };
        let has_seconds = minute.is_some() && self.follows(b':');
        let second = if has_seconds { self.number(1, 2)? } else { 0 };
        let fraction = if has_seconds && self.follows(b'.') { self.fraction() } else { 0 };
        let minute = minute.unwrap_or_default();
        if hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        let us = i64::from(hour * 3600 + minute * 60 + second) * SECOND_US + fraction;
        Some(TimeRead { us, has_seconds })
    }

    fn fraction(&mut self) -> i64 {
        let start = self.at;
        let mut us = 0;
        while let Some(digit @ b'0'..=b'9') = self.peek() {
            if self.at - start < 6 {
                us = us * 10 + i64::from(digit - b'0');
            }
            self.at += 1;
        }
        let digits = self.at - start;
        us * 10_i64.pow(6_u32.saturating_sub(u32::try_from(digits).unwrap_or(6)))
    }
}

/// Appends a date as `yyyy-MM-dd`.
pub(crate) fn write_date(days: i32, out: &mut String) {
    let (year, month, day) = civil_of(days);
    write_year(year, out);
    out.push('-');
    write_two(month, out);
    out.push('-');
    write_two(day, out);
}

fn write_year(year: i64, out: &mut String) {
    match year {
        0..=9999 => {
            write_two((year / 100) as u32, out);
            write_two((year % 100) as u32, out);
        }
        _ => {
            let sign = if year < 0 { '-' } else { '+' };
            write!(out, "{sign}{:04}", year.unsigned_abs()).expect("a String takes everything");
        }
    }
}

fn write_two(value: u32, out: &mut String) {
    out.push((b'0' + (value / 10) as u8) as char);
    out.push((b'0' + (value % 10) as u8) as char);
}

/// Appends date and time of day to the second, `separator` between them; returns the microseconds
/// that are left.
pub(crate) fn write_date_time(us: i64, separator: char, out: &mut String) -> u32 {
    write_date(us.div_euclid(DAY_US) as i32, out);
    let of_day = us.rem_euclid(DAY_US);
    let seconds = (of_day / SECOND_US) as u32;
    out.push(separator);
    write_two(seconds / 3600, out);
    out.push(':');
    write_two(seconds / 60 % 60, out);
    out.push(':');
    write_two(seconds % 60, out);
    (of_day % SECOND_US) as u32
}

/// Appends a timestamp as a cast to STRING does: `yyyy-MM-dd HH:mm:ss[.fraction]`, the fraction
/// without trailing zeros.
pub(crate) fn write_timestamp(us: i64, out: &mut String) {
    let fraction = write_date_time(us, ' ', out);
    if fraction > 0 {
        write!(out, ".{fraction:06}").expect("a String takes everything");
        out.truncate(out.trim_end_matches('0').len());
    }
}

/// The civil date of a day.
pub(crate) fn naive_date(days: i32) -> Option<NaiveDate> {
    NaiveDate::from_epoch_days(days)
}

//! Time zones: how far their clocks are ahead of UTC, at a moment or where they show a time.
//!
//! The rules are those of java.time. A time that a change of the clock skips is one as much later
//! as the change is long, and of one that comes twice the earlier is meant, or the one that has the
//! offset of the time that it was computed from.

use std::str::FromStr;

use arrow::array::timezone::Tz;
use chrono::{Datelike, NaiveDate, NaiveDateTime, Offset, TimeZone};

use super::microseconds::{DAY_US, SECOND_US, naive};

/// The first year whose changes of clocks are not listed: tables end with those before it.
const UNLISTED_YEAR: i32 = 2099;
/// The first of the last listed years that have all forms of a year.
const FORMS_YEAR: i32 = UNLISTED_YEAR - 28;
/// Regions whose changes follow the moon, so that nothing is known of years that are not listed.
const BY_THE_MOON: [&str; 4] = ["Africa/Casablanca", "Africa/El_Aaiun", "Asia/Gaza", "Asia/Hebron"];

/// A zone, as Java reads its name.
#[derive(Clone, Debug)]
pub(crate) enum Zone {
    /// A fixed offset: microseconds ahead of UTC.
    Fixed(i64),
    /// A region by its name.
    Region(String, Tz),
}

impl Zone {
    /// UTC itself.
    pub const UTC: Self = Self::Fixed(0);

    /// Reads `+02:00`, `UTC+2`, `Z` or the name of a region; `None` if there is no such zone.
    pub fn named(name: &str) -> Option<Self> {
        let after = ["UTC", "GMT", "UT"].iter().find_map(|prefix| name.strip_prefix(prefix));
        let offset = after.filter(|rest| rest.is_empty() || rest.starts_with(['+', '-']));
        let offset = offset.unwrap_or(name);
        if let Some(sign) = offset.bytes().next().filter(|byte| matches!(byte, b'+' | b'-')) {
            let seconds = fixed_offset(&offset[1..])?;
            let seconds = if sign == b'-' { -seconds } else { seconds };
            return Some(Self::Fixed(seconds * SECOND_US));
        }
        if matches!(offset, "" | "Z") {
            return Some(Self::UTC);
        }
        Tz::from_str(name).ok().map(|region| Self::Region(name.to_owned(), region))
    }

    /// How far its clocks are ahead of UTC at a moment, in microseconds; `None` beyond the times
    /// for which that is known.
    pub fn offset_at(&self, us: i64) -> Option<i64> {
        let (name, region) = match self {
            Self::Fixed(offset) => return Some(*offset),
            Self::Region(name, region) => (name, region),
        };
        let mut time = naive(us)?;
        if time.year() >= UNLISTED_YEAR {
            if BY_THE_MOON.contains(&name.as_str()) {
                return None;
            }
            time = of_same_form(time)?;
        }
        let offset = region.offset_from_utc_datetime(&time);
        Some(i64::from(offset.fix().local_minus_utc()) * SECOND_US)
    }

    /// How far its clocks are ahead of UTC where they show `local`, in microseconds.
    pub fn offset_where(&self, local: i64) -> Option<i64> {
        if let Self::Fixed(offset) = self {
            return Some(*offset);
        }
        // No zone is a day ahead of UTC or behind it.
        let before = self.offset_at(local.checked_sub(DAY_US)?)?;
        let after = self.offset_at(local.checked_add(DAY_US)?)?;
        for offset in [before, after] {
            if self.shows(local, offset)? {
                return Some(offset);
            }
        }
        Some(before)
    }

    /// Whether its clocks show `local` with this offset.
    fn shows(&self, local: i64, offset: i64) -> Option<bool> {
        Some(self.offset_at(local.checked_sub(offset)?)? == offset)
    }

    /// What its clocks show at a moment.
    pub fn clock_at(&self, us: i64) -> Option<i64> {
        us.checked_add(self.offset_at(us)?)
    }

    /// When its clocks show `local`.
    pub fn moment_of(&self, local: i64) -> Option<i64> {
        local.checked_sub(self.offset_where(local)?)
    }

    /// When its clocks show `local`, which was computed from a moment: with the offset of that
    /// where both are possible.
    pub fn moment_near(&self, local: i64, from: i64) -> Option<i64> {
        let offset = self.offset_at(from)?;
        match self.shows(local, offset)? {
            true => local.checked_sub(offset),
            false => self.moment_of(local),
        }
    }

    /// The first moment of a day since the epoch.
    pub fn start_of_day(&self, day: i32) -> Option<i64> {
        let midnight = i64::from(day).checked_mul(DAY_US)?;
        let offset = self.offset_where(midnight)?;
        let start = midnight.checked_sub(offset)?;
        if self.offset_at(start)? == offset {
            return Some(start);
        }
        // Midnight is skipped: the day begins with the change, before what midnight stands for.
        let mut skipped = start.checked_sub(DAY_US)?;
        let mut there = start;
        while there - skipped > SECOND_US {
            let middle = skipped + (there - skipped) / 2 / SECOND_US * SECOND_US;
            match self.offset_at(middle)? == offset {
                true => skipped = middle,
                false => there = middle,
            }
        }
        Some(there)
    }
}

/// How far local time in `zone` is ahead of UTC, in microseconds, at a time of UTC.
pub(crate) fn zone_offset_of_utc_us(zone: &str, us: i64) -> Option<i64> {
    Zone::named(zone)?.offset_at(us)
}

/// How far local time in `zone` is ahead of UTC, in microseconds, at a local time.
pub(crate) fn zone_offset_us(zone: &str, local_us: i64) -> Option<i64> {
    Zone::named(zone)?.offset_where(local_us)
}

/// What Java takes three letters for (`ZoneId.SHORT_IDS`).
pub(crate) fn long_name(zone: &str) -> &str {
    match zone {
        "ACT" => "Australia/Darwin",
        "AET" => "Australia/Sydney",
        "AGT" => "America/Argentina/Buenos_Aires",
        "ART" => "Africa/Cairo",
        "AST" => "America/Anchorage",
        "BET" => "America/Sao_Paulo",
        "BST" => "Asia/Dhaka",
        "CAT" => "Africa/Harare",
        "CNT" => "America/St_Johns",
        "CST" => "America/Chicago",
        "CTT" => "Asia/Shanghai",
        "EAT" => "Africa/Addis_Ababa",
        "ECT" => "Europe/Paris",
        "EST" => "-05:00",
        "HST" => "-10:00",
        "IET" => "America/Indiana/Indianapolis",
        "IST" => "Asia/Kolkata",
        "JST" => "Asia/Tokyo",
        "MIT" => "Pacific/Apia",
        "MST" => "-07:00",
        "NET" => "Asia/Yerevan",
        "NST" => "Pacific/Auckland",
        "PLT" => "Asia/Karachi",
        "PNT" => "America/Phoenix",
        "PRT" => "America/Puerto_Rico",
        "PST" => "America/Los_Angeles",
        "SST" => "Pacific/Guadalcanal",
        "VST" => "Asia/Ho_Chi_Minh",
        other => other,
    }
}

/// The same time of a listed year that begins on the same day of the week and is as long: rules
/// name days of the week and of the month, so they are the same.
fn of_same_form(time: NaiveDateTime) -> Option<NaiveDateTime> {
    let form = |year: i32| {
        let first = NaiveDate::from_yo_opt(year, 1)?;
        Some((first.weekday(), first.leap_year()))
    };
    let wanted = form(time.year())?;
    let year = (FORMS_YEAR..UNLISTED_YEAR).find(|year| form(*year) == Some(wanted))?;
    time.with_year(year)
}

/// `h`, `hh`, `hhmm`, `hh:mm` or `hh:mm:ss`, as seconds; at most 18 hours, as in Java.
fn fixed_offset(text: &str) -> Option<i64> {
    let mut parts = [0_i64; 3];
    let number = |text: &str| -> Option<i64> {
        let plain = !text.is_empty() && text.len() <= 2 && text.bytes().all(|b| b.is_ascii_digit());
        if plain { text.parse().ok() } else { None }
    };
    if text.len() == 4 && text.bytes().all(|byte| byte.is_ascii_digit()) {
        parts = [number(&text[..2])?, number(&text[2..])?, 0];
    } else {
        for (at, part) in text.split(':').enumerate() {
            *parts.get_mut(at)? = number(part)?;
        }
    }
    let seconds = parts[0] * 3600 + parts[1] * 60 + parts[2];
    (parts[1] < 60 && parts[2] < 60 && seconds <= 18 * 3600).then_some(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(name: &str) -> Zone {
        Zone::named(name).unwrap_or_else(|| panic!("there is a zone {name}"))
    }

    fn us(text: &str) -> i64 {
        let text = if text.contains(' ') { text.to_owned() } else { format!("{text} 00:00:00") };
        let read = NaiveDateTime::parse_from_str(&text, "%Y-%m-%d %H:%M:%S%.f");
        read.expect("it is a time").and_utc().timestamp_micros()
    }

    fn shown(us: Option<i64>) -> String {
        let time = us.and_then(naive);
        time.map(|time| time.format("%Y-%m-%d %H:%M:%S%.f").to_string()).unwrap_or_default()
    }

    #[test]
    fn a_skipped_time_is_later_and_a_doubled_one_the_earlier() {
        for (name, local, moment) in [
            ("Europe/Berlin", "2024-01-01 00:00:00", "2023-12-31 23:00:00"),
            ("Europe/Berlin", "2024-07-01 00:00:00", "2024-06-30 22:00:00"),
            ("Europe/Berlin", "2024-03-31 01:59:59.999999", "2024-03-31 00:59:59.999999"),
            ("Europe/Berlin", "2024-03-31 02:00:00", "2024-03-31 01:00:00"),
            ("Europe/Berlin", "2024-03-31 02:30:00", "2024-03-31 01:30:00"),
            ("Europe/Berlin", "2024-03-31 03:00:00", "2024-03-31 01:00:00"),
            ("Europe/Berlin", "2024-10-27 01:59:59", "2024-10-26 23:59:59"),
            ("Europe/Berlin", "2024-10-27 02:30:00", "2024-10-27 00:30:00"),
            ("Europe/Berlin", "2024-10-27 03:00:00", "2024-10-27 02:00:00"),
            ("Europe/Berlin", "1880-01-01 00:00:00", "1879-12-31 23:06:32"),
            ("America/Los_Angeles", "2024-03-10 02:15:00", "2024-03-10 10:15:00"),
            ("Asia/Kolkata", "2024-07-01 00:00:00", "2024-06-30 18:30:00"),
            ("+05:45", "2024-07-01 00:00:00", "2024-06-30 18:15:00"),
            ("Pacific/Apia", "2011-12-30 12:00:00", "2011-12-30 22:00:00"),
            ("Pacific/Apia", "2011-12-31 00:30:00", "2011-12-30 10:30:00"),
        ] {
            assert_eq!(shown(zone(name).moment_of(us(local))), moment, "{local} in {name}");
        }
    }

    #[test]
    fn the_offset_of_the_time_before_is_kept() {
        let berlin = zone("Europe/Berlin");
        let (first, second) = (us("2024-10-27 00:30:00"), us("2024-10-27 01:30:00"));
        let local = us("2024-10-27 02:00:00");
        assert_eq!(berlin.clock_at(first), berlin.clock_at(second));
        assert_eq!(shown(berlin.moment_near(local, first)), "2024-10-27 00:00:00");
        assert_eq!(shown(berlin.moment_near(local, second)), "2024-10-27 01:00:00");
        let skipped = us("2024-03-31 02:30:00");
        assert_eq!(shown(berlin.moment_near(skipped, first)), "2024-03-31 01:30:00");
    }

    #[test]
    fn a_day_begins_with_its_first_moment() {
        let day = |text: &str| i32::try_from(us(text) / DAY_US).expect("it is a day");
        for (name, date, start) in [
            ("Europe/Berlin", "2024-03-31", "2024-03-30 23:00:00"),
            // At midnight clocks went to one o'clock.
            ("America/Sao_Paulo", "2018-11-04", "2018-11-04 03:00:00"),
            // Half an hour before midnight they went to half an hour after it.
            ("America/Toronto", "1919-03-31", "1919-03-31 04:30:00"),
            ("Asia/Beirut", "2024-10-27", "2024-10-26 22:00:00"),
        ] {
            assert_eq!(shown(zone(name).start_of_day(day(date))), start, "{date} in {name}");
        }
    }

    #[test]
    fn years_that_are_not_listed_have_the_last_rules() {
        for (moment, hours) in [
            ("2098-07-01", 2),
            ("2099-07-01", 2),
            ("2100-01-01", 1),
            ("2150-07-01", 2),
            ("2550-07-01", 2),
            ("2551-02-01", 1),
        ] {
            let offset = zone("Europe/Berlin").offset_at(us(moment));
            assert_eq!(offset, Some(hours * 3600 * SECOND_US), "{moment}");
        }
        let hours = zone("Africa/Casablanca").offset_at(us("2150-07-01"));
        assert_eq!(hours, None, "nobody knows");
    }

    #[test]
    fn the_ends_of_all_times_have_no_region() {
        let berlin = zone("Europe/Berlin");
        for us in [i64::MIN, i64::MAX] {
            assert_eq!(berlin.clock_at(us), None);
            assert_eq!(berlin.moment_of(us), None);
            assert_eq!(Zone::UTC.clock_at(us), Some(us));
        }
        assert_eq!(zone("+01:00").clock_at(i64::MAX), None);
        assert_eq!(zone("+01:00").moment_of(i64::MIN), None);
    }

    #[test]
    fn names_are_those_of_java() {
        for (name, hours) in [("UTC", 0), ("Z", 0), ("GMT+3", 3), ("UTC-3", -3), ("UT+1", 1)] {
            let offset = zone(name).offset_at(0);
            assert_eq!(offset, Some(hours * 3600 * SECOND_US), "{name}");
        }
        for name in ["europe/berlin", "Nowhere/City", "05:45", "+19", "UTCEurope/Berlin", "GMT3"] {
            assert!(Zone::named(name).is_none(), "{name}");
        }
    }
}

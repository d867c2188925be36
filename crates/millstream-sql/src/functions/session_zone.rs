//! The time zone of a session (`spark.sql.session.timeZone`), on its way to the plan.

use datafusion::common::config::ConfigExtension;

use super::define::without_options;
use super::zones::long_name;
use crate::values::calendar::{SECOND_US, parse_timestamp_in, write_timestamp};
use crate::values::interval_literal::{is_of_months, with_fields, with_units};
use crate::values::zone::Zone;

/// The zone of a session where nothing else is said.
const UTC: &str = "UTC";

/// A session's time zone, also among the options of that session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionZone {
    name: String,
}

impl Default for SessionZone {
    fn default() -> Self {
        Self { name: UTC.to_owned() }
    }
}

impl SessionZone {
    /// Reads the name of a region, such as `Europe/Berlin`, or an offset, such as `+02:00`. `None`
    /// if there is no such zone.
    pub fn parse(name: &str) -> Option<Self> {
        let is_there = !name.is_empty() && Zone::named(long_name(name)).is_some();
        is_there.then(|| Self { name: name.to_owned() })
    }

    /// The zone whose clocks are so many seconds ahead of UTC; `None` beyond 18 hours.
    pub fn ahead_by(seconds: i64) -> Option<Self> {
        const HOURS_MAX: u64 = 18;
        let (sign, all) = (if seconds < 0 { '-' } else { '+' }, seconds.unsigned_abs());
        let (hours, minutes, rest) = (all / 3600, all / 60 % 60, all % 60);
        let name = match (all, rest) {
            (0, _) => "Z".to_owned(),
            (_, 0) => format!("{sign}{hours:02}:{minutes:02}"),
            _ => format!("{sign}{hours:02}:{minutes:02}:{rest:02}"),
        };
        (all <= HOURS_MAX * 3600).then_some(Self { name })
    }

    /// The zone of `SET TIME ZONE INTERVAL ...`, of which `text` stands behind the last word: `3
    /// HOURS`, or `'02:30' HOUR TO MINUTE`. `None` if it is no interval, or none that a zone is
    /// ahead of UTC by.
    pub fn of_interval(text: &str) -> Option<Self> {
        let us = match text.trim().strip_prefix('\'') {
            None => with_units(text).ok().filter(|of| !is_of_months(&of.fields))?.count,
            Some(quoted) => {
                let (value, fields) = quoted.split_once('\'')?;
                let words: Vec<&str> = fields.split_whitespace().collect();
                let read = match words.as_slice() {
                    [] => with_units(value),
                    [unit] => with_units(&format!("{} {unit}", value.trim())),
                    [from, to, last] if to.eq_ignore_ascii_case("TO") => {
                        with_fields(value, from, last)
                    }
                    _ => return None,
                };
                read.ok().filter(|of| !is_of_months(&of.fields))?.count
            }
        };
        (us % SECOND_US == 0).then(|| Self::ahead_by(us / SECOND_US)).flatten()
    }

    /// A moment for one who reads texts in UTC: that of a text of a timestamp in this zone. `None`
    /// if it is none.
    pub fn in_utc(&self, timestamp: &str) -> Option<String> {
        let zone = Zone::named(long_name(&self.name))?;
        let us = parse_timestamp_in(timestamp, &zone)?;
        let mut text = String::new();
        write_timestamp(us, &mut text);
        Some(text)
    }

    /// Its name as it was given.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is the zone that plans have where nothing is said. `Z` and `+00:00` are others,
    /// whose names are shown.
    pub fn is_utc(&self) -> bool {
        self.name == UTC
    }
}

impl ConfigExtension for SessionZone {
    const PREFIX: &'static str = "millstream_session_zone";
}

without_options!(SessionZone);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_named_as_in_spark() {
        for name in ["Europe/Berlin", "UTC+3", "PST", "Z", "+2", "+5:5", "+0530", "+05:30:10"] {
            let zone = SessionZone::parse(name).unwrap_or_else(|| panic!("{name} is a zone"));
            assert_eq!((zone.name(), zone.is_utc()), (name, false));
        }
        for name in ["", "europe/berlin", "Nowhere/City", "05:45", "LOCAL"] {
            assert_eq!(SessionZone::parse(name), None, "{name}");
        }
        assert!(SessionZone::default().is_utc());
    }

    #[test]
    fn offsets_are_named_by_their_length() {
        let name = |seconds| SessionZone::ahead_by(seconds).map(|zone| zone.name);
        assert_eq!(name(9000).as_deref(), Some("+02:30"));
        assert_eq!(name(-36_000).as_deref(), Some("-10:00"));
        assert_eq!(name(3610).as_deref(), Some("+01:00:10"));
        assert_eq!(name(0).as_deref(), Some("Z"));
        assert_eq!(name(19 * 3600), None);
    }

    #[test]
    fn an_interval_says_how_far_a_zone_is_ahead() {
        let name = |text| SessionZone::of_interval(text).map(|zone| zone.name);
        for (text, zone) in [
            ("3 HOURS", Some("+03:00")),
            ("-3 HOURS 30 MINUTES", Some("-02:30")),
            ("'02:30' HOUR TO MINUTE", Some("+02:30")),
            ("'-10' HOUR", Some("-10:00")),
            ("'1 hour 10 seconds'", Some("+01:00:10")),
            ("19 HOURS", None),
            ("1 MONTH", None),
            ("1500000 MICROSECONDS", None),
            ("", None),
        ] {
            assert_eq!(name(text).as_deref(), zone, "{text}");
        }
    }

    #[test]
    fn a_text_is_read_in_the_zone() {
        let zone = SessionZone::parse("Asia/Kolkata").expect("there is such a zone");
        assert_eq!(zone.in_utc("2026-01-31").as_deref(), Some("2026-01-30 18:30:00"));
        assert_eq!(zone.in_utc("2026-01-31T12:00:00Z").as_deref(), Some("2026-01-31 12:00:00"));
        assert_eq!(zone.in_utc("yesterday"), None);
    }
}

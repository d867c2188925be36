//! The time zone of a session (`spark.sql.session.timeZone`), on its way to the plan.

use std::any::Any;

use datafusion::common::config::{ConfigEntry, ConfigExtension, ExtensionOptions};
use datafusion::common::{Result, plan_err};

use super::zones::long_name;
use crate::values::zone::Zone;

/// The zone of a session where nothing else is said.
const UTC: &str = "UTC";

/// A session's time zone, also among the options of that session. What it changes is said by the
/// functions of a plan, so it is for who makes one.
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

impl ExtensionOptions for SessionZone {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, key: &str, _: &str) -> Result<()> {
        plan_err!("there is no option {key}")
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        Vec::new()
    }
}

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
}

//! The letters of a pattern that read a zone: as Java reads them, each its own form.

use std::str::FromStr;

use arrow::array::timezone::Tz;

/// The short names that `z` reads, and the region whose clocks Java takes each for: that they are
/// those of summer or of winter it does not look at. Names that stand for clocks in several parts
/// of the world, such as IST and BST, are none.
const SHORT_NAMES: &[(&str, &str)] = &[
    ("ADT", "America/Halifax"),
    ("AEDT", "Australia/Sydney"),
    ("AEST", "Australia/Sydney"),
    ("AKDT", "America/Juneau"),
    ("AKST", "America/Juneau"),
    ("AST", "America/Halifax"),
    ("CAT", "Africa/Maputo"),
    ("CDT", "America/Chicago"),
    ("CEST", "Europe/Paris"),
    ("CET", "Europe/Paris"),
    ("CST", "America/Chicago"),
    ("CT", "America/Chicago"),
    ("EAT", "Africa/Nairobi"),
    ("EDT", "America/New_York"),
    ("EEST", "Europe/Bucharest"),
    ("EET", "Europe/Bucharest"),
    ("EST", "America/New_York"),
    ("ET", "America/New_York"),
    ("HKT", "Asia/Hong_Kong"),
    ("HST", "Pacific/Honolulu"),
    ("JST", "Asia/Tokyo"),
    ("KST", "Asia/Seoul"),
    ("MDT", "America/Denver"),
    ("MEST", "Europe/Paris"),
    ("MET", "Europe/Paris"),
    ("MSK", "Europe/Moscow"),
    ("MST", "America/Denver"),
    ("NDT", "America/St_Johns"),
    ("NST", "America/St_Johns"),
    ("NZDT", "Pacific/Auckland"),
    ("NZST", "Pacific/Auckland"),
    ("PDT", "America/Los_Angeles"),
    ("PKT", "Asia/Karachi"),
    ("PST", "America/Los_Angeles"),
    ("PT", "America/Los_Angeles"),
    ("SAST", "Africa/Johannesburg"),
    ("SGT", "Asia/Singapore"),
    ("WAT", "Africa/Lagos"),
    ("WEST", "Atlantic/Canary"),
    ("WET", "Atlantic/Canary"),
];
/// How names in full begin that `zzzz` reads, before `Standard Time`, `Daylight Time` and `Time`.
const FULL_NAMES: [(&str, &str); 4] = [
    ("Central", "America/Chicago"),
    ("Eastern", "America/New_York"),
    ("Mountain", "America/Denver"),
    ("Pacific", "America/Los_Angeles"),
];
/// Names of regions that Java has not.
const NO_REGIONS: [&str; 4] = ["EST", "HST", "MST", "ROC"];
const HOURS_MAX: u32 = 18;

/// A zone by its name or as `+02:00`, and the text behind it.
type Read<'a> = Option<(String, &'a str)>;

/// Reads what `count` times `letter` means.
pub(super) fn read(letter: char, count: usize, text: &str) -> Read<'_> {
    let or_z = |form: OffsetForm| none(text, "Z").or_else(|| form.read(text));
    match (letter, count) {
        ('X', _) => or_z(OffsetForm::of(count)),
        ('x', _) => OffsetForm::of(count).read(text),
        ('Z', 1..=3) => OffsetForm::of(2).read(text),
        ('Z', 5) => or_z(OffsetForm::of(5)),
        ('O' | 'Z', _) => behind_gmt(text, count == 4),
        ('z', 1..=3) => by_prefix(text).or_else(|| short_name(text)).or_else(|| region(text)),
        ('z', _) => by_prefix(text).or_else(|| full_name(text)).or_else(|| region(text)),
        _ => by_prefix(text).or_else(|| region(text)),
    }
}

/// A name in full; as of the short ones, whether it is that of summer is not looked at.
fn full_name(text: &str) -> Read<'_> {
    if let Some(utc) = none(text, "Coordinated Universal Time") {
        return Some(utc);
    }
    FULL_NAMES.iter().find_map(|(name, region)| {
        let (_, rest) = none(text, name)?;
        let ends = [" Standard Time", " Daylight Time", " Time"];
        let (_, rest) = ends.iter().find_map(|end| none(rest, end))?;
        Some(((*region).to_owned(), rest))
    })
}

/// `name` in letters of any case, which stands for no offset.
fn none<'a>(text: &'a str, name: &str) -> Read<'a> {
    let head = text.get(..name.len())?;
    head.eq_ignore_ascii_case(name).then(|| ("UTC".to_owned(), &text[name.len()..]))
}

/// How an offset is written.
struct OffsetForm {
    has_colons: bool,
    needs_minutes: bool,
    /// Seconds where there are some.
    has_seconds: bool,
}

impl OffsetForm {
    /// That of so many letters.
    fn of(count: usize) -> Self {
        let has_colons = count == 3 || count == 5;
        Self { has_colons, needs_minutes: count > 1, has_seconds: count > 3 }
    }

    fn read<'a>(&self, text: &'a str) -> Read<'a> {
        let sign = text.chars().next().filter(|char| matches!(char, '+' | '-'))?;
        let (hours, mut rest) = two_digits(&text[1..])?;
        let (mut minutes, mut seconds) = (0, 0);
        match part(rest, self.has_colons) {
            Some(found) => (minutes, rest) = found,
            None if self.needs_minutes => return None,
            None => {}
        }
        if self.has_seconds
            && let Some(found) = part(rest, self.has_colons)
        {
            (seconds, rest) = found;
        }
        offset(sign, [hours, minutes, seconds]).map(|offset| (offset, rest))
    }
}

fn offset(sign: char, [hours, minutes, seconds]: [u32; 3]) -> Option<String> {
    if minutes > 59 || seconds > 59 || hours * 3600 + minutes * 60 + seconds > HOURS_MAX * 3600 {
        return None;
    }
    let seconds = if seconds > 0 { format!(":{seconds:02}") } else { String::new() };
    Some(format!("{sign}{hours:02}:{minutes:02}{seconds}"))
}

fn two_digits(text: &str) -> Option<(u32, &str)> {
    let digits = text.get(..2).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
    Some((digits.parse().ok()?, &text[2..]))
}

fn part(text: &str, has_colon: bool) -> Option<(u32, &str)> {
    two_digits(if has_colon { text.strip_prefix(':')? } else { text })
}

/// `GMT`, `GMT+2` or `GMT+02:30`; in full with two digits of hours, and minutes.
fn behind_gmt(text: &str, in_full: bool) -> Read<'_> {
    let (zone, rest) = none(text, "GMT")?;
    if !rest.starts_with(['+', '-']) {
        return Some((zone, rest));
    }
    if in_full {
        return OffsetForm::of(5).read(rest);
    }
    let sign = rest.chars().next()?;
    let digits = rest[1..].bytes().take(2).take_while(u8::is_ascii_digit).count();
    let hours: u32 = rest[1..=digits].parse().ok()?;
    let (mut rest, mut minutes, mut seconds) = (&rest[1 + digits..], 0, 0);
    if let Some(found) = part(rest, true) {
        (minutes, rest) = found;
        if let Some(found) = part(rest, true) {
            (seconds, rest) = found;
        }
    }
    offset(sign, [hours, minutes, seconds]).map(|offset| (offset, rest))
}

/// An offset, alone or behind UTC, UT or GMT.
fn by_prefix(text: &str) -> Read<'_> {
    if text.starts_with(['+', '-']) {
        return OffsetForm::of(5).read(text);
    }
    let (zone, rest) = ["UTC", "UT", "GMT"].iter().find_map(|prefix| none(text, prefix))?;
    // What is no such offset is not of the zone.
    Some(OffsetForm::of(5).read(rest).unwrap_or((zone, rest)))
}

fn short_name(text: &str) -> Read<'_> {
    let end = text.find(|char: char| !is_of_region(char)).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let known = SHORT_NAMES.iter().find(|(short, _)| short.eq_ignore_ascii_case(name));
    known.map(|(_, region)| ((*region).to_owned(), rest))
}

fn region(text: &str) -> Read<'_> {
    let end = text.find(|char: char| !is_of_region(char)).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let is_name = name.starts_with(|char: char| char.is_ascii_alphabetic());
    if is_name && !NO_REGIONS.contains(&name) && Tz::from_str(name).is_ok() {
        return Some((name.to_owned(), rest));
    }
    none(text, "Z")
}

fn is_of_region(char: char) -> bool {
    char.is_ascii_alphanumeric() || matches!(char, '+' | '-' | '/' | '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The zone, if all of the text is one.
    fn whole(pattern: &str, text: &str) -> Option<String> {
        let letter = pattern.chars().next().expect("there is a letter");
        let (zone, rest) = read(letter, pattern.len(), text)?;
        rest.is_empty().then_some(zone)
    }

    #[test]
    fn letters_read_their_own_form() {
        for (pattern, text, zone) in [
            ("x", "+02", Some("+02:00")),
            ("x", "+0230", Some("+02:30")),
            ("xx", "+0200", Some("+02:00")),
            ("xx", "+02", None),
            ("xxx", "-02:30", Some("-02:30")),
            ("xxx", "+0230", None),
            ("xxxxx", "+02:30:10", Some("+02:30:10")),
            ("X", "Z", Some("UTC")),
            ("x", "Z", None),
            ("XXX", "+19:00", None),
            ("O", "GMT+2", Some("+02:00")),
            ("O", "GMT+2:30", Some("+02:30")),
            ("O", "GMT+02:00", Some("+02:00")),
            ("O", "GMT", Some("UTC")),
            ("O", "UTC+2", None),
            ("O", "+2", None),
            ("OOOO", "GMT+02:00", Some("+02:00")),
            ("OOOO", "GMT+2", None),
            ("Z", "+0200", Some("+02:00")),
            ("ZZZZ", "GMT+02:00", Some("+02:00")),
        ] {
            assert_eq!(whole(pattern, text).as_deref(), zone, "{text} as {pattern}");
        }
    }

    #[test]
    fn names_are_those_that_mean_one_region() {
        for (pattern, text, zone) in [
            ("z", "CEST", Some("Europe/Paris")),
            ("z", "cest", Some("Europe/Paris")),
            ("z", "EST", Some("America/New_York")),
            ("z", "IST", None),
            ("z", "XYZ", None),
            ("z", "PST8PDT", Some("PST8PDT")),
            ("z", "GMT+02:00", Some("+02:00")),
            ("z", "GMT+2", None),
            ("z", "UT", Some("UTC")),
            ("z", "Z", Some("UTC")),
            ("z", "+02:00", Some("+02:00")),
            ("zzzz", "CEST", None),
            ("zzzz", "UTC", Some("UTC")),
            ("VV", "Europe/Berlin", Some("Europe/Berlin")),
            ("VV", "CET", Some("CET")),
            ("VV", "CEST", None),
            ("VV", "EST", None),
        ] {
            assert_eq!(whole(pattern, text).as_deref(), zone, "{text} as {pattern}");
        }
    }
}

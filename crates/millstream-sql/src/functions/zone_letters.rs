//! The letters of a pattern that write a zone: `XXX` is its offset, `VV` its name.
//!
//! The short and long names of regions (`z`) are not known here.

use std::fmt::Write as _;

use crate::values::calendar::SECOND_US;
use crate::values::zone::Zone;

/// The letters that write a zone.
pub(super) const ALL: &str = "XxZOVz";
/// Those that write what is not known.
pub(super) const UNKNOWN: &str = "z";

/// A zone as it is written at one moment.
#[derive(Clone, Copy)]
pub(super) struct WrittenZone<'a> {
    /// What Java calls it.
    pub id: &'a str,
    /// How far it is ahead of UTC, in microseconds.
    pub offset_us: i64,
}

/// What Java calls the zone of a name: offsets have one form, `+02:00` or `UTC+02:00`.
pub(super) fn id_of(name: &str) -> String {
    let Some(Zone::Fixed(offset_us)) = Zone::named(name) else { return name.to_owned() };
    let prefixes = ["UTC", "GMT", "UT"];
    let prefix = prefixes.into_iter().find(|prefix| name.starts_with(prefix)).unwrap_or_default();
    let mut id = prefix.to_owned();
    let none = if prefix.is_empty() { "Z" } else { "" };
    write_offset(
        &Form { is_long: true, has_colons: true, has_seconds: true, none },
        offset_us,
        &mut id,
    );
    id
}

/// How an offset is written.
struct Form {
    /// Minutes also where there are none.
    is_long: bool,
    has_colons: bool,
    /// Seconds where there are some.
    has_seconds: bool,
    /// What stands for no offset.
    none: &'static str,
}

/// Appends what `count` times `letter` writes.
pub(super) fn write(letter: char, count: usize, zone: WrittenZone<'_>, out: &mut String) {
    let offset_us = zone.offset_us;
    let form = |none| {
        let (is_long, has_colons) = (count > 1, count == 3 || count == 5);
        Form { is_long, has_colons, has_seconds: count > 3, none }
    };
    match (letter, count) {
        ('X', _) => write_offset(&form("Z"), offset_us, out),
        ('x', 1) => write_offset(&form("+00"), offset_us, out),
        ('x', 3 | 5) => write_offset(&form("+00:00"), offset_us, out),
        ('x', _) => write_offset(&form("+0000"), offset_us, out),
        ('Z', 1..=3) => {
            let none = "+0000";
            let form = Form { is_long: true, has_colons: false, has_seconds: false, none };
            write_offset(&form, offset_us, out);
        }
        ('Z', 5) => write_offset(&form("Z"), offset_us, out),
        ('Z' | 'O', 4) => {
            out.push_str("GMT");
            let form = Form { is_long: true, has_colons: true, has_seconds: true, none: "" };
            write_offset(&form, offset_us, out);
        }
        ('O', _) => write_short(offset_us, out),
        _ => out.push_str(zone.id),
    }
}

/// Hours, minutes and seconds, without the sign.
fn parts(offset_us: i64) -> (char, [u64; 3]) {
    let seconds = offset_us.unsigned_abs() / SECOND_US.unsigned_abs();
    let sign = if offset_us < 0 { '-' } else { '+' };
    (sign, [seconds / 3600, seconds / 60 % 60, seconds % 60])
}

fn write_offset(form: &Form, offset_us: i64, out: &mut String) {
    let (sign, [hours, minutes, seconds]) = parts(offset_us);
    let seconds = if form.has_seconds { seconds } else { 0 };
    if hours + minutes + seconds == 0 {
        return out.push_str(form.none);
    }
    let colon = if form.has_colons { ":" } else { "" };
    let _ = write!(out, "{sign}{hours:02}");
    if form.is_long || minutes > 0 {
        let _ = write!(out, "{colon}{minutes:02}");
    }
    if seconds > 0 {
        let _ = write!(out, "{colon}{seconds:02}");
    }
}

/// `GMT+2`, or `GMT+5:45`.
fn write_short(offset_us: i64, out: &mut String) {
    out.push_str("GMT");
    let (sign, [hours, minutes, seconds]) = parts(offset_us);
    if hours + minutes + seconds == 0 {
        return;
    }
    let _ = write!(out, "{sign}{hours}");
    if minutes + seconds > 0 {
        let _ = write!(out, ":{minutes:02}");
    }
    if seconds > 0 {
        let _ = write!(out, ":{seconds:02}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(pattern: &str, offset_s: i64) -> String {
        let zone = WrittenZone { id: "Some/Where", offset_us: offset_s * SECOND_US };
        let letters = pattern.split(' ').map(|letters| {
            let mut out = String::new();
            let letter = letters.chars().next().expect("there is a letter");
            write(letter, letters.len(), zone, &mut out);
            out
        });
        letters.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn offsets_are_written_as_java_does() {
        let pattern = "X XX XXX XXXX XXXXX x xx xxx xxxx xxxxx Z ZZ ZZZ ZZZZ ZZZZZ O OOOO VV";
        let summer = "+02 +0200 +02:00 +0200 +02:00 +02 +0200 +02:00 +0200 +02:00 +0200 +0200 \
                      +0200 GMT+02:00 +02:00 GMT+2 GMT+02:00 Some/Where";
        assert_eq!(written(pattern, 7200), summer);
        let none = "Z Z Z Z Z +00 +0000 +00:00 +0000 +00:00 +0000 +0000 +0000 GMT Z GMT GMT \
                    Some/Where";
        assert_eq!(written(pattern, 0), none);
        assert_eq!(written("X XXX O OOOO", -12_600), "-0330 -03:30 GMT-3:30 GMT-03:30");
        assert_eq!(written("X XX XXXX XXXXX O", 3208), "+0053 +0053 +005328 +00:53:28 GMT+0:53:28");
    }

    #[test]
    fn names_have_one_form() {
        for (name, id) in [
            ("+2", "+02:00"),
            ("UTC+3", "UTC+03:00"),
            ("GMT+3", "GMT+03:00"),
            ("GMT+0", "GMT"),
            ("+00:00", "Z"),
            ("UTC", "UTC"),
            ("Z", "Z"),
            ("+05:30:10", "+05:30:10"),
            ("Europe/Berlin", "Europe/Berlin"),
        ] {
            assert_eq!(id_of(name), id);
        }
    }
}

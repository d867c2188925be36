//! Times in messages, without a calendar library: this crate needs one line of it.

/// A moment in words, UTC: `2026-01-01T00:00:00.123Z`.
pub(crate) fn utc(epoch_ms: i64) -> String {
    let (day, ms) = (epoch_ms.div_euclid(86_400_000), epoch_ms.rem_euclid(86_400_000));
    let (year, month, day) = civil(day);
    let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1_000 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", ms % 1_000)
}

/// A moment as AWS's signatures have it, UTC: `20260101T000000Z`.
pub fn compact_utc(epoch_ms: i64) -> String {
    utc(epoch_ms).chars().filter(|char| !"-:".contains(*char)).take(15).chain(['Z']).collect()
}

/// The Gregorian date of a day counted from 1970-01-01.
///
/// Years are taken to begin in March, so that the leap day is the last of its year; 400 years
/// have 146,097 days (Hinnant, "chrono-compatible low-level date algorithms", 2013).
fn civil(day: i64) -> (i64, i64, i64) {
    let day = day + 719_468;
    let era = day.div_euclid(146_097);
    let day_of_era = day.rem_euclid(146_097);
    let year = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month + 2) / 5 + 1;
    let (year, month) = if month < 10 { (year, month + 3) } else { (year + 1, month - 9) };
    (year + era * 400, month, day_of_month)
}

#[cfg(test)]
mod tests {
    use super::{compact_utc, utc};

    #[test]
    fn known_moments() {
        assert_eq!(utc(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(utc(1_767_225_600_123), "2026-01-01T00:00:00.123Z");
        assert_eq!(utc(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(compact_utc(1_767_225_600_123), "20260101T000000Z");
        assert_eq!(utc(-1), "1969-12-31T23:59:59.999Z");
    }
}

//! Days and dates in Java's calendar: Gregorian since 15 October 1582, Julian before. All times are
//! in UTC.

pub(crate) const DAY_MS: i64 = 24 * 3_600_000;
/// 15 October 1582, in days since 1970.
const GREGORIAN_FROM: i64 = -141_427;
/// Days from 1 March of the year 0 to 1970, in each calendar.
const GREGORIAN_ZERO: i64 = -719_468;
const JULIAN_ZERO: i64 = -719_470;

/// A moment as people write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fields {
    pub(crate) year: i64,
    /// From 1.
    pub(crate) month: i64,
    /// Of the month, from 1.
    pub(crate) day: i64,
    /// Of the year, from 1.
    pub(crate) day_of_year: i64,
    /// 0 is Sunday.
    pub(crate) weekday: i64,
    pub(crate) ms_of_day: i64,
}

impl Fields {
    /// What the calendar shows `ms` milliseconds after the start of 1970.
    pub(crate) fn of(ms: i64) -> Self {
        let days = ms.div_euclid(DAY_MS);
        let (year, month, day) = date(days);
        Self {
            year,
            month,
            day,
            day_of_year: days - day_number(year, 1, 1) + 1,
            weekday: (days + 4).rem_euclid(7),
            ms_of_day: ms.rem_euclid(DAY_MS),
        }
    }
}

/// Days since 1970. Months and days may be out of range, as with a lenient `Calendar`: month 13 is
/// January of the next year.
pub(crate) fn day_number(year: i64, month: i64, day: i64) -> i64 {
    let year = year + (month - 1).div_euclid(12);
    let month = (month - 1).rem_euclid(12) + 1;
    let gregorian = days_before(year, month, true) + day - 1;
    if gregorian >= GREGORIAN_FROM {
        return gregorian;
    }
    // The ten days that the change of calendars skipped count as Julian dates, as in Java.
    days_before(year, month, false) + day - 1
}

/// Days from 1970 to the first of a month; years begin in March, so that a leap day is a last one.
fn days_before(year: i64, month: i64, is_gregorian: bool) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let in_year = (153 * ((month + 9) % 12) + 2) / 5;
    let leap_days = year.div_euclid(4);
    let days = 365 * year + leap_days + in_year;
    if is_gregorian {
        return days - year.div_euclid(100) + year.div_euclid(400) + GREGORIAN_ZERO;
    }
    days + JULIAN_ZERO
}

fn date(days: i64) -> (i64, i64, i64) {
    let is_gregorian = days >= GREGORIAN_FROM;
    let zero = if is_gregorian { GREGORIAN_ZERO } else { JULIAN_ZERO };
    let (cycle_days, cycle_years) = if is_gregorian { (146_097, 400) } else { (1_461, 4) };
    let cycle = (days - zero).div_euclid(cycle_days);
    let in_cycle = (days - zero).rem_euclid(cycle_days);
    let year_of_cycle = if is_gregorian {
        (in_cycle - in_cycle / 1_460 + in_cycle / 36_524 - in_cycle / 146_096) / 365
    } else {
        (in_cycle - in_cycle / 1_460) / 365
    };
    let leap_days =
        if is_gregorian { year_of_cycle / 4 - year_of_cycle / 100 } else { year_of_cycle / 4 };
    let in_year = in_cycle - 365 * year_of_cycle - leap_days;
    let march_month = (5 * in_year + 2) / 153;
    let day = in_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = cycle * cycle_years + year_of_cycle + i64::from(month <= 2);
    (year, month, day)
}

/// Adds months to a moment; a day that the month does not have becomes its last one.
pub(crate) fn add_months(ms: i64, months: i64) -> i64 {
    let fields = Fields::of(ms);
    let (year, month) = (fields.year, fields.month + months);
    let (_, _, last_day) = date(day_number(year, month + 1, 1) - 1);
    let day = fields.day.min(last_day);
    day_number(year, month, day) * DAY_MS + fields.ms_of_day
}

/// Week of the year and the year it belongs to: weeks start on Sunday, and the one with 1 January
/// is the first, as in the United States.
pub(crate) fn week(fields: &Fields) -> (i64, i64) {
    let today = day_number(fields.year, fields.month, fields.day);
    let week_start = today - fields.weekday;
    let next_year = day_number(fields.year + 1, 1, 1);
    if week_start + 6 >= next_year {
        return (fields.year + 1, 1);
    }
    let first_weekday = (day_number(fields.year, 1, 1) + 4).rem_euclid(7);
    (fields.year, (fields.day_of_year - 1 + first_weekday) / 7 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_dates_agree_over_both_calendars() {
        let mut expected = None;
        for days in -800_000..800_000 {
            let (year, month, day) = date(days);
            assert_eq!(day_number(year, month, day), days, "{year}-{month}-{day}");
            if let Some((last_year, last_month, last_day)) = expected {
                let next_day = (year, month, day) == (last_year, last_month, last_day + 1);
                assert!(next_day || day == 1 || days == GREGORIAN_FROM, "{year}-{month}-{day}");
            }
            expected = Some((year, month, day));
        }
    }

    #[test]
    fn known_days() {
        assert_eq!(day_number(1970, 1, 1), 0);
        assert_eq!(day_number(1582, 10, 15), GREGORIAN_FROM);
        assert_eq!(date(GREGORIAN_FROM - 1), (1582, 10, 4));
        assert_eq!(day_number(1, 1, 1) * DAY_MS, -62_135_769_600_000);
        assert_eq!(day_number(2018, 13, 32), day_number(2019, 2, 1));
    }

    #[test]
    fn months_end_where_they_end() {
        let ms = |year, month, day| day_number(year, month, day) * DAY_MS;
        assert_eq!(add_months(ms(2018, 1, 31), 1), ms(2018, 2, 28));
        assert_eq!(add_months(ms(2020, 2, 29), 12), ms(2021, 2, 28));
        assert_eq!(add_months(ms(2018, 3, 31), -13), ms(2017, 2, 28));
    }
}

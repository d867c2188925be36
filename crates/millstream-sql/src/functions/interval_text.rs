//! Intervals as text, by the fields of their type: `INTERVAL '1-2' YEAR TO MONTH`.

use std::fmt::Write as _;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, StringArray};
use arrow::compute::cast as arrow_cast;
use arrow::datatypes::{
    DataType, DurationMicrosecondType, IntervalMonthDayNano, IntervalUnit, IntervalYearMonthType,
    TimeUnit,
};
use datafusion::common::Result;

use crate::values::calendar::{DAY_US, SECOND_US};
use crate::values::interval_literal::is_of_months;

/// The type of intervals of days and less.
pub(super) const MICROSECONDS: DataType = DataType::Duration(TimeUnit::Microsecond);

/// Whether values of the type `of` can be intervals of `fields`.
pub(super) fn is_of(of: &DataType, fields: &str) -> bool {
    match of {
        DataType::Interval(IntervalUnit::YearMonth) => is_of_months(fields),
        DataType::Duration(_) => !is_of_months(fields),
        _ => false,
    }
}

/// `values`, which are intervals of `fields`, as Spark writes them.
pub(super) fn texts(values: &ArrayRef, fields: &str) -> Result<ArrayRef> {
    let texts: StringArray = if is_of_months(fields) {
        let months = values.as_primitive::<IntervalYearMonthType>();
        months.iter().map(|months| months.map(|months| of_months(months, fields))).collect()
    } else {
        let us = arrow_cast(values, &MICROSECONDS)?;
        let us = us.as_primitive::<DurationMicrosecondType>();
        us.iter().map(|us| us.map(|us| of_microseconds(us, fields))).collect()
    };
    Ok(Arc::new(texts))
}

/// An INTERVAL of months, days and less in one: `1 years 2 months -3 days 1.5 seconds`.
pub(super) fn of_calendar(span: IntervalMonthDayNano) -> String {
    let us = span.nanoseconds / 1000;
    let (minute, hour) = (60 * SECOND_US, 3600 * SECOND_US);
    let parts = [
        (i64::from(span.months / 12), "years"),
        (i64::from(span.months % 12), "months"),
        (i64::from(span.days), "days"),
        (us / hour, "hours"),
        (us % hour / minute, "minutes"),
    ];
    let mut words: Vec<String> = parts
        .into_iter()
        .filter(|(count, _)| *count != 0)
        .map(|(count, unit)| format!("{count} {unit}"))
        .collect();
    let rest = us % minute;
    if rest != 0 || words.is_empty() {
        words.push(format!("{} seconds", with_fraction(rest)));
    }
    words.join(" ")
}

/// Seconds of microseconds, without zeros at the end.
fn with_fraction(us: i64) -> String {
    let sign = if us < 0 { "-" } else { "" };
    let (whole, below) = (us.abs() / SECOND_US, us.abs() % SECOND_US);
    match below {
        0 => format!("{sign}{whole}"),
        _ => format!("{sign}{whole}.{}", format!("{below:06}").trim_end_matches('0')),
    }
}

fn of_months(months: i32, fields: &str) -> String {
    let sign = if months < 0 { "-" } else { "" };
    let months = months.unsigned_abs();
    let digits = match fields {
        "year" => format!("{}", months / 12),
        "month" => format!("{months}"),
        _ => format!("{}-{}", months / 12, months % 12),
    };
    format!("INTERVAL '{sign}{digits}' {}", fields.to_uppercase())
}

fn of_microseconds(us: i64, fields: &str) -> String {
    let sign = if us < 0 { "-" } else { "" };
    let mut rest = us.unsigned_abs();
    let (first, last) = fields.split_once(" to ").unwrap_or((fields, fields));
    let units = [
        ("day", DAY_US.unsigned_abs(), ""),
        ("hour", 3600 * SECOND_US.unsigned_abs(), " "),
        ("minute", 60 * SECOND_US.unsigned_abs(), ":"),
        ("second", SECOND_US.unsigned_abs(), ":"),
    ];
    let mut digits = String::new();
    let mut begun = false;
    for (unit, length, separator) in units {
        if begun {
            digits.push_str(separator);
        }
        begun |= unit == first;
        if begun {
            let _ = match unit {
                "day" => write!(digits, "{}", rest / length),
                _ => write!(digits, "{:02}", rest / length),
            };
            rest %= length;
        }
        if unit == last {
            break;
        }
    }
    if last == "second" && rest > 0 {
        let _ = write!(digits, ".{}", format!("{rest:06}").trim_end_matches('0'));
    }
    format!("INTERVAL '{sign}{digits}' {}", fields.to_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_say_the_form() {
        assert_eq!(of_months(-14, "year to month"), "INTERVAL '-1-2' YEAR TO MONTH");
        assert_eq!(of_months(24, "year"), "INTERVAL '2' YEAR");
        let us = DAY_US + 3_723_500_000;
        let cases = [
            ("day", "INTERVAL '1' DAY"),
            ("day to hour", "INTERVAL '1 01' DAY TO HOUR"),
            ("hour to second", "INTERVAL '25:02:03.5' HOUR TO SECOND"),
            ("day to second", "INTERVAL '1 01:02:03.5' DAY TO SECOND"),
            ("minute to second", "INTERVAL '1502:03.5' MINUTE TO SECOND"),
        ];
        for (fields, text) in cases {
            assert_eq!(of_microseconds(us, fields), text);
        }
    }

    #[test]
    fn parts_of_an_interval_have_their_own_signs() {
        let text =
            |months, days, us: i64| of_calendar(IntervalMonthDayNano::new(months, days, us * 1000));
        assert_eq!(text(0, 0, 0), "0 seconds");
        assert_eq!(
            text(14, -3, 3_661_500_000),
            "1 years 2 months -3 days 1 hours 1 minutes 1.5 seconds"
        );
        assert_eq!(text(-13, 1, 0), "-1 years -1 months 1 days");
        assert_eq!(text(0, 0, -500_000), "-0.5 seconds");
        assert_eq!(text(0, 0, 60_000_000), "1 minutes");
    }
}

//! Functions of dates and times.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float64Type, Int32Type, Int64Type, TimeUnit,
    TimestampMicrosecondType,
};
use chrono::{Datelike, NaiveDate, NaiveDateTime, Timelike};
use datafusion::common::{Result, exec_err, plan_err};

use super::define::{
    Arguments, Function, Param, invalid, returns_date, returns_int, returns_long, returns_text,
    returns_timestamp,
};
use super::time_pattern::TimePattern;
use crate::types::{spark_type, timestamp};
use crate::values::calendar::{
    DAY_US, SECOND_US, civil_of, days_of, naive, naive_date, parse_date, parse_timestamp,
    parse_timestamp_ntz,
};

use Param::{Any, AnyTime, Date, Int, Long, Text, Timestamp};

/// What `unix_timestamp` and `from_unixtime` use if no pattern is given.
pub(crate) const DEFAULT_PATTERN: &str = "yyyy-MM-dd HH:mm:ss";

/// What `monthname` gives.
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

macro_rules! part {
    ($name:literal, $aliases:expr, $part:expr) => {
        Function::new($name, &[AnyTime], returns_int, |args| part(args, $part)).aliases($aliases)
    };
}

pub(super) const FUNCTIONS: &[Function] = &[
    part!("year", &[], |time| time.year()),
    part!("quarter", &[], |time| time.month0() as i32 / 3 + 1),
    part!("month", &[], |time| time.month() as i32),
    part!("day", &["dayofmonth"], |time| time.day() as i32),
    part!("dayofyear", &[], |time| time.ordinal() as i32),
    part!("dayofweek", &[], |time| time.weekday().num_days_from_sunday() as i32 + 1),
    part!("weekday", &[], |time| time.weekday().num_days_from_monday() as i32),
    part!("weekofyear", &[], |time| time.iso_week().week() as i32),
    part!("hour", &[], |time| time.hour() as i32),
    part!("minute", &[], |time| time.minute() as i32),
    part!("second", &[], |time| time.second() as i32),
    Function::new("dayname", &[Date], returns_text, |args| {
        let dates = args.date(0);
        args.write(|row, out| {
            let date = dates.get(row).and_then(naive_date);
            out.extend(date.map(|date| date.weekday().to_string()));
            Ok(date.is_some())
        })
    }),
    Function::new("monthname", &[Date], returns_text, |args| {
        let dates = args.date(0);
        args.write(|row, out| {
            let month = dates.get(row).map(|days| civil_of(days).1);
            out.extend(month.and_then(|month| MONTHS.get(month as usize - 1)).copied());
            Ok(month.is_some())
        })
    })
    .keeps_nulls(),
    Function::new("date_format", &[Timestamp, Text], returns_text, date_format),
    Function::new("to_timestamp", &[Any, Text], returns_timestamp, |args| to_timestamp(args, true))
        .aliases(&["to_timestamp_ltz"])
        .required(1),
    Function::new("try_to_timestamp", &[Any, Text], returns_timestamp, |args| {
        to_timestamp(args, false)
    })
    .required(1),
    Function::new("to_timestamp_ntz", &[Any, Text], returns_ntz, to_timestamp_ntz).required(1),
    Function::new("to_date", &[Any, Text], returns_date, |args| to_date(args, true)).required(1),
    Function::new("try_to_date", &[Any, Text], returns_date, |args| to_date(args, false))
        .required(1),
    Function::new("unix_timestamp", &[Any, Text], returns_long, unix_timestamp).required(0),
    Function::new("to_unix_timestamp", &[Any, Text], returns_long, unix_timestamp).required(1),
    Function::new("from_unixtime", &[Long, Text], returns_text, from_unixtime).required(1),
    Function::new("timestamp_seconds", &[Any], returns_timestamp, timestamp_seconds),
    Function::new("timestamp_millis", &[Long], returns_timestamp, |args| scaled(args, 1000)),
    Function::new("timestamp_micros", &[Long], returns_timestamp, |args| scaled(args, 1)),
    Function::new("unix_seconds", &[Timestamp], returns_long, |args| unix(args, SECOND_US)),
    Function::new("unix_millis", &[Timestamp], returns_long, |args| unix(args, 1000)),
    Function::new("unix_micros", &[Timestamp], returns_long, |args| unix(args, 1)),
    Function::new("date_from_unix_date", &[Int], returns_date, |args| {
        let days = args.int(0);
        args.primitives::<Date32Type>(|row| Ok(days.get(row)))
    }),
    Function::new("date_add", &[Date, Int], returns_date, |args| shifted(args, 1))
        .aliases(&["dateadd"]),
    Function::new("date_sub", &[Date, Int], returns_date, |args| shifted(args, -1)),
    Function::new("datediff", &[Date, Date], returns_int, datediff).aliases(&["date_diff"]),
    Function::new("add_months", &[Date, Int], returns_date, add_months),
    Function::new("date_trunc", &[Text, Timestamp], returns_timestamp, date_trunc),
    Function::new("make_date", &[Int, Int, Int], returns_date, make_date),
    Function::new(
        "months_between",
        &[Timestamp, Timestamp, Param::Boolean],
        super::define::returns_double,
        months_between,
    )
    .required(2),
];

fn part(args: &Arguments, part: fn(NaiveDateTime) -> i32) -> Result<ArrayRef> {
    let times = args.timestamp(0);
    args.primitives::<Int32Type>(|row| Ok(times.get(row).and_then(naive).map(part)))
}

/// The pattern parsed last: it is nearly always the same for all rows.
#[derive(Default)]
pub(super) struct LastPattern {
    text: String,
    pattern: Option<TimePattern>,
}

impl LastPattern {
    pub(super) fn get(&mut self, text: &str) -> Result<&TimePattern> {
        if self.pattern.is_none() || self.text != text {
            self.pattern = Some(TimePattern::parse(text)?);
            text.clone_into(&mut self.text);
        }
        Ok(self.pattern.as_ref().expect("it was set above"))
    }

    pub(super) fn for_reading(&mut self, text: &str) -> Result<&TimePattern> {
        self.get(text)?.to_read()
    }
}

fn date_format(args: &Arguments) -> Result<ArrayRef> {
    let (times, patterns) = (args.timestamp(0), args.text(1));
    let mut last = LastPattern::default();
    args.write(|row, out| match (times.get(row), patterns.get(row)) {
        (Some(us), Some(pattern)) => Ok(last.get(pattern)?.write(us, out)),
        _ => Ok(false),
    })
}

fn from_unixtime(args: &Arguments) -> Result<ArrayRef> {
    let seconds = args.long(0);
    let patterns = (args.len() > 1).then(|| args.text(1));
    let mut last = LastPattern::default();
    args.write(|row, out| {
        let pattern = patterns.as_ref().map_or(Some(DEFAULT_PATTERN), |patterns| patterns.get(row));
        let us = seconds.get(row).and_then(|seconds| seconds.checked_mul(SECOND_US));
        match (us, pattern) {
            (Some(us), Some(pattern)) => Ok(last.get(pattern)?.write(us, out)),
            _ => Ok(false),
        }
    })
}

/// Reads the text argument 0 by the pattern argument 1, or by `default`; microseconds.
fn read_times(
    args: &Arguments,
    strict: bool,
    by_pattern: fn(&TimePattern, &str) -> Option<i64>,
    default: fn(&str) -> Option<i64>,
    wanted: &'static str,
) -> Result<Vec<Option<i64>>> {
    let texts = args.text(0);
    let patterns = (args.len() > 1).then(|| args.text(1));
    let mut last = LastPattern::default();
    let read = |row| {
        let Some(text) = texts.get(row) else { return Ok(None) };
        let time = match &patterns {
            Some(patterns) => match patterns.get(row) {
                Some(pattern) => by_pattern(last.for_reading(pattern)?, text),
                None => return Ok(None),
            },
            None => default(text),
        };
        if time.is_none() && strict { invalid(text, wanted) } else { Ok(time) }
    };
    (0..args.rows).map(read).collect()
}

/// Argument 0, which is not text, cast to `data_type`.
fn cast_first(args: &Arguments, data_type: &DataType) -> Result<ArrayRef> {
    super::cast::cast(&args.expanded(0)?, data_type, true)
}

fn to_timestamp(args: &Arguments, strict: bool) -> Result<ArrayRef> {
    if *args.data_type(0) != DataType::Utf8 {
        return cast_first(args, &timestamp());
    }
    let times = read_times(args, strict, TimePattern::read, parse_timestamp, "TIMESTAMP")?;
    args.primitives::<TimestampMicrosecondType>(|row| Ok(times[row]))
}

fn returns_ntz(args: &[DataType]) -> Result<DataType> {
    match args {
        [number, ..] if number.is_numeric() => {
            plan_err!("to_timestamp_ntz takes a text, a date or a time, not {}", spark_type(number))
        }
        _ => Ok(ntz()),
    }
}

fn ntz() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, None)
}

fn to_timestamp_ntz(args: &Arguments) -> Result<ArrayRef> {
    if *args.data_type(0) != DataType::Utf8 {
        return cast_first(args, &ntz());
    }
    let by_pattern = TimePattern::read_clock;
    let times = read_times(args, true, by_pattern, parse_timestamp_ntz, "TIMESTAMP_NTZ")?;
    args.primitives::<TimestampMicrosecondType>(|row| Ok(times[row]))
}

fn to_date(args: &Arguments, strict: bool) -> Result<ArrayRef> {
    if *args.data_type(0) != DataType::Utf8 {
        return cast_first(args, &DataType::Date32);
    }
    let midnight = |text: &str| parse_date(text).map(|days| i64::from(days) * DAY_US);
    let times = read_times(args, strict, TimePattern::read, midnight, "DATE")?;
    args.primitives::<Date32Type>(|row| Ok(times[row].map(|us| us.div_euclid(DAY_US) as i32)))
}

/// Without arguments, this is planned as a reading of the clock ([`super::rules::SparkMeaning`]).
fn unix_timestamp(args: &Arguments) -> Result<ArrayRef> {
    if args.len() == 0 {
        return exec_err!("unix_timestamp() was not planned by Spark's rules");
    }
    let times = if *args.data_type(0) == DataType::Utf8 {
        let by_default = |text: &str| TimePattern::parse(DEFAULT_PATTERN).ok()?.read(text);
        read_times(args, true, TimePattern::read, by_default, "TIMESTAMP")?
    } else {
        let times = cast_first(args, &timestamp())?;
        times.as_primitive::<TimestampMicrosecondType>().iter().collect()
    };
    // Unlike unix_seconds, which gives -2 for a second and a half before 1970.
    args.primitives::<Int64Type>(|row| Ok(times[row].map(|us| us / SECOND_US)))
}

fn timestamp_seconds(args: &Arguments) -> Result<ArrayRef> {
    match args.data_type(0) {
        DataType::Null => cast_first(args, &timestamp()),
        data_type if data_type.is_floating() => {
            let seconds = cast_first(args, &DataType::Float64)?;
            let seconds = seconds.as_primitive::<Float64Type>();
            // What is no number is no time either, and what is too far away the last there is.
            args.primitives::<TimestampMicrosecondType>(|row| {
                let seconds = seconds.is_valid(row).then(|| seconds.value(row));
                let seconds = seconds.filter(|seconds| seconds.is_finite());
                Ok(seconds.map(|seconds| (seconds * SECOND_US as f64) as i64))
            })
        }
        data_type if data_type.is_numeric() => {
            whole_microseconds(args.array(0).0)?;
            cast_first(args, &timestamp())
        }
        other => plan_err!("timestamp_seconds takes a number and got {}", spark_type(other)),
    }
}

/// Refuses decimals with more digits than microseconds have.
fn whole_microseconds(values: &ArrayRef) -> Result<()> {
    let DataType::Decimal128(_, scale @ 7..) = values.data_type() else { return Ok(()) };
    let beyond = 10_i128.pow(u32::from(scale.unsigned_abs()) - 6);
    let values = values.as_primitive::<Decimal128Type>();
    match values.iter().flatten().find(|value| value % beyond != 0) {
        Some(_) => exec_err!(
            "timestamp_seconds takes up to six digits after the point (rounding necessary); write \
             timestamp_seconds(round(x, 6))"
        ),
        None => Ok(()),
    }
}

fn scaled(args: &Arguments, unit_us: i64) -> Result<ArrayRef> {
    let values = args.long(0);
    args.primitives::<TimestampMicrosecondType>(|row| {
        let Some(value) = values.get(row) else { return Ok(None) };
        match value.checked_mul(unit_us) {
            Some(us) => Ok(Some(us)),
            None => exec_err!("{value} is too far away for a TIMESTAMP"),
        }
    })
}

fn unix(args: &Arguments, unit_us: i64) -> Result<ArrayRef> {
    let times = args.timestamp(0);
    args.primitives::<Int64Type>(|row| Ok(times.get(row).map(|us| us.div_euclid(unit_us))))
}

fn shifted(args: &Arguments, sign: i32) -> Result<ArrayRef> {
    let (dates, days) = (args.date(0), args.int(1));
    // As in Spark dates go round at the ends of their numbers.
    args.primitives::<Date32Type>(|row| {
        let both = dates.get(row).zip(days.get(row));
        Ok(both.map(|(date, days)| date.wrapping_add(days.wrapping_mul(sign))))
    })
}

fn datediff(args: &Arguments) -> Result<ArrayRef> {
    let (ends, starts) = (args.date(0), args.date(1));
    args.primitives::<Int32Type>(|row| {
        Ok(ends.get(row).zip(starts.get(row)).map(|(end, start)| end - start))
    })
}

/// The same day of another month, or its last day if it is shorter.
fn add_months(args: &Arguments) -> Result<ArrayRef> {
    let (dates, months) = (args.date(0), args.int(1));
    args.primitives::<Date32Type>(|row| {
        let (Some(date), Some(months)) = (dates.get(row), months.get(row)) else { return Ok(None) };
        let shift = chrono::Months::new(months.unsigned_abs());
        let date = naive_date(date);
        let moved = date.and_then(|date| match months {
            0.. => date.checked_add_months(shift),
            _ => date.checked_sub_months(shift),
        });
        match moved {
            Some(date) => Ok(Some(date.to_epoch_days())),
            None => exec_err!("{months} months away there is no DATE"),
        }
    })
}

fn date_trunc(args: &Arguments) -> Result<ArrayRef> {
    let (units, times) = (args.text(0), args.timestamp(1));
    args.primitives::<TimestampMicrosecondType>(|row| match (units.get(row), times.get(row)) {
        (Some(unit), Some(us)) => Ok(truncated(&unit.to_ascii_uppercase(), us)),
        _ => Ok(None),
    })
}

/// The beginning of the unit that `us` is in; `None` for an unknown unit, as in Spark.
pub(super) fn truncated(unit: &str, us: i64) -> Option<i64> {
    let fixed = |unit_us: i64| Some(us - us.rem_euclid(unit_us));
    let date = naive(us)?.date();
    let first_of = |month: u32| days_of(i64::from(date.year()), month, 1);
    let days = match unit {
        "MICROSECOND" => return Some(us),
        "MILLISECOND" => return fixed(1000),
        "SECOND" => return fixed(SECOND_US),
        "MINUTE" => return fixed(60 * SECOND_US),
        "HOUR" => return fixed(3600 * SECOND_US),
        "DAY" | "DD" => return fixed(DAY_US),
        "WEEK" => us.div_euclid(DAY_US) as i32 - date.weekday().num_days_from_monday() as i32,
        "MONTH" | "MON" | "MM" => first_of(date.month())?,
        "QUARTER" => first_of(date.month0() / 3 * 3 + 1)?,
        "YEAR" | "YYYY" | "YY" => first_of(1)?,
        _ => return None,
    };
    Some(i64::from(days) * DAY_US)
}

fn make_date(args: &Arguments) -> Result<ArrayRef> {
    let (years, months, days) = (args.int(0), args.int(1), args.int(2));
    args.primitives::<Date32Type>(|row| {
        let (Some(year), Some(month), Some(day)) = (years.get(row), months.get(row), days.get(row))
        else {
            return Ok(None);
        };
        match civil(year, month, day) {
            Some(days) => Ok(Some(days)),
            None => exec_err!("there is no date {year}-{month}-{day}"),
        }
    })
}

pub(super) fn civil(year: i32, month: i32, day: i32) -> Option<i32> {
    days_of(i64::from(year), u32::try_from(month).ok()?, u32::try_from(day).ok()?)
}

/// Whole months where the days of the month agree or both are last; else in months of 31 days,
/// rounded to eight digits unless the third argument is false.
fn months_between(args: &Arguments) -> Result<ArrayRef> {
    let (left, right) = (args.timestamp(0), args.timestamp(1));
    let round = (args.len() > 2).then(|| args.boolean(2));
    args.primitives::<Float64Type>(|row| {
        let round = round.as_ref().map_or(Some(true), |round| round.get(row));
        let times = (left.get(row).and_then(naive), right.get(row).and_then(naive), round);
        let (Some(left), Some(right), Some(round)) = times else { return Ok(None) };
        let of_day = |time: NaiveDateTime| (time.date(), time.num_seconds_from_midnight());
        Ok(Some(months_apart(of_day(left), of_day(right), round)))
    })
}

/// The months between two times: each a date, and the seconds since that began.
pub(super) fn months_apart(left: (NaiveDate, u32), right: (NaiveDate, u32), round: bool) -> f64 {
    let ((left, left_seconds), (right, right_seconds)) = (left, right);
    let months = (left.year() - right.year()) * 12 + left.month() as i32 - right.month() as i32;
    let is_last = |date: NaiveDate| date.succ_opt().is_some_and(|next| next.day() == 1);
    if left.day() == right.day() || (is_last(left) && is_last(right)) {
        return f64::from(months);
    }
    let seconds =
        |date: NaiveDate, of_day: u32| f64::from(date.day()) * 86_400.0 + f64::from(of_day);
    let apart = seconds(left, left_seconds) - seconds(right, right_seconds);
    let months = f64::from(months) + apart / (31.0 * 86_400.0);
    if round { (months * 1e8).round() / 1e8 } else { months }
}

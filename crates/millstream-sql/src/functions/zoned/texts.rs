//! Texts of moments by patterns, written and read in a zone.

use arrow::array::ArrayRef;
use arrow::datatypes::{Date32Type, Int64Type, TimestampMicrosecondType};
use datafusion::common::Result;

use super::super::datetime::LastPattern;
use super::super::define::{
    Arguments, Function, Param, invalid, returns_date, returns_long, returns_text,
    returns_timestamp,
};
use super::super::zones::of_last_argument;
use super::{beyond, zone_of};
use crate::values::calendar::{DAY_US, SECOND_US};
use crate::values::zone::Zone;

use Param::{Long, Text, Timestamp};

/// `date_format`.
pub(crate) const DATE_FORMAT: &str = "__date_format_in_zone";
/// `from_unixtime` with a pattern.
pub(crate) const FROM_UNIXTIME: &str = "__from_unixtime_in_zone";
/// `to_timestamp` of a text with a pattern.
pub(crate) const TO_TIMESTAMP: &str = "__to_timestamp_in_zone";
/// `try_to_timestamp` of a text with a pattern.
pub(crate) const TRY_TO_TIMESTAMP: &str = "__try_to_timestamp_in_zone";
/// `to_date` of a text with a pattern.
pub(crate) const TO_DATE: &str = "__to_date_in_zone";
/// `try_to_date` of a text with a pattern.
pub(crate) const TRY_TO_DATE: &str = "__try_to_date_in_zone";
/// `unix_timestamp` of a text with a pattern.
pub(crate) const UNIX_TIMESTAMP: &str = "__unix_timestamp_in_zone";

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new(DATE_FORMAT, &[Timestamp, Text, Text], returns_text, |args| {
        let times = args.timestamp(0);
        written(args, |row| times.get(row))
    }),
    Function::new(FROM_UNIXTIME, &[Long, Text, Text], returns_text, |args| {
        let seconds = args.long(0);
        written(args, |row| seconds.get(row)?.checked_mul(SECOND_US))
    }),
    Function::new(TO_TIMESTAMP, &[Text, Text, Text], returns_timestamp, |args| {
        to_timestamp(args, true)
    }),
    Function::new(TRY_TO_TIMESTAMP, &[Text, Text, Text], returns_timestamp, |args| {
        to_timestamp(args, false)
    }),
    Function::new(TO_DATE, &[Text, Text, Text], returns_date, |args| to_date(args, true)),
    Function::new(TRY_TO_DATE, &[Text, Text, Text], returns_date, |args| to_date(args, false)),
    Function::new(UNIX_TIMESTAMP, &[Text, Text, Text], returns_long, unix_timestamp),
];

/// Writes times, argument 0, by the pattern argument 1.
fn written(args: &Arguments, time: impl Fn(usize) -> Option<i64>) -> Result<ArrayRef> {
    let (patterns, (zone, id)) = (args.text(1), of_last_argument(args)?);
    let mut last = LastPattern::default();
    args.write(|row, out| match (time(row), patterns.get(row)) {
        (Some(us), Some(pattern)) => last.get(pattern)?.write_in(us, (&zone, id.as_str()), out),
        _ => Ok(false),
    })
}

/// Reads the text argument 0 by the pattern argument 1.
fn read(
    args: &Arguments,
    strict: bool,
    zone: &Zone,
    wanted: &'static str,
) -> Result<Vec<Option<i64>>> {
    let (texts, patterns) = (args.text(0), args.text(1));
    let mut last = LastPattern::default();
    let read = |row| {
        let (Some(text), Some(pattern)) = (texts.get(row), patterns.get(row)) else {
            return Ok(None);
        };
        match last.for_reading(pattern)?.read_in(text, zone) {
            None if strict => invalid(text, wanted),
            time => Ok(time),
        }
    };
    (0..args.rows).map(read).collect()
}

fn to_timestamp(args: &Arguments, strict: bool) -> Result<ArrayRef> {
    let times = read(args, strict, &zone_of(args)?, "TIMESTAMP")?;
    args.primitives::<TimestampMicrosecondType>(|row| Ok(times[row]))
}

/// The day on the clocks of the zone, also of a text that has another one.
fn to_date(args: &Arguments, strict: bool) -> Result<ArrayRef> {
    let zone = zone_of(args)?;
    let times = read(args, strict, &zone, "DATE")?;
    args.primitives::<Date32Type>(|row| {
        let Some(us) = times[row] else { return Ok(None) };
        let local = zone.clock_at(us).ok_or_else(beyond)?;
        Ok(Some(local.div_euclid(DAY_US) as i32))
    })
}

fn unix_timestamp(args: &Arguments) -> Result<ArrayRef> {
    let times = read(args, true, &zone_of(args)?, "TIMESTAMP")?;
    args.primitives::<Int64Type>(|row| Ok(times[row].map(|us| us / SECOND_US)))
}

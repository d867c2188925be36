//! `to_utc_timestamp`, `from_utc_timestamp` and `convert_timezone`: the clock of a zone, shown as
//! if it were that of another one.

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::{DataType, TimeUnit, TimestampMicrosecondType};
use datafusion::common::{DataFusionError, Result, exec_datafusion_err, exec_err};

use super::define::{Arguments, Function, Param, returns_timestamp};
use super::zone_letters::id_of;
pub(super) use crate::values::zone::long_name;
use crate::values::zone::{Zone, zone_offset_of_utc_us, zone_offset_us};

use Param::{Text, Timestamp};

pub(super) const FUNCTIONS: &[Function] = &[
    // A time that a zone skips is one after the change; of a time that it has twice, the earlier.
    Function::new("to_utc_timestamp", &[Timestamp, Text], returns_timestamp, |args| {
        moved(args, |us, zone| Some(us.checked_sub(zone_offset_us(zone, us)?)))
    }),
    Function::new("from_utc_timestamp", &[Timestamp, Text], returns_timestamp, |args| {
        moved(args, |us, zone| Some(us.checked_add(zone_offset_of_utc_us(zone, us)?)))
    }),
    Function::new(
        "convert_timezone",
        &[Text, Text, Timestamp],
        |_| Ok(DataType::Timestamp(TimeUnit::Microsecond, None)),
        converted,
    ),
];

/// Times moved by what `by` makes of them and a zone: none where there is no such zone.
fn moved(args: &Arguments, by: fn(i64, &str) -> Option<Option<i64>>) -> Result<ArrayRef> {
    let (times, zones) = (args.timestamp(0), args.text(1));
    args.primitives::<TimestampMicrosecondType>(|row| {
        let (Some(us), Some(zone)) = (times.get(row), zones.get(row)) else { return Ok(None) };
        match by(us, long_name(zone)) {
            Some(Some(us)) => Ok(Some(us)),
            Some(None) => exec_err!("a time in the zone '{zone}' is beyond what a TIMESTAMP holds"),
            None => Err(unknown(zone)),
        }
    })
}

/// The clock of the zone argument 1 where that of argument 0 shows argument 2.
fn converted(args: &Arguments) -> Result<ArrayRef> {
    let (sources, targets, times) = (args.text(0), args.text(1), args.timestamp(2));
    args.primitives::<TimestampMicrosecondType>(|row| {
        let (Some(source), Some(target), Some(us)) =
            (sources.get(row), targets.get(row), times.get(row))
        else {
            return Ok(None);
        };
        let from = zone_offset_us(long_name(source), us).ok_or_else(|| unknown(source))?;
        let utc = us.checked_sub(from);
        let to = match utc {
            Some(utc) => {
                zone_offset_of_utc_us(long_name(target), utc).ok_or_else(|| unknown(target))?
            }
            None => 0,
        };
        match utc.and_then(|utc| utc.checked_add(to)) {
            Some(us) => Ok(Some(us)),
            None => exec_err!("a time in the zone '{target}' is beyond what a TIMESTAMP holds"),
        }
    })
}

fn unknown(zone: &str) -> DataFusionError {
    exec_datafusion_err!(
        "there is no time zone '{zone}'; write a region, such as Europe/Berlin, or an offset, \
         such as +02:00"
    )
}

/// Refuses a zone that does not exist.
pub(super) fn check(zone: &str) -> Result<()> {
    zone_offset_us(long_name(zone), 0).map(|_| ()).ok_or_else(|| unknown(zone))
}

/// The zone of a name, as [`check`] takes it.
pub(super) fn named(zone: &str) -> Result<Zone> {
    Zone::named(long_name(zone)).ok_or_else(|| unknown(zone))
}

/// The zone that the last argument of a call names, and what Java calls it.
pub(super) fn of_last_argument(args: &Arguments) -> Result<(Zone, String)> {
    let at = args.len() - 1;
    let name = if args.array(at).0.is_empty() { None } else { args.text(at).get(0) };
    let name = long_name(name.unwrap_or("UTC"));
    Ok((named(name)?, id_of(name)))
}

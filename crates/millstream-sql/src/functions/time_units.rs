//! `timestampadd` and `timestampdiff`, whose unit is text by now.

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Int64Type, TimestampMicrosecondType};
use datafusion::common::{Result, exec_datafusion_err, exec_err, plan_err};

use super::define::{Arguments, Function, Param, returns_long};
use crate::types::spark_type;
use crate::values::time_units::{TIME_ADD, TIME_DIFFERENCE, TimeUnit, added, between, unit_of};

use Param::{EventTime, Long, Text};

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new(TIME_ADD, &[Text, Long, EventTime], |args| time(&args[2]), time_add),
    Function::new(
        TIME_DIFFERENCE,
        &[Text, EventTime, EventTime],
        |args| {
            time(&args[1])?;
            time(&args[2])?;
            returns_long(args)
        },
        time_difference,
    ),
];

/// # Errors
/// The type is not that of a time: a number is none here, although a cast makes a time of it.
fn time(given: &DataType) -> Result<DataType> {
    match given {
        DataType::Timestamp(..) => Ok(given.clone()),
        other => plan_err!("expected a TIMESTAMP, found {}", spark_type(other)),
    }
}

fn unit(args: &Arguments, row: usize) -> Result<TimeUnit> {
    let name = args.text(0).get(row).unwrap_or_default();
    unit_of(name).ok_or_else(|| exec_datafusion_err!("'{name}' is no unit of time"))
}

fn time_add(args: &Arguments) -> Result<ArrayRef> {
    let (counts, times) = (args.long(1), args.timestamp(2));
    args.primitives::<TimestampMicrosecondType>(|row| {
        let Some((count, us)) = counts.get(row).zip(times.get(row)) else { return Ok(None) };
        match added(us, count, unit(args, row)?) {
            Some(us) => Ok(Some(us)),
            None => exec_err!("there is no TIMESTAMP that far away (DATETIME_OVERFLOW)"),
        }
    })
}

fn time_difference(args: &Arguments) -> Result<ArrayRef> {
    let (starts, ends) = (args.timestamp(1), args.timestamp(2));
    args.primitives::<Int64Type>(|row| {
        let Some((start, end)) = starts.get(row).zip(ends.get(row)) else { return Ok(None) };
        match between(start, end, unit(args, row)?) {
            Some(count) => Ok(Some(count)),
            None => exec_err!("the times are too far from each other (ARITHMETIC_OVERFLOW)"),
        }
    })
}

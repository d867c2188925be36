//! Aggregates over the events of a group in the order of their times: funnels, sequences,
//! retention, sessions and touches of a user.
//!
//! Rows arrive in any order and in parts, so an accumulator keeps what it needs of each row, and
//! puts it into order when the result is asked for. The order depends on the rows alone: where
//! times are equal, the conditions that the rows meet decide. So the result is the same however
//! rows are divided among partitions, and in whatever order partial states are merged.

mod funnel;
mod kept;
mod retention;
mod sequence;
mod session_list;
mod touch;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::buffer::ScalarBuffer;
use arrow::datatypes::{DataType, Int64Type, TimeUnit, TimestampMicrosecondType};
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::logical_expr::function::AccumulatorArgs;

use super::define::{Aggregate, constant, refused};
use crate::types::timestamp;
use crate::values::calendar::{DAY_US, SECOND_US};
use crate::values::interval::parse_duration;

/// All of them.
pub(super) fn aggregates() -> impl Iterator<Item = &'static Aggregate> {
    let tables = [
        funnel::AGGREGATES,
        retention::AGGREGATES,
        sequence::AGGREGATES,
        session_list::AGGREGATES,
        touch::AGGREGATES,
    ];
    tables.into_iter().flatten()
}

/// How many conditions a call may have: a bit of a 32-bit number for each.
const CONDITIONS_MAX: usize = 32;

/// What is known of one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    /// Microseconds since 1970, or whatever a numeric time counts.
    time: i64,
    /// The lowest condition that the row meets, [`CONDITIONS_MAX`] if it meets none. It is part of
    /// the order: of rows of one time, those of lower conditions come first.
    first: u32,
    /// Bit N is set if the row meets condition N, counted from 0.
    met: u32,
}

impl Event {
    fn new(time: i64, met: u32) -> Self {
        Self { time, first: met.trailing_zeros(), met }
    }
}

/// The type to cast a time to: microseconds, or a BIGINT of a unit of the user's.
fn time_type(name: &str, given: &DataType) -> Result<DataType> {
    match given {
        DataType::Timestamp(_, None) => Ok(DataType::Timestamp(TimeUnit::Microsecond, None)),
        DataType::Timestamp(..) | DataType::Date32 | DataType::Date64 | DataType::Null => {
            Ok(timestamp())
        }
        given if given.is_integer() => Ok(DataType::Int64),
        other => refused(name, "a TIMESTAMP, a DATE or a whole number as its time", other),
    }
}

/// The type to cast a length of time to.
fn length_type(name: &str, given: &DataType) -> Result<DataType> {
    match given {
        DataType::Interval(_) => Ok(given.clone()),
        DataType::Duration(_) => Ok(DataType::Duration(TimeUnit::Microsecond)),
        given if given.is_string() => Ok(DataType::Utf8),
        given if given.is_integer() => Ok(DataType::Int64),
        other => refused(name, "an interval, such as '30 minutes', as its length", other),
    }
}

/// Refuses what is neither a BOOLEAN nor NULL, and more conditions than there may be.
fn check_conditions(name: &str, given: &[DataType]) -> Result<()> {
    if given.is_empty() || given.len() > CONDITIONS_MAX {
        return plan_err!(
            "function '{name}' takes 1 to {CONDITIONS_MAX} conditions and got {}",
            given.len()
        );
    }
    let other = given.iter().find(|given| !matches!(given, DataType::Boolean | DataType::Null));
    other.map_or(Ok(()), |other| refused(name, "a BOOLEAN as each condition", other))
}

/// The value of an argument that must be a literal.
fn literal(name: &str, args: &AccumulatorArgs<'_>, at: usize) -> Result<ScalarValue> {
    if args.is_distinct {
        return plan_err!("function '{name}' takes no DISTINCT");
    }
    match constant(name, args, at) {
        Ok(value) => Ok(value),
        Err(_) => plan_err!("function '{name}' needs a literal as argument {}", at + 1),
    }
}

/// A literal length of time, in the unit of times of the type `time`: microseconds for TIMESTAMPs.
fn length(name: &str, args: &AccumulatorArgs<'_>, at: usize, time: &DataType) -> Result<i64> {
    let given = literal(name, args, at)?;
    let is_number = *time == DataType::Int64;
    let length = match &given {
        ScalarValue::Int64(Some(length)) if is_number => Some(*length),
        ScalarValue::Utf8(Some(text)) if !is_number => match parse_duration(text) {
            Ok(length) => i64::try_from(length.as_micros()).ok(),
            Err(problem) => return plan_err!("function '{name}': {problem}"),
        },
        ScalarValue::IntervalMonthDayNano(Some(length)) if !is_number && length.months == 0 => {
            let days = i64::from(length.days).checked_mul(DAY_US);
            days.and_then(|days| days.checked_add(length.nanoseconds / 1_000))
        }
        ScalarValue::DurationMicrosecond(Some(length)) if !is_number => Some(*length),
        ScalarValue::DurationSecond(Some(length)) if !is_number => length.checked_mul(SECOND_US),
        _ => None,
    };
    match length.filter(|length| *length >= 0) {
        Some(length) => Ok(length),
        None if is_number => {
            plan_err!(
                "function '{name}' needs a whole number of at least 0 as its length, as its times are numbers"
            )
        }
        None => plan_err!(
            "function '{name}' needs a literal interval of at least 0, without months, as its \
             length, such as INTERVAL '30' MINUTES"
        ),
    }
}

/// The numbers behind times; those of NULLs are arbitrary.
fn times(column: &ArrayRef) -> ScalarBuffer<i64> {
    match column.data_type() {
        DataType::Int64 => column.as_primitive::<Int64Type>().values().clone(),
        _ => column.as_primitive::<TimestampMicrosecondType>().values().clone(),
    }
}

/// By row, the conditions that are true; NULL is not true.
fn conditions_met(columns: &[ArrayRef], rows: usize) -> Vec<u32> {
    let mut met = vec![0; rows];
    for (bit, column) in columns.iter().enumerate() {
        // A literal NULL may have kept its own type.
        let Some(column) = column.as_boolean_opt() else { continue };
        for (row, met) in met.iter_mut().enumerate() {
            if column.is_valid(row) && column.value(row) {
                *met |= 1 << bit;
            }
        }
    }
    met
}

/// Numbers as a column of times of the type `time`.
fn time_column(numbers: Vec<i64>, time: &DataType) -> Result<ArrayRef> {
    let numbers: ArrayRef = Arc::new(arrow::array::Int64Array::from(numbers));
    Ok(arrow::compute::cast(&numbers, time)?)
}

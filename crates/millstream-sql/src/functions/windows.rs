//! Windows of event time: `window`, `session_window`, `window_time`.
//!
//! A window is a STRUCT of its start, inclusive, and its end, exclusive. The intervals of the text
//! are microseconds by now; a sliding window becomes a call of [`LIST`], whose elements a plan
//! unnests into rows, and sessions that overlap are merged by [`super::sessions`].

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, IntervalMonthDayNanoArray, ListArray, PrimitiveArray, StructArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{
    DataType, Field, Fields, Int64Type, IntervalUnit, TimeUnit, TimestampMicrosecondType,
};
use chrono::Months;
use datafusion::common::{Result, exec_datafusion_err, exec_err, plan_err};
use datafusion::logical_expr::ScalarUDF;

use super::define::{Arguments, Function, Param};
use crate::types::{spark_type, timestamp};
use crate::values::calendar::{DAY_US, naive};
use crate::values::interval::{Interval, parse_interval};

use Param::{Any, EventTime, Long};

/// The window of a time; without overlap, since one row stays one row.
pub(crate) const WINDOW: &str = "window";
/// The windows of a time, ascending. Only plans call it, not queries.
pub(crate) const LIST: &str = "windows";
/// From a time to a gap after it.
pub(crate) const SESSION: &str = "session_window";
/// The last microsecond of a window.
pub const TIME: &str = "window_time";

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new(WINDOW, &[EventTime, Long, Long, Long], returns_window, window).required(2),
    Function::new(LIST, &[EventTime, Long, Long, Long], returns_windows, windows),
    Function::new(SESSION, &[EventTime, Any], returns_session, session),
    Function::new(TIME, &[Any], returns_time, window_time),
];

/// The function called `name` of this module, for plans that are built by hand.
pub(crate) fn function(name: &str) -> Arc<ScalarUDF> {
    let found = FUNCTIONS.iter().find(|function| function.name == name);
    found.expect("the name is one of this module's constants").udf()
}

/// The type of windows of a time or of a window, as arguments of type `time` give them.
pub(crate) fn window_type(time: &DataType) -> Result<DataType> {
    let bound = bound_type(time)?;
    let fields = ["start", "end"].map(|name| Field::new(name, bound.clone(), true));
    Ok(DataType::Struct(Fields::from(fields.to_vec())))
}

fn bound_type(time: &DataType) -> Result<DataType> {
    match time {
        DataType::Timestamp(..) => Ok(time.clone()),
        DataType::Null => Ok(timestamp()),
        DataType::Struct(_) => window_bound(time),
        other => plan_err!(
            "function 'window' needs a TIMESTAMP or a window, not a value of type {}",
            spark_type(other)
        ),
    }
}

/// The type of the bounds of a window, where `data_type` is a window's.
pub(super) fn window_bound(data_type: &DataType) -> Result<DataType> {
    if let DataType::Struct(fields) = data_type
        && let [start, end] = fields.as_ref()
        && (start.name(), end.name()) == (&"start".to_owned(), &"end".to_owned())
        && matches!(start.data_type(), DataType::Timestamp(..))
        && start.data_type() == end.data_type()
    {
        return Ok(start.data_type().clone());
    }
    plan_err!(
        "function 'window_time' needs a window, not a value of type {}",
        spark_type(data_type)
    )
}

fn returns_window(args: &[DataType]) -> Result<DataType> {
    window_type(&args[0])
}

fn returns_windows(args: &[DataType]) -> Result<DataType> {
    Ok(DataType::new_list(window_type(&args[0])?, true))
}

fn returns_session(args: &[DataType]) -> Result<DataType> {
    let is_gap = args[1].is_integer()
        || matches!(args[1], DataType::Utf8 | DataType::Null)
        || matches!(args[1], DataType::Interval(_) | DataType::Duration(_));
    if !is_gap {
        let found = spark_type(&args[1]);
        return plan_err!(
            "function 'session_window' needs an interval as its gap, such as '5 minutes', \
             not a value of type {found}"
        );
    }
    window_type(&args[0])
}

fn returns_time(args: &[DataType]) -> Result<DataType> {
    window_bound(&args[0])
}

type Times = PrimitiveArray<TimestampMicrosecondType>;

/// The times of an argument; of a window its last microsecond.
fn event_times(args: &Arguments) -> Result<Times> {
    let given = args.expanded(0)?;
    match given.data_type() {
        DataType::Struct(_) => Ok(last_microseconds(&given)),
        DataType::Null => Ok(Times::new_null(given.len())),
        _ => Ok(given.as_primitive::<TimestampMicrosecondType>().clone()),
    }
}

fn last_microseconds(windows: &ArrayRef) -> Times {
    let windows = windows.as_struct();
    let ends = windows.column(1).as_primitive::<TimestampMicrosecondType>();
    let nulls = NullBuffer::union(windows.nulls(), ends.nulls());
    let last = ends.values().iter().map(|end| end.wrapping_sub(1)).collect();
    Times::new(last, nulls)
}

/// Microseconds of a window function's literals.
struct Shape {
    size_us: i64,
    slide_us: i64,
    start_us: i64,
}

impl Shape {
    fn of(args: &Arguments) -> Result<Self> {
        let literal = |at: usize, otherwise: i64| match args.len() {
            count if count <= at => Ok(otherwise),
            _ => args.long(at).get(0).ok_or_else(|| exec_datafusion_err!("a window has no NULLs")),
        };
        let size_us = literal(1, 0)?;
        Ok(Self { size_us, slide_us: literal(2, size_us)?, start_us: literal(3, 0)? })
    }

    /// The start of the last window that `time_us` is in.
    fn last_start(&self, time_us: i64) -> Option<i64> {
        // In 128 bits, so that times near the ends of the range do not overflow; and by Euclid's
        // remainder, so that times before the epoch fall into the window that they are in.
        let since = i128::from(time_us) - i128::from(self.start_us);
        let into = since.rem_euclid(i128::from(self.slide_us));
        i64::try_from(i128::from(time_us) - into).ok()
    }

    /// The starts of all windows that `time_us` is in, ascending.
    fn starts(&self, time_us: i64) -> Option<impl Iterator<Item = i64>> {
        let last = self.last_start(time_us)?;
        // How far before the last start the first one may lie, so that its end is after the time.
        let room = i128::from(self.size_us) - 1 - (i128::from(time_us) - i128::from(last));
        let earlier = i64::try_from(room.div_euclid(i128::from(self.slide_us))).ok()?;
        last.checked_sub(earlier.checked_mul(self.slide_us)?)?;
        let slide_us = self.slide_us;
        Some((0..=earlier).rev().map(move |back| last - back * slide_us))
    }
}

fn out_of_range(time_us: i64) -> datafusion::common::DataFusionError {
    exec_datafusion_err!("the window of the time {time_us} us has no TIMESTAMP as its start or end")
}

/// Windows from their starts and ends, null where `nulls` says so.
pub(super) fn between(
    starts: Vec<i64>,
    ends: Vec<i64>,
    nulls: Option<NullBuffer>,
    window: &DataType,
) -> Result<StructArray> {
    let DataType::Struct(fields) = window else { return exec_err!("a window is a STRUCT") };
    let bounds = [starts, ends].into_iter().zip(fields.iter()).map(|(values, field)| {
        let bounds = Times::new(values.into(), nulls.clone());
        Arc::new(bounds.with_data_type(field.data_type().clone())) as ArrayRef
    });
    Ok(StructArray::new(fields.clone(), bounds.collect(), nulls))
}

fn window(args: &Arguments) -> Result<ArrayRef> {
    let (times, shape) = (event_times(args)?, Shape::of(args)?);
    if shape.size_us != shape.slide_us {
        return exec_err!(
            "windows that overlap make several rows of one; \
             they can stand in GROUP BY and in the SELECT list"
        );
    }
    let mut starts = Vec::with_capacity(times.len());
    let mut ends = Vec::with_capacity(times.len());
    for (row, time_us) in times.values().iter().copied().enumerate() {
        if times.is_null(row) {
            starts.push(0);
            ends.push(0);
            continue;
        }
        let start = shape.last_start(time_us).ok_or_else(|| out_of_range(time_us))?;
        starts.push(start);
        ends.push(start.checked_add(shape.size_us).ok_or_else(|| out_of_range(time_us))?);
    }
    Ok(Arc::new(between(starts, ends, times.nulls().cloned(), &args.returns)?))
}

fn windows(args: &Arguments) -> Result<ArrayRef> {
    let (times, shape) = (event_times(args)?, Shape::of(args)?);
    let DataType::List(element) = &args.returns else { return exec_err!("windows are a list") };
    let (mut starts, mut ends) = (Vec::new(), Vec::new());
    let mut lengths = Vec::with_capacity(times.len());
    for (row, time_us) in times.values().iter().copied().enumerate() {
        let before = starts.len();
        if times.is_valid(row) {
            for start in shape.starts(time_us).ok_or_else(|| out_of_range(time_us))? {
                starts.push(start);
                ends.push(start.checked_add(shape.size_us).ok_or_else(|| out_of_range(time_us))?);
            }
        }
        lengths.push(starts.len() - before);
    }
    let values = between(starts, ends, None, element.data_type())?;
    let offsets = OffsetBuffer::from_lengths(lengths);
    let nulls = times.nulls().cloned();
    Ok(Arc::new(ListArray::new(Arc::clone(element), offsets, Arc::new(values), nulls)))
}

fn session(args: &Arguments) -> Result<ArrayRef> {
    let times = event_times(args)?;
    let gaps = Gaps::of(args)?;
    let mut ends = Vec::with_capacity(times.len());
    let mut valid = Vec::with_capacity(times.len());
    for (row, time_us) in times.values().iter().copied().enumerate() {
        let gap = times.is_valid(row).then(|| gaps.at(row)).flatten();
        let end = match gap {
            Some(gap) => Some(after(time_us, gap).ok_or_else(|| out_of_range(time_us))?),
            None => None,
        };
        // A gap of zero or less makes no session; such rows are left out, as in Spark.
        let end = end.filter(|end| *end > time_us);
        valid.push(end.is_some());
        ends.push(end.unwrap_or(0));
    }
    let starts = times.values().to_vec();
    Ok(Arc::new(between(starts, ends, Some(valid.into()), &args.returns)?))
}

/// The gaps of a session window: microseconds, or intervals, or their text.
enum Gaps {
    Microseconds(PrimitiveArray<Int64Type>),
    Intervals(IntervalMonthDayNanoArray),
    Texts(ArrayRef),
    Nothing,
}

impl Gaps {
    fn of(args: &Arguments) -> Result<Self> {
        let given = args.expanded(1)?;
        Ok(match given.data_type() {
            DataType::Utf8 => Self::Texts(given),
            DataType::Interval(_) => {
                let wanted = DataType::Interval(IntervalUnit::MonthDayNano);
                let intervals = arrow::compute::cast(&given, &wanted)?;
                Self::Intervals(intervals.as_primitive().clone())
            }
            DataType::Duration(_) => {
                let wanted = DataType::Duration(TimeUnit::Microsecond);
                let lengths = arrow::compute::cast(&given, &wanted)?;
                let longs = arrow::compute::cast(&lengths, &DataType::Int64)?;
                Self::Microseconds(longs.as_primitive::<Int64Type>().clone())
            }
            found if found.is_integer() => {
                let longs = arrow::compute::cast(&given, &DataType::Int64)?;
                Self::Microseconds(longs.as_primitive::<Int64Type>().clone())
            }
            _ => Self::Nothing,
        })
    }

    /// The gap of a row; none where it is null or, as in Spark, where the text is no interval.
    fn at(&self, row: usize) -> Option<Interval> {
        match self {
            Self::Microseconds(values) => {
                let us = values.is_valid(row).then(|| values.value(row))?;
                Some(Interval { months: 0, us })
            }
            Self::Intervals(values) => {
                let value = values.is_valid(row).then(|| values.value(row))?;
                let days_us = i64::from(value.days).checked_mul(DAY_US)?;
                let us = days_us.checked_add(value.nanoseconds / 1000)?;
                Some(Interval { months: value.months, us })
            }
            Self::Texts(values) => {
                let values = values.as_string::<i32>();
                let text = values.is_valid(row).then(|| values.value(row))?;
                parse_interval(text).ok()
            }
            Self::Nothing => None,
        }
    }
}

/// `time_us` plus `gap`: months first, on the calendar, then the rest.
fn after(time_us: i64, gap: Interval) -> Option<i64> {
    if gap.months == 0 {
        return time_us.checked_add(gap.us);
    }
    let months = Months::new(gap.months.unsigned_abs());
    let moved = match gap.months {
        0.. => naive(time_us)?.checked_add_months(months)?,
        _ => naive(time_us)?.checked_sub_months(months)?,
    };
    moved.and_utc().timestamp_micros().checked_add(gap.us)
}

fn window_time(args: &Arguments) -> Result<ArrayRef> {
    let last = last_microseconds(&args.expanded(0)?);
    Ok(Arc::new(last.with_data_type(args.returns.clone())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts(size_us: i64, slide_us: i64, start_us: i64, time_us: i64) -> Vec<i64> {
        let shape = Shape { size_us, slide_us, start_us };
        shape.starts(time_us).expect("in range").collect()
    }

    #[test]
    fn windows_hold_their_start_and_not_their_end() {
        assert_eq!(starts(10, 10, 0, 9), [0]);
        assert_eq!(starts(10, 10, 0, 10), [10]);
        assert_eq!(starts(10, 5, 0, 10), [5, 10]);
        assert_eq!(starts(10, 5, 0, 9), [0, 5]);
    }

    #[test]
    fn the_size_need_not_be_a_multiple_of_the_slide() {
        assert_eq!(starts(10, 4, 0, 1), [-8, -4, 0]);
        assert_eq!(starts(10, 4, 0, 2), [-4, 0]);
        assert_eq!(starts(10, 4, 0, 4), [-4, 0, 4]);
    }

    #[test]
    fn alignment_is_to_the_epoch_before_it_too() {
        assert_eq!(starts(10, 10, 0, -1), [-10]);
        assert_eq!(starts(10, 10, 3, -1), [-7]);
        assert_eq!(starts(10, 10, -3, 6), [-3]);
        assert_eq!(starts(10, 10, -3, 7), [7]);
    }

    #[test]
    fn windows_at_the_ends_of_time_are_refused() {
        let shape = Shape { size_us: 10, slide_us: 10, start_us: 0 };
        assert!(shape.starts(i64::MIN).is_none());
        assert!(shape.starts(i64::MAX).is_some());
    }
}

//! `make_interval`, `try_make_interval`, `make_dt_interval` and `make_ym_interval`: intervals of
//! numbers. And `calendar_interval`, which `CAST(text AS INTERVAL)` is: one of months, days and
//! less of a text.
//!
//! Seconds are a DECIMAL(18, 6), as in Spark, so that no digit is lost.

use arrow::array::{Array, ArrayRef, AsArray, new_null_array};
use arrow::datatypes::{
    DataType, Decimal128Type, DurationMicrosecondType, IntervalMonthDayNano,
    IntervalMonthDayNanoType, IntervalUnit, IntervalYearMonthType, TimeUnit,
};
use datafusion::common::{Result, exec_err, plan_err};

use super::cast::cast;
use super::define::{Arguments, Function, Param};
use crate::types::spark_type;
use crate::values::calendar::{DAY_US, SECOND_US};
use crate::values::interval::parse_calendar;
use crate::values::interval_literal::CALENDAR_INTERVAL;

use Param::{Any, Int};

const SECONDS: DataType = DataType::Decimal128(18, 6);

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new(
        "make_ym_interval",
        &[Int, Int],
        |_| Ok(DataType::Interval(IntervalUnit::YearMonth)),
        make_ym_interval,
    )
    .required(0),
    Function::new(
        "make_dt_interval",
        &[Int, Int, Int, Any],
        |_| Ok(DataType::Duration(TimeUnit::Microsecond)),
        make_dt_interval,
    )
    .required(0),
    Function::new(
        "make_interval",
        &[Int, Int, Int, Int, Int, Int, Any],
        |_| Ok(DataType::Interval(IntervalUnit::MonthDayNano)),
        |args| make_interval(args, true),
    )
    .required(0),
    Function::new(
        "try_make_interval",
        &[Int, Int, Int, Int, Int, Int, Any],
        |_| Ok(DataType::Interval(IntervalUnit::MonthDayNano)),
        |args| make_interval(args, false),
    )
    .required(0),
    Function::new(CALENDAR_INTERVAL, &[Any], calendar_type, calendar_interval),
];

fn calendar_type(args: &[DataType]) -> Result<DataType> {
    let calendar = DataType::Interval(IntervalUnit::MonthDayNano);
    match &args[0] {
        DataType::Utf8 | DataType::Null => Ok(calendar),
        of if *of == calendar => Ok(calendar),
        other => plan_err!(
            "{} cannot be cast to INTERVAL (DATATYPE_MISMATCH); write make_interval(...), or name \
             the fields, as in INTERVAL DAY TO SECOND",
            spark_type(other)
        ),
    }
}

/// A text that is no interval is NULL, as in Spark also with ANSI mode on.
fn calendar_interval(args: &Arguments) -> Result<ArrayRef> {
    match args.data_type(0) {
        DataType::Utf8 => {}
        DataType::Null => return Ok(new_null_array(&args.returns, args.rows)),
        _ => return args.expanded(0),
    }
    let texts = args.text(0);
    args.primitives::<IntervalMonthDayNanoType>(|row| {
        let Some((months, days, us)) = texts.get(row).and_then(parse_calendar) else {
            return Ok(None);
        };
        match us.checked_mul(1000) {
            Some(nanos) => Ok(Some(IntervalMonthDayNano::new(months, days, nanos))),
            None => overflow("CAST"),
        }
    })
}

/// The arguments of a call: whole numbers, and seconds in microseconds as the last of `count`.
struct Parts<'a> {
    args: &'a Arguments,
    seconds: Option<ArrayRef>,
    wholes: usize,
}

impl<'a> Parts<'a> {
    /// The last of `count` arguments is the seconds.
    fn new(args: &'a Arguments, count: usize) -> Result<Self> {
        let has_seconds = args.len() == count;
        let seconds = has_seconds.then(|| cast(&args.expanded(count - 1)?, &SECONDS, true));
        Ok(Self { args, seconds: seconds.transpose()?, wholes: count - 1 })
    }

    /// The whole number `at` of a row, 0 where it is not given.
    fn whole(&self, at: usize, row: usize) -> Option<i64> {
        if at >= self.args.len().min(self.wholes) {
            return Some(0);
        }
        self.args.int(at).get(row).map(i64::from)
    }

    fn micros(&self, row: usize) -> Option<i128> {
        let Some(seconds) = &self.seconds else { return Some(0) };
        let seconds = seconds.as_primitive::<Decimal128Type>();
        seconds.is_valid(row).then(|| seconds.value(row))
    }
}

fn overflow<T>(what: &str) -> Result<T> {
    exec_err!("{what}: the interval is too long (INTERVAL_ARITHMETIC_OVERFLOW)")
}

fn make_ym_interval(args: &Arguments) -> Result<ArrayRef> {
    let parts = Parts { args, seconds: None, wholes: 2 };
    args.primitives::<IntervalYearMonthType>(|row| {
        let Some((years, months)) = parts.whole(0, row).zip(parts.whole(1, row)) else {
            return Ok(None);
        };
        match i32::try_from(years * 12 + months) {
            Ok(months) => Ok(Some(months)),
            Err(_) => overflow("make_ym_interval"),
        }
    })
}

/// Microseconds of hours, minutes and microseconds.
fn of_day(hours: i64, minutes: i64, micros: i128) -> i128 {
    (i128::from(hours) * 60 + i128::from(minutes)) * 60 * i128::from(SECOND_US) + micros
}

fn make_dt_interval(args: &Arguments) -> Result<ArrayRef> {
    let parts = Parts::new(args, 4)?;
    args.primitives::<DurationMicrosecondType>(|row| {
        let wholes = [0, 1, 2].map(|at| parts.whole(at, row));
        let ([Some(days), Some(hours), Some(minutes)], Some(micros)) = (wholes, parts.micros(row))
        else {
            return Ok(None);
        };
        let all = i128::from(days) * i128::from(DAY_US) + of_day(hours, minutes, micros);
        match i64::try_from(all) {
            Ok(all) => Ok(Some(all)),
            Err(_) => overflow("make_dt_interval"),
        }
    })
}

/// An interval that is too long is an error if `strict`, else NULL.
fn make_interval(args: &Arguments, strict: bool) -> Result<ArrayRef> {
    let parts = Parts::new(args, 7)?;
    args.primitives::<IntervalMonthDayNanoType>(|row| {
        let wholes = [0, 1, 2, 3, 4, 5].map(|at| parts.whole(at, row));
        let [Some(years), Some(months), Some(weeks), Some(days), Some(hours), Some(minutes)] =
            wholes
        else {
            return Ok(None);
        };
        let Some(micros) = parts.micros(row) else { return Ok(None) };
        let nanos = of_day(hours, minutes, micros) * 1000;
        let fits = (
            i32::try_from(years * 12 + months),
            i32::try_from(weeks * 7 + days),
            i64::try_from(nanos),
        );
        match fits {
            (Ok(months), Ok(days), Ok(nanos)) => {
                Ok(Some(IntervalMonthDayNano::new(months, days, nanos)))
            }
            (Err(_), ..) | (_, Err(_), _) if !strict => Ok(None),
            // To Spark it is microseconds, of which there can be more.
            _ if !strict && i64::try_from(nanos / 1000).is_err() => Ok(None),
            _ => overflow("make_interval"),
        }
    })
}

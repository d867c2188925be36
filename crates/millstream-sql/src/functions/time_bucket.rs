//! `time_bucket`: the start of the bucket that a time is in, of buckets of one size that begin at
//! an origin.
//!
//! Buckets of days and less are as many microseconds each. Those of months begin on the origin's
//! day of the month, or on the month's last day where it is shorter, which is counted from the
//! origin each time: after a short month the origin's day is meant again.

use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::compute::cast as arrow_cast;
use arrow::datatypes::{
    DataType, Int64Type, IntervalUnit, IntervalYearMonthType, TimeUnit, TimestampMicrosecondType,
};
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{Result, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::{Expr, Volatility};

use super::define::{Arguments, Function, Param};
use super::interval_text::MICROSECONDS;
use crate::types::{spark_type, timestamp};
use crate::values::calendar::{DAY_US, civil_of, days_of};

use Param::Any;

pub(super) const NAME: &str = "time_bucket";

pub(super) const FUNCTIONS: &[Function] =
    &[Function::new(NAME, &[Any, Any, Any], bucket_type, time_bucket).required(2)];

/// The type of the times; where they are all NULL, a TIMESTAMP.
fn bucket_type(args: &[DataType]) -> Result<DataType> {
    match &args[0] {
        DataType::Null | DataType::Duration(_) | DataType::Interval(IntervalUnit::YearMonth) => {}
        other => {
            return plan_err!(
                "time_bucket takes an INTERVAL of days and less, or one of months, and got {}; \
                 write INTERVAL '15' MINUTE",
                spark_type(other)
            );
        }
    }
    let mut found = None;
    for of in args[1..].iter().filter(|of| !of.is_null()) {
        let of = match of {
            DataType::Timestamp(_, Some(_)) => timestamp(),
            DataType::Timestamp(_, None) => DataType::Timestamp(TimeUnit::Microsecond, None),
            other => {
                let other = spark_type(other);
                return plan_err!("time_bucket takes a TIMESTAMP and got {other}; cast it");
            }
        };
        if *found.get_or_insert_with(|| of.clone()) != of {
            return plan_err!(
                "time_bucket takes a time and an origin of one type, both TIMESTAMP or both \
                 TIMESTAMP_NTZ; cast one of them"
            );
        }
    }
    Ok(found.unwrap_or_else(timestamp))
}

/// Refuses a size or an origin that is another one in each row, and a size that is none.
pub(super) fn check(args: &[Expr]) -> Result<()> {
    for (at, what) in [(0, "size"), (2, "origin")] {
        if args.get(at).is_some_and(varies) {
            return plan_err!("the {what} of a time_bucket must be a constant");
        }
    }
    let size = match args.first() {
        Some(Expr::Literal(value, _)) => match value {
            ScalarValue::IntervalYearMonth(months) => months.map(i64::from),
            ScalarValue::DurationSecond(size) | ScalarValue::DurationMicrosecond(size) => *size,
            _ => None,
        },
        _ => None,
    };
    match size {
        Some(..=0) => plan_err!("{NOT_POSITIVE}"),
        _ => Ok(()),
    }
}

const NOT_POSITIVE: &str = "the size of a time_bucket must be greater than zero";

fn varies(expr: &Expr) -> bool {
    let varies = expr.exists(|part| {
        Ok(match part {
            Expr::Column(_)
            | Expr::OuterReferenceColumn(..)
            | Expr::ScalarSubquery(_)
            | Expr::Exists(_)
            | Expr::InSubquery(_) => true,
            Expr::ScalarFunction(call) => call.func.signature().volatility == Volatility::Volatile,
            _ => false,
        })
    });
    varies.unwrap_or(true)
}

/// An argument as whole numbers: microseconds, or months.
struct Longs {
    values: Int64Array,
    constant: bool,
}

impl Longs {
    /// A time that is cast to `of`, or an INTERVAL.
    fn new(args: &Arguments, at: usize, of: &DataType) -> Result<Self> {
        let (values, constant) = args.array(at);
        let values = match values.data_type() {
            DataType::Interval(_) => {
                values.as_primitive::<IntervalYearMonthType>().unary::<_, Int64Type>(i64::from)
            }
            _ => {
                let us = arrow_cast(&arrow_cast(values, of)?, &DataType::Int64)?;
                us.as_primitive::<Int64Type>().clone()
            }
        };
        Ok(Self { values, constant })
    }

    fn get(&self, row: usize) -> Option<i64> {
        let at = if self.constant { 0 } else { row };
        self.values.is_valid(at).then(|| self.values.value(at))
    }
}

fn time_bucket(args: &Arguments) -> Result<ArrayRef> {
    let start: fn(i64, i64, i64) -> Option<i64> = match args.data_type(0) {
        DataType::Interval(_) => start_in_months,
        _ => start_in_microseconds,
    };
    let sizes = Longs::new(args, 0, &MICROSECONDS)?;
    let times = Longs::new(args, 1, &args.returns)?;
    let origins = match args.len() {
        2 => None,
        _ => Some(Longs::new(args, 2, &args.returns)?),
    };
    if sizes.values.iter().flatten().any(|size| size <= 0) {
        return exec_err!("{NOT_POSITIVE}");
    }
    args.primitives::<TimestampMicrosecondType>(|row| {
        let origin = origins.as_ref().map_or(Some(0), |origins| origins.get(row));
        let (Some(size), Some(time), Some(origin)) = (sizes.get(row), times.get(row), origin)
        else {
            return Ok(None);
        };
        match start(size, time, origin) {
            Some(start) => Ok(Some(start)),
            None => exec_err!("a time_bucket begins beyond what a TIMESTAMP holds"),
        }
    })
}

fn start_in_microseconds(size: i64, time: i64, origin: i64) -> Option<i64> {
    time.checked_sub(time.checked_sub(origin)?.rem_euclid(size))
}

fn start_in_months(size: i64, time: i64, origin: i64) -> Option<i64> {
    let month_of = |us: i64| {
        let (year, month, _) = civil_of(us.div_euclid(DAY_US) as i32);
        year * 12 + i64::from(month)
    };
    let months = (month_of(time) - month_of(origin)).div_euclid(size) * size;
    let start = months_after(origin, months)?;
    // The origin may be later in its month than the time is.
    if start > time { months_after(origin, months - size) } else { Some(start) }
}

/// `us` moved by whole months, to the last day of a month that is too short.
fn months_after(us: i64, months: i64) -> Option<i64> {
    let (year, month, day) = civil_of(us.div_euclid(DAY_US) as i32);
    let month = year * 12 + i64::from(month) - 1 + months;
    let (year, month) = (month.div_euclid(12), month.rem_euclid(12) as u32 + 1);
    let days = (1..=day).rev().find_map(|day| days_of(year, month, day))?;
    i64::from(days).checked_mul(DAY_US)?.checked_add(us.rem_euclid(DAY_US))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::calendar::parse_timestamp;

    #[test]
    fn months_are_counted_from_the_origin() {
        let us = |text: &str| parse_timestamp(text).expect("it is a time");
        let cases = [
            (1, "2024-03-01 12:00:00", "1970-01-31", "2024-02-29"),
            (1, "2024-03-31 00:00:00", "1970-01-31", "2024-03-31"),
            (12, "2025-03-01", "2024-02-29", "2025-02-28"),
            (3, "2024-02-15 10:00:00", "2024-08-01", "2024-02-01"),
            (1, "1968-07-15 10:00:00", "1970-01-01", "1968-07-01"),
            (1, "2024-03-15 09:59:59", "2024-03-15 10:00:00", "2024-02-15 10:00:00"),
        ];
        for (size, time, origin, start) in cases {
            assert_eq!(start_in_months(size, us(time), us(origin)), Some(us(start)), "{time}");
        }
    }

    #[test]
    fn what_has_no_timestamp_has_no_bucket() {
        assert_eq!(start_in_microseconds(10, i64::MIN, 1), None);
        assert_eq!(start_in_microseconds(i64::MAX, i64::MIN, 0), None);
        assert_eq!(start_in_months(i64::from(i32::MAX), -1, 0), None);
        assert_eq!(start_in_microseconds(10, -1, 0), Some(-10));
    }
}

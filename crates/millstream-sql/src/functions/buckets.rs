//! `width_bucket`: the number of the part of a range that a value is in, from 1; 0 before the range
//! and one more than there are parts after it.

use arrow::array::{Array, ArrayRef, AsArray, Float64Array};
use arrow::compute::cast as arrow_cast;
use arrow::datatypes::{
    DataType, DurationMicrosecondType, Float64Type, Int64Type, IntervalUnit, IntervalYearMonthType,
};
use datafusion::common::{Result, plan_err};

use super::define::{Arguments, Function, Param, returns_long};
use super::interval_text::MICROSECONDS;
use crate::types::spark_type;

use Param::{Any, Long};

pub(super) const FUNCTIONS: &[Function] =
    &[Function::new("width_bucket", &[Any, Any, Any, Long], bucket_type, width_bucket)];

/// Three numbers, or three INTERVALs of one kind.
fn bucket_type(args: &[DataType]) -> Result<DataType> {
    let kind = |of: &DataType| match of {
        DataType::Interval(IntervalUnit::YearMonth) => Some("months"),
        DataType::Duration(_) => Some("time"),
        of if of.is_numeric() || of.is_string() => Some("number"),
        _ => None,
    };
    let mut kinds = Vec::new();
    for of in args[..3].iter().filter(|of| !of.is_null()) {
        match kind(of) {
            Some(kind) => kinds.push(kind),
            None => {
                let of = spark_type(of);
                return plan_err!("width_bucket takes numbers or INTERVALs, not {of}");
            }
        }
    }
    if kinds.windows(2).any(|pair| pair[0] != pair[1]) {
        return plan_err!("width_bucket takes three numbers, or three INTERVALs of one kind");
    }
    returns_long(args)
}

/// An argument as doubles: the months or microseconds of INTERVALs.
fn doubles(args: &Arguments, at: usize) -> Result<Float64Array> {
    let values = args.expanded(at)?;
    Ok(match values.data_type() {
        DataType::Interval(_) => {
            values.as_primitive::<IntervalYearMonthType>().unary::<_, Float64Type>(f64::from)
        }
        DataType::Duration(_) => {
            let us = arrow_cast(&values, &MICROSECONDS)?;
            us.as_primitive::<DurationMicrosecondType>().unary::<_, Float64Type>(|us| us as f64)
        }
        _ => {
            let numbers = super::cast::cast(&values, &DataType::Float64, true)?;
            numbers.as_primitive::<Float64Type>().clone()
        }
    })
}

fn width_bucket(args: &Arguments) -> Result<ArrayRef> {
    let (values, from, to) = (doubles(args, 0)?, doubles(args, 1)?, doubles(args, 2)?);
    let parts = args.long(3);
    args.primitives::<Int64Type>(|row| {
        if values.is_null(row) || from.is_null(row) || to.is_null(row) {
            return Ok(None);
        }
        let range = [from.value(row), to.value(row)];
        Ok(parts.get(row).and_then(|parts| bucket(values.value(row), range, parts)))
    })
}

/// A range that goes down is counted from its upper end.
fn bucket(value: f64, [from, to]: [f64; 2], parts: i64) -> Option<i64> {
    let is_range = from.is_finite() && to.is_finite() && from != to;
    // The number after the largest one has no BIGINT.
    if parts <= 0 || parts == i64::MAX || value.is_nan() || !is_range {
        return None;
    }
    let up = from < to;
    let (before, after) =
        if up { (value < from, value >= to) } else { (value > from, value <= to) };
    let (distance, width) = if up { (value - from, to - from) } else { (from - value, from - to) };
    Some(match (before, after) {
        (true, _) => 0,
        (_, true) => parts + 1,
        _ => ((parts as f64 * distance / width) as i64).saturating_add(1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_beyond_the_range_have_a_bucket() {
        assert_eq!(bucket(f64::INFINITY, [1.0, 10.0], 10), Some(11));
        assert_eq!(bucket(f64::NEG_INFINITY, [1.0, 10.0], 10), Some(0));
        assert_eq!(bucket(f64::NAN, [1.0, 10.0], 10), None);
        assert_eq!(bucket(0.0, [f64::INFINITY, 5.0], 10), None);
        assert_eq!(bucket(5.35, [0.024, 10.06], 5), Some(3));
        assert_eq!(bucket(9.0, [10.0, 0.0], 5), Some(1));
        assert_eq!(bucket(0.0, [10.0, 0.0], 5), Some(6));
        assert_eq!(bucket(1.0, [0.0, 10.0], i64::MAX), None);
    }
}

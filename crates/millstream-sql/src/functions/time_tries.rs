//! `try_subtract` of two dates or times, `try_add` and `try_subtract` of a date and days, and of
//! INTERVALs of months, days and less in one: NULL where the operator has no result.

use arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, DurationMicrosecondType, DurationSecondType,
    Int32Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, TimeUnit,
    TimestampMicrosecondType,
};
use datafusion::common::{Result, exec_err, internal_err};

use super::common_types::common_type;
use super::define::Arguments;
use super::interval_text::MICROSECONDS;
use crate::types::timestamp;
use crate::values::calendar::{DAY_US, SECOND_US};

const CALENDAR: DataType = DataType::Interval(IntervalUnit::MonthDayNano);
const DAYS: DataType = DataType::Duration(TimeUnit::Second);

/// The types that the arguments are cast to; `None` if the function is none of such.
pub(super) fn coerced(name: &str, [left, right]: [&DataType; 2]) -> Option<Vec<DataType>> {
    let is_date = |of: &DataType| *of == DataType::Date32;
    let is_time = |of: &DataType| is_date(of) || matches!(of, DataType::Timestamp(_, Some(_)));
    match name {
        "try_add" | "try_subtract" if *left == CALENDAR && *right == CALENDAR => {
            Some(vec![CALENDAR, CALENDAR])
        }
        "try_add" | "try_subtract" if is_date(left) && right.is_signed_integer() => {
            Some(vec![DataType::Date32, DataType::Int32])
        }
        "try_add" if left.is_signed_integer() && is_date(right) => {
            Some(vec![DataType::Int32, DataType::Date32])
        }
        // NULL is an INTERVAL there.
        "try_add" if is_time(left) && right.is_null() => Some(vec![timestamp(), MICROSECONDS]),
        "try_add" if left.is_null() && is_time(right) => Some(vec![MICROSECONDS, timestamp()]),
        "try_subtract" => of_times([left, right]),
        _ => None,
    }
}

/// Two dates, or two times; text and NULL beside one are such, too.
fn of_times(types: [&DataType; 2]) -> Option<Vec<DataType>> {
    let is_time = |of: &DataType| matches!(of, DataType::Date32 | DataType::Timestamp(..));
    let is_known = |of: &DataType| is_time(of) || of.is_string() || of.is_null();
    if !types.iter().all(|of| is_known(of)) || !types.iter().any(|of| is_time(of)) {
        return None;
    }
    let known = types.into_iter().filter(|of| !of.is_null()).cloned();
    match common_type(&known.collect::<Vec<_>>())? {
        DataType::Date32 => Some(vec![DataType::Date32; 2]),
        DataType::Timestamp(_, zone) => {
            Some(vec![DataType::Timestamp(TimeUnit::Microsecond, zone); 2])
        }
        _ => None,
    }
}

/// The type of the result, of arguments as [`coerced`] has them.
pub(super) fn returns(args: &[DataType]) -> Option<DataType> {
    match args {
        [DataType::Date32, DataType::Date32] => Some(DAYS),
        [DataType::Timestamp(..), DataType::Timestamp(..)] => Some(MICROSECONDS),
        [DataType::Date32, DataType::Int32] | [DataType::Int32, DataType::Date32] => {
            Some(DataType::Date32)
        }
        [left, right] if *left == CALENDAR && *right == CALENDAR => Some(CALENDAR),
        _ => None,
    }
}

/// Whether the arguments are such as [`coerced`] has them.
pub(super) fn knows(args: &Arguments) -> bool {
    returns(&[args.data_type(0).clone(), args.data_type(1).clone()]).is_some()
}

/// The result of the function `name`.
pub(super) fn computed(name: &str, args: &Arguments) -> Result<ArrayRef> {
    let is_sum = name == "try_add";
    let (left, right) = (args.expanded(0)?, args.expanded(1)?);
    match (left.data_type(), right.data_type()) {
        (DataType::Date32, DataType::Date32) => {
            let (left, right) = (left.as_primitive::<Date32Type>(), right.as_primitive());
            args.primitives::<DurationSecondType>(|row| {
                let sides = both::<Date32Type>(left, right, row);
                Ok(sides.and_then(|(left, right)| days_between(left, right)))
            })
        }
        (DataType::Timestamp(..), DataType::Timestamp(..)) => {
            let (left, right) = (left.as_primitive(), right.as_primitive());
            args.primitives::<DurationMicrosecondType>(|row| {
                let sides = both::<TimestampMicrosecondType>(left, right, row);
                Ok(sides.and_then(|(left, right)| left.checked_sub(right)))
            })
        }
        (DataType::Date32, DataType::Int32) => moved(args, &left, &right, is_sum),
        (DataType::Int32, DataType::Date32) => moved(args, &right, &left, is_sum),
        (of, _) if *of == CALENDAR => {
            let (left, right) = (left.as_primitive(), right.as_primitive());
            args.primitives::<IntervalMonthDayNanoType>(|row| {
                match both::<IntervalMonthDayNanoType>(left, right, row) {
                    Some((left, right)) => together(left, right, is_sum),
                    None => Ok(None),
                }
            })
        }
        (left, right) => internal_err!("{name} of {left} and {right} is planned as something else"),
    }
}

fn both<T: ArrowPrimitiveType>(
    left: &PrimitiveArray<T>,
    right: &PrimitiveArray<T>,
    row: usize,
) -> Option<(T::Native, T::Native)> {
    (left.is_valid(row) && right.is_valid(row)).then(|| (left.value(row), right.value(row)))
}

/// The seconds of the days from `right` to `left`; `None` beyond the microseconds that an INTERVAL
/// has in Spark.
fn days_between(left: i32, right: i32) -> Option<i64> {
    let days = i64::from(left) - i64::from(right);
    days.checked_mul(DAY_US).map(|us| us / SECOND_US)
}

/// Dates with days added or taken off. As in Spark dates go round at the ends of their numbers.
fn moved(args: &Arguments, dates: &ArrayRef, days: &ArrayRef, is_sum: bool) -> Result<ArrayRef> {
    let (dates, days) = (dates.as_primitive::<Date32Type>(), days.as_primitive::<Int32Type>());
    args.primitives::<Date32Type>(|row| {
        if dates.is_null(row) || days.is_null(row) {
            return Ok(None);
        }
        let (date, days) = (dates.value(row), days.value(row));
        Ok(Some(if is_sum { date.wrapping_add(days) } else { date.wrapping_sub(days) }))
    })
}

/// The sum or the difference of two INTERVALs, part by part.
///
/// # Errors
/// Parts of days that are more nanoseconds than there are numbers, and not so many microseconds.
fn together(
    left: IntervalMonthDayNano,
    right: IntervalMonthDayNano,
    is_sum: bool,
) -> Result<Option<IntervalMonthDayNano>> {
    let part = |left: i32, right: i32| {
        if is_sum { left.checked_add(right) } else { left.checked_sub(right) }
    };
    let months = part(left.months, right.months);
    let (Some(months), Some(days)) = (months, part(left.days, right.days)) else {
        return Ok(None);
    };
    let (left, right) = (left.nanoseconds, right.nanoseconds);
    let rest = if is_sum { left.checked_add(right) } else { left.checked_sub(right) };
    match rest {
        Some(rest) => Ok(Some(IntervalMonthDayNano::new(months, days, rest))),
        None => exec_err!("the parts of days of the INTERVALs are more than 292 years; use days"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_from_a_time_is_one() {
        let of = |left: &DataType, right: &DataType| coerced("try_subtract", [left, right]);
        let (date, time) = (DataType::Date32, timestamp());
        let local = DataType::Timestamp(TimeUnit::Microsecond, None);
        assert_eq!(of(&date, &date), Some(vec![date.clone(); 2]));
        assert_eq!(of(&date, &DataType::Null), Some(vec![date.clone(); 2]));
        assert_eq!(of(&DataType::Utf8, &time), Some(vec![time.clone(); 2]));
        assert_eq!(of(&date, &local), Some(vec![local.clone(); 2]));
        assert_eq!(of(&local, &time), Some(vec![time.clone(); 2]));
        assert_eq!(of(&DataType::Int32, &date), None);
        assert_eq!(of(&DataType::Null, &DataType::Null), None);
        assert_eq!(of(&DataType::Utf8, &DataType::Utf8), None);
        assert_eq!(coerced("try_add", [&date, &date]), None);
    }

    #[test]
    fn what_does_not_fit_is_null() {
        assert_eq!(days_between(3, 1), Some(2 * DAY_US / SECOND_US));
        assert_eq!(days_between(i32::MAX, i32::MIN), None);
        let of = IntervalMonthDayNano::new;
        assert_eq!(together(of(1, 2, 3), of(1, 1, 1), false).unwrap(), Some(of(0, 1, 2)));
        assert_eq!(together(of(i32::MAX, 0, 0), of(1, 0, 0), true).unwrap(), None);
        assert!(together(of(0, 0, i64::MAX), of(0, 0, 1), true).is_err());
    }
}

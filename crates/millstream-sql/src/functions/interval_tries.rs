//! `try_add`, `try_subtract`, `try_multiply` and `try_divide` of INTERVALs, and of dates and times
//! with INTERVALs: NULL where the operator has no result.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{
    DataType, Date32Type, DurationMicrosecondType, DurationSecondType, FieldRef, IntervalUnit,
    IntervalYearMonthType, TimeUnit, TimestampMicrosecondType,
};
use datafusion::common::Result;

use super::define::Arguments;
use super::interval_arithmetic::scaled_by;
use super::interval_casts::is_interval;
use super::interval_text::MICROSECONDS;
use crate::types::{INTERVAL_FIELDS, timestamp};
use crate::values::calendar::{DAY_US, SECOND_US, months_later};
use crate::values::interval_literal::common_fields;

const MONTHS: DataType = DataType::Interval(IntervalUnit::YearMonth);
const DAYS: DataType = DataType::Duration(TimeUnit::Second);
const DAY_S: i64 = DAY_US / SECOND_US;

/// The types that the arguments are cast to where one is an INTERVAL; `None` if the function is
/// none of such.
pub(super) fn coerced(name: &str, [left, right]: [&DataType; 2]) -> Option<Vec<DataType>> {
    let has = [is_interval(left), is_interval(right)];
    let (span, other) = match has {
        [true, true] => return of_two(name, left, right),
        [true, false] => (left, right),
        [false, true] => (right, left),
        [false, false] => return None,
    };
    let is_first = has[0];
    let (span, other) = match name {
        "try_add" | "try_subtract" if other.is_null() => (span.clone(), span.clone()),
        "try_add" => moved(span, other)?,
        "try_subtract" if !is_first => moved(span, other)?,
        "try_multiply" => (in_microseconds(span), number(other)?),
        "try_divide" if is_first => (in_microseconds(span), number(other)?),
        _ => return None,
    };
    Some(if is_first { vec![span, other] } else { vec![other, span] })
}

fn of_two(name: &str, left: &DataType, right: &DataType) -> Option<Vec<DataType>> {
    if !matches!(name, "try_add" | "try_subtract") {
        return None;
    }
    let is_months = [left, right].map(|of| *of == MONTHS);
    match is_months {
        [true, true] => Some(vec![MONTHS, MONTHS]),
        [false, false] if *left == DAYS && *right == DAYS => Some(vec![DAYS, DAYS]),
        [false, false] => Some(vec![MICROSECONDS, MICROSECONDS]),
        _ => None,
    }
}

/// The types of an INTERVAL and of the date or the time that it is added to. A date becomes a time
/// beside what may be a part of a day.
fn moved(span: &DataType, other: &DataType) -> Option<(DataType, DataType)> {
    match other {
        DataType::Date32 if *span == MONTHS || *span == DAYS => Some((span.clone(), other.clone())),
        DataType::Date32 => Some((MICROSECONDS, timestamp())),
        DataType::Timestamp(_, zone) => {
            let other = DataType::Timestamp(TimeUnit::Microsecond, zone.clone());
            Some((in_microseconds(span), other))
        }
        _ => None,
    }
}

fn in_microseconds(span: &DataType) -> DataType {
    if *span == MONTHS { MONTHS } else { MICROSECONDS }
}

fn number(of: &DataType) -> Option<DataType> {
    match of {
        of if of.is_string() => Some(DataType::Float64),
        of if of.is_null() => Some(DataType::Int64),
        of => of.is_numeric().then(|| of.clone()),
    }
}

/// The type of the result, of arguments as [`coerced`] has them: that of the time if there is one,
/// else of the INTERVALs.
pub(super) fn returns(args: &[DataType]) -> Option<DataType> {
    let span = args.iter().find(|of| is_interval(of))?;
    let is_time = |of: &&DataType| matches!(of, DataType::Date32 | DataType::Timestamp(..));
    Some(args.iter().find(is_time).unwrap_or(span).clone())
}

/// The fields of a sum of INTERVALs, where those of its parts are known.
pub(super) fn fields(args: &[FieldRef]) -> Option<String> {
    let [left, right] = args else { return None };
    if !is_interval(left.data_type()) || left.data_type() != right.data_type() {
        return None;
    }
    let of = |field: &FieldRef| field.metadata().get(INTERVAL_FIELDS).cloned();
    common_fields(&of(left)?, &of(right)?)
}

/// The result of the function `name`.
pub(super) fn computed(name: &str, args: &Arguments) -> Result<ArrayRef> {
    let (left, right) = (args.expanded(0)?, args.expanded(1)?);
    let is_turned = !is_interval(left.data_type());
    if matches!(name, "try_multiply" | "try_divide") {
        let (spans, numbers) = if is_turned { (&right, &left) } else { (&left, &right) };
        return scaled_by(args, spans, numbers, name == "try_divide", |_| Ok(()));
    }
    // What an INTERVAL is added to is a time or another INTERVAL.
    let is_last = is_turned || is_interval(right.data_type());
    let (of, spans) = if is_last { (&left, &right) } else { (&right, &left) };
    let sign = if name == "try_subtract" { -1 } else { 1 };
    let sum = |row: usize| {
        let (of_row, span) = (count(of, row)?, count(spans, row)?);
        sum([of.data_type(), spans.data_type()], of_row, i128::from(span) * sign)
    };
    let short = |row: usize| Ok(sum(row).and_then(|sum| i32::try_from(sum).ok()));
    match &args.returns {
        DataType::Date32 => args.primitives::<Date32Type>(short),
        DataType::Interval(_) => args.primitives::<IntervalYearMonthType>(short),
        DataType::Timestamp(..) => args.primitives::<TimestampMicrosecondType>(|row| Ok(sum(row))),
        of if *of == DAYS => args.primitives::<DurationSecondType>(|row| Ok(sum(row))),
        _ => args.primitives::<DurationMicrosecondType>(|row| Ok(sum(row))),
    }
}

fn count(values: &ArrayRef, row: usize) -> Option<i64> {
    if values.is_null(row) {
        return None;
    }
    Some(match values.data_type() {
        DataType::Date32 => values.as_primitive::<Date32Type>().value(row).into(),
        DataType::Interval(_) => values.as_primitive::<IntervalYearMonthType>().value(row).into(),
        DataType::Timestamp(..) => values.as_primitive::<TimestampMicrosecondType>().value(row),
        of if *of == DAYS => values.as_primitive::<DurationSecondType>().value(row),
        _ => values.as_primitive::<DurationMicrosecondType>().value(row),
    })
}

/// `of` and the INTERVAL `span`, which has its sign; `None` beyond what the type holds.
fn sum(types: [&DataType; 2], of: i64, span: i128) -> Option<i64> {
    match types {
        [DataType::Date32, DataType::Interval(_)] => {
            let months = i32::try_from(span).ok()?;
            months_later(i32::try_from(of).ok()?, months).map(i64::from)
        }
        [DataType::Date32, _] => of.checked_add(i64::try_from(span).ok()? / DAY_S),
        [DataType::Timestamp(..), DataType::Interval(_)] => {
            let day = i32::try_from(of.div_euclid(DAY_US)).ok()?;
            let day = months_later(day, i32::try_from(span).ok()?)?;
            i64::from(day).checked_mul(DAY_US)?.checked_add(of.rem_euclid(DAY_US))
        }
        [DataType::Timestamp(..), _] => of.checked_add(i64::try_from(span).ok()?),
        [days, _] => {
            let sum = i64::try_from(i128::from(of) + span).ok()?;
            // To Spark days are microseconds, too.
            let fits = *days != DAYS || sum.checked_mul(SECOND_US).is_some();
            fits.then_some(sum)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::calendar::days_of;

    #[test]
    fn sums_end_where_their_types_do() {
        let day = |year, month, day| days_of(year, month, day).map(i64::from);
        let january = day(2024, 1, 31).expect("there is such a day");
        assert_eq!(sum([&DataType::Date32, &MONTHS], january, 1), day(2024, 2, 29));
        assert_eq!(sum([&DataType::Date32, &MONTHS], january, -2), day(2023, 11, 30));
        assert_eq!(sum([&DataType::Date32, &MONTHS], january, i32::MAX.into()), None);
        let days = |days: i64| days * DAY_S;
        assert_eq!(sum([&DAYS, &DAYS], days(106_751_991), 0), Some(days(106_751_991)));
        assert_eq!(sum([&DAYS, &DAYS], days(106_751_991), days(1).into()), None);
        let time = timestamp();
        assert_eq!(
            sum([&time, &MONTHS], january * DAY_US + 7, 1),
            day(2024, 2, 29).map(|day| { day * DAY_US + 7 })
        );
        assert_eq!(sum([&time, &MICROSECONDS], i64::MAX, 1), None);
    }

    #[test]
    fn a_date_beside_parts_of_a_day_is_a_time() {
        fn of(name: &str, left: &DataType, right: &DataType) -> Option<Vec<DataType>> {
            coerced(name, [left, right])
        }
        let date = DataType::Date32;
        assert_eq!(of("try_add", &date, &DAYS), Some(vec![date.clone(), DAYS]));
        assert_eq!(of("try_add", &MICROSECONDS, &date), Some(vec![MICROSECONDS, timestamp()]));
        assert_eq!(of("try_subtract", &MICROSECONDS, &date), None);
        assert_eq!(of("try_add", &MONTHS, &DAYS), None);
        assert_eq!(of("try_divide", &DataType::Int32, &MONTHS), None);
        assert_eq!(
            of("try_multiply", &DAYS, &DataType::Utf8),
            Some(vec![MICROSECONDS, DataType::Float64])
        );
    }
}

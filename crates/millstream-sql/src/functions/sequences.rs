//! `sequence`: whole numbers, dates or times from one to another by steps.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, ListArray};
use arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::cast as arrow_cast;
use arrow::datatypes::{
    DataType, DurationMicrosecondType, Int64Type, IntervalMonthDayNanoType, IntervalUnit,
    IntervalYearMonthType,
};
use datafusion::common::{Result, exec_err};

use super::common_types::sequence_list;
use super::define::{Arguments, Function, Param};
use super::interval_text::MICROSECONDS;
use crate::values::calendar::{DAY_US, months_later, write_date, write_timestamp};

use Param::Any;

pub(super) const FUNCTIONS: &[Function] =
    &[Function::new("sequence", &[Any, Any, Any], sequence_list, sequence)
        .required(2)
        .aliases(&["generate_series"])];

/// As many elements as Spark makes at most fit an array; this many fit a record batch besides.
const LENGTH_MAX: i128 = 1 << 27;
/// As long as the shortest month. Nothing shorter than that is taken for a month where it is found
/// out which way a step leads.
const MONTH_US_MIN: i128 = 28 * DAY_US as i128;

/// What the numbers are that a sequence is computed with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    Whole,
    /// Days of dates.
    Day,
    /// Microseconds of times.
    Microsecond,
}

impl Unit {
    fn of(item: &DataType) -> Self {
        match item {
            DataType::Date32 => Self::Day,
            DataType::Timestamp(..) => Self::Microsecond,
            _ => Self::Whole,
        }
    }

    /// The step where none is given.
    fn step(self, ahead: bool) -> Step {
        let one = if ahead { 1 } else { -1 };
        match self {
            Self::Whole => Step { rest: one, ..Step::default() },
            Self::Day | Self::Microsecond => Step { days: one, ..Step::default() },
        }
    }

    fn text(self, value: i64) -> String {
        let mut text = String::new();
        match self {
            Self::Whole => return value.to_string(),
            Self::Day => write_date(value as i32, &mut text),
            Self::Microsecond => write_timestamp(value, &mut text),
        }
        text
    }
}

/// A step; of whole numbers only the rest is one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Step {
    months: i64,
    days: i64,
    /// Microseconds beside the days, or a number.
    rest: i64,
}

impl Step {
    fn text(self, unit: Unit) -> String {
        if unit == Unit::Whole {
            return self.rest.to_string();
        }
        let parts = [(self.months, "months"), (self.days, "days"), (self.rest, "microseconds")];
        let parts = parts.iter().filter(|(count, _)| *count != 0);
        let parts: Vec<String> = parts.map(|(count, name)| format!("{count} {name}")).collect();
        if parts.is_empty() { "0 days".to_owned() } else { parts.join(" ") }
    }

    /// What comes so many steps after a time; `None` beyond the times there are.
    fn from(self, us: i64, count: i64) -> Option<i64> {
        let months = i32::try_from(self.months.checked_mul(count)?).ok()?;
        let day = i32::try_from(us.div_euclid(DAY_US)).ok()?;
        let day = i64::from(months_later(day, months)?);
        let day = day.checked_add(self.days.checked_mul(count)?)?;
        let us = day.checked_mul(DAY_US)?.checked_add(us.rem_euclid(DAY_US))?;
        us.checked_add(self.rest.checked_mul(count)?)
    }

    /// About as many microseconds as it takes.
    fn about(self) -> i128 {
        let (months, days) = (i128::from(self.months), i128::from(self.days));
        months * MONTH_US_MIN + days * i128::from(DAY_US) + i128::from(self.rest)
    }
}

/// The steps in a column.
fn steps(values: &ArrayRef) -> Result<Vec<Option<Step>>> {
    Ok(match values.data_type() {
        DataType::Interval(IntervalUnit::YearMonth) => {
            let months = values.as_primitive::<IntervalYearMonthType>().iter();
            let step = |months: i32| Step { months: months.into(), ..Step::default() };
            months.map(|months| months.map(step)).collect()
        }
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            let spans = values.as_primitive::<IntervalMonthDayNanoType>().iter();
            let spans = spans.map(|span| {
                span.map(|span| Step {
                    months: span.months.into(),
                    days: span.days.into(),
                    rest: span.nanoseconds / 1000,
                })
            });
            spans.collect()
        }
        DataType::Duration(_) => {
            let us = arrow_cast(values, &MICROSECONDS)?;
            let us = us.as_primitive::<DurationMicrosecondType>().iter();
            let step = |us: i64| Step { months: 0, days: us / DAY_US, rest: us % DAY_US };
            us.map(|us| us.map(step)).collect()
        }
        _ => {
            let numbers = arrow_cast(values, &DataType::Int64)?;
            let numbers = numbers.as_primitive::<Int64Type>().iter();
            let step = |rest: i64| Step { rest, ..Step::default() };
            numbers.map(|number| number.map(step)).collect()
        }
    })
}

/// From argument 0 to argument 1, both in it, by argument 2, or by one in their direction.
fn sequence(args: &Arguments) -> Result<ArrayRef> {
    let DataType::List(item) = &args.returns else { return exec_err!("a list has items") };
    let unit = Unit::of(item.data_type());
    let numbers = |at: usize| -> Result<Int64Array> {
        let values = arrow_cast(&args.expanded(at)?, item.data_type())?;
        let values = match unit {
            Unit::Day => arrow_cast(&values, &DataType::Int32)?,
            _ => values,
        };
        Ok(arrow_cast(&values, &DataType::Int64)?.as_primitive::<Int64Type>().clone())
    };
    let (starts, ends) = (numbers(0)?, numbers(1)?);
    let given = if args.len() > 2 { Some(steps(&args.expanded(2)?)?) } else { None };
    let value = |of: &Int64Array, row: usize| of.is_valid(row).then(|| of.value(row));
    let (mut items, mut offsets, mut valid) = (Vec::new(), vec![0_i32], Vec::new());
    for row in 0..args.rows {
        let range = value(&starts, row).zip(value(&ends, row));
        let step = match &given {
            Some(steps) => steps[row],
            None => range.map(|(start, end)| unit.step(start <= end)),
        };
        if let (Some((start, end)), Some(step)) = (range, step) {
            extend(&mut items, unit, (start, end), step)?;
        }
        valid.push(range.is_some() && step.is_some());
        match i32::try_from(items.len()) {
            Ok(length) => offsets.push(length),
            Err(_) => return exec_err!("the sequences of a micro-batch have too many elements"),
        }
    }
    let items: ArrayRef = Arc::new(Int64Array::from(items));
    let items = match unit {
        Unit::Day => arrow_cast(&items, &DataType::Int32)?,
        _ => items,
    };
    let items = arrow_cast(&items, item.data_type())?;
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    let nulls = Some(NullBuffer::from(valid)).filter(|nulls| nulls.null_count() > 0);
    Ok(Arc::new(ListArray::try_new(Arc::clone(item), offsets, items, nulls)?))
}

/// Adds all from the first to the second of `range` to `items`.
fn extend(items: &mut Vec<i64>, unit: Unit, range: (i64, i64), step: Step) -> Result<()> {
    match (unit, step) {
        (Unit::Day, Step { months: 0, days: 0, .. }) => exec_err!(
            "sequence: a step of dates has months or whole days, and this one is {}; write a day \
             or more, or start from a TIMESTAMP",
            step.text(unit)
        ),
        (Unit::Day, Step { months: 0, days, rest: 0 }) => evenly(items, unit, range, step, days),
        (Unit::Microsecond, Step { months: 0, days: 0, rest })
        | (Unit::Whole, Step { rest, .. }) => evenly(items, unit, range, step, rest),
        _ => by_calendar(items, unit, range, step),
    }
}

/// How many elements there are at most, by steps of about `by`.
fn length(unit: Unit, range: (i64, i64), step: Step, by: i128, per: i128) -> Result<i128> {
    let (start, end) = (i128::from(range.0) * per, i128::from(range.1) * per);
    let reaches = (by > 0 && start <= end) || (by < 0 && start >= end) || start == end;
    if !reaches {
        let (start, end) = (unit.text(range.0), unit.text(range.1));
        return exec_err!(
            "sequence: {end} is not reached from {start} by steps of {}; leave the step out for \
             steps of one in their direction",
            step.text(unit)
        );
    }
    let length = if start == end { 1 } else { (end - start) / by + 1 };
    if length > LENGTH_MAX {
        return exec_err!(
            "sequence: {length} elements are too many; {LENGTH_MAX} is the most, by longer steps"
        );
    }
    Ok(length)
}

fn evenly(items: &mut Vec<i64>, unit: Unit, range: (i64, i64), step: Step, by: i64) -> Result<()> {
    let by = i128::from(by);
    let length = length(unit, range, step, by, 1)?;
    let start = i128::from(range.0);
    // All lie between the start and the end.
    items.extend((0..length).map(|count| (start + by * count) as i64));
    Ok(())
}

/// By months, or by days and parts of days. Each is counted from the start: a month later than the
/// last of January is the last of February, and two months later the last of March.
fn by_calendar(items: &mut Vec<i64>, unit: Unit, range: (i64, i64), step: Step) -> Result<()> {
    let per = if unit == Unit::Day { DAY_US } else { 1 };
    let about = step.about();
    let most = length(unit, range, step, about, per.into())?;
    let (Some(start), Some(end)) = (range.0.checked_mul(per), range.1.checked_mul(per)) else {
        return beyond(unit, range);
    };
    let mut at = start;
    for count in 1.. {
        // As Spark has it: a time one microsecond before the end is still one of those that lead
        // back to it.
        let is_within = if about > 0 { at <= end } else { at >= end.saturating_sub(1) };
        if !is_within {
            return Ok(());
        }
        if i128::from(count) > most + 1 {
            return exec_err!(
                "sequence: steps of {} lead back to where they come from; write months alone, or \
                 days",
                step.text(unit)
            );
        }
        items.push(at.div_euclid(per));
        match step.from(start, count) {
            Some(next) => at = next,
            None => return beyond(unit, range),
        }
    }
    Ok(())
}

fn beyond(unit: Unit, range: (i64, i64)) -> Result<()> {
    let (start, end) = (unit.text(range.0), unit.text(range.1));
    exec_err!("sequence: from {start} to {end} there are times beyond those of a TIMESTAMP")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(unit: Unit, range: (i64, i64), step: Step) -> Result<Vec<String>> {
        let mut items = Vec::new();
        extend(&mut items, unit, range, step)?;
        Ok(items.into_iter().map(|item| unit.text(item)).collect())
    }

    const JANUARY_31: i64 = 20_484;

    #[test]
    fn months_are_counted_from_the_start() {
        let month = Step { months: 1, ..Step::default() };
        let found = made(Unit::Day, (JANUARY_31, JANUARY_31 + 59), month).expect("it is reached");
        assert_eq!(found, ["2026-01-31", "2026-02-28", "2026-03-31"]);
        let start = JANUARY_31 * DAY_US;
        let found = made(Unit::Microsecond, (start, start + 59 * DAY_US), month);
        assert_eq!(found.expect("it is reached").last().unwrap(), "2026-03-31 00:00:00");
    }

    #[test]
    fn parts_of_days_are_carried_from_date_to_date() {
        let step = Step { days: 1, rest: DAY_US / 2, ..Step::default() };
        let found = made(Unit::Day, (0, 3), step).expect("it is reached");
        assert_eq!(found, ["1970-01-01", "1970-01-02", "1970-01-04"]);
        assert!(made(Unit::Day, (0, 3), Step { days: 0, ..step }).is_err());
    }

    #[test]
    fn steps_that_do_not_lead_to_the_end_are_refused() {
        let back = Step { months: -1, days: 29, ..Step::default() };
        assert!(made(Unit::Microsecond, (0, 4 * DAY_US), back).is_err());
        let week = Step { days: -7, ..Step::default() };
        assert!(made(Unit::Day, (0, 7), week).is_err());
        assert_eq!(made(Unit::Day, (7, 0), week).expect("it is reached").len(), 2);
        assert_eq!(made(Unit::Whole, (1, 1), Step::default()).expect("it is there"), ["1"]);
        assert!(made(Unit::Whole, (0, i64::MAX), Unit::Whole.step(true)).is_err());
    }
}

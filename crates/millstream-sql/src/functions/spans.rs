//! The time between two dates or two timestamps.
//!
//! Spark's INTERVAL DAY, which the difference of two dates is, is kept as an Arrow Duration of
//! seconds, and its INTERVAL DAY TO SECOND, that of two timestamps, as one of microseconds.

use std::fmt::Write as _;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringArray};
use arrow::compute::cast as arrow_cast;
use arrow::datatypes::{
    DataType, Date32Type, DurationMicrosecondType, DurationSecondType, IntervalMonthDayNanoType,
    IntervalUnit, TimeUnit,
};
use datafusion::common::metadata::FieldMetadata;
use datafusion::common::{DFSchema, Result, ScalarValue, exec_err};
use datafusion::logical_expr::expr::{BinaryExpr, ScalarFunction};
use datafusion::logical_expr::planner::RawBinaryExpr;
use datafusion::logical_expr::{Expr, ExprSchemable, Operator, ScalarUDF, cast, lit};
use datafusion::sql::sqlparser::ast::BinaryOperator;

use super::define::{Arguments, Function, Param, returns_date};
use super::interval_text::{self, MICROSECONDS};
use super::{interval_casts, interval_literals};
use crate::types::{INTERVAL_FIELDS, timestamp};
use crate::values::calendar::{DAY_US, SECOND_US, months_later};
use crate::values::interval_literal::common_fields;

pub(super) const DATE_DIFFERENCE: &str = "date_difference";
pub(super) const DATE_MOVED: &str = "date_moved";

const DAY_S: i64 = DAY_US / SECOND_US;
const DAYS: DataType = DataType::Duration(TimeUnit::Second);
/// INTERVALs of months, days and less in one.
const CALENDAR: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new(
        DATE_DIFFERENCE,
        &[Param::Date, Param::Date],
        |_| Ok(DAYS),
        |args| {
            let (left, right) = (args.date(0), args.date(1));
            args.primitives::<DurationSecondType>(|row| {
                let sides = left.get(row).zip(right.get(row));
                Ok(sides.map(|(left, right)| (i64::from(left) - i64::from(right)) * DAY_S))
            })
        },
    ),
    Function::new(DATE_MOVED, &[Param::Date, Param::Any, Param::Int], returns_date, moved),
];

/// A date and an INTERVAL DAY, or one of months and days in one, added, or taken off where
/// argument 2 is -1.
fn moved(args: &Arguments) -> Result<ArrayRef> {
    if *args.data_type(1) == CALENDAR {
        return moved_on_calendar(args);
    }
    let dates = args.date(0);
    let days = arrow_cast(args.array(1).0, &DAYS)?;
    let (days, constant) = (days.as_primitive::<DurationSecondType>(), args.array(1).1);
    let sign = i64::from(args.int(2).get(0).unwrap_or(1));
    args.primitives::<Date32Type>(|row| {
        let at = if constant { 0 } else { row };
        let Some(date) = dates.get(row).filter(|_| days.is_valid(at)) else { return Ok(None) };
        let moved = i64::from(date) + sign * (days.value(at) / DAY_S);
        match i32::try_from(moved) {
            Ok(date) => Ok(Some(date)),
            Err(_) => beyond_dates(),
        }
    })
}

fn beyond_dates<T>() -> Result<T> {
    exec_err!("a date plus an INTERVAL is beyond what a DATE holds")
}

fn moved_on_calendar(args: &Arguments) -> Result<ArrayRef> {
    let (dates, spans) = (args.date(0), args.primitive::<IntervalMonthDayNanoType>(1));
    let sign = args.int(2).get(0).unwrap_or(1);
    args.primitives::<Date32Type>(|row| {
        let Some((date, span)) = dates.get(row).zip(spans.get(row)) else { return Ok(None) };
        if span.nanoseconds != 0 {
            return exec_err!(
                "an INTERVAL with hours, minutes or seconds cannot be added to a DATE; cast that \
                 to TIMESTAMP"
            );
        }
        let signed = span.months.checked_mul(sign).zip(span.days.checked_mul(sign));
        let moved = signed
            .and_then(|(months, days)| months_later(date, months).map(|date| (date, days)))
            .and_then(|(date, days)| date.checked_add(days));
        match moved {
            Some(date) => Ok(Some(date)),
            None => beyond_dates(),
        }
    })
}

/// What an operation on dates and times between them is planned as, where DataFusion would plan
/// something else.
pub(super) enum Planned {
    Done(Expr),
    Original(RawBinaryExpr),
}

/// Looks at `+`, `-` and comparisons of times, dates and intervals.
pub(super) fn planned(
    expr: RawBinaryExpr,
    schema: &DFSchema,
    [difference, moved]: [&Arc<ScalarUDF>; 2],
) -> Planned {
    let types = (expr.left.get_type(schema), expr.right.get_type(schema));
    let (Ok(left), Ok(right)) = types else { return Planned::Original(expr) };
    if let Some(text) = moved_text(&expr, &left, &right) {
        return Planned::Done(text);
    }
    if let Some(null) = with_null(&expr, &left, &right, schema) {
        return Planned::Done(null);
    }
    if let Some(sum) = summed(&expr, [&left, &right], schema) {
        return Planned::Done(sum);
    }
    let (expr, left, right) = with_times_of_text(expr, left, right);
    let call = |function: &Arc<ScalarUDF>, args| {
        Planned::Done(Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(function), args)))
    };
    let is_time = |found: &DataType| matches!(found, DataType::Timestamp(..));
    let is_span = |found: &DataType| matches!(found, DataType::Duration(_));
    let minus = matches!(expr.op, BinaryOperator::Minus);
    if !minus && !matches!(expr.op, BinaryOperator::Plus) {
        return compared(expr, &left, &right);
    }
    let date = DataType::Date32;
    if minus && left == date && right == date {
        return call(difference, vec![expr.left, expr.right]);
    }
    if left == date && (right == DAYS || right == CALENDAR) {
        let sign = if minus { -1 } else { 1 };
        return call(moved, vec![expr.left, expr.right, lit(sign)]);
    }
    if !minus && (left == DAYS || left == CALENDAR) && right == date {
        return call(moved, vec![expr.right, expr.left, lit(1)]);
    }
    let RawBinaryExpr { op, left: mut a, right: mut b } = expr;
    // A date that meets a time, or part of a day, becomes one itself.
    if left == date && ((minus && is_time(&right)) || right == MICROSECONDS) {
        let to = if is_time(&right) { right.clone() } else { timestamp() };
        a = cast(a, to);
    } else if right == date && (if minus { is_time(&left) } else { left == MICROSECONDS }) {
        let to = if is_time(&left) { left.clone() } else { timestamp() };
        b = cast(b, to);
    }
    if is_span(&left) || is_span(&right) {
        a = as_microseconds(a, &left);
        b = as_microseconds(b, &right);
    }
    Planned::Original(RawBinaryExpr { op, left: a, right: b })
}

/// What NULL added to a date, a time or an INTERVAL gives, or taken off an INTERVAL: NULL of the
/// type that the sum has.
fn with_null(
    expr: &RawBinaryExpr,
    left: &DataType,
    right: &DataType,
    schema: &DFSchema,
) -> Option<Expr> {
    let is_sum = matches!(expr.op, BinaryOperator::Plus);
    if !is_sum && !matches!(expr.op, BinaryOperator::Minus) {
        return None;
    }
    let (other, of) = match (left.is_null(), right.is_null()) {
        (false, true) => (&expr.left, left),
        (true, false) => (&expr.right, right),
        _ => return None,
    };
    match of {
        DataType::Date32 | DataType::Timestamp(_, Some(_)) if is_sum => {
            Some(Expr::Literal(ScalarValue::try_from(timestamp()).ok()?, None))
        }
        DataType::Duration(_) | DataType::Interval(IntervalUnit::YearMonth) => {
            let (_, field) = other.to_field(schema).ok()?;
            let fields = field.metadata().get(INTERVAL_FIELDS)?;
            let metadata = FieldMetadata::from(interval_literals::metadata(fields));
            Some(Expr::Literal(ScalarValue::try_from(of).ok()?, Some(metadata)))
        }
        _ => None,
    }
}

/// The text of a time, and an INTERVAL of days or less that is added to it or taken off: the result
/// is a text again.
fn moved_text(expr: &RawBinaryExpr, left: &DataType, right: &DataType) -> Option<Expr> {
    let op = sign_of(&expr.op)?;
    let (text, span, of_span) = match (left, right) {
        (text, DataType::Duration(_)) if text.is_string() => (&expr.left, &expr.right, right),
        (DataType::Duration(_), text) if text.is_string() && op == Operator::Plus => {
            (&expr.right, &expr.left, left)
        }
        _ => return None,
    };
    let time = Box::new(cast(text.clone(), timestamp()));
    let span = Box::new(as_microseconds(span.clone(), of_span));
    Some(cast(Expr::BinaryExpr(BinaryExpr::new(time, op, span)), DataType::Utf8))
}

/// Text that is taken from a date or a time, or that one is taken from, is one too.
fn with_times_of_text(
    expr: RawBinaryExpr,
    left: DataType,
    right: DataType,
) -> (RawBinaryExpr, DataType, DataType) {
    let is_time = |found: &DataType| matches!(found, DataType::Date32 | DataType::Timestamp(..));
    let RawBinaryExpr { op, left: mut a, right: mut b } = expr;
    let (mut of_a, mut of_b) = (left, right);
    if matches!(op, BinaryOperator::Minus) {
        let is_date = |of: &DataType, other: &DataType| *of == DataType::Date32 && other.is_null();
        if is_date(&of_a, &of_b) || (is_time(&of_a) && of_b.is_string()) {
            (b, of_b) = (cast(b, of_a.clone()), of_a.clone());
        } else if is_date(&of_b, &of_a) || (is_time(&of_b) && of_a.is_string()) {
            (a, of_a) = (cast(a, of_b.clone()), of_b.clone());
        }
    }
    (RawBinaryExpr { op, left: a, right: b }, of_a, of_b)
}

/// The sum or the difference of two INTERVALs whose fields are fewer than their type could have.
fn summed(expr: &RawBinaryExpr, types: [&DataType; 2], schema: &DFSchema) -> Option<Expr> {
    let op = sign_of(&expr.op)?;
    let of = |side: &Expr| interval_casts::fields_of(side, schema);
    let fields = common_fields(&of(&expr.left)?, &of(&expr.right)?)?;
    if matches!(fields.as_str(), "day to second" | "year to month") {
        return None;
    }
    let [left, right] = [(&expr.left, types[0]), (&expr.right, types[1])]
        .map(|(side, of)| Box::new(as_microseconds(side.clone(), of)));
    let sum = Expr::BinaryExpr(BinaryExpr::new(left, op, right));
    Some(interval_casts::with_fields(sum, &fields))
}

/// The operator that adds or subtracts.
fn sign_of(op: &BinaryOperator) -> Option<Operator> {
    match op {
        BinaryOperator::Plus => Some(Operator::Plus),
        BinaryOperator::Minus => Some(Operator::Minus),
        _ => None,
    }
}

fn compared(expr: RawBinaryExpr, left: &DataType, right: &DataType) -> Planned {
    let is_span = |found: &DataType| matches!(found, DataType::Duration(_));
    if left == right || !(is_span(left) || is_span(right)) {
        return Planned::Original(expr);
    }
    Planned::Original(RawBinaryExpr {
        op: expr.op,
        left: as_microseconds(expr.left, left),
        right: as_microseconds(expr.right, right),
    })
}

/// A time between two as microseconds, an interval without months too.
fn as_microseconds(expr: Expr, data_type: &DataType) -> Expr {
    match (&expr, data_type) {
        (Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(value)), metadata), _)
            if value.months == 0 =>
        {
            let days = i64::from(value.days).checked_mul(DAY_US);
            match days.and_then(|days| days.checked_add(value.nanoseconds / 1000)) {
                Some(us) => {
                    Expr::Literal(ScalarValue::DurationMicrosecond(Some(us)), metadata.clone())
                }
                None => expr,
            }
        }
        (_, DataType::Duration(TimeUnit::Second | TimeUnit::Nanosecond)) => {
            cast(expr, MICROSECONDS)
        }
        _ => expr,
    }
}

/// Whether a cast is done here.
pub(super) fn casts(from: &DataType, to: &DataType) -> bool {
    matches!(from, DataType::Duration(_) | DataType::Interval(_))
        && (to.is_string() || to.is_numeric())
}

/// Casts what [`casts`] says; numbers are cast by `cast`.
pub(super) fn cast_span(
    values: &ArrayRef,
    to: &DataType,
    cast: impl Fn(&ArrayRef, &DataType) -> Result<ArrayRef>,
) -> Result<ArrayRef> {
    let from = values.data_type();
    match from {
        DataType::Interval(IntervalUnit::YearMonth) if to.is_string() => {
            let texts = interval_text::texts(values, "year to month")?;
            Ok(arrow_cast(&texts, to)?)
        }
        of if *of == CALENDAR && to.is_string() => {
            let spans = values.as_primitive::<IntervalMonthDayNanoType>();
            texts(spans.iter().map(|span| span.map(interval_text::of_calendar)), to)
        }
        // A month has no fixed length.
        DataType::Interval(IntervalUnit::MonthDayNano | IntervalUnit::DayTime) => {
            exec_err!("an INTERVAL of months, days and less in one cannot be cast here")
        }
        _ if to.is_numeric() => {
            interval_casts::to_numbers(values, None, |numbers| cast(numbers, to), to)
        }
        DataType::Duration(TimeUnit::Second) => {
            let seconds = values.as_primitive::<DurationSecondType>();
            let text = |seconds| format!("INTERVAL '{}' DAY", seconds / DAY_S);
            texts(seconds.iter().map(|seconds| seconds.map(text)), to)
        }
        _ => {
            let us = arrow_cast(values, &MICROSECONDS)?;
            let us = us.as_primitive::<DurationMicrosecondType>();
            texts(us.iter().map(|us| us.map(day_to_second)), to)
        }
    }
}

fn texts(texts: impl Iterator<Item = Option<String>>, to: &DataType) -> Result<ArrayRef> {
    Ok(arrow_cast(&(Arc::new(texts.collect::<StringArray>()) as ArrayRef), to)?)
}

fn day_to_second(us: i64) -> String {
    let sign = if us < 0 { "-" } else { "" };
    let us = us.unsigned_abs();
    let (day, second) = (DAY_US as u64, SECOND_US as u64);
    let (days, rest) = (us / day, us % day);
    let (hours, minutes) = (rest / (3600 * second), rest / (60 * second) % 60);
    let mut text = format!("INTERVAL '{sign}{days} {hours:02}:{minutes:02}:");
    let (seconds, fraction) = (rest / second % 60, rest % second);
    let _ = write!(text, "{seconds:02}");
    if fraction > 0 {
        let _ = write!(text, ".{}", format!("{fraction:06}").trim_end_matches('0'));
    }
    text + "' DAY TO SECOND"
}

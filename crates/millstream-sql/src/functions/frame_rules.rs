//! The frames of windows: what Spark refuses although DataFusion could compute it, and frames that
//! DataFusion would count otherwise.

use arrow::datatypes::{DataType, IntervalUnit, TimeUnit};
use datafusion::common::{DFSchema, Result, ScalarValue, plan_err};
use datafusion::logical_expr::expr::WindowFunctionParams;
use datafusion::logical_expr::{ExprSchemable, WindowFrame, WindowFrameBound, WindowFrameUnits};

use crate::types::spark_type;

/// Makes the frame of a call the one that Spark means.
///
/// # Errors
/// The frame counts in what its order does not have.
pub(super) fn apply(params: &mut WindowFunctionParams, schema: &DFSchema) -> Result<()> {
    let frame = &params.window_frame;
    let Some(first) = params.order_by.first() else { return Ok(()) };
    if frame.units != WindowFrameUnits::Range {
        return Ok(());
    }
    let of = first.expr.get_type(schema)?;
    if [&frame.start_bound, &frame.end_bound].into_iter().all(|bound| by(bound).is_none()) {
        if is_without_range(&of) {
            // Rows that are equal in the order are a group, so it is the same frame.
            let (start, end) = (frame.start_bound.clone(), frame.end_bound.clone());
            let groups = WindowFrame::new_bounds(WindowFrameUnits::Groups, start, end);
            params.window_frame = groups;
        }
        return Ok(());
    }
    check(frame, &of)?;
    if of == DataType::Date32 {
        let (start, end) = (in_days(&frame.start_bound)?, in_days(&frame.end_bound)?);
        params.window_frame = WindowFrame::new_bounds(WindowFrameUnits::Range, start, end);
    }
    Ok(())
}

/// How far away a bound is, if it is neither unbounded nor the current row.
fn by(bound: &WindowFrameBound) -> Option<&ScalarValue> {
    match bound {
        WindowFrameBound::Preceding(by) | WindowFrameBound::Following(by) => {
            Some(by).filter(|by| !by.is_null())
        }
        WindowFrameBound::CurrentRow => None,
    }
}

/// Types that can be ordered, and that DataFusion has no RANGE over, not even one without numbers.
fn is_without_range(of: &DataType) -> bool {
    matches!(
        of,
        DataType::Duration(_)
            | DataType::Interval(IntervalUnit::YearMonth)
            | DataType::Time64(TimeUnit::Microsecond)
            | DataType::Binary
    )
}

fn is_number(value: &ScalarValue) -> bool {
    match value.try_as_str() {
        Some(text) => text.is_some_and(|text| text.trim().parse::<f64>().is_ok()),
        None => value.data_type().is_numeric(),
    }
}

fn check(frame: &WindowFrame, of: &DataType) -> Result<()> {
    let both = [&frame.start_bound, &frame.end_bound];
    let mut bounds = both.into_iter().filter_map(by);
    if matches!(of, DataType::Timestamp(..))
        && let Some(by) = bounds.clone().find(|value| is_number(value))
    {
        return plan_err!(
            "a RANGE of times is bounded by an INTERVAL, such as INTERVAL '1' DAY, and not by the \
             number {by}"
        );
    }
    if let Some(by) = both.into_iter().find_map(|at| beyond(at, of)) {
        let of = spark_type(of);
        return plan_err!(
            "a RANGE that is ordered by a {of} has no bound of {by}, which is beyond its values; \
             write UNBOUNDED, or order by a cast to a type that holds {by}"
        );
    }
    let kinds = both.map(|bound| by(bound).map(kind));
    if let [Some(start), Some(end)] = kinds
        && start != end
    {
        return plan_err!(
            "the bounds of a RANGE are {start} and {end}, and must be of one type; write both in \
             one unit"
        );
    }
    let refused = match of {
        DataType::Date32 => bounds.any(has_time),
        of => of.is_string() || is_without_range(of) || matches!(of, DataType::Boolean),
    };
    if refused {
        let of = spark_type(of);
        return plan_err!("a RANGE between such bounds cannot be ordered by a {of}; use ROWS");
    }
    Ok(())
}

/// What a bound counts in.
fn kind(by: &ScalarValue) -> &'static str {
    match by.try_as_str().flatten() {
        _ if is_number(by) => "a number",
        Some(text) if text.ends_with(" months") => "an INTERVAL of months",
        _ => "an INTERVAL of days and less",
    }
}

/// A bound of a RANGE over dates, of which a number is one of days.
fn in_days(bound: &WindowFrameBound) -> Result<WindowFrameBound> {
    let Some(by) = by(bound).filter(|value| is_number(value)) else { return Ok(bound.clone()) };
    let text = by.try_as_str().flatten().unwrap_or_default();
    let Ok(days) = text.trim().parse::<i32>() else {
        return plan_err!(
            "a RANGE of dates is bounded by a whole number of days or by an INTERVAL, and not by \
             {by}"
        );
    };
    let days = ScalarValue::from(format!("{days} days"));
    Ok(match bound {
        WindowFrameBound::Preceding(_) => WindowFrameBound::Preceding(days),
        _ => WindowFrameBound::Following(days),
    })
}

/// The number of a bound, if it is more than values of the type `of` have.
fn beyond<'a>(bound: &'a WindowFrameBound, of: &DataType) -> Option<&'a str> {
    let (by, more) = match bound {
        // It is cast with a minus before it, and the least number is farther from zero.
        WindowFrameBound::Preceding(by) => (by, 1),
        WindowFrameBound::Following(by) => (by, 0),
        WindowFrameBound::CurrentRow => return None,
    };
    let text = by.try_as_str().flatten()?.trim();
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if whole.is_empty() || !whole.bytes().chain(fraction.bytes()).all(|byte| byte.is_ascii_digit())
    {
        return None;
    }
    let most = match of {
        DataType::Int8 => i128::from(i8::MAX) + more,
        DataType::Int16 => i128::from(i16::MAX) + more,
        DataType::Int32 => i128::from(i32::MAX) + more,
        DataType::Int64 => i128::from(i64::MAX) + more,
        DataType::Date32 => i128::from(i32::MAX),
        DataType::Decimal128(digits, scale) => {
            let digits = u32::try_from(i16::from(*digits) - i16::from(*scale)).ok()?;
            10_i128.checked_pow(digits)? - 1
        }
        _ => return None,
    };
    // What is no `i128` has more digits than any type.
    let by = whole.parse::<i128>().unwrap_or(i128::MAX);
    (by > most).then_some(text)
}

/// Whether a bound of a frame has a part of a day, in the form that the text of bounds has.
fn has_time(value: &ScalarValue) -> bool {
    let text = value.try_as_str().flatten().unwrap_or_default();
    text.ends_with(" microseconds") && !text.ends_with(" 0 microseconds")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_beside_dates_are_days() {
        let bound = |text: &str| WindowFrameBound::Following(ScalarValue::from(text));
        let days = |text: &str| in_days(&bound(text)).ok();
        assert_eq!(days("3"), Some(bound("3 days")));
        assert_eq!(days("2 months"), Some(bound("2 months")));
        assert_eq!(days("1.5"), None);
        assert_eq!(days("inf"), None);
        let unbounded = WindowFrameBound::Preceding(ScalarValue::Null);
        assert_eq!(in_days(&unbounded).ok(), Some(unbounded));
    }
}

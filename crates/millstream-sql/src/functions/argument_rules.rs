//! What Spark refuses to take as an argument although DataFusion could cast it, and calls that mean
//! something else with arguments of some types.
//!
//! A call is looked at once the numbers in the text have Spark's types, and before DataFusion casts
//! arguments.

use arrow::datatypes::DataType;
use datafusion::common::{DFSchema, Result, ScalarValue, plan_err};
use datafusion::logical_expr::expr::{AggregateFunction, Case, ScalarFunction, WindowFunction};
use datafusion::logical_expr::{
    Cast, Expr, ExprSchemable, WindowFrameBound, WindowFrameUnits, cast, lit,
};

use super::common_types::mix_text;
use super::{elements, time_bucket, times_of_day};
use crate::types::{field_type, list_of, spark_type};

/// `expr` as Spark takes it.
pub(super) fn taken(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    match expr {
        Expr::ScalarFunction(call) => {
            let types = call.args.iter().map(|arg| arg.get_type(schema));
            match types.collect::<Result<Vec<_>>>() {
                Ok(types) => function(call, &types, schema),
                // What has no type yet is refused elsewhere.
                Err(_) => Ok(Expr::ScalarFunction(call)),
            }
        }
        Expr::AggregateFunction(call) if call.func.name() == "percentile_cont" => {
            Ok(Expr::AggregateFunction(of_doubles(call, schema)))
        }
        Expr::Negative(value) => negated(*value, schema),
        Expr::AggregateFunction(call) => {
            times_of_day::check_rows(call.func.name(), &call.params.args, schema)?;
            if call.func.name() == "string_agg" {
                joined_texts(&call.params.args, schema)?;
            }
            Ok(Expr::AggregateFunction(call))
        }
        Expr::WindowFunction(call) => {
            frame(&call, schema)?;
            times_of_day::check_rows(call.fun.name(), &call.params.args, schema)?;
            Ok(Expr::WindowFunction(call))
        }
        other => Ok(other),
    }
}

/// Refuses to join what CAST would make a text of, and `listagg` does not.
fn joined_texts(args: &[Expr], schema: &DFSchema) -> Result<()> {
    let value = match args.first() {
        Some(Expr::Cast(Cast { expr, .. })) => expr.as_ref(),
        Some(Expr::ScalarFunction(call)) if call.func.name() == "spark_cast" => &call.args[0],
        _ => return Ok(()),
    };
    match value.get_type(schema) {
        Ok(of) if of == DataType::Binary || of.is_nested() => {
            plan_err!("listagg takes STRINGs here and got {}; cast them", spark_type(&of))
        }
        _ => Ok(()),
    }
}

/// What lies between two FLOATs is a DOUBLE.
fn of_doubles(mut call: AggregateFunction, schema: &DFSchema) -> AggregateFunction {
    let wide = |expr: &mut Expr| {
        if matches!(expr.get_type(schema), Ok(DataType::Float32)) {
            *expr = cast(expr.clone(), DataType::Float64);
        }
    };
    call.params.args.first_mut().into_iter().for_each(wide);
    call.params.order_by.iter_mut().for_each(|sort| wide(&mut sort.expr));
    call
}

/// Refuses frames that count in what their order does not have.
fn frame(call: &WindowFunction, schema: &DFSchema) -> Result<()> {
    let frame = &call.params.window_frame;
    let [sort] = call.params.order_by.as_slice() else { return Ok(()) };
    let bound = |bound: &WindowFrameBound| match bound {
        WindowFrameBound::Preceding(value) | WindowFrameBound::Following(value) => {
            Some(value.clone()).filter(|value| !value.is_null())
        }
        WindowFrameBound::CurrentRow => None,
    };
    let bounds = [bound(&frame.start_bound), bound(&frame.end_bound)];
    let mut bounds = bounds.into_iter().flatten().peekable();
    if frame.units != WindowFrameUnits::Range || bounds.peek().is_none() {
        return Ok(());
    }
    let of = sort.expr.get_type(schema)?;
    let is_number = |value: &ScalarValue| match value.try_as_str() {
        Some(text) => text.is_some_and(|text| text.trim().parse::<f64>().is_ok()),
        None => value.data_type().is_numeric(),
    };
    if matches!(of, DataType::Timestamp(..))
        && let Some(by) = bounds.find(is_number)
    {
        return plan_err!(
            "a RANGE of times is bounded by an INTERVAL, such as INTERVAL '1' DAY, and not by the \
             number {by}"
        );
    }
    if let Some(by) =
        [&frame.start_bound, &frame.end_bound].into_iter().find_map(|at| beyond(at, &of))
    {
        let of = spark_type(&of);
        return plan_err!(
            "a RANGE that is ordered by a {of} has no bound of {by}, which is beyond its values; \
             write UNBOUNDED, or order by a cast to a type that holds {by}"
        );
    }
    let refused = match &of {
        DataType::Date32 => bounds.any(|value| has_time(&value)),
        of => of.is_string() || matches!(of, DataType::Boolean | DataType::Binary),
    };
    if refused {
        let of = spark_type(&of);
        return plan_err!("a RANGE between such bounds cannot be ordered by a {of}; use ROWS");
    }
    Ok(())
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

fn negated(value: Expr, schema: &DFSchema) -> Result<Expr> {
    let value = match value.get_type(schema) {
        Ok(of) if of.is_string() => cast(value, DataType::Float64),
        Ok(
            of @ (DataType::Timestamp(..)
            | DataType::Time64(_)
            | DataType::Date32
            | DataType::Boolean),
        ) => {
            return plan_err!("`-` takes a number or an INTERVAL, not a {}", spark_type(&of));
        }
        _ => value,
    };
    Ok(Expr::Negative(Box::new(value)))
}

/// Functions of two arrays, whose elements are compared.
const TAKE_TWO_ARRAYS: [&str; 4] =
    ["array_union", "array_intersect", "array_except", "arrays_overlap"];

fn function(mut call: ScalarFunction, types: &[DataType], schema: &DFSchema) -> Result<Expr> {
    let name = call.func.name().to_owned();
    times_of_day::check_call(&name, types)?;
    times_of_day::check_field(&call, types, schema)?;
    elements::check(&name, types)?;
    if TAKE_TWO_ARRAYS.contains(&name.as_str())
        && let [left, right] = types
        && mix_text(left, right)
    {
        let (left, right) = (spark_type(left), spark_type(right));
        return plan_err!("{name} takes arrays of one type and got {left} and {right}; cast one");
    }
    match (name.as_str(), types) {
        ("date_add" | "date_sub", [_, days]) if is_no_int(days) => {
            let days = spark_type(days);
            return plan_err!("{name} takes an INT number of days and got {days}; cast it to INT");
        }
        ("try_add" | "try_subtract", [DataType::Date32, days] | [days, DataType::Date32])
            if *days == DataType::Int64 =>
        {
            return plan_err!("{name} takes an INT number of days and got BIGINT; cast it to INT");
        }
        ("sort_array", [_, order]) if !matches!(order, DataType::Boolean | DataType::Null) => {
            let order = spark_type(order);
            return plan_err!("sort_array takes true or false for ascending and got {order}");
        }
        ("get", [DataType::Null, _]) => return plan_err!("get takes an ARRAY and got VOID"),
        ("json_array_length" | "json_object_keys", [given])
            if !given.is_string() && !given.is_null() =>
        {
            let given = spark_type(given);
            return plan_err!("{name} takes a STRING and got {given}; cast it");
        }
        ("negative", [given]) if given.is_string() => {
            let value = call.args.remove(0);
            call.args.push(cast(value, DataType::Float64));
        }
        ("array_join" | "array_to_string", [DataType::List(item), ..])
            if !item.data_type().is_string() && !item.data_type().is_null() =>
        {
            call.args[0] = cast(call.args[0].clone(), list_of(DataType::Utf8));
        }
        ("typeof", [DataType::Interval(_) | DataType::Duration(_)]) => {
            let (_, field) = call.args[0].to_field(schema)?;
            return Ok(lit(field_type(&field).to_lowercase()));
        }
        ("get_field", _) => return elements::at_key(call, types),
        ("arrays_zip", _) => return Ok(zipped(call, schema)),
        (time_bucket::NAME, _) => time_bucket::check(&call.args)?,
        ("pmod", [left, right]) if left.is_string() && right.is_string() => {
            return plan_err!("pmod takes numbers and got two STRINGs; cast one of them");
        }
        _ => {}
    }
    Ok(Expr::ScalarFunction(call))
}

fn is_no_int(given: &DataType) -> bool {
    matches!(given, DataType::Int64 | DataType::Decimal128(..)) || given.is_floating()
}

/// NULL where `condition` holds, else `value`.
fn null_if(condition: Expr, value: Expr, of: DataType) -> Expr {
    let null = cast(Expr::Literal(ScalarValue::Null, None), of);
    let when_then_expr = vec![(Box::new(condition), Box::new(null))];
    Expr::Case(Case { expr: None, when_then_expr, else_expr: Some(Box::new(value)) })
}

/// `arrays_zip(...)`, NULL where one of the arrays is.
fn zipped(call: ScalarFunction, schema: &DFSchema) -> Expr {
    let of = Expr::ScalarFunction(call.clone()).get_type(schema);
    let conditions = call.args.iter().filter(|arg| !is_array(arg)).cloned();
    let any = conditions.map(|arg| arg.is_null()).reduce(|one, other| one.or(other));
    let call = Expr::ScalarFunction(call);
    match (any, of) {
        (Some(any), Ok(of)) => null_if(any, call, of),
        _ => call,
    }
}

/// Whether `expr` is an array that is made there, and so is not NULL.
fn is_array(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(call) if matches!(call.func.name(), "make_array" | "array"))
}

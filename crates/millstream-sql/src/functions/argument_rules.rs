//! What Spark refuses to take as an argument although DataFusion could cast it, and calls that mean
//! something else with arguments of some types.
//!
//! A call is looked at once the numbers in the text have Spark's types, and before DataFusion casts
//! arguments.

use arrow::datatypes::DataType;
use datafusion::common::{DFSchema, Result, ScalarValue, plan_err};
use datafusion::logical_expr::expr::{AggregateFunction, Case, ScalarFunction};
use datafusion::logical_expr::{Cast, Expr, ExprSchemable, TryCast, cast, lit};

use super::common_types::{check_condition, mix_text};
use super::{argument_types, elements, frame_rules, json_keys, time_bucket, times_of_day};
use crate::types::{field_type, list_of, spark_type};

/// `expr` as Spark takes it.
pub(super) fn taken(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    match expr {
        Expr::ScalarFunction(call) => {
            let call = with_bytes(call, schema);
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
            if let Some(condition) = &call.params.filter {
                check_condition(condition, schema, "of FILTER")?;
            }
            times_of_day::check_rows(call.func.name(), &call.params.args, schema)?;
            if call.func.name() == "string_agg" {
                joined_texts(&call.params.args, schema)?;
            }
            Ok(Expr::AggregateFunction(call))
        }
        Expr::WindowFunction(mut call) => {
            frame_rules::apply(&mut call.params, schema)?;
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

fn negated(value: Expr, schema: &DFSchema) -> Result<Expr> {
    let value = match value.get_type(schema) {
        Ok(of) if of.is_string() || of.is_null() => cast(value, DataType::Float64),
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

/// Refuses a place to begin at that is no constant, or before the beginning.
fn check_position(position: &Expr) -> Result<()> {
    if position.any_column_refs() || position.contains_outer() {
        return plan_err!(
            "regexp_replace takes a constant as the position to begin at (DATATYPE_MISMATCH), not \
             a column; write concat(left(x, n), regexp_replace(substring(x, n + 1), ...))"
        );
    }
    let Expr::Literal(value, _) = position else { return Ok(()) };
    match value.cast_to(&DataType::Int64) {
        Ok(ScalarValue::Int64(Some(position))) if position < 1 => plan_err!(
            "regexp_replace: the position counts from 1 and is {position} (DATATYPE_MISMATCH)"
        ),
        _ => Ok(()),
    }
}

/// Functions that ask whether a text is UTF-8, which all texts are here.
const OF_UTF8: [&str; 4] =
    ["is_valid_utf8", "make_valid_utf8", "try_validate_utf8", "validate_utf8"];

/// The call, which looks at bytes where it got a cast of them.
fn with_bytes(mut call: ScalarFunction, schema: &DFSchema) -> ScalarFunction {
    if OF_UTF8.contains(&call.func.name())
        && let [text] = &mut call.args[..]
        && let Some(bytes) = bytes_of(text, schema)
    {
        *text = bytes;
    }
    call
}

/// The BINARY that a cast makes a STRING of. The cast would put U+FFFD in the places of bytes that
/// are not UTF-8, where Spark's keeps them.
fn bytes_of(text: &Expr, schema: &DFSchema) -> Option<Expr> {
    let (Expr::Cast(Cast { expr, field }) | Expr::TryCast(TryCast { expr, field })) = text else {
        return None;
    };
    let is_of_bytes = expr.get_type(schema).is_ok_and(|of| of.is_binary());
    (is_of_bytes && field.data_type().is_string()).then(|| expr.as_ref().clone())
}

fn function(mut call: ScalarFunction, types: &[DataType], schema: &DFSchema) -> Result<Expr> {
    let name = call.func.name().to_owned();
    check(&call, types, schema)?;
    call = argument_types::as_double(call, types);
    if TAKE_TWO_ARRAYS.contains(&name.as_str())
        && let [left, right] = types
        && mix_text(left, right)
    {
        let (left, right) = (spark_type(left), spark_type(right));
        return plan_err!("{name} takes arrays of one type and got {left} and {right}; cast one");
    }
    if name == "typeof"
        && let Some(of) = call.args.first().and_then(times_of_day::type_with_digits)
    {
        return Ok(lit(of));
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
        ("greatest" | "least", types) if has_text_beside_others(types) => {
            return plan_err!(
                "{name} takes values of one type and got STRINGs beside others \
                 (DATATYPE_MISMATCH); cast one of them"
            );
        }
        ("regexp_replace", [_, _, _, _]) => check_position(&call.args[3])?,
        ("hex", [DataType::Null]) => call.args[0] = cast(call.args[0].clone(), DataType::Utf8),
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
        ("to_json", [_, ..]) => json_keys::check_made(&call.args[0], schema)?,
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

/// Refuses what Spark casts to no type that the function takes.
fn check(call: &ScalarFunction, types: &[DataType], schema: &DFSchema) -> Result<()> {
    let name = call.func.name();
    times_of_day::check(call, types, schema)?;
    elements::check(name, types)?;
    argument_types::check(name, types)?;
    check_whole(name, types)?;
    check_written(name, types)
}

/// Refuses what is written as no text. For `format_number` Spark casts nothing, and for
/// `array_join` nothing that has parts.
fn check_written(name: &str, types: &[DataType]) -> Result<()> {
    match (name, types) {
        ("format_number", [number, _])
            if number.is_string() || number.is_nested() || *number == DataType::Boolean =>
        {
            let number = spark_type(number);
            plan_err!("format_number writes a number and got {number} (DATATYPE_MISMATCH); cast it")
        }
        ("format_number", [_, places])
            if places.is_floating() || matches!(places, DataType::Decimal128(..)) =>
        {
            let places = spark_type(places);
            plan_err!(
                "format_number takes an INT number of places, or a pattern, and got {places} \
                 (DATATYPE_MISMATCH); cast it to INT"
            )
        }
        ("array_join" | "array_to_string", [of @ DataType::List(item), ..])
            if item.data_type().is_nested() =>
        {
            let of = spark_type(of);
            plan_err!(
                "array_join takes an ARRAY<STRING> and got {of} (DATATYPE_MISMATCH); write \
                 flatten(x) for arrays of arrays, or transform(x, e -> to_json(e))"
            )
        }
        _ => Ok(()),
    }
}

/// Refuses what is cast to no whole number: the number of an element, and units of time.
fn check_whole(name: &str, types: &[DataType]) -> Result<()> {
    let (given, wanted) = match (name, types) {
        ("timestamp_millis" | "timestamp_micros", [given])
            if given.is_floating() || matches!(given, DataType::Decimal128(..)) =>
        {
            (given, "BIGINT")
        }
        ("element_at" | "try_element_at", [DataType::List(_), index])
            if index.is_string() || is_no_int(index) =>
        {
            (index, "INT")
        }
        _ => return Ok(()),
    };
    let given = spark_type(given);
    plan_err!(
        "{name} takes a whole number and got {given} (DATATYPE_MISMATCH); cast it to {wanted}"
    )
}

fn has_text_beside_others(types: &[DataType]) -> bool {
    let mut known = types.iter().filter(|of| !of.is_null());
    let is_text = known.next().is_some_and(DataType::is_string);
    known.any(|of| of.is_string() != is_text)
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

//! The common type of values of several types, as in Spark: of decimals and other numbers, of
//! FLOATs and whole numbers, of dates and times, of text and others. Elsewhere DataFusion's rules
//! apply.
//!
//! Beside a decimal a whole number is one of as many digits as its type has, and a literal of as
//! many as it is written with; with a DOUBLE, a FLOAT or text both become DOUBLEs. DataFusion would
//! rather make decimals of doubles, and gives other digits.
//!
//! [`nested`] is about arrays, structs and maps, [`pairs`] about BETWEEN and CASE, which compare
//! one value with several, [`keys`] about comparisons that are written without an operator,
//! [`order`] about types that are not compared, and [`united`] about the columns of set operations.

mod keys;
mod nested;
mod order;
mod pairs;
mod sequence_types;
mod united;

use std::sync::Arc;

use arrow::datatypes::{DataType, IntervalUnit, TimeUnit};
use datafusion::common::{DFSchema, Result, ScalarValue, plan_err};
use datafusion::logical_expr::binary::{comparison_coercion, type_union_resolution};
use datafusion::logical_expr::expr::{BinaryExpr, Case, Cast, InList, ScalarFunction};
use datafusion::logical_expr::expr_rewriter::coerce_plan_expr_for_schema;
use datafusion::logical_expr::{
    Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Operator, RecursiveQuery, Union, Values,
    WindowFrameBound, WindowFrameUnits, binary_expr, cast,
};

use super::decimals::{Manner, Operation, decimal_operation, digits_of, type_of, wider};
use super::division;
use super::times_of_day::check_common;
use crate::types::planner::WRITTEN_NUMBER;
use crate::types::{is_variant, spark_type, timestamp};

pub(super) use keys::with_key_types;
pub(super) use nested::mix_text;
pub(super) use pairs::check_condition;
pub(super) use sequence_types::sequence_list;
pub(super) use united::check_names;

/// The common type of `types`, to which their values are cast.
pub(super) fn common_type(types: &[DataType]) -> Option<DataType> {
    with_decimals(types).or_else(|| type_union_resolution(types))
}

/// The common type of `types` where it is not DataFusion's.
pub(super) fn spark_type_of_all(types: &[DataType]) -> Option<DataType> {
    with_decimals(types)
}

/// The type that two values are compared as; a time is compared with no number.
pub(super) fn compared(left: &DataType, right: &DataType) -> Option<DataType> {
    let is_time = |of: &DataType| matches!(of, DataType::Date32 | DataType::Timestamp(..));
    if is_time(left) && right.is_numeric() || left.is_numeric() && is_time(right) {
        return None;
    }
    with_decimals(&[left.clone(), right.clone()]).or_else(|| comparison_coercion(left, right))
}

/// The type that a column of the type `of` is cast to where it is compared with one of the type
/// `beside`, if values of it that differ may be the same then. Not of whole numbers and decimals,
/// which stay what they are.
pub(crate) fn compared_as(of: &DataType, beside: &DataType) -> Result<Option<DataType>> {
    let is_exact = |found: &DataType| found.is_integer() || is_decimal(found);
    let common = with_decimals(&[beside.clone(), of.clone()]);
    if !is_exact(of) || !is_exact(beside) {
        let common = common.or_else(|| comparison_coercion(beside, of));
        return Ok(common.filter(|common| common != of));
    }
    if let (Some(DataType::Decimal128(_, kept)), DataType::Decimal128(_, scale)) = (common, of)
        && kept < *scale
    {
        return plan_err!(
            "a {} and a {} have no common type with all digits of both, and IN compares them here; \
             cast them to one type",
            spark_type(of),
            spark_type(beside)
        );
    }
    Ok(None)
}

fn is_decimal(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Decimal128(..))
}

/// The common type where one of them is a decimal and the others are numbers, text or null; or
/// where [`with_text`] has one; or that of arrays, structs or maps with such parts.
fn with_decimals(types: &[DataType]) -> Option<DataType> {
    nested::common_parts(types).or_else(|| of_values_with_decimals(types))
}

fn of_values_with_decimals(types: &[DataType]) -> Option<DataType> {
    if !types.iter().any(is_decimal) {
        return with_text(types);
    }
    if types.iter().any(|found| found.is_floating() || found.is_string()) {
        let known =
            |found: &DataType| found.is_numeric() || found.is_string() || *found == DataType::Null;
        if !types.iter().all(known) {
            return None;
        }
        let text = types.iter().any(DataType::is_string);
        let whole = types.iter().any(DataType::is_signed_integer);
        return if text && whole { from_left(types) } else { Some(DataType::Float64) };
    }
    let mut digits = types.iter().filter(|found| **found != DataType::Null).map(digits_of);
    let first = digits.next()??;
    digits.try_fold(first, |all, next| Some(wider(all, next?))).map(type_of)
}

/// The common type of the first two, then of that and the third, and so on: text beside a whole
/// number is a BIGINT, and beside a decimal it would have been a DOUBLE.
fn from_left(types: &[DataType]) -> Option<DataType> {
    let mut known = types.iter().filter(|found| !found.is_null());
    let first = known.next()?.clone();
    known.try_fold(first, |all, next| common_type(&[all, next.clone()]))
}

/// Text beside a number is one: a BIGINT beside whole numbers, else a DOUBLE. Beside a boolean, a
/// date, a time, bytes or a VARIANT it is such a value.
fn with_text(types: &[DataType]) -> Option<DataType> {
    let others = types.iter().filter(|found| !found.is_string() && !found.is_null());
    let others: Vec<&DataType> = others.collect();
    let first = *others.first()?;
    if !types.iter().any(DataType::is_string) {
        return of_floats(&others).or_else(|| of_times(&others)).or_else(|| of_spans(&others));
    }
    if others.iter().all(|found| found.is_signed_integer()) {
        return Some(DataType::Int64);
    }
    if others.iter().all(|found| found.is_signed_integer() || found.is_floating()) {
        return Some(DataType::Float64);
    }
    let keeps_its_type = matches!(
        first,
        DataType::Boolean | DataType::Date32 | DataType::Timestamp(..) | DataType::Binary
    ) || is_variant(first);
    if keeps_its_type && others.iter().all(|found| *found == first) {
        return Some(first.clone());
    }
    of_times(&others)
}

/// A FLOAT beside a whole number: a FLOAT has not enough digits for it.
fn of_floats(types: &[&DataType]) -> Option<DataType> {
    let float = types.iter().any(|found| **found == DataType::Float32);
    let whole = types.iter().any(|found| found.is_signed_integer());
    let all = types.iter().all(|found| found.is_signed_integer() || found.is_floating());
    (float && whole && all).then_some(DataType::Float64)
}

/// A date beside a time is its midnight, and one without a zone is in that of the session.
fn of_times(types: &[&DataType]) -> Option<DataType> {
    let is_time = |found: &DataType| matches!(found, DataType::Timestamp(..));
    let known = |found: &DataType| is_time(found) || *found == DataType::Date32;
    let differ = types.iter().any(|found| **found != *types[0]);
    if !differ || !types.iter().all(|found| known(found)) {
        return None;
    }
    let zoned = types.iter().any(|found| matches!(found, DataType::Timestamp(_, Some(_))));
    Some(if zoned { timestamp() } else { DataType::Timestamp(TimeUnit::Microsecond, None) })
}

/// Whether INTERVALs of months are beside those of days: a month has no fixed length.
fn have_months_and_days(types: &[DataType]) -> bool {
    types.contains(&DataType::Interval(IntervalUnit::YearMonth))
        && types.iter().any(|of| matches!(of, DataType::Duration(_)))
}

/// Refuses values that have no common type.
pub(super) fn check_intervals(types: &[DataType]) -> Result<()> {
    if have_months_and_days(types) {
        return plan_err!(
            "an INTERVAL of years and months and one of days have no common type \
             (DATATYPE_MISMATCH); write make_interval(...) for one of both, or add them to a date \
             one after the other"
        );
    }
    Ok(())
}

/// Refuses columns of UNION, INTERSECT or EXCEPT that have no common type.
pub(super) fn check_columns(types: &[DataType]) -> Result<()> {
    if have_months_and_days(types) {
        return plan_err!(
            "one column has INTERVALs of years and months in one query and of days in another \
             (INCOMPATIBLE_COLUMN_TYPE); write make_interval(...) in both, or cast them to STRING"
        );
    }
    check_common(types)
}

/// INTERVALs of days and of parts of days.
fn of_spans(types: &[&DataType]) -> Option<DataType> {
    let differ = types.iter().any(|found| **found != *types[0]);
    let spans = types.iter().all(|found| matches!(found, DataType::Duration(_)));
    (differ && spans).then_some(DataType::Duration(TimeUnit::Microsecond))
}

/// Rewrites an expression whose parts have been rewritten already.
pub(super) fn rewritten(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    let of = |expr: &Expr| expr.get_type(schema).ok();
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let (Some(left_type), Some(right_type)) = (of(&left), of(&right)) else {
                return Ok(Expr::BinaryExpr(BinaryExpr { left, op, right }));
            };
            binary(*left, left_type, op, *right, right_type)
        }
        Expr::InList(InList { expr, list, negated }) => {
            let all: Vec<Expr> = std::iter::once(*expr).chain(list).collect();
            united::check_listed(&all.iter().filter_map(of).collect::<Vec<_>>())?;
            let mut all = cast_together(all, schema)?;
            let list = all.split_off(1);
            let expr = Box::new(all.swap_remove(0));
            Ok(Expr::InList(InList { expr, list, negated }))
        }
        Expr::InSubquery(found) => keys::of_subquery(found, schema),
        Expr::Between(found) => pairs::between(found, schema),
        Expr::Case(case) => Ok(Expr::Case(pairs::common_case(case, schema)?)),
        Expr::Like(mut like) => {
            if let Some(found) = of(&like.expr).filter(has_text) {
                like.expr = Box::new(cast_to(*like.expr, &found, &DataType::Utf8)?);
            }
            Ok(Expr::Like(like))
        }
        Expr::WindowFunction(mut window) => {
            let order = window.params.order_by.first().and_then(|order| of(&order.expr));
            let frame = &mut window.params.window_frame;
            let is_range = frame.units == WindowFrameUnits::Range;
            if is_range && order.is_some_and(|of| of.is_signed_integer()) {
                [&mut frame.start_bound, &mut frame.end_bound].into_iter().for_each(whole_bound);
            }
            Ok(Expr::WindowFunction(window))
        }
        Expr::ScalarFunction(function) => call(function, schema),
        other => Ok(other),
    }
}

/// A number beside whole numbers, which Spark casts to their type: its fraction is left out.
fn whole_bound(bound: &mut WindowFrameBound) {
    if let WindowFrameBound::Preceding(ScalarValue::Utf8(Some(digits)))
    | WindowFrameBound::Following(ScalarValue::Utf8(Some(digits))) = bound
        && let Some((whole, fraction)) = digits.split_once('.')
        && !whole.is_empty()
        && whole.bytes().chain(fraction.bytes()).all(|byte| byte.is_ascii_digit())
    {
        *digits = whole.to_owned();
    }
}

/// Whether LIKE takes a value of this type as its text.
fn has_text(of: &DataType) -> bool {
    let is_time = matches!(of, DataType::Date32 | DataType::Timestamp(..) | DataType::Boolean);
    of.is_numeric() || is_time
}

fn binary(
    left: Expr,
    left_type: DataType,
    op: Operator,
    right: Expr,
    right_type: DataType,
) -> Result<Expr> {
    let same = |left, right| {
        Expr::BinaryExpr(BinaryExpr { left: Box::new(left), op, right: Box::new(right) })
    };
    let operation = match op {
        Operator::Plus => Some(Operation::Add),
        Operator::Minus => Some(Operation::Subtract),
        Operator::Multiply => Some(Operation::Multiply),
        Operator::Divide => Some(Operation::Divide),
        Operator::Modulo => Some(Operation::Remainder),
        Operator::Eq
        | Operator::NotEq
        | Operator::Lt
        | Operator::LtEq
        | Operator::Gt
        | Operator::GtEq
        | Operator::IsDistinctFrom
        | Operator::IsNotDistinctFrom => None,
        _ => return Ok(same(left, right)),
    };
    let types = [left_type, right_type];
    check_intervals(&types)?;
    check_common(&types)?;
    if operation.is_none() {
        order::check(op, &types)?;
    }
    let exact = exact_types([&left, &right], &types);
    match (operation, exact) {
        (Some(operation), Some([left_exact, right_exact])) => {
            let left = cast_to(left, &types[0], &left_exact)?;
            let right = cast_to(right, &types[1], &right_exact)?;
            Ok(decimal_operation(left, operation, right, Manner::OPERATOR))
        }
        (_, exact) => {
            let common = with_decimals(exact.as_ref().unwrap_or(&types));
            // What is added to a date or taken from a time has a type of its own.
            let common = common.filter(|common| operation.is_none() || common.is_numeric());
            let Some(common) = common else { return Ok(same(left, right)) };
            let left = cast_to(left, &types[0], &common)?;
            Ok(same(left, cast_to(right, &types[1], &common)?))
        }
    }
}

/// The plan of `left op right` where one side is a decimal and the other neither a double nor text.
/// DataFusion would refuse some of these before [`rewritten`] sees them.
pub(super) fn planned(left: &Expr, op: Operation, right: &Expr, schema: &DFSchema) -> Option<Expr> {
    let types = [left.get_type(schema).ok()?, right.get_type(schema).ok()?];
    exact_types([left, right], &types)?;
    Some(decimal_operation(left.clone(), op, right.clone(), Manner::OPERATOR))
}

/// The decimal types of both sides of an operator, where one is a decimal and the other neither a
/// double nor text.
fn exact_types(sides: [&Expr; 2], types: &[DataType; 2]) -> Option<[DataType; 2]> {
    if !types.iter().any(is_decimal) {
        return None;
    }
    let exact = |at: usize| match (&types[at], literal_digits(sides[at])) {
        (DataType::Null, _) => Some(types[1 - at].clone()),
        (data_type, Some(digits)) if data_type.is_integer() => Some(type_of((digits, 0))),
        (data_type, _) => digits_of(data_type).map(type_of),
    };
    Some([exact(0)?, exact(1)?])
}

/// How many digits a literal of a whole number has.
fn literal_digits(expr: &Expr) -> Option<u8> {
    let value = match expr {
        Expr::Literal(value, _) => value,
        Expr::Cast(cast) => return typed_digits(cast),
        _ => return None,
    };
    let value = match value {
        ScalarValue::Int8(value) => (*value)?.to_string(),
        ScalarValue::Int16(value) => (*value)?.to_string(),
        ScalarValue::Int32(value) => (*value)?.to_string(),
        ScalarValue::Int64(value) => (*value)?.to_string(),
        _ => return None,
    };
    u8::try_from(value.trim_start_matches('-').len()).ok()
}

/// How many digits `12L` or `12S` has, which is planned as a cast of its text.
fn typed_digits(cast: &Cast) -> Option<u8> {
    let Expr::Literal(value, _) = cast.expr.as_ref() else { return None };
    let digits = value.try_as_str().flatten()?;
    let is_typed = cast.field.name() == WRITTEN_NUMBER
        && !digits.is_empty()
        && digits.bytes().all(|digit| digit.is_ascii_digit());
    let significant = digits.trim_start_matches('0').len().max(1);
    is_typed.then(|| u8::try_from(significant).ok()).flatten()
}

/// `expr` cast to the type `to`. A literal stays a literal, for rules that look for one; except as
/// a BIGINT, which another rule would narrow again.
pub(super) fn cast_to(expr: Expr, from: &DataType, to: &DataType) -> Result<Expr> {
    if from == to {
        return Ok(expr);
    }
    // What a cast from or to a TIMESTAMP gives may depend on the session's time zone.
    let is_moment = |of: &DataType| matches!(of, DataType::Timestamp(_, Some(_)));
    if let Expr::Literal(value, metadata) = &expr
        && *to != DataType::Int64
        && !is_moment(from)
        && !is_moment(to)
    {
        let array = super::cast::cast(&value.to_array()?, to, true);
        if let Ok(array) = array {
            return Ok(Expr::Literal(ScalarValue::try_from_array(&array, 0)?, metadata.clone()));
        }
    }
    Ok(cast(expr, to.clone()))
}

/// Casts all to their common type if a decimal is among them.
fn cast_together(exprs: Vec<Expr>, schema: &DFSchema) -> Result<Vec<Expr>> {
    let types = exprs.iter().map(|expr| expr.get_type(schema)).collect::<Result<Vec<_>>>();
    let Ok(types) = types else { return Ok(exprs) };
    check_intervals(&types)?;
    check_common(&types)?;
    let Some(common) = with_decimals(&types) else { return Ok(exprs) };
    exprs.into_iter().zip(types).map(|(expr, from)| cast_to(expr, &from, &common)).collect()
}

/// Functions whose arguments become one type, which is that of the result.
const OF_ONE_TYPE: &[&str] = &["array", "make_array", "coalesce", "nvl", "greatest", "least"];

fn call(function: ScalarFunction, schema: &DFSchema) -> Result<Expr> {
    let name = function.func.name();
    if OF_ONE_TYPE.contains(&name) {
        let args = cast_together(function.args, schema)?;
        return Ok(Expr::ScalarFunction(ScalarFunction { args, ..function }));
    }
    if name == "nvl2" && function.args.len() == 3 {
        return if_there(function.args, schema);
    }
    if name == "format_string" {
        let of_decimal = |arg: &Expr| arg.get_type(schema).is_ok_and(|found| is_decimal(&found));
        let is_literal = matches!(function.args.first(), Some(Expr::Literal(..)));
        return if !is_literal && function.args.iter().any(of_decimal) {
            plan_err!(
                "format_string takes DECIMALs only with a literal format; cast them to STRING or \
                 DOUBLE"
            )
        } else {
            Ok(Expr::ScalarFunction(function))
        };
    }
    if name == "sequence" {
        return sequence_types::with_sequence_types(function, schema);
    }
    if name == "nullif" {
        return null_if(function, schema);
    }
    let operation = match name {
        division::NAME => Some((Operation::Divide, Manner::OPERATOR)),
        _ => Operation::of_function(name),
    };
    let (Some((operation, manner)), [left, right]) = (operation, function.args.as_slice()) else {
        return Ok(Expr::ScalarFunction(function));
    };
    let types = [left.get_type(schema)?, right.get_type(schema)?];
    let Some([left_exact, right_exact]) = exact_types([left, right], &types) else {
        if let Some(operator) = operation.planned_early(name) {
            // A side that was taken for a decimal when the operator was planned has another type by
            // now.
            let [left, right] = [left, right].map(Expr::clone);
            return Ok(match operator {
                Operator::Divide => division::of(left, right),
                op => binary_expr(left, op, right),
            });
        }
        let args = cast_together(function.args, schema)?;
        return Ok(Expr::ScalarFunction(ScalarFunction { args, ..function }));
    };
    let left = cast_to(left.clone(), &types[0], &left_exact)?;
    let right = cast_to(right.clone(), &types[1], &right_exact)?;
    Ok(decimal_operation(left, operation, right, manner))
}

/// `nvl2(a, b, c)` is `CASE WHEN a IS NOT NULL THEN b ELSE c END`.
fn if_there(args: Vec<Expr>, schema: &DFSchema) -> Result<Expr> {
    let mut args = args.into_iter();
    let mut next = || args.next().expect("there are three arguments");
    let when = Box::new(Expr::IsNotNull(Box::new(next())));
    let (then, otherwise) = (Box::new(next()), Box::new(next()));
    let when_then_expr = vec![(when, then)];
    let case = Case { expr: None, when_then_expr, else_expr: Some(otherwise) };
    Ok(Expr::Case(pairs::common_case(case, schema)?))
}

/// What `nullif` compares with: beside a decimal a literal has as many digits as it is written
/// with, and where values are compared in the type of the first one, the second has that type.
fn null_if(mut function: ScalarFunction, schema: &DFSchema) -> Result<Expr> {
    if let [left, right] = function.args.as_slice() {
        let types = [left.get_type(schema)?, right.get_type(schema)?];
        if let Some([_, exact]) = exact_types([left, right], &types) {
            function.args[1] = cast_to(right.clone(), &types[1], &exact)?;
        } else if compared(&types[0], &types[1]).is_some_and(|common| common == types[0]) {
            function.args[1] = cast_to(right.clone(), &types[1], &types[0])?;
        }
    }
    Ok(Expr::ScalarFunction(function))
}

/// DataFusion's common type of dates and times, to which no text casts.
const NANOSECONDS: DataType = DataType::Timestamp(TimeUnit::Nanosecond, None);

/// Casts the columns of a VALUES to their common types where decimals are among them. The casts
/// that its builder has added for DataFusion's own common types are removed first.
pub(super) fn of_values(values: Values) -> Result<LogicalPlan> {
    let Values { schema, values: mut rows } = values;
    let none = DFSchema::empty();
    for (column, field) in schema.fields().iter().enumerate() {
        let before = |expr: &Expr| match expr {
            Expr::Cast(cast) if cast.field.data_type() == field.data_type() => {
                Some(cast.expr.as_ref().clone()).filter(|inner| {
                    let is_builders = |of: DataType| {
                        of.is_numeric() || of.is_null() || *field.data_type() == NANOSECONDS
                    };
                    inner.get_type(&none).is_ok_and(is_builders)
                })
            }
            // A NULL was given the type at once.
            Expr::Literal(value, None) if value.is_null() => {
                Some(Expr::Literal(ScalarValue::Null, None))
            }
            _ => None,
        };
        let cells = rows.iter().map(|row| before(&row[column]).unwrap_or(row[column].clone()));
        let cells: Vec<Expr> = cells.collect();
        let types = cells.iter().map(|cell| cell.get_type(&none)).collect::<Result<Vec<_>>>()?;
        // Of a column without values only the casts say what it is.
        let is_void = types.iter().all(DataType::is_null);
        let common = if is_void { Some(field.data_type().clone()) } else { with_decimals(&types) };
        for ((row, cell), of) in rows.iter_mut().zip(cells).zip(types) {
            row[column] = match &common {
                Some(common) => cast_to(cell, &of, common)?,
                None => cell,
            };
        }
    }
    LogicalPlanBuilder::values(rows)?.build()
}

/// Casts the whole numbers of the part of a query that reads itself to the wider types of its first
/// part. They were cast when it was planned, but for those that had this type only as long as
/// every number in the text was a BIGINT.
pub(super) fn of_recursive(query: RecursiveQuery) -> Result<LogicalPlan> {
    let pairs = query.static_term.schema().fields().iter();
    let mut pairs = pairs.zip(query.recursive_term.schema().fields());
    let is_narrower = |first: &DataType, rest: &DataType| {
        first.is_signed_integer()
            && rest.is_signed_integer()
            && rest.primitive_width() < first.primitive_width()
    };
    if !pairs.any(|(first, rest)| is_narrower(first.data_type(), rest.data_type())) {
        return Ok(LogicalPlan::RecursiveQuery(query));
    }
    let RecursiveQuery { name, static_term, recursive_term, is_distinct, .. } = query;
    let rest = recursive_term.as_ref().clone();
    let rest = coerce_plan_expr_for_schema(rest, static_term.schema())?;
    RecursiveQuery::try_new(name, static_term, Arc::new(rest), is_distinct)
        .map(LogicalPlan::RecursiveQuery)
}

/// Casts the columns of a UNION to their common types where decimals are among them, or those of
/// several UNIONs could be.
pub(super) fn of_union(union: Union) -> Result<Union> {
    let columns = union.inputs.first().map_or(0, |input| input.schema().fields().len());
    let same_width = union.inputs.iter().all(|input| input.schema().fields().len() == columns);
    let common = |column: usize| -> Result<Option<DataType>> {
        let types = union.inputs.iter().map(|input| input.schema().field(column).data_type());
        let types: Vec<DataType> = types.cloned().collect();
        check_columns(&types)?;
        united::check_structs(&types)?;
        let differ = types.iter().any(|found| *found != types[0]);
        let common = || with_decimals(&types).or_else(|| united::plain(&types));
        Ok(if differ { common() } else { None })
    };
    if !same_width {
        return Ok(union);
    }
    let common: Vec<Option<DataType>> = (0..columns).map(common).collect::<Result<_>>()?;
    if common.iter().all(Option::is_none) {
        return Ok(union);
    }
    let inputs = union.inputs.iter().map(|input| with_types(input, &common).map(Arc::new));
    Ok(Union { inputs: inputs.collect::<Result<_>>()?, ..union.clone() })
}

pub(super) fn with_types(
    input: &Arc<LogicalPlan>,
    wanted: &[Option<DataType>],
) -> Result<LogicalPlan> {
    let columns = input.schema().iter().zip(wanted).map(|((table, field), wanted)| {
        let column = Expr::Column((table, field).into());
        match wanted {
            Some(wanted) if wanted != field.data_type() => {
                cast(column, wanted.clone()).alias_qualified(table.cloned(), field.name())
            }
            _ => column,
        }
    });
    LogicalPlanBuilder::from(LogicalPlan::clone(input))
        .project(columns.collect::<Vec<_>>())?
        .build()
}

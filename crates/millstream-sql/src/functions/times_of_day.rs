//! Times of a day, of the type TIME.
//!
//! Spark 4.2 has this type switched off: there are literals and `current_time`, `from_json` reads
//! such columns, and what works with values of any type works with them, casts to STRING, whole
//! numbers and DECIMALs included. Casts to TIME, its other functions and its arithmetic are errors
//! (UNSUPPORTED_TIME_TYPE), and so they are here, where DataFusion would compute much of it.
//!
//! `current_time` becomes what a clock shows at the local time of the micro-batch, so that it
//! follows that in sessions of any zone, and where a plan is computed elsewhere.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, StringArray};
use arrow::compute::cast as arrow_cast;
use arrow::datatypes::{DataType, Decimal128Type, Int64Type, Time64MicrosecondType};
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{DFSchema, Result, ScalarValue, exec_err, internal_err, plan_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::planner::RawBinaryExpr;
use datafusion::logical_expr::{Expr, ExprSchemable, ScalarUDF, lit};
use datafusion::sql::sqlparser::ast::BinaryOperator;

use super::define::{Arguments, Function, Param};
use crate::types::{TIME, TIME_DIGITS, TIME_HELP, holds_time, spark_type};
use crate::values::calendar::{DAY_US, SECOND_US};
use crate::values::time_of_day::write_time;

/// The function that a literal is a call of, with the microseconds since midnight as text.
pub(crate) const TIME_OF: &str = "time_of";

/// The function of a local time and a number of digits that `current_time` is planned as.
pub(super) const TIME_SHOWN: &str = "__time_of_day";

const CURRENT_TIME: &str = "current_time";

/// The digits of a second that a TIME has if nothing else is said, which is also the most.
const DIGITS: i32 = 6;

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new(TIME_OF, &[Param::Text], |_| Ok(TIME), time_of),
    Function::new(
        CURRENT_TIME,
        &[Param::Int],
        |_| Ok(TIME),
        |_| internal_err!("current_time is planned as another function"),
    )
    .required(0)
    .keeps_nulls(),
    Function::new(TIME_SHOWN, &[Param::AnyTime, Param::Int], |_| Ok(TIME), time_shown)
        .keeps_nulls(),
];

fn time_of(args: &Arguments) -> Result<ArrayRef> {
    let texts = args.text(0);
    args.primitives::<Time64MicrosecondType>(|row| {
        let Some(text) = texts.get(row) else { return Ok(None) };
        match text.parse::<i64>() {
            Ok(us) if (0..DAY_US).contains(&us) => Ok(Some(us)),
            _ => exec_err!("{text} microseconds after midnight is no TIME"),
        }
    })
}

fn time_shown(args: &Arguments) -> Result<ArrayRef> {
    let (times, digits) = (args.timestamp(0), args.int(1));
    args.primitives::<Time64MicrosecondType>(|row| {
        let (Some(time), Some(digits)) = (times.get(row), digits.get(row)) else { return Ok(None) };
        let us = time.rem_euclid(DAY_US);
        match digits {
            0..=DIGITS => Ok(Some(us - us % 10_i64.pow((DIGITS - digits).unsigned_abs()))),
            _ => exec_err!("current_time takes from 0 to {DIGITS} digits, not {digits}"),
        }
    })
}

/// What `call` is planned as, if it is one of `current_time`; `now` reads the clock as a local
/// time, and `shown` is [`TIME_SHOWN`].
pub(super) fn current(
    call: &ScalarFunction,
    now: &Arc<ScalarUDF>,
    shown: &Arc<ScalarUDF>,
) -> Option<Expr> {
    if call.name() != CURRENT_TIME {
        return None;
    }
    let now = Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(now), Vec::new()));
    let digits = call.args.first().cloned().unwrap_or_else(|| lit(DIGITS));
    let function = ScalarFunction::new_udf(Arc::clone(shown), vec![now, digits]);
    Some(Expr::ScalarFunction(function))
}

/// Refuses digits for `current_time` that are no constant, or too many.
fn check_digits(call: &ScalarFunction, types: &[DataType]) -> Result<()> {
    let (CURRENT_TIME, [digits], [of]) = (call.name(), call.args.as_slice(), types) else {
        return Ok(());
    };
    let varies = digits
        .exists(|part| Ok(matches!(part, Expr::Column(_) | Expr::OuterReferenceColumn(..))))?;
    match (of, digits) {
        _ if varies => plan_err!("current_time takes a constant number of digits"),
        (DataType::Null, _) => plan_err!("current_time takes a number of digits, not NULL"),
        (_, Expr::Literal(ScalarValue::Int32(Some(digits)), _))
            if !(0..=DIGITS).contains(digits) =>
        {
            plan_err!("current_time takes from 0 to {DIGITS} digits, not {digits}")
        }
        (of, _) if of.is_signed_integer() || of.is_string() => Ok(()),
        (of, _) => plan_err!("current_time takes an INT and got {}; cast it", spark_type(of)),
    }
}

/// The name of the type of `expr` where that has other digits than [`TIME`]: it is a call of
/// `current_time`, whose digits nothing else keeps.
pub(super) fn type_with_digits(expr: &Expr) -> Option<String> {
    match expr {
        Expr::ScalarFunction(call) if call.name() == CURRENT_TIME => match call.args.as_slice() {
            [Expr::Literal(ScalarValue::Int32(Some(digits)), _)] => Some(format!("time({digits})")),
            _ => None,
        },
        _ => None,
    }
}

/// Functions that take values of any type.
const OF_ANY_TYPE: &[&str] = &[
    "__zipped",
    "array",
    "array_append",
    "array_contains",
    "array_has",
    "array_position",
    "array_prepend",
    "array_repeat",
    "arrays_zip",
    "coalesce",
    "concat",
    "get_field",
    "greatest",
    "ifnull",
    "isnotnull",
    "isnull",
    "least",
    "make_array",
    "make_timestamp",
    "make_timestamp_ntz",
    "map",
    "named_struct",
    "nvl",
    "nvl2",
    "spark_cast",
    "spark_try_cast",
    "struct",
    "try_make_timestamp",
    "try_make_timestamp_ntz",
    "typeof",
];

/// Aggregates and functions of windows that take values of any type.
const OF_ANY_ROWS: &[&str] = &[
    "any_value",
    "array_agg",
    "collect_list",
    "collect_set",
    "count",
    "first",
    "first_value",
    "lag",
    "last",
    "last_value",
    "lead",
    "max",
    "max_by",
    "min",
    "min_by",
    "nth_value",
];

/// Refuses what a call must not do with a TIME.
///
/// # Errors
/// It takes one and must not, takes one with other digits than six out of a STRUCT, or asks for the
/// time with digits that there are not.
pub(super) fn check(call: &ScalarFunction, types: &[DataType], schema: &DFSchema) -> Result<()> {
    check_call(call.func.name(), types)?;
    check_field(call, types, schema)?;
    check_digits(call, types)
}

/// Refuses calls of `name` with a TIME, unless it takes values of any type.
fn check_call(name: &str, types: &[DataType]) -> Result<()> {
    // The names of internal functions begin so.
    let takes_any = name.starts_with("__") || OF_ANY_TYPE.contains(&name);
    if types.contains(&TIME) && !takes_any {
        return plan_err!("{name} takes no TIME: {TIME_HELP}");
    }
    Ok(())
}

/// Refuses to take a TIME with other digits than six out of a STRUCT: what is computed with it
/// would have six.
fn check_field(call: &ScalarFunction, types: &[DataType], schema: &DFSchema) -> Result<()> {
    if call.func.name() != "get_field" || !types.first().is_some_and(holds_time) {
        return Ok(());
    }
    let field = Expr::ScalarFunction(call.clone()).to_field(schema);
    match field.as_ref().ok().and_then(|(_, field)| field.metadata().get(TIME_DIGITS)) {
        Some(digits) => plan_err!(
            "a TIME({digits}) cannot be taken out of its STRUCT; write TIME in the schema, which \
             has six digits"
        ),
        None => Ok(()),
    }
}

/// Refuses a TIME as an argument of an aggregate or a function of a window.
pub(super) fn check_rows(name: &str, args: &[Expr], schema: &DFSchema) -> Result<()> {
    let is_time = |arg: &Expr| arg.get_type(schema).is_ok_and(|of| of == TIME);
    if args.iter().any(is_time) && !OF_ANY_ROWS.contains(&name) {
        return plan_err!("{name} takes no TIME: {TIME_HELP}");
    }
    Ok(())
}

/// Refuses to compute with a TIME.
pub(super) fn check_operator(expr: &RawBinaryExpr, schema: &DFSchema) -> Result<()> {
    let computes = matches!(
        expr.op,
        BinaryOperator::Plus
            | BinaryOperator::Minus
            | BinaryOperator::Multiply
            | BinaryOperator::Divide
            | BinaryOperator::Modulo
            | BinaryOperator::MyIntegerDivide
            | BinaryOperator::DuckIntegerDivide
    );
    let is_time = |side: &Expr| side.get_type(schema).is_ok_and(|of| of == TIME);
    if computes && (is_time(&expr.left) || is_time(&expr.right)) {
        return plan_err!("`{}` takes no TIME: {TIME_HELP}", expr.op);
    }
    Ok(())
}

/// Refuses a TIME beside values of other types, of which neither becomes the other.
pub(super) fn check_common(types: &[DataType]) -> Result<()> {
    let mut others = types.iter().filter(|of| **of != TIME && !of.is_null());
    match others.next() {
        Some(other) if types.contains(&TIME) => {
            let other = spark_type(other);
            plan_err!("a TIME and a {other} have no common type: {TIME_HELP}")
        }
        _ => Ok(()),
    }
}

/// Whether a cast is done here.
pub(super) fn casts(from: &DataType, to: &DataType) -> bool {
    *from == TIME && (to.is_string() || to.is_signed_integer() || is_decimal(to))
}

fn is_decimal(of: &DataType) -> bool {
    matches!(of, DataType::Decimal128(..))
}

/// Casts what [`casts`] says: to text, or to the seconds since midnight, which `cast` casts on.
pub(super) fn cast_time(
    values: &ArrayRef,
    to: &DataType,
    cast: impl Fn(&ArrayRef, &DataType) -> Result<ArrayRef>,
) -> Result<ArrayRef> {
    let times = values.as_primitive::<Time64MicrosecondType>();
    if is_decimal(to) {
        let seconds = times.unary::<_, Decimal128Type>(i128::from);
        let seconds: ArrayRef = Arc::new(seconds.with_data_type(DataType::Decimal128(11, 6)));
        return cast(&seconds, to);
    }
    if to.is_string() {
        let texts = times.iter().map(|us| {
            us.map(|us| {
                let mut text = String::new();
                write_time(us, &mut text);
                text
            })
        });
        let texts: ArrayRef = Arc::new(texts.collect::<StringArray>());
        return Ok(arrow_cast(&texts, to)?);
    }
    let seconds: ArrayRef = Arc::new(times.unary::<_, Int64Type>(|us| us.div_euclid(SECOND_US)));
    cast(&seconds, to)
}

//! BETWEEN, and CASE with a value: Spark compares the value with each of the others by itself, in
//! the common type of these two.
//!
//! DataFusion has one type for all. Where this gives the same answers the plan stays as it is, else
//! each comparison gets an operator of its own. A condition has to be one already.

use std::iter::once;

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::{DFSchema, Result, plan_err};
use datafusion::logical_expr::binary::comparison_coercion;
use datafusion::logical_expr::expr::{Between, Case};
use datafusion::logical_expr::type_coercion::other::get_coerce_type_for_case_when;
use datafusion::logical_expr::{Expr, ExprSchemable, Operator};

use super::{binary, cast_to, cast_together, literal_digits, with_decimals};
use crate::functions::decimals::digits_of;
use crate::functions::random::is_random;
use crate::types::spark_type;

/// The most digits of numbers that are all different DOUBLEs.
const DOUBLE_DIGITS: u8 = 15;

/// Whether all values of the type `from` are values of the type `to`, in the same order, and none
/// of them become the same.
pub(super) fn fits(from: &DataType, to: &DataType) -> bool {
    use DataType::{Date32, Decimal128, Duration, Float32, Float64, Int8, Int16, Int32, Timestamp};
    match (from, to) {
        (from, to) if from == to || from.is_null() => true,
        (from, to) if from.is_string() && to.is_string() => true,
        (from, to) if from.is_signed_integer() && to.is_signed_integer() => {
            from.primitive_width() <= to.primitive_width()
        }
        (Int8 | Int16 | Int32 | Float32, Float64) | (Int8 | Int16, Float32) => true,
        (Decimal128(digits, _), Float64) => *digits <= DOUBLE_DIGITS,
        (from, Decimal128(digits, scale)) => digits_of(from).is_some_and(|(own, own_scale)| {
            let whole = |digits: u8, scale: i8| i16::from(digits) - i16::from(scale);
            own_scale <= *scale && whole(own, own_scale) <= whole(*digits, *scale)
        }),
        (Date32 | Timestamp(TimeUnit::Microsecond, None), Timestamp(TimeUnit::Microsecond, _))
        | (Duration(_), Duration(TimeUnit::Microsecond)) => true,
        _ => false,
    }
}

/// Whether a value of the type `value` is compared with one of `others` in another type than
/// `common`, that of all of them, and the answer may be another one then.
fn differ(value: &DataType, others: &[(&Expr, &DataType)], common: Option<&DataType>) -> bool {
    let pair = |of: &DataType| {
        with_decimals(&[value.clone(), of.clone()]).or_else(|| comparison_coercion(value, of))
    };
    let pairs: Option<Vec<DataType>> = others.iter().map(|(_, of)| pair(of)).collect();
    // What cannot be compared at all is refused elsewhere.
    let Some(pairs) = pairs else { return false };
    let Some(common) = common else { return true };
    let is_short = |other: &Expr| literal_digits(other).is_some_and(|all| all <= DOUBLE_DIGITS);
    pairs.iter().zip(others).any(|(own, (other, of))| {
        let is_same = own.equals_datatype(common)
            || (fits(value, own) && fits(of, own) && fits(own, common))
            // A number of few digits is a DOUBLE, and no other whole number is the same one.
            || (*common == DataType::Float64 && value.is_signed_integer() && is_short(other));
        !is_same
    })
}

/// Refuses a value that would be computed for each comparison.
fn check_steady(value: &Expr, form: &str) -> Result<()> {
    if is_random(value)? {
        return plan_err!(
            "{form} compares a random value with values of several types, for each of which it \
             would be computed again; give it a name in a subquery"
        );
    }
    Ok(())
}

/// `value BETWEEN low AND high`, whose parts have been rewritten already.
pub(super) fn between(between: Between, schema: &DFSchema) -> Result<Expr> {
    let Between { expr, negated, low, high } = between;
    let of = |part: &Expr| part.get_type(schema).ok();
    let (Some(value), Some(first), Some(last)) = (of(&expr), of(&low), of(&high)) else {
        return Ok(Expr::Between(Between { expr, negated, low, high }));
    };
    let common = with_decimals(&[value.clone(), first.clone(), last.clone()]).or_else(|| {
        let lower = comparison_coercion(&value, &first)?;
        comparison_coercion(&lower, &comparison_coercion(&value, &last)?)
    });
    if !differ(&value, &[(low.as_ref(), &first), (high.as_ref(), &last)], common.as_ref()) {
        let mut all = cast_together(vec![*expr, *low, *high], schema)?.into_iter().map(Box::new);
        let mut next = || all.next().expect("as many come back");
        return Ok(Expr::Between(Between { expr: next(), negated, low: next(), high: next() }));
    }
    check_steady(&expr, "BETWEEN")?;
    let least = binary(expr.as_ref().clone(), value.clone(), Operator::GtEq, *low, first)?;
    let most = binary(*expr, value, Operator::LtEq, *high, last)?;
    let both = least.and(most);
    Ok(if negated { Expr::Not(Box::new(both)) } else { both })
}

/// The value of a CASE, if it is still one, and what each WHEN compares it with, or else the
/// conditions.
pub(super) fn of_case(
    value: Option<Box<Expr>>,
    whens: Vec<Expr>,
    schema: &DFSchema,
) -> Result<(Option<Box<Expr>>, Vec<Expr>)> {
    let Some(value) = value else { return Ok((None, whens)) };
    let types = whens.iter().map(|when| when.get_type(schema)).collect::<Result<Vec<_>>>();
    if let (Ok(of), Ok(types)) = (value.get_type(schema), types) {
        let all: Vec<DataType> = once(of.clone()).chain(types.iter().cloned()).collect();
        let common = with_decimals(&all).or_else(|| get_coerce_type_for_case_when(&types, &of));
        let others: Vec<(&Expr, &DataType)> = whens.iter().zip(&types).collect();
        if differ(&of, &others, common.as_ref()) {
            check_steady(&value, "CASE")?;
            let is_equal = |(when, when_type): (Expr, DataType)| {
                binary(value.as_ref().clone(), of.clone(), Operator::Eq, when, when_type)
            };
            let conditions = whens.into_iter().zip(types).map(is_equal);
            return Ok((None, conditions.collect::<Result<_>>()?));
        }
    }
    let mut all = cast_together(once(*value).chain(whens).collect(), schema)?;
    let whens = all.split_off(1);
    Ok((all.pop().map(Box::new), whens))
}

/// Refuses a condition that is none: DataFusion would cast a number to one, and Spark does not.
pub(in crate::functions) fn check_condition(
    condition: &Expr,
    schema: &DFSchema,
    of: &str,
) -> Result<()> {
    match condition.get_type(schema) {
        Ok(found) if found != DataType::Boolean && !found.is_null() => plan_err!(
            "a condition {of} must be BOOLEAN, and this one is {} (DATATYPE_MISMATCH); write a \
             comparison, as x <> 0",
            spark_type(&found)
        ),
        // What has no type yet is refused for that where it is looked at.
        _ => Ok(()),
    }
}

/// `case`, whose conditions are such, and whose values have common types.
pub(super) fn common_case(case: Case, schema: &DFSchema) -> Result<Case> {
    let Case { expr, when_then_expr, else_expr } = case;
    let (whens, thens): (Vec<_>, Vec<_>) =
        when_then_expr.into_iter().map(|(when, then)| (*when, *then)).unzip();
    if expr.is_none()
        && whens.iter().any(|when| matches!(when.get_type(schema), Ok(DataType::Null)))
    {
        return plan_err!(
            "a condition of CASE is a NULL without a type (DATATYPE_MISMATCH); write CAST(NULL AS \
             BOOLEAN)"
        );
    }
    if expr.is_none() {
        whens.iter().try_for_each(|when| check_condition(when, schema, "of CASE or if"))?;
    }
    let (expr, whens) = of_case(expr, whens, schema)?;
    let count = thens.len();
    let mut results = of_one_type(
        cast_together(thens.into_iter().chain(else_expr.map(|expr| *expr)).collect(), schema)?,
        schema,
    )?;
    let else_expr = results.split_off(count).pop().map(Box::new);
    let when_then_expr = whens.into_iter().zip(results);
    let when_then_expr =
        when_then_expr.map(|(when, then)| (Box::new(when), Box::new(then))).collect();
    Ok(Case { expr, when_then_expr, else_expr })
}

/// The values of a CASE in their common type, which DataFusion would only find later on. Until then
/// it would take the type of the first value for that of all.
fn of_one_type(values: Vec<Expr>, schema: &DFSchema) -> Result<Vec<Expr>> {
    let types = values.iter().map(|value| value.get_type(schema)).collect::<Result<Vec<_>>>();
    let Ok(types) = types else { return Ok(values) };
    let mut known = types.iter().filter(|of| !of.is_null());
    let first = known.next();
    let Some((last, others)) = types.split_last() else { return Ok(values) };
    if known.all(|other| Some(other) == first) {
        return Ok(values);
    }
    let Some(common) = get_coerce_type_for_case_when(others, last) else { return Ok(values) };
    let typed = values.into_iter().zip(&types);
    typed.map(|(value, from)| cast_to(value, from, &common)).collect()
}

//! BETWEEN, and CASE with a value: Spark compares the value with each of the others by itself, in
//! the common type of these two.
//!
//! DataFusion has one type for all. Where this gives the same answers the plan stays as it is, else
//! each comparison gets an operator of its own.

use std::iter::once;

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::{DFSchema, Result, plan_err};
use datafusion::logical_expr::binary::comparison_coercion;
use datafusion::logical_expr::expr::Between;
use datafusion::logical_expr::type_coercion::other::get_coerce_type_for_case_when;
use datafusion::logical_expr::{Expr, ExprSchemable, Operator};

use super::{binary, cast_together, literal_digits, with_decimals};
use crate::functions::decimals::digits_of;
use crate::functions::random::is_random;

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

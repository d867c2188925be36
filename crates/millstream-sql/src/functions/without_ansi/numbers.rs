//! Whole numbers that wrap around, divisors that are NULL where they are zero, and what else is
//! NULL or has another value where ANSI mode has an error: dates of numbers and of names that make
//! none, `elt` without a value, numbers of too many bits in `conv`.

use std::sync::Arc;

use arrow::array::{ArrayRef, ArrowNativeTypeOp, AsArray, Datum, Scalar};
use arrow::compute::kernels::numeric;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type,
    Int16Type, Int32Type, Int64Type,
};
use arrow::error::ArrowError;
use datafusion::common::{Result, internal_err};

use super::super::bases::conv_of_64_bits;
use super::super::collections::{elt_or_null, elt_type};
use super::super::date_steps::next_day_or_null;
use super::super::datetime::civil;
use super::super::decimals::wrapping_quotients;
use super::super::define::{Arguments, Function, Param, returns_date, returns_long, returns_text};
use super::super::operators::wider;

use Param::{Any, Date, Int, Long, Text, TextOrBinary};

pub(crate) const ADD: &str = "__wrapping_add";
pub(crate) const SUBTRACT: &str = "__wrapping_subtract";
pub(crate) const MULTIPLY: &str = "__wrapping_multiply";
pub(crate) const ABS: &str = "__wrapping_abs";
pub(crate) const NONZERO: &str = "__nonzero";
pub(crate) const MAKE_DATE: &str = "__make_date_or_null";
pub(crate) const CONV: &str = "__conv_of_64_bits";
pub(crate) const DIV: &str = "__wrapping_div";
pub(crate) const ELT: &str = "__elt_or_null";
pub(crate) const NEXT_DAY: &str = "__next_day_or_null";

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new(ADD, &[Any, Any], wider_type, |args| wrapped(args, numeric::add_wrapping)),
    Function::new(SUBTRACT, &[Any, Any], wider_type, |args| wrapped(args, numeric::sub_wrapping)),
    Function::new(MULTIPLY, &[Any, Any], wider_type, |args| wrapped(args, numeric::mul_wrapping)),
    Function::new(ABS, &[Any], same, abs).keeps_nulls(),
    Function::new(NONZERO, &[Any], same, nonzero),
    Function::new(MAKE_DATE, &[Int, Int, Int], returns_date, make_date),
    Function::new(CONV, &[Text, Int, Int], returns_text, conv_of_64_bits),
    Function::new(DIV, &[Any, Any], returns_long, wrapping_quotients),
    Function::new(ELT, &[Long, TextOrBinary], elt_type, elt_or_null).variadic(),
    Function::new(NEXT_DAY, &[Date, Text], returns_date, next_day_or_null),
];

fn same(args: &[DataType]) -> Result<DataType> {
    Ok(args[0].clone())
}

fn wider_type(args: &[DataType]) -> Result<DataType> {
    Ok(wider(args).clone())
}

type Operator = fn(&dyn Datum, &dyn Datum) -> std::result::Result<ArrayRef, ArrowError>;

fn wrapped(args: &Arguments, operator: Operator) -> Result<ArrayRef> {
    let side = |at: usize| -> Result<Box<dyn Datum>> {
        let (array, constant) = args.array(at);
        let array = arrow::compute::cast(array, &args.returns)?;
        Ok(if constant { Box::new(Scalar::new(array)) } else { Box::new(array) })
    };
    let (left, right) = (side(0)?, side(1)?);
    Ok(operator(left.as_ref(), right.as_ref())?)
}

fn abs(args: &Arguments) -> Result<ArrayRef> {
    let values = args.array(0).0;
    match values.data_type() {
        DataType::Int8 => Ok(absolute::<Int8Type>(values)),
        DataType::Int16 => Ok(absolute::<Int16Type>(values)),
        DataType::Int32 => Ok(absolute::<Int32Type>(values)),
        DataType::Int64 => Ok(absolute::<Int64Type>(values)),
        other => internal_err!("{other} is no whole number"),
    }
}

/// The least number stays as it is: there is none above zero for it.
fn absolute<T: ArrowPrimitiveType>(values: &ArrayRef) -> ArrayRef {
    let zero = T::default_value();
    let of = |value: T::Native| if value.is_lt(zero) { value.neg_wrapping() } else { value };
    Arc::new(values.as_primitive::<T>().unary::<_, T>(of))
}

fn nonzero(args: &Arguments) -> Result<ArrayRef> {
    let values = args.array(0).0;
    match values.data_type() {
        DataType::Int8 => Ok(without_zeros::<Int8Type>(values)),
        DataType::Int16 => Ok(without_zeros::<Int16Type>(values)),
        DataType::Int32 => Ok(without_zeros::<Int32Type>(values)),
        DataType::Int64 => Ok(without_zeros::<Int64Type>(values)),
        DataType::Float32 => Ok(without_zeros::<Float32Type>(values)),
        DataType::Float64 => Ok(without_zeros::<Float64Type>(values)),
        DataType::Decimal128(..) => Ok(without_zeros::<Decimal128Type>(values)),
        other => internal_err!("{other} is no number"),
    }
}

fn without_zeros<T: ArrowPrimitiveType>(values: &ArrayRef) -> ArrayRef {
    // Both zeros are equal to the default, as IEEE compares.
    let zero = T::default_value();
    let numbers = values.as_primitive::<T>();
    let kept = numbers.unary_opt::<_, T>(|value| (value != zero).then_some(value));
    Arc::new(kept.with_data_type(values.data_type().clone()))
}

fn make_date(args: &Arguments) -> Result<ArrayRef> {
    let (years, months, days) = (args.int(0), args.int(1), args.int(2));
    args.primitives::<Date32Type>(|row| {
        let parts = years.get(row).zip(months.get(row)).zip(days.get(row));
        Ok(parts.and_then(|((year, month), day)| civil(year, month, day)))
    })
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array, Float64Array, Int8Array};

    use super::*;

    #[test]
    fn the_least_number_has_no_other_amount() {
        let values: ArrayRef = Arc::new(Int8Array::from(vec![Some(-128), Some(-5), Some(5), None]));
        let found = absolute::<Int8Type>(&values);
        let found = found.as_primitive::<Int8Type>();
        assert_eq!(found.iter().collect::<Vec<_>>(), [Some(-128), Some(5), Some(5), None]);
    }

    #[test]
    fn zeros_are_no_divisors() {
        let values: ArrayRef = Arc::new(Float64Array::from(vec![0.0, -0.0, 2.0]));
        let found = without_zeros::<Float64Type>(&values);
        assert!(found.is_null(0) && found.is_null(1) && found.is_valid(2));
    }
}

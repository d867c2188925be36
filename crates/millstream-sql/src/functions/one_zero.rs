//! `__one_zero`: a FLOAT or DOUBLE whose zero has no sign, and whose NaN is always the same, alone
//! or within arrays and structs. `__one_nan` is the same of NaN alone.
//!
//! In Spark both zeros are equal, and all NaNs. Where their bits are looked at, they differ. Most
//! columns have none of both, and are passed on as they are.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, PrimitiveArray, StructArray};
use arrow::datatypes::{DataType, Float32Type, Float64Type};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::ScalarUDF;

use super::define::{Function, Param};

const ONE_ZERO: Function = Function::new(
    "__one_zero",
    &[Param::Any],
    |args| Ok(args[0].clone()),
    |args| ones(&args.expanded(0)?),
)
.keeps_nulls();

const ONE_NAN: Function = Function::new(
    "__one_nan",
    &[Param::Any],
    |args| Ok(args[0].clone()),
    |args| nans(&args.expanded(0)?),
)
.keeps_nulls();

/// Numbers with one NaN. That of the processor has a sign, and would be less than all numbers.
fn nans(values: &ArrayRef) -> Result<ArrayRef> {
    match values.data_type() {
        DataType::Float64 => {
            let numbers: &PrimitiveArray<Float64Type> = values.as_primitive();
            if !numbers.values().iter().any(|value| value.is_nan()) {
                return Ok(Arc::clone(values));
            }
            let one = |value: f64| if value.is_nan() { f64::NAN } else { value };
            Ok(Arc::new(numbers.unary::<_, Float64Type>(one)))
        }
        DataType::Float32 => {
            let numbers: &PrimitiveArray<Float32Type> = values.as_primitive();
            if !numbers.values().iter().any(|value| value.is_nan()) {
                return Ok(Arc::clone(values));
            }
            let one = |value: f32| if value.is_nan() { f32::NAN } else { value };
            Ok(Arc::new(numbers.unary::<_, Float32Type>(one)))
        }
        other => internal_err!("{other} has no NaN"),
    }
}

/// The values with one zero and one NaN.
pub(super) fn ones(values: &ArrayRef) -> Result<ArrayRef> {
    if !holds_float(values.data_type()) {
        return Ok(Arc::clone(values));
    }
    Ok(match values.data_type() {
        DataType::Float64 => {
            let numbers: &PrimitiveArray<Float64Type> = values.as_primitive();
            // Of NaN and the zero below zero the bits are others than those of the sum.
            if !numbers.values().iter().any(|value| one(*value).to_bits() != value.to_bits()) {
                return Ok(Arc::clone(values));
            }
            Arc::new(numbers.unary::<_, Float64Type>(one))
        }
        DataType::Float32 => {
            let numbers: &PrimitiveArray<Float32Type> = values.as_primitive();
            let one = |value: f32| if value.is_nan() { f32::NAN } else { value + 0.0 };
            Arc::new(numbers.unary::<_, Float32Type>(one))
        }
        DataType::List(element) => {
            let list = values.as_list::<i32>();
            let (offsets, nulls) = (list.offsets().clone(), list.nulls().cloned());
            Arc::new(ListArray::try_new(Arc::clone(element), offsets, ones(list.values())?, nulls)?)
        }
        DataType::Struct(fields) => {
            let of = values.as_struct();
            let columns = of.columns().iter().map(ones).collect::<Result<Vec<_>>>()?;
            Arc::new(StructArray::try_new(fields.clone(), columns, of.nulls().cloned())?)
        }
        other => return internal_err!("{other} has no zero"),
    })
}

/// Whether values of a type are FLOATs or DOUBLEs, or have such in arrays and structs.
pub fn holds_float(of: &DataType) -> bool {
    match of {
        DataType::Float32 | DataType::Float64 => true,
        DataType::List(element) => holds_float(element.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| holds_float(field.data_type())),
        _ => false,
    }
}

/// The sum of both zeros is the positive one.
fn one(value: f64) -> f64 {
    if value.is_nan() { f64::NAN } else { value + 0.0 }
}

/// The function.
pub fn one_zero() -> Arc<ScalarUDF> {
    ONE_ZERO.udf()
}

/// The function that leaves zeros as they are.
pub(crate) fn one_nan() -> Arc<ScalarUDF> {
    ONE_NAN.udf()
}

#[cfg(test)]
mod tests {
    use arrow::array::{Float64Array, Int32Array};

    use super::*;

    #[test]
    fn zero_has_no_sign_and_nan_neither() {
        assert_eq!(one(-0.0).to_bits(), 0.0_f64.to_bits());
        assert_eq!(one(-f64::NAN).to_bits(), f64::NAN.to_bits());
        assert_eq!(one(-1.5).to_bits(), (-1.5_f64).to_bits());
        assert_eq!(one(f64::NEG_INFINITY).to_bits(), f64::NEG_INFINITY.to_bits());
    }

    #[test]
    fn zeros_keep_their_signs_where_nan_loses_it() {
        let column = |values: [f64; 3]| Arc::new(Float64Array::from(values.to_vec())) as ArrayRef;
        let made = nans(&column([-0.0, -f64::NAN, 1.5])).unwrap();
        let made: &Float64Array = made.as_primitive();
        assert!(made.value(0).is_sign_negative());
        assert_eq!(made.value(1).to_bits(), f64::NAN.to_bits());
        let plain = column([-0.0, 2.0, 1.5]);
        assert_eq!(&nans(&plain).unwrap(), &plain);
    }

    #[test]
    fn zeros_in_lists_have_no_sign_and_other_values_stay() {
        let list = |zero: f64| {
            let rows = [Some(vec![Some(zero), None]), None];
            Arc::new(ListArray::from_iter_primitive::<Float64Type, _, _>(rows)) as ArrayRef
        };
        let made = ones(&list(-0.0)).unwrap();
        let zeros: &Float64Array = made.as_list::<i32>().values().as_primitive();
        assert!(zeros.value(0).is_sign_positive());
        assert_eq!(&made, &list(0.0));
        let whole: ArrayRef = Arc::new(Int32Array::from(vec![1]));
        assert_eq!(&ones(&whole).unwrap(), &whole);
    }
}

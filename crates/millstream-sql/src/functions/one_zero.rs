//! `__one_zero`: a FLOAT or DOUBLE whose zero has no sign, and whose NaN is always the same, alone
//! or within arrays and structs.
//!
//! In Spark both zeros are equal, and all NaNs. Where their bits are looked at, they differ.

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

fn ones(values: &ArrayRef) -> Result<ArrayRef> {
    if !holds_float(values.data_type()) {
        return Ok(Arc::clone(values));
    }
    Ok(match values.data_type() {
        DataType::Float64 => {
            let values: &PrimitiveArray<Float64Type> = values.as_primitive();
            Arc::new(values.unary::<_, Float64Type>(one))
        }
        DataType::Float32 => {
            let values: &PrimitiveArray<Float32Type> = values.as_primitive();
            let one = |value: f32| if value.is_nan() { f32::NAN } else { value + 0.0 };
            Arc::new(values.unary::<_, Float32Type>(one))
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

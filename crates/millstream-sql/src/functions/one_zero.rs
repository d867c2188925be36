//! `__one_zero`: a FLOAT or DOUBLE whose zero has no sign, and whose NaN is always the same.
//!
//! In Spark both zeros are equal, and all NaNs. Where their bits are looked at, they differ.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray};
use arrow::datatypes::{DataType, Float32Type, Float64Type};
use datafusion::common::internal_err;
use datafusion::logical_expr::ScalarUDF;

use super::define::{Function, Param};

const ONE_ZERO: Function = Function::new(
    "__one_zero",
    &[Param::Any],
    |args| Ok(args[0].clone()),
    |args| {
        let values = args.expanded(0)?;
        let made: ArrayRef = match values.data_type() {
            DataType::Float64 => {
                let values: &PrimitiveArray<Float64Type> = values.as_primitive();
                Arc::new(values.unary::<_, Float64Type>(one))
            }
            DataType::Float32 => {
                let values: &PrimitiveArray<Float32Type> = values.as_primitive();
                let one = |value: f32| if value.is_nan() { f32::NAN } else { value + 0.0 };
                Arc::new(values.unary::<_, Float32Type>(one))
            }
            other => return internal_err!("{other} has one zero"),
        };
        Ok(made)
    },
);

/// The sum of both zeros is the positive one.
fn one(value: f64) -> f64 {
    if value.is_nan() { f64::NAN } else { value + 0.0 }
}

/// The function.
pub(crate) fn one_zero() -> Arc<ScalarUDF> {
    ONE_ZERO.udf()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_has_no_sign_and_nan_neither() {
        assert_eq!(one(-0.0).to_bits(), 0.0_f64.to_bits());
        assert_eq!(one(-f64::NAN).to_bits(), f64::NAN.to_bits());
        assert_eq!(one(-1.5).to_bits(), (-1.5_f64).to_bits());
        assert_eq!(one(f64::NEG_INFINITY).to_bits(), f64::NEG_INFINITY.to_bits());
    }
}

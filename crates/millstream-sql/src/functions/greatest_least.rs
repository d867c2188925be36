//! `greatest` and `least`: of equal arguments the first one.
//!
//! DataFusion compares the bits of FLOATs and DOUBLEs, to which `0.0` and `-0.0` differ and some
//! NaNs are less than all numbers, and takes a NULL within an array or a struct for the greatest
//! value in `least`. Here zeros are equal, NaN is above all numbers, and a NULL within a value is
//! below all others, as in Spark. Other types are left to DataFusion, and so are types themselves.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType};
use arrow::compute::interleave;
use arrow::datatypes::{DataType, FieldRef, Float32Type, Float64Type};
use arrow::row::{RowConverter, Rows, SortField};
use datafusion::common::{Result, plan_err};
use datafusion::functions::core::{greatest, least};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};

use super::define::{Arguments, call, known_by_name};
use super::one_zero::ones;

/// The functions, for registration.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    let of = |inner, wanted| Arc::new(ScalarUDF::from(Extreme { inner, wanted }));
    vec![of(greatest(), Ordering::Greater), of(least(), Ordering::Less)]
}

struct Extreme {
    inner: Arc<ScalarUDF>,
    /// How a later argument compares with an earlier one that it replaces.
    wanted: Ordering,
}

known_by_name!(Extreme);

impl ScalarUDFImpl for Extreme {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        if given.len() < 2 {
            return plan_err!("{} takes two or more arguments, not {}", self.name(), given.len());
        }
        self.inner.coerce_types(given)
    }

    fn return_type(&self, args: &[DataType]) -> Result<DataType> {
        self.inner.return_type(args)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.inner.return_field_from_args(args)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let of = args.return_type();
        let is_ours = of.is_floating() || of.is_nested();
        // DataFusion says what is wrong with arguments of several types.
        if !is_ours || args.args.iter().any(|arg| arg.data_type() != *of) {
            return self.inner.invoke_with_args(args);
        }
        call(&args, |arguments| match arguments.returns {
            DataType::Float32 => of_floats::<Float32Type>(arguments, self.wanted),
            DataType::Float64 => of_floats::<Float64Type>(arguments, self.wanted),
            _ => of_parts(arguments, self.wanted),
        })
    }
}

fn of_floats<T>(args: &Arguments, wanted: Ordering) -> Result<ArrayRef>
where
    T: ArrowPrimitiveType,
    T::Native: Into<f64>,
{
    let sides: Vec<_> = (0..args.len()).map(|at| args.primitive::<T>(at)).collect();
    args.primitives::<T>(|row| {
        let given = sides.iter().filter_map(|side| side.get(row));
        let best =
            given.reduce(
                |best, next| {
                    if order(next.into(), best.into()) == wanted { next } else { best }
                },
            );
        Ok(best)
    })
}

/// The order of numbers: zeros are equal, and so are NaNs, which are above all numbers.
fn order(one: f64, other: f64) -> Ordering {
    one.partial_cmp(&other).unwrap_or_else(|| one.is_nan().cmp(&other.is_nan()))
}

/// The best of arrays or structs.
fn of_parts(args: &Arguments, wanted: Ordering) -> Result<ArrayRef> {
    let sides = (0..args.len()).map(|at| args.expanded(at)).collect::<Result<Vec<_>>>()?;
    let converter = RowConverter::new(vec![SortField::new(args.returns.clone())])?;
    let keys = |side: &ArrayRef| -> Result<Rows> { Ok(converter.convert_columns(&[ones(side)?])?) };
    let keys = sides.iter().map(keys).collect::<Result<Vec<_>>>()?;
    let place = |row: usize| {
        let given = (0..sides.len()).filter(|at| sides[*at].is_valid(row));
        let best = given.reduce(|best, at| {
            if keys[at].row(row).cmp(&keys[best].row(row)) == wanted { at } else { best }
        });
        // Where all are NULL, the first one is.
        (best.unwrap_or(0), row)
    };
    let places: Vec<(usize, usize)> = (0..args.rows).map(place).collect();
    let sides: Vec<&dyn Array> = sides.iter().map(|side| side.as_ref()).collect();
    Ok(interleave(&sides, &places)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_equal_and_nan_is_the_greatest() {
        assert_eq!(order(0.0, -0.0), Ordering::Equal);
        assert_eq!(order(f64::NAN, -f64::NAN), Ordering::Equal);
        assert_eq!(order(-f64::NAN, f64::INFINITY), Ordering::Greater);
        assert_eq!(order(1.0, f64::NAN), Ordering::Less);
        assert_eq!(order(-1.0, 1.0), Ordering::Less);
    }
}

//! `kll_sketch_get_quantile_*` and `kll_sketch_get_rank_*`, whose second argument is a constant or
//! an array of constants, and whose result is one or an array accordingly.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datasketches::kll::KllFloat;

use super::super::define::{Arguments, Param, call, known_by_name};
use super::kll::{quantiles, ranks};
use crate::types::{list_of, spark_type};

/// The functions, for registration.
pub(super) fn functions() -> impl Iterator<Item = Arc<ScalarUDF>> {
    use DataType::{Float32, Float64, Int64};
    let function = |(name, asked, answer, call)| {
        let signature = Signature::user_defined(Volatility::Immutable);
        Arc::new(ScalarUDF::from(Ranking { name, asked, answer, call, signature }))
    };
    let all: [(&'static str, DataType, DataType, Call); 6] = [
        ("kll_sketch_get_quantile_bigint", Float64, Int64, |args| {
            quantiles::<i64>("kll_sketch_get_quantile_bigint", args)
        }),
        ("kll_sketch_get_quantile_float", Float64, Float32, |args| {
            quantiles::<KllFloat<f32>>("kll_sketch_get_quantile_float", args)
        }),
        ("kll_sketch_get_quantile_double", Float64, Float64, |args| {
            quantiles::<KllFloat<f64>>("kll_sketch_get_quantile_double", args)
        }),
        ("kll_sketch_get_rank_bigint", Int64, Float64, |args| {
            ranks::<i64>("kll_sketch_get_rank_bigint", args)
        }),
        ("kll_sketch_get_rank_float", Float32, Float64, |args| {
            ranks::<KllFloat<f32>>("kll_sketch_get_rank_float", args)
        }),
        ("kll_sketch_get_rank_double", Float64, Float64, |args| {
            ranks::<KllFloat<f64>>("kll_sketch_get_rank_double", args)
        }),
    ];
    all.into_iter().map(function)
}

type Call = fn(&Arguments) -> Result<ArrayRef>;

struct Ranking {
    name: &'static str,
    /// The type of what is asked, or of the elements of an array of it.
    asked: DataType,
    /// The same of the answer.
    answer: DataType,
    call: Call,
    signature: Signature,
}

known_by_name!(Ranking);

impl Ranking {
    /// The type to cast what is asked to. A fraction is not cut off.
    fn cast_from(&self, given: &DataType) -> Result<DataType> {
        let is_text = given.is_string() || given.is_null();
        let is_right = match self.asked.is_integer() {
            true => given.is_signed_integer(),
            false => given.is_numeric(),
        };
        if is_text || is_right {
            return Ok(self.asked.clone());
        }
        let (wanted, found) = (spark_type(&self.asked), spark_type(given));
        plan_err!("{} takes {wanted} behind its sketch, or an ARRAY of it, not {found}", self.name)
    }
}

impl ScalarUDFImpl for Ranking {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let [sketch, asked] = given else {
            return plan_err!("{} takes 2 arguments and got {}", self.name, given.len());
        };
        let asked = match asked {
            DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
                list_of(self.cast_from(item.data_type())?)
            }
            one => self.cast_from(one)?,
        };
        Ok(vec![Param::OnlyBinary.coerced(sketch)?, asked])
    }

    fn return_type(&self, args: &[DataType]) -> Result<DataType> {
        match args.get(1) {
            Some(DataType::List(_)) => Ok(list_of(self.answer.clone())),
            _ => Ok(self.answer.clone()),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        call(&args, |arguments| (self.call)(arguments))
    }
}

//! `try_add`, `try_subtract`, `try_multiply`, `try_divide` and `try_mod`: NULL where the operator
//! is an error. Of decimals they are [`super::decimals`]', which takes the calls over before they
//! run; of INTERVALs they are in [`super::interval_tries`], of dates and times in
//! [`super::time_tries`].

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ArrowNativeTypeOp, AsArray, PrimitiveArray};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Field, FieldRef, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type,
};
use datafusion::common::{Result, internal_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::common_types::common_type;
use super::define::{Arguments, call, known_by_name};
use super::interval_casts::is_interval;
use super::{interval_tries, time_tries};
use crate::types::{INTERVAL_FIELDS, spark_type};

/// The functions, for registration.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    let names = ["try_add", "try_subtract", "try_multiply", "try_divide", "try_mod"];
    let function = |name| {
        let signature = Signature::user_defined(Volatility::Immutable);
        Arc::new(ScalarUDF::from(Try { name, signature }))
    };
    names.into_iter().map(function).collect()
}

struct Try {
    name: &'static str,
    signature: Signature,
}

known_by_name!(Try);

impl ScalarUDFImpl for Try {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let [left, right] = given else {
            return plan_err!("{} takes 2 arguments and got {}", self.name, given.len());
        };
        let of_times = time_tries::coerced(self.name, [left, right]);
        let types = of_times.or_else(|| interval_tries::coerced(self.name, [left, right]));
        if let Some(types) = types {
            return Ok(types);
        }
        let is_number =
            |found: &DataType| found.is_numeric() || found.is_string() || *found == DataType::Null;
        if let Some(other) = given.iter().find(|found| !is_number(found)) {
            return plan_err!("{} takes numbers, not {}", self.name, spark_type(other));
        }
        let whole = |found: &DataType| found.is_signed_integer() || *found == DataType::Null;
        let both = match common_type(given) {
            Some(common @ DataType::Decimal128(..)) => common,
            _ if self.name == "try_divide" || !given.iter().all(whole) => DataType::Float64,
            Some(common) if common.is_signed_integer() => common,
            _ if left.is_null() && right.is_null() => DataType::Float64,
            _ => return plan_err!("{} takes numbers", self.name),
        };
        Ok(vec![both.clone(), both])
    }

    fn return_type(&self, args: &[DataType]) -> Result<DataType> {
        let of_times = time_tries::returns(args).or_else(|| interval_tries::returns(args));
        Ok(of_times.unwrap_or_else(|| args[0].clone()))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let types = args.arg_fields.iter().map(|field| field.data_type().clone());
        let returns = self.return_type(&types.collect::<Vec<_>>())?;
        let fields = interval_tries::fields(args.arg_fields);
        let metadata = fields.map(|fields| (INTERVAL_FIELDS.to_owned(), fields));
        let field = Field::new(self.name, returns, true);
        Ok(Arc::new(field.with_metadata(metadata.into_iter().collect())))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        call(&args, |arguments| match &arguments.returns {
            DataType::Int8 => self.rows::<Int8Type>(arguments),
            DataType::Int16 => self.rows::<Int16Type>(arguments),
            DataType::Int32 => self.rows::<Int32Type>(arguments),
            DataType::Int64 => self.rows::<Int64Type>(arguments),
            DataType::Float64 => self.rows::<Float64Type>(arguments),
            _ if time_tries::knows(arguments) => time_tries::computed(self.name, arguments),
            _ if (0..2).any(|at| is_interval(arguments.data_type(at))) => {
                interval_tries::computed(self.name, arguments)
            }
            other => internal_err!("{} of {other} is planned as something else", self.name),
        })
    }
}

impl Try {
    fn rows<T: ArrowPrimitiveType>(&self, args: &Arguments) -> Result<ArrayRef> {
        let (left, right) = (args.expanded(0)?, args.expanded(1)?);
        let (left, right) = (left.as_primitive::<T>(), right.as_primitive::<T>());
        let value = |row: usize| {
            if left.is_null(row) || right.is_null(row) {
                return None;
            }
            let (left, right) = (left.value(row), right.value(row));
            match self.name {
                "try_add" => left.add_checked(right).ok(),
                "try_subtract" => left.sub_checked(right).ok(),
                "try_multiply" => left.mul_checked(right).ok(),
                _ if right.is_zero() => None,
                "try_divide" => left.div_checked(right).ok(),
                _ => Some(left.mod_wrapping(right)),
            }
        };
        Ok(Arc::new((0..args.rows).map(value).collect::<PrimitiveArray<T>>()))
    }
}

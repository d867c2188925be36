//! What `listagg(DISTINCT ...)` joins in an order.

use std::sync::Arc;

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::ScalarUDF;

use super::define::{Function, Param};
use crate::types::spark_type;

/// The name of the function; no text of a user has it.
pub(crate) const LISTED: &str = "__listed";

const FUNCTION: Function = Function::new(LISTED, &[Param::Any], type_of, |args| args.expanded(0));

/// The function: the value as it is, if values that differ are written differently.
pub(super) fn listed() -> Arc<ScalarUDF> {
    FUNCTION.udf()
}

fn type_of(args: &[DataType]) -> Result<DataType> {
    let of = &args[0];
    let is_sure = match of {
        DataType::Null | DataType::Utf8 | DataType::Boolean | DataType::Date32 => true,
        DataType::Timestamp(TimeUnit::Microsecond, zone) => zone.is_none(),
        DataType::Decimal128(..) => true,
        other => other.is_signed_integer(),
    };
    match is_sure {
        true => Ok(of.clone()),
        false => plan_err!(
            "listagg joins no DISTINCT {} in an order: two of them may be one text; cast them to \
             STRING in a subquery",
            spark_type(of)
        ),
    }
}

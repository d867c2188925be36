//! A value, with a name that says which cast made it.
//!
//! DataFusion leaves casts out of the names of columns, so that `max(n)` and
//! `max(CAST(n AS STRING))` would be two of one name. Where a query has both, this function stands
//! around the cast. It gives its first argument; the second one is what the cast makes of it, and
//! is there to be a part of the name.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, exec_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::define::known_by_name;

/// The name of the function; no text of a user has it.
pub(crate) const APART: &str = "__apart";

/// The function.
pub(super) fn apart() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(Apart { signature: Signature::any(2, Volatility::Immutable) }))
}

struct Apart {
    signature: Signature,
}

known_by_name!(Apart);

impl ScalarUDFImpl for Apart {
    fn name(&self) -> &str {
        APART
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, args: &[DataType]) -> Result<DataType> {
        match args.first() {
            Some(value) => Ok(value.clone()),
            None => plan_err!("{APART} takes a value"),
        }
    }

    /// With all that is known of the value, as the fields of an INTERVAL.
    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        match args.arg_fields.first() {
            Some(value) => Ok(Arc::new(value.as_ref().clone().with_name(APART))),
            None => plan_err!("{APART} takes a value"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.into_iter().next() {
            Some(value) => Ok(value),
            None => exec_err!("{APART} takes a value"),
        }
    }
}

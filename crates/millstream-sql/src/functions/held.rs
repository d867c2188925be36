//! A value that is known before the query is: that of a session's variable.
//!
//! Not every value has a literal in SQL. A call of a function that gives it has its type while the
//! query is planned, and becomes a literal in the plan before that runs anywhere. The argument of
//! the call is a text that names of columns show, and has no effect.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

/// A function `name` of one argument that gives `value`, whose type is that of `field`.
pub fn held(name: String, field: &FieldRef, value: ScalarValue) -> Arc<ScalarUDF> {
    let field = field.as_ref().clone().with_name(&name).with_nullable(value.is_null());
    let signature = Signature::any(1, Volatility::Immutable);
    Arc::new(ScalarUDF::from(Held { name, field: Arc::new(field), value, signature }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Held {
    name: String,
    field: FieldRef,
    value: ScalarValue,
    signature: Signature,
}

impl ScalarUDFImpl for Held {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.field.data_type().clone())
    }

    fn return_field_from_args(&self, _: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        Ok(Arc::clone(&self.field))
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(ColumnarValue::Scalar(self.value.clone()))
    }
}

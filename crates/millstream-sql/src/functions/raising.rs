//! `raise_error` and `assert_true`: NULL for each row, or the end of the query.
//!
//! They are volatile, so that no constant call is computed before there is a row for it.

use std::sync::Arc;

use arrow::array::{Array, AsArray, new_null_array};
use arrow::datatypes::DataType;
use datafusion::common::{Result, exec_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::define::known_by_name;

/// The functions, for registration.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    let function = |name| {
        let signature = Signature::user_defined(Volatility::Volatile);
        Arc::new(ScalarUDF::from(Raising { name, signature }))
    };
    vec![function(RAISE_ERROR), function("assert_true")]
}

const RAISE_ERROR: &str = "raise_error";

struct Raising {
    name: &'static str,
    signature: Signature,
}

known_by_name!(Raising);

impl ScalarUDFImpl for Raising {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match (self.name, given) {
            (RAISE_ERROR, [_]) => Ok(vec![DataType::Utf8]),
            (RAISE_ERROR, _) => plan_err!("raise_error takes 1 argument and got {}", given.len()),
            (_, [DataType::Boolean | DataType::Null, _]) => {
                Ok(vec![DataType::Boolean, DataType::Utf8])
            }
            _ => plan_err!("assert_true takes a condition and, if wanted, a message"),
        }
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Null)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let columns = args.args.iter().map(|arg| arg.to_array(rows)).collect::<Result<Vec<_>>>()?;
        let (conditions, messages) = match columns.as_slice() {
            [messages] => (None, messages),
            [conditions, messages] => (conditions.as_boolean_opt(), messages),
            _ => return exec_err!("{} takes 1 or 2 arguments", self.name),
        };
        let holds =
            |row: usize| conditions.is_some_and(|found| found.is_valid(row) && found.value(row));
        if let Some(row) = (0..rows).find(|row| !holds(*row)) {
            let messages = messages.as_string::<i32>();
            let message = if messages.is_valid(row) { messages.value(row) } else { "null" };
            return exec_err!("{message}");
        }
        Ok(ColumnarValue::Array(new_null_array(&DataType::Null, rows)))
    }
}

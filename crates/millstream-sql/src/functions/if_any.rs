//! The value of a subquery that may have no row: NULL then.
//!
//! DataFusion takes such a value to be what the subquery's column is, so that of a column without
//! NULLs it would have none either: `(SELECT 1 FROM t WHERE false) IS NULL` would be false, and the
//! value itself an error. The function gives its argument, and says that it may be NULL. It is
//! volatile, so that no optimizer computes it of a constant and finds that it is not.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, exec_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::define::known_by_name;

/// The name of the function, which no text has.
pub(super) const IF_ANY: &str = "__if_any";

/// The function.
pub(crate) fn if_any() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(IfAny { signature: Signature::any(1, Volatility::Volatile) }))
}

struct IfAny {
    signature: Signature,
}

known_by_name!(IfAny);

impl ScalarUDFImpl for IfAny {
    fn name(&self) -> &str {
        IF_ANY
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, args: &[DataType]) -> Result<DataType> {
        match args {
            [value] => Ok(value.clone()),
            _ => plan_err!("{IF_ANY} takes one argument"),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let [value] = args.arg_fields else { return plan_err!("{IF_ANY} takes one argument") };
        Ok(Arc::new(value.as_ref().clone().with_name(IF_ANY).with_nullable(true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.into_iter().next() {
            Some(value) => Ok(value),
            None => exec_err!("{IF_ANY} takes one argument"),
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::Field;
    use datafusion::common::{DFSchema, ScalarValue};
    use datafusion::logical_expr::{ExprSchemable as _, lit};

    use super::*;

    #[test]
    fn a_value_without_nulls_may_be_null() {
        let schema = DFSchema::empty();
        let value = lit(1_i32);
        assert!(!value.nullable(&schema).expect("it has a type"));
        let call = if_any().call(vec![value]);
        assert!(call.nullable(&schema).expect("it has a type"));
        assert!(call.is_volatile());
    }

    #[test]
    fn the_value_stays_what_it_is() {
        let field = Arc::new(Field::new("v", DataType::Int32, false));
        let found = if_any().invoke_with_args(ScalarFunctionArgs {
            args: vec![ColumnarValue::Scalar(ScalarValue::Int32(Some(7)))],
            arg_fields: vec![Arc::clone(&field)],
            number_rows: 1,
            return_field: field,
            config_options: Arc::default(),
        });
        let Ok(ColumnarValue::Scalar(found)) = found else { panic!("it is a constant") };
        assert_eq!(found, ScalarValue::Int32(Some(7)));
    }
}

//! `__as_key(value, key)`: a value that PIVOT lists, as the type of the column that it is compared
//! with. Spark casts the value, where `=` would cast either side: '01' is not the text of 1.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, exec_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::define::{Param, known_by_name};
use crate::types::spark_type;

/// The function, for registration.
pub(super) fn as_key() -> Arc<ScalarUDF> {
    let signature = Signature::user_defined(Volatility::Immutable);
    Arc::new(ScalarUDF::from(AsKey { signature }))
}

struct AsKey {
    signature: Signature,
}

known_by_name!(AsKey);

impl ScalarUDFImpl for AsKey {
    fn name(&self) -> &str {
        "__as_key"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    /// The value becomes a key by the cast that is put in for this, which is Spark's.
    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let [value, key] = given else { return plan_err!("__as_key takes a value and a key") };
        let key = Param::Any.coerced(key)?;
        let is_span = |of: &DataType| matches!(of, DataType::Interval(_) | DataType::Duration(_));
        if is_span(&key) && !is_span(value) && !value.is_null() {
            let (value, key) = (spark_type(value), spark_type(&key));
            return plan_err!("PIVOT compares a {key} with a {value}; write an INTERVAL");
        }
        if !key.is_nested() || value.is_null() {
            return Ok(vec![key.clone(), key]);
        }
        if !is_alike(value, &key) {
            let (value, key) = (spark_type(value), spark_type(&key));
            return plan_err!("PIVOT compares a {key} with a {value}; CAST the value to {key}");
        }
        Ok(vec![value.clone(), key])
    }

    fn return_type(&self, args: &[DataType]) -> Result<DataType> {
        Ok(args.first().cloned().unwrap_or(DataType::Null))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let [value, key] = args.arg_fields else {
            return plan_err!("__as_key takes a value and a key");
        };
        // The kind of an INTERVAL is said beside its type.
        let metadata = key.metadata().clone();
        let field = Field::new(self.name(), value.data_type().clone(), true);
        Ok(Arc::new(field.with_metadata(metadata)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.into_iter().next() {
            Some(value) => Ok(value),
            None => exec_err!("__as_key takes a value and a key"),
        }
    }
}

/// Whether values of two types are equal where their parts are, without a cast that matters.
fn is_alike(one: &DataType, other: &DataType) -> bool {
    match (one, other) {
        (DataType::List(one), DataType::List(other)) => {
            is_alike(one.data_type(), other.data_type())
        }
        (DataType::Struct(one), DataType::Struct(other)) => {
            let mut pairs = one.iter().zip(other);
            one.len() == other.len()
                && pairs.all(|(one, other)| is_alike(one.data_type(), other.data_type()))
        }
        (one, other) => {
            one == other
                || one.is_null()
                || (one.is_string() && other.is_string())
                || (one.is_integer() && other.is_integer())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::list_of;

    fn coerced(value: DataType, key: DataType) -> Option<Vec<DataType>> {
        let signature = Signature::user_defined(Volatility::Immutable);
        AsKey { signature }.coerce_types(&[value, key]).ok()
    }

    #[test]
    fn a_value_becomes_a_key() {
        let texts = vec![DataType::Utf8, DataType::Utf8];
        assert_eq!(coerced(DataType::Int32, DataType::Utf8), Some(texts));
        let dates = vec![DataType::Date32, DataType::Date32];
        assert_eq!(coerced(DataType::Utf8, DataType::Date32), Some(dates));
    }

    #[test]
    fn arrays_have_to_be_alike() {
        let (ints, texts) = (list_of(DataType::Int32), list_of(DataType::Utf8));
        assert!(coerced(list_of(DataType::Int64), ints.clone()).is_some());
        assert_eq!(coerced(texts, ints), None);
    }
}

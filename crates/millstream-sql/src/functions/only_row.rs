//! The value of a subquery, which must not have several rows.

use std::sync::Arc;

use arrow::array::cast::AsArray;
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::define::known_by_name;

/// The function: the value as it is, or an error where it is one of several rows.
pub(crate) fn only_row() -> Arc<ScalarUDF> {
    let signature = Signature::any(2, Volatility::Immutable);
    Arc::new(ScalarUDF::from(OnlyRow { signature }))
}

struct OnlyRow {
    signature: Signature,
}

known_by_name!(OnlyRow);

impl ScalarUDFImpl for OnlyRow {
    fn name(&self) -> &str {
        "__only_row"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, args: &[DataType]) -> Result<DataType> {
        Ok(args.first().cloned().unwrap_or(DataType::Null))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let [value, counts] = args.args.as_slice() else {
            return exec_err!("__only_row takes a value and a number of rows");
        };
        let counts = counts.to_array(rows)?;
        let Some(counts) = counts.as_primitive_opt::<Int64Type>() else {
            return exec_err!("a number of rows is a BIGINT");
        };
        if counts.iter().flatten().any(|count| count > 1) {
            return exec_err!("more than one row returned by a subquery used as an expression");
        }
        Ok(value.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array};
    use arrow::datatypes::{DataType, Field};
    use datafusion::config::ConfigOptions;
    use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs};

    use super::only_row;

    #[test]
    fn several_rows_have_no_value() {
        let ask = |counts: Vec<Option<i64>>| {
            let number_rows = counts.len();
            let values: ArrayRef = Arc::new(Int64Array::from(vec![7; number_rows]));
            let counts: ArrayRef = Arc::new(Int64Array::from(counts));
            let field = Arc::new(Field::new("f", DataType::Int64, true));
            only_row().invoke_with_args(ScalarFunctionArgs {
                args: vec![ColumnarValue::Array(values), ColumnarValue::Array(counts)],
                arg_fields: vec![Arc::clone(&field), Arc::clone(&field)],
                number_rows,
                return_field: field,
                config_options: Arc::new(ConfigOptions::default()),
            })
        };
        assert!(ask(vec![Some(1), None, Some(0)]).is_ok());
        let error = ask(vec![Some(1), Some(2)]).expect_err("there are two rows");
        assert!(error.to_string().contains("more than one row"), "{error}");
    }
}

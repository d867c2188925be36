//! The value of a subquery, which must not have several rows.

use std::sync::Arc;

use arrow::array::ArrayRef;
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::ScalarUDF;

use super::define::{Arguments, Function, Param};

const ONLY_ROW: Function = Function::new(
    "__only_row",
    &[Param::Any, Param::Long],
    |args| Ok(args[0].clone()),
    value_of_one,
);

/// The function: the value as it is, or an error where it is one of several rows.
pub(crate) fn only_row() -> Arc<ScalarUDF> {
    ONLY_ROW.udf()
}

fn value_of_one(args: &Arguments) -> Result<ArrayRef> {
    let counts = args.long(1);
    if (0..args.rows).any(|row| counts.get(row).is_some_and(|count| count > 1)) {
        return exec_err!("more than one row returned by a subquery used as an expression");
    }
    args.expanded(0)
}

#[cfg(test)]
mod tests {
    use arrow::array::Int64Array;
    use arrow::datatypes::{DataType, Field};
    use datafusion::config::ConfigOptions;
    use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs};

    use super::*;

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

//! Small stand-ins for Spark's functions that are made elsewhere.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, StringArray};
use arrow::datatypes::DataType;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, create_udf,
};
use datafusion::prelude::SessionContext;
use regex::Regex;

pub fn register(session: &SessionContext) {
    let (text, yes) = (DataType::Utf8, DataType::Boolean);
    let immutable = Volatility::Immutable;
    let types = vec![text.clone(), text.clone()];
    session.register_udf(create_udf("rlike", types.clone(), yes, immutable, Arc::new(rlike)));
    session.register_udf(create_udf(
        "get_json_object",
        types,
        text,
        immutable,
        Arc::new(|args: &[ColumnarValue]| Ok(args[0].clone())),
    ));
    session.register_udf(ScalarUDF::from(ToJson(Signature::any(1, immutable))));
}

fn rlike(args: &[ColumnarValue]) -> Result<ColumnarValue> {
    let args = ColumnarValue::values_to_arrays(args)?;
    let (texts, patterns) = (args[0].as_string::<i32>(), args[1].as_string::<i32>());
    let found = texts.iter().zip(patterns).map(|(text, pattern)| {
        let pattern = Regex::new(pattern?).expect("tests have valid patterns");
        Some(pattern.is_match(text?))
    });
    Ok(ColumnarValue::Array(Arc::new(found.collect::<BooleanArray>())))
}

/// Shows a value as Arrow prints it: enough to see which fields it has.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ToJson(Signature);

impl ScalarUDFImpl for ToJson {
    fn name(&self) -> &str {
        "to_json"
    }

    fn signature(&self) -> &Signature {
        &self.0
    }

    fn return_type(&self, _args: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let array = args.args[0].to_array(args.number_rows)?;
        let options = FormatOptions::default();
        let formatter = ArrayFormatter::try_new(&array, &options)?;
        let rows = (0..array.len()).map(|row| formatter.value(row).to_string());
        let shown: ArrayRef = Arc::new(StringArray::from_iter_values(rows));
        Ok(ColumnarValue::Array(shown))
    }
}

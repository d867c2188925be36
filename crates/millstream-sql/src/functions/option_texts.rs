//! The options that a function takes as a MAP of texts, as `to_json` and `from_csv` do.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::DataType;
use datafusion::common::{Result, exec_err, plan_err};

/// The options in a MAP argument, with their keys in lower case.
pub(super) fn entries(options: &ArrayRef) -> Result<Vec<(String, String)>> {
    if !matches!(options.data_type(), DataType::Map(..)) || options.is_empty() {
        return exec_err!("options are a map, for example map('mode', 'FAILFAST')");
    }
    let row = options.as_map().value(0);
    let text = |at: usize| arrow::compute::cast(row.column(at), &DataType::Utf8);
    let (keys, values) = (text(0)?, text(1)?);
    let entries = keys.as_string::<i32>().iter().zip(values.as_string::<i32>());
    let entry = |(key, value): (Option<&str>, Option<&str>)| {
        (key.unwrap_or_default().to_lowercase(), value.unwrap_or_default().to_owned())
    };
    Ok(entries.map(entry).collect())
}

/// An option that is true or false.
pub(super) fn boolean(function: &str, name: &str, value: &str) -> Result<bool> {
    match value.to_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => plan_err!("{function}: {name} is true or false, not {value}"),
    }
}

//! Which types the argument of a function of one kind of values may have.
//!
//! Most functions cast what they are given, and a cast takes more than Spark does implicitly:
//! `year(5)` would be the year of the fifth second of 1970, and `sqrt(ts)` the root of a number of
//! seconds. Spark casts texts to numbers and times, dates to times and numbers to texts, and
//! refuses the rest (DATATYPE_MISMATCH.UNEXPECTED_INPUT_TYPE).

use arrow::datatypes::DataType;
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::cast;
use datafusion::logical_expr::expr::ScalarFunction;

use crate::types::spark_type;

/// Functions of a date or a time.
const OF_MOMENTS: &[&str] = &[
    "date_format",
    "date_trunc",
    "day",
    "dayname",
    "dayofweek",
    "dayofyear",
    "hour",
    "last_day",
    "minute",
    "month",
    "monthname",
    "months_between",
    "quarter",
    "second",
    "to_unix_timestamp",
    "unix_date",
    "unix_timestamp",
    "weekday",
    "weekofyear",
    "year",
];

/// Functions of a TIMESTAMP, to which a date is not cast.
const OF_TIMESTAMPS: &[&str] = &["unix_micros", "unix_millis", "unix_seconds"];

/// Functions of a number that Spark computes with DOUBLEs, and DataFusion with FLOATs as well.
const OF_DOUBLES: &[&str] = &[
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "cot", "csc", "degrees",
    "exp", "expm1", "radians", "sec", "sin", "sinh", "tan", "tanh",
];

/// Other functions of a number.
const OF_NUMBERS: &[&str] = &[
    "atan2",
    "bin",
    "cbrt",
    "chr",
    "factorial",
    "from_unixtime",
    "hypot",
    "isnan",
    "ln",
    "log",
    "log10",
    "log1p",
    "log2",
    "pow",
    "rint",
    "space",
    "sqrt",
];

/// Functions of a number, to which Spark does not cast a text.
const OF_COUNTS: &[&str] = &["timestamp_micros", "timestamp_millis"];

/// Functions of a text, to which nothing with parts is cast.
const OF_TEXTS: &[&str] = &[
    "ascii",
    "btrim",
    "concat_ws",
    "find_in_set",
    "initcap",
    "instr",
    "left",
    "levenshtein",
    "locate",
    "lower",
    "ltrim",
    "regexp_extract",
    "regexp_like",
    "repeat",
    "right",
    "rlike",
    "rtrim",
    "split",
    "trim",
    "unbase64",
    "unhex",
    "upper",
];

/// Refuses arguments that Spark does not cast to what the function takes.
pub(super) fn check(name: &str, types: &[DataType]) -> Result<()> {
    if name == "concat"
        && let Some(of) = types.iter().find(|of| is_record(of))
    {
        return plan_err!(
            "concat takes STRINGs, BINARY or ARRAYs and got {} (DATATYPE_MISMATCH); write to_json(x)",
            spark_type(of)
        );
    }
    // Its time is the second argument.
    let at = usize::from(name == "date_trunc");
    let Some(of) = types.get(at).map(plain) else { return Ok(()) };
    check_kind(name, of)?;
    // Both of its arguments are times.
    match types.get(1) {
        Some(other) if name == "months_between" => check_kind(name, plain(other)),
        _ => Ok(()),
    }
}

/// The type of the values of a column of partitions, which may be a dictionary of them.
fn plain(of: &DataType) -> &DataType {
    match of {
        DataType::Dictionary(_, values) => values,
        other => other,
    }
}

fn check_kind(name: &str, of: &DataType) -> Result<()> {
    let is_time = matches!(of, DataType::Date32 | DataType::Timestamp(..));
    let is_text = of.is_string() || of.is_null();
    let (fits, wanted) = if OF_MOMENTS.contains(&name) {
        (is_text || is_time || matches!(of, DataType::Time64(_)), "a DATE or a TIMESTAMP")
    } else if OF_TIMESTAMPS.contains(&name) {
        (is_text || matches!(of, DataType::Timestamp(_, Some(_))), "a TIMESTAMP")
    } else if OF_DOUBLES.contains(&name) || OF_NUMBERS.contains(&name) {
        (is_text || of.is_numeric(), "a number")
    } else if OF_COUNTS.contains(&name) {
        (of.is_null() || of.is_numeric(), "a whole number")
    } else if name == "soundex" {
        (is_text, "a STRING")
    } else if OF_TEXTS.contains(&name) {
        (!of.is_nested(), "a STRING")
    } else {
        return Ok(());
    };
    if fits {
        return Ok(());
    }
    plan_err!(
        "{name} takes {wanted} and got {} (DATATYPE_MISMATCH); cast it, if that is what you mean",
        spark_type(of)
    )
}

fn is_record(of: &DataType) -> bool {
    matches!(of, DataType::Struct(_) | DataType::Map(..))
}

/// The call, whose argument is a DOUBLE if Spark computes with one.
pub(super) fn as_double(mut call: ScalarFunction, types: &[DataType]) -> ScalarFunction {
    if let [of] = types
        && OF_DOUBLES.contains(&call.func.name())
        && *of != DataType::Float64
        && let Some(value) = call.args.pop()
    {
        call.args.push(cast(value, DataType::Float64));
    }
    call
}

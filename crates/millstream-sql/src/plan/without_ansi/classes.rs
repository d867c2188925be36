//! Functions that are known without ANSI mode.

use arrow::datatypes::DataType;

use super::scalars::{BEGINNINGS, SCALARS};
use crate::functions::WRAPPING_SUM;

/// Aggregates and functions of windows. Casts of their arguments have forms of their own.
pub(super) const ROWS: &[&str] = &[
    "__max_first",
    "__max_of_rows",
    "__min_first",
    "__min_of_rows",
    "any_value",
    "approx_count_distinct",
    "approx_distinct",
    "approx_percentile",
    "array_agg",
    "avg",
    "bit_and",
    "bit_or",
    "bit_xor",
    "bitmap_and_agg",
    "bitmap_construct_agg",
    "bitmap_or_agg",
    "bool_and",
    "bool_or",
    "collect_list",
    "collect_set",
    "corr",
    "count",
    "covar_pop",
    "covar_samp",
    "cume_dist",
    "dense_rank",
    "first_touch",
    "first_value",
    "grouping",
    "histogram_numeric",
    "kurtosis",
    "lag",
    "last_touch",
    "last_value",
    "lead",
    "max",
    "max_by",
    "mean",
    "median",
    "min",
    "min_by",
    "mode",
    "mode_descending",
    "modes",
    "nth_value",
    "ntile",
    "percent_rank",
    "percentile",
    "percentile_approx",
    "percentile_cont",
    "percentile_cont_descending",
    "percentile_disc",
    "percentile_disc_ascending",
    "percentile_disc_descending",
    "rank",
    "regr_avgx",
    "regr_avgy",
    "regr_count",
    "regr_intercept",
    "regr_r2",
    "regr_slope",
    "regr_sxx",
    "regr_sxy",
    "regr_syy",
    "retention",
    "row_number",
    "schema_of_variant_agg",
    "sequence_count",
    "sequence_match",
    "sessions",
    "skewness",
    "stddev",
    "stddev_pop",
    "string_agg",
    "sum",
    "try_avg",
    "try_sum",
    "var",
    "var_pop",
    "vector_avg",
    "vector_sum",
    "window_funnel",
];

/// Functions that take functions.
pub(super) const LAMBDAS: &[&str] = &[
    "__sorted_by",
    "aggregate",
    "exists",
    "filter",
    "forall",
    "map_filter",
    "map_zip_with",
    "reduce",
    "transform",
    "transform_keys",
    "transform_values",
    "zip_with",
];

/// Functions that write DECIMALs as the casts to STRING do.
const WRITE_DECIMALS: &[&str] = &["to_csv", "to_json", "to_xml"];

/// Whether an aggregate, or a function of windows, is known.
pub(super) fn is_of_rows(name: &str) -> bool {
    let is_sketch = BEGINNINGS.iter().any(|beginning| name.starts_with(beginning));
    is_sketch || ROWS.contains(&name)
}

/// Whether a function of one row is known.
pub(super) fn is_known(name: &str) -> bool {
    let begins_so = BEGINNINGS.iter().any(|beginning| name.starts_with(beginning));
    begins_so || SCALARS.binary_search(&name).is_ok()
}

/// Whether a function makes texts of values, whatever is in them.
pub(super) fn writes_decimals(name: &str) -> bool {
    WRITE_DECIMALS.contains(&name)
}

/// The aggregate of values of a type that does not fail where the one called `name` does.
pub(super) fn without_error(name: &str, of: &DataType) -> Option<&'static str> {
    match (name, of) {
        ("sum", DataType::Int64) => Some(WRAPPING_SUM),
        ("sum", DataType::Decimal128(..)) => Some("try_sum"),
        ("avg" | "mean", DataType::Decimal128(..)) => Some("try_avg"),
        _ => None,
    }
}

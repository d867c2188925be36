//! The functions that are there without a declaration.

use std::collections::HashSet;
use std::sync::LazyLock;

use crate::functions::BatchClock;
use crate::session::{config, session};

/// Aggregates that are rewritten as others before they are looked up.
const REWRITTEN: &[&str] =
    &["approx_count_distinct", "count_if", "listagg", "percentile", "percentile_approx"];

/// Functions that no list of Spark's has, since its parser knows them.
const BY_PARSER: &[&str] = &["dateadd", "timediff", "timestampadd", "timestampdiff"];

/// Spark's functions that are rewritten before there are functions, or are syntax.
pub const WORDS: &[&str] = &[
    "and",
    "between",
    "bigint",
    "binary",
    "boolean",
    "case",
    "cast",
    "count_if",
    "date",
    "decimal",
    "double",
    "explode",
    "explode_outer",
    "extract",
    "float",
    "grouping_id",
    "if",
    "in",
    "inline",
    "inline_outer",
    "int",
    "json_tuple",
    "not",
    "nullifzero",
    "or",
    "percentile_disc",
    "posexplode",
    "posexplode_outer",
    "smallint",
    "stack",
    "string",
    "timestamp",
    "tinyint",
    "variant_explode",
    "variant_explode_outer",
    "when",
    "zeroifnull",
];

/// Functions whose result is another one each time.
const VARYING: &[&str] = &[
    "aes_encrypt",
    "input_file_name",
    "monotonically_increasing_id",
    "rand",
    "randn",
    "random",
    "randstr",
    "shuffle",
    "spark_partition_id",
    "uniform",
    "uuid",
];

struct Known {
    aggregates: HashSet<String>,
    others: HashSet<String>,
}

static KNOWN: LazyLock<Known> = LazyLock::new(|| {
    let state = session(config(), &BatchClock::default()).state();
    let aggregates = state.aggregate_functions().keys().map(|name| name.to_lowercase());
    let rewritten = REWRITTEN.iter().map(|name| (*name).to_owned());
    let others = state.scalar_functions().keys();
    let others = others.chain(state.window_functions().keys());
    let others = others.chain(state.higher_order_functions().keys());
    let others = others.chain(state.table_functions().keys()).map(|name| name.to_lowercase());
    let words = WORDS.iter().chain(BY_PARSER).map(|name| (*name).to_owned());
    Known {
        aggregates: aggregates.chain(rewritten).collect(),
        others: others.chain(words).collect(),
    }
});

/// Whether a name is that of a function.
pub(super) fn is_function(name: &str) -> bool {
    let name = name.to_lowercase();
    KNOWN.aggregates.contains(&name) || KNOWN.others.contains(&name)
}

/// Whether a name is that of an aggregate.
pub(in crate::query) fn is_aggregate(name: &str) -> bool {
    KNOWN.aggregates.contains(&name.to_lowercase())
}

/// Whether a name is that of a function which is no aggregate. What is rewritten may become one.
pub(in crate::query) fn is_no_aggregate(name: &str) -> bool {
    let name = name.to_lowercase();
    let is_rewritten = WORDS.iter().chain(BY_PARSER).any(|word| *word == name);
    KNOWN.others.contains(&name) && !KNOWN.aggregates.contains(&name) && !is_rewritten
}

/// Whether a name is that of a function which gives another result each time.
pub(in crate::query) fn varies(name: &str) -> bool {
    VARYING.iter().any(|known| known.eq_ignore_ascii_case(name))
}

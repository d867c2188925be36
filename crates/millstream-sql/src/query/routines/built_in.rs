//! The functions that are there without a declaration.

use std::collections::HashSet;
use std::sync::LazyLock;

use crate::functions::BatchClock;
use crate::session::{config, session};

/// Aggregates that are rewritten as others before they are looked up.
const REWRITTEN: &[&str] =
    &["approx_count_distinct", "count_if", "listagg", "percentile", "percentile_approx"];

/// Functions whose result is another one each time.
const VARYING: &[&str] = &[
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
    let scalar = state.scalar_functions().keys();
    let others = scalar.chain(state.window_functions().keys()).map(|name| name.to_lowercase());
    Known { aggregates: aggregates.chain(rewritten).collect(), others: others.collect() }
});

/// Whether a name is that of a function.
pub(super) fn is_function(name: &str) -> bool {
    let name = name.to_lowercase();
    KNOWN.aggregates.contains(&name) || KNOWN.others.contains(&name)
}

/// Whether a name is that of an aggregate.
pub(super) fn is_aggregate(name: &str) -> bool {
    KNOWN.aggregates.contains(&name.to_lowercase())
}

/// Whether a name is that of a function which gives another result each time.
pub(super) fn varies(name: &str) -> bool {
    VARYING.iter().any(|known| known.eq_ignore_ascii_case(name))
}

//! Aggregates with Spark's names, types and rules for nulls and overflow.
//!
//! Each has a partial state that can be merged (`Accumulator::state`), so that rows can be
//! aggregated in parts. What DataFusion has is taken from there; here is what it lacks or means
//! otherwise. Calls that can be written as other calls, like `count_if`, are rewritten in the
//! query's tree instead.

mod adapted;
mod average;
mod bitmaps;
mod collect;
mod counts;
mod define;
mod events;
mod extremes;
mod floats;
mod frames;
mod grouped;
mod histogram;
mod interval_average;
mod joined;
mod moments;
mod moving;
mod pairs;
mod sketches;
mod sum;
mod variants;
mod vectors;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use datafusion::functions_aggregate as theirs;
use datafusion::logical_expr::AggregateUDF;

pub(crate) use extremes::{MAX_FIRST, MIN_FIRST};
pub(crate) use sum::WRAPPING as WRAPPING_SUM;

/// All aggregates that are not simply DataFusion's.
pub(super) fn functions() -> Vec<Arc<AggregateUDF>> {
    let tables = [
        average::AGGREGATES,
        bitmaps::AGGREGATES,
        collect::AGGREGATES,
        counts::AGGREGATES,
        extremes::AGGREGATES,
        histogram::AGGREGATES,
        moments::AGGREGATES,
        pairs::AGGREGATES,
        sum::AGGREGATES,
        variants::AGGREGATES,
        vectors::AGGREGATES,
    ];
    let ours = tables.into_iter().flatten().chain(events::aggregates());
    let ours = ours.chain(sketches::aggregates());
    let ours = ours.map(|aggregate| aggregate.udaf());
    let theirs = adapted::functions().into_iter().chain(other_names());
    ours.chain(theirs).chain([joined::string_agg()]).collect()
}

/// `min` or `max` of structs and arrays in Spark's order, with DataFusion's state.
pub(super) fn extreme_of_rows(name: &str) -> Option<Arc<AggregateUDF>> {
    let of_rows = match name {
        "min" => extremes::MIN_OF_ROWS,
        "max" => extremes::MAX_OF_ROWS,
        _ => return None,
    };
    let found = extremes::AGGREGATES.iter().find(|aggregate| aggregate.name == of_rows);
    found.map(|aggregate| aggregate.udaf())
}

/// DataFusion's aggregates that have another name in Spark.
fn other_names() -> Vec<Arc<AggregateUDF>> {
    let alias = |function: Arc<AggregateUDF>, names: &[&'static str]| {
        Arc::new(function.as_ref().clone().with_aliases(names.iter().copied()))
    };
    vec![
        alias(theirs::first_last::first_value_udaf(), &["first", "any_value"]),
        alias(theirs::first_last::last_value_udaf(), &["last"]),
    ]
}

//! The SQL functions and operators of a query, with Spark's semantics: ANSI mode on, session time
//! zone UTC. For sessions of another zone some have another form ([`zoned`]), and so they have for
//! those without ANSI mode ([`without_ansi`]).
//!
//! Three layers, each over the one before: what DataFusion brings, what `datafusion-spark` brings,
//! and what is here because both differ from Spark or lack it. `docs/reference/functions.md` says
//! what there is and what still differs.

mod aes;
mod aggregates;
mod apart;
mod argument_rules;
mod argument_types;
mod array_extremes;
pub(crate) mod arrays;
mod bases;
pub(crate) mod binary_text;
mod buckets;
mod bytes;
mod cast;
mod cast_rules;
pub(crate) mod charsets;
mod clock;
mod coerced;
pub(crate) mod collated;
pub(crate) mod collections;
pub(crate) mod common_types;
mod date_parts;
mod date_steps;
mod datetime;
mod decimals;
mod define;
mod division;
mod elements;
pub(crate) mod failing;
mod frame_rules;
mod frozen;
mod greatest_least;
mod grouping_keys;
mod held;
mod hour_letters;
pub(crate) mod if_any;
mod inserted;
mod interval_arithmetic;
mod interval_casts;
mod interval_fields;
mod interval_literals;
mod interval_text;
mod interval_tries;
mod java_formats;
mod joined_texts;
mod json;
mod json_formats;
mod json_keys;
pub(crate) mod lambda_sorts;
mod lambda_variables;
mod lambdas;
mod like;
mod listed;
pub(crate) mod literals;
mod make_intervals;
mod make_timestamps;
mod map_lambdas;
mod maps;
mod masking;
mod murmur;
mod nested_casts;
pub mod nested_extremes;
mod nodes;
pub(crate) mod number_edges;
mod number_forms;
mod number_patterns;
mod numbers;
mod of_numbers;
mod of_one_type;
pub mod one_zero;
pub(crate) mod only_row;
pub(crate) mod operators;
mod option_texts;
mod outer_types;
mod parts;
pub(crate) mod pattern;
mod pattern_syntax;
mod pivot_keys;
mod raising;
pub(crate) mod random;
mod rankings;
pub(crate) mod records;
mod regex;
pub(crate) mod rules;
mod sentences;
mod sequences;
mod session_zone;
pub(crate) mod sessions;
mod set_operations;
pub(crate) mod settled;
mod sketches;
pub(crate) mod sorted_maps;
mod spans;
mod surroundings;
mod text;
mod text_parts;
mod time_bucket;
mod time_pattern;
mod time_tries;
mod time_units;
mod times_alone;
pub(crate) mod times_of_day;
mod tries;
pub(crate) mod types;
mod url_parts;
mod variant_casts;
pub(crate) mod variant_get;
mod variant_types;
pub(crate) mod variants;
mod vectors;
pub mod windows;
pub(crate) mod without_ansi;
mod xpath;
mod xxhash;
mod year_letters;
pub(crate) mod zipped;
mod zone_letters;
mod zone_reading;
pub(crate) mod zoned;
mod zones;

#[cfg(test)]
mod tests;

use std::sync::{Arc, LazyLock};

use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::logical_expr::ScalarUDF;
use datafusion::optimizer::Analyzer;
use datafusion_spark::planner::SparkFunctionPlanner;

pub(crate) use aggregates::{MAX_FIRST, MIN_FIRST, WRAPPING_SUM};
pub(crate) use apart::APART;
pub use clock::BatchClock;
pub use decimals::KeepsDigits;
pub(crate) use elements::known_as;
pub use frozen::frozen;
pub use held::held;
pub use inserted::Inserted;
pub(crate) use listed::LISTED;
pub use session_zone::SessionZone;
pub use without_ansi::WithoutAnsi;
pub use zoned::{holds_moment, recorded_in, recorded_schema, shown_in};

use crate::types::planner::SparkTypes;

/// Adds all functions to `builder`, which must not have its default features yet. Functions that
/// ask for the time read `clock`.
pub fn register(builder: SessionStateBuilder, clock: &BatchClock) -> SessionStateBuilder {
    let mut builder = builder.with_default_features();
    let ours = scalar_functions(clock);
    let named = |name: &str| {
        let found = ours.iter().find(|function| function.name() == name);
        Arc::clone(found.expect("the function is defined in this module's tables"))
    };
    let operators = operators::SparkOperators {
        map: named("map"),
        whole_division: named("div"),
        concat: named("concat"),
        substring: named("substring"),
        overlay: named("overlay"),
        instr: named("instr"),
        at_index: named("at_index"),
        element_at: named("element_at"),
        date_part: named("date_part"),
        date_difference: named(spans::DATE_DIFFERENCE),
        date_moved: named(spans::DATE_MOVED),
        interval_multiply: named(interval_arithmetic::MULTIPLY),
        interval_divide: named(interval_arithmetic::DIVIDE),
        negative: named("negative"),
    };
    let meaning = rules::SparkMeaning {
        current_seconds: named(clock::CURRENT_SECONDS),
        local_now: named("localtimestamp"),
        time_shown: named(times_of_day::TIME_SHOWN),
    };
    let mut analyzer = Analyzer::new().rules;
    analyzer.insert(0, Arc::new(rules::SparkLiterals));
    analyzer.push(Arc::new(meaning));
    analyzer.push(Arc::new(records::AvroSchemas));
    let planners = builder.expr_planners().get_or_insert_default();
    planners.insert(0, Arc::new(SparkFunctionPlanner));
    planners.insert(0, Arc::new(operators));
    let functions = builder.scalar_functions().get_or_insert_default();
    functions.extend(datafusion_spark::all_default_scalar_functions());
    functions.retain(|function| !NOT_SPARKS.contains(&function.name()));
    functions.extend(ours);
    builder.higher_order_functions().get_or_insert_default().extend(lambdas::functions());
    builder.higher_order_functions().get_or_insert_default().extend(map_lambdas::functions());
    builder.higher_order_functions().get_or_insert_default().push(lambda_sorts::sorted_by());
    let functions = builder.aggregate_functions().get_or_insert_default();
    functions.extend(datafusion_spark::all_default_aggregate_functions());
    functions.extend(aggregates::functions());
    let functions = builder.window_functions().get_or_insert_default();
    functions.extend(datafusion_spark::all_default_window_functions());
    functions.extend(rankings::functions());
    builder.with_type_planner(Arc::new(SparkTypes)).with_analyzer_rules(analyzer)
}

/// Functions of DataFusion's and `datafusion-spark`'s that answer where Spark does not, or
/// otherwise: it has hardly any TIME by default, and its `json_tuple` makes several columns.
const NOT_SPARKS: [&str; 5] =
    ["input_file_name", "json_tuple", "make_time", "time_trunc", "to_time"];

/// All of ours. Most are the same in every session, and there may be a session for each table that
/// is written to; those with a clock or a cache are made for each.
fn scalar_functions(clock: &BatchClock) -> Vec<Arc<ScalarUDF>> {
    static SHARED: LazyLock<Vec<Arc<ScalarUDF>>> = LazyLock::new(shared_functions);
    let mut functions = SHARED.clone();
    functions.extend(clock::functions(clock));
    functions.extend(records::functions());
    functions
}

const TABLES: &[&[define::Function]] = &[
    aes::FUNCTIONS,
    array_extremes::FUNCTIONS,
    arrays::FUNCTIONS,
    bases::FUNCTIONS,
    binary_text::FUNCTIONS,
    buckets::FUNCTIONS,
    bytes::FUNCTIONS,
    charsets::FUNCTIONS,
    collections::FUNCTIONS,
    date_steps::FUNCTIONS,
    datetime::FUNCTIONS,
    interval_arithmetic::FUNCTIONS,
    joined_texts::FUNCTIONS,
    json::FUNCTIONS,
    like::FUNCTIONS,
    make_intervals::FUNCTIONS,
    maps::FUNCTIONS,
    masking::FUNCTIONS,
    murmur::FUNCTIONS,
    numbers::FUNCTIONS,
    parts::FUNCTIONS,
    regex::FUNCTIONS,
    sentences::FUNCTIONS,
    sequences::FUNCTIONS,
    spans::FUNCTIONS,
    surroundings::FUNCTIONS,
    text::FUNCTIONS,
    &[division::FUNCTION],
    text_parts::FUNCTIONS,
    time_bucket::FUNCTIONS,
    time_units::FUNCTIONS,
    times_alone::FUNCTIONS,
    times_of_day::FUNCTIONS,
    variants::FUNCTIONS,
    vectors::FUNCTIONS,
    windows::FUNCTIONS,
    xpath::FUNCTIONS,
    zones::FUNCTIONS,
];

fn shared_functions() -> Vec<Arc<ScalarUDF>> {
    let mut functions: Vec<_> =
        TABLES.iter().copied().flatten().map(|function| function.udf()).collect();
    functions.push(interval_literals::IntervalOf::udf());
    functions.extend(interval_casts::functions());
    functions.push(json::FromJson::udf());
    // No text names them; a machine of a cluster finds the functions of a plan by their names.
    functions.push(apart::apart());
    functions.push(only_row::only_row());
    functions.push(if_any::if_any());
    functions.push(one_zero::one_zero());
    functions.push(one_zero::one_nan());
    functions.extend(number_edges::functions());
    functions.extend(java_formats::functions());
    functions.push(sorted_maps::sorted_maps());
    functions.push(zipped::zipped());
    functions.push(listed::listed());
    functions.push(pivot_keys::as_key());
    functions.push(decimals::whole_division());
    functions.push(date_parts::DatePart::udf());
    functions.extend(decimals::rounding_functions());
    functions.extend(greatest_least::functions());
    functions.extend(make_timestamps::functions());
    functions.extend(number_forms::functions());
    functions.extend(of_numbers::functions());
    functions.extend(of_one_type::functions());
    functions.extend(parts::functions());
    functions.extend(random::functions());
    functions.extend(raising::functions());
    functions.extend(sketches::functions());
    functions.extend(tries::functions());
    functions.extend(variant_get::functions());
    functions.extend(coerced::functions());
    functions.extend(collated::functions());
    functions.extend(without_ansi::functions());
    functions.extend(zoned::functions());
    functions.extend(scalar_aliases());
    functions
}

/// Functions that have another name in Spark.
fn scalar_aliases() -> Vec<Arc<ScalarUDF>> {
    let alias = |function: Arc<ScalarUDF>, names: &[&'static str]| {
        Arc::new(function.as_ref().clone().with_aliases(names.iter().copied()))
    };
    vec![alias(datafusion_spark::function::hash::sha1(), &["sha"])]
}

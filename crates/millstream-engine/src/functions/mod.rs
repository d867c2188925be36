//! The SQL functions and operators of a query, with Spark's semantics: ANSI mode on, session time
//! zone UTC.
//!
//! Three layers, each over the one before: what DataFusion brings, what `datafusion-spark` brings,
//! and what is here because both differ from Spark or lack it. `docs/reference/functions.md` says
//! what there is and what still differs.

mod aggregates;
pub(crate) mod calendar;
mod cast;
mod clock;
mod collections;
mod datetime;
mod define;
pub(crate) mod interval;
pub(crate) mod java_text;
mod json;
mod operators;
mod pattern;
mod regex;
mod rules;
pub(crate) mod sessions;
mod text;
mod time_pattern;
pub(crate) mod types;
pub(crate) mod windows;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::logical_expr::ScalarUDF;
use datafusion::optimizer::Analyzer;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion_spark::planner::SparkFunctionPlanner;

pub use clock::BatchClock;

use crate::sql::semantics::{SparkIndices, SparkTypes};

/// Adds all functions to `builder`, which must not have its default features yet. Functions that
/// ask for the time read `clock`.
pub fn register(builder: SessionStateBuilder, clock: &BatchClock) -> SessionStateBuilder {
    let mut builder = builder.with_default_features();
    let ours = scalar_functions(clock);
    let named = |name: &str| {
        let found = ours.iter().find(|function| function.name() == name);
        Arc::clone(found.expect("the function is defined in this module's tables"))
    };
    let operators = operators::SparkOperators { divide: named("divide"), map: named("map") };
    let meaning = rules::SparkMeaning { current_seconds: named(clock::CURRENT_SECONDS) };
    let mut analyzer = Analyzer::new().rules;
    analyzer.insert(0, Arc::new(rules::SparkLiterals));
    analyzer.push(Arc::new(meaning));
    let planners = builder.expr_planners().get_or_insert_default();
    planners.insert(0, Arc::new(SparkFunctionPlanner));
    planners.insert(0, Arc::new(operators));
    planners.insert(0, Arc::new(SparkIndices));
    let functions = builder.scalar_functions().get_or_insert_default();
    functions.extend(datafusion_spark::all_default_scalar_functions());
    functions.extend(ours);
    let functions = builder.aggregate_functions().get_or_insert_default();
    functions.extend(datafusion_spark::all_default_aggregate_functions());
    functions.extend(aggregates::functions());
    let functions = builder.window_functions().get_or_insert_default();
    functions.extend(datafusion_spark::all_default_window_functions());
    builder.with_type_planner(Arc::new(SparkTypes)).with_analyzer_rules(analyzer)
}

/// A session with these functions and no tables.
pub fn session(config: SessionConfig, clock: &BatchClock) -> SessionContext {
    let mut config = config.with_enable_ansi_mode(true);
    // 1.5 is a DECIMAL in Spark; DOUBLE literals have an exponent.
    config.options_mut().sql_parser.parse_float_as_decimal = true;
    let builder = SessionStateBuilder::new().with_config(config);
    SessionContext::new_with_state(register(builder, clock).build())
}

fn scalar_functions(clock: &BatchClock) -> Vec<Arc<ScalarUDF>> {
    let tables = [
        collections::FUNCTIONS,
        datetime::FUNCTIONS,
        json::FUNCTIONS,
        regex::FUNCTIONS,
        text::FUNCTIONS,
        windows::FUNCTIONS,
    ];
    let mut functions: Vec<_> =
        tables.into_iter().flatten().map(|function| function.udf()).collect();
    functions.push(json::FromJson::udf());
    functions.extend(clock::functions(clock));
    functions.extend(scalar_aliases());
    functions
}

/// Functions that have another name in Spark.
fn scalar_aliases() -> Vec<Arc<ScalarUDF>> {
    use datafusion::functions::{math, string, unicode};
    use datafusion::functions_nested as nested;
    let alias = |function: Arc<ScalarUDF>, names: &[&'static str]| {
        Arc::new(function.as_ref().clone().with_aliases(names.iter().copied()))
    };
    vec![
        alias(string::lower(), &["lcase"]),
        alias(string::upper(), &["ucase"]),
        alias(unicode::character_length(), &["len"]),
        alias(math::signum(), &["sign"]),
        alias(datafusion_spark::function::math::ceil(), &["ceiling"]),
        alias(datafusion_spark::function::hash::sha1(), &["sha"]),
        alias(nested::range::gen_series_udf(), &["sequence"]),
        alias(nested::remove::array_remove_all_udf(), &["array_remove"]),
    ]
}

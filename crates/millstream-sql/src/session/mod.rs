//! A session of DataFusion that reads and computes as Spark does.
//!
//! [`pushdown`] limits where its rules move conditions to.

mod pushdown;

use std::sync::Arc;

use datafusion::config::Dialect;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::execution_props::ExecutionProps;
use datafusion::prelude::{SessionConfig, SessionContext};

use crate::functions::{BatchClock, register};
use crate::recursion::LimitedRecursion;

/// Where ORDER BY puts NULLs: first when it ascends, last when it descends.
pub(crate) const NULL_ORDERING: &str = "nulls_min";

/// A session with Spark's functions and no tables.
pub fn session(config: SessionConfig, clock: &BatchClock) -> SessionContext {
    SessionContext::new_with_state(state(config, Arc::default(), clock))
}

/// The state of such a session, whose queries run in `runtime`.
pub fn state(config: SessionConfig, runtime: Arc<RuntimeEnv>, clock: &BatchClock) -> SessionState {
    builder(config, runtime, clock).build()
}

/// What makes such a state. A state that is made from another has all functions registered again in
/// any order, and not those of this project over DataFusion's; so whatever else a state is to have
/// must be added here.
pub fn builder(
    config: SessionConfig,
    runtime: Arc<RuntimeEnv>,
    clock: &BatchClock,
) -> SessionStateBuilder {
    let mut config = config.with_enable_ansi_mode(true);
    // 1.5 is a DECIMAL in Spark; DOUBLE literals have an exponent.
    config.options_mut().sql_parser.parse_float_as_decimal = true;
    // Physical plans have the settings from here, and not from the configuration: without ANSI mode
    // functions would give NULL where Spark has an error.
    let mut properties = ExecutionProps::new();
    properties.config_options = Some(Arc::clone(config.options()));
    let builder = SessionStateBuilder::new().with_config(config).with_runtime_env(runtime);
    let builder =
        pushdown::limited(builder).with_physical_optimizer_rule(Arc::new(LimitedRecursion));
    register(builder.with_execution_props(properties), clock)
}

/// Settings under which queries are planned; how many partitions there are is the caller's.
pub fn config() -> SessionConfig {
    let mut config = SessionConfig::new().with_information_schema(false);
    let options = config.options_mut();
    // The SQL layer resolves identifiers without regard to case, as Spark does, and hands over the
    // exact spelling.
    options.sql_parser.enable_ident_normalization = false;
    options.sql_parser.collect_spans = true;
    options.sql_parser.default_null_ordering = NULL_ORDERING.into();
    options.sql_parser.dialect = Dialect::Databricks;
    // Spark's names: what DataFusion calls Utf8View is a STRING like any other.
    options.sql_parser.map_string_types_to_utf8view = false;
    options.execution.time_zone = Some("UTC".to_owned());
    // It finds the columns of an aggregation by their names, and of two of one name the first.
    options.optimizer.top_down_join_key_reordering = false;
    config
}

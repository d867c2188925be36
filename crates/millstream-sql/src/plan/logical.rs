//! From a prepared query to DataFusion's logical plan.

use std::borrow::Cow;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::config::SqlParserOptions;
use datafusion::error::DataFusionError;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::Statement as DataFusionStatement;
use futures::FutureExt;

use super::{
    blame, checks, collations, grouping_sets, key_forms, lateral, recursion, subqueries, variants,
    windows, without_ansi, zeros, zones,
};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::functions::{SessionZone, literals, random, settled};
use crate::plan::optimize;
use crate::query::prepared::{PreparedQuery, STREAM_PREFIX};
use crate::session::NULL_ORDERING;

/// Plans a query. The tables it reads stand in `state` under the names that its reads are
/// registered as, and its functions and types are those of [`crate::functions`]. Types are checked
/// and casts are put in.
///
/// # Errors
/// Whatever the query gets wrong, pointing into the pipeline file.
pub fn to_logical(
    state: &SessionState,
    prepared: &PreparedQuery,
) -> Result<LogicalPlan, Diagnostics> {
    let spark = spark_state(state);
    let plan = plan(&spark, prepared).map_err(|error| blame::blame(&spark, prepared, &error))?;
    refuse_state(prepared, &plan)?;
    let unusable = literals::unusable(&plan);
    if unusable.is_empty() { Ok(plan) } else { Err(blame::literals(&spark, prepared, &unusable)) }
}

/// What DataFusion says of the plan of a query when it is made ready to run.
pub fn blamed(
    state: &SessionState,
    prepared: &PreparedQuery,
    error: &DataFusionError,
) -> Diagnostics {
    blame::blame(state, prepared, error)
}

/// `state` with Spark's reading of SQL. A state that reads so already is not copied: it has some
/// hundred functions.
///
/// Otherwise it is a copy, not a state built anew from its parts: a builder registers functions in
/// no certain order, and of two that share a name either may win.
pub fn spark_state(state: &SessionState) -> Cow<'_, SessionState> {
    if reads_as_spark(&state.config_options().sql_parser) {
        return Cow::Borrowed(state);
    }
    let mut spark = state.clone();
    let parser = &mut spark.config_mut().options_mut().sql_parser;
    parser.enable_ident_normalization = false;
    parser.collect_spans = true;
    // `0.1` is a DECIMAL, as in Spark; doubles are written 0.1D or 1e-1.
    parser.parse_float_as_decimal = true;
    parser.default_null_ordering = NULL_ORDERING.into();
    parser.map_string_types_to_utf8view = false;
    Cow::Owned(spark)
}

fn reads_as_spark(parser: &SqlParserOptions) -> bool {
    !parser.enable_ident_normalization
        && parser.collect_spans
        && parser.parse_float_as_decimal
        && parser.default_null_ordering == NULL_ORDERING
        && !parser.map_string_types_to_utf8view
}

fn plan(state: &SessionState, prepared: &PreparedQuery) -> Result<LogicalPlan, DataFusionError> {
    without_ansi::check_literals(prepared, state)?;
    let statement = DataFusionStatement::Statement(Box::new(prepared.statement.clone()));
    // The only thing it can wait for is a catalog on a network, and tables are registered here.
    let planning = || state.statement_to_plan(statement).now_or_never();
    let plan = settled::planned(state.config_options(), planning).unwrap_or_else(|| {
        Err(DataFusionError::Internal("a table's provider was not registered in memory".into()))
    })?;
    let plan = collations::resolved(state, plan, &prepared.reads, reads_stream)?;
    checks::check(&plan, reads_stream)?;
    recursion::check_places(&plan)?;
    without_ansi::check_subqueries(&plan, state)?;
    let plan = subqueries::joined(lateral::lower(plan)?, reads_stream)?;
    // Not before subqueries are joins: beside one even a single row may be in any partition.
    random::check_seeds(&plan)?;
    recursion::check_reads(&plan)?;
    recursion::check_types(&plan, state)?;
    let plan = optimize::analyze(state, plan)?;
    variants::check(&plan, reads_stream)?;
    let plan = without_ansi::in_session(plan, state, reads_stream)?;
    let zone = state.config_options().extensions.get::<SessionZone>();
    let plan = zones::in_session(plan, zone, reads_stream)?;
    let plan = grouping_sets::without_empty(plan, reads_stream)?;
    let plan = zeros::equal(key_forms::equal(plan, reads_stream)?, reads_stream)?;
    windows::lower(plan, reads_stream)
}

/// A second look at the plan for what needs state, for ways to say it that the text did not show.
fn refuse_state(prepared: &PreparedQuery, plan: &LogicalPlan) -> Result<(), Diagnostics> {
    let mut refused = None;
    let _ = plan.apply_with_subqueries(|node| {
        let what = match node {
            LogicalPlan::Window(_) => "a window function",
            // What the text shows is looked at where the output mode is known.
            LogicalPlan::Sort(_) if prepared.orders.is_empty() => "ORDER BY",
            LogicalPlan::Limit(_) if prepared.orders.is_empty() => "LIMIT",
            LogicalPlan::RecursiveQuery(_) => "a recursive query",
            _ => return Ok(TreeNodeRecursion::Continue),
        };
        let is_recursive = matches!(node, LogicalPlan::RecursiveQuery(_));
        if reads_stream(node) || (is_recursive && prepared.is_stream()) {
            refused = Some(what);
            return Ok(TreeNodeRecursion::Stop);
        }
        Ok(TreeNodeRecursion::Continue)
    });
    let Some(what) = refused else { return Ok(()) };
    let at = prepared.first_word();
    let message = format!("{what} over a stream is not supported");
    let help = "without STREAM the same query runs as a batch query";
    Err(Diagnostic::at(at, message).help(help).into())
}

fn reads_stream(plan: &LogicalPlan) -> bool {
    plan.exists(|node| {
        Ok(match node {
            LogicalPlan::TableScan(scan) => scan.table_name.table().starts_with(STREAM_PREFIX),
            _ => false,
        })
    })
    .unwrap_or(false)
}

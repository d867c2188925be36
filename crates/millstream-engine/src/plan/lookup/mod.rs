//! Joins of a stream with a table that is asked for rows by their key.
//!
//! DataFusion plans such a join as any other, over a table that cannot be scanned ([`table`]).
//! Once the plan is optimised, the join is taken out of it ([`rewrite`]): in its place comes a
//! node that adds the rows of the table to those of the stream ([`node`]), and above it what is
//! left of the join, as an ordinary filter and a projection. So the filters and expressions over
//! the table's columns are DataFusion's own. Per micro-batch and core the node gathers the distinct
//! keys and asks for them in calls of several ([`exec`]); some are known from before ([`cache`]).
//!
//! A key has one row or none, so the node gives one row for each that comes, in order.
//!
//! What the table says belongs to the moment of the question: a micro-batch that runs again after
//! a crash sees the rows as they are then.

mod cache;
mod exec;
mod node;
mod rewrite;
pub mod table;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{DefaultPhysicalPlanner, PhysicalPlanner};

pub use rewrite::{LookupRefused, replace_joins};

/// The physical plan of an optimised plan, with nodes that look up among its nodes.
pub async fn physical(state: &SessionState, plan: &LogicalPlan) -> Result<Arc<dyn ExecutionPlan>> {
    let planner = DefaultPhysicalPlanner::with_extension_planners(vec![Arc::new(node::Planner)]);
    planner.create_physical_plan(plan, state).await
}

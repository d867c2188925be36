//! Groups of an aggregation: the rows of a sink that they are to become, and their order.

use std::sync::Arc;

use datafusion::common::tree_node::TreeNode as _;
use datafusion::logical_expr::LogicalPlan;
use millstream_sql::query::prepared::STREAM_PREFIX;

use super::FlowError;
use crate::api::settings::OutputMode;
use crate::pipeline::Branch;
use crate::plan::stages::{self, Cut};

/// Refuses groups whose rows would take each other's place in the sink.
pub(super) fn check_groups(
    branch: &Branch,
    mode: OutputMode,
    logical: &LogicalPlan,
) -> Result<(), FlowError> {
    if mode != OutputMode::Update {
        return Ok(());
    }
    let (table, schema) = (&branch.sink, Arc::clone(logical.schema().inner()));
    let Some(keys) = branch.connector.replacing_keys(table, &schema) else { return Ok(()) };
    let beside = stages::groups_beside(logical, keys.columns);
    if beside.is_empty() {
        return Ok(());
    }
    let (beside, option) = (beside.join(", "), keys.option);
    let message = format!(
        "rows of different groups would take each other's place in {}: the query groups by \
         {beside}, which '{option}' does not have",
        table.name
    );
    let help = format!(
        "select all that the query groups by, of a window its start, as columns of their own, and \
         name them in '{option}'; or group by the columns in '{option}' alone"
    );
    Err(FlowError::Sql(branch.query.refused(message, help)))
}

/// Refuses an order or a limit of rows that an aggregation reads: those that come later would have
/// to be among them.
pub(super) fn check_orders(branch: &Branch, cut: &Cut) -> Result<(), FlowError> {
    let is_order = |node: &LogicalPlan| {
        let is_order = matches!(node, LogicalPlan::Sort(_) | LogicalPlan::Limit(_));
        Ok(is_order && stages::reads_stream(node, STREAM_PREFIX))
    };
    let mut below = cut.stages.iter().flat_map(|stage| &stage.inputs);
    if below.any(|plan| plan.exists(is_order).unwrap_or(true)) {
        let message = "ORDER BY and LIMIT over a stream are for the rows of an aggregation";
        let help = "take them out of what the aggregation reads";
        return Err(FlowError::Sql(branch.query.refused(message, help)));
    }
    Ok(())
}

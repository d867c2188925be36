//! Groups of an aggregation, and the rows of a sink that they are to become.

use std::sync::Arc;

use datafusion::logical_expr::LogicalPlan;

use super::FlowError;
use crate::api::settings::OutputMode;
use crate::pipeline::Branch;
use crate::plan::stages;

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

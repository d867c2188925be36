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

/// Refuses an order or a limit of rows that an aggregation reads, and of rows beside its groups:
/// those that come later would have to be among them.
pub(super) fn check_orders(branch: &Branch, cut: &Cut) -> Result<(), FlowError> {
    let of_stream =
        |node: &LogicalPlan| Ok(is_order(node) && stages::reads_stream(node, STREAM_PREFIX));
    let mut below = cut.stages.iter().flat_map(|stage| &stage.inputs);
    let help = if below.any(|plan| plan.exists(of_stream).unwrap_or(true)) {
        "take them out of what the aggregation reads"
    } else if orders_rows(&cut.top) {
        "take them out of the query of a stream that has no GROUP BY, and of what UNION ALL makes \
         of its rows"
    } else {
        return Ok(());
    };
    let message = "ORDER BY and LIMIT over a stream are for the rows of an aggregation";
    Err(FlowError::Sql(branch.query.refused(message, help)))
}

fn is_order(node: &LogicalPlan) -> bool {
    matches!(node, LogicalPlan::Sort(_) | LogicalPlan::Limit(_))
}

/// Whether there is an order or a limit above rows of a stream as they come, which a micro-batch
/// has its own of.
fn orders_rows(top: &LogicalPlan) -> bool {
    let is_stream = |node: &LogicalPlan| {
        Ok(match node {
            LogicalPlan::TableScan(scan) => scan.table_name.table().starts_with(STREAM_PREFIX),
            _ => false,
        })
    };
    let has_rows = |node: &LogicalPlan| Ok(is_order(node) && node.exists(is_stream)?);
    top.exists(has_rows).unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion::logical_expr::{LogicalPlanBuilder, table_scan};

    use super::*;

    fn rows_of(table: &str) -> LogicalPlanBuilder {
        let schema = Schema::new(vec![Field::new("k", DataType::Int32, true)]);
        table_scan(Some(table), &schema, None).unwrap()
    }

    #[test]
    fn a_limit_is_for_the_groups_of_an_operator_alone() {
        let stream = format!("{STREAM_PREFIX}t");
        let groups = || rows_of("__operator_0");
        let limited = |rows: LogicalPlanBuilder| rows.limit(0, Some(1)).unwrap().build().unwrap();
        assert!(!orders_rows(&limited(groups())));
        assert!(orders_rows(&limited(rows_of(&stream))));
        let beside = groups().union(limited(rows_of(&stream))).unwrap().build().unwrap();
        assert!(orders_rows(&beside));
        let beside = limited(groups().union(rows_of(&stream).build().unwrap()).unwrap());
        assert!(orders_rows(&beside));
        let of_groups = groups().union(limited(groups())).unwrap().build().unwrap();
        assert!(!orders_rows(&of_groups));
    }
}

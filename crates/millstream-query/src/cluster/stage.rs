//! What a stage of a plan does.

use std::sync::Arc;

use ballista_core::execution_plans::ShuffleReaderExec;
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_plan::ExecutionPlan;

/// What a stage does: it reads, or it brings rows together that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StageKind {
    /// It reads tables, and nothing that another stage has written.
    Scan,
    /// It reads what other stages have written, several partitions side by side.
    GroupBy,
    /// It gathers everything in one partition, or has no input.
    Other,
}

impl StageKind {
    /// The kind of a stage that has the plan `plan`, its writer included.
    pub fn of(plan: &Arc<dyn ExecutionPlan>) -> Self {
        let (mut scans, mut shuffles) = (false, false);
        leaves(plan, &mut |leaf| {
            scans |= leaf.is::<DataSourceExec>();
            shuffles |= leaf.is::<ShuffleReaderExec>();
        });
        match (scans, shuffles) {
            (true, false) => Self::Scan,
            (_, true) if inputs(plan) > 1 => Self::GroupBy,
            _ => Self::Other,
        }
    }
}

/// How many partitions the stage's leaves have.
fn inputs(plan: &Arc<dyn ExecutionPlan>) -> usize {
    let mut partitions = 0;
    leaves(plan, &mut |leaf| {
        partitions = partitions.max(leaf.properties().partitioning.partition_count());
    });
    partitions
}

/// Shows `see` the nodes of a plan that have no input.
pub fn leaves(plan: &Arc<dyn ExecutionPlan>, see: &mut impl FnMut(&dyn ExecutionPlan)) {
    let children = plan.children();
    if children.is_empty() {
        see(plan.as_ref());
    }
    children.into_iter().for_each(|child| leaves(child, see));
}

/// Shows `see` the scans of files in a plan.
pub fn scans(plan: &Arc<dyn ExecutionPlan>, see: &mut impl FnMut(&FileScanConfig)) {
    leaves(plan, &mut |leaf| {
        let source = leaf.downcast_ref::<DataSourceExec>();
        if let Some(scan) = source.and_then(|source| source.data_source().downcast_ref()) {
            see(scan);
        }
    });
}

/// Whether one task has to read all partitions: somewhere in the stage they become one.
pub fn collapses(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let is_one = plan.properties().partitioning.partition_count() == 1;
    let children = plan.children();
    let from_several =
        children.iter().any(|child| child.properties().partitioning.partition_count() > 1);
    (is_one && from_several) || children.into_iter().any(collapses)
}

//! Which rows of a source its watermark follows: those that pass the query's filters.
//!
//! Spark moves a filter that does not look at the event time below the point where it watches the
//! times (`PushPredicateThroughNonJoin`), so that only rows that pass it move the watermark.
//! Here times are noted where rows are read. So a filter that is right above a scan in the
//! optimised plan, and does not use the event time, is evaluated there once more.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{PhysicalExpr, conjunction, split_conjunction};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::{ProjectionExec, update_expr};

use super::stream_scan::{Slots, StreamScan};

/// Makes the watermarks of `scans` count only rows that pass the filters right above them in
/// `plan`.
pub fn follow_filters(plan: &Arc<dyn ExecutionPlan>, scans: &[Arc<Slots>]) -> Result<()> {
    plan.apply(|node| {
        if let Some(filter) = node.downcast_ref::<FilterExec>() {
            let parts = split_conjunction(filter.predicate());
            let parts = parts.into_iter().map(Arc::clone).collect();
            if let Some((scan, parts)) = over_scan(filter.input(), parts)? {
                for slots in scans {
                    follow(slots, scan, &parts);
                }
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

type Parts = Vec<Arc<dyn PhysicalExpr>>;

/// The scan below `plan`, with only projections in between, and `parts` over its columns.
fn over_scan(
    mut plan: &Arc<dyn ExecutionPlan>,
    mut parts: Parts,
) -> Result<Option<(&StreamScan, Parts)>> {
    loop {
        if let Some(cooperative) = plan.downcast_ref::<CooperativeExec>() {
            plan = cooperative.input();
        } else if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
            let below = parts.iter().map(|part| update_expr(part, projection.expr(), true));
            let below = below.collect::<Result<Vec<_>>>()?;
            parts = below.into_iter().flatten().collect();
            plan = projection.input();
        } else {
            return Ok(plan.downcast_ref().map(|scan| (scan, parts)));
        }
    }
}

fn follow(slots: &Arc<Slots>, scan: &StreamScan, parts: &Parts) {
    let (Some(columns), Some(seen)) = (scan.columns_of(slots), slots.event_times()) else { return };
    let looks_at_time = |part: &Arc<dyn PhysicalExpr>| {
        let columns_of_part = collect_columns(part);
        columns_of_part.iter().any(|column| seen.columns().contains(&columns[column.index()]))
    };
    let parts = parts.iter().filter(|part| !looks_at_time(part) && !is_volatile(part));
    let parts: Parts = parts.map(Arc::clone).collect();
    if !parts.is_empty() {
        seen.follow(Some(conjunction(parts)));
    }
}

fn is_volatile(expr: &Arc<dyn PhysicalExpr>) -> bool {
    expr.exists(|part| Ok(part.is_volatile_node())).unwrap_or(true)
}

//! Which rows of a source its watermark follows: those that pass the query's filters.
//!
//! Spark moves a filter that does not look at the event time below the point where it watches the
//! times (`PushPredicateThroughNonJoin`), so that only rows that pass it move the watermark.
//! Here times are watched where rows are read. So what stands right above a scan in the optimised
//! plan, and does not look at the event time, is evaluated there once more.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{PhysicalExpr, conjunction, split_conjunction};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;

use super::stream_scan::{Slots, StreamScan};

/// Has the watermarks of `scans` follow only rows that `plan` lets through right above them.
pub fn follow_filters(plan: &Arc<dyn ExecutionPlan>, scans: &[Arc<Slots>]) -> Result<()> {
    plan.apply(|node| {
        if let Some(filter) = node.downcast_ref::<FilterExec>()
            && let Some(scan) = scan_below(filter.input())
        {
            for slots in scans {
                follow(slots, scan, filter.predicate());
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// The scan that gives its rows to whoever reads `plan`.
fn scan_below(plan: &Arc<dyn ExecutionPlan>) -> Option<&StreamScan> {
    match plan.downcast_ref::<CooperativeExec>() {
        Some(cooperative) => cooperative.input().downcast_ref(),
        None => plan.downcast_ref(),
    }
}

fn follow(slots: &Arc<Slots>, scan: &StreamScan, predicate: &Arc<dyn PhysicalExpr>) {
    let (Some(columns), Some(seen)) = (scan.columns_of(slots), slots.event_times()) else { return };
    let Some(time) = columns.iter().position(|column| *column == seen.column()) else { return };
    let looks_at_time = |part: &Arc<dyn PhysicalExpr>| {
        collect_columns(part).iter().any(|column| column.index() == time)
    };
    let parts = split_conjunction(predicate).into_iter();
    let parts = parts.filter(|part| !looks_at_time(part) && !is_volatile(part));
    let parts: Vec<_> = parts.map(Arc::clone).collect();
    if !parts.is_empty() {
        seen.follow(Some(conjunction(parts)));
    }
}

fn is_volatile(expr: &Arc<dyn PhysicalExpr>) -> bool {
    expr.exists(|part| Ok(part.is_volatile_node())).unwrap_or(true)
}

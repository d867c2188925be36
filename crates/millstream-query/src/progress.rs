//! How far a query is that runs in this process.

use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;

/// The scans of a query that runs, or has run.
#[derive(Clone, Debug)]
pub struct Scans {
    plan: Arc<dyn ExecutionPlan>,
}

impl Scans {
    /// Of a plan.
    pub(crate) fn of(plan: &Arc<dyn ExecutionPlan>) -> Self {
        Self { plan: Arc::clone(plan) }
    }

    /// Rows that they have given so far.
    pub fn rows(&self) -> u64 {
        rows(self.plan.as_ref())
    }
}

fn rows(plan: &dyn ExecutionPlan) -> u64 {
    let children = plan.children();
    if children.is_empty() {
        let rows = plan.metrics().and_then(|metrics| metrics.output_rows());
        return rows.unwrap_or_default() as u64;
    }
    children.into_iter().map(|child| rows(child.as_ref())).sum()
}

//! A plan with the time put in, so that it means the same wherever it runs.

use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::LogicalPlan;

use super::rules::rewrite;
use super::{clock, times_alone};

/// `plan` with the time `us`, in microseconds since the epoch, in the place of readings of a
/// clock. A text that is a time alone is one of that day.
pub fn frozen(plan: LogicalPlan, us: i64) -> Result<LogicalPlan> {
    let frozen = plan.transform_up_with_subqueries(|node| {
        rewrite(node, |expr, schema| {
            let read = clock::read_at(expr, us)?;
            let dated = times_alone::of_today(read.data, schema, us);
            let changed = read.transformed || dated.transformed;
            Ok(Transformed::new_transformed(dated.data, changed))
        })
    });
    Ok(frozen?.data)
}

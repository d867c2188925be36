//! Plans that can be interrupted.
//!
//! A query ends when it is not polled any more. DataFusion has leaves of a plan yield now and then,
//! but a join makes any number of rows out of one record batch, and whatever aggregates them would
//! take them all in one poll. So what joins and unnests yields, too.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult as _, TreeNode as _};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, PiecewiseMergeJoinExec, SortMergeJoinExec,
};
use datafusion::physical_plan::unnest::UnnestExec;

/// Has operators yield that make many rows out of few.
#[derive(Debug)]
pub struct Yielding;

impl PhysicalOptimizerRule for Yielding {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let yielding = |plan: Arc<dyn ExecutionPlan>| {
            Ok(if multiplies(plan.as_ref()) {
                Transformed::yes(Arc::new(CooperativeExec::new(plan)) as _)
            } else {
                Transformed::no(plan)
            })
        };
        plan.transform_up(yielding).data()
    }

    fn name(&self) -> &str {
        "yielding"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn multiplies(plan: &dyn ExecutionPlan) -> bool {
    plan.is::<HashJoinExec>()
        || plan.is::<NestedLoopJoinExec>()
        || plan.is::<CrossJoinExec>()
        || plan.is::<SortMergeJoinExec>()
        || plan.is::<PiecewiseMergeJoinExec>()
        || plan.is::<UnnestExec>()
}

//! For how long queries that read themselves (`WITH RECURSIVE`) go on.
//!
//! DataFusion runs the second part of such a query until it makes no more rows. Spark ends with an
//! error after a number of times, and of rows; [`LimitedRecursion`] has a plan do that, too. The
//! number of times stands in the query's name ([`levels`]).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{
    Transformed, TransformedResult as _, TreeNode as _, TreeNodeRecursion,
};
use datafusion::common::{Result, exec_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::recursive_query::RecursiveQueryExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
    ReplaceChildrenOptions,
};
use futures::StreamExt as _;

/// How many rows such a query makes at most.
const ROWS_MAX: usize = 1_000_000;

/// How often the second part of a query runs at most, unless it says otherwise.
pub(crate) const LEVELS_MAX: u32 = 100;

const PREFIX: &str = "__recursive_";

/// The name in the plan of the `number`th query that reads itself.
pub(crate) fn planned_name(levels: u32, number: usize) -> String {
    format!("{PREFIX}{levels}_{number}")
}

/// How often the second part of the query of this name may run, if it reads itself.
pub(crate) fn levels(planned: &str) -> Option<u32> {
    planned.strip_prefix(PREFIX)?.split_once('_')?.0.parse().ok()
}

/// Has queries that read themselves end after Spark's number of times and rows.
#[derive(Debug)]
pub(crate) struct LimitedRecursion;

impl PhysicalOptimizerRule for LimitedRecursion {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let limited = |plan: Arc<dyn ExecutionPlan>| {
            let Some(query) = plan.downcast_ref::<RecursiveQueryExec>() else {
                return Ok(Transformed::no(plan));
            };
            let levels = levels(query.name()).map_or(0, |levels| levels as usize);
            let made = Arc::new(Made::default());
            let part = |part: &Arc<dyn ExecutionPlan>, levels: Option<usize>| {
                let (plan, made) = (Arc::clone(part), Arc::clone(&made));
                Arc::new(Part { plan, levels, made }) as Arc<dyn ExecutionPlan>
            };
            let parts =
                vec![part(query.static_term(), None), part(query.recursive_term(), Some(levels))];
            let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
            Arc::clone(&plan).replace_children(parts, options).map(Transformed::yes)
        };
        plan.transform_up(limited).data()
    }

    fn name(&self) -> &str {
        "limited_recursion"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// What a query that reads itself has made so far.
#[derive(Debug, Default)]
struct Made {
    levels: AtomicUsize,
    rows: AtomicUsize,
}

/// One part of a query that reads itself.
#[derive(Debug)]
struct Part {
    plan: Arc<dyn ExecutionPlan>,
    /// How often it may run; `None` for the first part, with which all begins.
    levels: Option<usize>,
    made: Arc<Made>,
}

impl DisplayAs for Part {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.levels {
            None => f.write_str("RecursionBegin"),
            Some(levels) => write!(f, "RecursionLimit: levels={levels}"),
        }
    }
}

impl ExecutionPlan for Part {
    fn name(&self) -> &str {
        "RecursionLimit"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.plan.properties()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.plan]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let (levels, made) = (self.levels, Arc::clone(&self.made));
        Ok(Arc::new(Self { plan: children.swap_remove(0), levels, made }))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        match self.levels {
            None => {
                self.made.levels.store(0, Ordering::Relaxed);
                self.made.rows.store(0, Ordering::Relaxed);
            }
            Some(levels) if self.made.levels.fetch_add(1, Ordering::Relaxed) >= levels => {
                return exec_err!(
                    "a recursive query goes on after {levels} levels: end it by a condition, or \
                     write MAX RECURSION LEVEL n behind its name"
                );
            }
            Some(_) => {}
        }
        let rows = self.plan.execute(partition, context)?;
        let (schema, made) = (rows.schema(), Arc::clone(&self.made));
        let rows = rows.map(move |rows| {
            let rows = rows?;
            let before = made.rows.fetch_add(rows.num_rows(), Ordering::Relaxed);
            if before.saturating_add(rows.num_rows()) > ROWS_MAX {
                return exec_err!("a recursive query makes more than {ROWS_MAX} rows");
            }
            Ok(rows)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }
}

//! Tasks that end when nobody waits for them any more.
//!
//! Ballista runs the partitions of a task as tasks of their own, which go on when the task that has
//! begun them is dropped. So each leaf of a task's plan, and each operator that makes many rows out
//! of few (`yielding.rs` marks them), fails at its next record batch once the task is over.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use ballista_core::JobId;
use ballista_core::serde::protobuf::{
    RuntimeStatsReport, ShuffleWritePartition, TaskColumnStats, WindowStateReport,
};
use ballista_executor::execution_engine::{
    DefaultExecutionEngine, ExecutionEngine, QueryStageExecutor,
};
use datafusion::common::DataFusionError;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::tree_node::{Transformed, TransformedResult as _, TreeNode as _};
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use datafusion::prelude::SessionConfig;
use futures::StreamExt as _;

/// Whether a task is over: nobody waits for it any more.
#[derive(Clone, Debug, Default)]
pub struct End(Arc<AtomicBool>);

impl End {
    /// Whether it is.
    pub fn has_come(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// The task is over when what this gives is dropped.
    pub fn when_dropped(&self) -> Ender {
        Ender(self.clone())
    }
}

/// Ends a task when it is dropped.
pub struct Ender(End);

impl Drop for Ender {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

/// What a task fails with that is over.
pub fn cancelled() -> DataFusionError {
    DataFusionError::Execution("the task was cancelled".to_owned())
}

/// `plan`, which fails at its next record batch once `end` has come.
///
/// # Errors
/// A plan that cannot be rewritten.
pub fn ending(plan: Arc<dyn ExecutionPlan>, end: &End) -> Result<Arc<dyn ExecutionPlan>> {
    let ending = |plan: Arc<dyn ExecutionPlan>| {
        let is_place = plan.children().is_empty() || plan.is::<CooperativeExec>();
        Ok(if is_place {
            Transformed::yes(Arc::new(Ending { plan, end: end.clone() }) as _)
        } else {
            Transformed::no(plan)
        })
    };
    plan.transform_up(ending).data()
}

/// Ballista's own engine, whose tasks end.
#[derive(Default)]
pub struct EndingEngine(DefaultExecutionEngine);

impl ExecutionEngine for EndingEngine {
    fn create_query_stage_exec(
        &self,
        job_id: JobId,
        stage_id: usize,
        task_id: usize,
        global_output_partition_ids: Vec<usize>,
        plan: Arc<dyn ExecutionPlan>,
        work_dir: &str,
        config: &SessionConfig,
    ) -> Result<Arc<dyn QueryStageExecutor>> {
        let end = End::default();
        let plan = ending(plan, &end)?;
        let task = self.0.create_query_stage_exec(
            job_id,
            stage_id,
            task_id,
            global_output_partition_ids,
            plan,
            work_dir,
            config,
        )?;
        Ok(Arc::new(EndingTask { task, end }))
    }
}

/// A task of which nothing goes on when its future is dropped.
#[derive(Debug)]
struct EndingTask {
    task: Arc<dyn QueryStageExecutor>,
    end: End,
}

#[async_trait]
impl QueryStageExecutor for EndingTask {
    async fn execute_query_stage(
        &self,
        task_id: usize,
        context: Arc<TaskContext>,
    ) -> Result<Vec<ShuffleWritePartition>> {
        let _ender = self.end.when_dropped();
        self.task.execute_query_stage(task_id, context).await
    }

    fn collect_plan_metrics(&self) -> Vec<MetricsSet> {
        self.task.collect_plan_metrics()
    }

    fn collect_runtime_stats_reports(&self) -> Vec<RuntimeStatsReport> {
        self.task.collect_runtime_stats_reports()
    }

    fn collect_window_state_reports(&self) -> Result<Vec<WindowStateReport>> {
        self.task.collect_window_state_reports()
    }

    fn collect_column_stats(&self) -> Vec<TaskColumnStats> {
        self.task.collect_column_stats()
    }
}

impl fmt::Display for EndingTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.task.fmt(f)
    }
}

/// An operator whose rows end with an error once the task is over.
#[derive(Debug)]
struct Ending {
    plan: Arc<dyn ExecutionPlan>,
    end: End,
}

impl DisplayAs for Ending {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ending")
    }
}

impl ExecutionPlan for Ending {
    fn name(&self) -> &str {
        "Ending"
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
        Ok(Arc::new(Self { plan: children.swap_remove(0), end: self.end.clone() }))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let rows = self.plan.execute(partition, context)?;
        let (schema, end) = (rows.schema(), self.end.clone());
        let rows = rows.map(move |rows| if end.has_come() { Err(cancelled()) } else { rows });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }
}

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
        let is_over = Arc::new(AtomicBool::new(false));
        let ending = |plan: Arc<dyn ExecutionPlan>| {
            let is_place = plan.children().is_empty() || plan.is::<CooperativeExec>();
            Ok(if is_place {
                Transformed::yes(Arc::new(Ending { plan, is_over: Arc::clone(&is_over) }) as _)
            } else {
                Transformed::no(plan)
            })
        };
        let plan = plan.transform_up(ending).data()?;
        let task = self.0.create_query_stage_exec(
            job_id,
            stage_id,
            task_id,
            global_output_partition_ids,
            plan,
            work_dir,
            config,
        )?;
        Ok(Arc::new(EndingTask { task, is_over }))
    }
}

/// A task of which nothing goes on when its future is dropped.
#[derive(Debug)]
struct EndingTask {
    task: Arc<dyn QueryStageExecutor>,
    is_over: Arc<AtomicBool>,
}

/// Says that a task is over when it is dropped.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[async_trait]
impl QueryStageExecutor for EndingTask {
    async fn execute_query_stage(
        &self,
        task_id: usize,
        context: Arc<TaskContext>,
    ) -> Result<Vec<ShuffleWritePartition>> {
        let _over = Over(&self.is_over);
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
    is_over: Arc<AtomicBool>,
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
        let is_over = Arc::clone(&self.is_over);
        Ok(Arc::new(Self { plan: children.swap_remove(0), is_over }))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let rows = self.plan.execute(partition, context)?;
        let (schema, is_over) = (rows.schema(), Arc::clone(&self.is_over));
        let rows = rows.map(move |rows| {
            if is_over.load(Ordering::Relaxed) {
                return Err(DataFusionError::Execution("the task was cancelled".to_owned()));
            }
            rows
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }
}

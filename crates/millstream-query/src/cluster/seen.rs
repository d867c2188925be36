//! Which queries a node has seen tasks of, and when: what these have written stays for as long as
//! others of their tasks may want it.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ballista_core::JobId;
use ballista_core::serde::protobuf::{
    RuntimeStatsReport, ShuffleWritePartition, TaskColumnStats, WindowStateReport,
};
use ballista_executor::execution_engine::{ExecutionEngine, QueryStageExecutor};
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::prelude::SessionConfig;
use millstream_store::env::Env;
use parking_lot::Mutex;

use super::leases::FILES_KEPT_S;
use super::settings::remote_options;

/// Queries of which a node has seen tasks. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    env: Env,
    jobs: Arc<Mutex<HashMap<String, Job>>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Job {
    /// Tasks that are here now.
    tasks: usize,
    /// Until when its files stay once there are none, on the monotonic clock.
    until: Duration,
    /// How long they stay after a task.
    kept: Duration,
}

impl Seen {
    /// None yet.
    pub(super) fn new(env: &Env) -> Self {
        Self { env: env.clone(), jobs: Arc::default() }
    }

    /// `engine`, whose tasks are seen.
    pub(super) fn engine(&self, engine: Arc<dyn ExecutionEngine>) -> Arc<dyn ExecutionEngine> {
        Arc::new(SeenEngine { engine, seen: self.clone() })
    }

    /// A task of `job` has come, each of which may take `timeout`.
    fn begin(&self, job: &JobId, timeout: Duration) -> Presence {
        let (name, now) = (job.as_str().to_owned(), self.env.monotonic());
        let mut jobs = self.jobs.lock();
        let known = jobs.entry(name.clone()).or_default();
        known.tasks += 1;
        known.kept = known.kept.max(timeout + Duration::from_secs(FILES_KEPT_S));
        known.until = now + known.kept;
        Presence { name, seen: self.clone() }
    }

    /// Whether files of the query `name` may still be wanted. Forgets those that are not.
    pub(super) fn keeps(&self, name: &str) -> bool {
        let now = self.env.monotonic();
        let mut jobs = self.jobs.lock();
        jobs.retain(|_, job| job.tasks > 0 || now < job.until);
        jobs.contains_key(name)
    }
}

/// A task that is here.
#[derive(Debug)]
struct Presence {
    name: String,
    seen: Seen,
}

impl Drop for Presence {
    fn drop(&mut self) {
        let now = self.seen.env.monotonic();
        if let Some(job) = self.seen.jobs.lock().get_mut(&self.name) {
            job.tasks -= 1;
            job.until = now + job.kept;
        }
    }
}

struct SeenEngine {
    engine: Arc<dyn ExecutionEngine>,
    seen: Seen,
}

impl ExecutionEngine for SeenEngine {
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
        let timeout = Duration::from_secs(remote_options(config).timeout as u64);
        let presence = self.seen.begin(&job_id, timeout);
        let task = self.engine.create_query_stage_exec(
            job_id,
            stage_id,
            task_id,
            global_output_partition_ids,
            plan,
            work_dir,
            config,
        )?;
        Ok(Arc::new(SeenTask { task, _presence: presence }))
    }
}

#[derive(Debug)]
struct SeenTask {
    task: Arc<dyn QueryStageExecutor>,
    _presence: Presence,
}

impl fmt::Display for SeenTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.task.fmt(f)
    }
}

#[async_trait]
impl QueryStageExecutor for SeenTask {
    async fn execute_query_stage(
        &self,
        task_id: usize,
        context: Arc<TaskContext>,
    ) -> Result<Vec<ShuffleWritePartition>> {
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use futures::future::BoxFuture;
    use millstream_store::env::{Clock, SeededRng};

    use super::*;

    /// A clock that a test sets, in seconds.
    #[derive(Clone, Default)]
    struct Hand(Arc<AtomicU64>);

    impl Clock for Hand {
        fn now_us(&self) -> i64 {
            0
        }

        fn monotonic(&self) -> Duration {
            Duration::from_secs(self.0.load(Ordering::Relaxed))
        }

        fn sleep(&self, _: Duration) -> BoxFuture<'static, ()> {
            Box::pin(std::future::pending())
        }
    }

    #[test]
    fn files_of_a_query_stay_for_a_while_after_its_last_task() {
        let hand = Hand::default();
        let env = Env::new(Arc::new(hand.clone()), Arc::new(SeededRng::new(1)));
        let seen = Seen::new(&env);
        let job = JobId::from("a job".to_owned());
        assert!(!seen.keeps("a job"), "it was never here");
        let task = seen.begin(&job, Duration::from_secs(900));
        hand.0.store(10 * FILES_KEPT_S, Ordering::Relaxed);
        assert!(seen.keeps("a job"), "it runs");
        drop(task);
        hand.0.store(11 * FILES_KEPT_S + 899, Ordering::Relaxed);
        assert!(seen.keeps("a job"), "others may run for so long");
        hand.0.store(11 * FILES_KEPT_S + 900, Ordering::Relaxed);
        assert!(!seen.keeps("a job") && seen.jobs.lock().is_empty());
    }
}

//! Which executor gets which task.
//!
//! A node registers two executors: one for tasks that it runs itself, and one, whose name ends with
//! [`REMOTE_SUFFIX`], for tasks that it hands to runners. A stage goes to executors of the one kind
//! or of the other, as the query's settings say. Where no executor for runners has asked for tasks
//! for [`RUNNERS_HEARD_OF`], all stages go to the nodes themselves: a query waits for none that may
//! never come.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ballista_core::JobId;
use ballista_core::serde::protobuf::{AvailableVcores, job_status};
use ballista_core::serde::scheduler::TaskKey;
use ballista_scheduler::cluster::{BoundTask, DistributionPolicy};
use ballista_scheduler::state::execution_graph::create_task_info;
use ballista_scheduler::state::execution_stage::RunningStage;
use ballista_scheduler::state::task_manager::JobInfoCache;
use datafusion::error::Result;
use millstream_store::env::Env;
use parking_lot::Mutex;

use super::settings::{RemoteStages, remote_options};
use super::stage::{StageKind, collapses};

/// What the names of executors end with whose tasks go to runners.
pub const REMOTE_SUFFIX: &str = "-remote";

/// Executors ask several times a second while they have room, and every 5 s when they have none.
const RUNNERS_HEARD_OF: Duration = Duration::from_secs(60);

/// Hands out tasks stage by stage; see the module's head.
pub struct StageRouter {
    env: Env,
    /// When an executor for runners asked last, on the monotonic clock.
    runners_asked: Mutex<Option<Duration>>,
}

impl fmt::Debug for StageRouter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StageRouter")
    }
}

impl StageRouter {
    /// A router that has heard of no runners.
    pub fn new(env: Env) -> Self {
        Self { env, runners_asked: Mutex::default() }
    }

    /// Takes note of who asks, and says whether there are runners.
    fn has_runners(&self, budgets: &[&mut AvailableVcores]) -> bool {
        let now = self.env.monotonic();
        let mut asked = self.runners_asked.lock();
        if budgets.iter().any(|budget| is_runner(budget)) {
            *asked = Some(now);
        }
        asked.is_some_and(|asked| now.saturating_sub(asked) < RUNNERS_HEARD_OF)
    }
}

#[async_trait]
impl DistributionPolicy for StageRouter {
    async fn bind_tasks(
        &self,
        mut budgets: Vec<&mut AvailableVcores>,
        running_jobs: Arc<HashMap<JobId, JobInfoCache>>,
    ) -> Result<Vec<BoundTask>> {
        let mut bound = Vec::new();
        let has_runners = self.has_runners(&budgets);
        for (job, info) in running_jobs.iter() {
            if !matches!(info.status, Some(job_status::Status::Running(_))) {
                continue;
            }
            let mut graph = info.execution_graph.write().await;
            let session = graph.session_id().to_owned();
            let mut done = Vec::new();
            while let Some(stage) = graph.fetch_running_stage(&done) {
                done.push(stage.stage_id);
                let is_remote = has_runners && is_remote(stage);
                let of_kind = budgets.iter_mut().filter(|budget| is_runner(budget) == is_remote);
                for budget in of_kind {
                    while let Some(task) = bind(stage, &session, job, budget) {
                        bound.push(task);
                    }
                }
            }
        }
        Ok(bound)
    }

    fn name(&self) -> &str {
        "stage router"
    }
}

fn is_runner(budget: &AvailableVcores) -> bool {
    budget.executor_id.ends_with(REMOTE_SUFFIX)
}

/// Whether the query wants the stage to run at runners.
fn is_remote(stage: &RunningStage) -> bool {
    let options = remote_options(&stage.session_config);
    let stages = RemoteStages::parse(&options.stages).unwrap_or_default();
    stages.include(StageKind::of(&stage.plan)) && !collapses(&stage.plan)
}

/// The next task of `stage` for an executor, if there are partitions left and it has room.
fn bind(
    stage: &mut RunningStage,
    session: &str,
    job: &JobId,
    budget: &mut AvailableVcores,
) -> Option<BoundTask> {
    if budget.vcores == 0 {
        return None;
    }
    // What becomes one partition has to be read by one task, by which it is cut nowhere.
    let is_whole = collapses(&stage.plan);
    let partitions = stage.pending.next_slice(if is_whole { usize::MAX } else { 1 });
    if partitions.is_empty() {
        return None;
    }
    let task_id = stage.task_infos.len();
    let failures = partitions.iter().map(|partition| stage.task_failure_numbers[*partition]);
    let task_attempt = failures.max().unwrap_or(0);
    let executor = budget.executor_id.clone();
    let mut info = create_task_info(executor.clone(), task_id);
    info.global_input_partition_ids.clone_from(&partitions);
    info.vcores_consumed = 1;
    stage.task_infos.push(info);
    budget.vcores -= 1;
    let description = ballista_scheduler::state::execution_graph::TaskDescription {
        session_id: session.to_owned(),
        key: TaskKey { job_id: job.clone(), stage_id: stage.stage_id, task_id },
        stage_attempt_num: stage.stage_attempt_num,
        task_attempt,
        global_input_partition_ids: partitions,
        vcores_consumed: 1,
        plan: Arc::clone(&stage.plan),
        session_config: Arc::clone(&stage.session_config),
    };
    Some((executor, description))
}

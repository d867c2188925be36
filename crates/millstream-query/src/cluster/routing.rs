//! Which executor gets which task.
//!
//! A node registers two executors: one for tasks that it runs itself, and one, whose name ends with
//! [`REMOTE_SUFFIX`], for tasks that it hands to runners. A stage goes to executors of the one kind
//! or of the other, as the query's settings say. The first kind tells by its name, too, that there
//! is a second ([`BESIDE_SUFFIX`]): which of them asks first is chance. Where no executor of a node
//! with runners has asked for tasks for [`RUNNERS_HEARD_OF`], all stages go to the nodes
//! themselves: a query waits for none that may never come.
//!
//! Partitions of tables in object stores have a node each ([`super::placement`]), which has kept
//! what it read before. For [`PLACE_WAIT`] after the first node has asked for tasks of such a stage
//! they wait for their own; then they go to whoever is idle.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ballista_core::JobId;
use ballista_core::serde::protobuf::{AvailableVcores, job_status, task_status};
use ballista_core::serde::scheduler::TaskKey;
use ballista_scheduler::cluster::{BoundTask, DistributionPolicy};
use ballista_scheduler::state::execution_graph::create_task_info;
use ballista_scheduler::state::execution_stage::{ExecutionStage, RunningStage, TaskInfo};
use ballista_scheduler::state::task_manager::JobInfoCache;
use datafusion::error::Result;
use millstream_store::env::Env;
use parking_lot::Mutex;

use super::auto::{Whereabouts, stage_bytes, whereabouts};
use super::placement::{pieces, place};
use super::settings::{RemoteStages, remote_options};
use super::stage::{StageKind, collapses};

/// What the names of executors end with whose tasks go to runners.
pub const REMOTE_SUFFIX: &str = "-remote";

/// What the names of executors end with whose node has runners, but not for their tasks.
pub const BESIDE_SUFFIX: &str = "-beside";

/// Executors ask several times a second while they have room, and every 5 s when they have none.
const RUNNERS_HEARD_OF: Duration = Duration::from_secs(60);

/// How long an idle node leaves partitions to others, whose they are.
const PLACE_WAIT: Duration = Duration::from_secs(1);

/// A node that has not asked for so long is given nothing.
const NODE_HEARD_OF: Duration = Duration::from_secs(12);

/// Hands out tasks stage by stage; see the module's head.
pub struct StageRouter {
    env: Env,
    /// When an executor of a node with runners asked last, on the monotonic clock.
    runners_asked: Mutex<Option<Duration>>,
    /// By its [place](place_of), when each node asked last.
    nodes_asked: Mutex<BTreeMap<String, Asked>>,
    placed: Mutex<HashMap<(JobId, usize), Arc<Placed>>>,
    /// By attempt of a stage.
    facts: Mutex<HashMap<(JobId, usize, usize), Facts>>,
}

/// What a stage's plan says, which is the same throughout an attempt.
#[derive(Clone, Copy)]
struct Facts {
    kind: StageKind,
    /// Whether one task has to read all partitions.
    collapses: bool,
    /// How much it reads.
    bytes: usize,
}

/// When a node has asked for tasks.
struct Asked {
    /// On the monotonic clock.
    at: Duration,
    /// Whether it had room for none.
    is_busy: bool,
}

/// The partitions of a stage that reads from an object store.
struct Placed {
    /// Until then on the monotonic clock they wait for their nodes.
    until: Duration,
    /// The place of the node of each.
    nodes: Vec<String>,
}

impl fmt::Debug for StageRouter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StageRouter")
    }
}

impl StageRouter {
    /// A router that has heard of no runners.
    pub fn new(env: Env) -> Self {
        Self {
            env,
            runners_asked: Mutex::default(),
            nodes_asked: Mutex::default(),
            placed: Mutex::default(),
            facts: Mutex::default(),
        }
    }

    /// Takes note of who asks, and says whether there are runners.
    fn has_runners(&self, budgets: &[&mut AvailableVcores]) -> bool {
        let now = self.env.monotonic();
        let mut asked = self.runners_asked.lock();
        if budgets.iter().any(|budget| is_runner(budget) || is_beside_runners(budget)) {
            *asked = Some(now);
        }
        asked.is_some_and(|asked| now.saturating_sub(asked) < RUNNERS_HEARD_OF)
    }

    /// The places of all nodes that are there, those that ask included.
    fn nodes(&self, budgets: &[&mut AvailableVcores]) -> Vec<String> {
        let now = self.env.monotonic();
        let mut asked = self.nodes_asked.lock();
        for budget in budgets.iter().filter(|budget| !is_runner(budget)) {
            let place = place_of(&budget.executor_id).to_owned();
            asked.insert(place, Asked { at: now, is_busy: budget.vcores == 0 });
        }
        asked.retain(|_, asked| now.saturating_sub(asked.at) < NODE_HEARD_OF);
        asked.keys().cloned().collect()
    }

    /// What the plan of a stage of `job` says. Nodes ask many times a second, and a plan may read
    /// many files.
    fn facts(&self, job: &JobId, stage: &RunningStage) -> Facts {
        let key = (job.clone(), stage.stage_id, stage.stage_attempt_num);
        let plan = &stage.plan;
        *self.facts.lock().entry(key).or_insert_with(|| Facts {
            kind: StageKind::of(plan),
            collapses: collapses(plan),
            bytes: stage_bytes(plan),
        })
    }

    /// Where a stage runs while there are runners.
    fn whereabouts(&self, stage: &RunningStage, facts: Facts) -> Whereabouts {
        let options = remote_options(&stage.session_config);
        if facts.collapses {
            return Whereabouts::Nodes;
        }
        if options.is_auto() {
            let are_busy = self.nodes_asked.lock().values().all(|asked| asked.is_busy);
            return whereabouts(&options, facts.kind, facts.bytes, are_busy);
        }
        match RemoteStages::parse(&options.stages).unwrap_or_default().include(facts.kind) {
            true => Whereabouts::Runners,
            false => Whereabouts::Nodes,
        }
    }

    /// Where the partitions of a stage belong; `None` where that does not matter.
    fn placed(&self, job: &JobId, stage: &RunningStage, nodes: &[String]) -> Option<Arc<Placed>> {
        if nodes.len() < 2 {
            return None;
        }
        let key = (job.clone(), stage.stage_id);
        if let Some(placed) = self.placed.lock().get(&key) {
            return Some(Arc::clone(placed));
        }
        let parts = pieces(&stage.plan, stage.pending.total_partitions())?;
        let owners = place(&parts, nodes).into_iter().map(|node| nodes[node].clone());
        let until = self.env.monotonic() + PLACE_WAIT;
        let placed = Arc::new(Placed { until, nodes: owners.collect() });
        self.placed.lock().insert(key, Arc::clone(&placed));
        Some(placed)
    }
}

/// What is the same of a node's name whenever it starts: names are `node-PLACE-START`.
fn place_of(executor: &str) -> &str {
    executor.split('-').nth(1).unwrap_or(executor)
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
        let nodes = self.nodes(&budgets);
        self.placed.lock().retain(|(job, _), _| running_jobs.contains_key(job));
        self.facts.lock().retain(|(job, _, _), _| running_jobs.contains_key(job));
        for (job, info) in running_jobs.iter() {
            if !matches!(info.status, Some(job_status::Status::Running(_))) {
                continue;
            }
            let mut graph = info.execution_graph.write().await;
            let session = graph.session_id().to_owned();
            let mut at_runners = graph.stages().values().map(at_runners).sum::<usize>();
            let mut done = Vec::new();
            while let Some(stage) = graph.fetch_running_stage(&done) {
                done.push(stage.stage_id);
                let facts = self.facts(job, stage);
                let at = match has_runners {
                    true => self.whereabouts(stage, facts),
                    false => Whereabouts::Nodes,
                };
                let most = remote_options(&stage.session_config).max;
                let is_for_all = at != Whereabouts::Nodes || facts.collapses;
                let placed = if is_for_all { None } else { self.placed(job, stage, &nodes) };
                let placed = placed.filter(|placed| self.env.monotonic() < placed.until);
                let choice = match &placed {
                    Some(placed) => Choice::Own(placed),
                    // What becomes one partition has to be read by one task, by which it is cut
                    // nowhere.
                    None if facts.collapses => Choice::All,
                    None => Choice::Any,
                };
                for budget in &mut budgets {
                    let is_runner = is_runner(budget);
                    let refused = if is_runner { Whereabouts::Nodes } else { Whereabouts::Runners };
                    while at != refused && !(is_runner && at_runners >= most) {
                        let task = bind(stage, &session, job, budget, choice);
                        let Some(task) = task else { break };
                        at_runners += usize::from(is_runner);
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

fn is_beside_runners(budget: &AvailableVcores) -> bool {
    budget.executor_id.ends_with(BESIDE_SUFFIX)
}

/// How many tasks of a stage are at runners now.
fn at_runners(stage: &ExecutionStage) -> usize {
    let ExecutionStage::Running(stage) = stage else { return 0 };
    let is_there = |task: &&TaskInfo| {
        matches!(&task.task_status, task_status::Status::Running(running)
            if running.executor_id.ends_with(REMOTE_SUFFIX))
    };
    stage.task_infos.iter().filter(is_there).count()
}

/// The partitions that a task is given.
#[derive(Clone, Copy)]
enum Choice<'a> {
    /// Whichever is next.
    Any,
    /// All that are left.
    All,
    /// One that belongs to the node.
    Own(&'a Placed),
}

/// Takes the partitions of the next task of `stage`.
fn next(stage: &mut RunningStage, executor: &str, choice: Choice<'_>) -> Vec<usize> {
    let placed = match choice {
        Choice::Any => return stage.pending.next_slice(1),
        Choice::All => return stage.pending.next_slice(usize::MAX),
        Choice::Own(placed) => placed,
    };
    let mut pending = stage.pending.next_slice(usize::MAX);
    let is_own = |partition: &usize| {
        placed.nodes.get(*partition).is_some_and(|node| node == place_of(executor))
    };
    let own = pending.iter().position(is_own).map(|at| pending.remove(at));
    stage.pending.reschedule(pending);
    own.into_iter().collect()
}

/// The next task of `stage` for an executor, if there are partitions left and it has room.
fn bind(
    stage: &mut RunningStage,
    session: &str,
    job: &JobId,
    budget: &mut AvailableVcores,
    choice: Choice<'_>,
) -> Option<BoundTask> {
    if budget.vcores == 0 {
        return None;
    }
    let partitions = next(stage, &budget.executor_id, choice);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_with_runners_is_known_whichever_of_its_executors_asks_first() {
        for (suffix, expected) in [("", false), (BESIDE_SUFFIX, true), (REMOTE_SUFFIX, true)] {
            let router = StageRouter::new(Env::real());
            let executor_id = format!("node-a-1{suffix}");
            let mut budget = AvailableVcores { executor_id, vcores: 1 };
            assert_eq!(router.has_runners(&[&mut budget]), expected, "{suffix:?}");
        }
    }
}

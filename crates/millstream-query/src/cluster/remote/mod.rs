//! The execution engine of tasks that a node hands to runners.
//!
//! To Ballista a task with a runner is like one that runs here: its files are in the node's
//! directory when it is done.
//!
//! - A runner that has no room is asked again later; that is no failure.
//! - A runner that is gone, takes too long, or gives an answer that is not whole is followed by
//!   another attempt at the next one; after some of them the node runs the task itself.
//! - A task that takes longer than nearly all others of its stage is sent to a second runner as
//!   well, and the first answer counts ([`Siblings`]).
//! - A file comes into being under another name and is renamed when all files of the task are
//!   there, so that an answer that comes twice changes nothing.
//! - Where this node's disk is full the task fails, and an answer that is too long for all ways
//!   back is not asked for again: the node runs the task itself.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ballista_core::JobId;
use ballista_core::serde::protobuf::ShuffleWritePartition;
use ballista_executor::execution_engine::{ExecutionEngine, QueryStageExecutor};
use bytes::Bytes;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::prelude::SessionConfig;
use datafusion_proto::physical_plan::AsExecutionPlan;
use datafusion_proto::protobuf::PhysicalPlanNode;
use futures::future::{Either, select};
use millstream_store::env::Env;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::answer::Receiver;
use super::codec::PlanCodec;
use super::error::ClusterError;
use super::metrics;
use super::push::Inbox;
use super::security::Security;
use super::settings::remote_options;
use super::spill::{Place, Spilled, Sweeps, sweep};
use super::task::{self, Delivery, PushTarget, ResultPaths, TaskHeader, WrittenPartition};
use super::transport::{RunnerAddress, Transport};

/// How long to wait before a runner is asked again that had no room: at first, and at most.
const THROTTLE_PAUSE: Duration = Duration::from_millis(10);
const THROTTLE_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Where runners are, and how they are spoken to.
#[derive(Clone, Debug)]
pub struct Runners {
    /// Each of them.
    pub addresses: Vec<RunnerAddress>,
    /// What is shown to them, and asked of them.
    pub security: Security,
    /// The longest answer that they give back the way of the task, in bytes; `None` for as much as
    /// that way takes. What is longer is pushed or spilled.
    pub inline_bytes_max: Option<u64>,
    /// Where they reach this node, if not where it listens.
    pub reached: Reached,
}

/// Where runners reach a node.
#[derive(Clone, Debug, Default)]
pub struct Reached {
    /// `HOST:PORT` where they read what other stages have written.
    pub proxy: Option<String>,
    /// `HOST:PORT` where they push answers; `None` if they shall not.
    pub inbox: Option<String>,
}

/// Hands tasks to runners.
pub struct RemoteEngine {
    shared: Arc<Shared>,
    here: Arc<dyn ExecutionEngine>,
    codec: Arc<PlanCodec>,
}

/// What all tasks have in common.
struct Shared {
    env: Env,
    runners: Runners,
    transport: Transport,
    inbox: Arc<Inbox>,
    /// Opens object stores.
    runtime: Arc<RuntimeEnv>,
    sweeps: Sweeps,
    /// Counts attempts, which go to one runner after the other.
    next: AtomicUsize,
    /// How many tasks run here at one time that runners have failed with.
    room_here: Semaphore,
    siblings: Siblings,
    counts: Arc<Counts>,
}

/// What has become of tasks.
#[derive(Debug, Default)]
pub struct Counts {
    /// Tasks that a runner has done.
    pub done: AtomicUsize,
    /// Attempts that came to nothing.
    pub failed: AtomicUsize,
    /// Attempts for which a runner had no room.
    pub throttled: AtomicUsize,
    /// Tasks that a second runner was given as well.
    pub hedged: AtomicUsize,
    /// Tasks that the node has run itself.
    pub here: AtomicUsize,
    /// Answers that were pushed here.
    pub pushed: AtomicUsize,
    /// Answers that were read from an object store.
    pub spilled: AtomicUsize,
}

impl RemoteEngine {
    /// An engine whose tasks go to `runners`, and where these fail to `here`, as many at one time
    /// as there are `cores`. `runtime` opens object stores.
    ///
    /// # Errors
    /// As [`Transport::new`].
    pub fn new(
        env: Env,
        runners: Runners,
        here: Arc<dyn ExecutionEngine>,
        codec: Arc<PlanCodec>,
        runtime: Arc<RuntimeEnv>,
        cores: usize,
    ) -> Result<Self, ClusterError> {
        let transport = Transport::new(env.clone(), &runners.addresses, runners.security.clone())?;
        let shared = Arc::new(Shared {
            env,
            runners,
            transport,
            inbox: Arc::default(),
            runtime,
            sweeps: Sweeps::default(),
            next: AtomicUsize::default(),
            room_here: Semaphore::new(cores.max(1)),
            siblings: Siblings::default(),
            counts: Arc::default(),
        });
        Ok(Self { shared, here, codec })
    }

    /// Where answers are taken in that runners push.
    pub fn inbox(&self) -> &Arc<Inbox> {
        &self.shared.inbox
    }

    /// What has become of tasks so far.
    pub fn counts(&self) -> &Arc<Counts> {
        &self.shared.counts
    }
}

impl ExecutionEngine for RemoteEngine {
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
        let encoded =
            PhysicalPlanNode::try_from_physical_plan(Arc::clone(&plan), self.codec.as_ref())?;
        let mut plan_bytes = Vec::new();
        encoded.try_encode(&mut plan_bytes)?;
        let settings = config.options().entries().into_iter();
        let settings = settings.filter_map(|entry| Some((entry.key, entry.value?)));
        let header = TaskHeader {
            job: job_id.as_str().to_owned(),
            stage: stage_id,
            task: task_id,
            partitions: global_output_partition_ids.clone(),
            proxy: self.shared.runners.reached.proxy.clone(),
            settings: settings.collect(),
            paths: ResultPaths::default(),
        };
        let directory = Path::new(work_dir).join(job_id.as_str()).join(stage_id.to_string());
        let here = self.here.create_query_stage_exec(
            job_id,
            stage_id,
            task_id,
            global_output_partition_ids,
            plan,
            work_dir,
            config,
        )?;
        let options = remote_options(config);
        Ok(Arc::new(RemoteTask {
            shared: Arc::clone(&self.shared),
            attempts: options.attempts,
            patience: Duration::from_secs(options.timeout as u64),
            spill: (!options.spill.is_empty()).then_some(options.spill),
            header,
            plan: plan_bytes.into(),
            directory,
            here,
            metrics: Mutex::default(),
        }))
    }
}

/// A task that goes to a runner.
struct RemoteTask {
    shared: Arc<Shared>,
    attempts: usize,
    patience: Duration,
    /// The URL of the directory that answers may be spilled to.
    spill: Option<String>,
    header: TaskHeader,
    plan: Bytes,
    /// The stage's, in which the task's files are.
    directory: PathBuf,
    /// The same task, to be run by the node.
    here: Arc<dyn QueryStageExecutor>,
    /// What the task's operators have done at a runner.
    metrics: Mutex<Option<Vec<MetricsSet>>>,
}

impl RemoteTask {
    fn shown(&self) -> String {
        let TaskHeader { job, stage, task, .. } = &self.header;
        format!("{job}/{stage}/{task}")
    }

    /// The answer of the first runner that has one: of one, or, where that takes long, of two.
    async fn first_answer(&self) -> io::Result<Vec<ShuffleWritePartition>> {
        let start = self.shared.env.monotonic();
        let mut first = pin!(self.attempt());
        let answer = match self.shared.siblings.patience(&self.header) {
            None => first.await,
            Some(patience) => match select(first.as_mut(), self.shared.env.sleep(patience)).await {
                Either::Left((answer, _)) => answer,
                Either::Right(_) => {
                    self.shared.counts.hedged.fetch_add(1, Ordering::Relaxed);
                    self.first_of_two(first).await
                }
            },
        };
        if answer.is_ok() {
            self.shared.siblings.took(&self.header, self.shared.env.monotonic() - start);
        }
        answer
    }

    async fn first_of_two(
        &self,
        first: impl Future<Output = io::Result<Vec<ShuffleWritePartition>>> + Unpin,
    ) -> io::Result<Vec<ShuffleWritePartition>> {
        match select(first, pin!(self.attempt())).await {
            Either::Left((Ok(answer), _)) | Either::Right((Ok(answer), _)) => Ok(answer),
            Either::Left((Err(_), second)) => second.await,
            Either::Right((Err(_), first)) => first.await,
        }
    }

    /// The answer of some runner; those that have no room are asked until `end`, on the monotonic
    /// clock.
    async fn ask_runners(&self, end: Duration) -> io::Result<Vec<ShuffleWritePartition>> {
        let mut pause = THROTTLE_PAUSE;
        loop {
            match self.first_answer().await {
                Err(error)
                    if error.kind() == io::ErrorKind::WouldBlock
                        && self.shared.env.monotonic() < end =>
                {
                    self.shared.counts.throttled.fetch_add(1, Ordering::Relaxed);
                    tracing::debug!(task = self.shown(), %error, "a runner has no room");
                    // Not all at the same moment again.
                    let share = (self.shared.env.random_u64() % 64) as u32 + 32;
                    self.shared.env.sleep(pause * share / 64).await;
                    pause = (pause * 2).min(THROTTLE_PAUSE_MAX);
                }
                answer => return answer,
            }
        }
    }

    /// One attempt, at the next runner in turn.
    async fn attempt(&self) -> io::Result<Vec<ShuffleWritePartition>> {
        let addresses = &self.shared.runners.addresses;
        let turn = self.shared.next.fetch_add(1, Ordering::Relaxed);
        let address = &addresses[turn % addresses.len()];
        let slow = |_| {
            let problem = format!("the runner at {address} takes too long");
            io::Error::new(io::ErrorKind::TimedOut, problem)
        };
        timeout(self.patience, self.attempt_at(address)).await.map_err(slow)?
    }

    async fn attempt_at(&self, address: &RunnerAddress) -> io::Result<Vec<ShuffleWritePartition>> {
        let Shared { env, inbox, counts, .. } = &*self.shared;
        let key = env.secret();
        // Names of objects are seen by others than those who may push.
        let name = env.random_uuid().simple().to_string();
        let receiver = || Receiver::new(self.directory.clone(), env.random_u64());
        let waiting = inbox.wait(&key, receiver());
        let limits = [self.shared.runners.inline_bytes_max, address.inline_bytes_max()];
        let inline_bytes_max = limits.into_iter().flatten().min();
        let may_spill = inline_bytes_max.is_some();
        let spilled = if may_spill { self.spilled(&name)? } else { None };
        let inbox_address = self.shared.runners.reached.inbox.clone();
        let paths = ResultPaths {
            inline_bytes_max,
            push: inbox_address.map(|address| PushTarget { address, key }),
            spill: spilled.as_ref().map(|spilled| spilled.target.clone()),
            patience_ms: u64::try_from(self.patience.as_millis()).unwrap_or(u64::MAX),
        };
        let header = TaskHeader { paths, ..self.header.clone() };
        let message = task::message(&header, [&self.plan[..]])?;
        let received = match self.shared.transport.exchange(address, message, receiver()).await {
            Ok(received) => received,
            Err(error) => {
                if has_written_nothing(error.kind()) {
                    spilled.into_iter().for_each(Spilled::unused);
                }
                return Err(waiting.failure().unwrap_or(error));
            }
        };
        let received = match (received.header.delivery, spilled) {
            (Delivery::Spilled(objects), Some(spilled)) => {
                counts.spilled.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(task = self.shown(), objects, "the answer was spilled");
                spilled.read(objects, receiver()).await?
            }
            (Delivery::Spilled(_), None) => {
                let problem = "the answer was spilled though that was not asked for";
                return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
            }
            (delivery, spilled) => {
                // A push that went wrong half way may have been followed by a spill; not so here.
                spilled.into_iter().for_each(Spilled::unused);
                if delivery == Delivery::Pushed {
                    counts.pushed.fetch_add(1, Ordering::Relaxed);
                    tracing::debug!(task = self.shown(), "the answer was pushed");
                    waiting.arrived()?
                } else {
                    received
                }
            }
        };
        let metrics = metrics::from_text(&received.header.metrics);
        // Without a pause in between: of two attempts the files of one count, and not some of each.
        let published = received.publish()?;
        *self.metrics.lock() = metrics;
        Ok(published.into_iter().map(summary).collect())
    }

    /// What this attempt may spill.
    fn spilled(&self, name: &str) -> io::Result<Option<Spilled>> {
        let Some(url) = &self.spill else { return Ok(None) };
        let place = Place::open(url, &self.shared.runtime)?;
        if self.shared.sweeps.begin(url, self.shared.env.monotonic()) {
            let (env, place) = (self.shared.env.clone(), place.clone());
            let sweeping = async move {
                if let Err(error) = sweep(&env, &place).await {
                    tracing::warn!(%error, "what killed nodes have spilled cannot be removed");
                }
            };
            drop(self.shared.env.spawn_on_cores("spill-sweep", sweeping));
        }
        Ok(Some(Spilled::new(&self.shared.env, place, url, name, self.patience)))
    }
}

/// Whether an attempt that failed so has surely left no answer anywhere: the runner did not take
/// the task, or had no way for its answer.
fn has_written_nothing(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{ConnectionRefused, FileTooLarge, WouldBlock};
    matches!(kind, WouldBlock | FileTooLarge | ConnectionRefused)
}

fn summary(written: WrittenPartition) -> ShuffleWritePartition {
    ShuffleWritePartition {
        partition_id: written.partition,
        num_batches: written.record_batches,
        num_rows: written.rows,
        num_bytes: written.bytes,
        file_id: written.file,
        is_sort_shuffle: written.is_sorted,
    }
}

#[async_trait]
impl QueryStageExecutor for RemoteTask {
    async fn execute_query_stage(
        &self,
        task_id: usize,
        context: Arc<TaskContext>,
    ) -> Result<Vec<ShuffleWritePartition>> {
        let end = self.shared.env.monotonic() + self.patience;
        for attempt in 1..=self.attempts {
            if attempt > 1 && self.shared.env.monotonic() >= end {
                break;
            }
            match self.ask_runners(end).await {
                Ok(partitions) => {
                    self.shared.counts.done.fetch_add(1, Ordering::Relaxed);
                    return Ok(partitions);
                }
                Err(error) => {
                    self.shared.counts.failed.fetch_add(1, Ordering::Relaxed);
                    tracing::warn!(task = self.shown(), attempt, %error, "a runner has failed");
                    match error.kind() {
                        io::ErrorKind::StorageFull => return Err(DataFusionError::IoError(error)),
                        io::ErrorKind::FileTooLarge => break,
                        _ => {}
                    }
                }
            }
        }
        tracing::warn!(task = self.shown(), "runners have failed; the node runs the task itself");
        self.shared.counts.here.fetch_add(1, Ordering::Relaxed);
        let _room = self.shared.room_here.acquire().await;
        self.here.execute_query_stage(task_id, context).await
    }

    fn collect_plan_metrics(&self) -> Vec<MetricsSet> {
        let at_runner = self.metrics.lock().clone();
        at_runner.unwrap_or_else(|| self.here.collect_plan_metrics())
    }
}

impl fmt::Debug for RemoteTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteTask({})", self.shown())
    }
}

impl fmt::Display for RemoteTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "task {} of a runner", self.shown())
    }
}

/// How long the tasks of a stage have taken at runners, by which one is known to be late.
#[derive(Debug, Default)]
struct Siblings {
    /// Of the stages that were heard of last, the newest at the end.
    stages: Mutex<VecDeque<Stage>>,
}

#[derive(Debug)]
struct Stage {
    job: String,
    stage: usize,
    took: Vec<Duration>,
}

/// Stages that are remembered.
const STAGES_MAX: usize = 64;
/// So many tasks have to be done before others are late.
const SIBLINGS_MIN: usize = 4;
/// A task that takes little longer than others is not worth a second runner.
const HEDGE_MIN: Duration = Duration::from_millis(200);

impl Siblings {
    /// After what time a task of this stage is late: later than 95 % of those that are done.
    fn patience(&self, header: &TaskHeader) -> Option<Duration> {
        let stages = self.stages.lock();
        let of_stage = |stage: &&Stage| stage.stage == header.stage && stage.job == header.job;
        let took = &stages.iter().find(of_stage)?.took;
        if took.len() < SIBLINGS_MIN {
            return None;
        }
        let mut sorted = took.clone();
        sorted.sort_unstable();
        let late = sorted[(sorted.len() * 95 / 100).min(sorted.len() - 1)];
        Some((late * 2).max(HEDGE_MIN))
    }

    fn took(&self, header: &TaskHeader, took: Duration) {
        let mut stages = self.stages.lock();
        let of_stage = |stage: &Stage| stage.stage == header.stage && stage.job == header.job;
        match stages.iter().position(of_stage) {
            Some(at) => stages[at].took.push(took),
            None => {
                if stages.len() >= STAGES_MAX {
                    stages.pop_front();
                }
                let (job, stage) = (header.job.clone(), header.stage);
                stages.push_back(Stage { job, stage, took: vec![took] });
            }
        }
    }
}

#[cfg(test)]
mod tests;

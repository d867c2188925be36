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

use std::collections::VecDeque;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ballista_core::JobId;
use ballista_core::serde::protobuf::ShuffleWritePartition;
use ballista_executor::execution_engine::{
    DefaultExecutionEngine, ExecutionEngine, QueryStageExecutor,
};
use bytes::Bytes;
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::prelude::SessionConfig;
use datafusion_proto::physical_plan::AsExecutionPlan;
use datafusion_proto::protobuf::PhysicalPlanNode;
use futures::future::{Either, select};
use hyper::StatusCode;
use millstream_store::env::Env;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::codec::PlanCodec;
use super::http;
use super::security::Security;
use super::settings::remote_options;
use super::task::{self, OutputHeader, TaskHeader, WrittenPartition};

/// How long to wait before a runner is asked again that had no room: at first, and at most.
const THROTTLE_PAUSE: Duration = Duration::from_millis(10);
const THROTTLE_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Where runners are, and how they are spoken to.
#[derive(Clone, Debug)]
pub struct Runners {
    /// `HOST:PORT` of each.
    pub addresses: Vec<String>,
    /// What is shown to them, and asked of them.
    pub security: Security,
    /// Where they read what other stages have written: the proxy of this node.
    pub proxy: Option<String>,
}

/// Hands tasks to runners.
pub struct RemoteEngine {
    shared: Arc<Shared>,
    here: Arc<DefaultExecutionEngine>,
    codec: Arc<PlanCodec>,
}

/// What all tasks have in common.
struct Shared {
    env: Env,
    runners: Runners,
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
}

impl RemoteEngine {
    /// An engine whose tasks go to `runners`, and where these fail to `here`, as many at one time
    /// as there are `cores`.
    pub fn new(
        env: Env,
        runners: Runners,
        here: Arc<DefaultExecutionEngine>,
        codec: Arc<PlanCodec>,
        cores: usize,
    ) -> Self {
        let shared = Arc::new(Shared {
            env,
            runners,
            next: AtomicUsize::default(),
            room_here: Semaphore::new(cores.max(1)),
            siblings: Siblings::default(),
            counts: Arc::default(),
        });
        Self { shared, here, codec }
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
        let mut bytes = Vec::new();
        encoded.try_encode(&mut bytes)?;
        let settings = config.options().entries().into_iter();
        let settings = settings.filter_map(|entry| Some((entry.key, entry.value?)));
        let header = TaskHeader {
            job: job_id.as_str().to_owned(),
            stage: stage_id,
            task: task_id,
            partitions: global_output_partition_ids.clone(),
            proxy: self.shared.runners.proxy.clone(),
            settings: settings.collect(),
        };
        let request = task::message(&header, [&bytes[..]]).map_err(io::Error::from)?;
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
        Ok(Arc::new(RemoteTask {
            shared: Arc::clone(&self.shared),
            attempts: remote_options(config).attempts,
            patience: Duration::from_secs(remote_options(config).timeout as u64),
            header,
            request,
            directory,
            here,
        }))
    }
}

/// A task that goes to a runner.
struct RemoteTask {
    shared: Arc<Shared>,
    attempts: usize,
    patience: Duration,
    header: TaskHeader,
    request: Bytes,
    /// The stage's, in which the task's files are.
    directory: PathBuf,
    /// The same task, to be run by the node.
    here: Arc<dyn QueryStageExecutor>,
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
        let (security, request) = (&self.shared.runners.security, self.request.clone());
        let answer =
            http::post(&self.shared.env, address, security, request, self.patience).await?;
        match answer.status {
            StatusCode::OK => {
                let (header, body) = task::parse::<OutputHeader>(&answer.body)?;
                let files = task::files(&header, &body)?;
                self.store(files).await?;
                Ok(header.partitions.into_iter().map(summary).collect())
            }
            status => {
                let problem = String::from_utf8_lossy(&answer.body).into_owned();
                let kind = match status {
                    StatusCode::TOO_MANY_REQUESTS => io::ErrorKind::WouldBlock,
                    _ => io::ErrorKind::Other,
                };
                Err(io::Error::new(kind, format!("{address} answers {status}: {problem}")))
            }
        }
    }

    /// Writes the task's files, and then has them all appear.
    async fn store(&self, files: Vec<(String, Bytes)>) -> io::Result<()> {
        let (directory, unique) = (self.directory.clone(), self.shared.env.random_u64());
        let writing = move || {
            let mut written = Vec::new();
            for (path, bytes) in files {
                let path = directory.join(path);
                let parent = path.parent().unwrap_or(&directory);
                fs::create_dir_all(parent)?;
                let hidden = parent.join(format!(".{unique:016x}-{}", written.len()));
                fs::write(&hidden, &bytes)?;
                written.push((hidden, path));
            }
            for (hidden, path) in written {
                fs::rename(hidden, path)?;
            }
            Ok(())
        };
        self.shared.env.spawn_blocking("runner-files", writing).join().await
    }
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
                }
            }
        }
        tracing::warn!(task = self.shown(), "runners have failed; the node runs the task itself");
        self.shared.counts.here.fetch_add(1, Ordering::Relaxed);
        let _room = self.shared.room_here.acquire().await;
        self.here.execute_query_stage(task_id, context).await
    }

    fn collect_plan_metrics(&self) -> Vec<MetricsSet> {
        self.here.collect_plan_metrics()
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

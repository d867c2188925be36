//! A runner: it is given a task, runs it, and gives back what the task has written.
//!
//! It keeps nothing between two tasks and belongs to no cluster, so that it can be a function that
//! somebody else starts. Rows come from the object store, and what other stages have written comes
//! from one node, the task's. The files of its shuffle are written to a directory of its own, are
//! sent back, and are gone.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use ballista_core::extension::SessionConfigExt as _;
use ballista_core::extension::SessionConfigHelperExt as _;
use ballista_core::serde::protobuf::{KeyValuePair, ShuffleWritePartition};
use ballista_executor::execution_engine::{DefaultExecutionEngine, ExecutionEngine as _};
use datafusion::error::DataFusionError;
use datafusion::execution::{SessionState, TaskContext};
use datafusion_proto::physical_plan::AsExecutionPlan as _;
use datafusion_proto::protobuf::PhysicalPlanNode;
use millstream_sql::functions::BatchClock;
use millstream_store::env::Env;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tonic::transport::Endpoint;

use super::codec::PlanCodec;
use super::error::ClusterError;
use super::security::Security;
use super::settings::cluster_config;
use super::task::{self, OutputHeader, TaskHeader, WrittenFile, WrittenPartition};
use crate::error::QueryError;
use crate::state::{Limits, session_state};

/// The largest request that is taken, nearly all of which is the task's plan.
const REQUEST_BYTES_MAX: usize = 64 << 20;

/// How a runner is set up.
#[derive(Clone, Debug)]
pub struct RunnerSettings {
    /// What a task may use.
    pub limits: Limits,
    /// Tasks at one time; more are refused, and go elsewhere.
    pub tasks: usize,
    /// Where a task's files are until they are sent back.
    pub directory: PathBuf,
    /// What requests have to show, and how the node is connected to.
    pub security: Security,
}

/// Runs tasks.
pub struct Runner {
    env: Env,
    settings: RunnerSettings,
    state: SessionState,
    codec: PlanCodec,
    engine: DefaultExecutionEngine,
    room: Arc<Semaphore>,
}

impl Runner {
    /// A runner.
    ///
    /// # Errors
    /// As [`session_state`].
    pub fn new(env: Env, settings: RunnerSettings) -> Result<Self, QueryError> {
        let state = session_state(&settings.limits, &BatchClock::default())?;
        let room = Arc::new(Semaphore::new(settings.tasks));
        let (codec, engine) = (PlanCodec::new(&state), DefaultExecutionEngine::new());
        Ok(Self { env, settings, state, codec, engine, room })
    }

    /// Runs the task in `request`, and gives the message that answers it.
    ///
    /// # Errors
    /// What the task fails with.
    pub async fn run(&self, request: &Bytes) -> Result<Bytes, DataFusionError> {
        let (header, plan) = task::request(request).map_err(io::Error::from)?;
        let unique = format!("task-{:016x}", self.env.random_u64());
        let directory = WorkDirectory(self.settings.directory.join(unique));
        fs::create_dir_all(&directory.0).map_err(DataFusionError::IoError)?;
        let context = self.context(&header)?;
        let plan = PhysicalPlanNode::try_decode(&plan)?;
        let plan = plan.try_into_physical_plan(&context, &self.codec)?;
        let stage = self.engine.create_query_stage_exec(
            header.job.clone().into(),
            header.stage,
            header.task,
            header.partitions.clone(),
            plan,
            &directory.0.to_string_lossy(),
            context.session_config(),
        )?;
        let written = stage.execute_query_stage(header.task, context).await?;
        let root = directory.0.join(&header.job).join(header.stage.to_string());
        let answer = move || answer(&root, written).map_err(DataFusionError::IoError);
        self.env.spawn_blocking("runner-answer", answer).join().await
    }

    fn context(&self, header: &TaskHeader) -> Result<Arc<TaskContext>, DataFusionError> {
        let settings = header
            .settings
            .iter()
            .map(|(key, value)| KeyValuePair { key: key.clone(), value: Some(value.clone()) });
        let settings: Vec<KeyValuePair> = settings.collect();
        let mut config = cluster_config(self.state.config().clone());
        config = config.update_from_key_value_pair(&settings);
        if let Some(proxy) = header.proxy.clone() {
            config = config.with_ballista_shuffle_reader_remote_prefer_flight(true);
            let security = self.settings.security.clone();
            let to_proxy = move |_: Endpoint| Ok(security.endpoint(&proxy)?);
            config = config.with_ballista_override_create_grpc_client_endpoint(Arc::new(to_proxy));
        }
        Ok(Arc::new(TaskContext::new(
            Some(format!("{}/{}/{}", header.job, header.stage, header.task)),
            header.job.clone(),
            config,
            self.state.scalar_functions().clone(),
            self.state.higher_order_functions().clone(),
            self.state.aggregate_functions().clone(),
            self.state.window_functions().clone(),
            Arc::clone(self.state.runtime_env()),
        )))
    }

    fn admits(&self, headers: &HeaderMap) -> bool {
        let guard = self.settings.security.guard();
        guard.admits(|name| headers.get(name).map(HeaderValue::as_bytes))
    }
}

/// A task's files, which are gone with it.
struct WorkDirectory(PathBuf);

impl Drop for WorkDirectory {
    fn drop(&mut self) {
        // What is left is removed with the runner's directory.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The message with all files below `root`.
fn answer(root: &Path, written: Vec<ShuffleWritePartition>) -> io::Result<Bytes> {
    let (mut files, mut bodies) = (Vec::new(), Vec::new());
    gather(root, root, &mut files, &mut bodies)?;
    let partitions = written.into_iter().map(|partition| WrittenPartition {
        partition: partition.partition_id,
        record_batches: partition.num_batches,
        rows: partition.num_rows,
        bytes: partition.num_bytes,
        file: partition.file_id,
        is_sorted: partition.is_sort_shuffle,
    });
    let header = OutputHeader { partitions: partitions.collect(), files };
    Ok(task::message(&header, bodies.iter().map(Vec::as_slice))?)
}

fn gather(
    root: &Path,
    directory: &Path,
    files: &mut Vec<WrittenFile>,
    bodies: &mut Vec<Vec<u8>>,
) -> io::Result<()> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        // A task without rows writes nothing.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            gather(root, &path, files, bodies)?;
            continue;
        }
        let bytes = fs::read(&path)?;
        let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
        let checksum = crc32fast::hash(&bytes);
        files.push(WrittenFile { path: name, bytes: bytes.len() as u64, checksum });
        bodies.push(bytes);
    }
    Ok(())
}

/// Serves tasks at `listener` until the process ends.
///
/// # Errors
/// [`ClusterError::Listen`], and as [`Security::check_listens`].
pub async fn serve(listener: TcpListener, runner: Arc<Runner>) -> Result<(), ClusterError> {
    let failed = |error| ClusterError::Listen { address: "the runner's address".to_owned(), error };
    let address = listener.local_addr().map_err(failed)?;
    let (env, security) = (runner.env.clone(), runner.settings.security.clone());
    security.check_listens(address)?;
    let address = address.to_string();
    let routes = Router::new()
        .route("/task", post(run_task))
        .route("/health", get(|| async { "ok" }))
        .layer(DefaultBodyLimit::max(REQUEST_BYTES_MAX))
        .with_state(runner);
    let served = match security.tls() {
        Some(tls) => axum::serve(tls.listener(&env, listener)?, routes).await,
        None => axum::serve(listener, routes).await,
    };
    served.map_err(|error| ClusterError::Listen { address, error })
}

async fn run_task(
    State(runner): State<Arc<Runner>>,
    headers: HeaderMap,
    request: Bytes,
) -> Response {
    if !runner.admits(&headers) {
        return (StatusCode::UNAUTHORIZED, "the token is missing or wrong").into_response();
    }
    let Ok(room) = Arc::clone(&runner.room).try_acquire_owned() else {
        return (StatusCode::TOO_MANY_REQUESTS, "all places are taken").into_response();
    };
    // Ballista's tasks cannot be ended half way. One whose node has gone away goes on to its end,
    // keeps its place until then, and cleans up.
    let env = runner.env.clone();
    let running = env.spawn("runner-task", async move {
        let answer = runner.run(&request).await;
        drop(room);
        answer
    });
    match running.join().await {
        Ok(answer) => answer.into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

//! A runner: it is given a task, runs it, and gives back what the task has written.
//!
//! It keeps nothing between two tasks and belongs to no cluster, so that it can be a function that
//! somebody else starts. Rows come from the object store, and what other stages have written comes
//! from one node, the task's. The files of its shuffle are written to a directory of its own, are
//! sent back, and are gone. Where they are too long for that they are pushed to the node or, if it
//! cannot be reached, spilled to the object store.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use ballista_core::extension::SessionConfigExt as _;
use ballista_core::extension::SessionConfigHelperExt as _;
use ballista_core::serde::protobuf::KeyValuePair;
use ballista_executor::execution_engine::{DefaultExecutionEngine, ExecutionEngine as _};
use bytes::BytesMut;
use datafusion::error::DataFusionError;
use datafusion::execution::{SessionState, TaskContext};
use datafusion_proto::physical_plan::AsExecutionPlan as _;
use datafusion_proto::protobuf::PhysicalPlanNode;
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use millstream_sql::functions::BatchClock;
use millstream_store::env::Env;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tonic::transport::Endpoint;

use super::answer::{WorkDirectory, Written};
use super::codec::PlanCodec;
use super::connections::Connections;
use super::ending::{End, cancelled, ending};
use super::error::ClusterError;
use super::listen;
use super::metrics;
use super::push::{STALL_PATIENCE, push};
use super::security::Security;
use super::settings::cluster_config;
use super::spill::{Place, spill};
use super::task::{self, Delivery, OutputHeader, ResultPaths, TaskHeader};
use crate::error::QueryError;
use crate::state::{Limits, session_state};

/// The largest request that is taken, nearly all of which is the task's plan.
const REQUEST_BYTES_MAX: usize = 64 << 20;

/// How long a request may take to arrive; one that comes byte by byte would keep its connection
/// for ever.
const REQUEST_PATIENCE: Duration = Duration::from_secs(15 * 60);

/// How many bytes the node may send ahead over the connection that all fetches of a task share,
/// and for one of them. With HTTP/2's 64 KiB a way of 1 ms would carry 64 MB/s.
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;
const FETCH_WINDOW_BYTES: u32 = 4 << 20;

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
        let codec = PlanCodec::new(&state);
        Ok(Self { env, settings, state, codec, room })
    }

    /// Runs the task in `request`, sees to its answer, and gives what goes back. When `end` has
    /// come, it fails at the next record batch.
    ///
    /// # Errors
    /// What the task fails with, and an answer that no way is left for.
    pub(super) async fn run(&self, request: &Bytes, end: &End) -> Result<Reply, RunError> {
        let start = self.env.monotonic();
        let (header, plan) = task::request(request).map_err(io::Error::from)?;
        let written = Arc::new(self.write(&header, &plan, end).await?);
        let paths = &header.paths;
        if paths.inline_bytes_max.is_none_or(|max| written.bytes() <= max) {
            return Ok(Reply::Inline(written));
        }
        let latest = start + Duration::from_millis(paths.patience_ms);
        let delivery = self.deliver(paths, &written, latest, end).await?;
        let header = OutputHeader { delivery, ..OutputHeader::default() };
        Ok(Reply::Elsewhere(task::message(&header, []).map_err(io::Error::from)?))
    }

    /// Runs a task, and gathers what it has written.
    async fn write(
        &self,
        header: &TaskHeader,
        plan: &Bytes,
        end: &End,
    ) -> Result<Written, DataFusionError> {
        let unique = format!("task-{:016x}", self.env.random_u64());
        let directory = WorkDirectory(self.settings.directory.join(unique));
        fs::create_dir_all(&directory.0).map_err(DataFusionError::IoError)?;
        let context = self.context(header)?;
        let plan = PhysicalPlanNode::try_decode(plan)?;
        let plan = ending(plan.try_into_physical_plan(&context, &self.codec)?, end)?;
        let connections = Arc::new(Connections::default());
        let engine = DefaultExecutionEngine::with_client_pool(connections);
        let stage = engine.create_query_stage_exec(
            header.job.clone().into(),
            header.stage,
            header.task,
            header.partitions.clone(),
            plan,
            &directory.0.to_string_lossy(),
            context.session_config(),
        )?;
        let partitions = stage.execute_query_stage(header.task, context).await?;
        let root = directory.0.join(&header.job).join(header.stage.to_string());
        let metrics = metrics::to_text(stage.collect_plan_metrics());
        let gather = move || Written::gather(directory, &root, partitions, metrics);
        let gathered = self.env.spawn_blocking("runner-answer", gather).join().await;
        gathered.map_err(DataFusionError::IoError)
    }

    /// Brings an answer that is too long for the way back to where the node looks for it, until
    /// `latest` on the monotonic clock. Nothing is begun when `end` has come.
    async fn deliver(
        &self,
        paths: &ResultPaths,
        written: &Arc<Written>,
        latest: Duration,
        end: &End,
    ) -> Result<Delivery, RunError> {
        let go_on = || if end.has_come() { Err(cancelled()) } else { Ok(()) };
        go_on()?;
        let mut problem = None;
        if let Some(target) = &paths.push {
            // If the node does nothing, there has to be time left to spill.
            let patience = latest.saturating_sub(self.env.monotonic()) / 4;
            let (patience, security) = (patience.min(STALL_PATIENCE), &self.settings.security);
            match push(&self.env, target, written, security, patience).await {
                Ok(()) => return Ok(Delivery::Pushed),
                Err(error) => problem = Some(error),
            }
        }
        // Where the node has stopped waiting, the push was refused for that.
        go_on()?;
        if let Some(target) = &paths.spill {
            let place = Place::open(&target.url, self.state.runtime_env())?;
            let objects = spill(&self.env, &place, target, written, latest).await?;
            return Ok(Delivery::Spilled(objects));
        }
        match problem {
            Some(error) => {
                let text = format!("the answer cannot be pushed to the node: {error}");
                Err(io::Error::new(error.kind(), text).into())
            }
            None => Err(RunError::TooLong { bytes: written.bytes() }),
        }
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
            let to_proxy = move |_: Endpoint| {
                let endpoint = security.endpoint(&proxy)?;
                Ok(endpoint
                    .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
                    .initial_stream_window_size(FETCH_WINDOW_BYTES))
            };
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

    /// Whether a request is served whose header of some name is `header(name)`.
    pub fn admits<'a>(&self, header: impl Fn(&'static str) -> Option<&'a [u8]>) -> bool {
        self.settings.security.guard().admits(header)
    }
}

/// What goes back where a task came from.
pub enum Reply {
    /// The answer.
    Inline(Arc<Written>),
    /// A message that says where the answer is.
    Elsewhere(Bytes),
}

impl Reply {
    /// The message, piece by piece.
    pub fn pieces(&self) -> BoxStream<'static, io::Result<Bytes>> {
        match self {
            Self::Inline(written) => written.pieces(),
            Self::Elsewhere(message) => {
                let message = message.clone();
                stream::once(async { Ok(message) }).boxed()
            }
        }
    }

    /// The message, which has to be one that may be in memory.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub async fn whole(&self) -> io::Result<Bytes> {
        match self {
            Self::Inline(written) => written.whole().await,
            Self::Elsewhere(message) => Ok(message.clone()),
        }
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The task fails.
    #[error(transparent)]
    Failed(#[from] DataFusionError),
    /// The answer is too long for the way back, and there is no other.
    #[error(
        "the answer has {bytes} bytes, which is too long for the way back; let runners reach the \
         node, or set millstream.remote.spill"
    )]
    TooLong {
        /// Its length.
        bytes: u64,
    },
}

impl From<io::Error> for RunError {
    fn from(error: io::Error) -> Self {
        Self::Failed(DataFusionError::IoError(error))
    }
}

/// Serves tasks at `listener` until the process ends.
///
/// # Errors
/// [`ClusterError::Listen`], [`ClusterError::TlsHalf`], and as [`Security::check_listens`].
pub async fn serve(listener: TcpListener, runner: Arc<Runner>) -> Result<(), ClusterError> {
    let failed = |error| ClusterError::Listen { address: "the runner's address".to_owned(), error };
    let address = listener.local_addr().map_err(failed)?;
    let (env, security) = (runner.env.clone(), runner.settings.security.clone());
    security.check_listens(address)?;
    let tls = security.tls().map(|tls| tls.acceptor()).transpose()?;
    let at_once = runner.settings.tasks + listen::SPARE;
    let routes = Router::new()
        .route("/task", post(run_task))
        .route("/health", get(|| async { "ok" }))
        .with_state(runner);
    listen::serve(&env, listener, tls, routes, at_once).await;
    Ok(())
}

fn refusal(status: StatusCode, problem: impl Into<String>) -> Response {
    (status, problem.into()).into_response()
}

/// A request's body, as [`pieces_of`] reads it, which has to be there after `limit`; or what is
/// answered otherwise.
async fn whole(
    body: Body,
    bytes_max: usize,
    patience: Duration,
    limit: Duration,
) -> Result<Bytes, Response> {
    match timeout(limit, pieces_of(body, bytes_max, patience)).await {
        Ok(read) => read,
        Err(_) => Err(refusal(StatusCode::REQUEST_TIMEOUT, "the request takes too long to arrive")),
    }
}

/// A request's body, which has to be no longer than `bytes_max` and may not stand still for
/// `patience`; or what is answered otherwise.
async fn pieces_of(body: Body, bytes_max: usize, patience: Duration) -> Result<Bytes, Response> {
    let (mut body, mut whole) = (body.into_data_stream(), BytesMut::new());
    loop {
        match timeout(patience, body.next()).await {
            Ok(None) => return Ok(whole.freeze()),
            Ok(Some(Ok(bytes))) if whole.len() + bytes.len() > bytes_max => {
                let problem = format!("the request is longer than {bytes_max} bytes");
                return Err(refusal(StatusCode::PAYLOAD_TOO_LARGE, problem));
            }
            Ok(Some(Ok(bytes))) => whole.extend_from_slice(&bytes),
            Ok(Some(Err(error))) => {
                return Err(refusal(StatusCode::BAD_REQUEST, error.to_string()));
            }
            Err(_) => {
                let problem = "the request does not go on arriving".to_owned();
                return Err(refusal(StatusCode::REQUEST_TIMEOUT, problem));
            }
        }
    }
}

async fn run_task(State(runner): State<Arc<Runner>>, headers: HeaderMap, body: Body) -> Response {
    // Before anything is read: whoever has no token takes up nothing but a connection.
    if !runner.admits(|name| headers.get(name).map(HeaderValue::as_bytes)) {
        return (StatusCode::UNAUTHORIZED, "the token is missing or wrong").into_response();
    }
    let request = match whole(body, REQUEST_BYTES_MAX, STALL_PATIENCE, REQUEST_PATIENCE).await {
        Ok(request) => request,
        Err(refusal) => return refusal,
    };
    let Ok(room) = Arc::clone(&runner.room).try_acquire_owned() else {
        return (StatusCode::TOO_MANY_REQUESTS, "all places are taken").into_response();
    };
    // This is dropped when the node closes the connection, since it does not wait any more. The
    // task then fails at its next record batch; until then it keeps its place, and it cleans up.
    let (env, end) = (runner.env.clone(), End::default());
    let _ender = end.when_dropped();
    let running = env.spawn("runner-task", async move {
        let reply = runner.run(&request, &end).await;
        drop(room);
        reply
    });
    match running.join().await {
        Ok(reply) => Body::from_stream(reply.pieces()).into_response(),
        Err(error) => {
            let status = match error {
                RunError::TooLong { .. } => StatusCode::PAYLOAD_TOO_LARGE,
                RunError::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
            };
            (status, error.to_string()).into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::http::{self, Asked};
    use super::super::security::Token;
    use super::*;

    #[tokio::test]
    async fn a_body_is_short_and_comes_in_time() {
        let refusal = async |body: Body| {
            let (patience, limit) = (Duration::from_millis(100), Duration::from_millis(500));
            let read = whole(body, 3, patience, limit).await;
            read.err().map(|refusal| refusal.status())
        };
        assert_eq!(refusal(Body::from("abc")).await, None);
        assert_eq!(refusal(Body::from("abcd")).await, Some(StatusCode::PAYLOAD_TOO_LARGE));
        let piece = |piece: io::Result<&'static str>| stream::once(async { piece });
        let cut = piece(Ok("a")).chain(piece(Err(io::ErrorKind::ConnectionReset.into())));
        assert_eq!(refusal(Body::from_stream(cut)).await, Some(StatusCode::BAD_REQUEST));
        let stalled = piece(Ok("a")).chain(stream::pending());
        assert_eq!(refusal(Body::from_stream(stalled)).await, Some(StatusCode::REQUEST_TIMEOUT));
        // Nothing comes in the end, and never for long.
        let env = Env::real();
        let dripping = stream::unfold(env, |env| async move {
            env.sleep(Duration::from_millis(20)).await;
            Some((io::Result::Ok(""), env))
        });
        assert_eq!(refusal(Body::from_stream(dripping)).await, Some(StatusCode::REQUEST_TIMEOUT));
    }

    #[tokio::test]
    async fn a_request_without_the_token_is_refused_before_its_body_is_there() {
        let (env, directory) = (Env::real(), tempfile::tempdir().expect("a directory"));
        let token = Token::new("secret").expect("it is a token");
        let settings = RunnerSettings {
            limits: Limits { partitions: 1, memory_bytes: None, spill_directory: None },
            tasks: 1,
            directory: directory.path().to_owned(),
            security: Security::token(Some(token)),
        };
        let runner = Arc::new(Runner::new(env.clone(), settings).expect("a runner"));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let serving = env.spawn("runner", serve(listener, runner));
        let body = stream::pending().boxed();
        let asked = Asked { length: 9, body, ..Asked::post(&address, "/task", Bytes::new()) };
        let answer = timeout(STALL_PATIENCE / 2, http::ask(&env, asked)).await;
        let answer = answer.expect("it does not wait for the body").expect("an answer");
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
        serving.abort();
    }
}

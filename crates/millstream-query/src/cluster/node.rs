//! A node: it takes tasks from the coordinator, runs them or hands them to runners, and keeps what
//! they have written until the query is done.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use arrow_flight::flight_service_server::FlightServiceServer;
use ballista_core::extension::BallistaConfigGrpcEndpoint;
use ballista_core::flight_proxy_service::BallistaFlightProxyService;
use ballista_core::registry::BallistaFunctionRegistry;
use ballista_core::serde::protobuf::ExecutorRegistration;
use ballista_core::serde::protobuf::executor_grpc_server::ExecutorGrpcServer;
use ballista_core::serde::scheduler::{
    ExecutorOperatingSystemSpecification, ExecutorSpecification,
};
use ballista_core::serde::{BallistaCodec, BallistaLogicalExtensionCodec};
use ballista_core::{BALLISTA_PROTOCOL_VERSION, ConfigProducer, RuntimeProducer};
use ballista_executor::execution_engine::ExecutionEngine;
use ballista_executor::executor::Executor;
use ballista_executor::flight_service::BallistaFlightService;
use ballista_executor::metrics::LoggingMetricsCollector;
use datafusion::execution::SessionState;
use datafusion_proto::protobuf::{LogicalPlanNode, PhysicalPlanNode};
use millstream_sql::functions::BatchClock;
use millstream_store::env::{Env, Task};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::service::interceptor::InterceptedService;

use super::codec::PlanCodec;
use super::connect::reach;
use super::control::Control;
use super::ending::EndingEngine;
use super::error::ClusterError;
use super::http::url_host;
use super::polling::{Current, Polling};
use super::push;
use super::remote::{Counts, RemoteEngine, Runners};
use super::routing::{BESIDE_SUFFIX, REMOTE_SUFFIX};
use super::security::Security;
use super::seen::Seen;
use super::settings::{MESSAGE_BYTES_MAX, cluster_config};
use super::sweep;
use crate::cache::blocks::BlockCache;
use crate::error::QueryError;
use crate::state::{Limits, session_state};
use crate::stores::through_cache;

/// How often what the cache has done is logged.
const CACHE_REPORTED: Duration = Duration::from_secs(60);

/// How a node is set up.
#[derive(Clone, Debug)]
pub struct NodeSettings {
    /// `HOST:PORT` of the coordinator.
    pub coordinator: String,
    /// What tasks that run here may use; as many of them run at one time as it has partitions.
    pub limits: Limits,
    /// Where what tasks have written is kept.
    pub directory: PathBuf,
    /// The host under which others reach this node.
    pub host: String,
    /// What it shows others, and asks of them.
    pub security: Security,
    /// Where tasks go that are for runners, and how many at one time; `None` without runners.
    pub runners: Option<(Runners, usize)>,
    /// What is kept of files in object stores; `None` for nothing.
    pub cache: Option<Arc<BlockCache>>,
}

/// A node that works until it is dropped.
pub struct Node {
    /// What has become of tasks that went to runners.
    pub counts: Option<Arc<Counts>>,
    executors: Vec<Current>,
    tasks: Vec<Task<()>>,
}

impl Node {
    /// How many tasks it has at this moment, those at its runners included.
    pub fn running(&self) -> usize {
        self.executors.iter().map(|current| current.executor().active_task_count()).sum()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.tasks.iter().for_each(Task::abort);
    }
}

/// Where a node listens.
pub struct Listeners {
    /// For others that read its files.
    pub files: TcpListener,
    /// For its runners, which read files of all nodes there.
    pub proxy: TcpListener,
    /// For its runners, which push answers there; `None` if they shall not.
    pub inbox: Option<TcpListener>,
}

/// Starts a node.
///
/// # Errors
/// [`ClusterError::NoCoordinator`], [`ClusterError::Directory`], [`ClusterError::Lambda`].
pub async fn start(
    env: &Env,
    settings: NodeSettings,
    listeners: Listeners,
) -> Result<Node, QueryError> {
    let security = &settings.security;
    let others = [&listeners.files, &listeners.proxy].into_iter().chain(&listeners.inbox);
    for listener in others {
        security.check_listens(bound(listener, &settings.host)?)?;
    }
    let port = bound(&listeners.files, &settings.host)?.port();
    std::fs::create_dir_all(&settings.directory).map_err(|error| ClusterError::Directory {
        path: settings.directory.display().to_string(),
        error,
    })?;
    let state = session_state(&settings.limits, &BatchClock::default())?;
    let polling = Arc::new(Polling {
        env: env.clone(),
        coordinator: settings.coordinator.clone(),
        channel: reach(&settings.coordinator, security).await?,
        codec: codec(&state),
        answers: Arc::new(AtomicBool::new(true)),
    });
    let Listeners { files, proxy, inbox } = listeners;
    let seen = Seen::new(env);
    let local = Registered::new(env, &settings, port, state, &seen);
    let cores = local.cores;
    let (work_dir, remote) = (local.work_dir.clone(), local.clone());
    let (current, task) = polling.start(cores, move || local.executor());
    let (mut executors, mut tasks, mut counts) = (vec![current], vec![task], None);
    if let Some(runners) = settings.runners.clone() {
        let at_once = runners.1;
        let engine = remote_engine(&remote, runners, (proxy, inbox), &mut tasks)?;
        counts = Some(Arc::clone(engine.counts()));
        let engine = seen.engine(Arc::new(engine));
        let remote = Registered { suffix: REMOTE_SUFFIX, engine, ..remote };
        let (current, task) = polling.start(at_once, move || remote.executor());
        executors.push(current);
        tasks.push(task);
    }
    if let Some(cache) = settings.cache.clone() {
        tasks.push(report(env, cache));
    }
    tasks.push(sweep::start(env, settings.directory.clone(), seen));
    let control = Control::new(executors.clone());
    tasks.push(serve_files(env, files, &work_dir, control, security)?);
    Ok(Node { counts, executors, tasks })
}

fn bound(listener: &TcpListener, host: &str) -> Result<SocketAddr, ClusterError> {
    let address = host.to_owned();
    listener.local_addr().map_err(|error| ClusterError::Listen { address, error })
}

fn codec(state: &SessionState) -> BallistaCodec<LogicalPlanNode, PhysicalPlanNode> {
    let logical = Arc::new(BallistaLogicalExtensionCodec::default());
    BallistaCodec::new(logical, Arc::new(PlanCodec::new(state)))
}

/// What hands the tasks of the executor `remote` to runners, which call back at the listeners.
fn remote_engine(
    remote: &Registered,
    (mut runners, at_once): (Runners, usize),
    (proxy, inbox): (TcpListener, Option<TcpListener>),
    tasks: &mut Vec<Task<()>>,
) -> Result<RemoteEngine, ClusterError> {
    let Registered { env, host, state, security, .. } = remote;
    let reached = |listener: &TcpListener| {
        let port = bound(listener, host)?.port();
        Ok::<_, ClusterError>(format!("{host}:{port}"))
    };
    runners.reached.proxy = Some(reached(&proxy)?);
    tasks.push(serve_proxy(env, proxy, security)?);
    if let Some(inbox) = &inbox {
        let here = reached(inbox)?;
        runners.reached.inbox.get_or_insert(here);
    }
    let (plans, stores) = (Arc::new(PlanCodec::new(state)), Arc::clone(state.runtime_env()));
    let (here, cores) = (Arc::clone(&remote.engine), remote.cores);
    let engine = RemoteEngine::new(env.clone(), runners, here, plans, stores, cores)?;
    if let Some(inbox) = inbox {
        let answers = Arc::clone(engine.inbox());
        tasks.push(push::serve(env, inbox, answers, security, at_once)?);
    }
    Ok(engine)
}

/// An executor as the coordinator knows it, under a new name each time.
#[derive(Clone)]
struct Registered {
    env: Env,
    /// What its names begin with.
    name: String,
    /// What they end with.
    suffix: &'static str,
    /// As it stands in URLs.
    host: String,
    port: u16,
    /// Threads that run tasks, or that wait for them.
    cores: usize,
    state: SessionState,
    runtimes: RuntimeProducer,
    work_dir: String,
    engine: Arc<dyn ExecutionEngine>,
    security: Security,
}

impl Registered {
    /// An executor that runs its tasks itself, and can be reached at `port`.
    fn new(
        env: &Env,
        settings: &NodeSettings,
        port: u16,
        state: SessionState,
        seen: &Seen,
    ) -> Self {
        let place = settings.cache.as_ref().map(|cache| cache.name().to_owned());
        let place = place.unwrap_or_else(|| format!("{:016x}", env.random_u64()));
        Self {
            env: env.clone(),
            name: format!("node-{place}"),
            suffix: if settings.runners.is_some() { BESIDE_SUFFIX } else { "" },
            host: url_host(&settings.host),
            port,
            cores: settings.limits.partitions,
            runtimes: runtimes(env, &state, settings.cache.as_ref()),
            state,
            work_dir: settings.directory.display().to_string(),
            engine: seen.engine(Arc::new(EndingEngine::default())),
            security: settings.security.clone(),
        }
    }

    fn executor(&self) -> Arc<Executor> {
        let vcores = u32::try_from(self.cores).unwrap_or(u32::MAX);
        let registration = ExecutorRegistration {
            id: format!("{}-{:016x}{}", self.name, self.env.random_u64(), self.suffix),
            host: Some(self.host.clone()),
            port: u32::from(self.port),
            // Called to end tasks.
            grpc_port: u32::from(self.port),
            specification: Some(ExecutorSpecification::default().with_vcores(vcores).into()),
            os_info: Some(ExecutorOperatingSystemSpecification::default().into()),
            ballista_protocol_version: BALLISTA_PROTOCOL_VERSION,
        };
        let config = self.security.configured(cluster_config(self.state.config().clone()));
        let config_producer: ConfigProducer = Arc::new(move || config.clone());
        Arc::new(Executor::new(
            registration,
            &self.work_dir,
            Arc::clone(&self.runtimes),
            config_producer,
            Arc::new(BallistaFunctionRegistry::from(&self.state)),
            Arc::new(LoggingMetricsCollector::default()),
            self.cores,
            Arc::clone(&self.engine),
        ))
    }
}

/// What tasks run in: all in the same, but for the stores that they read through a cache.
fn runtimes(env: &Env, state: &SessionState, cache: Option<&Arc<BlockCache>>) -> RuntimeProducer {
    let runtime = Arc::clone(state.runtime_env());
    let Some(cache) = cache.cloned() else { return Arc::new(move |_| Ok(Arc::clone(&runtime))) };
    let env = env.clone();
    Arc::new(move |_| Ok(Arc::new(through_cache(&env, &runtime, &cache))))
}

/// Logs what the cache has done.
fn report(env: &Env, cache: Arc<BlockCache>) -> Task<()> {
    let clock = env.clone();
    env.spawn("node-cache", async move {
        loop {
            clock.sleep(CACHE_REPORTED).await;
            tracing::info!(counts = ?cache.counts, bytes = cache.bytes(), "the cache so far");
        }
    })
}

fn serve_files(
    env: &Env,
    listener: TcpListener,
    work_dir: &str,
    control: Control,
    security: &Security,
) -> Result<Task<()>, ClusterError> {
    let limit = MESSAGE_BYTES_MAX as usize;
    let service = FlightServiceServer::new(BallistaFlightService::new(work_dir.to_owned()))
        .max_decoding_message_size(limit)
        .max_encoding_message_size(limit);
    let service = InterceptedService::new(service, security.guard());
    let control = InterceptedService::new(ExecutorGrpcServer::new(control), security.guard());
    let mut server = security.server()?;
    let server = server.add_service(service).add_service(control);
    Ok(env.spawn("node-files", async move {
        if let Err(error) = server.serve_with_incoming(TcpListenerStream::new(listener)).await {
            tracing::error!(%error, "the node's files are not served any more");
        }
    }))
}

fn serve_proxy(
    env: &Env,
    listener: TcpListener,
    security: &Security,
) -> Result<Task<()>, ClusterError> {
    let limit = MESSAGE_BYTES_MAX as usize;
    let connector = Arc::new(BallistaConfigGrpcEndpoint::new(security.connector()));
    let is_tls = security.tls().is_some();
    let proxy = BallistaFlightProxyService::new(limit, limit, is_tls, Some(connector));
    let service = FlightServiceServer::new(proxy)
        .max_decoding_message_size(limit)
        .max_encoding_message_size(limit);
    let service = InterceptedService::new(service, security.guard());
    let mut server = security.server()?;
    let server = server.add_service(service);
    Ok(env.spawn("node-proxy", async move {
        if let Err(error) = server.serve_with_incoming(TcpListenerStream::new(listener)).await {
            tracing::error!(%error, "runners cannot read from other nodes any more");
        }
    }))
}

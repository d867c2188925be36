//! A node: it takes tasks from the coordinator, runs them or hands them to runners, and keeps what
//! they have written until the query is done.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arrow_flight::flight_service_server::FlightServiceServer;
use ballista_core::extension::BallistaConfigGrpcEndpoint;
use ballista_core::flight_proxy_service::BallistaFlightProxyService;
use ballista_core::registry::BallistaFunctionRegistry;
use ballista_core::serde::protobuf::ExecutorRegistration;
use ballista_core::serde::protobuf::executor_grpc_server::ExecutorGrpcServer;
use ballista_core::serde::protobuf::scheduler_grpc_client::SchedulerGrpcClient;
use ballista_core::serde::scheduler::{
    ExecutorOperatingSystemSpecification, ExecutorSpecification,
};
use ballista_core::serde::{BallistaCodec, BallistaLogicalExtensionCodec};
use ballista_core::utils::{GrpcServerConfig, create_grpc_server};
use ballista_core::{BALLISTA_PROTOCOL_VERSION, ConfigProducer, RuntimeProducer};
use ballista_executor::execution_engine::ExecutionEngine;
use ballista_executor::execution_loop::poll_loop;
use ballista_executor::executor::Executor;
use ballista_executor::flight_service::BallistaFlightService;
use ballista_executor::health::ExecutorHealth;
use ballista_executor::metrics::LoggingMetricsCollector;
use datafusion::execution::SessionState;
use datafusion_proto::protobuf::{LogicalPlanNode, PhysicalPlanNode};
use millstream_sql::functions::BatchClock;
use millstream_store::env::{Env, Task};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;

use super::codec::PlanCodec;
use super::connect::connect;
use super::control::Control;
use super::ending::EndingEngine;
use super::error::ClusterError;
use super::http::url_host;
use super::push;
use super::remote::{Counts, RemoteEngine, Runners};
use super::routing::REMOTE_SUFFIX;
use super::security::Security;
use super::settings::{MESSAGE_BYTES_MAX, cluster_config};
use crate::cache::blocks::BlockCache;
use crate::error::QueryError;
use crate::state::{Limits, session_state};
use crate::stores::through_cache;

/// How often it is looked at whether the coordinator answers.
const HEALTH_LOOKED_AT: Duration = Duration::from_millis(500);
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
    executors: Vec<Arc<Executor>>,
    tasks: Vec<Task<()>>,
}

impl Node {
    /// How many tasks it has at this moment, those at its runners included.
    pub fn running(&self) -> usize {
        self.executors.iter().map(|executor| executor.active_task_count()).sum()
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
    let at = |listener: &TcpListener| {
        let address = settings.host.clone();
        listener.local_addr().map_err(|error| ClusterError::Listen { address, error })
    };
    let security = &settings.security;
    let others = [&listeners.files, &listeners.proxy].into_iter().chain(&listeners.inbox);
    for listener in others {
        security.check_listens(at(listener)?)?;
    }
    let (host, port) = (url_host(&settings.host), at(&listeners.files)?.port());
    std::fs::create_dir_all(&settings.directory).map_err(|error| ClusterError::Directory {
        path: settings.directory.display().to_string(),
        error,
    })?;
    let work_dir = settings.directory.display().to_string();
    let state = session_state(&settings.limits, &BatchClock::default())?;
    let scheduler = connect(&settings.coordinator, security).await?;
    let mut tasks = Vec::new();
    let here: Arc<dyn ExecutionEngine> = Arc::new(EndingEngine::default());
    let place = settings.cache.as_ref().map(|cache| cache.name().to_owned());
    let place = place.unwrap_or_else(|| format!("{:016x}", env.random_u64()));
    let id = format!("node-{place}-{:016x}", env.random_u64());
    let cores = settings.limits.partitions;
    let runtime = runtimes(env, &state, settings.cache.as_ref());
    let local = Registered { id: id.clone(), host: host.clone(), port, cores };
    let engine = Arc::clone(&here);
    let local = local.executor(&state, &runtime, &work_dir, engine, security);
    let mut executors = vec![Arc::clone(&local)];
    let codec = Arc::new(PlanCodec::new(&state));
    let health = ExecutorHealth::new();
    tasks.push(watch(env, &settings.coordinator, health.clone()));
    tasks.push(poll(env, scheduler.clone(), local, &codec, cores, health));
    let mut counts = None;
    if let Some((mut runners, at_once)) = settings.runners.clone() {
        let reached = |port: u16| Some(format!("{host}:{port}"));
        runners.reached.proxy = reached(at(&listeners.proxy)?.port());
        tasks.push(serve_proxy(env, listeners.proxy, security)?);
        if let Some(inbox) = &listeners.inbox {
            let here = reached(at(inbox)?.port());
            runners.reached.inbox = runners.reached.inbox.or(here);
        }
        let (plans, stores) = (Arc::clone(&codec), Arc::clone(state.runtime_env()));
        let engine = RemoteEngine::new(env.clone(), runners, here, plans, stores, cores)?;
        if let Some(inbox) = listeners.inbox {
            let answers = Arc::clone(engine.inbox());
            tasks.push(push::serve(env, inbox, answers, security, at_once)?);
        }
        counts = Some(Arc::clone(engine.counts()));
        let id = format!("{id}{REMOTE_SUFFIX}");
        let remote = Registered { id, host: host.clone(), port, cores };
        let remote = remote.executor(&state, &runtime, &work_dir, Arc::new(engine), security);
        executors.push(Arc::clone(&remote));
        tasks.push(poll(env, scheduler, remote, &codec, at_once, ExecutorHealth::new()));
    }
    if let Some(cache) = settings.cache.clone() {
        tasks.push(report(env, cache));
    }
    let control = Control::new(executors.clone());
    tasks.push(serve_files(env, listeners.files, &work_dir, control, security)?);
    Ok(Node { counts, executors, tasks })
}

/// An executor as the coordinator knows it.
struct Registered {
    id: String,
    /// As it stands in URLs.
    host: String,
    port: u16,
    /// Threads that run tasks, or that wait for them.
    cores: usize,
}

impl Registered {
    fn executor(
        self,
        state: &SessionState,
        runtimes: &RuntimeProducer,
        work_dir: &str,
        engine: Arc<dyn ExecutionEngine>,
        security: &Security,
    ) -> Arc<Executor> {
        let vcores = u32::try_from(self.cores).unwrap_or(u32::MAX);
        let registration = ExecutorRegistration {
            id: self.id,
            host: Some(self.host),
            port: u32::from(self.port),
            // Called to end tasks.
            grpc_port: u32::from(self.port),
            specification: Some(ExecutorSpecification::default().with_vcores(vcores).into()),
            os_info: Some(ExecutorOperatingSystemSpecification::default().into()),
            ballista_protocol_version: BALLISTA_PROTOCOL_VERSION,
        };
        let config = security.configured(cluster_config(state.config().clone()));
        let config_producer: ConfigProducer = Arc::new(move || config.clone());
        Arc::new(Executor::new(
            registration,
            work_dir,
            Arc::clone(runtimes),
            config_producer,
            Arc::new(BallistaFunctionRegistry::from(state)),
            Arc::new(LoggingMetricsCollector::default()),
            self.cores,
            engine,
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

/// Reports once that the coordinator does not answer, and once that it does again: Ballista
/// reports each request, of which there are twenty a second.
fn watch(env: &Env, coordinator: &str, health: ExecutorHealth) -> Task<()> {
    let (clock, coordinator) = (env.clone(), coordinator.to_owned());
    env.spawn("node-health", async move {
        let mut was_ready = false;
        loop {
            clock.sleep(HEALTH_LOOKED_AT).await;
            match (was_ready, health.is_ready()) {
                (true, false) => tracing::warn!(
                    coordinator,
                    "the coordinator does not answer; the node goes on asking it for tasks"
                ),
                (false, true) => tracing::info!(coordinator, "the coordinator answers"),
                _ => {}
            }
            was_ready = health.is_ready();
        }
    })
}

fn poll(
    env: &Env,
    scheduler: SchedulerGrpcClient<Channel>,
    executor: Arc<Executor>,
    codec: &Arc<PlanCodec>,
    at_once: usize,
    health: ExecutorHealth,
) -> Task<()> {
    let logical = Arc::new(BallistaLogicalExtensionCodec::default());
    let codec =
        BallistaCodec::<LogicalPlanNode, PhysicalPlanNode>::new(logical, Arc::clone(codec) as _);
    let room = Arc::new(Semaphore::new(at_once.max(1)));
    env.spawn("node-tasks", async move {
        let polled = poll_loop(scheduler, executor, codec, None, Some(room), health).await;
        if let Err(error) = polled {
            tracing::error!(%error, "the node takes no tasks any more");
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
    let mut server = security.server(create_grpc_server(&GrpcServerConfig::default()))?;
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
    let mut server = security.server(create_grpc_server(&GrpcServerConfig::default()))?;
    let server = server.add_service(service);
    Ok(env.spawn("node-proxy", async move {
        if let Err(error) = server.serve_with_incoming(TcpListenerStream::new(listener)).await {
            tracing::error!(%error, "runners cannot read from other nodes any more");
        }
    }))
}

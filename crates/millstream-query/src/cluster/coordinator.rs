//! The coordinator: Ballista's scheduler with the routing and the functions of this project.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use ballista_core::config::TaskSchedulingPolicy;
use ballista_core::serde::protobuf::scheduler_grpc_server::SchedulerGrpcServer;
use ballista_scheduler::cluster::{BallistaCluster, ClusterState};
use ballista_scheduler::config::{SchedulerConfig, TaskDistributionPolicy};
use ballista_scheduler::scheduler_process::create_scheduler;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::SessionConfig;
use millstream_sql::functions::BatchClock;
use millstream_sql::session;
use millstream_store::env::Env;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::service::Routes;
use tonic::service::interceptor::InterceptedService;

use super::codec::PlanCodec;
use super::error::ClusterError;
use super::http::url_host;
use super::in_process::InProcess;
use super::leases::{FILES_KEPT_S, LeasedJobs, Scheduler, watch};
use super::routing::StageRouter;
use super::security::Security;
use super::settings::{MESSAGE_BYTES_MAX, NODE_TIMEOUT_S, cluster_config};
use crate::state::session_config;
use crate::stores::Stores;

/// How often nodes are looked at for that, in seconds.
const NODE_LOOK_S: u64 = 3;

/// A coordinator that does not listen yet.
pub struct Coordinator {
    scheduler: Scheduler,
    nodes: Arc<dyn ClusterState>,
    security: Security,
}

/// Serves queries at `listener` until the process ends.
///
/// # Errors
/// What the scheduler cannot start with.
pub async fn serve(
    env: &Env,
    listener: TcpListener,
    security: &Security,
) -> Result<(), ClusterError> {
    let coordinator = Coordinator::new(env, address(&listener)?, security).await?;
    coordinator.serve(listener, None).await
}

fn address(listener: &TcpListener) -> Result<SocketAddr, ClusterError> {
    listener.local_addr().map_err(|error| ClusterError::Listen {
        address: "the coordinator's address".to_owned(),
        error,
    })
}

impl Coordinator {
    /// A coordinator that will listen at `address`.
    ///
    /// # Errors
    /// What the scheduler cannot start with, and as [`Security::check_listens`].
    pub async fn new(
        env: &Env,
        address: SocketAddr,
        security: &Security,
    ) -> Result<Self, ClusterError> {
        security.check_listens(address)?;
        let config = Arc::new(scheduler_config(env, address, security)?);
        let cluster = BallistaCluster::new_from_config(&config).await?;
        let (jobs, asked) = LeasedJobs::new(env.clone(), cluster.job_state());
        let leased = BallistaCluster::new(cluster.cluster_state(), Arc::new(jobs));
        let scheduler = create_scheduler(leased, config).await?;
        let ending = Arc::new(scheduler.clone());
        env.spawn("leases", watch(env.clone(), ending, cluster.job_state(), asked));
        Ok(Self { scheduler, nodes: cluster.cluster_state(), security: security.clone() })
    }

    /// How this process reaches it.
    pub fn in_process(&self, env: &Env) -> InProcess {
        InProcess::new(env, self.scheduler.clone(), Arc::clone(&self.nodes))
    }

    /// Serves queries at `listener` until the process ends, and beside them what `front` has.
    ///
    /// # Errors
    /// [`ClusterError::Listen`], [`ClusterError::Tls`].
    pub async fn serve(
        self,
        listener: TcpListener,
        front: Option<Routes>,
    ) -> Result<(), ClusterError> {
        let address = address(&listener)?.to_string();
        let limit = MESSAGE_BYTES_MAX as usize;
        let service = SchedulerGrpcServer::new(self.scheduler)
            .max_decoding_message_size(limit)
            .max_encoding_message_size(limit);
        let service = InterceptedService::new(service, self.security.guard());
        let mut server = self.security.server()?;
        let routes = match front {
            Some(front) => front.add_service(service),
            None => Routes::new(service),
        };
        let serving = server.add_routes(routes);
        let served = serving.serve_with_incoming(TcpListenerStream::new(listener)).await;
        let failed = |error| ClusterError::Listen { address, error: io::Error::other(error) };
        served.map_err(failed)
    }
}

fn scheduler_config(
    env: &Env,
    address: SocketAddr,
    security: &Security,
) -> Result<SchedulerConfig, ClusterError> {
    let mut config = SchedulerConfig::default()
        .with_hostname(url_host(&address.ip().to_string()))
        .with_port(address.port())
        .with_scheduler_policy(TaskSchedulingPolicy::PullStaged)
        .with_task_distribution(TaskDistributionPolicy::Custom(Arc::new(StageRouter::new(
            env.clone(),
        ))))
        .with_override_create_grpc_client_endpoint(security.connector());
    config.executor_timeout_seconds = NODE_TIMEOUT_S;
    config.expire_dead_executor_interval_seconds = NODE_LOOK_S;
    config.finished_job_data_clean_up_interval_seconds = FILES_KEPT_S;
    // The rows of a query may be read for as long as its files are there; see `leases`.
    config.finished_job_state_clean_up_interval_seconds = FILES_KEPT_S;
    config.override_config_producer = Some(Arc::new(|| cluster_config(session_config(1))));
    // A plan that reads from an object store is not decoded without it.
    let stores = RuntimeEnvBuilder::new().with_object_store_registry(Arc::<Stores>::default());
    let runtime = stores.build_arc()?;
    let state = move |config: SessionConfig| {
        session::state(cluster_config(config), Arc::clone(&runtime), &BatchClock::default())
    };
    let codec = PlanCodec::new(&state(session_config(1)));
    config.override_physical_codec = Some(Arc::new(codec));
    config.override_session_builder = Some(Arc::new(move |config| Ok(state(config))));
    Ok(config)
}

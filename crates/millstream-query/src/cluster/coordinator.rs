//! The coordinator: Ballista's scheduler with the routing and the functions of this project.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use ballista_core::config::TaskSchedulingPolicy;
use ballista_core::serde::protobuf::scheduler_grpc_server::SchedulerGrpcServer;
use ballista_core::utils::{GrpcServerConfig, create_grpc_server};
use ballista_scheduler::cluster::BallistaCluster;
use ballista_scheduler::config::{SchedulerConfig, TaskDistributionPolicy};
use ballista_scheduler::scheduler_process::create_scheduler;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::SessionConfig;
use datafusion_proto::protobuf::{LogicalPlanNode, PhysicalPlanNode};
use millstream_sql::functions::BatchClock;
use millstream_sql::session;
use millstream_store::env::Env;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::service::interceptor::InterceptedService;

use super::codec::PlanCodec;
use super::error::ClusterError;
use super::leases::{FILES_KEPT_S, LeasedJobs, watch};
use super::routing::StageRouter;
use super::security::Security;
use super::settings::{MESSAGE_BYTES_MAX, cluster_config};
use crate::state::session_config;
use crate::stores::Stores;

/// A node that was not heard of for so long is given up, in seconds.
const NODE_TIMEOUT_S: u64 = 15;
/// How often nodes are looked at for that, in seconds.
const NODE_LOOK_S: u64 = 3;

/// Serves queries at `listener` until the process ends.
///
/// # Errors
/// What the scheduler cannot start with.
pub async fn serve(
    env: &Env,
    listener: TcpListener,
    security: &Security,
) -> Result<(), ClusterError> {
    let address = listener.local_addr().map_err(|error| ClusterError::Listen {
        address: "the coordinator's address".to_owned(),
        error,
    })?;
    security.check_listens(address)?;
    let config = Arc::new(scheduler_config(env, address, security)?);
    let cluster = BallistaCluster::new_from_config(&config).await?;
    let (jobs, asked) = LeasedJobs::new(cluster.job_state());
    let leased = BallistaCluster::new(cluster.cluster_state(), Arc::new(jobs));
    let scheduler = create_scheduler::<LogicalPlanNode, PhysicalPlanNode>(leased, config).await?;
    let ending = Arc::new(scheduler.clone());
    env.spawn("leases", watch(env.clone(), ending, cluster.job_state(), asked));
    let limit = MESSAGE_BYTES_MAX as usize;
    let service = SchedulerGrpcServer::new(scheduler)
        .max_decoding_message_size(limit)
        .max_encoding_message_size(limit);
    let service = InterceptedService::new(service, security.guard());
    let mut server = security.server(create_grpc_server(&GrpcServerConfig::default()))?;
    let serving = server.add_service(service);
    let served = serving.serve_with_incoming(TcpListenerStream::new(listener)).await;
    served.map_err(|error| ClusterError::Listen {
        address: address.to_string(),
        error: io::Error::other(error),
    })
}

fn scheduler_config(
    env: &Env,
    address: SocketAddr,
    security: &Security,
) -> Result<SchedulerConfig, ClusterError> {
    let mut config = SchedulerConfig::default()
        .with_hostname(address.ip().to_string())
        .with_port(address.port())
        .with_scheduler_policy(TaskSchedulingPolicy::PullStaged)
        .with_task_distribution(TaskDistributionPolicy::Custom(Arc::new(StageRouter::new(
            env.clone(),
        ))))
        .with_override_create_grpc_client_endpoint(security.connector());
    config.executor_timeout_seconds = NODE_TIMEOUT_S;
    config.expire_dead_executor_interval_seconds = NODE_LOOK_S;
    config.finished_job_data_clean_up_interval_seconds = FILES_KEPT_S;
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

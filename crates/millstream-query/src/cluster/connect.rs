//! A connection to the coordinator.

use std::time::Duration;

use ballista_core::serde::protobuf::GetJobStatusParams;
use ballista_core::serde::protobuf::scheduler_grpc_client::SchedulerGrpcClient;
use datafusion::prelude::SessionConfig;
use tonic::Code;
use tonic::transport::Channel;

use super::error::ClusterError;
use super::in_process::InProcess;
use super::security::Security;
use super::settings::MESSAGE_BYTES_MAX;

/// How long a connection may take to be made.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it is tested whether the coordinator's machine is still there, and how long it may
/// take to show it.
const PING: Duration = Duration::from_secs(10);

/// Connects to the coordinator of a session that has `config`: that of this process, or the one at
/// `HOST:PORT`.
///
/// # Errors
/// As [`connect`].
pub(super) async fn connect_for(
    config: &SessionConfig,
    coordinator: &str,
) -> Result<SchedulerGrpcClient<Channel>, ClusterError> {
    match config.get_extension::<InProcess>() {
        Some(here) => Ok(client(here.channel())),
        None => connect(coordinator, &Security::of(config)).await,
    }
}

fn client(channel: Channel) -> SchedulerGrpcClient<Channel> {
    let limit = MESSAGE_BYTES_MAX as usize;
    SchedulerGrpcClient::new(channel)
        .max_encoding_message_size(limit)
        .max_decoding_message_size(limit)
}

/// Connects to the coordinator at `HOST:PORT`, and finds out whether it takes requests.
///
/// # Errors
/// As [`reach`].
pub(super) async fn connect(
    coordinator: &str,
    security: &Security,
) -> Result<SchedulerGrpcClient<Channel>, ClusterError> {
    reach(coordinator, security).await.map(client)
}

/// A channel to the coordinator at `HOST:PORT`, which takes requests.
///
/// # Errors
/// [`ClusterError::NoCoordinator`], [`ClusterError::Refused`].
pub(super) async fn reach(coordinator: &str, security: &Security) -> Result<Channel, ClusterError> {
    let failed =
        |problem: String| ClusterError::NoCoordinator { address: coordinator.to_owned(), problem };
    let endpoint = security.endpoint(coordinator).map_err(|error| failed(said(&error)))?;
    let endpoint = endpoint.connect_timeout(PATIENCE).http2_keep_alive_interval(PING);
    let endpoint = endpoint.keep_alive_timeout(PING).keep_alive_while_idle(true);
    let channel = endpoint.connect().await.map_err(|error| failed(said(&error)))?;
    let mut client = client(channel.clone());
    // There is no such job. Without a request nobody says that the token is wrong, nor, where one
    // side has TLS and the other has not, that neither understands the other.
    let nothing = GetJobStatusParams { job_id: String::new() };
    match client.get_job_status(nothing).await {
        Err(status) if status.code() == Code::Unauthenticated => {
            Err(ClusterError::Refused { address: coordinator.to_owned() })
        }
        Err(status) => Err(failed(said(&status))),
        Ok(_) => Ok(channel),
    }
}

/// What is at the bottom of an error: the transport alone says little.
fn said(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), said)
}

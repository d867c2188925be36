//! A connection to the coordinator.

use std::time::Duration;

use ballista_core::serde::protobuf::scheduler_grpc_client::SchedulerGrpcClient;
use tonic::transport::{Channel, Endpoint};

use super::error::ClusterError;
use super::settings::MESSAGE_BYTES_MAX;

/// How long a connection may take to be made.
const PATIENCE: Duration = Duration::from_secs(5);

/// Connects to the coordinator at `HOST:PORT`.
///
/// # Errors
/// [`ClusterError::NoCoordinator`].
pub(super) async fn connect(
    coordinator: &str,
) -> Result<SchedulerGrpcClient<Channel>, ClusterError> {
    let failed =
        |problem: String| ClusterError::NoCoordinator { address: coordinator.to_owned(), problem };
    let endpoint = Endpoint::from_shared(format!("http://{coordinator}"));
    let endpoint = endpoint.map_err(|error| failed(error.to_string()))?.connect_timeout(PATIENCE);
    let channel = endpoint.connect().await.map_err(|error| failed(said(&error)))?;
    let limit = MESSAGE_BYTES_MAX as usize;
    Ok(SchedulerGrpcClient::new(channel)
        .max_encoding_message_size(limit)
        .max_decoding_message_size(limit))
}

/// What is at the bottom of an error: the transport alone says little.
fn said(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), said)
}

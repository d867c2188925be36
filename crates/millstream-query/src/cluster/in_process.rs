//! The coordinator as its own process reaches it: without a port, a token or TLS.

use std::future::{Future, ready};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ballista_core::serde::protobuf::scheduler_grpc_server::SchedulerGrpcServer;
use ballista_core::serde::protobuf::{ExecutorHeartbeat, executor_status};
use ballista_scheduler::cluster::ClusterState;
use hyper_util::rt::TokioIo;
use millstream_store::env::Env;
use tokio::io::{DuplexStream, duplex};
use tokio::sync::mpsc::{Sender, channel};
use tokio_stream::wrappers::ReceiverStream;
use tonic::codegen::Service;
use tonic::codegen::http::Uri;
use tonic::transport::{Channel, Endpoint, Server};

use super::leases::Scheduler;
use super::settings::{MESSAGE_BYTES_MAX, NODE_TIMEOUT_S};

/// What is on its way between the two ends at most.
const PIPE_BYTES: usize = 1 << 20;

/// The coordinator of this process.
pub struct InProcess {
    env: Env,
    channel: Channel,
    nodes: Arc<dyn ClusterState>,
}

impl InProcess {
    /// `scheduler`, and the nodes that it knows.
    pub(super) fn new(env: &Env, scheduler: Scheduler, nodes: Arc<dyn ClusterState>) -> Self {
        let limit = MESSAGE_BYTES_MAX as usize;
        let service = SchedulerGrpcServer::new(scheduler)
            .max_decoding_message_size(limit)
            .max_encoding_message_size(limit);
        let (sender, connections) = channel(1);
        let serving = async move {
            let connections = ReceiverStream::new(connections);
            let served = Server::builder().add_service(service).serve_with_incoming(connections);
            if let Err(error) = served.await {
                tracing::error!(%error, "clients' queries do not run on nodes any more");
            }
        };
        drop(env.spawn("coordinator-here", serving));
        let endpoint = Endpoint::from_static("http://coordinator");
        let channel = endpoint.connect_with_connector_lazy(Pipes(sender));
        Self { env: env.clone(), channel, nodes }
    }

    /// A connection to it.
    pub(super) fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// Whether a node has been heard of lately.
    pub fn has_nodes(&self) -> bool {
        let now = u64::try_from(self.env.now_ms() / 1_000).unwrap_or_default();
        let is_there = |heard: &ExecutorHeartbeat| {
            let status = heard.status.as_ref().and_then(|status| status.status.as_ref());
            // Nodes that fetch their tasks have no status.
            let is_active = matches!(status, None | Some(executor_status::Status::Active(_)));
            is_active && heard.timestamp + NODE_TIMEOUT_S >= now
        };
        self.nodes.executor_heartbeats().values().any(is_there)
    }
}

/// Connects by pipes, of which the server gets the other ends.
#[derive(Clone)]
struct Pipes(Sender<io::Result<DuplexStream>>);

impl Service<Uri> for Pipes {
    type Response = TokioIo<DuplexStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let (here, there) = duplex(PIPE_BYTES);
        match self.0.try_send(Ok(there)) {
            Ok(()) => Box::pin(ready(Ok(TokioIo::new(here)))),
            Err(error) => Box::pin(ready(Err(io::Error::other(error.to_string())))),
        }
    }
}

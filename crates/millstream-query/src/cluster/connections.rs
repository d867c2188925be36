//! The connections over which a task reads what other stages have written: one to each node.
//!
//! By itself Ballista makes a connection for each file that it fetches, up to 64 at one time for
//! each partition that a task reads. A runner has few descriptors: a function of Lambda has 1,024
//! for everything. HTTP/2 carries all fetches from one node over one connection. They do not hold
//! each other up, since Ballista takes each answer whole before its rows are used.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use ballista_core::client::BallistaClient;
use ballista_core::client_pool::{BallistaClientPool, PooledClient};
use ballista_core::error::Result;
use ballista_core::extension::BallistaConfigGrpcEndpoint;
use ballista_core::utils::GrpcClientConfig;
use tokio::sync::OnceCell;

/// The host and the port of a node.
type Address = (String, u16);
type Connection = Arc<OnceCell<BallistaClient>>;

/// The connections of one task. They end with it.
#[derive(Clone, Default)]
pub(super) struct Connections(Arc<Mutex<HashMap<Address, Connection>>>);

impl Connections {
    fn at(&self, address: &Address) -> Connection {
        let mut connections = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(connections.entry(address.clone()).or_default())
    }

    /// The next fetch from there makes a new connection, if `broken` is still the one in use.
    fn forget(&self, address: &Address, broken: &Connection) {
        let mut connections = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if connections.get(address).is_some_and(|now| Arc::ptr_eq(now, broken)) {
            connections.remove(address);
        }
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections").finish_non_exhaustive()
    }
}

/// One use of a connection, which is forgotten unless the use ends well: Ballista then calls what
/// it was given to return the client, and drops it otherwise.
struct Use {
    connections: Connections,
    address: Address,
    connection: Connection,
    ended_well: bool,
}

impl Use {
    fn end_well(mut self) {
        self.ended_well = true;
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        if !self.ended_well {
            self.connections.forget(&self.address, &self.connection);
        }
    }
}

#[async_trait]
impl BallistaClientPool for Connections {
    async fn acquire(
        &self,
        host: &str,
        port: u16,
        config: &GrpcClientConfig,
        endpoint: Option<Arc<BallistaConfigGrpcEndpoint>>,
    ) -> Result<PooledClient> {
        let address = (host.to_owned(), port);
        let connection = self.at(&address);
        // Where connecting fails the cell stays empty, and the next fetch tries again.
        let connect = || connect(host, port, config, endpoint);
        let client = connection.get_or_try_init(connect).await?.clone();
        let connections = self.clone();
        let used = Use { connections, address, connection, ended_well: false };
        Ok(PooledClient::new(client, Box::new(|_| used.end_well())))
    }

    async fn evict_idle(&self) {
        // A task is short, and its connections end with it.
    }
}

async fn connect(
    host: &str,
    port: u16,
    config: &GrpcClientConfig,
    endpoint: Option<Arc<BallistaConfigGrpcEndpoint>>,
) -> Result<BallistaClient> {
    BallistaClient::try_new(
        host,
        port,
        config.max_message_size,
        config.use_tls,
        endpoint,
        config.io_retries_times,
        config.io_retry_wait_time_ms,
        config.initial_connection_window_size,
        config.initial_stream_window_size,
    )
    .await
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use ballista_core::config::BallistaConfig;

    use super::*;

    /// How many connections are made by fetches of which the first ends as `discard` says.
    async fn connections_made(discard: bool) -> usize {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        listener.set_nonblocking(true).expect("it is a socket");
        let port = listener.local_addr().expect("it is bound").port();
        let connections = Connections::default();
        let config = GrpcClientConfig::from(&BallistaConfig::default());
        let acquire = || connections.acquire("127.0.0.1", port, &config, None);
        let (first, second) = tokio::join!(acquire(), acquire());
        let (first, second) = (first.expect("it connects"), second.expect("it connects"));
        if discard {
            first.discard();
        } else {
            drop(first);
        }
        drop(second);
        acquire().await.expect("it connects").discard();
        std::iter::from_fn(|| listener.accept().ok()).count()
    }

    #[tokio::test]
    async fn fetches_share_one_connection_until_one_of_them_fails() {
        assert_eq!(connections_made(false).await, 1);
        assert_eq!(connections_made(true).await, 2);
    }
}

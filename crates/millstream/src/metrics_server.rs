//! The page that Prometheus reads, on a loopback address.
//!
//! It answers `GET /metrics` and nothing else, one request per connection: less than a dependency
//! on an HTTP server would cost to build. There is no authentication, hence loopback only.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusHandle;
use millstream_store::env::{Env, Task};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// How often values that no one has read are folded into summaries.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);
/// A request that has not ended after this many bytes, or this long, is not from Prometheus.
const REQUEST_BYTES_MAX: usize = 8 * 1024;
const REQUEST_PATIENCE: Duration = Duration::from_secs(5);
const CONNECTIONS_MAX: usize = 16;

/// Serves metrics until dropped.
pub struct MetricsServer {
    address: SocketAddr,
    tasks: [Task<()>; 2],
}

impl MetricsServer {
    /// Listens on `address`, which is a loopback address; port 0 takes any free port.
    pub async fn start(
        env: &Env,
        address: SocketAddr,
        metrics: PrometheusHandle,
    ) -> std::io::Result<Self> {
        assert!(address.ip().is_loopback(), "the command line refuses other addresses");
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let serving = env.spawn("metrics", accept(env.clone(), listener, metrics.clone()));
        let clock = env.clone();
        let upkeep = env.spawn("metrics-upkeep", async move {
            loop {
                clock.sleep(UPKEEP_INTERVAL).await;
                metrics.run_upkeep();
            }
        });
        Ok(Self { address, tasks: [serving, upkeep] })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

async fn accept(env: Env, listener: TcpListener, metrics: PrometheusHandle) {
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let permit = Arc::clone(&connections).acquire_owned().await;
        match listener.accept().await {
            Ok((stream, _)) => {
                let (clock, metrics) = (env.clone(), metrics.clone());
                env.spawn("metrics-request", async move {
                    tokio::select! {
                        answered = answer(stream, &metrics) => if let Err(error) = answered {
                            tracing::debug!(%error, "a reader of metrics has gone away");
                        },
                        () = clock.sleep(REQUEST_PATIENCE) => {}
                    }
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection to the metrics page failed");
                // Out of file descriptors, most likely: trying again at once would spin.
                env.sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

async fn answer(mut stream: TcpStream, metrics: &PrometheusHandle) -> std::io::Result<()> {
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let read = stream.read_buf(&mut request).await?;
        if read == 0 || request.len() > REQUEST_BYTES_MAX {
            return Ok(());
        }
    }
    let first = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let mut words = first.split(|byte| *byte == b' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
    let (status, body) = match (method, path) {
        (b"GET", b"/metrics") => ("200 OK", metrics.render()),
        (b"GET", _) => ("404 Not Found", "metrics are at /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", "only GET\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;
    use crate::watch::tests::progress;

    async fn request(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        response
    }

    #[tokio::test]
    async fn the_page_is_at_metrics() {
        let metrics = Metrics::new();
        metrics.listener("pii").published(&progress(0));
        let loopback = "127.0.0.1:0".parse().unwrap();
        let env = Env::real();
        let server = MetricsServer::start(&env, loopback, metrics.handle()).await.unwrap();
        let get = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let page = request(server.address(), get).await;
        assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
        assert!(page.contains("\nmillstream_rows_in_total{flow=\"pii\"} 7\n"), "{page}");
        let (head, body) = page.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{head}");
        let other = request(server.address(), "GET / HTTP/1.1\r\n\r\n").await;
        assert!(other.starts_with("HTTP/1.1 404 "), "{other}");
        let post = request(server.address(), "POST /metrics HTTP/1.1\r\n\r\n").await;
        assert!(post.starts_with("HTTP/1.1 405 "), "{post}");
    }

    #[tokio::test]
    async fn a_request_without_end_is_dropped() {
        let loopback = "127.0.0.1:0".parse().unwrap();
        let handle = Metrics::new().handle();
        let server = MetricsServer::start(&Env::real(), loopback, handle).await.unwrap();
        let response = request(server.address(), &"x".repeat(REQUEST_BYTES_MAX + 1)).await;
        assert_eq!(response, "");
    }
}

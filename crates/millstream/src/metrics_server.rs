//! The page that Prometheus reads, on a loopback address.
//!
//! It answers `GET /metrics` and nothing else, one request per connection: less than a dependency
//! on an HTTP server would cost to build. There is no authentication, hence loopback only. A page
//! in a browser on this machine could still ask by a name of its own that it lets point here (DNS
//! rebinding), so a request must name the server by address, as localhost, or by a name that it was
//! told.
//!
//! Nobody can keep others from being served: a connection has a limited time to ask and to take its
//! answer, and where there are too many the oldest that has not asked makes room for the next.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusHandle;
use millstream_store::env::{Env, Task};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// How often values that no one has read are folded into summaries.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);
/// A request whose head has not ended after this many bytes, or this long from the first to the
/// last of them, is not from Prometheus.
const REQUEST_BYTES_MAX: usize = 8 * 1024;
const REQUEST_PATIENCE: Duration = Duration::from_secs(2);
/// The time that the whole answer may take.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);
/// What a client sends after its request is read and dropped, up to here: with bytes unread, the
/// operating system would take the answer back.
const REST_BYTES_MAX: u64 = 256 * 1024;
const CONNECTIONS_MAX: usize = 32;
/// As much of a name as is said again.
const NAME_SHOWN_MAX: usize = 80;

/// Serves metrics until dropped.
pub struct MetricsServer {
    address: SocketAddr,
    tasks: [Task<()>; 2],
}

/// What is served, and to whom.
#[derive(Clone)]
struct Page {
    metrics: PrometheusHandle,
    /// Names that a request may ask for, besides addresses and localhost.
    names: Arc<[String]>,
}

impl MetricsServer {
    /// Listens on `address`, which is a loopback address; port 0 takes any free port. Requests may
    /// name the server by `names`, too.
    pub async fn start(
        env: &Env,
        address: SocketAddr,
        names: &[String],
        metrics: PrometheusHandle,
    ) -> std::io::Result<Self> {
        assert!(address.ip().is_loopback(), "the command line refuses other addresses");
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let page = Page { metrics: metrics.clone(), names: names.into() };
        let serving = env.spawn("metrics", accept(env.clone(), listener, page));
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

/// A connection that is served; dropping it ends that.
struct Connection {
    task: Task<()>,
    has_asked: Arc<AtomicBool>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(env: Env, listener: TcpListener, page: Page) {
    let mut connections: VecDeque<Connection> = VecDeque::new();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                connections.retain(|connection| !connection.task.is_finished());
                if connections.len() >= CONNECTIONS_MAX {
                    let silent =
                        |connection: &Connection| !connection.has_asked.load(Ordering::Relaxed);
                    let oldest = connections.iter().position(silent).unwrap_or(0);
                    connections.remove(oldest);
                }
                let has_asked = Arc::new(AtomicBool::new(false));
                let serving = serve(env.clone(), stream, page.clone(), Arc::clone(&has_asked));
                let task = env.spawn("metrics-request", serving);
                connections.push_back(Connection { task, has_asked });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection to the metrics page failed");
                // Out of file descriptors, most likely: trying again at once would spin.
                env.sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

async fn serve(env: Env, mut stream: TcpStream, page: Page, has_asked: Arc<AtomicBool>) {
    let asked = tokio::select! {
        asked = read_head(&mut stream) => asked,
        () = env.sleep(REQUEST_PATIENCE) => Ok(Head::Late),
    };
    has_asked.store(true, Ordering::Relaxed);
    let answered = async {
        let answer = match asked? {
            Head::Nothing => return Ok(()),
            Head::Late => Answer::error("408 Request Timeout", "the request came too slowly"),
            Head::TooLong => {
                Answer::error("431 Request Header Fields Too Large", "the request is too long")
            }
            Head::Whole(head) => page.answer(&head),
        };
        answer.write(&mut stream).await
    };
    tokio::select! {
        answered = answered => if let Err(error) = answered {
            tracing::debug!(%error, "a reader of metrics has gone away");
        },
        () = env.sleep(ANSWER_PATIENCE) => {}
    }
}

/// What has come of a request.
enum Head {
    /// The connection was closed.
    Nothing,
    /// It has not ended in time.
    Late,
    /// It has not ended.
    TooLong,
    /// Up to the empty line.
    Whole(Vec<u8>),
}

async fn read_head(stream: &mut TcpStream) -> std::io::Result<Head> {
    let mut request = Vec::new();
    loop {
        let from = request.len().saturating_sub(3);
        if stream.read_buf(&mut request).await? == 0 {
            return Ok(Head::Nothing);
        }
        if let Some(end) = request[from..].windows(4).position(|end| end == b"\r\n\r\n") {
            request.truncate(from + end);
            return Ok(Head::Whole(request));
        }
        if request.len() > REQUEST_BYTES_MAX {
            return Ok(Head::TooLong);
        }
    }
}

struct Answer {
    status: &'static str,
    body: String,
}

impl Answer {
    fn error(status: &'static str, body: impl Into<String>) -> Self {
        Self { status, body: body.into() + "\n" }
    }

    async fn write(self, stream: &mut TcpStream) -> std::io::Result<()> {
        let Self { status, body } = self;
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
             Content-Length: {}\r\nAllow: GET\r\nX-Content-Type-Options: nosniff\r\n\
             Connection: close\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body.as_bytes()).await?;
        stream.shutdown().await?;
        let mut rest = stream.take(REST_BYTES_MAX);
        tokio::io::copy(&mut rest, &mut tokio::io::sink()).await.map(|_| ())
    }
}

impl Page {
    fn answer(&self, head: &[u8]) -> Answer {
        let Some(request) = Request::parse(head) else {
            return Answer::error("400 Bad Request", "that is no HTTP request");
        };
        match request.host {
            Some(host) if !self.is_known(host) => {
                let name: String =
                    host.chars().filter(char::is_ascii_graphic).take(NAME_SHOWN_MAX).collect();
                return Answer::error(
                    "403 Forbidden",
                    format!(
                        "this page is served to those who ask for an IP address or localhost, and \
                         not for '{name}': ask for the address, or start with --metrics-host NAME"
                    ),
                );
            }
            None if request.needs_host => {
                return Answer::error("400 Bad Request", "the request has no Host");
            }
            _ => {}
        }
        match (request.method, request.path) {
            ("GET", "/metrics") => Answer { status: "200 OK", body: self.metrics.render() },
            ("GET", _) => Answer::error("404 Not Found", "metrics are at /metrics"),
            _ => Answer::error("405 Method Not Allowed", "only GET"),
        }
    }

    /// Whether a page from elsewhere cannot have given this name to the server's address.
    fn is_known(&self, host: &str) -> bool {
        let name = match host.strip_prefix('[') {
            Some(rest) => {
                let Some((address, rest)) = rest.split_once(']') else { return false };
                return address.parse::<Ipv6Addr>().is_ok() && is_port(rest);
            }
            None => host.split_once(':').map_or(host, |(name, _)| name),
        };
        let names = self.names.iter().map(String::as_str);
        let mut names = names.chain(["localhost"]);
        is_port(&host[name.len()..])
            && (name.parse::<IpAddr>().is_ok()
                || names.any(|known| known.eq_ignore_ascii_case(name)))
    }
}

/// Whether `text` is nothing, or a colon and a port.
fn is_port(text: &str) -> bool {
    text.is_empty() || text.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok())
}

/// A request's head, as far as it matters.
struct Request<'a> {
    method: &'a str,
    /// Without what follows a question mark.
    path: &'a str,
    /// Whom it is for; with a port, if there was one.
    host: Option<&'a str>,
    /// From HTTP/1.1 on it must say that.
    needs_host: bool,
}

impl<'a> Request<'a> {
    fn parse(head: &'a [u8]) -> Option<Self> {
        let text = std::str::from_utf8(head).ok()?;
        let mut lines = text.split("\r\n");
        let mut words = lines.next()?.split(' ');
        let (method, target, version) = (words.next()?, words.next()?, words.next()?);
        if words.next().is_some() || !version.starts_with("HTTP/1.") {
            return None;
        }
        let mut hosts = lines.filter_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.trim().eq_ignore_ascii_case("host").then_some(value.trim())
        });
        let header = hosts.next();
        if hosts.next().is_some() {
            return None;
        }
        // A target with a host overrides the header.
        let (host, path) = match target.strip_prefix("http://") {
            Some(rest) => {
                let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                (Some(host), path)
            }
            None => (header, target),
        };
        let path = path.split('?').next().unwrap_or_default();
        Some(Self { method, path, host, needs_host: version != "HTTP/1.0" })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::metrics::Metrics;
    use crate::watch::tests::progress;

    /// Far below what a connection may take, and generous for a busy machine.
    const AT_ONCE: Duration = Duration::from_millis(1_500);

    async fn server(names: &[&str]) -> MetricsServer {
        let metrics = Metrics::new();
        metrics.listener("pii").published(&progress(0));
        let loopback = "127.0.0.1:0".parse().unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        MetricsServer::start(&Env::real(), loopback, &names, metrics.handle()).await.unwrap()
    }

    async fn request(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        response
    }

    async fn asked_for(server: &MetricsServer, host: &str) -> String {
        request(server.address(), &format!("GET /metrics HTTP/1.1\r\nhOsT: {host}\r\n\r\n")).await
    }

    #[tokio::test]
    async fn the_page_is_at_metrics() {
        let server = server(&[]).await;
        let page = asked_for(&server, "localhost").await;
        assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
        assert!(page.contains("\nmillstream_rows_in_total{flow=\"pii\"} 7\n"), "{page}");
        let (head, body) = page.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{head}");
        for (line, status) in [
            ("GET / HTTP/1.1\r\nHost: localhost", 404),
            ("GET /metrics/x HTTP/1.0", 404),
            ("GET /metrics?a=b HTTP/1.0", 200),
            ("GET http://localhost:9100/metrics HTTP/1.1\r\nHost: elsewhere", 200),
            ("POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2", 405),
            ("HEAD /metrics HTTP/1.1\r\nHost: localhost", 405),
            ("GET /metrics HTTP/1.1", 400),
            ("GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: elsewhere", 400),
            ("GET /metrics", 400),
            ("GET /metrics HTTP/2.0", 400),
            ("\0", 400),
        ] {
            let answer = request(server.address(), &format!("{line}\r\n\r\n{{}}")).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{line}: {answer}");
        }
    }

    #[tokio::test]
    async fn a_name_that_anyone_can_give_to_this_address_is_refused() {
        let server = server(&["metrics.example"]).await;
        for known in [
            "127.0.0.1",
            "127.0.0.1:9100",
            "[::1]:9100",
            "[::1]",
            "LOCALHOST:1",
            "metrics.example",
            "Metrics.Example:9100",
        ] {
            let page = asked_for(&server, known).await;
            assert!(page.starts_with("HTTP/1.1 200 "), "{known}: {page}");
        }
        for unknown in [
            "rebound.example",
            "rebound.example:9100",
            "127.0.0.1.rebound.example",
            "localhost.rebound.example",
            "localhost:80@rebound.example",
            "[::1].rebound.example",
            "[rebound.example]",
            "127.0.0.1:",
            "",
        ] {
            let page = asked_for(&server, unknown).await;
            assert!(page.starts_with("HTTP/1.1 403 "), "{unknown}: {page}");
            assert!(page.contains("--metrics-host"), "{page}");
            assert!(!page.contains("millstream_rows"), "{page}");
        }
        let target = "GET http://rebound.example/metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let page = request(server.address(), target).await;
        assert!(page.starts_with("HTTP/1.1 403 "), "{page}");
    }

    #[tokio::test]
    #[allow(clippy::disallowed_methods)]
    async fn connections_that_ask_nothing_keep_nobody_waiting() {
        let server = server(&[]).await;
        let mut idle = Vec::new();
        for count in 0..CONNECTIONS_MAX * 4 {
            let mut stream = TcpStream::connect(server.address()).await.unwrap();
            if count % 2 == 0 {
                stream.write_all(b"GET /metrics HTTP/1.1\r\nHost").await.unwrap();
            }
            idle.push(stream);
        }
        let began = Instant::now();
        let page = asked_for(&server, "localhost").await;
        assert!(page.starts_with("HTTP/1.1 200 "), "{page}");
        assert!(began.elapsed() < AT_ONCE, "it took {:?}", began.elapsed());
    }

    #[tokio::test]
    async fn a_request_that_comes_byte_by_byte_is_given_up() {
        let server = server(&[]).await;
        let (mut read, mut write) =
            TcpStream::connect(server.address()).await.unwrap().into_split();
        let env = Env::real();
        let clock = env.clone();
        let drip = env.spawn("drip", async move {
            while write.write_all(b"x").await.is_ok() {
                clock.sleep(Duration::from_millis(100)).await;
            }
        });
        let mut answer = String::new();
        let read = read.read_to_string(&mut answer);
        tokio::select! {
            read = read => assert!(read.is_ok() || !answer.is_empty()),
            () = env.sleep(REQUEST_PATIENCE + ANSWER_PATIENCE * 2) => panic!("it is still open"),
        }
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
        drip.abort();
    }

    #[tokio::test]
    async fn a_request_without_end_is_refused() {
        let server = server(&[]).await;
        let response = request(server.address(), &"x".repeat(REQUEST_BYTES_MAX * 4)).await;
        assert!(response.starts_with("HTTP/1.1 431 "), "{response}");
    }
}

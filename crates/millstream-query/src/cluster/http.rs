//! One request over HTTP/1.1: of a node to a runner, and of a runner to a node.
//!
//! Each request has a connection of its own: a runner that was killed is noticed as a connection
//! that ends, and a load balancer in front of several runners spreads tasks evenly.

use std::io;
use std::net::Ipv6Addr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST};
use hyper::{HeaderMap, Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use millstream_store::env::{Env, Task};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::security::Security;

/// How long a connection may take to be made.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
/// How much of a text that says what is wrong is read.
const PROBLEM_BYTES_MAX: usize = 64 << 10;

/// `host` as it stands in URLs and in front of a port: an address of IPv6 has brackets.
pub(super) fn url_host(host: &str) -> String {
    match host.parse::<Ipv6Addr>() {
        Ok(address) => format!("[{address}]"),
        Err(_) => host.to_owned(),
    }
}

/// What is asked.
pub(super) struct Asked<'a> {
    /// `HOST:PORT`.
    pub(super) address: &'a str,
    pub(super) method: Method,
    pub(super) path: &'a str,
    /// How the other side is connected to; `None` for one that knows no TLS.
    pub(super) security: Option<&'a Security>,
    /// What opens the other side: the value of the header `authorization`.
    pub(super) authorization: Option<String>,
    /// The length of the body, in bytes.
    pub(super) length: u64,
    pub(super) body: BoxStream<'static, io::Result<Bytes>>,
}

impl<'a> Asked<'a> {
    /// A request with `body`, which is in memory.
    pub(super) fn post(address: &'a str, path: &'a str, body: Bytes) -> Self {
        let (length, method) = (body.len() as u64, Method::POST);
        let body = stream::once(async { Ok(body) }).boxed();
        let (security, authorization) = (None, None);
        Self { address, method, path, security, authorization, length, body }
    }
}

/// An answer, whose body is still to come.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    body: Incoming,
    connection: Task<()>,
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Answer {
    /// The next bytes of the body; `None` at its end.
    pub(super) async fn chunk(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            if let Ok(bytes) = frame.map_err(io::Error::other)?.into_data() {
                return Ok(Some(bytes));
            }
        }
    }

    /// The body, which has to be no longer than `bytes_max`.
    pub(super) async fn whole(&mut self, bytes_max: usize) -> io::Result<Bytes> {
        let mut whole = BytesMut::new();
        while let Some(chunk) = self.chunk().await? {
            if whole.len() + chunk.len() > bytes_max {
                let problem = format!("the answer has more than {bytes_max} bytes");
                return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
            }
            whole.extend_from_slice(&chunk);
        }
        Ok(whole.freeze())
    }

    /// What the body says is wrong.
    pub(super) async fn problem(&mut self) -> String {
        match self.whole(PROBLEM_BYTES_MAX).await {
            Ok(text) => String::from_utf8_lossy(&text).into_owned(),
            Err(error) => error.to_string(),
        }
    }
}

/// Sends a request, and waits until its answer begins.
///
/// # Errors
/// All are of the kind after which the same request may be sent elsewhere. A connection that
/// cannot be made in some seconds is [`io::ErrorKind::TimedOut`].
pub(super) async fn ask(env: &Env, asked: Asked<'_>) -> io::Result<Answer> {
    let address = asked.address;
    let slow = |_| {
        let problem = format!("{address} does not answer");
        io::Error::new(io::ErrorKind::TimedOut, problem)
    };
    let stream = timeout(CONNECT_PATIENCE, TcpStream::connect(address)).await.map_err(slow)??;
    stream.set_nodelay(true)?;
    match asked.security.and_then(Security::tls) {
        None => exchange(env, stream, asked).await,
        Some(tls) => {
            let connecting = timeout(CONNECT_PATIENCE, tls.connect(address, stream));
            exchange(env, connecting.await.map_err(slow)??, asked).await
        }
    }
}

async fn exchange(
    env: &Env,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    asked: Asked<'_>,
) -> io::Result<Answer> {
    let Asked { address, method, path, authorization, length, body, .. } = asked;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    // What goes wrong with it is the request's error, too.
    let connection = Connection(Some(env.spawn("http-connection", async move {
        let _ = connection.await;
    })));
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header(HOST, address)
        .header(CONTENT_TYPE, "application/octet-stream");
    if length > 0 {
        request = request.header(CONTENT_LENGTH, length);
    }
    if let Some(authorization) = authorization {
        request = request.header(AUTHORIZATION, authorization);
    }
    let body = StreamBody::new(body.map(|bytes| bytes.map(Frame::data)));
    let request = request.body(body).map_err(io::Error::other)?;
    let response = sender.send_request(request).await.map_err(io::Error::other)?;
    let (parts, body) = response.into_parts();
    let (status, headers) = (parts.status, parts.headers);
    Ok(Answer { status, headers, body, connection: connection.kept() })
}

/// A connection that ends with the request, unless it is kept for the answer.
struct Connection(Option<Task<()>>);

impl Connection {
    fn kept(mut self) -> Task<()> {
        self.0.take().expect("it is kept once")
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_ipv6_has_brackets_once() {
        for (host, shown) in [
            ("::1", "[::1]"),
            ("[::1]", "[::1]"),
            ("127.0.0.1", "127.0.0.1"),
            ("node.example.org", "node.example.org"),
        ] {
            assert_eq!(url_host(host), shown);
        }
    }
}

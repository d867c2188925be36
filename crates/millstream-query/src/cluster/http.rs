//! One request to a runner, over HTTP/1.1.
//!
//! Each request has a connection of its own: a runner that was killed is noticed as a connection
//! that ends, and a load balancer in front of several runners spreads tasks evenly.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use millstream_store::env::Env;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::security::Security;

/// How long a connection may take to be made.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
/// The largest answer that is taken.
const ANSWER_BYTES_MAX: usize = 4 << 30;

/// What a runner has answered.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Bytes,
}

/// Sends `body` to the runner at `address`, and waits for its answer for `patience` at most.
///
/// # Errors
/// All are of the kind after which the same request may be sent elsewhere.
pub(super) async fn post(
    env: &Env,
    address: &str,
    security: &Security,
    body: Bytes,
    patience: Duration,
) -> io::Result<Answer> {
    let slow = |what: &str| {
        io::Error::new(io::ErrorKind::TimedOut, format!("the runner at {address} {what}"))
    };
    let connecting = timeout(CONNECT_PATIENCE, TcpStream::connect(address));
    let stream = connecting.await.map_err(|_| slow("does not answer"))??;
    stream.set_nodelay(true)?;
    let authorization = security.authorization();
    let answering = async {
        let Some(tls) = security.tls() else {
            return exchange(env, stream, address, authorization, body).await;
        };
        let connecting = timeout(CONNECT_PATIENCE, tls.connect(address, stream));
        let stream = connecting.await.map_err(|_| slow("does not answer"))??;
        exchange(env, stream, address, authorization, body).await
    };
    timeout(patience, answering).await.map_err(|_| slow("takes too long"))?
}

async fn exchange(
    env: &Env,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    address: &str,
    authorization: Option<String>,
    body: Bytes,
) -> io::Result<Answer> {
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    // It ends with the sender; what goes wrong with it is the request's error, too.
    let connection = env.spawn("runner-connection", async move {
        let _ = connection.await;
    });
    let mut request = Request::post("/task")
        .header(HOST, address)
        .header(CONTENT_TYPE, "application/octet-stream");
    if let Some(authorization) = authorization {
        request = request.header(AUTHORIZATION, authorization);
    }
    let request = request.body(Full::new(body)).map_err(io::Error::other)?;
    let response = sender.send_request(request).await.map_err(io::Error::other)?;
    let status = response.status();
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
    let body = body.map_err(io::Error::other)?.to_bytes();
    connection.abort();
    Ok(Answer { status, body })
}

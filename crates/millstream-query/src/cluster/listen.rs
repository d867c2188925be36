//! HTTP/1.1 at a port of a runner or of a node: few connections are open at one time, and others
//! wait until one has ended.
//!
//! A runner has few descriptors to spare, and several nodes may ask it for more than it has room
//! for, each request over a connection of its own. So a connection cannot keep its place without
//! doing anything: the handshake of TLS and the head of the request have a time limit, and the
//! connection ends with its answer. How long a body may take is up to whoever reads it.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::serve::Listener;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use millstream_store::env::Env;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

/// How long a handshake may take, and how long the head of a request.
const PATIENCE: Duration = Duration::from_secs(10);

/// Connections at one time besides those that are expected: requests that are refused, for example.
pub(super) const SPARE: usize = 8;

type Failed = Box<dyn std::error::Error + Send + Sync>;

/// Answers requests at `listener` by `routes`, by TLS if there is an acceptor, over so many
/// connections at one time. Goes on until it is dropped; open connections then come to their end.
pub(super) async fn serve(
    env: &Env,
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    routes: Router,
    at_once: usize,
) {
    serve_within(PATIENCE, env, listener, tls, routes, at_once).await;
}

async fn serve_within(
    patience: Duration,
    env: &Env,
    mut listener: TcpListener,
    tls: Option<TlsAcceptor>,
    routes: Router,
    at_once: usize,
) {
    let room = Arc::new(Semaphore::new(at_once));
    // Nobody closes it.
    while let Ok(place) = Arc::clone(&room).acquire_owned().await {
        // It waits where no more files can be open.
        let (stream, address) = Listener::accept(&mut listener).await;
        let (tls, routes) = (tls.clone(), routes.clone());
        let answering = async move {
            if let Err(error) = answer(patience, stream, tls, routes).await {
                tracing::debug!(%address, %error, "a connection ends early");
            }
            drop(place);
        };
        drop(env.spawn("http-answer", answering));
    }
}

async fn answer(
    patience: Duration,
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    routes: Router,
) -> Result<(), Failed> {
    match tls {
        None => exchange(patience, stream, routes).await,
        Some(tls) => {
            let stream = timeout(patience, tls.accept(stream)).await??;
            exchange(patience, stream, routes).await
        }
    }
}

async fn exchange(
    patience: Duration,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    routes: Router,
) -> Result<(), Failed> {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(patience)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes));
    Ok(connection.await?)
}

#[cfg(test)]
mod tests {
    use std::io;

    use axum::routing::get;
    use hyper::header::CONNECTION;
    use hyper::{Method, StatusCode};
    use millstream_store::env::Task;
    use millstream_testkit::certificates::Authority;
    use tempfile::TempDir;

    use super::*;
    use crate::cluster::http::{self, Asked};
    use crate::cluster::security::Security;
    use crate::cluster::tls::TlsFiles;

    const LONG: Duration = Duration::from_secs(60);
    const MOMENT: Duration = Duration::from_millis(200);
    /// Enough for a handshake on a busy machine.
    const SOME_SECONDS: Duration = Duration::from_secs(5);

    /// No TLS, and TLS with the directory of its files.
    fn securities() -> (TempDir, [Security; 2]) {
        let directory = tempfile::tempdir().expect("a directory");
        let authority = Authority::new(&directory.path().join("authority")).expect("certificates");
        let files = authority.issue("IP:127.0.0.1").expect("certificates");
        let (cert, key, ca) = (Some(files.cert), Some(files.key), Some(files.ca));
        let tls = Security::new(None, &TlsFiles { cert, key, ca }).expect("the files are right");
        (directory, [Security::default(), tls])
    }

    /// A server with so many places, and its address.
    async fn server(
        env: &Env,
        security: &Security,
        patience: Duration,
        at_once: usize,
    ) -> (String, Task<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let tls = security.tls().map(|tls| tls.acceptor()).transpose().expect("a certificate");
        let (clock, routes) = (env.clone(), Router::new().route("/", get(|| async { "ok" })));
        let serving = async move {
            serve_within(patience, &clock, listener, tls, routes, at_once).await;
        };
        (address, env.spawn("server", serving))
    }

    /// Something that keeps a connection open over which nothing is asked.
    async fn silent(security: &Security, address: &str) -> Box<dyn Send> {
        let stream = TcpStream::connect(address).await.expect("it listens");
        match security.tls() {
            None => Box::new(stream),
            Some(tls) => Box::new(tls.connect(address, stream).await.expect("it has TLS")),
        }
    }

    async fn ask(env: &Env, security: &Security, address: &str) -> io::Result<http::Answer> {
        let asked = Asked::post(address, "/", bytes::Bytes::new());
        http::ask(env, Asked { method: Method::GET, security: Some(security), ..asked }).await
    }

    #[tokio::test]
    async fn another_connection_waits_until_one_has_ended() {
        let (env, (_directory, securities)) = (Env::real(), securities());
        for security in &securities {
            let (address, serving) = server(&env, security, LONG, 2).await;
            let first = silent(security, &address).await;
            let _second = silent(security, &address).await;
            let mut asking = Box::pin(ask(&env, security, &address));
            assert!(timeout(MOMENT, &mut asking).await.is_err(), "there is no room");
            drop(first);
            let answer = asking.await.expect("there is room");
            assert_eq!(answer.status, StatusCode::OK);
            assert_eq!(answer.headers[CONNECTION], "close");
            serving.abort();
        }
    }

    #[tokio::test]
    async fn a_connection_over_which_nothing_comes_loses_its_place() {
        let (env, (_directory, securities)) = (Env::real(), securities());
        for security in &securities {
            let (address, serving) = server(&env, security, SOME_SECONDS, 2).await;
            // With TLS one of them does not even shake hands.
            let _without_tls = silent(&Security::default(), &address).await;
            let _silent = silent(security, &address).await;
            let answer = timeout(LONG, ask(&env, security, &address)).await;
            let answer = answer.expect("they lose their places").expect("an answer");
            assert_eq!(answer.status, StatusCode::OK);
            serving.abort();
        }
    }
}

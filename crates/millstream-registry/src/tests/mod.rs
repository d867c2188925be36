//! A registry that tests play, and clients of it.

mod answers;
mod cached;
mod hostile;
mod references;
mod secrets;
mod tls;
mod waiting;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::response::Response;
use millstream_store::env::{Clock, Env, Rng};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::{Auth, Draft, Patience, Registry, SchemaKind, Settings, Tls};

/// Enough for whatever a busy machine does.
const LONG: Duration = Duration::from_secs(300);

/// A request, as the server sees it.
#[derive(Clone, Debug)]
struct Seen {
    /// `GET /path?query`.
    line: String,
    authorization: Option<String>,
    media_type: Option<String>,
    body: String,
    /// How many there were before.
    number: usize,
}

/// What the server says.
struct Said {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
    after: Duration,
}

impl Said {
    fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: Vec::new(), body: body.into(), after: Duration::ZERO }
    }

    fn json(body: &Value) -> Self {
        Self::new(200, body.to_string())
    }

    fn error(status: u16, code: i64, message: &str) -> Self {
        Self::new(status, json!({"error_code": code, "message": message}).to_string())
    }

    fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    fn after(self, after: Duration) -> Self {
        Self { after, ..self }
    }
}

/// A server on loopback, and what it was asked.
struct Server {
    url: String,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Server {
    /// The lines of all requests.
    fn lines(&self) -> Vec<String> {
        self.seen.lock().iter().map(|seen| seen.line.clone()).collect()
    }

    fn count(&self) -> usize {
        self.seen.lock().len()
    }

    fn client(&self) -> Registry {
        client(&[&self.url], &Env::real())
    }
}

/// A request whose body was not read yet.
fn seen_in(request: &Request) -> Seen {
    let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
    Seen {
        line: format!("{} {}", request.method(), request.uri()),
        authorization: header(AUTHORIZATION).map(str::to_owned),
        media_type: header(CONTENT_TYPE).map(str::to_owned),
        body: String::new(),
        number: 0,
    }
}

/// A server that says what `answer` makes of each request.
fn serve(answer: impl Fn(&Seen) -> Said + Send + Sync + 'static) -> Server {
    let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
    let (answer, notes) = (Arc::new(answer), Arc::clone(&seen));
    let router = Router::new().fallback(move |request: Request| {
        let (answer, notes) = (Arc::clone(&answer), Arc::clone(&notes));
        async move {
            let mut seen = seen_in(&request);
            let body = to_bytes(request.into_body(), 1 << 20).await.expect("it is small");
            seen.body = String::from_utf8(body.to_vec()).expect("it is text");
            {
                let mut notes = notes.lock();
                seen.number = notes.len();
                notes.push(seen.clone());
            }
            let said = answer(&seen);
            Env::real().sleep(said.after).await;
            let mut response = Response::builder().status(said.status);
            for (name, value) in said.headers {
                response = response.header(name, value);
            }
            response.body(Body::from(said.body)).expect("it is an answer")
        }
    });
    let env = Env::real();
    let url = env.block_on_io(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        env.spawn("server", async move { axum::serve(listener, router).await });
        format!("http://{address}")
    });
    Server { url, seen }
}

/// A URL where nobody listens.
fn nowhere() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    format!("http://{}", listener.local_addr().expect("it is bound"))
}

fn settings(urls: &[&str]) -> Settings {
    let urls = urls.iter().map(|url| (*url).to_owned()).collect();
    Settings { urls, auth: Auth::None, tls: Tls::default() }
}

fn client(urls: &[&str], env: &Env) -> Registry {
    Registry::new(&settings(urls), env).expect("the settings are good")
}

fn patience() -> Patience<'static> {
    Patience::new(LONG)
}

fn once() -> Patience<'static> {
    Patience::new(Duration::ZERO)
}

fn avro(text: &str) -> Draft<'_> {
    Draft { kind: SchemaKind::Avro, text, references: &[] }
}

/// The answer of a registry that has one schema for all ids.
fn string_schema() -> Said {
    Said::json(&json!({"schema": "\"string\""}))
}

/// Waits on this thread.
fn pause(env: &Env, duration: Duration) {
    env.block_on_io(async { env.sleep(duration).await });
}

/// An environment whose time passes faster than the real one.
fn hasty(factor: u32) -> Env {
    let clock = Arc::new(HastyClock { real: Env::real(), factor });
    Env::new(clock.clone(), clock)
}

struct HastyClock {
    real: Env,
    factor: u32,
}

impl Clock for HastyClock {
    fn now_us(&self) -> i64 {
        self.real.now_us()
    }

    fn monotonic(&self) -> Duration {
        self.real.monotonic() * self.factor
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.real.sleep(duration / self.factor)
    }
}

impl Rng for HastyClock {
    fn next_u64(&self) -> u64 {
        self.real.random_u64()
    }
}

#[test]
fn a_record_says_the_id_of_its_schema() {
    use crate::frame::{NotFramed, id, of};
    assert_eq!(id(b"\0\x01\x02\x03\x04ab"), Ok((0x0102_0304, &b"ab"[..])));
    assert_eq!(id(&of(u32::MAX)), Ok((u32::MAX, &b""[..])));
    for length in 0..5 {
        assert_eq!(id(&[0; 5][..length]), Err(NotFramed::Short { length }));
    }
    assert_eq!(id(b"{\"a\":1}"), Err(NotFramed::Magic { byte: b'{' }));
    assert_eq!(id(&[1; 17]), Err(NotFramed::Guid));
}

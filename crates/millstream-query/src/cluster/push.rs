//! Answers that are too long for the way back, pushed to the node over HTTP.
//!
//! For each attempt of a task the node makes a key, under which it takes in one answer ([`Inbox`]).
//! What arrives goes to files at once. When the attempt is over, whatever has come of it, the key
//! opens nothing any more and what is not used is removed. The runner's side is [`push`].

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures::StreamExt as _;
use futures::future::{Either, select};
use millstream_store::env::{Env, Task};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::timeout;

use super::answer::{Received, Receiver, Written};
use super::error::ClusterError;
use super::http::{self, Asked};
use super::listen;
use super::security::Security;
use super::task::PushTarget;

/// How long the other side may do nothing.
pub const STALL_PATIENCE: Duration = Duration::from_secs(30);
/// Where answers are taken in.
const PATH: &str = "/answer";

/// Takes in the answers of a node's tasks.
#[derive(Default)]
pub struct Inbox {
    /// By its key each answer that is waited for.
    slots: Mutex<HashMap<String, Arc<Slot>>>,
}

/// One answer that is waited for.
struct Slot {
    state: Mutex<Arrival>,
    /// Ends what arrives when nobody waits for it any more.
    over: watch::Sender<bool>,
}

/// What has become of an answer that is waited for.
enum Arrival {
    /// Nothing has come, and this is to take it in.
    Expected(Box<Receiver>),
    /// Its bytes are on their way.
    Arriving,
    /// It is here, or could not be taken in.
    Done(io::Result<Received>),
}

/// The wait for an answer, which is over when this is dropped.
pub struct Waiting {
    inbox: Arc<Inbox>,
    key: String,
    slot: Arc<Slot>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.inbox.slots.lock().remove(&self.key);
        self.slot.over.send_replace(true);
    }
}

impl Waiting {
    /// What has arrived.
    ///
    /// # Errors
    /// Nothing has, or not all of it.
    pub fn arrived(&self) -> io::Result<Received> {
        match std::mem::replace(&mut *self.slot.state.lock(), Arrival::Arriving) {
            Arrival::Done(arrived) => arrived,
            Arrival::Expected(_) | Arrival::Arriving => {
                let problem = "the runner says that it has pushed its answer, but none is here";
                Err(io::Error::new(io::ErrorKind::InvalidData, problem))
            }
        }
    }

    /// Why the node could not take the answer in, if that was so.
    pub fn failure(&self) -> Option<io::Error> {
        let mut state = self.slot.state.lock();
        match std::mem::replace(&mut *state, Arrival::Arriving) {
            Arrival::Done(Err(error)) => Some(error),
            other => {
                *state = other;
                None
            }
        }
    }
}

impl Inbox {
    /// Waits for an answer under `key`, to be taken in by `receiver`.
    pub fn wait(self: &Arc<Self>, key: &str, receiver: Receiver) -> Waiting {
        let state = Mutex::new(Arrival::Expected(Box::new(receiver)));
        let slot = Arc::new(Slot { state, over: watch::Sender::new(false) });
        self.slots.lock().insert(key.to_owned(), Arc::clone(&slot));
        Waiting { inbox: Arc::clone(self), key: key.to_owned(), slot }
    }

    /// The answer that is waited for under the key in `headers`, which opens nothing from now on.
    fn open(&self, headers: &HeaderMap) -> Option<Arc<Slot>> {
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok())?;
        self.slots.lock().remove(given.strip_prefix("Bearer ")?)
    }
}

/// Takes in answers at `listener`, of so many tasks at one time.
///
/// # Errors
/// [`ClusterError::TlsHalf`]: the node has no certificate, but TLS.
pub fn serve(
    env: &Env,
    listener: TcpListener,
    inbox: Arc<Inbox>,
    security: &Security,
    tasks: usize,
) -> Result<Task<()>, ClusterError> {
    let routes = Router::new()
        .route(PATH, post(take_in))
        // An answer may have any length: it is not kept in memory.
        .layer(DefaultBodyLimit::disable())
        .with_state(inbox);
    let tls = security.tls().map(|tls| tls.acceptor()).transpose()?;
    // A task may be at two runners.
    let (clock, at_once) = (env.clone(), 2 * tasks + listen::SPARE);
    Ok(env.spawn("node-inbox", async move {
        listen::serve(&clock, listener, tls, routes, at_once).await;
    }))
}

async fn take_in(State(inbox): State<Arc<Inbox>>, headers: HeaderMap, body: Body) -> Response {
    let Some(slot) = inbox.open(&headers) else {
        return (StatusCode::UNAUTHORIZED, "nobody waits for this answer").into_response();
    };
    let mut over = slot.over.subscribe();
    let before = std::mem::replace(&mut *slot.state.lock(), Arrival::Arriving);
    let Arrival::Expected(receiver) = before else {
        return (StatusCode::CONFLICT, "the answer is here already").into_response();
    };
    let arriving = Box::pin(arrive(*receiver, body));
    let over = Box::pin(over.wait_for(|over| *over));
    let (arrived, answer) = match select(arriving, over).await {
        Either::Left((Ok(received), _)) => (Ok(received), StatusCode::OK.into_response()),
        Either::Left((Err(error), _)) => {
            let answer = (status(error.kind()), error.to_string()).into_response();
            (Err(error), answer)
        }
        Either::Right(_) => {
            return (StatusCode::GONE, "nobody waits for this answer any more").into_response();
        }
    };
    *slot.state.lock() = Arrival::Done(arrived);
    answer
}

fn status(kind: io::ErrorKind) -> StatusCode {
    match kind {
        io::ErrorKind::InvalidData => StatusCode::BAD_REQUEST,
        io::ErrorKind::TimedOut => StatusCode::REQUEST_TIMEOUT,
        io::ErrorKind::StorageFull => StatusCode::INSUFFICIENT_STORAGE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

async fn arrive(mut receiver: Receiver, body: Body) -> io::Result<Received> {
    let mut body = body.into_data_stream();
    loop {
        let next = timeout(STALL_PATIENCE, body.next()).await.map_err(|_| {
            io::Error::new(io::ErrorKind::TimedOut, "the answer does not go on arriving")
        })?;
        match next {
            Some(Ok(bytes)) => receiver.take(bytes).await?,
            Some(Err(error)) => {
                return Err(io::Error::new(io::ErrorKind::ConnectionReset, error));
            }
            None => return receiver.finish(),
        }
    }
}

/// Sends `written` to a node, which may do nothing for `patience`. The key takes the place of the
/// cluster's token.
///
/// # Errors
/// The node cannot be reached, stops taking bytes, or does not want them.
pub async fn push(
    env: &Env,
    target: &PushTarget,
    written: &Arc<Written>,
    security: &Security,
    patience: Duration,
) -> io::Result<()> {
    let (sent, mut progress) = watch::channel(());
    let body = written.pieces().inspect(move |_| {
        sent.send_replace(());
    });
    let asked = Asked {
        security: Some(security),
        authorization: Some(format!("Bearer {}", target.key)),
        length: written.bytes(),
        body: body.boxed(),
        ..Asked::post(&target.address, PATH, bytes::Bytes::new())
    };
    let mut pushing = Box::pin(async {
        let mut answer = http::ask(env, asked).await?;
        match answer.status {
            StatusCode::OK => Ok(()),
            status => {
                let problem = answer.problem().await;
                Err(io::Error::other(format!("the node answers {status}: {problem}")))
            }
        }
    });
    let stalled = || {
        let problem = format!("the node at {} takes nothing any more", target.address);
        io::Error::new(io::ErrorKind::TimedOut, problem)
    };
    loop {
        // Each piece gives the node as long again; so does the end of the last one.
        let moved = Box::pin(timeout(patience, async {
            if progress.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }));
        match select(pushing, moved).await {
            Either::Left((pushed, _)) => return pushed,
            Either::Right((Ok(()), unfinished)) => pushing = unfinished,
            Either::Right((Err(_), _)) => return Err(stalled()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::answer::samples::{expect, files_in, receiver, written};

    const PATIENCE: Duration = Duration::from_secs(20);

    async fn inbox(env: &Env) -> (Arc<Inbox>, Task<()>, PushTarget) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let inbox = Arc::new(Inbox::default());
        let serving =
            serve(env, listener, Arc::clone(&inbox), &Security::default(), 1).expect("no TLS");
        (inbox, serving, PushTarget { address, key: env.secret() })
    }

    /// A server that refuses reads no body: the client has its answer, or sees before that the
    /// connection is closed.
    fn is_refusal(error: &io::Error) -> bool {
        let text = error.to_string();
        text.contains("401") || text.contains("writing a body")
    }

    #[tokio::test]
    async fn a_key_takes_in_one_answer() {
        let env = Env::real();
        let (inbox, _serving, target) = inbox(&env).await;
        let (written, files) = written(&[3_000_000, 5]);
        let (_elsewhere, other) = receiver();
        let nothing = inbox.wait("another key", other).arrived();
        assert!(nothing.is_err(), "nothing has come");
        let (directory, receiver) = receiver();
        let waiting = inbox.wait(&target.key, receiver);
        let wrong = PushTarget { key: env.secret(), ..target.clone() };
        let refused = push(&env, &wrong, &written, &Security::default(), PATIENCE)
            .await
            .expect_err("a wrong key");
        assert!(is_refusal(&refused), "{refused}");
        push(&env, &target, &written, &Security::default(), PATIENCE)
            .await
            .expect("it is waited for");
        let again = push(&env, &target, &written, &Security::default(), PATIENCE)
            .await
            .expect_err("it is here");
        assert!(is_refusal(&again), "{again}");
        expect(waiting.arrived().expect("it is here"), directory.path(), &files);
    }

    #[tokio::test]
    async fn what_nobody_waits_for_any_more_is_removed() {
        let env = Env::real();
        let (inbox, _serving, target) = inbox(&env).await;
        let (written, _) = written(&[3_000_000]);
        // One that is here as a whole.
        let (directory, whole) = receiver();
        let waiting = inbox.wait(&target.key, whole);
        push(&env, &target, &written, &Security::default(), PATIENCE)
            .await
            .expect("it is waited for");
        assert_eq!(files_in(directory.path()), 1);
        drop(waiting);
        assert_eq!(files_in(directory.path()), 0);
        // One whose end does not come.
        let (directory, half) = receiver();
        let waiting = inbox.wait(&target.key, half);
        let begin = written.pieces().take(2).chain(futures::stream::pending()).boxed();
        let asked = Asked::post(&target.address, PATH, bytes::Bytes::new());
        let authorization = Some(format!("Bearer {}", target.key));
        let asked = Asked { authorization, length: written.bytes(), body: begin, ..asked };
        let mut pushing = Box::pin(http::ask(&env, asked));
        while files_in(directory.path()) == 0 {
            let moment = Box::pin(env.sleep(Duration::from_millis(10)));
            match select(pushing, moment).await {
                Either::Left(_) => panic!("it is answered before its end"),
                Either::Right(((), unfinished)) => pushing = unfinished,
            }
        }
        drop(waiting);
        let answer = pushing.await.expect("an answer");
        assert_eq!(answer.status, StatusCode::GONE);
        assert_eq!(files_in(directory.path()), 0);
    }

    #[tokio::test]
    async fn a_node_that_takes_nothing_is_given_up() {
        let env = Env::real();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let target = PushTarget { address, key: env.secret() };
        let (written, _) = written(&[30_000_000]);
        let start = env.monotonic();
        let given_up =
            push(&env, &target, &written, &Security::default(), Duration::from_millis(300)).await;
        assert_eq!(given_up.expect_err("nobody reads").kind(), io::ErrorKind::TimedOut);
        assert!(env.monotonic() - start < PATIENCE);
        drop(listener);
        let refused = push(&env, &target, &written, &Security::default(), PATIENCE).await;
        assert_eq!(refused.expect_err("nobody listens").kind(), io::ErrorKind::ConnectionRefused);
    }
}

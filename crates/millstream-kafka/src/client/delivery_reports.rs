//! Delivery reports: when a micro-batch is accepted by the brokers.
//!
//! Each record that the client accepts holds a reference to its micro-batch's [`Pending`], and
//! gives it back with its delivery report. When the last reference is gone, all reports are in,
//! and the acknowledgement completes. The cost per record is one atomic increment and decrement.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use millstream_engine::api::sink::Acknowledgement;
use millstream_store::env::Env;
use parking_lot::Mutex;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::KafkaError;
use rdkafka::message::{DeliveryResult, Message as _};
use rdkafka::producer::ProducerContext;
use rdkafka::types::RDKafkaErrorCode;
use tokio::sync::{Notify, oneshot};

use super::context::Context;
use crate::error::{SinkError, SourceError};
use crate::remedy::is_about_rights;

/// How much of a record's key or value an error shows.
const EXCERPT_BYTES: usize = 60;

/// One micro-batch whose delivery reports are not all in.
pub struct Pending {
    env: Env,
    failure: Mutex<Option<SinkError>>,
    done: Mutex<Option<oneshot::Sender<Result<i64, SinkError>>>>,
}

/// Gets the outcome of all delivery reports of one [`Pending`]: when the last came, microseconds
/// since the epoch.
pub type Outcome = oneshot::Receiver<Result<i64, SinkError>>;

impl Pending {
    /// One for a new micro-batch, and the acknowledgement that completes when it is dropped
    /// everywhere.
    pub fn new(env: &Env) -> (Arc<Self>, Acknowledgement) {
        let (pending, outcome) = Self::with_outcome(env);
        let delivered =
            async move { Ok(outcome.await.map_err(|_| SinkError::MicroBatchDropped)??) };
        (pending, Acknowledgement::Later(Box::pin(delivered)))
    }

    /// One for a new micro-batch, and its outcome for a thread that waits.
    pub fn with_outcome(env: &Env) -> (Arc<Self>, Outcome) {
        let (sender, receiver) = oneshot::channel();
        let (failure, done) = (Mutex::new(None), Mutex::new(Some(sender)));
        (Arc::new(Self { env: env.clone(), failure, done }), receiver)
    }

    /// Notes why a record was not delivered. The first reason counts.
    pub fn fail(&self, error: SinkError) {
        self.failure.lock().get_or_insert(error);
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let result = match self.failure.lock().take() {
            Some(error) => Err(error),
            None => Ok(self.env.now_us()),
        };
        if let Some(done) = self.done.lock().take() {
            // Sending fails only if the driver has given up waiting.
            let _ = done.send(result);
        }
    }
}

/// Receives the events of the producer's client.
pub struct Deliveries {
    context: Context,
    servers: String,
    bytes_max: u64,
    /// A publisher waits for space in the client's queue.
    waiting: AtomicBool,
    space: Notify,
    reports: AtomicU64,
}

impl Deliveries {
    /// For a client of `servers` whose own events are for `context`, and that takes records of
    /// up to `bytes_max` bytes.
    pub fn new(context: Context, servers: &str, bytes_max: u64) -> Self {
        let (waiting, space) = (AtomicBool::new(false), Notify::new());
        let servers = servers.to_owned();
        Self { context, servers, bytes_max, waiting, space, reports: AtomicU64::new(0) }
    }

    /// How many delivery reports have come.
    pub fn reports(&self) -> u64 {
        self.reports.load(Ordering::Relaxed)
    }

    /// Announces a wait for [`space`](Self::space), before the queue is tried a last time.
    pub fn expect_space(&self) {
        self.waiting.store(true, Ordering::SeqCst);
    }

    /// Completes after a delivery report, when there may be space in the client's queue.
    pub async fn space(&self) {
        self.space.notified().await;
    }

    /// The receiver of the client's own events.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Says in detail why a record was not delivered.
    pub fn explain(
        &self,
        topic: &str,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        code: RDKafkaErrorCode,
    ) -> SinkError {
        explain(topic, key, value, code, self.bytes_max)
    }
}

/// Says in detail why a record was not delivered by a client that takes up to `bytes_max` bytes.
pub fn explain(
    topic: &str,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
    code: RDKafkaErrorCode,
    bytes_max: u64,
) -> SinkError {
    let (topic, excerpt, hash) = (topic.to_owned(), excerpt(key, value), hash(key, value));
    if code == RDKafkaErrorCode::MessageSizeTooLarge {
        let bytes = key.map_or(0, <[u8]>::len) + value.map_or(0, <[u8]>::len);
        return SinkError::TooLarge { topic, bytes, bytes_max, excerpt, hash };
    }
    SinkError::Undelivered { topic, code, excerpt, hash }
}

impl ClientContext for Deliveries {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.context.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.context.error(error, reason);
    }
}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = Arc<Pending>;

    fn delivery(&self, result: &DeliveryResult<'_>, pending: Arc<Pending>) {
        if let Err((error, record)) = result {
            let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail);
            pending.fail(match self.context.refused().filter(|_| was_given_up(code)) {
                // The record says which topic it is.
                Some(reason) if is_about_rights(&reason) => {
                    let code = RDKafkaErrorCode::TopicAuthorizationFailed;
                    self.explain(record.topic(), record.key(), record.payload(), code)
                }
                Some(reason) => {
                    let servers = self.servers.clone();
                    SinkError::Cluster(SourceError::Refused { servers, reason })
                }
                None => self.explain(record.topic(), record.key(), record.payload(), code),
            });
        }
        self.reports.fetch_add(1, Ordering::Relaxed);
        // Sequentially consistent, as in `expect_space`: either the publisher sees the space that
        // this report freed, or this thread sees that it waits. So a report is never missed.
        if self.waiting.swap(false, Ordering::SeqCst) {
            self.space.notify_one();
        }
    }
}

/// True for a code that says only that a record was not sent in time, and not why.
fn was_given_up(code: RDKafkaErrorCode) -> bool {
    use RDKafkaErrorCode::{MessageTimedOut, PurgeInflight, PurgeQueue};
    matches!(code, MessageTimedOut | PurgeInflight | PurgeQueue)
}

/// A hash that identifies a record within this process: its seed is fixed, but not portable.
pub fn hash(key: Option<&[u8]>, value: Option<&[u8]>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (key, value).hash(&mut hasher);
    hasher.finish()
}

/// Enough of a record to find it.
fn excerpt(key: Option<&[u8]>, value: Option<&[u8]>) -> String {
    let (name, bytes) = match (key, value) {
        (Some(key), _) => ("key", key),
        (None, Some(value)) => ("value", value),
        (None, None) => return "without key and value".to_owned(),
    };
    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(EXCERPT_BYTES)]);
    let more = if bytes.len() > EXCERPT_BYTES { "..." } else { "" };
    format!("{name} '{shown}{more}'")
}

#[cfg(test)]
mod tests {
    use millstream_store::error::Kind;

    use super::*;

    #[tokio::test]
    async fn the_last_reference_acknowledges() {
        let (pending, Acknowledgement::Later(acknowledgement)) = Pending::new(&Env::real()) else {
            panic!("a delivery is not done at once");
        };
        let task = Env::real().spawn("acknowledgement", acknowledgement);
        let other = pending.clone();
        drop(pending);
        tokio::task::yield_now().await;
        assert!(!task.is_finished());
        drop(other);
        assert!(task.join().await.is_ok());
    }

    #[tokio::test]
    async fn the_first_failure_counts() {
        let (pending, Acknowledgement::Later(acknowledgement)) = Pending::new(&Env::real()) else {
            panic!("a delivery is not done at once");
        };
        let deliveries = Deliveries::new(Context::new(Env::real(), "t", None), "", 1_000);
        let code = RDKafkaErrorCode::MessageSizeTooLarge;
        pending.fail(deliveries.explain("out", Some(b"k1"), Some(&[b'x'; 2_000]), code));
        pending.fail(SinkError::NullTopic);
        drop(pending);
        let failure = acknowledgement.await.unwrap_err();
        assert_eq!(failure.kind(), Kind::Data);
        let text = failure.to_string();
        for fact in ["2002 bytes", "'out'", "now 1000", "key 'k1'"] {
            assert!(text.contains(fact), "{text}");
        }
    }

    #[test]
    fn excerpts_are_short() {
        assert_eq!(excerpt(None, None), "without key and value");
        assert_eq!(excerpt(None, Some(b"v")), "value 'v'");
        assert_eq!(excerpt(None, Some(&[b'v'; 100])).len(), "value ''...".len() + EXCERPT_BYTES);
    }
}

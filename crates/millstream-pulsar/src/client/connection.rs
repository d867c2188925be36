//! A connection to one broker: requests with their answers, and what the broker sends unasked.
//!
//! A task reads, another writes; both end when the connection breaks, and whoever waits for an
//! answer or for messages hears it. A connection is never repaired: [`super::Client`] makes
//! another.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use millstream_store::env::{Env, Task};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot, watch};

use super::settings::Settings;
use crate::error::PulsarError;
use crate::protocol::answers::Said;
use crate::protocol::frame::{self, Frame};
use crate::protocol::messages::{
    AuthData, BaseCommand, CommandAuthResponse, CommandConnect, FeatureFlags, MessageIdData,
    Nothing, kind,
};

/// The version of the protocol that is spoken; transactions came with 19.
const PROTOCOL_VERSION: i32 = 19;
const CLIENT_VERSION: &str = "millstream";
/// What brokers take where they do not say it.
const MESSAGE_BYTES_MAX: usize = 5 << 20;
/// No broker may ask for more memory than this for one message.
const MESSAGE_BYTES_LIMIT: usize = 256 << 20;
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
/// Between two pings; a connection on which nothing has come for twice as long is given up.
const PING_EVERY: Duration = Duration::from_secs(30);
/// Frames that wait to be written; a sender waits while there are more.
const WAITING_MAX: usize = 64;

/// What a broker sends to a consumer.
#[derive(Debug)]
pub(crate) enum ToConsumer {
    /// An entry with its place, not looked into.
    Entry(MessageIdData, Bytes),
    /// The broker gives the topic up, or the connection is broken.
    Closed,
}

/// What a broker sends to a producer.
#[derive(Debug)]
pub(crate) enum ToProducer {
    /// The next entry is stored, at a place where it is known.
    Stored(Option<MessageIdData>),
    /// An entry is refused.
    Refused(Said),
    /// The broker gives the topic up, or the connection is broken.
    Closed,
}

type Answer = Result<BaseCommand, PulsarError>;

#[derive(Default)]
struct State {
    requests: HashMap<u64, oneshot::Sender<Answer>>,
    consumers: HashMap<u64, mpsc::UnboundedSender<ToConsumer>>,
    producers: HashMap<u64, mpsc::UnboundedSender<ToProducer>>,
    /// Why the connection is broken.
    broken: Option<String>,
    /// On the monotonic clock.
    heard: Duration,
}

/// A connection; it ends with the last that holds it.
pub(crate) struct Connection {
    shared: Arc<Shared>,
    tasks: Vec<Task<()>>,
}

struct Shared {
    broker: String,
    env: Env,
    timeout: Duration,
    settings: Settings,
    state: Mutex<State>,
    /// Says so to the tasks, wherever they are.
    is_broken: watch::Sender<bool>,
    outgoing: mpsc::Sender<Bytes>,
    ids: AtomicU64,
    /// The largest message that the broker takes.
    message_bytes_max: usize,
    /// Whether it can say how many partitions there are without making a topic.
    can_ask_only: bool,
}

impl Connection {
    /// Connects to `address`, `HOST:PORT`; a proxy there is asked to hand on to `behind`.
    ///
    /// # Errors
    /// The broker is away, or refuses the credentials.
    pub(crate) async fn open(
        address: &str,
        behind: Option<&str>,
        settings: &Settings,
        env: &Env,
    ) -> Result<Arc<Self>, PulsarError> {
        let opening = Self::establish(address, behind, settings, env);
        within(env, CONNECT_PATIENCE, address, "to connect", opening).await
    }

    async fn establish(
        address: &str,
        behind: Option<&str>,
        settings: &Settings,
        env: &Env,
    ) -> Result<Arc<Self>, PulsarError> {
        let away = |error: std::io::Error| away(address, error);
        let stream = TcpStream::connect(address).await.map_err(away)?;
        stream.set_nodelay(true).map_err(away)?;
        match settings.tls()? {
            None => Self::greet(stream, address, behind, settings, env).await,
            Some(tls) => {
                let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
                let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
                let name = host.try_into().map_err(std::io::Error::other).map_err(away)?;
                let stream = tls.connect(name, stream).await.map_err(|error| {
                    if is_about_our_certificate(&error) {
                        return self::away(address, error);
                    }
                    not_shaken(address, &error)
                })?;
                Self::greet(stream, address, behind, settings, env).await
            }
        }
    }

    async fn greet<S: AsyncRead + AsyncWrite + Send + 'static>(
        stream: S,
        address: &str,
        behind: Option<&str>,
        settings: &Settings,
        env: &Env,
    ) -> Result<Arc<Self>, PulsarError> {
        let (mut reader, mut writer) = tokio::io::split(stream);
        let hello = hello(settings, behind)?;
        writer.write_all(&frame::command(&hello)).await.map_err(|error| away(address, error))?;
        let mut received = BytesMut::new();
        let answer = next(&mut reader, &mut received, MESSAGE_BYTES_MAX, address).await?.command;
        if let Some(said) = answer.refusal() {
            let (broker, what) = (address.to_owned(), "the connection".to_owned());
            return Err(PulsarError::Refused { broker, what, said });
        }
        let Some(connected) = answer.connected else {
            let problem = format!("answered with a command of kind {}", answer.kind);
            return Err(PulsarError::Away { broker: address.to_owned(), problem });
        };
        let message_bytes_max =
            connected.max_message_size.and_then(|max| usize::try_from(max).ok());
        let message_bytes_max = message_bytes_max.filter(|max| *max > 0);
        let message_bytes_max =
            message_bytes_max.unwrap_or(MESSAGE_BYTES_MAX).min(MESSAGE_BYTES_LIMIT);
        let features = connected.feature_flags.unwrap_or_default();
        let can_ask_only = features.supports_get_partitioned_metadata_without_auto_creation;
        let (outgoing, waiting) = mpsc::channel(WAITING_MAX);
        let shared = Arc::new(Shared {
            broker: address.to_owned(),
            env: env.clone(),
            timeout: settings.timeout,
            settings: settings.clone(),
            state: Mutex::new(State { heard: env.monotonic(), ..State::default() }),
            is_broken: watch::Sender::new(false),
            outgoing,
            ids: AtomicU64::new(1),
            message_bytes_max,
            can_ask_only: can_ask_only == Some(true),
        });
        let reading = read(Arc::clone(&shared), reader, received);
        let writing = write(Arc::clone(&shared), writer, waiting);
        let tasks = vec![
            env.spawn("pulsar-read", reading),
            env.spawn("pulsar-write", writing),
            env.spawn("pulsar-ping", ping(Arc::clone(&shared))),
        ];
        Ok(Arc::new(Self { shared, tasks }))
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.shared.state.lock().broken.is_some()
    }

    /// `HOST:PORT`.
    pub(crate) fn broker(&self) -> &str {
        &self.shared.broker
    }

    /// The largest message that the broker takes, bytes.
    pub(crate) fn message_bytes_max(&self) -> usize {
        self.shared.message_bytes_max
    }

    /// Whether the broker says how many partitions there are without making a topic.
    pub(crate) fn can_ask_only(&self) -> bool {
        self.shared.can_ask_only
    }

    /// The clock, and how long an answer may take.
    pub(crate) fn patience(&self) -> (&Env, Duration) {
        (&self.shared.env, self.shared.timeout)
    }

    /// A number that was not used on this connection.
    pub(crate) fn new_id(&self) -> u64 {
        self.shared.ids.fetch_add(1, Ordering::Relaxed)
    }

    /// From now on what is for the consumer `id` goes to the receiver.
    pub(crate) fn add_consumer(&self, id: u64) -> mpsc::UnboundedReceiver<ToConsumer> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.shared.state.lock().consumers.insert(id, sender);
        receiver
    }

    /// From now on what is for the producer `id` goes to the receiver.
    pub(crate) fn add_producer(&self, id: u64) -> mpsc::UnboundedReceiver<ToProducer> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.shared.state.lock().producers.insert(id, sender);
        receiver
    }

    /// What comes for the consumer is dropped.
    pub(crate) fn remove_consumer(&self, id: u64) {
        self.shared.state.lock().consumers.remove(&id);
    }

    /// What comes for the producer is dropped.
    pub(crate) fn remove_producer(&self, id: u64) {
        self.shared.state.lock().producers.remove(&id);
    }

    /// Sends a frame, as soon as those before it are on their way.
    ///
    /// # Errors
    /// The connection is broken, or the broker takes nothing for as long as an answer may take.
    pub(crate) async fn send(&self, frame: Bytes) -> Result<(), PulsarError> {
        let shared = &self.shared;
        let sending = async { shared.outgoing.send(frame).await.map_err(|_| shared.why_broken()) };
        within(&shared.env, shared.timeout, &shared.broker, "what was sent", sending).await
    }

    /// Sends a frame if that need not wait, else not at all.
    pub(crate) fn try_send(&self, frame: Bytes) {
        let _ = self.shared.outgoing.try_send(frame);
    }

    /// Asks something, which `what` tells people, and waits for the answer.
    ///
    /// # Errors
    /// What the broker refuses, or [`PulsarError::Away`].
    pub(crate) async fn ask(
        &self,
        what: impl Fn() -> String,
        request: impl FnOnce(u64) -> BaseCommand,
    ) -> Result<BaseCommand, PulsarError> {
        let id = self.new_id();
        let (sender, receiver) = oneshot::channel();
        {
            let mut state = self.shared.state.lock();
            if state.broken.is_some() {
                drop(state);
                return Err(self.shared.why_broken());
            }
            state.requests.insert(id, sender);
        }
        let asking = async {
            self.send(frame::command(&request(id))).await?;
            receiver.await.map_err(|_| self.shared.why_broken())?
        };
        let shared = &self.shared;
        let answer = within(&shared.env, shared.timeout, &shared.broker, &what(), asking).await;
        self.shared.state.lock().requests.remove(&id);
        let answer = answer?;
        match answer.refusal() {
            None => Ok(answer),
            Some(said) => {
                Err(PulsarError::Refused { broker: shared.broker.clone(), what: what(), said })
            }
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.tasks.iter().for_each(Task::abort);
    }
}

impl Shared {
    /// Completes when the connection is broken, also where it is already.
    async fn breaking(&self) {
        // The sender lives as long as this, so that waiting does not fail.
        let _ = self.is_broken.subscribe().wait_for(|is_broken| *is_broken).await;
    }

    fn why_broken(&self) -> PulsarError {
        let problem = self.state.lock().broken.clone();
        let problem = problem.unwrap_or_else(|| "the connection ends".to_owned());
        PulsarError::Away { broker: self.broker.clone(), problem }
    }

    fn breaks(&self, problem: String) {
        let mut state = self.state.lock();
        state.broken.get_or_insert(problem);
        // Whoever waits for an answer hears that its sender is gone.
        state.requests.clear();
        for (_, consumer) in state.consumers.drain() {
            let _ = consumer.send(ToConsumer::Closed);
        }
        for (_, producer) in state.producers.drain() {
            let _ = producer.send(ToProducer::Closed);
        }
        drop(state);
        self.is_broken.send_replace(true);
    }

    /// Hands on what arrived.
    fn arrived(&self, Frame { command, entry }: Frame) {
        let mut state = self.state.lock();
        match command.kind {
            kind::MESSAGE => {
                if let Some(message) = command.message
                    && let Some(consumer) = state.consumers.get(&message.consumer_id)
                {
                    let _ = consumer.send(ToConsumer::Entry(message.message_id, entry));
                }
            }
            kind::SEND_RECEIPT => {
                if let Some(receipt) = command.send_receipt
                    && let Some(producer) = state.producers.get(&receipt.producer_id)
                {
                    let _ = producer.send(ToProducer::Stored(receipt.message_id));
                }
            }
            kind::SEND_ERROR => {
                if let Some(error) = command.send_error
                    && let Some(producer) = state.producers.get(&error.producer_id)
                {
                    let said = Said { code: error.error, text: error.message };
                    let _ = producer.send(ToProducer::Refused(said));
                }
            }
            kind::CLOSE_CONSUMER => {
                let id = command.close_consumer.map(|close| close.consumer_id);
                if let Some(consumer) = id.and_then(|id| state.consumers.remove(&id)) {
                    let _ = consumer.send(ToConsumer::Closed);
                }
            }
            kind::CLOSE_PRODUCER => {
                let id = command.close_producer.map(|close| close.producer_id);
                if let Some(producer) = id.and_then(|id| state.producers.remove(&id)) {
                    let _ = producer.send(ToProducer::Closed);
                }
            }
            kind::PING => {
                drop(state);
                let pong = BaseCommand { pong: Some(Nothing {}), ..BaseCommand::of(kind::PONG) };
                // Where frames wait, the broker sees from those that we are alive.
                let _ = self.outgoing.try_send(frame::command(&pong));
            }
            kind::AUTH_CHALLENGE => {
                drop(state);
                if let Ok(response) = challenge_response(&self.settings) {
                    let _ = self.outgoing.try_send(frame::command(&response));
                }
            }
            _ => {
                // A producer that waits for its topic is told so first, and later that it has it.
                let waits = command.producer_success.as_ref().and_then(|it| it.producer_ready);
                if waits != Some(false)
                    && let Some(id) = command.answers()
                    && let Some(asker) = state.requests.remove(&id)
                {
                    let _ = asker.send(Ok(command));
                }
            }
        }
    }
}

fn away(address: &str, error: std::io::Error) -> PulsarError {
    let (broker, problem) = (address.to_owned(), error.to_string());
    match is_about_our_certificate(&error) {
        true => PulsarError::Certificate { broker, problem },
        false => PulsarError::Away { broker, problem },
    }
}

/// Why a handshake failed that was not about our certificate.
fn not_shaken(address: &str, error: &std::io::Error) -> PulsarError {
    use tokio_rustls::rustls::Error;
    let (broker, problem) = (address.to_owned(), error.to_string());
    match error.get_ref().and_then(|error| error.downcast_ref::<Error>()) {
        // Trying again would not help against a certificate.
        Some(Error::InvalidCertificate(_)) => PulsarError::Untrusted { broker, problem },
        Some(Error::InvalidMessage(_)) => {
            let problem = format!(
                "{problem}; the port may be one without TLS: that of pulsar+ssl:// is 6651 mostly"
            );
            PulsarError::Away { broker, problem }
        }
        _ => PulsarError::Away { broker, problem },
    }
}

/// Whether the other side ends a connection because of what we have shown it, which it may say only
/// after the handshake. Brokers call it an internal error of theirs that there was nothing.
fn is_about_our_certificate(error: &std::io::Error) -> bool {
    use tokio_rustls::rustls::{AlertDescription, Error};
    let error = error.get_ref().and_then(|error| error.downcast_ref::<Error>());
    matches!(
        error,
        Some(Error::AlertReceived(
            AlertDescription::CertificateRequired
                | AlertDescription::BadCertificate
                | AlertDescription::UnsupportedCertificate
                | AlertDescription::CertificateRevoked
                | AlertDescription::CertificateExpired
                | AlertDescription::CertificateUnknown
                | AlertDescription::UnknownCA
                | AlertDescription::AccessDenied
                | AlertDescription::HandshakeFailure
                | AlertDescription::InternalError
        ))
    )
}

fn hello(settings: &Settings, behind: Option<&str>) -> Result<BaseCommand, PulsarError> {
    let (method, data) = settings.credentials()?.unzip();
    let features = FeatureFlags { supports_auth_refresh: Some(true), ..FeatureFlags::default() };
    let connect = CommandConnect {
        client_version: CLIENT_VERSION.to_owned(),
        auth_data: data,
        protocol_version: Some(PROTOCOL_VERSION),
        auth_method_name: method.map(str::to_owned),
        proxy_to_broker_url: behind.map(str::to_owned),
        feature_flags: Some(features),
    };
    Ok(BaseCommand { connect: Some(connect), ..BaseCommand::of(kind::CONNECT) })
}

/// A broker asks for credentials again when they expire; a file may have new ones.
fn challenge_response(settings: &Settings) -> Result<BaseCommand, PulsarError> {
    let (method, data) = settings.credentials()?.unzip();
    let response = CommandAuthResponse {
        client_version: Some(CLIENT_VERSION.to_owned()),
        response: Some(AuthData { auth_method_name: method.map(str::to_owned), auth_data: data }),
        protocol_version: Some(PROTOCOL_VERSION),
    };
    Ok(BaseCommand { auth_response: Some(response), ..BaseCommand::of(kind::AUTH_RESPONSE) })
}

/// The next frame.
async fn next(
    reader: &mut (impl AsyncRead + Unpin),
    received: &mut BytesMut,
    message_bytes_max: usize,
    broker: &str,
) -> Result<Frame, PulsarError> {
    loop {
        let taken = frame::take(received, message_bytes_max);
        let taken =
            taken.map_err(|error| PulsarError::Frame { broker: broker.to_owned(), error })?;
        if let Some(frame) = taken {
            return Ok(frame);
        }
        received.reserve(64 << 10);
        let read = reader.read_buf(received).await.map_err(|error| away(broker, error))?;
        if read == 0 {
            let problem = "it has closed the connection".to_owned();
            return Err(PulsarError::Away { broker: broker.to_owned(), problem });
        }
    }
}

async fn read(shared: Arc<Shared>, mut reader: impl AsyncRead + Unpin, mut received: BytesMut) {
    let mut breaking = pin!(shared.breaking());
    loop {
        let max = shared.message_bytes_max;
        let frame = tokio::select! {
            frame = next(&mut reader, &mut received, max, &shared.broker) => frame,
            () = &mut breaking => return,
        };
        match frame {
            Ok(frame) => {
                shared.state.lock().heard = shared.env.monotonic();
                shared.arrived(frame);
            }
            Err(error) => {
                let problem = match error {
                    PulsarError::Away { problem, .. } => problem,
                    other => other.to_string(),
                };
                return shared.breaks(problem);
            }
        }
    }
}

async fn write(
    shared: Arc<Shared>,
    writer: impl AsyncWrite + Unpin,
    waiting: mpsc::Receiver<Bytes>,
) {
    // A broker that stands still takes nothing, so that a write may wait until the connection is
    // given up.
    tokio::select! {
        error = write_all(writer, waiting) => {
            if let Err(error) = error {
                shared.breaks(error.to_string());
            }
        }
        () = shared.breaking() => {}
    }
}

/// Writes frames until nobody sends any more.
async fn write_all(
    mut writer: impl AsyncWrite + Unpin,
    mut waiting: mpsc::Receiver<Bytes>,
) -> std::io::Result<()> {
    while let Some(frame) = waiting.recv().await {
        writer.write_all(&frame).await?;
        // What waits goes along before anything is flushed.
        while let Ok(frame) = waiting.try_recv() {
            writer.write_all(&frame).await?;
        }
        writer.flush().await?;
    }
    Ok(())
}

async fn ping(shared: Arc<Shared>) {
    loop {
        shared.env.sleep(PING_EVERY).await;
        let silent = shared.env.monotonic().saturating_sub(shared.state.lock().heard);
        if silent > PING_EVERY * 2 {
            return shared.breaks(format!("silent for {} s", silent.as_secs()));
        }
        let ping = BaseCommand { ping: Some(Nothing {}), ..BaseCommand::of(kind::PING) };
        let _ = shared.outgoing.try_send(frame::command(&ping));
    }
}

/// Waits for `work`, and no longer than `patience`.
pub(crate) async fn within<T>(
    env: &Env,
    patience: Duration,
    broker: &str,
    what: &str,
    work: impl Future<Output = Result<T, PulsarError>>,
) -> Result<T, PulsarError> {
    tokio::select! {
        result = work => result,
        () = env.sleep(patience) => Err(PulsarError::Away {
            broker: broker.to_owned(),
            problem: format!("no answer to {what} within {} ms", patience.as_millis()),
        }),
    }
}

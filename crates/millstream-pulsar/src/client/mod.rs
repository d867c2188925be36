//! A client of Pulsar that is as thin as it can be: what exactly-once delivery needs decides when
//! something is repeated, and only its callers know that.
//!
//! - [`settings`]: where the brokers are, and how to be let in.
//! - [`connection`]: one connection, requests and answers.
//! - [`Client`]: which broker has a topic, and the connections to all of them.
//! - [`consumer`], [`producer`], [`transaction`]: what is done with a topic.

pub(crate) mod connection;
pub(crate) mod consumer;
pub(crate) mod producer;
pub(crate) mod settings;
pub(crate) mod transaction;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use millstream_store::env::Env;
use parking_lot::Mutex;

use crate::error::PulsarError;
use crate::protocol::messages::{
    BaseCommand, CommandGetTopicsOfNamespace, CommandLookupTopic, CommandPartitionedTopicMetadata,
    code, kind,
};
use crate::topic;
use connection::Connection;
use settings::Settings;

/// More brokers than this do not hand a question on.
const REDIRECTS_MAX: usize = 20;
/// Between two tries of something that may work soon.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// A broker, and what is behind it where it is a proxy.
type Reached = (String, Option<String>);

/// Connections to the brokers of one service. Cheap to share.
pub(crate) struct Client {
    pub(crate) settings: Settings,
    pub(crate) env: Env,
    connections: Mutex<HashMap<Reached, Arc<Connection>>>,
    /// Which of the addresses is asked first.
    turn: AtomicUsize,
}

/// Growing pauses between tries.
#[derive(Default)]
pub(crate) struct Pauses(u32);

impl Pauses {
    /// The next pause.
    pub(crate) fn next(&mut self) -> Duration {
        let pause = PAUSE_FIRST.saturating_mul(1 << self.0.min(10)).min(PAUSE_MAX);
        self.0 += 1;
        pause
    }
}

impl Client {
    /// Nothing is connected yet.
    pub(crate) fn new(settings: Settings, env: &Env) -> Arc<Self> {
        let (connections, turn) = (Mutex::default(), AtomicUsize::new(0));
        Arc::new(Self { settings, env: env.clone(), connections, turn })
    }

    async fn connect(
        &self,
        address: &str,
        behind: Option<&str>,
    ) -> Result<Arc<Connection>, PulsarError> {
        let key = (address.to_owned(), behind.map(str::to_owned));
        let known = self.connections.lock().get(&key).cloned();
        if let Some(known) = known.filter(|known| !known.is_broken()) {
            return Ok(known);
        }
        let made = Connection::open(address, behind, &self.settings, &self.env).await?;
        let mut connections = self.connections.lock();
        connections.retain(|_, connection| !connection.is_broken());
        // Another task may have been faster; then this one is dropped.
        Ok(Arc::clone(connections.entry(key).or_insert(made)))
    }

    /// A connection to any broker, with the address that it was found at.
    async fn any(&self) -> Result<(String, Arc<Connection>), PulsarError> {
        let addresses = &self.settings.addresses;
        let mut failure = None;
        for _ in addresses {
            let turn = self.turn.load(Ordering::Relaxed) % addresses.len();
            let address = &addresses[turn];
            match self.connect(address, None).await {
                Ok(connection) => return Ok((address.clone(), connection)),
                Err(error) => failure = Some(error),
            }
            self.turn.fetch_add(1, Ordering::Relaxed);
        }
        Err(failure.expect("there is an address at least"))
    }

    /// A connection to the broker that has a topic, which is a partition or has none.
    ///
    /// # Errors
    /// The broker is away, or refuses.
    pub(crate) async fn to_topic(&self, topic: &str) -> Result<Arc<Connection>, PulsarError> {
        let (service, mut connection) = self.any().await?;
        let mut authoritative = None;
        for _ in 0..REDIRECTS_MAX {
            let asked = connection.ask(
                || format!("the place of {topic}"),
                |request_id| BaseCommand {
                    lookup_topic: Some(CommandLookupTopic {
                        topic: topic.to_owned(),
                        request_id,
                        authoritative,
                        advertised_listener_name: None,
                    }),
                    ..BaseCommand::of(kind::LOOKUP)
                },
            );
            let answer = asked.await?.lookup_topic_response.unwrap_or_default();
            let url = match self.settings.has_tls {
                true => answer.broker_service_url_tls.filter(|url| !url.is_empty()),
                false => answer.broker_service_url.filter(|url| !url.is_empty()),
            };
            let found = url.as_deref().and_then(|url| settings::addresses(url).ok());
            let Some(broker) = found.and_then(|(addresses, _)| addresses.into_iter().next()) else {
                let problem = match self.settings.has_tls {
                    true => format!("the broker of {topic} has no address for TLS"),
                    false => format!("the broker of {topic} has no address without TLS"),
                };
                let broker = connection.broker().to_owned();
                return Err(PulsarError::Away { broker, problem });
            };
            // A broker that runs alone says so too, and is no proxy.
            let is_through_proxy =
                answer.proxy_through_service_url == Some(true) && broker != service;
            connection = match is_through_proxy {
                true => self.connect(&service, Some(&broker)).await?,
                false => self.connect(&broker, None).await?,
            };
            if answer.response == Some(1) {
                return Ok(connection);
            }
            authoritative = answer.authoritative;
        }
        let problem = format!("{REDIRECTS_MAX} brokers in a row do not know who has {topic}");
        Err(PulsarError::Away { broker: self.settings.shown(), problem })
    }

    /// The names of a topic's partitions, or its own where it has none. A topic that is not there
    /// is made only if `makes` says so and the broker allows it.
    ///
    /// # Errors
    /// [`PulsarError::NoTopic`], and what the broker refuses.
    pub(crate) async fn partitions(
        &self,
        name: &str,
        makes: bool,
    ) -> Result<Vec<String>, PulsarError> {
        let (_, connection) = self.any().await?;
        let asked = connection.ask(
            || format!("the partitions of {name}"),
            |request_id| BaseCommand {
                partition_metadata: Some(CommandPartitionedTopicMetadata {
                    topic: name.to_owned(),
                    request_id,
                    metadata_auto_creation_enabled: connection.can_ask_only().then_some(makes),
                }),
                ..BaseCommand::of(kind::PARTITIONED_METADATA)
            },
        );
        let answer = match asked.await {
            Err(error) if error.code() == Some(code::TOPIC_NOT_FOUND) => {
                let broker = connection.broker().to_owned();
                return Err(PulsarError::NoTopic { topic: name.to_owned(), broker });
            }
            answer => answer?,
        };
        let answer = answer.partition_metadata_response.unwrap_or_default();
        Ok(match answer.partitions.unwrap_or(0) {
            0 => vec![name.to_owned()],
            count => (0..count).map(|number| topic::partition(name, number)).collect(),
        })
    }

    /// The topics of a namespace that are kept on disk, without their partitions, in order; those
    /// of Pulsar itself are left out.
    ///
    /// # Errors
    /// What the broker refuses.
    pub(crate) async fn topics(&self, namespace: &str) -> Result<Vec<String>, PulsarError> {
        let (_, connection) = self.any().await?;
        let asked = connection.ask(
            || format!("the topics of {namespace}"),
            |request_id| BaseCommand {
                get_topics_of_namespace: Some(CommandGetTopicsOfNamespace {
                    request_id,
                    namespace: namespace.to_owned(),
                    mode: Some(0),
                }),
                ..BaseCommand::of(kind::GET_TOPICS_OF_NAMESPACE)
            },
        );
        let answer = asked.await?.get_topics_of_namespace_response.unwrap_or_default();
        let whole = answer.topics.iter().map(|name| topic::whole(name).to_owned());
        let mut topics: Vec<String> =
            whole.filter(|name| !topic::local_name(name).starts_with("__")).collect();
        topics.sort_unstable();
        topics.dedup();
        Ok(topics)
    }

    /// Lets go of all connections.
    pub(crate) fn close(&self) {
        self.connections.lock().clear();
    }
}

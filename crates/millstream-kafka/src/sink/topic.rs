//! The topic of a table that is written: its name in messages, and that it exists.

use std::time::Duration;

use millstream_store::env::Env;
use rdkafka::producer::Producer as _;
use rdkafka::types::RDKafkaErrorCode;

use crate::client::cluster::{CONNECT_PATIENCE, Cluster, Partitions};
use crate::client::context::is_refusal;
use crate::client::native::ProducerClient;
use crate::client::settings::ClientSettings;
use crate::client::subscription::Subscription;
use crate::error::{SinkError, SourceError};

/// How long brokers may take to create a topic that is written to for the first time.
const CREATE_PATIENCE: Duration = Duration::from_secs(5);

/// The name of a table's brokers in messages that they do not answer.
pub fn brokers_of(topic: Option<&str>) -> String {
    format!("the brokers of {}", description(topic))
}

/// What a table is, for progress and messages.
pub fn description(topic: Option<&str>) -> String {
    format!("KafkaTable[{}]", topic.unwrap_or("by column"))
}

/// Makes sure that `topic` exists, or at least that a broker answers. Blocks.
pub fn check_topic(
    settings: &ClientSettings,
    env: &Env,
    table: &str,
    topic: Option<&str>,
    client: &ProducerClient,
) -> Result<(), SinkError> {
    create_missing(&partitions_of(settings, env, table, topic)?, settings, env, client)
}

/// The partitions of `topic`, or none where every row names its own; a broker has answered. Blocks.
pub fn partitions_of(
    settings: &ClientSettings,
    env: &Env,
    table: &str,
    topic: Option<&str>,
) -> Result<Partitions, SinkError> {
    let cluster = Cluster::new(settings, None, env, table).map_err(SinkError::Cluster)?;
    let subscription = Subscription::Topics(topic.iter().map(|name| (*name).to_owned()).collect());
    let partitions = match topic {
        Some(_) => cluster.partitions(&subscription, CONNECT_PATIENCE),
        None => cluster.check_reachable(CONNECT_PATIENCE).map(|()| Default::default()),
    };
    partitions.map_err(SinkError::Cluster)
}

/// Lets the brokers create the first missing topic of `partitions`, if they are set up so. Blocks.
pub fn create_missing(
    partitions: &Partitions,
    settings: &ClientSettings,
    env: &Env,
    client: &ProducerClient,
) -> Result<(), SinkError> {
    let Some(topic) = partitions.missing.first().cloned() else { return Ok(()) };
    // A producer's request for metadata makes the broker create the topic, if
    // `auto.create.topics.enable` is set; other clients' requests do not.
    let begun = env.monotonic();
    while env.monotonic() < begun + CREATE_PATIENCE {
        let metadata = client.client().fetch_metadata(Some(&topic), Duration::from_secs(1));
        let answer = metadata.as_ref().ok().and_then(|metadata| metadata.topics().first());
        match answer.map(|topic| (topic.error().map(RDKafkaErrorCode::from), topic.partitions())) {
            Some((None, partitions)) if !partitions.is_empty() => return Ok(()),
            Some((Some(code), _)) if is_refusal(code) => {
                return Err(SinkError::Topic { topic, code });
            }
            _ => std::thread::sleep(Duration::from_millis(50)),
        }
    }
    let servers = settings.servers().to_owned();
    Err(SinkError::Cluster(SourceError::NoTopic { topic, servers, option: "topic" }))
}

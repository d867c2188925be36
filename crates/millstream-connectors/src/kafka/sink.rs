//! The Kafka sink, at least once: rows become records, in order.
//!
//! Rows of a micro-batch are handed to the client's queue by the hundreds, and the acknowledgement
//! completes when the last delivery report is in; nothing is flushed, nobody waits for a round
//! trip. The client is idempotent, so its own retries neither double records nor change their
//! order; a micro-batch that is repeated after a crash is written again.

use std::sync::Arc;
use std::time::Duration;

use millstream_engine::api::connector::FlowContext;
use millstream_engine::api::contact::ContactWith;
use millstream_engine::api::sink::{Acknowledgement, Failure, Output};
use millstream_store::env::Env;
use rdkafka::producer::Producer as _;
use rdkafka::types::RDKafkaErrorCode;

use super::client::is_refusal;
use super::cluster::{CONNECT_PATIENCE, Cluster, Partitions, client_error};
use super::delivery::{Deliveries, Pending};
use super::error::{SinkError, SourceError};
use super::native::ProducerClient;
use super::outbox::Outbox;
use super::poller::Poller;
use super::settings::ClientSettings;
use super::sink_columns::{SinkColumns, SinkRows};
use super::source_options::Subscription;

/// A publisher that waits for space looks again after this time, whatever it was told.
const SPACE_PATIENCE: Duration = Duration::from_millis(10);
/// How long records in flight may take at the end.
const CLOSE_PATIENCE: Duration = Duration::from_secs(30);
/// How often the end looks whether records are in flight still.
const CLOSE_INTERVAL: Duration = Duration::from_millis(1);
/// How long brokers may take to create a topic that is written to for the first time.
const CREATE_PATIENCE: Duration = Duration::from_secs(5);

/// A Kafka table that is written at least once.
pub struct AtLeastOnceSink {
    settings: ClientSettings,
    columns: SinkColumns,
    /// The option `topic`: where all rows go.
    topic: Option<Arc<str>>,
    table: String,
    contact: Arc<ContactWith>,
    env: Env,
    producer: Option<Producer>,
}

/// The client, and the thread that serves it.
struct Producer {
    outbox: Outbox,
    _poller: Poller,
}

impl AtLeastOnceSink {
    /// A sink that is not connected yet.
    pub fn new(
        settings: ClientSettings,
        columns: SinkColumns,
        topic: Option<&str>,
        table: &str,
        context: &FlowContext,
    ) -> Self {
        Self {
            settings,
            columns,
            topic: topic.map(Arc::from),
            table: table.to_owned(),
            contact: Arc::new(context.contacts.with(brokers_of(topic))),
            env: context.env.clone(),
            producer: None,
        }
    }

    async fn enqueue(&mut self, rows: &SinkRows, pending: &Arc<Pending>) -> Result<(), SinkError> {
        let producer = self.producer.as_mut().expect("the driver opens a sink before it uses it");
        let mut row = 0;
        loop {
            row = producer.outbox.put(rows, row, self.topic.as_deref(), pending)?;
            if row == rows.rows {
                return Ok(());
            }
            producer.wait_for_space(&self.env).await;
        }
    }
}

impl AtLeastOnceSink {
    /// Connects.
    pub async fn open(&mut self) -> Result<(), Failure> {
        let (settings, env, table) = (self.settings.clone(), self.env.clone(), self.table.clone());
        let (topic, contact) = (self.topic.clone(), Arc::clone(&self.contact));
        let connecting = move || connect(&settings, &env, &table, topic.as_deref(), contact);
        self.producer = Some(self.env.spawn_blocking("kafka-open", connecting).join().await?);
        Ok(())
    }

    /// Hands one micro-batch over; waits while the client's queue is full.
    pub async fn publish(&mut self, output: Output) -> Result<Acknowledgement, Failure> {
        let (pending, acknowledgement) = Pending::new(&self.env);
        for rows in output.record_batches() {
            let rows = self.columns.of(rows)?;
            self.enqueue(&rows, &pending).await?;
        }
        Ok(acknowledgement)
    }

    /// Waits for what is in flight, and lets go of the client.
    pub async fn close(&mut self) -> Result<(), Failure> {
        let Some(producer) = self.producer.take() else { return Ok(()) };
        let begun = self.env.monotonic();
        let in_flight = loop {
            let in_flight = producer.client().in_flight_count();
            let waited = self.env.monotonic().saturating_sub(begun);
            if in_flight <= 0 || waited > CLOSE_PATIENCE {
                break usize::try_from(in_flight).unwrap_or(0);
            }
            self.env.sleep(CLOSE_INTERVAL).await;
        };
        self.env.spawn_blocking("kafka-close", move || drop(producer)).join().await;
        if in_flight > 0 {
            let servers = self.settings.servers().to_owned();
            let (records, waited) = (in_flight, CLOSE_PATIENCE);
            return Err(SinkError::Unfinished { records, servers, waited }.into());
        }
        Ok(())
    }
}

impl Producer {
    fn client(&self) -> &Arc<ProducerClient> {
        self.outbox.client()
    }

    async fn wait_for_space(&self, env: &Env) {
        let deliveries = self.client().context();
        deliveries.expect_space();
        tokio::select! {
            () = deliveries.space() => {}
            () = env.sleep(SPACE_PATIENCE) => {}
        }
    }
}

/// What a table's brokers are called where they do not answer.
pub fn brokers_of(topic: Option<&str>) -> String {
    format!("the brokers of {}", description(topic))
}

/// What a table is, for progress and messages.
pub fn description(topic: Option<&str>) -> String {
    format!("KafkaTable[{}]", topic.unwrap_or("by column"))
}

/// Connects, and makes sure that the topic of all rows exists. Blocks.
fn connect(
    settings: &ClientSettings,
    env: &Env,
    table: &str,
    topic: Option<&str>,
    contact: Arc<ContactWith>,
) -> Result<Producer, SinkError> {
    let partitions = partitions_of(settings, env, table, topic)?;
    let config = settings.producer_to(partitions.found.len());
    let native = config.create_native_config().map_err(client_error).map_err(SinkError::Cluster)?;
    let bytes_max = native.get("message.max.bytes").ok().and_then(|text| text.parse().ok());
    let deliveries =
        Deliveries::new(env.clone(), table, settings.servers(), bytes_max.unwrap_or(0));
    let client: ProducerClient =
        config.create_with_context(deliveries).map_err(client_error).map_err(SinkError::Cluster)?;
    let client = Arc::new(client);
    create_missing(&partitions, settings, env, &client)?;
    let poller = Poller::start(env, "kafka-writer", client.clone(), contact);
    Ok(Producer { outbox: Outbox::new(client), _poller: poller })
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

fn partitions_of(
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

fn create_missing(
    partitions: &Partitions,
    settings: &ClientSettings,
    env: &Env,
    client: &ProducerClient,
) -> Result<(), SinkError> {
    let Some(topic) = partitions.missing.first().cloned() else { return Ok(()) };
    // The producer's own question makes the broker create the topic, if it is set up so.
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

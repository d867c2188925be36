//! The Kafka sink, at least once: rows become records, in order.
//!
//! Rows are handed to a [thread that writes](protocol), or with settings or brokers that it does
//! not have to the queue of librdkafka. The acknowledgement completes when the brokers have them
//! all; nothing is flushed, and the driver waits for no round trip. Either client is idempotent, so
//! its own retries neither double records nor change their order; a micro-batch that is repeated
//! after a crash is written again.

mod protocol;

use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use millstream_engine::api::connector::FlowContext;
use millstream_engine::api::contact::ContactWith;
use millstream_engine::api::sink::{Acknowledgement, Failure, Output};
use millstream_store::env::Env;
use rdkafka::producer::Producer as _;

use super::columns::{SinkColumns, SinkRows};
use super::exactly_once::ProtocolSettings;
use super::outbox::Outbox;
use super::refused::{convert_errors, refused};
use super::topic::{brokers_of, create_missing, partitions_of};
use crate::brokers::settings::warn_of_librdkafka;
use crate::client::cluster::client_error;
use crate::client::context::Context;
use crate::client::create::create;
use crate::client::delivery_reports::{Deliveries, Pending};
use crate::client::native::ProducerClient;
use crate::client::poller::Poller;
use crate::client::settings::ClientSettings;
use crate::error::SinkError;
use crate::protocol::frame::FOR_WRITING;
use protocol::{ProtocolWriter, WriterContext};

/// A publisher that waits for space tries again after this time, even without a report.
const SPACE_PATIENCE: Duration = Duration::from_millis(10);
/// How long closing waits for the delivery reports of records in flight.
const CLOSE_PATIENCE: Duration = Duration::from_secs(30);
/// How often closing checks whether records are still in flight.
const CLOSE_INTERVAL: Duration = Duration::from_millis(1);

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
    /// What waits for the records of a micro-batch that is not published yet.
    begun: Option<(Arc<Pending>, Acknowledgement)>,
}

/// Who writes.
enum Producer {
    /// The protocol writer.
    Protocol(ProtocolWriter),
    /// librdkafka.
    Librdkafka(LibrdkafkaProducer),
}

/// The client, and the thread that serves it.
struct LibrdkafkaProducer {
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
            begun: None,
        }
    }

    async fn enqueue(
        &mut self,
        rows: SinkRows,
        bytes: usize,
        pending: &Arc<Pending>,
    ) -> Result<(), SinkError> {
        let producer = self.producer.as_mut().expect("the driver opens a sink before it uses it");
        let producer = match producer {
            Producer::Librdkafka(producer) => producer,
            Producer::Protocol(writer) => {
                while !writer.has_space(bytes) {
                    tokio::select! {
                        () = writer.space() => {}
                        () = self.env.sleep(SPACE_PATIENCE) => {}
                    }
                }
                writer.put(rows, bytes, pending);
                return Ok(());
            }
        };
        let mut row = 0;
        loop {
            row = producer.outbox.put(&rows, row, self.topic.as_deref(), pending)?;
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
        let connecting = move || connect(&settings, &env, &table, topic, contact);
        self.producer = Some(self.env.spawn_blocking("kafka-open", connecting).join().await?);
        Ok(())
    }

    /// Hands one micro-batch over; waits while the client's queue is full.
    pub async fn publish(&mut self, output: Output) -> Result<Acknowledgement, Failure> {
        for rows in output.record_batches() {
            self.write(rows).await?;
        }
        let published = self.begun.take().unwrap_or_else(|| Pending::new(&self.env));
        Ok(convert_errors(published.1, &self.columns))
    }

    /// Hands rows of the next micro-batch over; waits while the client's queue is full.
    pub async fn write(&mut self, rows: &RecordBatch) -> Result<(), Failure> {
        let bytes = rows.get_array_memory_size();
        let rows = self.columns.of(rows).map_err(|error| refused(error, &self.columns))?;
        let begun = self.begun.get_or_insert_with(|| Pending::new(&self.env));
        let pending = Arc::clone(&begun.0);
        let enqueued = self.enqueue(rows, bytes, &pending).await;
        enqueued.map_err(|error| refused(error, &self.columns))
    }

    /// Waits for the records in flight, and releases the client.
    pub async fn close(&mut self) -> Result<(), Failure> {
        let Some(producer) = self.producer.take() else { return Ok(()) };
        let begun = self.env.monotonic();
        let in_flight = loop {
            let in_flight = producer.in_flight();
            let waited = self.env.monotonic().saturating_sub(begun);
            if in_flight == 0 || waited > CLOSE_PATIENCE {
                break in_flight;
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
    /// Records that are not delivered yet.
    fn in_flight(&self) -> usize {
        match self {
            Self::Protocol(writer) => writer.in_flight(),
            Self::Librdkafka(producer) => {
                usize::try_from(producer.client().in_flight_count()).unwrap_or(0)
            }
        }
    }
}

impl LibrdkafkaProducer {
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

/// Connects, and makes sure that the topic of all rows exists. Blocks.
fn connect(
    settings: &ClientSettings,
    env: &Env,
    table: &str,
    topic: Option<Arc<str>>,
    contact: Arc<ContactWith>,
) -> Result<Producer, SinkError> {
    let partitions = partitions_of(settings, env, table, topic.as_deref())?;
    let reason = match ProtocolSettings::of(settings, settings.client()) {
        Err(not_spoken) => not_spoken.reason(),
        Ok(protocol) => {
            let context = WriterContext {
                settings: protocol,
                patience: settings.delivery_timeout(),
                servers: settings.servers().to_owned(),
                table: table.to_owned(),
                topic,
                contact: Arc::clone(&contact),
                env: env.clone(),
            };
            let mut brokers = context.brokers();
            match brokers.lacks(&FOR_WRITING) {
                None => {
                    let missing = partitions.missing.first().map(String::as_str);
                    let writer = ProtocolWriter::start(context, brokers, missing)?;
                    return Ok(Producer::Protocol(writer));
                }
                reason => reason,
            }
        }
    };
    if let Some(reason) = reason {
        warn_of_librdkafka(table, "writes", &reason);
    }
    let config = settings.producer_to(partitions.found.len());
    let native = config.create_native_config().map_err(client_error).map_err(SinkError::Cluster)?;
    let bytes_max = native.get("message.max.bytes").ok().and_then(|text| text.parse().ok());
    let events = Context::new(env.clone(), table, settings.tokens());
    let deliveries = Deliveries::new(events, settings.servers(), bytes_max.unwrap_or(0));
    let client: ProducerClient =
        create(&config, deliveries).map_err(client_error).map_err(SinkError::Cluster)?;
    let client = Arc::new(client);
    create_missing(&partitions, settings, env, &client)?;
    let poller = Poller::start(env, "kafka-writer", client.clone(), contact);
    let outbox = Outbox::new(client);
    Ok(Producer::Librdkafka(LibrdkafkaProducer { outbox, _poller: poller }))
}

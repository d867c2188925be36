//! Messages into a topic of Kafka, without keys, so that partitions take turns.

use std::sync::Arc;
use std::time::Duration;

use millstream_store::error::Failure;
use parking_lot::Mutex;
use rdkafka::config::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext};
use rdkafka::{ClientContext, consumer::BaseConsumer, consumer::Consumer};

use super::output::Output;
use crate::client_error::ClientError;

const REQUEST_LIMIT: Duration = Duration::from_secs(10);
const LAST_ACKNOWLEDGEMENTS: Duration = Duration::from_secs(60);

/// A topic that messages are written to.
pub struct Topic {
    name: String,
    producer: BaseProducer<Refused>,
    refused: Arc<Mutex<Option<KafkaError>>>,
}

/// Keeps the first record that the broker did not take.
struct Refused(Arc<Mutex<Option<KafkaError>>>);

impl ClientContext for Refused {}

impl ProducerContext for Refused {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if let Err((error, _)) = result {
            self.0.lock().get_or_insert_with(|| error.clone());
        }
    }
}

impl Topic {
    /// The topic, which must be there. Errors: it is not, or the brokers do not answer.
    pub fn open(brokers: &str, name: &str) -> Result<Self, Failure> {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", brokers).set("socket.nagle.disable", "true");
        look(&config, name)?;
        config.set("acks", "all").set("enable.idempotence", "true").set("linger.ms", "5");
        config.set("batch.size", "1000000").set("queue.buffering.max.kbytes", "524288");
        let refused = Arc::new(Mutex::new(None));
        let producer = config
            .create_with_context(Refused(Arc::clone(&refused)))
            .map_err(|error| failure(name, error))?;
        Ok(Self { name: name.to_owned(), producer, refused })
    }

    fn send(&mut self, mut record: BaseRecord<'_, (), [u8]>) -> Result<(), Failure> {
        while let Err((error, unsent)) = self.producer.send(record) {
            if error.rdkafka_error_code() != Some(RDKafkaErrorCode::QueueFull) {
                return Err(failure(&self.name, error));
            }
            self.producer.poll(Duration::from_millis(1));
            self.check()?;
            record = unsent;
        }
        Ok(())
    }

    fn check(&self) -> Result<(), Failure> {
        match self.refused.lock().take() {
            Some(error) => Err(failure(&self.name, error)),
            None => Ok(()),
        }
    }
}

fn look(config: &ClientConfig, name: &str) -> Result<(), Failure> {
    let client: BaseConsumer = config.create().map_err(|error| failure(name, error))?;
    let fetched = client.fetch_metadata(Some(name), REQUEST_LIMIT);
    let metadata = fetched.map_err(|error| failure(name, error))?;
    if metadata.topics().iter().all(|topic| topic.partitions().is_empty()) {
        return Err(ClientError::NoTopic { topic: name.to_owned() }.into());
    }
    Ok(())
}

fn failure(topic: &str, error: KafkaError) -> Failure {
    ClientError::NotWritten { topic: topic.to_owned(), error }.into()
}

impl Output for Topic {
    fn write(&mut self, message: &[u8]) -> Result<(), Failure> {
        let name = self.name.clone();
        self.send(BaseRecord::<(), [u8]>::to(&name).payload(message))
    }

    fn tick(&mut self) -> Result<(), Failure> {
        self.producer.poll(Duration::ZERO);
        self.check()
    }

    fn finish(&mut self) -> Result<(), Failure> {
        let flushed = self.producer.flush(LAST_ACKNOWLEDGEMENTS);
        flushed.map_err(|error| failure(&self.name, error))?;
        self.check()
    }
}

//! A producer whose records leave when they are due, whatever becomes of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millstream_store::env::Env;
use rdkafka::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::ToBytes;
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext};

use crate::clock::Clock;
use crate::error::Error;
use crate::settings;

/// Records that came due within this time are sent together: a wake-up for each would load the
/// machine at high rates. At 1000 records a second most leave alone, at their moment.
const PAUSE_MIN: Duration = Duration::from_micros(500);
const ACKNOWLEDGED_WITHIN: Duration = Duration::from_secs(60);

/// Sends records to one topic.
pub struct Sender {
    env: Env,
    clock: Clock,
    topic: String,
    producer: BaseProducer<CountRefused>,
    refused: Arc<AtomicU64>,
}

impl Sender {
    /// Of about `rate` records a second.
    pub fn new(
        env: &Env,
        clock: &Clock,
        brokers: &str,
        topic: &str,
        rate: u64,
    ) -> Result<Self, Error> {
        Self::with(env, clock, topic, &settings::generator(brokers, rate))
    }

    /// For as many records as the topic is to have, as fast as the broker takes them.
    pub fn for_filling(env: &Env, brokers: &str, topic: &str) -> Result<Self, Error> {
        Self::with(env, &Clock::new(env), topic, &settings::filler(brokers))
    }

    /// The same with `config` instead of the settings of a topic that is filled.
    pub fn with_settings(env: &Env, topic: &str, config: &ClientConfig) -> Result<Self, Error> {
        Self::with(env, &Clock::new(env), topic, config)
    }

    fn with(env: &Env, clock: &Clock, topic: &str, config: &ClientConfig) -> Result<Self, Error> {
        let refused = Arc::new(AtomicU64::new(0));
        let context = CountRefused { refused: Arc::clone(&refused) };
        let producer = config.create_with_context(context);
        Ok(Self {
            env: env.clone(),
            clock: clock.clone(),
            topic: topic.to_owned(),
            producer: producer.map_err(Error::kafka("starting the generator's producer"))?,
            refused,
        })
    }

    /// The topic.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// Has what was sent leave now.
    pub fn poll(&self) {
        self.producer.poll(Duration::ZERO);
    }

    /// Sleeps until a moment in microseconds since the epoch.
    pub fn wait_until(&self, due_us: i64) {
        let early_us = due_us - self.clock.now_us();
        let Ok(early_us) = u64::try_from(early_us) else { return };
        self.poll();
        std::thread::sleep(Duration::from_micros(early_us).max(PAUSE_MIN));
    }

    /// Hands a record without a key to the client; without a partition, partitions take turns. Its
    /// time is in milliseconds since the epoch.
    pub fn write(
        &self,
        value: &[u8],
        partition: Option<i32>,
        time_ms: Option<i64>,
    ) -> Result<(), Error> {
        let mut record = BaseRecord::<(), [u8]>::to(&self.topic).payload(value);
        record.partition = partition;
        record.timestamp = time_ms;
        self.send(record)
    }

    /// Hands a record to the client, and waits while that has no room.
    pub fn send<K: ToBytes + ?Sized>(
        &self,
        mut record: BaseRecord<'_, K, [u8]>,
    ) -> Result<(), Error> {
        while let Err((error, unsent)) = self.producer.send(record) {
            if error.rdkafka_error_code() != Some(RDKafkaErrorCode::QueueFull) {
                return Err(Error::kafka(format!("sending to {}", self.topic))(error));
            }
            self.producer.poll(Duration::from_millis(1));
            record = unsent;
        }
        Ok(())
    }

    /// Waits until the broker has it all. Errors if it refused some.
    pub fn flush(&self) -> Result<(), Error> {
        let asked = self.env.monotonic();
        while self.producer.in_flight_count() > 0 {
            self.producer.poll(Duration::from_millis(1));
            if self.env.monotonic() - asked > ACKNOWLEDGED_WITHIN {
                let timed_out = KafkaError::Flush(RDKafkaErrorCode::OperationTimedOut);
                return Err(Error::kafka(format!("sending to {}", self.topic))(timed_out));
            }
        }
        match self.refused.load(Ordering::Relaxed) {
            0 => Ok(()),
            refused => Err(Error::Refused { refused }),
        }
    }
}

struct CountRefused {
    refused: Arc<AtomicU64>,
}

impl ClientContext for CountRefused {}

impl ProducerContext for CountRefused {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if result.is_err() {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
    }
}

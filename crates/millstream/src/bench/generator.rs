//! The generator: sends records when they are due, whatever becomes of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use millstream_store::env::Env;
use rdkafka::ClientContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext};

use super::clock::Clock;
use super::error::Error;
use super::payload::{self, Payload};
use super::quantiles::{Latencies, Quantiles};
use super::schedule::Schedule;
use super::settings;

/// Records that came due within this time are sent together: a wake-up for each would load the
/// machine at high rates. At 1000 records a second most leave alone, at their moment.
const PAUSE_MIN: Duration = Duration::from_micros(500);
/// Different keys; many, so that every partition gets its share.
const KEYS: u64 = 1_024;
const ACKNOWLEDGED_WITHIN: Duration = Duration::from_secs(60);

/// Sends records to one topic.
pub struct Generator {
    env: Env,
    clock: Clock,
    topic: String,
    size: usize,
    producer: BaseProducer<CountRefused>,
    refused: Arc<AtomicU64>,
}

/// What the generator did.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// Records handed to the client.
    pub records: u64,
    /// How long after it was due a record was handed over. This is contained in every latency: it
    /// is the measuring side's own part, and that of a machine that is too busy.
    pub late: Quantiles,
}

impl Generator {
    /// A generator of records of `size` bytes.
    pub fn new(
        env: &Env,
        clock: &Clock,
        brokers: &str,
        topic: &str,
        rate: u64,
        size: usize,
    ) -> Result<Self, Error> {
        let refused = Arc::new(AtomicU64::new(0));
        let context = CountRefused { refused: Arc::clone(&refused) };
        let producer = settings::generator(brokers, rate).create_with_context(context);
        Ok(Self {
            env: env.clone(),
            clock: clock.clone(),
            topic: topic.to_owned(),
            size,
            producer: producer.map_err(Error::kafka("starting the generator's producer"))?,
            refused,
        })
    }

    /// Sends a probe to each of `partitions`.
    pub fn probe(&self, partitions: impl IntoIterator<Item = i32>) -> Result<(), Error> {
        let mut value = Vec::with_capacity(self.size);
        for partition in partitions {
            payload::encode(Payload::Probe { partition }, self.size, &mut value);
            let key = format!("probe-{partition}");
            let record = BaseRecord::to(&self.topic).key(key.as_str()).payload(value.as_slice());
            self.send(record.partition(partition))?;
        }
        self.producer.poll(Duration::ZERO);
        Ok(())
    }

    /// Sends the whole schedule, unless told to give up, and waits until the broker has it all.
    pub fn run(&self, schedule: Schedule, give_up: &AtomicBool) -> Result<Sent, Error> {
        let mut late = Latencies::new();
        let mut value = Vec::with_capacity(self.size);
        let mut records = 0;
        for due in schedule.take_while(|_| !give_up.load(Ordering::Relaxed)) {
            self.wait_until(due.due_us);
            let payload = Payload::Record { due_us: due.due_us, number: due.number };
            payload::encode(payload, self.size, &mut value);
            let key = (due.number % KEYS).to_string();
            let record = BaseRecord::to(&self.topic).key(key.as_str()).payload(value.as_slice());
            self.send(record)?;
            late.add(self.clock.now_us() - due.due_us);
            records += 1;
        }
        self.flush()?;
        Ok(Sent { records, late: late.quantiles() })
    }

    fn wait_until(&self, due_us: i64) {
        let early_us = due_us - self.clock.now_us();
        let Ok(early_us) = u64::try_from(early_us) else { return };
        self.producer.poll(Duration::ZERO);
        std::thread::sleep(Duration::from_micros(early_us).max(PAUSE_MIN));
    }

    fn send(&self, mut record: BaseRecord<'_, str, [u8]>) -> Result<(), Error> {
        while let Err((error, unsent)) = self.producer.send(record) {
            if error.rdkafka_error_code() != Some(RDKafkaErrorCode::QueueFull) {
                return Err(Error::kafka(format!("sending to {}", self.topic))(error));
            }
            self.producer.poll(Duration::from_millis(1));
            record = unsent;
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), Error> {
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

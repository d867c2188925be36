//! The floor under exactly-once with one client: read what is there, write it and how far it
//! was read in one transaction, and so on.
//!
//! A transaction ends when all its records are acknowledged, and not later: the client's thread
//! takes the acknowledgements in, and the last one wakes this one. A producer that is polled here
//! would not do: its binding waits out the time that it is given, whatever comes meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::BorrowedMessage;
use rdkafka::producer::{DeliveryResult, Producer, ProducerContext, ThreadedProducer};
use rdkafka::topic_partition_list::Offset;
use rdkafka::{ClientContext, TopicPartitionList};

use super::{
    BaseConsumer, Consumer, Duration, Error, Flags, Message, POLL, offsets, record_of, settings,
};

const REQUEST_LIMIT: Duration = Duration::from_secs(30);
/// How soon a full queue is looked at again.
const SPACE_INTERVAL: Duration = Duration::from_millis(1);
/// The largest transaction.
const RECORDS_MAX: usize = 10_000;

/// Relays until the process is ended.
pub fn run(flags: &Flags) -> Result<(), Error> {
    let consumer: BaseConsumer = settings::relay_consumer(&flags.brokers)
        .create()
        .map_err(Error::kafka("starting the relay's consumer"))?;
    let ends = offsets::ends(&consumer, &flags.from)?;
    let failed = || Error::kafka(format!("writing {} in transactions", flags.to));
    let reading = || Error::kafka(format!("reading {}", flags.from));
    let mut writer = Writer::start(flags).map_err(failed())?;
    consumer.assign(&ends).map_err(reading())?;
    let group = consumer.group_metadata().expect("the consumer has a group");
    loop {
        let Some(mut next) = consumer.poll(POLL) else { continue };
        let mut ends = BTreeMap::new();
        writer.producer.begin_transaction().map_err(failed())?;
        for _ in 0..RECORDS_MAX {
            // The words are made only for an error: not for each record.
            let record = next.map_err(|error| reading()(error))?;
            writer.send(&flags.to, &record).map_err(|error| failed()(error))?;
            ends.insert(record.partition(), record.offset() + 1);
            match consumer.poll(Duration::ZERO) {
                Some(following) => next = following,
                None => break,
            }
        }
        let ends = list(&flags.from, &ends).map_err(failed())?;
        writer.wait().map_err(failed())?;
        let producer = &writer.producer;
        producer.send_offsets_to_transaction(&ends, &group, REQUEST_LIMIT).map_err(failed())?;
        producer.commit_transaction(REQUEST_LIMIT).map_err(failed())?;
    }
}

/// The producer, and what it has acknowledged.
struct Writer {
    producer: ThreadedProducer<Context>,
    sent: u64,
    acknowledged: Arc<Acknowledged>,
}

impl Writer {
    fn start(flags: &Flags) -> Result<Self, KafkaError> {
        let acknowledged = Arc::<Acknowledged>::default();
        let config = settings::relay_transactional_producer(&flags.brokers, &flags.to);
        let producer: ThreadedProducer<Context> =
            config.create_with_context(Context(Arc::clone(&acknowledged)))?;
        producer.init_transactions(REQUEST_LIMIT)?;
        Ok(Self { producer, sent: 0, acknowledged })
    }

    fn send(&mut self, to: &str, message: &BorrowedMessage<'_>) -> Result<(), KafkaError> {
        let mut record = record_of(to, message);
        while let Err((error, unsent)) = self.producer.send(record) {
            if error.rdkafka_error_code() != Some(RDKafkaErrorCode::QueueFull) {
                return Err(error);
            }
            std::thread::sleep(SPACE_INTERVAL);
            record = unsent;
        }
        self.sent += 1;
        Ok(())
    }

    /// Waits until all that was sent is acknowledged, or refused: then the commit fails.
    fn wait(&self) -> Result<(), KafkaError> {
        self.acknowledged.wait_for(self.sent)?;
        // The last report is counted a moment before it leaves the client's queue. Committing
        // would wait for that in steps of 100 ms.
        while self.producer.in_flight_count() > 0 {
            std::thread::yield_now();
        }
        Ok(())
    }
}

/// How many records were acknowledged or refused.
#[derive(Default)]
struct Acknowledged {
    counts: Mutex<Counts>,
    enough: Condvar,
}

#[derive(Default)]
struct Counts {
    records: u64,
    /// How many are waited for.
    wanted: u64,
}

impl Acknowledged {
    fn add_one(&self) {
        let mut counts = self.counts.lock();
        counts.records += 1;
        if counts.records == counts.wanted {
            self.enough.notify_one();
        }
    }

    fn wait_for(&self, records: u64) -> Result<(), KafkaError> {
        let mut counts = self.counts.lock();
        counts.wanted = records;
        while counts.records < records {
            if self.enough.wait_for(&mut counts, REQUEST_LIMIT).timed_out() {
                return Err(KafkaError::Flush(RDKafkaErrorCode::OperationTimedOut));
            }
        }
        Ok(())
    }
}

struct Context(Arc<Acknowledged>);

impl ClientContext for Context {}

impl ProducerContext for Context {
    type DeliveryOpaque = ();

    fn delivery(&self, _result: &DeliveryResult<'_>, (): ()) {
        self.0.add_one();
    }
}

fn list(topic: &str, ends: &BTreeMap<i32, i64>) -> Result<TopicPartitionList, KafkaError> {
    let mut list = TopicPartitionList::new();
    for (partition, end) in ends {
        list.add_partition_offset(topic, *partition, Offset::Offset(*end))?;
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_with_the_last_acknowledgement() {
        let acknowledged = Acknowledged::default();
        acknowledged.add_one();
        acknowledged.wait_for(1).expect("it is there already");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| acknowledged.wait_for(3));
            while acknowledged.counts.lock().wanted != 3 {
                std::thread::yield_now();
            }
            acknowledged.add_one();
            assert!(!waiting.is_finished());
            acknowledged.add_one();
            waiting.join().expect("it does not panic").expect("all are there");
        });
    }
}

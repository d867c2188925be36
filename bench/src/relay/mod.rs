//! The bare relay: what the Kafka client alone can do. A topic's records go to another topic with
//! key and value, nothing is computed, logged or remembered; it is the floor under any engine.
//!
//! A process of its own, like the engine beside it, so that the two share nothing with the meter
//! and their processor time and memory can be told apart.

mod transactions;

use std::time::Duration;

use rdkafka::Message;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::message::BorrowedMessage;
use rdkafka::producer::{BaseProducer, BaseRecord};

use crate::error::Error;
use crate::{offsets, settings};

/// How often acknowledgements are looked at when nothing comes in.
const POLL: Duration = Duration::from_millis(10);

/// Flags of the relay process.
#[derive(Debug, clap::Args)]
pub struct Flags {
    /// Broker to connect to, HOST:PORT
    #[arg(long)]
    brokers: String,
    /// Topic to read, from its end
    #[arg(long)]
    from: String,
    /// Topic to write
    #[arg(long)]
    to: String,
    /// Write what is there in a transaction, with the offsets it was read up to
    #[arg(long)]
    transactions: bool,
}

/// Relays until the process is ended.
pub fn run(flags: &Flags) -> Result<(), Error> {
    if flags.transactions { transactions::run(flags) } else { run_plainly(flags) }
}

fn run_plainly(flags: &Flags) -> Result<(), Error> {
    let consumer: BaseConsumer = settings::relay_consumer(&flags.brokers)
        .create()
        .map_err(Error::kafka("starting the relay's consumer"))?;
    let ends = offsets::ends(&consumer, &flags.from)?;
    let producer: BaseProducer = settings::relay_producer(&flags.brokers, ends.count())
        .create()
        .map_err(Error::kafka("starting the relay's producer"))?;
    consumer.assign(&ends).map_err(Error::kafka(format!("reading {}", flags.from)))?;
    loop {
        producer.poll(Duration::ZERO);
        let Some(message) = consumer.poll(POLL) else { continue };
        // The words are made only for an error: not for each record.
        let message =
            message.map_err(|error| Error::kafka(format!("reading {}", flags.from))(error))?;
        send(&producer, &flags.to, &message)?;
    }
}

fn send(producer: &BaseProducer, to: &str, message: &BorrowedMessage<'_>) -> Result<(), Error> {
    let mut record = record_of(to, message);
    while let Err((error, unsent)) = producer.send(record) {
        if error.rdkafka_error_code() != Some(RDKafkaErrorCode::QueueFull) {
            return Err(Error::kafka(format!("writing {to}"))(error));
        }
        producer.poll(Duration::from_millis(1));
        record = unsent;
    }
    Ok(())
}

/// The same key and value, for another topic.
fn record_of<'m>(to: &'m str, message: &'m BorrowedMessage<'_>) -> BaseRecord<'m, [u8], [u8]> {
    let mut record = BaseRecord::to(to);
    record.key = message.key();
    record.payload = message.payload();
    record
}

//! The floor under exactly-once with one client: read what is there, write it and how far it
//! was read in one transaction, and so on.

use std::collections::BTreeMap;

use rdkafka::TopicPartitionList;
use rdkafka::error::KafkaError;
use rdkafka::producer::Producer;
use rdkafka::topic_partition_list::Offset;

use super::{
    BaseConsumer, BaseProducer, Consumer, Duration, Error, Flags, Message, POLL, offsets, send,
    settings,
};

const REQUEST_LIMIT: Duration = Duration::from_secs(30);
/// The largest transaction.
const RECORDS_MAX: usize = 10_000;

/// Relays until the process is ended.
pub fn run(flags: &Flags) -> Result<(), Error> {
    let consumer: BaseConsumer = settings::relay_consumer(&flags.brokers)
        .create()
        .map_err(Error::kafka("starting the relay's consumer"))?;
    let ends = offsets::ends(&consumer, &flags.from)?;
    let mut config = settings::relay_producer(&flags.brokers, ends.count());
    config.set("transactional.id", &flags.to);
    let producer: BaseProducer =
        config.create().map_err(Error::kafka("starting the relay's producer"))?;
    let failed = || Error::kafka(format!("writing {} in transactions", flags.to));
    producer.init_transactions(REQUEST_LIMIT).map_err(failed())?;
    consumer.assign(&ends).map_err(Error::kafka(format!("reading {}", flags.from)))?;
    let group = consumer.group_metadata().expect("the consumer has a group");
    loop {
        producer.poll(Duration::ZERO);
        let Some(mut next) = consumer.poll(POLL) else { continue };
        let mut ends = BTreeMap::new();
        producer.begin_transaction().map_err(failed())?;
        for _ in 0..RECORDS_MAX {
            let record = next.map_err(Error::kafka(format!("reading {}", flags.from)))?;
            send(&producer, &flags.to, &record)?;
            ends.insert(record.partition(), record.offset() + 1);
            match consumer.poll(Duration::ZERO) {
                Some(following) => next = following,
                None => break,
            }
        }
        let ends = list(&flags.from, &ends).map_err(failed())?;
        // The commit waits for acknowledgements, and would not take them in.
        while producer.in_flight_count() > 0 {
            producer.poll(POLL);
        }
        producer.send_offsets_to_transaction(&ends, &group, REQUEST_LIMIT).map_err(failed())?;
        producer.commit_transaction(REQUEST_LIMIT).map_err(failed())?;
    }
}

fn list(topic: &str, ends: &BTreeMap<i32, i64>) -> Result<TopicPartitionList, KafkaError> {
    let mut list = TopicPartitionList::new();
    for (partition, end) in ends {
        list.add_partition_offset(topic, *partition, Offset::Offset(*end))?;
    }
    Ok(list)
}

//! Kafka client settings of everything that a benchmark runs.
//!
//! The relay's settings are those that the product's Kafka connector chooses by itself, so that the
//! ratio of the two shows the engine and not a difference in client settings. The meter's and the
//! generator's are the same whatever is measured.

use rdkafka::config::ClientConfig;

/// Above this rate the generator collects records for a millisecond before it sends them.
const UNHURRIED_RATE_MAX: u64 = 5_000;

/// Up to so many the connector has two requests under way to a broker, not five.
const FEW_PARTITIONS: usize = 8;

/// The generator's `linger.ms` at a rate.
///
/// At low rates a record leaves at once. At high rates sending each alone would cost the broker a
/// request per record and load the machine with the generator instead of the system under test.
pub fn generator_linger_ms(rate: u64) -> u64 {
    u64::from(rate > UNHURRIED_RATE_MAX)
}

/// The generator's producer. Idempotent, so that a repeat in the output is not the generator's.
pub fn generator(brokers: &str, rate: u64) -> ClientConfig {
    let mut config = producer(brokers);
    config.set("linger.ms", generator_linger_ms(rate).to_string());
    config
}

/// The producer that fills a topic before the measurement, and the bare ones of measurements of
/// throughput: few, large requests.
pub fn filler(brokers: &str) -> ClientConfig {
    let mut config = producer(brokers);
    config.set("linger.ms", "5").set("batch.size", "1000000");
    config
}

/// The meter's consumer: committed records only, each as soon as the broker has it.
pub fn meter(brokers: &str) -> ClientConfig {
    let mut config = consumer(brokers);
    config.set("isolation.level", "read_committed");
    config.set("fetch.wait.max.ms", "10");
    config
}

/// The relay's consumer: what the Kafka connector reads with unless a user says otherwise.
pub fn relay_consumer(brokers: &str) -> ClientConfig {
    let mut config = consumer(brokers);
    config.set("isolation.level", "read_uncommitted");
    config.set("fetch.wait.max.ms", "100");
    config
}

/// The relay's producer: what the Kafka connector writes with unless a user says otherwise.
pub fn relay_producer(brokers: &str, partitions: usize) -> ClientConfig {
    let mut config = producer(brokers);
    if partitions <= FEW_PARTITIONS {
        config.set("max.in.flight.requests.per.connection", "2");
    }
    config.set("linger.ms", "0");
    config.set("sticky.partitioning.linger.ms", "10");
    config
}

/// The transactional relay's producer: what the Kafka connector gives librdkafka for transactions.
/// The number of requests under way is librdkafka's own there, however few the partitions.
pub fn relay_transactional_producer(brokers: &str, id: &str) -> ClientConfig {
    let mut config = producer(brokers);
    config.set("transactional.id", id);
    config.set("transaction.timeout.ms", "30000");
    config.set("linger.ms", "0");
    config.set("sticky.partitioning.linger.ms", "10");
    // How soon a broker that is busy with the end of a transaction is asked again.
    config.set("retry.backoff.ms", "5");
    config
}

/// The bare consumer of measurements of throughput: its queue is never what it waits for. It is a
/// member of no group.
pub fn bulk_consumer(brokers: &str) -> ClientConfig {
    let mut config = consumer(brokers);
    config.remove("group.id");
    config.set("isolation.level", "read_uncommitted");
    config.set("fetch.wait.max.ms", "100");
    config.set("queued.min.messages", "1000000");
    // Of each partition.
    config.set("queued.max.messages.kbytes", "262144");
    config
}

/// Everything else: metadata, topics.
pub fn client(brokers: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers);
    config.set("socket.nagle.disable", "true");
    config
}

fn consumer(brokers: &str) -> ClientConfig {
    let mut config = client(brokers);
    // Partitions are assigned by hand and nothing is committed; the client wants a name all the
    // same.
    config.set("group.id", "millstream-bench");
    config.set("enable.auto.commit", "false");
    config.set("enable.auto.offset.store", "false");
    config.set("auto.offset.reset", "error");
    // How soon fetching goes on after the queue was full; the default is a second.
    config.set("fetch.queue.backoff.ms", "5");
    config.set("queued.max.messages.kbytes", "65536");
    config
}

fn producer(brokers: &str) -> ClientConfig {
    let mut config = client(brokers);
    config.set("acks", "all");
    config.set("enable.idempotence", "true");
    // The partitioner of Kafka's own clients, so that a key has the same partition everywhere.
    config.set("partitioner", "murmur2_random");
    config.set("queue.buffering.max.messages", "1000000");
    config.set("queue.buffering.max.kbytes", "524288");
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether librdkafka takes them is known only from asking it: a transactional producer and a
    /// consumer without a group are refused with some settings.
    #[test]
    fn clients_can_be_made_with_them() {
        use rdkafka::consumer::BaseConsumer;
        use rdkafka::producer::BaseProducer;

        let nowhere = "127.0.0.1:1";
        for producer in [
            relay_producer(nowhere, 1),
            relay_transactional_producer(nowhere, "id"),
            filler(nowhere),
        ] {
            let made = producer.create::<BaseProducer>();
            drop(made.expect("it is made"));
        }
        for consumer in [relay_consumer(nowhere), bulk_consumer(nowhere), meter(nowhere)] {
            let made = consumer.create::<BaseConsumer>();
            drop(made.expect("it is made"));
        }
    }

    #[test]
    fn a_relay_has_two_requests_under_way_where_the_connector_has_no_more() {
        let in_flight = |config: ClientConfig| {
            config.get("max.in.flight.requests.per.connection").map(str::to_owned)
        };
        assert_eq!(in_flight(relay_producer("h:1", 8)).as_deref(), Some("2"));
        assert_eq!(in_flight(relay_producer("h:1", 9)), None);
        assert_eq!(in_flight(relay_transactional_producer("h:1", "id")), None);
    }
}

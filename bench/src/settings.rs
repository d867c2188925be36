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

/// The producer that fills a topic before the measurement: few, large requests.
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

//! Topics and records of a broker, for tests: whatever goes wrong is a panic.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rdkafka::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Header, Headers, Message, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use crate::admin::{Admin, admin_options, block_on};
use crate::wait;

const REQUEST_LIMIT: Duration = Duration::from_secs(30);

/// A record to produce.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// `None` lets the client choose.
    pub partition: Option<i32>,
    /// The key.
    pub key: Option<Vec<u8>>,
    /// `None` is a tombstone.
    pub value: Option<Vec<u8>>,
    /// Milliseconds since the epoch; `None` for the time of sending.
    pub timestamp_ms: Option<i64>,
    /// Names and values.
    pub headers: Vec<(String, Vec<u8>)>,
}

impl Record {
    /// A record with a value; the broker's client chooses the partition.
    pub fn of(value: impl Into<Vec<u8>>) -> Self {
        Self { value: Some(value.into()), ..Self::default() }
    }

    /// With a key.
    pub fn key(mut self, key: impl Into<Vec<u8>>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// To a certain partition.
    pub fn to(mut self, partition: i32) -> Self {
        self.partition = Some(partition);
        self
    }

    /// With a time, milliseconds since the epoch.
    pub fn at_ms(mut self, timestamp_ms: i64) -> Self {
        self.timestamp_ms = Some(timestamp_ms);
        self
    }

    /// With one more header.
    pub fn header(mut self, name: &str, value: &[u8]) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// A record as a consumer sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Where it is.
    pub partition: i32,
    /// Where it is in the partition.
    pub offset: i64,
    /// Milliseconds since the epoch.
    pub timestamp_ms: Option<i64>,
    /// The key.
    pub key: Option<String>,
    /// `None` is a tombstone.
    pub value: Option<String>,
    /// Names and values.
    pub headers: Vec<(String, Option<Vec<u8>>)>,
}

impl Received {
    fn from_message(message: &BorrowedMessage<'_>) -> Self {
        let text = |bytes: Option<&[u8]>| {
            bytes.map(|bytes| String::from_utf8(bytes.to_vec()).expect("test records are text"))
        };
        let headers = message.headers().into_iter().flat_map(Headers::iter);
        Self {
            partition: message.partition(),
            offset: message.offset(),
            timestamp_ms: message.timestamp().to_millis(),
            key: text(message.key()),
            value: text(message.payload()),
            headers: headers.map(|h| (h.key.to_owned(), h.value.map(<[u8]>::to_vec))).collect(),
        }
    }

    /// The value of a record that must have one.
    pub fn value(&self) -> &str {
        self.value.as_deref().expect("the record has a value")
    }
}

/// The values of `records`, sorted: for comparing where order is nobody's promise.
pub fn sorted_values(records: &[Received]) -> Vec<String> {
    let mut values: Vec<_> = records.iter().map(|record| record.value().to_owned()).collect();
    values.sort();
    values
}

/// A producer that stays connected.
pub struct OpenProducer(BaseProducer<CountRefused>);

impl OpenProducer {
    /// Hands a record to the client and waits for nothing: [`Self::produce`] asks for
    /// acknowledgements in steps of a tenth of a second, which is long where time is measured.
    pub fn send(&self, topic: &str, record: &Record) {
        send(&self.0, topic, record);
    }

    /// Writes `records` and waits until all are acknowledged.
    pub fn produce(&self, topic: &str, records: impl IntoIterator<Item = Record>) {
        for record in records {
            send(&self.0, topic, &record);
        }
        self.0.flush(Duration::from_secs(120)).expect("the broker acknowledges");
        let refused = self.0.client().context().refused.load(Ordering::Relaxed);
        assert_eq!(refused, 0, "the broker refused records");
    }
}

/// A consumer of committed records that stays connected.
pub struct OpenReader(BaseConsumer);

impl OpenReader {
    /// Waits for the next record.
    pub fn next(&self) -> Received {
        match self.0.poll(REQUEST_LIMIT) {
            Some(Ok(message)) => Received::from_message(&message),
            Some(Err(error)) => panic!("reading on: {error}"),
            None => panic!("reading on: nothing came for {} s", REQUEST_LIMIT.as_secs()),
        }
    }

    /// Waits for the next record for so long. A broker that is away is waited for in the same way;
    /// what the reader cannot go on after is a panic.
    pub fn poll(&self, limit: Duration) -> Option<Received> {
        match self.0.poll(limit)? {
            Ok(message) => Some(Received::from_message(&message)),
            Err(
                error @ (KafkaError::MessageConsumptionFatal(_)
                | KafkaError::MessageConsumption(RDKafkaErrorCode::AutoOffsetReset)),
            ) => panic!("reading on: {error}"),
            Err(_) => None,
        }
    }
}

/// Topics and records of one broker or cluster.
pub struct Topics {
    servers: String,
    admin: Admin,
}

impl Topics {
    /// Of the broker at `servers`, HOST:PORT.
    pub fn new(servers: &str) -> Self {
        Self::with_replicas(servers, 1)
    }

    /// Of the brokers at `servers`; each partition of a topic has so many replicas.
    pub fn with_replicas(servers: &str, replicas: i32) -> Self {
        let admin = Admin::with_replicas(servers, replicas).expect("clients can be made");
        Self { servers: servers.to_owned(), admin }
    }

    /// The names of all topics.
    pub fn names(&self) -> Vec<String> {
        let metadata = self.admin.consumer().fetch_metadata(None, REQUEST_LIMIT);
        let metadata = metadata.expect("the broker answers");
        metadata.topics().iter().map(|topic| topic.name().to_owned()).collect()
    }

    /// Makes a topic.
    pub fn create(&self, topic: &str, partitions: usize) {
        self.create_with(topic, partitions, &[]);
    }

    /// Makes a topic with settings, for example `max.message.bytes`.
    pub fn create_with(&self, topic: &str, partitions: usize, settings: &[(&str, &str)]) {
        self.admin.create(topic, count(partitions), settings).unwrap();
    }

    /// Grows a topic to `partitions`.
    pub fn grow(&self, topic: &str, partitions: usize) {
        self.admin.grow(topic, count(partitions)).unwrap();
    }

    /// Deletes a topic and waits until it is gone.
    pub fn delete(&self, topic: &str) {
        self.admin.delete(&[topic]).unwrap();
        wait::until_true("the topic to be gone", REQUEST_LIMIT, || self.partitions(topic) == 0);
    }

    /// Removes the records of one partition before `offset`, as retention would.
    pub fn delete_before(&self, topic: &str, partition: i32, offset: i64) {
        let mut before = TopicPartitionList::new();
        let offset = Offset::Offset(offset);
        before.add_partition_offset(topic, partition, offset).expect("the offset is valid");
        let deleted = block_on(self.admin.client().delete_records(&before, &admin_options()));
        for element in deleted.expect("records can be deleted").elements() {
            element.error().expect("the records can be deleted");
        }
    }

    fn partitions(&self, topic: &str) -> i32 {
        self.admin.partitions(topic).unwrap()
    }

    /// The next offset of each partition.
    pub fn ends(&self, topic: &str) -> BTreeMap<i32, i64> {
        (0..self.partitions(topic))
            .map(|partition| (partition, self.end(topic, partition)))
            .collect()
    }

    fn end(&self, topic: &str, partition: i32) -> i64 {
        // A broker may say for a moment that it does not lead a partition that is new.
        wait::until("the end of a partition", REQUEST_LIMIT, || {
            let watermarks =
                self.admin.consumer().fetch_watermarks(topic, partition, REQUEST_LIMIT);
            watermarks.ok().map(|(_, end)| end)
        })
    }

    /// How many records and markers partition 0 has, those of open transactions included.
    pub fn filled(&self, topic: &str) -> i64 {
        let mut config = config(&self.servers);
        config.set("isolation.level", "read_uncommitted");
        let consumer: BaseConsumer = config.create().expect("a consumer can be made");
        let watermarks = consumer.fetch_watermarks(topic, 0, REQUEST_LIMIT);
        watermarks.expect("the broker answers").1
    }

    /// How many records were ever written to a topic (by producers without transactions; with
    /// transactions, records and markers up to the first open transaction).
    pub fn written(&self, topic: &str) -> u64 {
        self.ends(topic).values().map(|end| u64::try_from(*end).expect("ends are counts")).sum()
    }

    /// Waits until a topic has at least `records`.
    pub fn wait_for(&self, topic: &str, records: u64, limit: Duration) {
        let what = format!("{records} records in {topic}");
        wait::until_true(&what, limit, || self.written(topic) >= records);
    }

    /// Writes `records` and waits until all are acknowledged.
    pub fn produce(&self, topic: &str, records: impl IntoIterator<Item = Record>) {
        self.open_producer().produce(topic, records);
    }

    /// A producer for many rounds: making one takes half a second.
    pub fn open_producer(&self) -> OpenProducer {
        OpenProducer(self.producer())
    }

    /// A consumer of what is written to a topic from now on.
    pub fn open_reader(&self, topic: &str) -> OpenReader {
        let mut config = config(&self.servers);
        config.set("group.id", "millstream-tests-reader").set("enable.auto.commit", "false");
        config.set("isolation.level", "read_committed").set("fetch.wait.max.ms", "20");
        // It never goes on elsewhere than where it stands.
        config.set("auto.offset.reset", "error");
        let consumer: BaseConsumer = config.create().expect("a consumer can be made");
        let mut ends = TopicPartitionList::new();
        for (partition, end) in self.ends(topic) {
            let end = Offset::Offset(end);
            ends.add_partition_offset(topic, partition, end).expect("it is valid");
        }
        consumer.assign(&ends).expect("partitions can be assigned");
        OpenReader(consumer)
    }

    /// Writes `values` to partition 0.
    pub fn produce_values<V: Into<Vec<u8>>>(
        &self,
        topic: &str,
        values: impl IntoIterator<Item = V>,
    ) {
        self.produce(topic, values.into_iter().map(|value| Record::of(value).to(0)));
    }

    /// Writes `values` to partition 0 in a transaction, and aborts it. The topic grows by them and
    /// by the marker of the abort.
    pub fn produce_and_abort(&self, topic: &str, values: &[&str]) {
        let end = self.end(topic, 0) + i64::try_from(values.len()).expect("few values") + 1;
        let mut config = self.producer_config();
        config.set("transactional.id", format!("{topic}-aborts"));
        let producer: BaseProducer<CountRefused> =
            config.create_with_context(CountRefused::default()).expect("a producer can be made");
        producer.init_transactions(REQUEST_LIMIT).expect("the broker has transactions");
        producer.begin_transaction().expect("a transaction can begin");
        for value in values {
            send(&producer, topic, &Record::of(*value).to(0));
        }
        // Without this the client would drop the records instead of sending and aborting them.
        producer.flush(REQUEST_LIMIT).expect("the broker acknowledges");
        producer.abort_transaction(REQUEST_LIMIT).expect("a transaction can be aborted");
        // The coordinator answers before the marker is written.
        wait::until_true("the marker of the abort", REQUEST_LIMIT, || self.end(topic, 0) == end);
    }

    fn producer(&self) -> BaseProducer<CountRefused> {
        let config = self.producer_config();
        config.create_with_context(CountRefused::default()).expect("a producer can be made")
    }

    fn producer_config(&self) -> ClientConfig {
        let mut config = config(&self.servers);
        // Idempotent, so that a repeat in an output is never the input's.
        config.set("linger.ms", "5").set("acks", "all").set("enable.idempotence", "true");
        config.set("queue.buffering.max.messages", "200000");
        config.set("message.max.bytes", "20000000");
        config
    }

    /// All records of a topic up to its end now, partition by partition in order.
    pub fn read(&self, topic: &str) -> Vec<Received> {
        let mut received = Vec::new();
        self.for_each(topic, |record| received.push(record));
        received.sort_by_key(|record| (record.partition, record.offset));
        received
    }

    /// Gives every record of a topic up to its end now to `see`; within a partition in order.
    pub fn for_each(&self, topic: &str, mut see: impl FnMut(Received)) {
        let mut config = config(&self.servers);
        config.set("group.id", "millstream-tests-reader").set("enable.auto.commit", "false");
        config.set("isolation.level", "read_committed").set("enable.partition.eof", "true");
        config.set("fetch.wait.max.ms", "20").set("auto.offset.reset", "earliest");
        let consumer: BaseConsumer = config.create().expect("a consumer can be made");
        let mut open = self.partitions(topic);
        let mut all = TopicPartitionList::new();
        for partition in 0..open {
            all.add_partition_offset(topic, partition, Offset::Beginning).expect("it is valid");
        }
        consumer.assign(&all).expect("partitions can be assigned");
        while open > 0 {
            match consumer.poll(REQUEST_LIMIT) {
                Some(Ok(message)) => see(Received::from_message(&message)),
                Some(Err(KafkaError::PartitionEOF(_))) => open -= 1,
                // The client connects again by itself; what follows is only late.
                Some(Err(KafkaError::MessageConsumption(
                    RDKafkaErrorCode::BrokerTransportFailure,
                ))) => {}
                Some(Err(error)) => panic!("reading {topic}: {error}"),
                None => panic!("reading {topic}: nothing came for {} s", REQUEST_LIMIT.as_secs()),
            }
        }
    }

    /// What a consumer group has committed for a topic.
    pub fn committed(&self, group: &str, topic: &str) -> BTreeMap<i32, i64> {
        let mut config = config(&self.servers);
        let consumer: BaseConsumer =
            config.set("group.id", group).create().expect("a consumer can be made");
        let mut wanted = TopicPartitionList::new();
        for partition in self.ends(topic).into_keys() {
            wanted.add_partition(topic, partition);
        }
        let committed = consumer.committed_offsets(wanted, REQUEST_LIMIT);
        let committed = committed.expect("the broker answers");
        let offsets =
            committed.elements().into_iter().filter_map(|element| match element.offset() {
                Offset::Offset(offset) => Some((element.partition(), offset)),
                _ => None,
            });
        offsets.collect()
    }
}

fn send(producer: &BaseProducer<CountRefused>, topic: &str, record: &Record) {
    let mut attempt = base_record(topic, record);
    while let Err((error, unsent)) = producer.send(attempt) {
        let full = error.rdkafka_error_code() == Some(RDKafkaErrorCode::QueueFull);
        assert!(full, "producing to {topic}: {error}");
        producer.poll(Duration::from_millis(20));
        attempt = unsent;
    }
}

fn base_record<'a>(topic: &'a str, record: &'a Record) -> BaseRecord<'a, [u8], [u8]> {
    let mut base = BaseRecord::to(topic);
    base.partition = record.partition;
    base.key = record.key.as_deref();
    base.payload = record.value.as_deref();
    base.timestamp = record.timestamp_ms;
    if !record.headers.is_empty() {
        let mut headers = OwnedHeaders::new();
        for (key, value) in &record.headers {
            headers = headers.insert(Header { key, value: Some(value) });
        }
        base.headers = Some(headers);
    }
    base
}

#[derive(Default)]
struct CountRefused {
    refused: AtomicU64,
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

fn count(partitions: usize) -> i32 {
    i32::try_from(partitions).expect("few partitions")
}

fn config(servers: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", servers);
    // A broker that restarts is waited for; the default back-off of seconds would hide it.
    config.set("reconnect.backoff.max.ms", "500");
    config
}

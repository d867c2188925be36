//! Clients of the user's brokers, and topics that are made for a check.

use std::time::Duration;

use millstream_store::error::Failure;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::{Offset, TopicPartitionList};

use crate::client_error::ClientError;

const REQUEST_LIMIT: Duration = Duration::from_secs(20);
/// A topic that was just made is not known to all brokers at once.
const LOOKS: u32 = 30;
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// As many replicas as the brokers make by default.
const REPLICATION: TopicReplication<'static> = TopicReplication::Fixed(-1);

/// How clients connect to the brokers: settings of librdkafka.
#[derive(Clone)]
pub struct Settings(pub Vec<(String, String)>);

impl Settings {
    /// For a client.
    pub fn config(&self) -> ClientConfig {
        self.0.iter().cloned().collect()
    }

    /// Makes topics.
    pub async fn make(&self, topics: &[String; 2], partitions: i32) -> Result<(), Failure> {
        let new = topics.each_ref().map(|name| NewTopic::new(name, partitions, REPLICATION));
        let options = AdminOptions::new().request_timeout(Some(REQUEST_LIMIT));
        let made = self.admin()?.create_topics(&new, &options).await;
        let each = made.map_err(failure("making topics"))?;
        let mut refused = each.into_iter().filter_map(Result::err);
        refused.next().map_or(Ok(()), |(name, code)| Err(failure(&name)(KafkaError::AdminOp(code))))
    }

    /// Removes topics.
    pub async fn remove(&self, topics: &[String; 2]) -> Result<(), Failure> {
        let (names, options) = (topics.each_ref().map(String::as_str), AdminOptions::new());
        let removed = self.admin()?.delete_topics(&names, &options).await;
        removed.map(drop).map_err(failure("removing topics"))
    }

    fn admin(&self) -> Result<AdminClient<DefaultClientContext>, Failure> {
        self.config().create().map_err(failure("a client"))
    }

    /// The next offset of each partition. Blocks. Errors: the topic does not exist, or the brokers
    /// do not answer.
    pub fn ends(&self, topic: &str) -> Result<Vec<i64>, Failure> {
        let client: BaseConsumer = self.config().create().map_err(failure("a client"))?;
        let end = |id| Ok(client.fetch_watermarks(topic, id, REQUEST_LIMIT)?.1);
        for _ in 0..LOOKS {
            let fetched = client.fetch_metadata(Some(topic), REQUEST_LIMIT);
            let metadata = fetched.map_err(failure(topic))?;
            let partitions = metadata.topics().iter().flat_map(|topic| topic.partitions());
            let ends: KafkaResult<Vec<_>> = partitions.map(|found| end(found.id())).collect();
            match ends {
                Ok(ends) if !ends.is_empty() => return Ok(ends),
                _ => std::thread::sleep(LOOK_AGAIN),
            }
        }
        Err(ClientError::NoLeaders { topic: topic.to_owned() }.into())
    }

    /// A consumer of committed records from `offsets` on.
    pub fn consumer(&self, topic: &str, offsets: &[i64]) -> Result<BaseConsumer, Failure> {
        let mut config = self.config();
        config.set("group.id", "millstream-bench").set("enable.auto.commit", "false");
        config.set("isolation.level", "read_committed").set("fetch.wait.max.ms", "10");
        let mut list = TopicPartitionList::new();
        for (partition, &offset) in (0..).zip(offsets) {
            let added = list.add_partition_offset(topic, partition, Offset::Offset(offset));
            added.map_err(failure(topic))?;
        }
        let consumer: BaseConsumer = config.create().map_err(failure("a consumer"))?;
        consumer.assign(&list).map_err(failure(topic))?;
        Ok(consumer)
    }
}

/// For `map_err` on calls of a client.
pub fn failure(what: &str) -> impl Fn(KafkaError) -> Failure {
    move |error| ClientError::Call { what: what.to_owned(), error }.into()
}

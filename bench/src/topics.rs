//! Topics of one run: made fresh, deleted after it.

use std::time::Duration;

use millstream_store::env::Env;
use rdkafka::TopicPartitionList;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::topic_partition_list::Offset;

use crate::error::Error;
use crate::settings;

const REQUEST_LIMIT: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Topics of one broker.
pub struct Topics {
    env: Env,
    brokers: String,
    admin: AdminClient<DefaultClientContext>,
    metadata: BaseConsumer,
}

impl Topics {
    /// Connects in the background; a broker that is away shows at the first call.
    pub fn new(env: &Env, brokers: &str) -> Result<Self, Error> {
        let config = settings::client(brokers);
        Ok(Self {
            env: env.clone(),
            brokers: brokers.to_owned(),
            admin: config.create().map_err(Error::kafka("starting an admin client"))?,
            metadata: config.create().map_err(Error::kafka("starting a metadata client"))?,
        })
    }

    /// True if the broker answers within a second.
    pub fn answers(&self) -> bool {
        let metadata = self.metadata.fetch_metadata(None, Duration::from_secs(1));
        metadata.is_ok_and(|metadata| !metadata.brokers().is_empty())
    }

    /// Makes a topic and waits until every partition has a leader.
    pub fn create(
        &self,
        topic: &str,
        partitions: i32,
        options: &[(&str, &str)],
    ) -> Result<(), Error> {
        // Records carry times of their own, which may be long past: the broker would delete them.
        let new = NewTopic::new(topic, partitions, TopicReplication::Fixed(1));
        let new = new.set("retention.ms", "-1");
        let new = options.iter().fold(new, |new, (name, value)| new.set(name, value));
        let made = block_on(self.admin.create_topics(&[new], &admin_options()));
        settled(made, format!("making topic {topic}"))?;
        let asked = self.env.monotonic();
        while self.leaders(topic)? < partitions {
            if self.env.monotonic() - asked > REQUEST_LIMIT {
                let (brokers, waited_s) = (self.brokers.clone(), REQUEST_LIMIT.as_secs());
                return Err(Error::BrokerSilent { brokers, waited_s, log: String::new() });
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }

    /// Deletes topics. Their records go some time later.
    pub fn delete(&self, topics: &[&str]) -> Result<(), Error> {
        let deleted = block_on(self.admin.delete_topics(topics, &admin_options()));
        settled(deleted, format!("deleting topics {topics:?}"))
    }

    fn leaders(&self, topic: &str) -> Result<i32, Error> {
        let metadata = self.metadata.fetch_metadata(Some(topic), REQUEST_LIMIT);
        let metadata = metadata.map_err(Error::kafka(format!("asking for topic {topic}")))?;
        let partitions = metadata.topics().iter().flat_map(|topic| topic.partitions());
        let led = partitions.filter(|partition| partition.leader() >= 0).count();
        Ok(i32::try_from(led).expect("partitions are numbered by an i32"))
    }
}

/// All partitions of a topic, each from its first record.
pub fn beginnings(topic: &str, partitions: i32) -> TopicPartitionList {
    let mut list = TopicPartitionList::new();
    for partition in 0..partitions {
        let added = list.add_partition_offset(topic, partition, Offset::Beginning);
        added.expect("the beginning is an offset");
    }
    list
}

/// All partitions of a topic, each from its end now: asked for first, so that a record written
/// after this call is read whenever the reading itself begins.
pub fn ends(consumer: &BaseConsumer, topic: &str) -> Result<TopicPartitionList, Error> {
    let metadata = consumer.fetch_metadata(Some(topic), REQUEST_LIMIT);
    let metadata = metadata.map_err(Error::kafka(format!("asking for topic {topic}")))?;
    let mut list = TopicPartitionList::new();
    for partition in metadata.topics().iter().flat_map(|topic| topic.partitions()) {
        let watermarks = consumer.fetch_watermarks(topic, partition.id(), REQUEST_LIMIT);
        let (_, end) = watermarks.map_err(Error::kafka(format!("asking for {topic}'s end")))?;
        let added = list.add_partition_offset(topic, partition.id(), Offset::Offset(end));
        added.map_err(Error::kafka(format!("reading {topic} from {end}")))?;
    }
    Ok(list)
}

fn admin_options() -> AdminOptions {
    AdminOptions::new().request_timeout(Some(REQUEST_LIMIT)).operation_timeout(Some(REQUEST_LIMIT))
}

/// Waits for a request of the admin client, whose answer comes from a thread of its own.
fn block_on<F: Future>(request: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime without drivers can start").block_on(request)
}

type Outcome = Result<Vec<Result<String, (String, RDKafkaErrorCode)>>, KafkaError>;

fn settled(outcome: Outcome, what: String) -> Result<(), Error> {
    for result in outcome.map_err(Error::kafka(what))? {
        result.map_err(|(topic, code)| Error::Topic { topic, code })?;
    }
    Ok(())
}

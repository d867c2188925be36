//! Topics as an administrator has them: made, grown and deleted.

use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use crate::error::Error;
use crate::wait::Deadline;

const REQUEST_LIMIT: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Makes and deletes topics of one broker or cluster.
pub struct Admin {
    brokers: String,
    replicas: i32,
    admin: AdminClient<DefaultClientContext>,
    metadata: BaseConsumer,
}

impl Admin {
    /// Connects in the background; a broker that is away shows at the first call.
    pub fn new(brokers: &str) -> Result<Self, Error> {
        Self::with_replicas(brokers, 1)
    }

    /// The same, for topics with so many replicas of each partition.
    pub fn with_replicas(brokers: &str, replicas: i32) -> Result<Self, Error> {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", brokers).set("socket.nagle.disable", "true");
        // A broker that restarts is waited for; the default back-off of seconds would hide it.
        config.set("reconnect.backoff.max.ms", "500");
        Ok(Self {
            brokers: brokers.to_owned(),
            replicas,
            admin: config.create().map_err(Error::kafka("starting an admin client"))?,
            metadata: config.create().map_err(Error::kafka("starting a metadata client"))?,
        })
    }

    /// True if the broker answers within a second.
    pub fn answers(&self) -> bool {
        let metadata = self.metadata.fetch_metadata(None, Duration::from_secs(1));
        metadata.is_ok_and(|metadata| !metadata.brokers().is_empty())
    }

    /// The client, for other questions about topics.
    pub fn consumer(&self) -> &BaseConsumer {
        &self.metadata
    }

    /// The client, for other requests of an administrator.
    pub fn client(&self) -> &AdminClient<DefaultClientContext> {
        &self.admin
    }

    /// Makes a topic with settings, for example `max.message.bytes`, and waits until every
    /// partition has a leader.
    pub fn create(
        &self,
        topic: &str,
        partitions: i32,
        settings: &[(&str, &str)],
    ) -> Result<(), Error> {
        let new = NewTopic::new(topic, partitions, TopicReplication::Fixed(self.replicas));
        let new = settings.iter().fold(new, |new, (name, value)| new.set(name, value));
        let made = block_on(self.admin.create_topics(&[new], &admin_options()));
        settled(made, format!("making topic {topic}"))?;
        self.wait_for_partitions(topic, partitions)
    }

    /// Grows a topic to `partitions`.
    pub fn grow(&self, topic: &str, partitions: i32) -> Result<(), Error> {
        let wanted = usize::try_from(partitions).expect("a number of partitions");
        let more = NewPartitions::new(topic, wanted);
        let grown = block_on(self.admin.create_partitions(&[more], &admin_options()));
        settled(grown, format!("growing topic {topic}"))?;
        self.wait_for_partitions(topic, partitions)
    }

    fn wait_for_partitions(&self, topic: &str, partitions: i32) -> Result<(), Error> {
        let deadline = Deadline::after(REQUEST_LIMIT);
        while self.partitions(topic)? != partitions {
            if deadline.is_over() {
                let (brokers, waited_s) = (self.brokers.clone(), REQUEST_LIMIT.as_secs());
                return Err(Error::BrokerSilent { brokers, waited_s });
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

    /// How many partitions with a leader a topic has; none if there is no such topic.
    pub fn partitions(&self, topic: &str) -> Result<i32, Error> {
        let metadata = self.metadata.fetch_metadata(Some(topic), REQUEST_LIMIT);
        let metadata = metadata.map_err(Error::kafka(format!("asking for topic {topic}")))?;
        let partitions = metadata.topics().iter().flat_map(|topic| topic.partitions());
        let led = partitions.filter(|partition| partition.leader() >= 0).count();
        Ok(i32::try_from(led).expect("partitions are numbered by an i32"))
    }
}

/// How long requests may take.
pub fn admin_options() -> AdminOptions {
    AdminOptions::new().request_timeout(Some(REQUEST_LIMIT)).operation_timeout(Some(REQUEST_LIMIT))
}

/// Waits for a request of the admin client, whose answer comes from a thread of its own.
pub fn block_on<F: Future>(request: F) -> F::Output {
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

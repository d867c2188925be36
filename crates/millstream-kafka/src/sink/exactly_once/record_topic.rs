//! The topic of a query's record of progress: one partition, and of its records the last one
//! counts.
//!
//! Each query has its own. A reader of committed records comes no further than the first open
//! transaction of a partition, so in a topic that queries share, one that stands still would keep
//! all others from starting.
//!
//! Some 100 MB are kept, however old: the record of a query that stood still for a year is there,
//! and a busy one's topic does not grow. The limit is by size and not by compaction, which
//! would rewrite segments again and again where deleting a few files does the same.

use std::time::Duration;

use futures::executor::block_on;
use millstream_engine::api::sink::{Kind, Published};
use rdkafka::Message as _;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::consumer::Consumer as _;
use rdkafka::error::KafkaError;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaErrorCode;

use super::opening::{Opening, PAUSE, RECORD_PATIENCE};
use super::progress;
use crate::client::cluster::{client_error, may_pass};
use crate::client::context::Context;
use crate::client::create::create;
use crate::client::native::ConsumerClient;
use crate::error::SinkError;

/// Hosted brokers allow segments from 50 MB on.
const SETTINGS: [(&str, &str); 4] = [
    ("cleanup.policy", "delete"),
    ("retention.ms", "-1"),
    ("retention.bytes", "67108864"),
    ("segment.bytes", "67108864"),
];
/// The brokers' own default.
const REPLICAS: TopicReplication<'_> = TopicReplication::Fixed(-1);
const MAKING_PATIENCE: Duration = Duration::from_secs(30);
/// How long one broker may take of that time; the next attempt may reach another one.
const MAKING_ATTEMPT: Duration = Duration::from_secs(5);
const ATTEMPT: Duration = Duration::from_secs(1);
/// How many offsets before the end are read at first. A record and its transaction's marker take
/// two; aborted transactions take more.
const LOOK_BACK: i64 = 64;
const PARTITION: i32 = 0;
/// What a user needs who may make the topic, but not read it.
const RIGHTS: &str = "Give the user the rights Create, Read and Write on this topic";

/// What became of making the topic.
pub enum RecordTopic {
    /// It is there.
    Made,
    /// The brokers do not let this user make it.
    Refused,
    /// It cannot be made now, for the reason given.
    NotNow(String),
}

impl Opening {
    /// Makes the topic, unless it is there. Blocks.
    pub fn make_record_topic(&self) -> Result<RecordTopic, SinkError> {
        let topic = self.names.topic();
        let begun = self.env.monotonic();
        let code = loop {
            let Err(code) = self.make_topic(&topic)? else { return Ok(RecordTopic::Made) };
            let waited = self.env.monotonic().saturating_sub(begun);
            // The client reports a request that a stopping broker left unanswered only as `Fail`.
            let may_pass = may_pass(code) || code == RDKafkaErrorCode::Fail;
            if !may_pass || waited > MAKING_PATIENCE {
                break code;
            }
            std::thread::sleep(PAUSE);
        };
        // The brokers answer this while too few of them are running, so it may pass.
        if code == RDKafkaErrorCode::InvalidReplicationFactor {
            let problem = format!("the topic '{topic}' of the record cannot be made: {code}");
            return Ok(RecordTopic::NotNow(problem));
        }
        if is_refused(code) {
            tracing::info!(table = self.table, topic, %code, "the topic of the record was refused");
            return Ok(RecordTopic::Refused);
        }
        Err(self.unreadable(&topic, format!("it cannot be made: {code}"), Kind::Retry))
    }

    /// One attempt, by a client of its own: the brokers may name any broker as the controller
    /// for creating topics, and a client that was given a dead one keeps asking it for minutes.
    fn make_topic(&self, topic: &str) -> Result<Result<(), RDKafkaErrorCode>, SinkError> {
        let admin: AdminClient<Context> = create(&self.settings.control(None), self.events())
            .map_err(client_error)
            .map_err(SinkError::Cluster)?;
        let new = NewTopic::new(topic, 1, REPLICAS);
        let new = SETTINGS.iter().fold(new, |new, (key, value)| new.set(key, value));
        let options = AdminOptions::new()
            .request_timeout(Some(MAKING_ATTEMPT))
            .operation_timeout(Some(MAKING_ATTEMPT));
        let made = block_on(admin.create_topics(&[new], &options));
        Ok(match made.map(|results| results.into_iter().next()) {
            Ok(Some(Err((_, RDKafkaErrorCode::TopicAlreadyExists)) | Ok(_)) | None) => Ok(()),
            Ok(Some(Err((_, code)))) => Err(code),
            Err(error) => Err(error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail)),
        })
    }

    /// The last record of the topic, if there is one. To be called when all transactional ids are
    /// taken over. Blocks.
    ///
    /// `is_made` says that the topic is there. A broker that does not know it then has not yet got
    /// the cluster's metadata, and is asked again: to take that for no record would publish
    /// micro-batches a second time. Otherwise librdkafka writes, and there may never have been a
    /// topic.
    pub fn record_of_topic(&self, is_made: bool) -> Result<Option<Published>, SinkError> {
        let topic = self.names.topic();
        let begun = self.env.monotonic();
        let text = loop {
            let error = match self.last_of(&topic) {
                Ok(text) => break text,
                Err(error) => error,
            };
            let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail);
            if !is_made && (is_absent(code) || is_refused(code)) {
                return Ok(None);
            }
            if code == RDKafkaErrorCode::TopicAuthorizationFailed {
                let problem = format!("{code}. {RIGHTS}");
                return Err(self.unreadable(&topic, problem, Kind::Config));
            }
            if self.env.monotonic().saturating_sub(begun) > RECORD_PATIENCE {
                return Err(self.unreadable(&topic, error.to_string(), Kind::Retry));
            }
            std::thread::sleep(PAUSE);
        };
        let record = text.map(|text| progress::parse(&text)).transpose();
        let published = record.map(|record| record.map(|record| record.published));
        published.map_err(|error| self.unreadable(&topic, error.to_string(), Kind::Data))
    }

    fn last_of(&self, topic: &str) -> Result<Option<String>, KafkaError> {
        LastRecords::new(self)?.last_of(topic)
    }

    fn unreadable(&self, topic: &str, problem: String, kind: Kind) -> SinkError {
        let servers = self.settings.servers().to_owned();
        SinkError::Record { servers, place: format!("the topic '{topic}'"), problem, kind }
    }
}

/// Reads the last committed records of topics of one partition.
pub struct LastRecords {
    consumer: ConsumerClient,
}

impl LastRecords {
    /// Connects in the background.
    pub fn new(opening: &Opening) -> Result<Self, KafkaError> {
        let mut config = opening.settings.control(Some(&opening.names.group(0)));
        config.set("isolation.level", "read_committed").set("enable.partition.eof", "true");
        // The client reports the end of the partition after a fetch that found nothing more.
        config.set("fetch.wait.max.ms", "10");
        Ok(Self { consumer: create(&config, opening.events())? })
    }

    /// The value of the last committed record of `topic`, if it has one. Blocks.
    pub fn last_of(&self, topic: &str) -> Result<Option<String>, KafkaError> {
        let consumer = &self.consumer;
        let (first, end) = consumer.fetch_watermarks(topic, PARTITION, ATTEMPT)?;
        looked_back(first, end, |from| last_from(consumer, topic, from))
    }
}

/// What `last_from` finds from an offset on, for offsets further and further before `end`, until it
/// finds something or has begun at `first`.
fn looked_back<T, E>(
    first: i64,
    end: i64,
    mut last_from: impl FnMut(i64) -> Result<Option<T>, E>,
) -> Result<Option<T>, E> {
    let mut look_back = LOOK_BACK;
    loop {
        let from = first.max(end.saturating_sub(look_back));
        let last = last_from(from)?;
        if last.is_some() || from == first {
            return Ok(last);
        }
        look_back = look_back.saturating_mul(LOOK_BACK);
    }
}

/// The value of the last committed record from `from` on.
fn last_from(
    consumer: &ConsumerClient,
    topic: &str,
    from: i64,
) -> Result<Option<String>, KafkaError> {
    let mut partition = TopicPartitionList::with_capacity(1);
    partition.add_partition_offset(topic, PARTITION, Offset::Offset(from))?;
    consumer.assign(&partition)?;
    let mut last = None;
    loop {
        match consumer.poll(ATTEMPT) {
            Some(Ok(record)) => {
                last = record.payload().map(|value| String::from_utf8_lossy(value).into_owned());
            }
            Some(Err(KafkaError::PartitionEOF(_))) => return Ok(last),
            Some(Err(error)) => return Err(error),
            None => {
                return Err(KafkaError::MessageConsumption(RDKafkaErrorCode::OperationTimedOut));
            }
        }
    }
}

fn is_absent(code: RDKafkaErrorCode) -> bool {
    matches!(
        code,
        RDKafkaErrorCode::UnknownTopicOrPartition
            | RDKafkaErrorCode::UnknownTopic
            | RDKafkaErrorCode::UnknownPartition
    )
}

fn is_refused(code: RDKafkaErrorCode) -> bool {
    matches!(
        code,
        RDKafkaErrorCode::TopicAuthorizationFailed
            | RDKafkaErrorCode::ClusterAuthorizationFailed
            | RDKafkaErrorCode::PolicyViolation
            | RDKafkaErrorCode::InvalidReplicationFactor
            | RDKafkaErrorCode::InvalidConfig
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The offset that is found of a topic with these ends and one record at `record`, and where
    /// reading began each time.
    fn found(first: i64, end: i64, record: Option<i64>) -> (Option<i64>, Vec<i64>) {
        let mut begun = Vec::new();
        let last_from = |from| {
            assert!(begun.len() < 20, "it is looked for without end");
            begun.push(from);
            Ok::<_, KafkaError>(record.filter(|record| *record >= from))
        };
        let last = looked_back(first, end, last_from).unwrap();
        (last, begun)
    }

    #[test]
    fn a_record_is_looked_for_near_the_end_and_then_further_back() {
        assert_eq!(found(0, 0, None), (None, vec![0]), "an empty topic");
        assert_eq!(found(0, 2, Some(0)), (Some(0), vec![0]));
        assert_eq!(found(0, 1_000, Some(998)), (Some(998), vec![936]));
        assert_eq!(found(0, 10_000, Some(9_000)), (Some(9_000), vec![9_936, 5_904]));
        assert_eq!(found(100, 10_000, None), (None, vec![9_936, 5_904, 100]));
    }
}

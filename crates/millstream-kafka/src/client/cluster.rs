//! Questions to the brokers: which partitions there are, where they begin and end. Also commits to
//! the consumer group. All calls block, so they are for threads that may.
//!
//! It has a client of its own, so reading never waits for the answer to a question.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use millstream_store::env::Env;
use rdkafka::consumer::{CommitMode, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::metadata::Metadata;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaErrorCode;

use super::context::{Context, is_refusal};
use super::create::{LogsIn as _, create};
use super::native::ConsumerClient;
use super::probe;
use super::settings::ClientSettings;
use crate::client::subscription::Subscription;
use crate::error::SourceError;
use crate::offsets::{EARLIEST, LATEST, PartitionId, PerPartition};
use crate::protocol::error_code::ErrorCode;

/// How long brokers may take to answer at the start.
pub const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
/// How long brokers may take to answer a question later on.
pub const QUESTION_PATIENCE: Duration = Duration::from_secs(30);
/// One attempt within the above; between attempts the client's events are looked at.
const ATTEMPT: Duration = Duration::from_millis(1_000);
/// How often a start asks again for topics that are missing, and how long it waits in between.
const ATTEMPTS_AT_START: u32 = 5;
const ATTEMPT_INTERVAL: Duration = Duration::from_millis(400);
/// Events looked at in one go; the rest waits for the next time.
const EVENTS_MAX: usize = 64;

/// The brokers, as far as reading needs to ask them.
pub struct Cluster {
    env: Env,
    client: Arc<ConsumerClient>,
    servers: String,
    settings: ClientSettings,
}

/// What a subscription means now.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Partitions {
    /// The partitions that exist.
    pub found: BTreeSet<PartitionId>,
    /// Topics named by the subscription that do not exist.
    pub missing: BTreeSet<String>,
    /// Topics that exist, but whose metadata names no partition, as while they are being created.
    pub unsettled: BTreeSet<String>,
    /// How many of the partitions have no leader now: nobody can read or write them.
    pub leaderless: usize,
    /// A partition of each leader that the brokers name. Without their controllers they name one
    /// that is gone, too.
    pub led: BTreeMap<i32, PartitionId>,
}

impl Cluster {
    /// Makes the client; connects nowhere yet. `purpose` is for warnings.
    /// Errors: `Config` for settings that contradict each other.
    pub fn new(
        settings: &ClientSettings,
        group: Option<&str>,
        env: &Env,
        purpose: &str,
    ) -> Result<Self, SourceError> {
        let context = Context::new(env.clone(), purpose, settings.tokens()).committing_to(group);
        let client: ConsumerClient =
            create(&settings.control(group), context).map_err(client_error)?;
        let (servers, settings) = (settings.servers().to_owned(), settings.clone());
        Ok(Self { env: env.clone(), client: Arc::new(client), servers, settings })
    }

    /// `kafka.bootstrap.servers`.
    pub fn servers(&self) -> &str {
        &self.servers
    }

    /// Lets the client report what happened since the last call.
    pub fn serve_events(&self) {
        serve_events(&self.client);
    }

    /// Warnings and reasons of this client.
    pub fn context(&self) -> &Context {
        self.client.context()
    }

    /// The partitions that `subscription` means now.
    /// Errors: `Retry` if no broker answers within `patience`, `Credentials` if they refuse.
    pub fn partitions(
        &self,
        subscription: &Subscription,
        patience: Duration,
    ) -> Result<Partitions, SourceError> {
        match subscription {
            // Kafka has no search by name: all topics are fetched, and the pattern is applied here.
            Subscription::Pattern { regex, .. } => {
                let metadata = self.metadata(None, patience)?;
                let mut partitions = Partitions::default();
                for topic in metadata.topics().iter().filter(|topic| regex.is_match(topic.name())) {
                    partitions.add(topic);
                }
                Ok(partitions)
            }
            Subscription::Topics(topics) => {
                self.partitions_of(topics.iter().map(String::as_str), patience)
            }
            Subscription::Partitions(assigned) => {
                let topics: BTreeSet<&str> = assigned.iter().map(|id| &*id.topic).collect();
                let mut partitions = self.partitions_of(topics, patience)?;
                partitions.found.retain(|id| assigned.contains(id));
                partitions.led.retain(|_, id| assigned.contains(id));
                Ok(partitions)
            }
        }
    }

    /// As [`partitions`](Self::partitions), at a start: while `is_all` finds something
    /// missing, the brokers are asked again a few times. A broker that has just come back does not
    /// know all topics at once.
    pub fn partitions_at_start(
        &self,
        subscription: &Subscription,
        is_all: impl Fn(&Partitions) -> bool,
    ) -> Result<Partitions, SourceError> {
        let mut attempts = 1;
        loop {
            let partitions = self.partitions(subscription, CONNECT_PATIENCE)?;
            let is_settled = partitions.unsettled.is_empty() && is_all(&partitions);
            if is_settled || attempts == ATTEMPTS_AT_START {
                return Ok(partitions);
            }
            attempts += 1;
            std::thread::sleep(ATTEMPT_INTERVAL);
        }
    }

    fn partitions_of<'a>(
        &self,
        topics: impl IntoIterator<Item = &'a str>,
        patience: Duration,
    ) -> Result<Partitions, SourceError> {
        let mut partitions = Partitions::default();
        for name in topics {
            let metadata = self.metadata(Some(name), patience)?;
            match metadata.topics().iter().find(|topic| topic.name() == name) {
                Some(topic) => match topic.error().map(RDKafkaErrorCode::from) {
                    Some(code) if is_refusal(code) => {
                        let reason = format!("topic '{name}': {code}");
                        return Err(SourceError::Refused { servers: self.servers.clone(), reason });
                    }
                    _ => partitions.add(topic),
                },
                None => _ = partitions.missing.insert(name.to_owned()),
            }
        }
        Ok(partitions)
    }

    /// Errors: as [`partitions`](Self::partitions).
    pub fn check_reachable(&self, patience: Duration) -> Result<(), SourceError> {
        self.metadata(None, patience).map(drop)
    }

    /// The names of all topics.
    /// Errors: as [`partitions`](Self::partitions).
    pub fn topics(&self, patience: Duration) -> Result<Vec<String>, SourceError> {
        let metadata = self.metadata(None, patience)?;
        Ok(metadata.topics().iter().map(|topic| topic.name().to_owned()).collect())
    }

    /// The names of all consumer groups; every broker is asked.
    /// Errors: as [`partitions`](Self::partitions).
    pub fn groups(&self, patience: Duration) -> Result<Vec<String>, SourceError> {
        let question = "asking for the consumer groups";
        let list = |client: &ConsumerClient, wait| client.fetch_group_list(None, wait);
        let groups = self.ask(question, patience, list)?;
        Ok(groups.groups().iter().map(|group| group.name().to_owned()).collect())
    }

    fn metadata(&self, topic: Option<&str>, patience: Duration) -> Result<Metadata, SourceError> {
        let question = match topic {
            Some(topic) => format!("asking for the partitions of '{topic}'"),
            None => "asking for the topics".to_owned(),
        };
        self.ask(&question, patience, |client, wait| client.fetch_metadata(topic, wait))
    }

    /// The first offset of each partition.
    pub fn earliest(&self, ids: &BTreeSet<PartitionId>) -> Result<PerPartition, SourceError> {
        self.offsets(&ids.iter().map(|id| (id.clone(), EARLIEST)).collect())
    }

    /// The end of each partition, as far as a reader may read: with `read_committed` up to the
    /// first open transaction.
    pub fn latest(&self, ids: &BTreeSet<PartitionId>) -> Result<PerPartition, SourceError> {
        self.offsets(&ids.iter().map(|id| (id.clone(), LATEST)).collect())
    }

    /// The first offset of each partition whose record is not older than the time asked for, or
    /// [`LATEST`] where there is none. A time may also be [`EARLIEST`] or [`LATEST`].
    pub fn offsets(&self, times: &PerPartition) -> Result<PerPartition, SourceError> {
        self.offsets_within(times, QUESTION_PATIENCE)
    }

    /// False if the leader of one of the partitions does not answer within `patience`.
    pub fn leaders_answer(&self, ids: BTreeSet<PartitionId>, patience: Duration) -> bool {
        let times = ids.into_iter().map(|id| (id, LATEST)).collect();
        !matches!(self.offsets_within(&times, patience), Err(SourceError::Unreachable { .. }))
    }

    fn offsets_within(
        &self,
        times: &PerPartition,
        patience: Duration,
    ) -> Result<PerPartition, SourceError> {
        if times.is_empty() {
            return Ok(PerPartition::new());
        }
        let question = "asking for offsets";
        let answer = self.ask(question, patience, |client, wait| {
            let answer = client.offsets_for_times(question_list(times)?, wait)?;
            match answer.elements().iter().find_map(|element| element.error().err()) {
                Some(error) => Err(error),
                None => Ok(answer),
            }
        })?;
        let offset = |id: &PartitionId| {
            let element = answer.find_partition(&id.topic, id.partition)?;
            element.offset().to_raw()
        };
        Ok(times.keys().filter_map(|id| Some((id.clone(), offset(id)?))).collect())
    }

    /// Repeats a question until it is answered.
    fn ask<T>(
        &self,
        question: &str,
        patience: Duration,
        mut attempt: impl FnMut(&ConsumerClient, Duration) -> Result<T, KafkaError>,
    ) -> Result<T, SourceError> {
        let begun = self.env.monotonic();
        loop {
            let waited = self.env.monotonic().saturating_sub(begun);
            let left = patience.saturating_sub(waited);
            let error = match attempt(&self.client, ATTEMPT.min(left)) {
                Ok(answer) => {
                    // An answer proves that credentials are accepted, so an earlier refusal no
                    // longer counts.
                    self.context().let_in();
                    return Ok(answer);
                }
                Err(error) => error,
            };
            self.serve_events();
            let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail);
            let refused = self.context().refused();
            if let Some(reason) = refused.or_else(|| is_refusal(code).then(|| code.to_string())) {
                return Err(SourceError::Refused { servers: self.servers.clone(), reason });
            }
            let waited = self.env.monotonic().saturating_sub(begun);
            if waited < patience && may_pass(code) {
                // Some errors come back at once; do not spin on them.
                std::thread::sleep(Duration::from_millis(20));
                continue;
            }
            let servers = self.servers.clone();
            if no_answer(code) {
                let mut reasons = self.context().reasons();
                reasons.extend(probe::wants_tls(&self.settings));
                return Err(SourceError::Unreachable { servers, waited, reasons });
            }
            return Err(SourceError::Question { question: question.to_owned(), servers, code });
        }
    }

    /// Commits positions to the consumer group, without waiting for the answer.
    pub fn commit(&self, positions: &PerPartition) {
        let Ok(list) = question_list(positions) else { return };
        if let Err(error) = self.client.commit(&list, CommitMode::Async) {
            let message = format!("offsets were not committed to the consumer group: {error}");
            self.context().warn_now_and_then("commit", &message);
        }
    }

    /// Whether the consumer group has come to `positions`, as its coordinator answers within
    /// `patience`.
    ///
    /// # Errors
    /// librdkafka's, if nobody answers or the user may not ask.
    pub fn is_committed(
        &self,
        positions: &PerPartition,
        patience: Duration,
    ) -> Result<bool, KafkaError> {
        let committed = self.client.committed_offsets(question_list(positions)?, patience)?;
        let committed = committed.to_topic_map();
        let is_at = |(id, offset): (&PartitionId, &i64)| {
            let found = committed.get(&(id.topic.to_string(), id.partition));
            found.is_some_and(|found| *found == Offset::Offset(*offset))
        };
        Ok(positions.iter().all(is_at))
    }
}

impl Partitions {
    fn add(&mut self, topic: &rdkafka::metadata::MetadataTopic) {
        match topic.error().map(RDKafkaErrorCode::from) {
            None => {}
            Some(RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic) => {
                self.missing.insert(topic.name().to_owned());
            }
            // A topic that is being made, or has no leader now, exists.
            Some(_) if topic.partitions().is_empty() => {
                self.unsettled.insert(topic.name().to_owned());
            }
            Some(_) => {}
        }
        self.leaderless +=
            topic.partitions().iter().filter(|partition| partition.leader() < 0).count();
        let name: Arc<str> = topic.name().into();
        for partition in topic.partitions().iter().filter(|partition| partition.leader() >= 0) {
            let id = PartitionId::new(name.clone(), partition.id());
            self.led.entry(partition.leader()).or_insert(id);
        }
        let ids = topic.partitions().iter().map(|p| PartitionId::new(name.clone(), p.id()));
        self.found.extend(ids);
    }
}

/// Makes a [`SourceError`] of a client that could not be made.
pub fn client_error(error: KafkaError) -> SourceError {
    let problem = match error {
        KafkaError::ClientCreation(problem) => problem,
        other => other.to_string(),
    };
    SourceError::Client { problem }
}

/// Lets a client without partitions report what happened.
pub fn serve_events(client: &ConsumerClient) {
    client.renew_token();
    // A poll serves one event and does not tell whether there was one.
    for _ in 0..EVENTS_MAX {
        if let Some(Ok(_)) = client.poll(Duration::ZERO) {
            debug_assert!(false, "the client's own queue has events, not records");
        }
    }
}

fn question_list(times: &PerPartition) -> Result<TopicPartitionList, KafkaError> {
    let mut list = TopicPartitionList::with_capacity(times.len());
    for (id, time) in times {
        list.add_partition_offset(&id.topic, id.partition, Offset::from_raw(*time))?;
    }
    Ok(list)
}

fn no_answer(code: RDKafkaErrorCode) -> bool {
    matches!(
        code,
        RDKafkaErrorCode::BrokerTransportFailure
            | RDKafkaErrorCode::OperationTimedOut
            | RDKafkaErrorCode::AllBrokersDown
            | RDKafkaErrorCode::Resolve
            | RDKafkaErrorCode::TimedOutQueue
    )
}

/// True for an error after which the same is asked again: librdkafka's own, and those of the
/// brokers that [`protocol::error_code`](crate::protocol::error_code) lists.
pub fn may_pass(code: RDKafkaErrorCode) -> bool {
    // librdkafka's own are below 0, and the brokers' are as they send them.
    let may_pass_at_broker =
        i16::try_from(code as i32).is_ok_and(|code| ErrorCode(code).may_pass());
    no_answer(code)
        || may_pass_at_broker
        || matches!(
            code,
            RDKafkaErrorCode::UnknownPartition
                | RDKafkaErrorCode::UnknownTopic
                | RDKafkaErrorCode::WaitingForCoordinator
                | RDKafkaErrorCode::WaitCache
                | RDKafkaErrorCode::Partial
                | RDKafkaErrorCode::Retry
                // A broker has left the cluster's metadata while it was to be asked.
                | RDKafkaErrorCode::DestroyBroker
        )
}

#[cfg(test)]
mod tests {
    use rdkafka::types::RDKafkaRespErr;

    use super::*;
    use crate::protocol::error_code::{PASSING, Passing};

    #[test]
    fn each_error_that_passes_is_asked_again_under_librdkafkas_name() {
        for Passing { code, name, .. } in &PASSING {
            // Those that it does not know it never gives.
            let Ok(known) = RDKafkaRespErr::try_from(i32::from(*code)) else { continue };
            assert!(may_pass(RDKafkaErrorCode::from(known)), "{name}");
        }
    }

    #[test]
    fn refusals_are_final() {
        for code in [
            RDKafkaErrorCode::TopicAuthorizationFailed,
            RDKafkaErrorCode::SaslAuthenticationFailed,
            RDKafkaErrorCode::Authentication,
            RDKafkaErrorCode::Fail,
            RDKafkaErrorCode::InvalidTopic,
        ] {
            assert!(!may_pass(code), "{code:?}");
        }
    }
}

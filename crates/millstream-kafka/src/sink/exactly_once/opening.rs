//! Opening the sink: takes the transactional ids over, then reads the record.
//!
//! The order matters. Taking an id over completes or aborts what its last owner left open, and the
//! brokers refuse that owner from then on. Only when all ids are taken over is the record final.

use std::sync::Arc;
use std::time::Duration;

use millstream_engine::api::contact::ContactWith;
use millstream_engine::api::sink::{Kind, Published};
use millstream_store::env::Env;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{Consumer as _, ConsumerGroupMetadata};
use rdkafka::error::KafkaError;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaErrorCode;

use super::Names;
use super::progress::{self, CommittedOffset, NotARecord, Origin, carrier};
use crate::brokers::throttling::Throttling;
use crate::client::cluster::{CONNECT_PATIENCE, Cluster, client_error, serve_events};
use crate::client::context::Context;
use crate::client::create::create;
use crate::client::delivery_reports::Deliveries;
use crate::client::native::{ConsumerClient, ProducerClient};
use crate::client::settings::ClientSettings;
use crate::error::SinkError;
use crate::sink::topic::check_topic;

/// How long the brokers may take to hand over a transactional id. It includes the abort of what was
/// left open, and on a new cluster the creation of the log of transactions.
pub const TAKE_OVER_PATIENCE: Duration = Duration::from_secs(60);
/// How long reading the record may take. Transactions of ids that nobody took over may be open.
pub const RECORD_PATIENCE: Duration = Duration::from_secs(90);
/// One attempt within the above.
pub const OPENING_ATTEMPT: Duration = Duration::from_secs(1);
/// Between attempts that were answered at once.
pub const PAUSE: Duration = Duration::from_millis(20);

/// Why the sink could not be opened.
pub enum NotOpened {
    /// The brokers do not allow this user transactions, or do not have them.
    NotAllowed(SinkError),
    /// Something else.
    Failed(SinkError),
}

impl From<SinkError> for NotOpened {
    fn from(error: SinkError) -> Self {
        Self::Failed(error)
    }
}

/// What opening needs to know. Cheap to clone.
#[derive(Clone)]
pub struct Opening {
    pub settings: ClientSettings,
    pub names: Names,
    pub table: String,
    /// The option `topic`: where all rows go.
    pub topic: Option<Arc<str>>,
    /// What records say of this query.
    pub origin: Arc<Origin>,
    /// Told whether the brokers answer.
    pub contact: Arc<ContactWith>,
    /// Warns of quotas.
    pub throttling: Arc<Throttling>,
    pub env: Env,
}

impl Opening {
    /// Asks whether the brokers are there and let this user in: the client itself would try for
    /// long, and not say why. Blocks.
    pub fn check(&self) -> Result<(), SinkError> {
        let cluster = Cluster::new(&self.settings, None, &self.env, &self.table);
        let checked = cluster.and_then(|cluster| cluster.check_reachable(CONNECT_PATIENCE));
        checked.map_err(SinkError::Cluster)
    }

    /// Makes sure that the topic of all rows exists, if there is one. Blocks.
    pub fn check_topic(&self) -> Result<(), SinkError> {
        let Some(topic) = &self.topic else { return Ok(()) };
        let deliveries = self.deliveries(0);
        let client = create(&self.settings.producer(), deliveries);
        let client: ProducerClient = client.map_err(client_error).map_err(SinkError::Cluster)?;
        check_topic(&self.settings, &self.env, &self.table, Some(topic), &client)
    }

    /// Keeps the delivery reports of a client whose requests have `bytes_max` bytes at most.
    pub fn deliveries(&self, bytes_max: u64) -> Deliveries {
        Deliveries::new(self.events(), self.settings.servers(), bytes_max)
    }

    /// The receiver of a client's events.
    pub fn events(&self) -> Context {
        Context::new(self.env.clone(), &self.table, self.settings.tokens())
    }

    fn group(&self, piece: usize) -> Result<ConsumerGroupMetadata, SinkError> {
        let client = self.asking(&self.names.group(piece))?;
        let metadata = client.group_metadata();
        Ok(metadata.expect("a client with a group has its metadata"))
    }

    /// What a group has for the partition of the record, asked once. Blocks.
    pub fn committed_now(&self, group: &str) -> Result<Option<CommittedOffset>, KafkaError> {
        let client: ConsumerClient = create(&self.control_config(group), self.events())?;
        self.ask_committed(&client)
    }

    fn ask_committed(
        &self,
        client: &ConsumerClient,
    ) -> Result<Option<CommittedOffset>, KafkaError> {
        let mut wanted = TopicPartitionList::with_capacity(1);
        wanted.add_partition(carrier(self.topic.as_deref()), 0);
        committed_offset(&client.committed_offsets(wanted, OPENING_ATTEMPT)?)
    }

    fn control_config(&self, group: &str) -> ClientConfig {
        let mut config = self.settings.control(Some(group));
        // The answer waits for offsets of open transactions, so it cannot miss one that is being
        // committed just now.
        config.set("isolation.level", "read_committed");
        config
    }

    fn asking(&self, group: &str) -> Result<ConsumerClient, SinkError> {
        let client = create(&self.control_config(group), self.events());
        client.map_err(client_error).map_err(SinkError::Cluster)
    }

    /// Reads the record of what was published last. Blocks. To be called when all ids are taken
    /// over. `has_topic` says that the record's topic is there.
    pub fn published(&self, has_topic: bool) -> Result<Option<Published>, NotOpened> {
        Ok(newest([self.record_of_group()?, self.record_of_topic(has_topic)?]))
    }

    fn record_of_group(&self) -> Result<Option<Published>, NotOpened> {
        let read = progress::decode(|piece| self.committed(&self.names.group(piece)));
        let read = read.map(|record| record.map(|record| record.published));
        read.map_err(|unread| match unread {
            Unread::NotOpened(error) => error,
            Unread::NotARecord(error) => self.unread(error.to_string(), Kind::Data).into(),
        })
    }

    /// What a group has for the partition of the record.
    fn committed(&self, group: &str) -> Result<Option<CommittedOffset>, Unread> {
        let client = self.asking(group).map_err(NotOpened::from)?;
        let begun = self.env.monotonic();
        loop {
            let code = match self.ask_committed(&client) {
                Ok(committed) => return Ok(committed),
                Err(error) => error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail),
            };
            let code = group_refusal(&client).unwrap_or(code);
            if is_not_allowed(code) {
                return Err(NotOpened::NotAllowed(self.not_allowed(code.to_string())).into());
            }
            if self.env.monotonic().saturating_sub(begun) > RECORD_PATIENCE {
                return Err(NotOpened::from(self.unread(code.to_string(), Kind::Retry)).into());
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn unread(&self, problem: String, kind: Kind) -> SinkError {
        let servers = self.settings.servers().to_owned();
        let place = format!("the consumer group '{}'", self.names.group(0));
        SinkError::Record { servers, place, problem, kind }
    }

    /// The error for brokers that do not let this user write transactions.
    pub fn not_allowed(&self, reason: String) -> SinkError {
        let servers = self.settings.servers().to_owned();
        let (ids, group) = (self.names.transactional_ids(), self.names.group(0));
        SinkError::NotAllowed { servers, reason, ids, group }
    }
}

/// The groups of the record's pieces, as a transaction needs them. Made when first needed: most
/// records are of one piece.
pub struct Groups {
    opening: Opening,
    made: Vec<Arc<ConsumerGroupMetadata>>,
}

impl Groups {
    /// With the group of the first piece.
    pub fn new(opening: Opening) -> Result<Self, SinkError> {
        let made = vec![Arc::new(opening.group(0)?)];
        Ok(Self { opening, made })
    }

    /// The name of the group of piece `piece`.
    pub fn name(&self, piece: usize) -> String {
        self.opening.names.group(piece)
    }

    /// The group of piece `piece`.
    pub fn get(&mut self, piece: usize) -> Result<Arc<ConsumerGroupMetadata>, SinkError> {
        while self.made.len() <= piece {
            self.made.push(Arc::new(self.opening.group(self.made.len())?));
        }
        Ok(Arc::clone(&self.made[piece]))
    }
}

/// The record that counts. A query that changed between librdkafka and the protocol client left one
/// in each place.
fn newest(records: [Option<Published>; 2]) -> Option<Published> {
    records.into_iter().flatten().max_by_key(|published| published.batch_id)
}

enum Unread {
    NotOpened(NotOpened),
    NotARecord(NotARecord),
}

impl From<NotARecord> for Unread {
    fn from(error: NotARecord) -> Self {
        Self::NotARecord(error)
    }
}

impl From<NotOpened> for Unread {
    fn from(error: NotOpened) -> Self {
        Self::NotOpened(error)
    }
}

fn committed_offset(answer: &TopicPartitionList) -> Result<Option<CommittedOffset>, KafkaError> {
    let Some(element) = answer.elements().into_iter().next() else { return Ok(None) };
    element.error()?;
    let Offset::Offset(offset) = element.offset() else { return Ok(None) };
    Ok(Some(CommittedOffset { offset, metadata: element.metadata().to_owned() }))
}

/// What the brokers say to a user who may not ask for the group's coordinator. librdkafka asks
/// again until a question about the group ends by its limit of time, and tells of the refusal in an
/// event only, in these words.
fn group_refusal(client: &ConsumerClient) -> Option<RDKafkaErrorCode> {
    serve_events(client);
    let is_refusal = |reason: &String| reason.contains("Group authorization failed");
    let is_refused = client.context().reasons().iter().any(is_refusal);
    is_refused.then_some(RDKafkaErrorCode::GroupAuthorizationFailed)
}

/// True if the brokers do not let this user write transactions, or do not have them.
pub fn is_not_allowed(code: RDKafkaErrorCode) -> bool {
    matches!(
        code,
        RDKafkaErrorCode::TransactionalIdAuthorizationFailed
            | RDKafkaErrorCode::ClusterAuthorizationFailed
            | RDKafkaErrorCode::GroupAuthorizationFailed
            | RDKafkaErrorCode::UnsupportedVersion
            | RDKafkaErrorCode::UnsupportedFeature
    )
}

#[cfg(test)]
mod tests {
    use millstream_engine::api::sink::BatchId;

    use super::*;

    #[test]
    fn of_two_records_the_newer_counts() {
        let record = |id| Some(Published { batch_id: BatchId(id), end_offsets: None });
        for records in [[record(7), record(9)], [record(9), record(7)], [None, record(9)]] {
            assert_eq!(newest(records), record(9));
        }
        assert_eq!(newest([None, None]), None);
    }
}

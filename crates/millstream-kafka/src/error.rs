//! What can go wrong, with the facts in fields.

use std::time::Duration;

use arrow::error::ArrowError;
use millstream_formats::schema::NotEncoded;
use millstream_store::error::{Classified, Kind};
use rdkafka::types::RDKafkaErrorCode;
use thiserror::Error;

use crate::offsets::PartitionId;
use crate::remedy;

/// Why a source failed.
#[derive(Debug, Error)]
pub enum SourceError {
    /// No broker answered.
    #[error(
        "no Kafka broker answered within {} s at {servers}{}. Check that the broker runs and that \
         'kafka.bootstrap.servers' names a host and port this machine can reach{}",
        waited.as_secs(),
        tried(reasons),
        remedy::of_silence(reasons)
    )]
    Unreachable {
        /// `kafka.bootstrap.servers`.
        servers: String,
        /// How long it was tried.
        waited: Duration,
        /// What the client reported meanwhile.
        reasons: Vec<String>,
    },
    /// The brokers answered, and turned the client away.
    #[error(
        "the Kafka brokers at {servers} refuse this client: {reason}. {}",
        remedy::of_refusal(reason)
    )]
    Refused {
        /// `kafka.bootstrap.servers`.
        servers: String,
        /// What they said.
        reason: String,
    },
    /// A topic of the table does not exist.
    #[error("the topic '{topic}' does not exist at {servers}. Create it, or correct '{option}'")]
    NoTopic {
        /// The topic's name.
        topic: String,
        /// `kafka.bootstrap.servers`.
        servers: String,
        /// The option that names it.
        option: &'static str,
    },
    /// Settings that librdkafka takes one by one, but not together.
    #[error("the Kafka client cannot be made with these 'kafka.*' options: {problem}")]
    Client {
        /// What it says.
        problem: String,
    },
    /// A question to the brokers was not answered.
    #[error("{question} of {servers} failed: {code}")]
    Question {
        /// What was asked.
        question: String,
        /// `kafka.bootstrap.servers`.
        servers: String,
        /// The answer.
        code: RDKafkaErrorCode,
    },
    /// The checkpoint has an offset that this source did not write.
    #[error(
        "the checkpoint's offset {offset} is not one of a Kafka source: {problem}. Does the checkpoint belong to another query?"
    )]
    Offset {
        /// The text in the log.
        offset: String,
        /// What is wrong with it.
        problem: String,
    },
    /// An offset option does not fit the partitions there are.
    #[error("'{option}' {problem}")]
    Start {
        /// The option.
        option: &'static str,
        /// What is wrong.
        problem: String,
    },
    /// Records that should be read are gone.
    #[error("{loss}. {}", loss.remedy())]
    DataLoss {
        /// What is gone.
        loss: DataLoss,
    },
    /// A thread of the reader has ended by itself.
    #[error("a thread that reads from Kafka has ended by itself")]
    ThreadEnded,
    /// A partition cannot be read.
    #[error("{id} cannot be read at offset {offset}: {text}{}", remedy::of_reading(text))]
    Read {
        /// The partition.
        id: PartitionId,
        /// Where.
        offset: i64,
        /// What the client says.
        text: String,
        /// What to do about it.
        kind: Kind,
    },
    /// A range could not be read again in time.
    #[error("{id} was read again only up to offset {read} of {end}: nothing came for {} s. Is the broker up?", waited.as_secs())]
    ReplayStalled {
        /// The first partition that is not complete.
        id: PartitionId,
        /// How far it came.
        read: i64,
        /// Where the range ends.
        end: i64,
        /// How long nothing came.
        waited: Duration,
    },
}

/// Records that should be read are gone.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DataLoss {
    /// A topic or partition is gone.
    #[error("{id} does not exist any more; it was read up to offset {position}")]
    Gone {
        /// The partition.
        id: PartitionId,
        /// The next offset to read.
        position: i64,
    },
    /// Records have aged out.
    #[error("{id} should be read from offset {position} on, but begins at offset {earliest} now")]
    AgedOut {
        /// The partition.
        id: PartitionId,
        /// The next offset to read.
        position: i64,
        /// The first offset there is.
        earliest: i64,
    },
    /// The partition ends before the position: the topic was deleted and made again.
    #[error(
        "{id} should be read from offset {position} on, but ends at offset {latest}: the topic was probably deleted and created again"
    )]
    Shrunk {
        /// The partition.
        id: PartitionId,
        /// The next offset to read.
        position: i64,
        /// The end of the partition.
        latest: i64,
    },
    /// The log was cut back behind the position, and may have grown past it since.
    #[error(
        "{id} was read up to offset {position}, but the log that its leader has now is the same \
         up to offset {common} only: what was read from there on is gone, and other records may \
         have its offsets. That is what an unclean leader election does"
    )]
    CutBack {
        /// The partition.
        id: PartitionId,
        /// The next offset to read.
        position: i64,
        /// Up to where the log is the one that was read.
        common: i64,
    },
    /// The broker has no such offset.
    #[error("{id} has no offset {position} any more")]
    OutOfRange {
        /// The partition.
        id: PartitionId,
        /// The offset asked for.
        position: i64,
    },
    /// A partition that was not read before does not begin at 0.
    #[error("the new partition {id} begins at offset {earliest} instead of 0")]
    NewPartitionTruncated {
        /// The partition.
        id: PartitionId,
        /// The first offset there is.
        earliest: i64,
    },
}

impl DataLoss {
    /// What may have happened, and what to do about it.
    fn remedy(&self) -> &'static str {
        match self {
            Self::CutBack { .. } => {
                "A restart goes on where the checkpoint ends, and does not read records that have \
                 taken the place of others before. To read them, start a new query with \
                 'startingOffsets'. With 'failOnDataLoss' = 'false' a query that runs goes back \
                 by itself. The topic's setting 'unclean.leader.election.enable' = 'false' keeps \
                 logs as they are"
            }
            _ => {
                "Some data may have been lost, because it aged out of the topic before it was \
                 read, or because the topic was deleted. To continue without it, set \
                 'failOnDataLoss' = 'false'"
            }
        }
    }
}

fn tried(reasons: &[String]) -> String {
    if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join("; ")) }
}

impl Classified for SourceError {
    fn kind(&self) -> Kind {
        match self {
            Self::Unreachable { .. } | Self::Question { .. } | Self::ReplayStalled { .. } => {
                Kind::Retry
            }
            // Rights are no secret that somebody replaces: a restart would not help.
            Self::Refused { reason, .. } if remedy::is_about_rights(reason) => Kind::Config,
            Self::Refused { .. } => Kind::Credentials,
            Self::NoTopic { .. } | Self::Client { .. } | Self::Start { .. } => Kind::Config,
            Self::Offset { .. } | Self::DataLoss { .. } => Kind::Data,
            Self::Read { kind, .. } => *kind,
            Self::ThreadEnded => Kind::Bug,
        }
    }
}

/// Why a sink failed.
#[derive(Debug, Error)]
pub enum SinkError {
    /// The brokers cannot be used at all.
    #[error(transparent)]
    Cluster(SourceError),
    /// A row names no topic.
    #[error(
        "a row has a null topic. Set the table's option 'topic' to the topic of all rows, or filter rows without one"
    )]
    NullTopic,
    /// A row that its schema does not allow.
    #[error(
        "a row cannot be the {part} of a record: {row}. Repair such rows in the query, or exclude them with a constraint"
    )]
    NotEncoded {
        /// Key or value.
        part: &'static str,
        /// What is wrong with it.
        row: NotEncoded,
    },
    /// A topic cannot be written to.
    #[error("the topic '{topic}' cannot be written to: {code}{}", topic_help(*.code))]
    Topic {
        /// The topic's name.
        topic: String,
        /// What the client says.
        code: RDKafkaErrorCode,
    },
    /// A record is larger than the client or the brokers allow.
    #[error(
        "a record of {bytes} bytes for the topic '{topic}' is too large ({excerpt}). Raise 'kafka.max.request.size' (now {bytes_max}) and the topic's 'max.message.bytes', or make the rows smaller"
    )]
    TooLarge {
        /// The topic's name.
        topic: String,
        /// Key and value together.
        bytes: usize,
        /// The client's limit.
        bytes_max: u64,
        /// The record's key, or the beginning of its value.
        excerpt: String,
        /// What tells the record from others: [`hash`](crate::client::delivery_reports::hash).
        hash: u64,
    },
    /// A record was not accepted.
    #[error("a record for {topic} was not delivered ({excerpt}): {code}{}", help(*.code))]
    Undelivered {
        /// The topic's name.
        topic: String,
        /// What the client or the broker said.
        code: RDKafkaErrorCode,
        /// The record's key, or the beginning of its value.
        excerpt: String,
        /// What tells the record from others: [`hash`](crate::client::delivery_reports::hash).
        hash: u64,
    },
    /// The client has stopped after an error that breaks its guarantee of order.
    #[error("the Kafka producer stopped: {reason}")]
    Fatal {
        /// What it says.
        reason: String,
    },
    /// Another instance of the flow writes now.
    #[error(
        "another instance of this flow has taken over: the brokers refuse the transactional id '{id}' from this one, which stops. Run a flow in one process only"
    )]
    TakenOver {
        /// The transactional id.
        id: String,
    },
    /// A transaction was open for too long.
    #[error(
        "the brokers aborted the transaction of '{id}', which was open for {} s: this process was paused, or the brokers were away or held it back by a quota, for longer than 'kafka.transaction.timeout.ms' ({} ms). \
         Nothing of that micro-batch is visible; a restart publishes it. If a quota is the reason, \
         raise it or 'kafka.transaction.timeout.ms': a micro-batch is one transaction",
        open.as_secs(),
        timeout.as_millis()
    )]
    TimedOut {
        /// The transactional id.
        id: String,
        /// How long it was open.
        open: Duration,
        /// How long it may be.
        timeout: Duration,
    },
    /// A step of a transaction failed.
    #[error("a Kafka transaction of '{id}' failed at {step}: {reason}{}", transaction_help(*.code))]
    Transaction {
        /// The transactional id.
        id: String,
        /// The step, in words.
        step: &'static str,
        /// What the client or the brokers said.
        code: RDKafkaErrorCode,
        /// The same in words.
        reason: String,
    },
    /// A micro-batch before this one was not published.
    #[error("a micro-batch before this one was not published")]
    AfterFailure,
    /// The brokers do not allow transactions.
    #[error(
        "the brokers at {servers} do not allow transactions, which 'delivery' = 'exactly-once' needs: {}. Give the user the right Write on the transactional ids '{ids}', and Describe on the consumer group '{group}' (Read, where librdkafka writes), or set 'delivery' = 'at-least-once'",
        reason.trim_end_matches('.')
    )]
    NotAllowed {
        /// `kafka.bootstrap.servers`.
        servers: String,
        /// What they said.
        reason: String,
        /// The transactional ids, as a prefix with a star.
        ids: String,
        /// The consumer group that holds the record.
        group: String,
    },
    /// No transaction coordinator answered.
    #[error(
        "no transaction coordinator of {servers} was ready within {} s: {reason}. On a cluster of fewer than three brokers, the brokers need transaction.state.log.replication.factor and transaction.state.log.min.isr of 1. Without transactions, set 'delivery' = 'at-least-once'",
        waited.as_secs()
    )]
    NoCoordinator {
        /// `kafka.bootstrap.servers`.
        servers: String,
        /// What was said last.
        reason: String,
        /// How long it was tried.
        waited: Duration,
    },
    /// The record of what was published last cannot be read.
    #[error(
        "the record of what was published last, in {place} of {servers}, cannot be read: {problem}"
    )]
    Record {
        /// `kafka.bootstrap.servers`.
        servers: String,
        /// The consumer group or topic.
        place: String,
        /// What is wrong.
        problem: String,
        /// What to do about it.
        kind: Kind,
    },
    /// Records were still not acknowledged when the sink was closed.
    #[error("{records} records were not acknowledged by {servers} within {} s of the end", waited.as_secs())]
    Unfinished {
        /// How many.
        records: usize,
        /// `kafka.bootstrap.servers`.
        servers: String,
        /// How long it was waited for.
        waited: Duration,
    },
    /// Nobody is left who would end a transaction.
    #[error("a Kafka transaction was dropped unfinished")]
    TransactionDropped,
    /// Nobody is left who would acknowledge a micro-batch.
    #[error("a Kafka micro-batch was dropped unacknowledged")]
    MicroBatchDropped,
    /// The rows are not what the sink was made for.
    #[error("{problem}")]
    Rows {
        /// What is wrong.
        problem: String,
    },
}

fn help(code: RDKafkaErrorCode) -> &'static str {
    match code {
        RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic => {
            ". Create the topic, or correct the option 'topic'"
        }
        RDKafkaErrorCode::UnknownPartition => {
            ". The column 'partition' names a partition that the topic does not have"
        }
        RDKafkaErrorCode::TopicAuthorizationFailed
        | RDKafkaErrorCode::ClusterAuthorizationFailed => {
            ". Give the user the right Write on the topic"
        }
        RDKafkaErrorCode::MessageTimedOut => {
            ". The broker did not accept it within 'kafka.delivery.timeout.ms'"
        }
        _ => "",
    }
}

fn topic_help(code: RDKafkaErrorCode) -> &'static str {
    match code {
        RDKafkaErrorCode::TopicAuthorizationFailed
        | RDKafkaErrorCode::ClusterAuthorizationFailed => {
            ". Give the user the right Write on the topic, and Create where brokers are to create it"
        }
        _ => "",
    }
}

fn transaction_help(code: RDKafkaErrorCode) -> &'static str {
    match code {
        RDKafkaErrorCode::TopicAuthorizationFailed | RDKafkaErrorCode::GroupAuthorizationFailed => {
            ". Transactions record their progress as offsets of a consumer group: give the user the right Read on the topic and on the group. Without it, set 'delivery' = 'at-least-once'"
        }
        RDKafkaErrorCode::TransactionalIdAuthorizationFailed => {
            ". Give the user the right Write on this transactional id, and on the others that differ in the last number. Without it, set 'delivery' = 'at-least-once'"
        }
        RDKafkaErrorCode::OffsetMetadataTooLarge => {
            ". The brokers' offset.metadata.max.bytes must be at least 4096, Kafka's default"
        }
        _ => {
            ". Nothing of that micro-batch is visible unless it was published as a whole; a restart finds out"
        }
    }
}

impl Classified for SinkError {
    fn kind(&self) -> Kind {
        match self {
            Self::Cluster(error) => error.kind(),
            Self::NullTopic | Self::TooLarge { .. } | Self::NotEncoded { .. } => Kind::Data,
            Self::Topic { code, .. } | Self::Undelivered { code, .. } => delivery_kind(*code),
            Self::TakenOver { .. } => Kind::Fenced,
            Self::NotAllowed { .. } => Kind::Config,
            Self::Transaction { code, .. } => delivery_kind(*code),
            Self::Record { kind, .. } => *kind,
            Self::Fatal { .. }
            | Self::Unfinished { .. }
            | Self::TimedOut { .. }
            | Self::AfterFailure
            | Self::NoCoordinator { .. } => Kind::Retry,
            Self::Rows { .. } | Self::TransactionDropped | Self::MicroBatchDropped => Kind::Bug,
        }
    }
}

fn delivery_kind(code: RDKafkaErrorCode) -> Kind {
    match code {
        RDKafkaErrorCode::UnknownTopicOrPartition
        | RDKafkaErrorCode::UnknownTopic
        | RDKafkaErrorCode::InvalidTopic
        | RDKafkaErrorCode::TopicAuthorizationFailed
        | RDKafkaErrorCode::GroupAuthorizationFailed
        | RDKafkaErrorCode::TransactionalIdAuthorizationFailed
        | RDKafkaErrorCode::ClusterAuthorizationFailed
        | RDKafkaErrorCode::OffsetMetadataTooLarge
        | RDKafkaErrorCode::PolicyViolation => Kind::Config,
        RDKafkaErrorCode::UnknownPartition
        | RDKafkaErrorCode::InvalidRecord
        | RDKafkaErrorCode::InvalidTimestamp => Kind::Data,
        _ => Kind::Retry,
    }
}

/// Why records that were read do not become rows: each is a fault of this program.
#[derive(Debug, Error)]
pub enum RowsError {
    /// A plan and its source do not agree about the columns.
    #[error("the plan asks for columns there are not: {error}")]
    Projection {
        /// What Arrow says.
        error: ArrowError,
    },
    /// The columns do not fit each other.
    #[error("decoded columns: {error}")]
    Columns {
        /// What Arrow says.
        error: ArrowError,
    },
    /// Values are to be decoded of a table whose columns do not come from them.
    #[error("no value of the table is decoded")]
    NoValues,
    /// A record that was decoded, and is asked for once more, is not found.
    #[error("{id}, offset {offset}: a record that was decoded is gone")]
    NoSuchRecord {
        /// The partition.
        id: PartitionId,
        /// The record's offset.
        offset: i64,
    },
}

impl Classified for RowsError {
    fn kind(&self) -> Kind {
        Kind::Bug
    }
}

/// A record whose value cannot be decoded, where the table's mode does not allow that.
#[derive(Debug, Error)]
#[error(
    "the record in topic {}, partition {}, offset {offset} is malformed: {problem}",
    id.topic,
    id.partition
)]
pub struct MalformedValue {
    id: PartitionId,
    offset: i64,
    problem: String,
}

impl MalformedValue {
    /// Names the record by its place in the topic.
    pub fn new(id: &PartitionId, offset: i64, problem: String) -> Self {
        Self { id: id.clone(), offset, problem }
    }
}

impl Classified for MalformedValue {
    fn kind(&self) -> Kind {
        Kind::Data
    }
}

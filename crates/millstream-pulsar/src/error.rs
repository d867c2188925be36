//! What can go wrong with Pulsar, and what to do about it.

use millstream_store::error::{Classified, Kind};
use thiserror::Error;

use crate::protocol::answers::Said;
use crate::protocol::frame::WireError;
use crate::protocol::messages::code;

/// An error of the connector.
#[derive(Clone, Debug, Error)]
pub(crate) enum PulsarError {
    /// A broker cannot be reached, or does not answer.
    #[error("Pulsar at {broker}: {problem}")]
    Away { broker: String, problem: String },
    /// A broker refuses something.
    #[error("Pulsar at {broker} refuses {what}: {said}{}", remedy(said))]
    Refused { broker: String, what: String, said: Said },
    /// What a broker sends is not the protocol.
    #[error(
        "{broker} sent {error}. If it is no broker of Pulsar, correct 'service.url'; its port is \
         that of the binary protocol, 6650 or with TLS 6651"
    )]
    Frame { broker: String, error: WireError },
    /// The certificate of a broker is not trusted.
    #[error(
        "Pulsar at {broker}: {problem}. Name a file with the authority that has issued its \
         certificate in 'pulsar.client.tlsTrustCertsFilePath'"
    )]
    Untrusted { broker: String, problem: String },
    /// A broker does not accept the certificate of this client, or that there is none.
    #[error(
        "Pulsar at {broker} does not accept this client: {problem}. Name a certificate that it \
         trusts in 'pulsar.client.tlsCertificateFilePath', and its key in \
         'pulsar.client.tlsKeyFilePath'"
    )]
    Certificate { broker: String, problem: String },
    /// A file that the options name cannot be used.
    #[error("{option}: the file {path} {problem}")]
    File { option: &'static str, path: String, problem: String },
    /// The topic is not there.
    #[error("there is no topic {topic} at {broker}. Create it, or correct its name")]
    NoTopic { topic: String, broker: String },
    /// The broker has no transactions.
    #[error(
        "Pulsar at {broker} has no transactions, on which exactly-once delivery rests: {said}. Set \
         transactionCoordinatorEnabled=true in broker.conf and initialize the coordinators, or \
         write 'delivery' = 'at-least-once'"
    )]
    NoTransactions { broker: String, said: String },
    /// Another instance of this query writes.
    #[error(
        "another instance of this query writes to '{table}': it has taken over the topic {topic}"
    )]
    Fenced { table: String, topic: String },
    /// What the checkpoint knows to be published is not there any more.
    #[error(
        "'{table}': Pulsar had acknowledged micro-batch {known}, and the last one in {topic} is \
         {found}: the topic has lost messages. Check its retention and message TTL; to go on \
         behind what is there, write 'failOnDataLoss' = 'false'"
    )]
    ProgressLost { table: String, topic: String, known: u64, found: String },
    /// A record of progress cannot be read.
    #[error(
        "the topic {topic} has a message that is no record of a query's progress: {problem}. Only \
         millstream may write to it"
    )]
    Record { topic: String, problem: String },
    /// Messages were deleted before they were read.
    #[error(
        "'{table}': messages of {topic} behind {position} are gone: {found}. Keep them longer (the \
         subscription {subscription} holds what was not read, as long as no message TTL and no \
         quota is above it); to go on with what is left, write 'failOnDataLoss' = 'false'"
    )]
    MessagesLost {
        table: String,
        topic: String,
        position: String,
        found: String,
        subscription: String,
    },
    /// An entry cannot be read.
    #[error("{topic}, message {position}: the broker gave {error}")]
    Entry { topic: String, position: String, error: WireError },
    /// An entry has messages of a kind that is not read.
    #[error("{topic}, message {position} is {what}. {remedy}")]
    Unreadable { topic: String, position: String, what: &'static str, remedy: &'static str },
    /// A value does not decode, where that is an error.
    #[error("{topic}, message {position}: {problem}")]
    Malformed { topic: String, position: String, problem: String },
    /// An offset in the checkpoint is not one of this source.
    #[error("the offset {offset} is none of a Pulsar source: {problem}")]
    Offset { offset: String, problem: String },
    /// A row is too large for a message.
    #[error(
        "a message of {bytes} bytes, and Pulsar at {broker} takes {max}. Raise maxMessageSize \
         there, or make rows smaller"
    )]
    TooLarge { broker: String, bytes: usize, max: usize },
    /// A row has no topic.
    #[error("a row has no topic: its '__topic' is NULL or empty, and the table has none")]
    NullTopic,
    /// The name of a topic cannot be.
    #[error("'{topic}' is no name of a topic: {problem}")]
    TopicName { topic: String, problem: &'static str },
    /// Columns came with another type than the plan said.
    #[error("a column for Pulsar came as {found}, not {wanted}")]
    Column { found: String, wanted: &'static str },
    /// Something is asked for before the source is open.
    #[error("the Pulsar table was not opened")]
    NotOpen,
    /// The task that writes has ended after a failure that was reported before.
    #[error("writing to Pulsar has ended with a failure")]
    Ended,
}

/// What to do where the text of the broker does not say it.
fn remedy(said: &Said) -> &'static str {
    match said.code {
        code::AUTHENTICATION => {
            ". Correct 'pulsar.client.authPluginClassName' and 'pulsar.client.authParams'"
        }
        code::AUTHORIZATION => ". Let the role produce and consume there",
        code::TOPIC_NOT_FOUND => ". Create the topic, or correct its name",
        code::INVALID_TRANSACTION_STATUS | code::TRANSACTION_NOT_FOUND => {
            ". It may have been open for too long: raise 'transactionTimeoutMs', of which one that \
             was begun ahead has half, or make micro-batches smaller"
        }
        _ => "",
    }
}

impl Classified for PulsarError {
    fn kind(&self) -> Kind {
        match self {
            Self::Away { .. } | Self::Ended => Kind::Retry,
            Self::Refused { said, .. } => match said.code {
                code::AUTHENTICATION | code::AUTHORIZATION => Kind::Credentials,
                code::TOPIC_NOT_FOUND
                | code::SUBSCRIPTION_NOT_FOUND
                | code::TOPIC_TERMINATED
                | code::INVALID_TOPIC_NAME
                | code::INCOMPATIBLE_SCHEMA
                | code::UNSUPPORTED_VERSION
                | code::NOT_ALLOWED => Kind::Config,
                code::PRODUCER_FENCED => Kind::Fenced,
                // A broker that starts, is full, or hands a topic over.
                _ => Kind::Retry,
            },
            Self::Certificate { .. } => Kind::Credentials,
            Self::Frame { .. }
            | Self::Untrusted { .. }
            | Self::File { .. }
            | Self::NoTopic { .. }
            | Self::NoTransactions { .. } => Kind::Config,
            Self::Fenced { .. } => Kind::Fenced,
            Self::ProgressLost { .. }
            | Self::Record { .. }
            | Self::MessagesLost { .. }
            | Self::Entry { .. }
            | Self::Unreadable { .. }
            | Self::Malformed { .. }
            | Self::Offset { .. }
            | Self::TooLarge { .. }
            | Self::NullTopic
            | Self::TopicName { .. } => Kind::Data,
            Self::Column { .. } | Self::NotOpen => Kind::Bug,
        }
    }
}

impl PulsarError {
    /// Whether the same may work soon.
    pub(crate) fn may_pass(&self) -> bool {
        self.kind() == Kind::Retry
    }

    /// The broker's code, if this is something that it refuses.
    pub(crate) fn code(&self) -> Option<i32> {
        match self {
            Self::Refused { said, .. } => Some(said.code),
            _ => None,
        }
    }
}

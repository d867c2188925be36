//! What can go wrong with clients of a user's brokers that belong to no flow: those of `generate`
//! and `bench`.

use millstream_store::error::{Classified, Kind};
use rdkafka::error::KafkaError;
use thiserror::Error;

/// Why topics are not written or measured.
#[derive(Debug, Error)]
pub enum ClientError {
    /// The topic for messages does not exist.
    #[error("there is no topic {topic}; create it, or let the brokers create it")]
    NoTopic {
        /// Its name.
        topic: String,
    },
    /// A topic that was made for a check cannot be used.
    #[error("there is no topic {topic}, or it has no leaders")]
    NoLeaders {
        /// Its name.
        topic: String,
    },
    /// The client or the brokers refuse messages.
    #[error("the topic {topic} cannot be written: {error}")]
    NotWritten {
        /// Its name.
        topic: String,
        /// What the client says.
        error: KafkaError,
    },
    /// Another call of a client failed.
    #[error("{what}: {error}")]
    Call {
        /// What was tried, or with which topic.
        what: String,
        /// What the client says.
        error: KafkaError,
    },
    /// The user stopped a check.
    #[error("the check was stopped before its end")]
    Stopped,
}

impl Classified for ClientError {
    fn kind(&self) -> Kind {
        match self {
            Self::NoTopic { .. } | Self::NoLeaders { .. } => Kind::Config,
            Self::NotWritten { .. } | Self::Call { .. } | Self::Stopped => Kind::Retry,
        }
    }
}

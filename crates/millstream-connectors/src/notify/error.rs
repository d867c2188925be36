//! Why messages are not delivered.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use millstream_engine::api::sink::{Classified, Kind};
use thiserror::Error;

/// Why a message, or all of them, cannot be delivered.
#[derive(Debug, Error)]
pub enum DeliveryError {
    /// The receiver does not take this message.
    #[error("{receiver} refused it: {answer}. The message's key is {key}")]
    Refused { receiver: String, answer: String, key: String },
    /// The receiver did not take it however often it was tried.
    #[error("{receiver} did not accept a message in {attempts} attempts; the last one: {problem}")]
    GivenUp { receiver: String, attempts: u32, problem: String },
    /// The run ends, and a message is not delivered.
    #[error(
        "the run ends, and {receiver} has not accepted a message for {} s: {problem}. The next \
         run delivers it",
        waited.as_secs()
    )]
    Unfinished { receiver: String, waited: Duration, problem: String },
    /// The receiver does not know us.
    #[error("{receiver} refused the credentials: {answer}")]
    Denied { receiver: String, answer: String },
    /// The receiver is somewhere else, or not what the options say.
    #[error("{receiver} cannot be used: {problem}")]
    Unusable { receiver: String, problem: String },
    /// A file that the options name.
    #[error("{what} {} cannot be read: {error}", path.display())]
    File { what: &'static str, path: PathBuf, error: io::Error },
    /// The file for what is refused.
    #[error("the file of refused messages {} cannot be written: {error}", path.display())]
    RefusedFile { path: PathBuf, error: io::Error },
    /// Rows cannot be encoded.
    #[error("rows cannot be encoded: {0}")]
    Encode(io::Error),
    /// A message before this one was not delivered.
    #[error("a message before this one was not delivered")]
    Stopped,
}

impl Classified for DeliveryError {
    fn kind(&self) -> Kind {
        match self {
            Self::Refused { .. } => Kind::Data,
            Self::GivenUp { .. } | Self::Unfinished { .. } | Self::Stopped => Kind::Retry,
            Self::Denied { .. } => Kind::Credentials,
            Self::Unusable { .. } | Self::File { .. } | Self::RefusedFile { .. } => Kind::Config,
            Self::Encode(_) => Kind::Bug,
        }
    }
}

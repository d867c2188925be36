//! Why messages are not delivered.

use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use millstream_engine::api::sink::{Classified, Kind};

/// Why a message, or all of them, cannot be delivered.
#[derive(Debug, thiserror::Error)]
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
    /// The run is stopped, and the options let a message be sent only later.
    #[error(
        "the run is stopped, and the next message to {receiver} may be sent only in {} s",
        wait.as_secs()
    )]
    NotDue { receiver: String, wait: Duration },
    /// The run is stopped, and there are more messages than can be sent in a moment.
    #[error(
        "the run is stopped, and not all of its messages were sent to {receiver} in {} s",
        waited.as_secs()
    )]
    OutOfTime { receiver: String, waited: Duration },
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
            Self::GivenUp { .. }
            | Self::Unfinished { .. }
            | Self::NotDue { .. }
            | Self::OutOfTime { .. }
            | Self::Stopped => Kind::Retry,
            Self::Denied { .. } => Kind::Credentials,
            Self::Unusable { .. } | Self::File { .. } | Self::RefusedFile { .. } => Kind::Config,
            Self::Encode(_) => Kind::Bug,
        }
    }
}

/// What went wrong, with those of its reasons that it does not say itself.
pub fn cause(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        source = inner.source();
    }
    text
}

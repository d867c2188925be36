//! What can go wrong around a test or a benchmark, with a message for a person.

use std::fmt;
use std::path::PathBuf;
use std::process::ExitStatus;

use rdkafka::error::{KafkaError, RDKafkaErrorCode};

/// Why something that is needed could not be had. `Debug` shows the message as `Display` does, so
/// that a test that unwraps an error says what to do.
#[derive(thiserror::Error)]
pub enum Error {
    /// A program is not installed or does not start.
    #[error("cannot start `{program}` ({source}); {remedy}")]
    Program {
        /// As it was called.
        program: String,
        /// What to do.
        remedy: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// A program ran to its end and failed.
    #[error("{what} failed ({status}):\n{output}")]
    Failed {
        /// What it was to do.
        what: &'static str,
        /// Its status.
        status: ExitStatus,
        /// What it printed, or the end of that.
        output: String,
    },
    /// A file or directory could not be used.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// A verb.
        action: &'static str,
        /// Which one.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Nothing says where downloads are kept.
    #[error("neither XDG_CACHE_HOME nor HOME says where downloads can be kept; set one")]
    NoHome,
    /// The Kafka client refused.
    #[error("{what}: {source}")]
    Kafka {
        /// What it was to do.
        what: String,
        /// What it said.
        source: KafkaError,
    },
    /// The broker refused to make or delete a topic.
    #[error("topic {topic}: the broker answered {code}")]
    Topic {
        /// Its name.
        topic: String,
        /// The answer.
        code: RDKafkaErrorCode,
    },
    /// The broker did not answer in time.
    #[error("the broker at {brokers} did not answer within {waited_s} s")]
    BrokerSilent {
        /// HOST:PORT
        brokers: String,
        /// Seconds.
        waited_s: u64,
    },
    /// A program ended before it was to.
    #[error("{program} ended by itself ({status}); the end of its output:\n{log}")]
    Ended {
        /// Its name.
        program: String,
        /// Its status.
        status: ExitStatus,
        /// The end of what it printed.
        log: String,
    },
    /// A program did not end.
    #[error("{program} has not ended after {waited_s} s; the end of its output:\n{log}")]
    Endless {
        /// Its name.
        program: String,
        /// Seconds.
        waited_s: u64,
        /// The end of what it printed.
        log: String,
    },
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error {
    /// For `map_err` on file operations.
    pub fn file(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { action, path, source }
    }

    /// For `map_err` on calls of the Kafka client.
    pub fn kafka(what: impl Into<String>) -> impl FnOnce(KafkaError) -> Self {
        let what = what.into();
        move |source| Self::Kafka { what, source }
    }
}

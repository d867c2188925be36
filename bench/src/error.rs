//! What can go wrong around a benchmark: all of it ends the run with a message for a person.

use std::path::PathBuf;
use std::process::ExitStatus;

use millstream_testkit::error as kit;
use rdkafka::error::KafkaError;

/// Why a benchmark could not be run to its end.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The flags contradict each other or cannot be met.
    #[error("{problem}")]
    Flags { problem: String },
    /// A program, a file or a broker, of a benchmark or for it.
    #[error(transparent)]
    Kit(#[from] kit::Error),
    /// The engine was not built.
    #[error(
        "{} is not there; build it with `cargo build --release -p millstream -p millstream-bench`",
        path.display()
    )]
    NoEngine { path: PathBuf },
    /// A process did not end well when it was told to.
    #[error("{process} was asked to stop and ended with {status}; the end of its output:\n{log}")]
    Unclean { process: String, status: ExitStatus, log: String },
    /// Records sent ahead of the measurement did not come out.
    #[error(
        "{process} let no record through from partitions {partitions:?} within {waited_s} s; the \
         end of its output:\n{log}"
    )]
    NotReady { process: String, partitions: Vec<i32>, waited_s: u64, log: String },
    /// The generator's own records were refused, so the measurement is void.
    #[error("the broker refused {refused} of the generator's records")]
    Refused { refused: u64 },
    /// A topic could not be filled before the measurement.
    #[error("{problem}")]
    Fill { problem: String },
    /// The result that a process should have left is not what was agreed.
    #[error("{}: {problem}", path.display())]
    Result { path: PathBuf, problem: String },
    /// Confluent's client refused.
    #[cfg(feature = "confluent")]
    #[error("{what} with Confluent's client: {problem}")]
    Confluent { what: &'static str, problem: String },
    /// The engine did not run on messages in memory.
    #[error("the engine ended in process: {problem}")]
    InProcess { problem: String },
    /// The engine's progress could not be read.
    #[error("the engine told of its progress what is not understood: {problem}")]
    Progress { problem: String },
    /// Not all that was sent was published.
    #[error(
        "{process} has published nothing for {waited_s} s and is not where the generator is; the \
         end of its output:\n{log}"
    )]
    Behind { process: String, waited_s: u64, log: String },
    /// A Delta table could not be written or read.
    #[error("{what}: {problem}")]
    Table { what: &'static str, problem: String },
    /// The device or pipe that results go to is gone.
    #[error("cannot write a result: {source}")]
    Output { source: std::io::Error },
}

impl Error {
    /// For `map_err` on file operations.
    pub fn file(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Kit(kit::Error::File { action, path, source })
    }

    /// For `map_err` on what is done to a Delta table.
    pub fn table<E: std::fmt::Display>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |error| Self::Table { what, problem: error.to_string() }
    }

    /// For `map_err` on calls of the Kafka client.
    pub fn kafka(what: impl Into<String>) -> impl FnOnce(KafkaError) -> Self {
        let what = what.into();
        move |source| Self::Kit(kit::Error::Kafka { what, source })
    }
}

//! Why a checkpoint could not be written, or a log not be cared for.

use millstream_store::error::{Classified, Kind};
use object_store::Error;

/// Why an operation on the log failed.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The store refused a request.
    #[error("cannot {action} {file}: {source}")]
    Store {
        /// What was tried.
        action: &'static str,
        /// The file, relative to the table's directory.
        file: String,
        /// What the store said.
        source: Error,
    },
    /// A commit between the base checkpoint and the wanted version is not there.
    #[error("version {version} of the table is not in its log")]
    CommitMissing {
        /// The commit's version.
        version: u64,
    },
    /// A commit is not lines of JSON actions.
    #[error("version {version} of the table's log cannot be read: {problem}")]
    CommitUnreadable {
        /// The commit's version, or the last one of those that were decoded together.
        version: u64,
        /// What is wrong with it.
        problem: String,
    },
    /// A checkpoint file is not what it should be.
    #[error("the checkpoint file {file} cannot be used: {problem}")]
    Damaged {
        /// The file, relative to the table's directory.
        file: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The log holds no protocol or no metadata.
    #[error("the table's log has no {action} action up to version {version}")]
    Incomplete {
        /// The action that is missing.
        action: &'static str,
        /// The wanted version.
        version: u64,
    },
    /// The settings ask for V2 checkpoints and the table does not allow them.
    #[error("V2 checkpoints need the table feature v2Checkpoint, which the table does not have")]
    V2NotEnabled,
    /// The wanted version lies before the last checkpoint.
    #[error("version {asked} was asked for, and {last} has a checkpoint already")]
    Backwards {
        /// The wanted version.
        asked: u64,
        /// The last checkpoint's version.
        last: u64,
    },
    /// What was written does not hold what was kept.
    #[error("{kept} live files were kept, and the checkpoint's files hold {written}")]
    CountsDiffer {
        /// Live files as counted while building.
        kept: u64,
        /// Live files by the footers of what was written.
        written: u64,
    },
    /// Rows could not be encoded.
    #[error("a checkpoint's rows cannot be encoded: {problem}")]
    Encode {
        /// What the library said.
        problem: String,
    },
}

impl Classified for CheckpointError {
    fn kind(&self) -> Kind {
        match self {
            Self::Store { source: Error::PermissionDenied { .. }, .. } => Kind::Config,
            Self::Store { source: Error::Unauthenticated { .. }, .. } => Kind::Config,
            Self::Store { .. } => Kind::Retry,
            Self::V2NotEnabled => Kind::Config,
            Self::CommitMissing { .. }
            | Self::CommitUnreadable { .. }
            | Self::Damaged { .. }
            | Self::Incomplete { .. } => Kind::Data,
            Self::Backwards { .. } | Self::CountsDiffer { .. } | Self::Encode { .. } => Kind::Bug,
        }
    }
}

/// An error of the store, with what was tried.
pub(super) fn store_error(
    action: &'static str,
    file: &str,
) -> impl FnOnce(Error) -> CheckpointError {
    let file = file.to_owned();
    move |source| CheckpointError::Store { action, file, source }
}

/// An error of a library that reads `file`.
pub(super) fn damaged<E: std::fmt::Display>(file: &str) -> impl FnOnce(E) -> CheckpointError {
    let file = file.to_owned();
    move |error| CheckpointError::Damaged { file, problem: error.to_string() }
}

/// An error of a library that encodes.
pub(super) fn encode_error<E: std::fmt::Display>(error: E) -> CheckpointError {
    CheckpointError::Encode { problem: error.to_string() }
}

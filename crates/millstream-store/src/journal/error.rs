//! What can go wrong with a journal, and what a person can do about it.

use thiserror::Error;

use super::segment::DecodeError;
use crate::error::{Classified, Kind};
use crate::storage::{PutError, StorageError};

/// Why a journal cannot be read or written.
#[derive(Clone, Debug, Error)]
pub enum JournalError {
    /// A file is damaged.
    #[error(
        "{path} is damaged: {problem}. It holds input that the sender was told is safe, so nobody \
         sends it again: restore the file from a backup, or use a new checkpoint directory and \
         send the input again"
    )]
    Damaged {
        /// The file.
        path: String,
        /// What is wrong with it.
        problem: DecodeError,
    },
    /// Records are not there.
    #[error(
        "the journal in {location} has no records from {from} up to {to}, which the query needs. \
         The sender was told that they are safe, so nobody sends them again: restore the missing \
         files from a backup, or use a new checkpoint directory and send the input again"
    )]
    Missing {
        /// The directory.
        location: String,
        /// The first position that is missing.
        from: u64,
        /// The first that is there again, or that is asked for.
        to: u64,
    },
    /// The offset in the checkpoint is not one of a journal.
    #[error(
        "the checkpoint's offset '{offset}' is not a position in a journal: the checkpoint was \
         made with another source. Use that source, or a new checkpoint"
    )]
    ForeignOffset {
        /// The offset.
        offset: String,
    },
    /// Somebody else writes it.
    #[error(
        "another process is writing this journal: it wrote {path}, or what follows it. Run the \
         query in one process only; this one has stopped"
    )]
    Fenced {
        /// The file that this process wanted to write.
        path: String,
    },
    /// The storage refuses to write.
    #[error("the journal is not written any more: {0}")]
    Put(PutError),
    /// A file cannot be read, listed or deleted.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// It was closed before the record was written.
    #[error("the journal ended before it wrote these records")]
    Ended,
}

impl Classified for JournalError {
    fn kind(&self) -> Kind {
        match self {
            Self::Damaged { .. } | Self::Missing { .. } => Kind::Data,
            Self::ForeignOffset { .. } => Kind::Config,
            Self::Fenced { .. } => Kind::Fenced,
            Self::Put(error) => error.kind(),
            Self::Storage(error) => error.kind(),
            Self::Ended => Kind::Retry,
        }
    }
}

impl From<PutError> for JournalError {
    fn from(error: PutError) -> Self {
        match error {
            PutError::AlreadyExists { path } => Self::Fenced { path },
            error => Self::Put(error),
        }
    }
}

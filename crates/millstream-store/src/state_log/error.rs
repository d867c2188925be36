//! Why the state of a query cannot be rebuilt, and what a person can do about it.

use thiserror::Error;

use super::file::DecodeError;
use crate::error::{Classified, Kind};
use crate::offset::BatchId;
use crate::storage::{PutError, StorageError};

/// Why the state cannot be rebuilt.
#[derive(Debug, Error)]
pub enum ReadError {
    /// A file is damaged.
    #[error(
        "{path} is damaged: {problem}. State cannot be rebuilt without it: restore the file from a \
         backup, or use a new checkpoint directory (the query then begins anew)"
    )]
    Damaged {
        /// The file.
        path: String,
        /// What is wrong with it.
        problem: DecodeError,
    },
    /// A file has a number that no query reaches.
    #[error(
        "{path} has an impossible number, so no query has written it. Move it out of the \
         directory, then start the query again"
    )]
    OutOfReach {
        /// The file.
        path: String,
    },
    /// Entries are missing.
    #[error(
        "{location} has no entry of micro-batch {missing}, which the state of micro-batch {last} \
         needs. Restore the missing file from a backup, or use a new checkpoint directory (the \
         query then begins anew)"
    )]
    Missing {
        /// The directory.
        location: String,
        /// The first that is missing.
        missing: BatchId,
        /// The last one that is there.
        last: BatchId,
    },
    /// The state was made by other operators than the query has now.
    #[error(
        "the checkpoint {location} has the state of another query: {changed}. State fits only the query that made it: restore the former query, or use a new checkpoint \
         directory (the query then begins anew)"
    )]
    QueryChanged {
        /// The checkpoint.
        location: String,
        /// What is different, in words.
        changed: String,
    },
    /// A file cannot be read.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The marker cannot be written.
    #[error("cannot begin the state of a query: {0}")]
    Put(#[from] PutError),
}

impl Classified for ReadError {
    fn kind(&self) -> Kind {
        match self {
            Self::Damaged { .. } | Self::OutOfReach { .. } | Self::Missing { .. } => Kind::Data,
            Self::QueryChanged { .. } => Kind::Config,
            Self::Storage(error) => error.kind(),
            Self::Put(error) => error.kind(),
        }
    }
}

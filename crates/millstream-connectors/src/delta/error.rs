//! What can go wrong with what a table and its query know of each other.

use millstream_engine::api::sink::{BatchId, Classified, Kind};
use millstream_lake::error::TableError;
use thiserror::Error;

/// Why a query does not go on with its table.
#[derive(Debug, Error)]
pub(super) enum DeltaError {
    /// What the table says of this query's last micro-batch is not a number of one.
    #[error("the table's txn of this query has the version {version}")]
    Version {
        /// The version of its `txn` action.
        version: i64,
    },
    /// The table had a commit for a micro-batch or a later one: what is in it is not ours.
    #[error(
        "the table has a commit for micro-batch {batch_id} of this query already, which this \
         process did not make: two processes run one checkpoint. This one stops"
    )]
    Taken {
        /// The micro-batch.
        batch_id: BatchId,
    },
    /// The table is not there any more, or not as far as it was.
    #[error(
        "{gone}. To continue from the query's position, without the lost rows, delete {record}"
    )]
    Gone {
        /// What was there, and what is now.
        gone: TableError,
        /// The directory in which the query remembers the table.
        record: String,
    },
    /// What the query remembers of the table cannot be read.
    #[error(
        "{record}/{id} is damaged: {error}. Restore it from a backup. If the table has all that \
         it had, delete it"
    )]
    Record {
        /// The directory in which the query remembers the table.
        record: String,
        /// The entry's number.
        id: BatchId,
        /// How it differs from what is written there.
        error: serde_json::Error,
    },
}

impl Classified for DeltaError {
    fn kind(&self) -> Kind {
        match self {
            Self::Version { .. } | Self::Gone { .. } | Self::Record { .. } => Kind::Data,
            Self::Taken { .. } => Kind::Fenced,
        }
    }
}

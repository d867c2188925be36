//! What can go wrong with what a table and its query know of each other.

use arrow::array::RecordBatch;
use millstream_engine::api::sink::{BatchId, Classified, Failure, Kind, RefusedRow};
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
    /// The offset log has a position that is none of this table's.
    #[error(
        "the offset {offset} cannot be read on from: {problem}. Give the query a checkpoint of \
         its own"
    )]
    ForeignOffset {
        /// What stands in the log.
        offset: String,
        /// Why it is not taken.
        problem: String,
    },
    /// The table does not have the files of a micro-batch that is not published yet.
    #[error(
        "the table {table} does not give the files up to {end} that it gave before, and the query \
         has not published them. If options of the source were changed (skipChangeCommits, \
         ignoreChanges, readChangeFeed), put them back until that micro-batch is published; if the \
         table was put back from an older copy, delete the query's checkpoint to read all of it \
         again"
    )]
    OtherFiles {
        /// The table's location.
        table: String,
        /// The position.
        end: String,
    },
    /// A query of Spark's has begun with the newest version, and has not noted which it was.
    #[error(
        "the first micro-batch of the query was logged by Spark and is not published, and it began \
         with 'startingVersion' = 'latest', so nothing says which version of the table {table} it \
         begins with. Set 'startingVersion' to the first version that came after the query was \
         started, which is {last} at most (`millstream table history` shows their times), until \
         that micro-batch is published"
    )]
    UnknownBeginning {
        /// The table's location.
        table: String,
        /// The last version that it may be.
        last: u64,
    },
    /// The table has other columns than those that the pipeline was planned with.
    #[error(
        "the columns of the table {table} have changed since the pipeline was loaded; start it \
         again to read on with the new ones"
    )]
    Columns {
        /// The table's location.
        table: String,
    },
}

impl Classified for DeltaError {
    fn kind(&self) -> Kind {
        match self {
            Self::ForeignOffset { .. } | Self::Columns { .. } | Self::UnknownBeginning { .. } => {
                Kind::Config
            }
            Self::OtherFiles { .. } => Kind::Data,
            Self::Version { .. } | Self::Gone { .. } | Self::Record { .. } => Kind::Data,
            Self::Taken { .. } => Kind::Fenced,
        }
    }
}

/// Why rows were not written: one of them, which `refuses` finds among others, or the store.
pub(super) fn not_written(
    error: TableError,
    refuses: impl Fn(&RecordBatch) -> bool + Send + Sync + 'static,
) -> Failure {
    match error {
        TableError::Row { .. } => RefusedRow::new(error, refuses).into(),
        other => other.into(),
    }
}

//! Why a table is not read on as a stream.

use millstream_store::error::{Classified, Kind};
use thiserror::Error;

use crate::error::TableError;

/// Why a stream of a table stops. What is to be done about it is said here in the words of the
/// options of Spark's source.
#[derive(Debug, Error)]
pub enum StreamError {
    /// The table or its store.
    #[error(transparent)]
    Table(#[from] TableError),
    /// Another table is at the place where the query has read one.
    #[error(
        "another table is at {table} now: the query has read the one with the id {wanted}, and \
         this one has the id {found}. If the table was deleted and made anew, delete the query's \
         checkpoint to read all of the new one"
    )]
    OtherTable {
        /// The table's location.
        table: String,
        /// The id of the table that the query has read.
        wanted: String,
        /// The id of the table that is there.
        found: String,
    },
    /// The table has fewer versions than the query has read.
    #[error(
        "the query has seen version {read} of the table {table}, whose newest version is \
         {newest} now: it was put back from an older copy. Delete the query's checkpoint to read \
         all of it again"
    )]
    Shrunk {
        /// The table's location.
        table: String,
        /// The last version that was read, or seen.
        read: u64,
        /// The newest version that is there.
        newest: u64,
    },
    /// A version that was read is another one now.
    #[error(
        "version {version} of the table {table} is not the one that the query has read: the table \
         was put back from an older copy, and written to since. Delete the query's checkpoint to \
         read all of it again"
    )]
    Rewritten {
        /// The table's location.
        table: String,
        /// The version.
        version: u64,
    },
    /// Versions that were not read yet are not in the log any more.
    #[error(
        "the log of the table {table} has no version {from} to {to} any more, which the query has \
         not read: {lost}. Keep the log for longer (delta.logRetentionDuration); to go on \
         with version {next}, without the lost rows, set 'failOnDataLoss' = 'false'"
    )]
    Lost {
        /// The table's location.
        table: String,
        /// The first version that is lost.
        from: u64,
        /// The last version that is lost.
        to: u64,
        /// How that came about.
        lost: &'static str,
        /// The first version that is there.
        next: u64,
    },
    /// The version whose files are read first cannot be read any more.
    #[error(
        "version {version} of the table {table}, which the query began to read as a whole, cannot \
         be read any more: {cause}. Delete the query's checkpoint to begin anew, and keep the log \
         for longer (delta.logRetentionDuration)"
    )]
    SnapshotGone {
        /// The table's location.
        table: String,
        /// The version.
        version: u64,
        /// Why it cannot be read.
        cause: TableError,
    },
    /// A file whose rows were not read yet is gone.
    #[error(
        "{missing}: it was deleted before the query has read it, by a VACUUM say. Keep files for \
         longer (delta.deletedFileRetentionDuration); to go on without the rows of such files, \
         set 'failOnDataLoss' = 'false'"
    )]
    FileGone {
        /// Which file of which version.
        missing: TableError,
    },
    /// A commit has changed rows that were there.
    #[error(
        "version {version} of the table {table} changes rows that were there ({change}), and a \
         stream gives rows that are added. To leave such commits out, set 'skipChangeCommits' = \
         'true'; to get changed files again as a whole, with rows that were read before, \
         'ignoreChanges' = 'true'; to get each change as a row, 'readChangeFeed' = 'true' in a new \
         query"
    )]
    Changed {
        /// The table's location.
        table: String,
        /// The version.
        version: u64,
        /// What the commit is called, or a file that it removes.
        change: String,
    },
    /// A commit has deleted rows.
    #[error(
        "version {version} of the table {table} deletes rows (the file {file} is removed, for \
         example), and a stream gives rows that are added. To leave such commits out, set \
         'ignoreDeletes' = 'true'"
    )]
    Deleted {
        /// The table's location.
        table: String,
        /// The version.
        version: u64,
        /// A file that was removed.
        file: String,
    },
    /// The schema has changed, and a query that starts now can read on.
    #[error(
        "version {version} of the table {table} changes its schema: {change}. The query reads on \
         with the new schema after a restart"
    )]
    SchemaChanged {
        /// The table's location.
        table: String,
        /// The version.
        version: u64,
        /// What is different.
        change: String,
    },
    /// The schema has changed, and no query reads what is before and after with one schema.
    #[error(
        "version {version} of the table {table} changes its schema, and rows of before and after \
         have none in common: {change}. Start the query again: if all rows of before are \
         published, it reads on with the new schema. If not, it refuses; then begin a new query, \
         with a checkpoint of its own, at that version ('startingVersion' = '{version}')"
    )]
    SchemaReplaced {
        /// The table's location.
        table: String,
        /// The version.
        version: u64,
        /// What is different.
        change: String,
    },
    /// Rows that were not read yet were written under a schema that cannot be read under the new.
    #[error(
        "rows of version {version} of the table {table} cannot be read with the schema of version \
         {read}: {change}. Version {changed} has brought the new schema. Begin a new query, with a \
         checkpoint of its own, at that version ('startingVersion' = '{changed}'); rows of before \
         are there for a batch query ('versionAsOf')"
    )]
    SchemaIncompatible {
        /// The table's location.
        table: String,
        /// The version whose rows are to be read.
        version: u64,
        /// The version whose schema rows are read with.
        read: u64,
        /// The first version whose schema fits.
        changed: u64,
        /// What is different.
        change: String,
    },
    /// Changes were asked for that nobody has recorded.
    #[error(
        "the table {table} does not record changes at version {version}, so 'readChangeFeed' \
         cannot give them. Set its property delta.enableChangeDataFeed to true, and begin a new \
         query at a later version ('startingVersion')"
    )]
    NoChangeFeed {
        /// The table's location.
        table: String,
        /// The version.
        version: u64,
    },
    /// A removed file is not described, so its rows cannot be given as deleted.
    #[error(
        "version {version} of the table {table} removes the file {file}, and does not say {what}: \
         'readChangeFeed' cannot give its rows as deleted. Begin a new query, with a checkpoint of \
         its own, behind that version ('startingVersion' = '{next}'), and let the writer describe \
         removed files (extendedFileMetadata) or write files of changes"
    )]
    SparseRemove {
        /// The table's location.
        table: String,
        /// The version.
        version: u64,
        /// The file.
        file: String,
        /// What is missing.
        what: &'static str,
        /// The version behind it.
        next: u64,
    },
    /// A query was to begin at a moment that is yet to come.
    #[error(
        "'startingTimestamp' is later than the newest version of the table {table}, which is of \
         {newest_ms} ms since the epoch. To begin with what comes, set 'startingVersion' = 'latest'"
    )]
    InTheFuture {
        /// The table's location.
        table: String,
        /// The time of the newest version.
        newest_ms: i64,
    },
    /// All that is left of a log is a checkpoint.
    #[error(
        "the log of the table {table} has no commits any more, only a checkpoint of version \
         {version}: what a version has added is not known. To begin with all rows, leave out \
         'startingVersion' and 'startingTimestamp'; to begin with what comes, set 'startingVersion' \
         = 'latest'"
    )]
    NoCommits {
        /// The table's location.
        table: String,
        /// The newest version.
        version: u64,
    },
    /// A position does not fit the table.
    #[error("the table {table} has nothing at the position of the query: {problem}")]
    Position {
        /// The table's location.
        table: String,
        /// What does not fit.
        problem: String,
    },
}

impl Classified for StreamError {
    fn kind(&self) -> Kind {
        match self {
            Self::Table(error) => error.kind(),
            Self::SchemaChanged { .. }
            | Self::InTheFuture { .. }
            | Self::NoChangeFeed { .. }
            | Self::NoCommits { .. } => Kind::Config,
            Self::OtherTable { .. }
            | Self::Shrunk { .. }
            | Self::Lost { .. }
            | Self::SnapshotGone { .. }
            | Self::FileGone { .. }
            | Self::Changed { .. }
            | Self::Deleted { .. }
            | Self::Rewritten { .. }
            | Self::SchemaReplaced { .. }
            | Self::SchemaIncompatible { .. }
            | Self::SparseRemove { .. }
            | Self::Position { .. } => Kind::Data,
        }
    }
}

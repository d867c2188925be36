//! What can go wrong with a table, sorted by what the caller should do.

use std::io::ErrorKind;

use delta_kernel::KernelError;
use millstream_store::error::{Classified, Kind};
use thiserror::Error;

pub use crate::store::LocationError;

/// Why a table could not be opened, read or written.
#[derive(Debug, Error)]
pub enum TableError {
    /// There is no table.
    #[error("there is no Delta table at {table}")]
    Missing {
        /// The table's location.
        table: String,
    },
    /// The table has a feature that is not written or read here.
    #[error("the table {table} cannot be {action} here: {problem}")]
    Unsupported {
        /// The table's location.
        table: String,
        /// `read`, `written`, `compacted` or `merged into`.
        action: &'static str,
        /// The feature and why.
        problem: String,
    },
    /// The rows do not fit the table.
    #[error("rows of this query do not fit the table {table}: {problem}")]
    Mismatch {
        /// The table's location.
        table: String,
        /// Which column, and how to repair it.
        problem: String,
    },
    /// A row breaks a rule of the table.
    #[error("a row cannot be written to the table {table}: {problem}")]
    Row {
        /// The table's location.
        table: String,
        /// Which rule.
        problem: String,
    },
    /// A result that is to be merged has two rows of one key, and nothing says which comes last.
    #[error(
        "the result has several rows with the same {keys}, and a batch query does not say which of \
         them is to be in the table {table}; make it one row of each (GROUP BY {keys}, with max_by \
         for the other columns)"
    )]
    Repeated {
        /// The table's location.
        table: String,
        /// The key columns.
        keys: String,
    },
    /// More rows are to be merged in one commit than there is memory for.
    #[error(
        "one commit into the table {table} would have more than {keys_max} keys; raise \
         'merge.indexMemory', make 'commitInterval' shorter, or load the first rows without \
         'mode' = 'merge'"
    )]
    TooManyKeys {
        /// The table's location.
        table: String,
        /// How many it may have.
        keys_max: usize,
    },
    /// The log cannot be read.
    #[error("the log of the table {table} is damaged: {problem}")]
    Damaged {
        /// The table's location.
        table: String,
        /// What is wrong.
        problem: String,
    },
    /// Another process writes for the same query.
    #[error(
        "another process has published micro-batch {theirs} of this query to the table {table}, \
         which is not before our {ours}: two processes run one checkpoint. This one stops"
    )]
    Fenced {
        /// The table's location.
        table: String,
        /// The micro-batch found in the table.
        theirs: i64,
        /// The micro-batch to be published.
        ours: i64,
    },
    /// What was there is not there any more.
    #[error(
        "version {version} of the table {table}, which this query has written or built on, is not there any more: {found}. Rows are lost if the query continues: restore the table from a backup. If it was deleted or restored on purpose, give the query a new checkpoint, which \
         begins anew"
    )]
    Gone {
        /// The table's location.
        table: String,
        /// The version that was there.
        version: u64,
        /// What is there now, in words.
        found: String,
    },
    /// The table changed so that rows prepared before do not fit any more.
    #[error(
        "the table {table} got another {what} at version {version}, while rows were on their way; \
         start the query again to use the new one"
    )]
    Changed {
        /// The table's location.
        table: String,
        /// `schema` or `protocol`.
        what: &'static str,
        /// Where.
        version: u64,
    },
    /// The store refused or failed.
    #[error("{action} {table}: {cause}")]
    Store {
        /// What was done, as `cannot write to`.
        action: &'static str,
        /// The table's location.
        table: String,
        /// What the store said.
        cause: String,
        /// What the caller should do.
        kind: Kind,
    },
    /// A file of the log cannot be read, and the rest of the log does not make up for it.
    #[error(
        "{file} in the log of the table {table} cannot be used: {problem}. Nothing can be read \
         without it, as version {missing} is not in the log any more"
    )]
    Irreplaceable {
        /// The table's location.
        table: String,
        /// The file, relative to the table's directory.
        file: String,
        /// What is wrong with it.
        problem: String,
        /// The commit that would have to be there to do without the file.
        missing: u64,
    },
    /// A file that holds rows, or says which of them are deleted, is not there.
    #[error(
        "the table {table} names the file {file} in version {version}, and the file does not exist"
    )]
    FileMissing {
        /// The table's location.
        table: String,
        /// The file, relative to the table's directory.
        file: String,
        /// The version that is read.
        version: u64,
    },
    /// A file that holds rows, or says which of them are deleted, is not what it should be.
    #[error("the file {file} of the table {table} cannot be read: {problem}")]
    FileDamaged {
        /// The table's location.
        table: String,
        /// The file, relative to the table's directory.
        file: String,
        /// What is wrong with it.
        problem: String,
    },
    /// There was no such version, or it cannot be read any more.
    #[error(
        "the table {table} cannot be read as of {asked}: it can be read from version {oldest} \
         ({oldest_ms} ms) to version {newest} ({newest_ms} ms)"
    )]
    NotReadable {
        /// The table's location.
        table: String,
        /// The version or the moment that was asked for.
        asked: String,
        /// The oldest version that can be read.
        oldest: u64,
        /// Its time, milliseconds since the epoch.
        oldest_ms: i64,
        /// The newest version.
        newest: u64,
        /// Its time, milliseconds since the epoch.
        newest_ms: i64,
    },
    /// A column was asked for that the table has not.
    #[error("the table {table} has no column {column:?}")]
    NoColumn {
        /// The table's location.
        table: String,
        /// The column's name.
        column: String,
    },
    /// Partitions cannot be chosen by a condition.
    #[error("the partitions of the table {table} cannot be chosen: {problem}")]
    Condition {
        /// The table's location.
        table: String,
        /// What is wrong with the condition, or with a partition's values.
        problem: String,
    },
    /// Files were to be deleted that readers are promised to find.
    #[error(
        "files of the table {table} are kept for {kept_ms} ms after they were removed; to delete \
         them after {asked_ms} ms already could break running readers and writers, so it must be forced"
    )]
    Retention {
        /// The table's location.
        table: String,
        /// What was asked for, in milliseconds.
        asked_ms: i64,
        /// What the table promises, in milliseconds.
        kept_ms: i64,
    },
    /// Encoding failed.
    #[error("a data file of the table {table} could not be written: {cause}")]
    Encoding {
        /// The table's location.
        table: String,
        /// What the encoder said.
        cause: String,
    },
}

impl Classified for TableError {
    fn kind(&self) -> Kind {
        match self {
            Self::Missing { .. } | Self::Unsupported { .. } | Self::Mismatch { .. } => Kind::Config,
            Self::NotReadable { .. } | Self::NoColumn { .. } => Kind::Config,
            Self::Retention { .. } | Self::Condition { .. } => Kind::Config,
            Self::Gone { .. } | Self::Repeated { .. } => Kind::Data,
            Self::TooManyKeys { .. } => Kind::Config,
            Self::Row { .. } | Self::Damaged { .. } | Self::Irreplaceable { .. } => Kind::Data,
            Self::FileMissing { .. } | Self::FileDamaged { .. } => Kind::Data,
            Self::Fenced { .. } => Kind::Fenced,
            Self::Changed { .. } => Kind::Config,
            Self::Store { kind, .. } => *kind,
            Self::Encoding { .. } => Kind::Bug,
        }
    }
}

impl TableError {
    /// A store's error.
    pub(crate) fn store(action: &'static str, table: &str, error: &object_store::Error) -> Self {
        let (kind, cause) = explained(error);
        Self::Store { action, table: table.to_owned(), cause, kind }
    }

    /// An error of the protocol library.
    pub(crate) fn kernel(action: &'static str, table: &str, error: KernelError) -> Self {
        let table = table.to_owned();
        match error {
            KernelError::Backtraced { source, .. } => Self::kernel(action, &table, *source),
            KernelError::EmptyLog | KernelError::FileNotFound(_) => Self::Missing { table },
            KernelError::ObjectStore(error) => Self::store(store_action(action), &table, &error),
            KernelError::IOError(error) => {
                let (kind, cause) = (io_kind(error.kind()), error.to_string());
                Self::Store { action: store_action(action), table, cause, kind }
            }
            KernelError::Unsupported(problem) | KernelError::InvalidProtocol(problem) => {
                Self::Unsupported { table, action, problem }
            }
            other => Self::Damaged { table, problem: other.to_string() },
        }
    }
}

fn store_action(action: &'static str) -> &'static str {
    if action == "written" { "cannot write to" } else { "cannot read" }
}

/// Whether the operating system said no to a local file, which it would say again.
pub(crate) fn is_local_refusal(error: &object_store::Error) -> bool {
    explained(error).0 == Kind::Config
}

/// What to do about a store's error, and what it says, with the system's own words where it has.
fn explained(error: &object_store::Error) -> (Kind, String) {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(inner) = cause {
        if let Some(io) = inner.downcast_ref::<std::io::Error>()
            && io.raw_os_error().is_some()
        {
            return (io_kind(io.kind()), error.to_string());
        }
        cause = inner.source();
    }
    let kind = match error {
        object_store::Error::PermissionDenied { .. }
        | object_store::Error::Unauthenticated { .. }
        | object_store::Error::NotFound { .. }
        | object_store::Error::InvalidPath { .. }
        | object_store::Error::NotSupported { .. }
        | object_store::Error::NotImplemented { .. }
        | object_store::Error::UnknownConfigurationKey { .. } => Kind::Config,
        _ => Kind::Retry,
    };
    (kind, error.to_string())
}

fn io_kind(kind: ErrorKind) -> Kind {
    match kind {
        ErrorKind::Interrupted | ErrorKind::TimedOut | ErrorKind::WouldBlock => Kind::Retry,
        // On the way to an object store.
        ErrorKind::ConnectionRefused
        | ErrorKind::ConnectionReset
        | ErrorKind::ConnectionAborted
        | ErrorKind::NotConnected
        | ErrorKind::BrokenPipe
        | ErrorKind::HostUnreachable
        | ErrorKind::NetworkUnreachable
        | ErrorKind::NetworkDown
        | ErrorKind::UnexpectedEof => Kind::Retry,
        _ => Kind::Config,
    }
}

//! What can go wrong with files.

use std::io;
use std::path::{Path, PathBuf};

use millstream_engine::api::source::{Classified, Kind};
use thiserror::Error;

use crate::paths::is_stored;

/// What can go wrong when files are listed, read or written. Each says which file, and what to do.
#[derive(Debug, Error)]
pub enum FileError {
    /// The directory or file in the option `path` does not exist.
    #[error("{} does not exist: create it, or correct 'path'", path.display())]
    NoSuchPath {
        /// As resolved.
        path: PathBuf,
    },
    /// The pattern in the option `path` is none.
    #[error("'{pattern}' is not a glob pattern: {problem}")]
    Pattern {
        /// As resolved.
        pattern: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The operating system refuses.
    #[error("{} cannot be read: {error}; check its permissions", path.display())]
    Unreadable {
        /// The file or directory.
        path: PathBuf,
        /// What the operating system says.
        error: io::Error,
    },
    /// A file that was found is gone.
    #[error(
        "{} was found but is gone: put it back, or set 'ignoreMissingFiles' to 'true'",
        path.display()
    )]
    Vanished {
        /// The file.
        path: PathBuf,
    },
    /// A file has another size or time than when it was found.
    #[error(
        "{} changed after it was found: write files under a name that starts with a dot and rename them when they are complete; to read this one as it is now, start with a new checkpoint",
        path.display()
    )]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// A file does not hold what its format says.
    #[error(
        "{} is not a readable {format} file: {problem}; replace it{}",
        path.display(),
        or_pass_over(path)
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The format it should have.
        format: &'static str,
        /// What is wrong.
        problem: String,
    },
    /// A record does not fit its columns, in mode FAILFAST.
    #[error("{}, line {line}: {problem}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: u64,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// A line that was decoded, and is asked for once more, is not found.
    #[error("{}, line {line}: a line that was decoded is gone", path.display())]
    NoSuchLine {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: u64,
    },
    /// A column of a file has a type that cannot become the declared one.
    #[error(
        "column {column} is {found} in {}, but declared as {wanted}: change the declaration, or \
         remove the file",
        path.display()
    )]
    ColumnType {
        /// The file.
        path: PathBuf,
        /// The column's name.
        column: String,
        /// The type in the file.
        found: String,
        /// The declared type.
        wanted: String,
    },
    /// The checkpoint's source log does not read as one.
    #[error("the checkpoint's list of files {name} is damaged: {problem}; restore it from a copy")]
    Log {
        /// The file in the source log.
        name: String,
        /// What is wrong.
        problem: String,
    },
    /// The offset log holds an offset of some other source.
    #[error(
        "the checkpoint's offset '{offset}' is not one of a file source, which looks like \
         {{\"logOffset\":3}}: use another checkpoint"
    )]
    ForeignOffset {
        /// As logged.
        offset: String,
    },
    /// A directory or file cannot be written.
    #[error("{} cannot be written: {error}; {}", path.display(), advice(error))]
    Unwritable {
        /// The file or directory.
        path: PathBuf,
        /// What the operating system says.
        error: io::Error,
    },
    /// A file that must not exist does.
    #[error(
        "{} exists: another query writes to the same directory; give each its own",
        path.display()
    )]
    Occupied {
        /// The manifest entry.
        path: PathBuf,
    },
    /// The manifest does not read as one.
    #[error(
        "the manifest {} is damaged: {problem}. Restore it from a copy, or write to another \
         directory",
        path.display()
    )]
    Manifest {
        /// The manifest's directory.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// A commit's record does not read as one.
    #[error(
        "{} is not a record of a commit: {problem}. Restore it from a copy, or write to another \
         directory",
        path.display()
    )]
    Record {
        /// The record.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// The directory has files of commits and says of none how far the query came.
    #[error(
        "{} is empty: its last record is missing, which contains the query's published progress. Restore it from a copy, or write to another directory",
        path.display()
    )]
    NoRecord {
        /// The directory of the records.
        path: PathBuf,
    },
    /// Something else has written to the manifest.
    #[error(
        "the manifest {} goes up to {last}, and this query's last commit is {ours}: something else \
         has written to it since. Write to another directory",
        path.display()
    )]
    Overtaken {
        /// The manifest's directory.
        path: PathBuf,
        /// Its last entry.
        last: u64,
        /// The entry of the last commit.
        ours: u64,
    },
    /// Another process has the directory open, or another flow of this one.
    #[error(
        "{} is locked: another flow writes to the same directory at this moment; give each its \
         own, or end the other one",
        path.display()
    )]
    InUse {
        /// The lock.
        path: PathBuf,
    },
    /// The directory belongs to another query.
    #[error(
        "{} was written by the query {found}, and this is {ours}: its micro-batches would be treated as repetitions and left out. Was the pipeline file or the flow renamed, or the checkpoint \
         moved? Then continue with that query's checkpoint: give it with --checkpoint. Otherwise choose another directory. (A directory does not record the position of a query's sources, so --adopt cannot continue from it)",
        path.display()
    )]
    OtherQuery {
        /// The directory.
        path: PathBuf,
        /// The query id found there.
        found: String,
        /// The query id of this query.
        ours: String,
    },
}

impl FileError {
    /// What went wrong while `path` was opened or read.
    pub(super) fn reading(path: impl Into<PathBuf>, error: io::Error) -> Self {
        let path = path.into();
        match error.kind() {
            io::ErrorKind::NotFound => Self::Vanished { path },
            _ => Self::Unreadable { path, error },
        }
    }

    /// What went wrong while `path` was written.
    pub(super) fn writing(path: impl Into<PathBuf>, error: io::Error) -> Self {
        Self::Unwritable { path: path.into(), error }
    }

    /// Whether the option `ignoreCorruptFiles` is about it.
    pub(super) fn is_corrupt(&self) -> bool {
        matches!(self, Self::Corrupt { .. })
    }

    /// Whether the option `ignoreMissingFiles` is about it.
    pub(super) fn is_vanished(&self) -> bool {
        matches!(self, Self::Vanished { .. })
    }
}

/// What may be done about a corrupt file besides replacing it.
fn or_pass_over(path: &Path) -> &'static str {
    match path.to_str().is_some_and(is_stored) {
        true => "",
        false => ", or set 'ignoreCorruptFiles' to 'true'",
    }
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "make room on the disk, then start again"
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "check the permissions"
        }
        io::ErrorKind::NotADirectory => "'path' must be a directory",
        _ => "check the disk, then start again",
    }
}

impl Classified for FileError {
    fn kind(&self) -> Kind {
        match self {
            Self::NoSuchPath { .. }
            | Self::Pattern { .. }
            | Self::Unreadable { .. }
            | Self::Unwritable { .. }
            | Self::OtherQuery { .. } => Kind::Config,
            Self::Vanished { .. }
            | Self::Changed { .. }
            | Self::Corrupt { .. }
            | Self::Malformed { .. }
            | Self::ColumnType { .. }
            | Self::Log { .. }
            | Self::Manifest { .. }
            | Self::Record { .. }
            | Self::NoRecord { .. }
            | Self::Overtaken { .. }
            | Self::ForeignOffset { .. } => Kind::Data,
            Self::Occupied { .. } | Self::InUse { .. } => Kind::Fenced,
            Self::NoSuchLine { .. } => Kind::Bug,
        }
    }
}

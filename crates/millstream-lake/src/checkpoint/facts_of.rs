//! What can be said of a checkpoint without decoding it.

use super::facts::read_footer;
use super::names::LogName;
use crate::error::TableError;
use crate::store::TableStore;

/// A checkpoint that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointFacts {
    /// The table's version.
    pub version: u64,
    /// How it is laid out.
    pub kind: CheckpointKind,
    /// Its files, but for sidecars.
    pub parts: usize,
    /// Actions in them; `None` for JSON, and where a file cannot be read.
    pub rows: Option<u64>,
    /// Bytes of these files.
    pub bytes: u64,
}

/// Kinds of checkpoints, by their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointKind {
    /// One file. It may name sidecars.
    Classic,
    /// A set of files.
    MultiPart,
    /// V2, under a unique name.
    Unique,
}

/// The facts of the checkpoint with these files.
pub(crate) fn checkpoint(
    store: &TableStore,
    files: &[String],
) -> Result<Option<CheckpointFacts>, TableError> {
    let Some(first) = files.first().and_then(|name| LogName::parse(name)) else { return Ok(None) };
    let kind = match first {
        LogName::Part { .. } => CheckpointKind::MultiPart,
        LogName::Unique { .. } => CheckpointKind::Unique,
        _ => CheckpointKind::Classic,
    };
    let (mut rows, mut bytes) = (Some(0), 0);
    for name in files {
        let size = store
            .head(name)
            .map_err(|error| TableError::store("cannot read", &store.shown_file(name), &error))?;
        bytes += size.size;
        let footer = read_footer(store, name, size.size).ok();
        let more = footer.map(|footer| footer.file_metadata().num_rows());
        let more = more.and_then(|rows| u64::try_from(rows).ok());
        rows = rows.zip(more).map(|(rows, more)| rows + more);
    }
    let (version, parts) = (first.version(), files.len());
    Ok(Some(CheckpointFacts { version, kind, parts, rows, bytes }))
}

//! What happened to a table: its newest commits, as far as the log still has them.

use object_store::Error;
use serde::Deserialize;
use serde_json::Value;

use crate::checkpoint::span::in_commit_ms;
use crate::entry;
use crate::error::TableError;
use crate::read::TableReader;
use crate::store::TableStore;

/// One version, by its commit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Version {
    /// Its number.
    pub version: u64,
    /// Milliseconds since the epoch: what the commit states, if the table has in-commit timestamps,
    /// else the time of its file.
    pub timestamp_ms: i64,
    /// `WRITE`, `STREAMING UPDATE`, ..: the writer's word.
    pub operation: Option<String>,
    /// The writer's account of what it was asked for, as JSON.
    pub operation_parameters: Option<Value>,
    /// Which software wrote it.
    pub engine_info: Option<String>,
    /// A note of the user.
    pub user_metadata: Option<String>,
    /// Files that it added.
    pub files_added: u64,
    /// Files that it removed.
    pub files_removed: u64,
    /// Rows in the files added; `None` if one of them does not say. A file that only got another
    /// deletion vector counts as removed and added.
    pub rows_added: Option<u64>,
    /// Rows in the files removed; `None` if one of them does not say.
    pub rows_removed: Option<u64>,
}

/// A line of a commit.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CommitLine {
    add: Option<FileAction>,
    remove: Option<FileAction>,
    commit_info: Option<CommitInfo>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FileAction {
    stats: Option<String>,
    deletion_vector: Option<DeletionVector>,
}

#[derive(Deserialize)]
struct DeletionVector {
    cardinality: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Statistics {
    num_records: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CommitInfo {
    operation: Option<String>,
    operation_parameters: Option<Value>,
    engine_info: Option<String>,
    user_metadata: Option<String>,
}

/// The newest `versions_max` versions up to the reader's, newest first; fewer if the log was
/// cleaned up.
pub fn history(reader: &TableReader, versions_max: usize) -> Result<Vec<Version>, TableError> {
    let mut history = Vec::new();
    for version in (0..=reader.version()).rev().take(versions_max) {
        match read(reader.store(), version)? {
            Some(found) => history.push(found),
            None => break,
        }
    }
    Ok(history)
}

fn read(store: &TableStore, version: u64) -> Result<Option<Version>, TableError> {
    let name = entry::name(version);
    let failed = |error| TableError::store("cannot read", &store.shown_file(&name), &error);
    let content = match store.get(&name) {
        Ok(content) => content,
        Err(Error::NotFound { .. }) => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let damaged = |problem| TableError::Damaged { table: store.shown_file(&name), problem };
    let mut found = parse(&content).map_err(damaged)?;
    found.version = version;
    found.timestamp_ms = match in_commit_ms(&content) {
        Some(stated_ms) => stated_ms,
        None => store.head(&name).map_err(failed)?.modified_ms,
    };
    Ok(Some(found))
}

fn parse(content: &[u8]) -> Result<Version, String> {
    let (rows_added, rows_removed) = (Some(0), Some(0));
    let mut version = Version { rows_added, rows_removed, ..Version::default() };
    for (number, line) in content.split(|byte| *byte == b'\n').enumerate() {
        if line.trim_ascii().is_empty() {
            continue;
        }
        let line: CommitLine = serde_json::from_slice(line)
            .map_err(|error| format!("line {} is no action: {error}", number + 1))?;
        version.add(line);
    }
    Ok(version)
}

impl Version {
    fn add(&mut self, line: CommitLine) {
        if let Some(add) = line.add {
            self.files_added += 1;
            self.rows_added = sum(self.rows_added, add.rows());
        }
        if let Some(remove) = line.remove {
            self.files_removed += 1;
            self.rows_removed = sum(self.rows_removed, remove.rows());
        }
        if let Some(info) = line.commit_info {
            self.operation = info.operation;
            self.operation_parameters = info.operation_parameters;
            self.engine_info = info.engine_info;
            self.user_metadata = info.user_metadata;
        }
    }
}

impl FileAction {
    /// Rows that are not deleted, if the statistics tell.
    fn rows(&self) -> Option<u64> {
        let statistics: Statistics = serde_json::from_str(self.stats.as_deref()?).ok()?;
        let deleted = self.deletion_vector.as_ref().map_or(0, |vector| vector.cardinality);
        statistics.num_records?.checked_sub(deleted)
    }
}

fn sum(rows: Option<u64>, more: Option<u64>) -> Option<u64> {
    Some(rows? + more?)
}

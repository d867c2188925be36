//! What a commit gives where changes are asked for.
//!
//! A commit that has files of changes is given by them. Of any other, rows of files that it adds
//! are inserted, and those of files that it removes deleted. Where a file gets another deletion
//! vector it is removed and added: only rows that one of both vectors names have changed.
//!
//! Origin: `CDCReader.scala` of Delta Lake.

use std::collections::HashMap;

use delta_kernel::scan::state::DvInfo;

use super::actions::{FileAction, FileLine};
use super::commit::Commit;
use super::error::StreamError;
use super::file::{Change, Kept, StreamFile};

/// A file of `commit` whose rows were inserted, deleted or changed in the way that they say.
pub(super) fn file(commit: &Commit, action: FileAction, change: Change, ms: i64) -> StreamFile {
    let in_file = action.rows_in_file();
    let vector = action.deletion_vector.map(DvInfo::from).unwrap_or_default();
    let deleted = vector.cardinality().ok().flatten().unwrap_or(0);
    StreamFile {
        version: commit.version,
        bytes: action.size.and_then(|size| u64::try_from(size).ok()).unwrap_or(0),
        rows: in_file.map(|rows| rows.saturating_sub(deleted)),
        change,
        commit_ms: Some(ms),
        modified_ms: action.modification_time,
        partition_values: action.partition_values.unwrap_or_default().into_iter().collect(),
        kept: Kept::Without(vector),
        path: action.path,
    }
}

/// As [`file`], of a file that `commit` removes from a table with or without partitions.
///
/// # Errors
/// [`StreamError::SparseRemove`]: the protocol lets a `remove` leave out what its rows need.
pub(super) fn removed_file(
    commit: &Commit,
    action: FileAction,
    is_partitioned: bool,
    ms: i64,
) -> Result<StreamFile, StreamError> {
    let what = match &action {
        action if action.size.is_none() => "its size",
        action if is_partitioned && action.partition_values.is_none() => "its partition's values",
        _ => return Ok(file(commit, action, Change::Delete, ms)),
    };
    let (table, version, file) = (commit.shown_table(), commit.version, action.path);
    Err(StreamError::SparseRemove { table, version, file, what, next: version + 1 })
}

/// The files of a commit with deletion vectors, each with its number: they are looked at together.
pub(super) fn of_vectors(
    commit: &Commit,
    is_partitioned: bool,
    ms: i64,
) -> Result<Vec<(u64, StreamFile)>, StreamError> {
    let mut actions = Vec::new();
    let mut lines = commit.lines();
    while let Some(line) = lines.next::<FileLine>()? {
        let FileLine { add, remove, .. } = line;
        actions.extend(add.filter(|add| add.data_change).map(|add| (add, Change::Insert)));
        actions.extend(remove.filter(|file| file.data_change).map(|file| (file, Change::Delete)));
    }
    let mut removed: HashMap<String, FileAction> = HashMap::new();
    let mut added: HashMap<String, DvInfo> = HashMap::new();
    for (action, change) in &actions {
        let vector = action.deletion_vector.clone().map(DvInfo::from).unwrap_or_default();
        match change {
            Change::Delete => drop(removed.insert(action.path.clone(), action.clone())),
            _ => drop(added.insert(action.path.clone(), vector)),
        }
    }
    let mut files = Vec::new();
    for (number, (action, change)) in (0..).zip(actions) {
        let pair = match change {
            // What it has to say is said where the file is added.
            Change::Delete if added.contains_key(&action.path) => continue,
            Change::Delete => None,
            _ => removed.get(&action.path),
        };
        let Some(before) = pair else {
            let file = match change {
                Change::Delete => removed_file(commit, action, is_partitioned, ms)?,
                _ => file(commit, action, change, ms),
            };
            files.push((number, file));
            continue;
        };
        let before = before.deletion_vector.clone().map(DvInfo::from).unwrap_or_default();
        let after = action.deletion_vector.clone().map(DvInfo::from).unwrap_or_default();
        if !before.has_vector() && !after.has_vector() {
            let problem = format!("it removes the file {} and adds it again", action.path);
            return Err(commit.damaged(problem).into());
        }
        for (change, these, not_these) in
            [(Change::Delete, &after, &before), (Change::Insert, &before, &after)]
        {
            if these.has_vector() {
                let kept = Kept::Only(these.clone(), not_these.clone());
                let file = file(commit, action.clone(), change, ms);
                files.push((number, StreamFile { kept, rows: None, ..file }));
            }
        }
    }
    Ok(files)
}

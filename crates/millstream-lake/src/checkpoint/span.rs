//! Which versions a log still has.
//!
//! A version can be read if the commits from some complete checkpoint up to it are there, or those
//! from version 0. Its time is what its commit states, or that of the commit's file. Clocks may be
//! put back, so a file's time counts as one millisecond after that of the version before at least.

use object_store::Error;
use serde_json::Value;

use super::base::checkpoints_of;
use super::names::{LOG, LogName, commit};
use crate::store::TableStore;

/// The commits from the oldest version that can be read to the newest.
#[derive(Debug)]
pub(crate) struct Span {
    /// Versions that follow each other, with the times of their files.
    commits: Vec<(u64, i64)>,
}

/// Lists the log. `None` if nothing can be read.
pub(crate) fn find(store: &TableStore) -> Result<Option<Span>, Error> {
    let listed = store.list(LOG, None)?;
    let mut commits: Vec<(u64, i64)> = Vec::new();
    for file in &listed {
        let Some(LogName::Commit(version)) = LogName::parse(&file.name) else { continue };
        match commits.last() {
            Some((last, last_ms)) if last + 1 == version => {
                commits.push((version, file.modified_ms.max(last_ms + 1)));
            }
            // What is on the other side of a gap cannot be read from here.
            _ => commits = vec![(version, file.modified_ms)],
        }
    }
    let (checkpoints, _) = checkpoints_of(&listed);
    let Some((first, _)) = commits.first().copied() else { return Ok(None) };
    if first > 0 {
        // A checkpoint just before the first commit does too, but has itself no time any more.
        let bases = checkpoints.iter().map(|found| found.version).filter(|at| at + 1 >= first);
        let Some(oldest) = bases.min() else { return Ok(None) };
        commits.retain(|(version, _)| *version >= oldest);
    }
    Ok((!commits.is_empty()).then_some(Span { commits }))
}

/// The first version behind `version` whose commit is there; a listing.
pub(crate) fn first_after(store: &TableStore, version: u64) -> Result<Option<u64>, Error> {
    let listed = store.list(LOG, Some(&commit(version)))?;
    Ok(listed.iter().find_map(|file| match LogName::parse(&file.name) {
        Some(LogName::Commit(version)) => Some(version),
        _ => None,
    }))
}

impl Span {
    pub(crate) fn oldest(&self) -> u64 {
        self.commits[0].0
    }

    pub(crate) fn newest(&self) -> u64 {
        self.oldest() + self.commits.len() as u64 - 1
    }

    /// The newest version at or before `ms`; none if all came later.
    pub(crate) fn newest_at(&self, store: &TableStore, ms: i64) -> Result<Option<u64>, Error> {
        // In-commit times only grow, and come after those of versions without.
        let (mut low, mut high) = (0, self.commits.len());
        while low < high {
            let middle = low.midpoint(high);
            let at_ms = self.time_ms(store, self.commits[middle].0)?;
            if at_ms <= ms { low = middle + 1 } else { high = middle }
        }
        Ok(low.checked_sub(1).map(|place| self.commits[place].0))
    }

    /// The time of a version in the span, milliseconds since the epoch.
    pub(crate) fn time_ms(&self, store: &TableStore, version: u64) -> Result<i64, Error> {
        let place = usize::try_from(version - self.oldest()).expect("in the span");
        let content = store.get(&commit(version))?;
        Ok(in_commit_ms(&content).unwrap_or(self.commits[place].1))
    }
}

/// The time that a commit states itself, if it does: in its first action.
pub(crate) fn in_commit_ms(content: &[u8]) -> Option<i64> {
    let first = content.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let action: Value = serde_json::from_slice(first).unwrap_or_default();
    action["commitInfo"]["inCommitTimestamp"].as_i64()
}

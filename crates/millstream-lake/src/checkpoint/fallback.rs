//! A way around a checkpoint that is damaged.
//!
//! Every complete checkpoint sums up all that came before it, so a log can be read from any of them
//! that has each commit above it, or from version 0 without one. A log in which neither holds has
//! lost something, and what could be read of it would be another table.

use std::collections::BTreeSet;

use object_store::Error;

use super::base::{FoundCheckpoint, IncompleteSet, checkpoints_of};
use super::hint::Hint;
use super::names::{HINT, LOG, LogName, SIDECARS, part};
use crate::store::{Listed, TableStore};

/// A file of the log that cannot be used.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    /// Relative to the table's directory.
    pub(crate) file: String,
    pub(crate) problem: String,
}

/// How to read on.
#[derive(Debug)]
pub(crate) struct Fallback {
    pub(crate) fault: Fault,
    /// Names that must not be seen any more.
    pub(crate) hide: Vec<String>,
    /// The checkpoint that reading begins with then; none for version 0.
    pub(crate) base: Option<u64>,
}

/// Why there is no way around.
#[derive(Debug)]
pub(crate) enum NoDetour {
    /// No checkpoint is at fault.
    NotAtFault,
    /// A commit is missing.
    Stuck { fault: Fault, missing: u64 },
    /// The log cannot be listed.
    Store(Error),
}

/// True for a file that belongs to a checkpoint.
pub(crate) fn is_of_a_checkpoint(name: &str) -> bool {
    name.starts_with(SIDECARS) || LogName::parse(name).is_some_and(|name| name.is_checkpoint())
}

/// Looks for a way around `fault`, or around the hint if no file failed, to `version` or the newest
/// one. What is `hidden` already is not looked at.
pub(crate) fn find(
    store: &TableStore,
    hidden: &BTreeSet<String>,
    fault: Option<Fault>,
    version: Option<u64>,
) -> Result<Fallback, NoDetour> {
    let mut listed = store.list(LOG, None).map_err(NoDetour::Store)?;
    let is_empty = |file: &Listed| file.size == 0 && is_of_a_checkpoint(&file.name);
    let empty = listed.iter().find(|file| is_empty(file)).map(|file| file.name.clone());
    listed.retain(|file| !hidden.contains(&file.name) && !is_empty(file));
    let (found, incomplete) = checkpoints_of(&listed);
    let limit = version.unwrap_or(u64::MAX);
    let mut hide = Vec::new();
    if listed.iter().any(|file| file.name == HINT) {
        // It may name what is hidden now, and readers insist on what it names.
        hide.push(HINT.to_owned());
    }
    let broken = fault.as_ref().and_then(|fault| checkpoint_with(&found, &fault.file, limit));
    hide.extend(broken.into_iter().flat_map(|found| &found.files).map(|file| file.name.clone()));
    if hide.is_empty() {
        return Err(NoDetour::NotAtFault);
    }
    let fault = fault.unwrap_or_else(|| fault_of_hint(store, &incomplete, empty));
    let is_left = |found: &&FoundCheckpoint| {
        found.version <= limit && found.files.iter().all(|file| !hide.contains(&file.name))
    };
    let base = found.iter().find(is_left).map(|found| found.version);
    let newest = version.or_else(|| newest_of(&listed)).unwrap_or(0);
    match first_missing(&listed, base, newest) {
        None => Ok(Fallback { fault, hide, base }),
        Some(missing) => Err(NoDetour::Stuck { fault, missing }),
    }
}

/// The checkpoint that `file` belongs to. A sidecar belongs to the one that is read: the newest.
fn checkpoint_with<'a>(
    found: &'a [FoundCheckpoint],
    file: &str,
    limit: u64,
) -> Option<&'a FoundCheckpoint> {
    let has = |found: &&FoundCheckpoint| found.files.iter().any(|listed| listed.name == file);
    let newest = || found.iter().find(|found| found.version <= limit);
    found.iter().find(has).or_else(|| newest().filter(|_| file.starts_with(SIDECARS)))
}

/// The hint names a checkpoint that is not there. The text names it as far as the hint does.
fn fault_of_hint(store: &TableStore, incomplete: &[IncompleteSet], empty: Option<String>) -> Fault {
    let file = HINT.to_owned();
    let Ok(Some(hint)) = Hint::read(store) else {
        let problem = "it does not name a checkpoint that is there".to_owned();
        return Fault { file, problem };
    };
    let set = incomplete.iter().find(|set| set.version == hint.version);
    let missing = set.and_then(missing_part);
    let named = format!("it names the checkpoint of version {}", hint.version);
    let problem = match (missing, empty) {
        (Some(missing), _) => format!("{named}, whose part {missing} is not there"),
        (None, Some(empty))
            if LogName::parse(&empty).is_some_and(|at| at.version() == hint.version) =>
        {
            format!("{named}, whose file {empty} is empty")
        }
        _ => format!("{named}, which is not there"),
    };
    Fault { file, problem }
}

fn missing_part(set: &IncompleteSet) -> Option<String> {
    let names = (0..set.parts).map(|number| part(set.version, number, set.parts));
    names.into_iter().find(|name| set.files.iter().all(|file| file.name != *name))
}

fn newest_of(listed: &[Listed]) -> Option<u64> {
    let is_state = |name: &LogName| matches!(name, LogName::Commit(_)) || name.is_checkpoint();
    let names = listed.iter().filter_map(|file| LogName::parse(&file.name)).filter(is_state);
    names.map(|name| name.version()).max()
}

/// The first commit that is needed to come from `base` to `newest` and is not there.
fn first_missing(listed: &[Listed], base: Option<u64>, newest: u64) -> Option<u64> {
    let commits: BTreeSet<u64> = listed
        .iter()
        .filter_map(|file| match LogName::parse(&file.name) {
            Some(LogName::Commit(version)) => Some(version),
            _ => None,
        })
        .collect();
    (base.map_or(0, |base| base + 1)..=newest).find(|version| !commits.contains(version))
}

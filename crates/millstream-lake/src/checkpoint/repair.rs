//! What a crash left in the log, taken away before anything else is written.
//!
//! An incomplete set of parts is harmless to readers until the hint names it or a careless cleaner
//! trusts it. Ours are told by the staged files they were made from, whose names say whose they
//! are; those of other writers, which may be at work on them, are left alone for a while.

use super::base::{Base, FoundCheckpoint, FoundKind, checkpoints_of, is_fault_of_base};
use super::error::{CheckpointError, store_error};
use super::hint::Hint;
use super::names::{self, HINT, STAGED, staged_set};
use super::{hint_of, written};
use crate::store::{Listed, TableStore};

/// How long an incomplete set of another writer may still become complete.
const FOREIGN_SET_AGE_MS: i64 = 600_000;

/// What was left over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    /// Files that were deleted.
    pub deleted: Vec<String>,
    /// True if the hint named a checkpoint that is not complete; it names another one now, or there
    /// is none.
    pub is_hint_moved: bool,
}

impl Repaired {
    /// True if nothing was wrong.
    pub fn is_empty(&self) -> bool {
        self.deleted.is_empty() && !self.is_hint_moved
    }
}

/// Deletes staged parts and incomplete sets that `owner` left, and old ones of others, with one
/// listing of the log. Not to be called while `owner` is writing a checkpoint of this table.
pub fn repair(store: &TableStore, owner: &str) -> Result<Repaired, CheckpointError> {
    let listed = store.list(names::LOG, None).map_err(store_error("list", names::LOG))?;
    let (found, incomplete) = checkpoints_of(&listed);
    let now_ms = store.env().now_ms();
    let is_old = |modified_ms: i64| now_ms.saturating_sub(modified_ms) >= FOREIGN_SET_AGE_MS;
    let staged = listed.iter().filter_map(|file| Some((file, staged_set(&file.name)?)));
    let (left, at_work): (Vec<_>, Vec<_>) =
        staged.partition(|(file, (_, _, found))| *found == owner || is_old(file.modified_ms));
    let mut parts = Vec::new();
    for set in incomplete {
        let is_from = |staged: &[(&Listed, (u64, u32, &str))]| {
            staged
                .iter()
                .any(|(_, (version, parts, _))| (*version, *parts) == (set.version, set.parts))
        };
        let newest_ms = set.files.iter().map(|file| file.modified_ms).max().unwrap_or(0);
        // Copied parts may be as old as what they were copied from, so age says nothing of a set
        // that somebody is at work on.
        if !is_from(&at_work) && (is_from(&left) || is_old(newest_ms)) {
            parts.extend(set.files.into_iter().map(|file| file.name));
        }
    }
    // The hint first, then the parts, and what proves that they are ours last.
    let is_hint_moved = listed.iter().any(|file| file.name == HINT) && move_hint(store, &found)?;
    store.delete_many(&parts).map_err(store_error("delete parts of", names::LOG))?;
    let staged: Vec<_> = left.into_iter().map(|(file, _)| file.name.clone()).collect();
    store.delete_many(&staged).map_err(store_error("delete", STAGED))?;
    parts.extend(staged);
    Ok(Repaired { deleted: parts, is_hint_moved })
}

/// Makes a hint that names no complete checkpoint name the newest one that can be read.
fn move_hint(store: &TableStore, found: &[FoundCheckpoint]) -> Result<bool, CheckpointError> {
    let Some(hint) = Hint::read(store)? else { return Ok(false) };
    let is_named = |found: &&FoundCheckpoint| match (hint.parts, found.kind) {
        _ if found.version != hint.version => false,
        (Some(parts), FoundKind::MultiPart(found)) => parts == found,
        (parts, kind) => parts.is_none() && !matches!(kind, FoundKind::MultiPart(_)),
    };
    if found.iter().any(|found| is_named(&found)) {
        return Ok(false);
    }
    for best in found {
        match Base::load(store, best) {
            Ok(base) => return hint_of(&written(&base)).write(store).map(|()| true),
            Err(error) if is_fault_of_base(&error) => {}
            Err(error) => return Err(error),
        }
    }
    store.delete_many(&[HINT.to_owned()]).map_err(store_error("delete", HINT))?;
    Ok(true)
}

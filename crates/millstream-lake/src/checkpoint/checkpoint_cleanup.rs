//! Fewer checkpoints of the past.
//!
//! A stream writes many more checkpoints than anybody reads. Readers of the present need the last
//! few; those of the past need one now and then, and the commits above it, which stay. The others
//! would only make every listing longer.

use std::collections::HashSet;

use super::base::checkpoints_of;
use super::error::{CheckpointError, store_error};
use super::hint::Hint;
use super::names::LOG;
use crate::store::TableStore;

/// The last ones stay whatever their age.
const LAST_KEPT: usize = 3;
/// A reader that began with a checkpoint has ended by then, or begins again.
const AGE_MIN_MS: i64 = 3_600_000;
/// Of so many versions one checkpoint stays: what a reader of the past replays at most.
const VERSIONS_PER_CHECKPOINT: u64 = 1_000;

/// Deletes checkpoints that only readers of the past would use, but for one in a thousand versions,
/// and returns their files. Sidecars are left to `cleanup`. `now_ms` is in milliseconds.
pub fn remove_old(store: &TableStore, now_ms: i64) -> Result<Vec<String>, CheckpointError> {
    let listed = store.list(LOG, None).map_err(store_error("list", LOG))?;
    let Some(hint) = Hint::read(store)? else { return Ok(Vec::new()) };
    let (found, _) = checkpoints_of(&listed);
    let mut spans = HashSet::new();
    let (mut last_kept, mut deleted) = (0, Vec::new());
    for found in found.iter().filter(|found| found.version <= hint.version) {
        // Newest first, so what stays of a span is its newest.
        let is_first_of_span = spans.insert(found.version / VERSIONS_PER_CHECKPOINT);
        last_kept += 1;
        let modified_ms = found.files.iter().map(|file| file.modified_ms).max().unwrap_or(now_ms);
        let is_young = modified_ms > now_ms.saturating_sub(AGE_MIN_MS);
        if !is_first_of_span && last_kept > LAST_KEPT && !is_young {
            deleted.extend(found.files.iter().map(|file| file.name.clone()));
        }
    }
    store.delete_many(&deleted).map_err(store_error("delete checkpoints of", LOG))?;
    Ok(deleted)
}

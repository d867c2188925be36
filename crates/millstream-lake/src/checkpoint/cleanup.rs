//! Deleting the part of the log that nobody needs any more.
//!
//! Versions from before the retention end at a boundary: the newest complete checkpoint at or below
//! the newest commit that is old enough. From there every later version can still be read, so what
//! lies before it goes: commits, their checksums, checkpoints, and compactions that begin there.
//! Without such a checkpoint nothing goes. What the hint names always stays.
//!
//! Sidecars are shared between checkpoints. One goes if no checkpoint that stays names it and it is
//! older than a day, as the checkpoint that names it may not have been written yet.
//!
//! Origin: protocol, "Metadata Cleanup".

use std::collections::HashSet;

use serde_json::Value;

use super::base::{FoundCheckpoint, FoundKind, checkpoints_of, sidecar_file};
use super::error::{CheckpointError, damaged, store_error};
use super::facts::{CheckpointFile, read_footer};
use super::hint::Hint;
use super::names::{LOG, LogName, SIDECARS, STAGED_COMMITS, commit};
use super::retention::DAY_MS;
use super::source::SourceFile;
use super::state::actions_of;
use crate::store::{Listed, TableStore};

/// Deletions under one request's error: a failure leaves at most these unknown.
const DELETED_AT_ONCE: usize = 1_000;

/// What was deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// The oldest version that can still be read; none if nothing was old enough.
    pub boundary: Option<u64>,
    /// The files, relative to the table's directory.
    pub deleted: Vec<String>,
}

/// Deletes what only versions older than `retention_ms` before `now_ms` need. Both are
/// milliseconds; a commit's age is that of its file, or what the commit itself says if the table
/// has in-commit timestamps.
pub fn cleanup(
    store: &TableStore,
    retention_ms: i64,
    now_ms: i64,
) -> Result<Cleaned, CheckpointError> {
    let listed = store.list(LOG, None).map_err(store_error("list", LOG))?;
    let log: Vec<_> =
        listed.iter().filter_map(|file| Some((file, LogName::parse(&file.name)?))).collect();
    let (found, _) = checkpoints_of(&listed);
    let hinted = Hint::read(store)?.map(|hint| hint.version);
    let Some(cutoff) = cutoff(store, &log, now_ms.saturating_sub(retention_ms))? else {
        return Ok(Cleaned::default());
    };
    let newest_allowed = hinted.map_or(cutoff, |hinted| hinted.min(cutoff));
    let boundary = found.iter().map(|found| found.version).find(|at| *at <= newest_allowed);
    let Some(boundary) = boundary else { return Ok(Cleaned::default()) };

    // Commits first: if this stops half way, no checkpoint is gone whose commits are there.
    let (checkpoints, commits): (Vec<_>, Vec<_>) =
        log.iter().partition(|(_, name)| name.is_checkpoint());
    let mut deleted: Vec<String> = Vec::new();
    for (file, name) in commits.into_iter().chain(checkpoints) {
        let is_old = match name {
            // Without its commits a compaction across the boundary serves nobody.
            LogName::Compacted { start } => *start <= boundary,
            name => name.version() < boundary,
        };
        if is_old {
            deleted.push(file.name.clone());
        }
    }
    deleted.extend(staged_commits(&listed, boundary));
    let staying = found.iter().filter(|found| found.version >= boundary);
    deleted.extend(unused_sidecars(store, &listed, staying, now_ms));
    for names in deleted.chunks(DELETED_AT_ONCE) {
        store.delete_many(names).map_err(store_error("delete files of", LOG))?;
    }
    Ok(Cleaned { boundary: Some(boundary), deleted })
}

/// The newest commit that was made at or before `limit_ms`.
fn cutoff(
    store: &TableStore,
    log: &[(&Listed, LogName)],
    limit_ms: i64,
) -> Result<Option<u64>, CheckpointError> {
    let commits: Vec<_> = log
        .iter()
        .filter_map(|(file, name)| match name {
            LogName::Commit(version) => Some((*version, file.modified_ms)),
            _ => None,
        })
        .collect();
    let Some((newest, _)) = commits.last() else { return Ok(None) };
    let has_own_times = in_commit_ms(store, *newest)?.is_some();
    let mut end = commits.len();
    if has_own_times {
        // In-commit timestamps only grow, and those who have none came before those who do.
        let (mut low, mut high) = (0, end);
        while low < high {
            let middle = low.midpoint(high);
            let (version, modified_ms) = commits[middle];
            let at_ms = in_commit_ms(store, version)?.unwrap_or(modified_ms);
            if at_ms <= limit_ms { low = middle + 1 } else { high = middle }
        }
        end = low;
    } else {
        // A clock that was put back must not make a later commit older than an earlier one.
        let first_young = commits.iter().position(|(_, modified_ms)| *modified_ms > limit_ms);
        end = first_young.unwrap_or(end);
    }
    Ok(commits[..end].last().map(|(version, _)| *version))
}

/// The time that a commit states itself, if it does.
fn in_commit_ms(store: &TableStore, version: u64) -> Result<Option<i64>, CheckpointError> {
    let name = commit(version);
    let content = store.get(&name).map_err(store_error("read", &name))?;
    Ok(super::span::in_commit_ms(&content))
}

fn staged_commits(listed: &[Listed], boundary: u64) -> impl Iterator<Item = String> {
    listed.iter().filter_map(move |file| {
        let version = file.name.strip_prefix(STAGED_COMMITS)?.split('.').next()?;
        (version.parse::<u64>().ok()? <= boundary).then(|| file.name.clone())
    })
}

/// Sidecars that no checkpoint of `staying` names and that are older than a day; none if one of the
/// checkpoints cannot be read.
fn unused_sidecars<'a>(
    store: &TableStore,
    listed: &[Listed],
    staying: impl Iterator<Item = &'a FoundCheckpoint>,
    now_ms: i64,
) -> Vec<String> {
    let is_old = |file: &&Listed| {
        file.name.starts_with(SIDECARS) && file.modified_ms < now_ms.saturating_sub(DAY_MS)
    };
    let old: Vec<_> = listed.iter().filter(is_old).map(|file| file.name.clone()).collect();
    if old.is_empty() {
        return old;
    }
    let mut used = HashSet::new();
    for found in staying {
        match sidecars_of(store, found) {
            Ok(names) => used.extend(names),
            Err(error) => {
                tracing::warn!(%error, "no sidecar is deleted: a checkpoint cannot be read");
                return Vec::new();
            }
        }
    }
    old.into_iter().filter(|name| !used.contains(name)).collect()
}

fn sidecars_of(
    store: &TableStore,
    found: &FoundCheckpoint,
) -> Result<Vec<String>, CheckpointError> {
    let top = &found.files[0];
    let mut actions = Vec::new();
    match found.kind {
        FoundKind::MultiPart(_) => return Ok(Vec::new()),
        FoundKind::UniqueJson => {
            let content = store.get(&top.name).map_err(store_error("read", &top.name))?;
            let lines = serde_json::Deserializer::from_slice(&content).into_iter::<Value>();
            for line in lines {
                let line = line.map_err(damaged(&top.name))?;
                actions.extend(line.get("sidecar").cloned());
            }
        }
        FoundKind::Classic | FoundKind::UniqueParquet => {
            let footer = read_footer(store, &top.name, top.size)?;
            let part = CheckpointFile::of(&top.name, top.size, top.modified_ms, &footer);
            let source = SourceFile::new(store, &part);
            for (number, facts) in part.row_groups.iter().enumerate() {
                if facts.adds + facts.removes == facts.rows {
                    continue;
                }
                for rows in source.rows(number, &super::actions::OTHERS_V2)? {
                    let named = actions_of(&rows?)?.into_iter();
                    actions.extend(named.filter(|(name, _)| name == "sidecar").map(|(_, at)| at));
                }
            }
        }
    }
    let files = actions.iter().map(|action| sidecar_file(store, action, &top.name));
    Ok(files.collect::<Result<Vec<_>, _>>()?.into_iter().map(|file| file.name).collect())
}

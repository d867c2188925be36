//! Deleting entries that recovery will not need any more.
//!
//! An entry may go when it is older than the last commit entry by more than the number to retain,
//! in ids and in entries: where ids have gaps, as with asynchronous progress tracking, the same
//! number of files stays. Deleting is done in steps of many files by a task of its own, so that the
//! writer shares the directory with it and nothing else.
//!
//! Entries are mostly not flushed, so a power cut may take the newest ones, all those that are
//! retained if they are of the last seconds. So in a local directory both entries of the newest
//! micro-batch are flushed before anything is deleted, and then once every [`FLUSHED_AGAIN`]; those
//! of the last one flushed stay, however old they are.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Lane, PurgeTime, Settings, Shared};
use crate::env::{Env, Task};
use crate::layout;
use crate::offset::BatchId;
use crate::storage::{Storage, StorageError};

/// How far what is surely on the disk may be behind, while entries are deleted. Flushing holds up
/// the entries that are written meanwhile, so it must be rare beside a micro-batch.
const FLUSHED_AGAIN: Duration = Duration::from_secs(10);

/// The entries that are known to be on disk.
pub(super) struct OnDisk {
    keep: Keep,
    in_background: bool,
    known: Mutex<Known>,
    /// Held by the one purge that runs.
    purging: tokio::sync::Mutex<()>,
    due: Arc<Notify>,
}

/// How much is kept.
#[derive(Clone, Copy)]
struct Keep {
    /// The newest committed entries of a log.
    entries: usize,
    /// Fewer superfluous ones than this stay as well.
    step: usize,
}

#[derive(Default)]
struct Known {
    /// True once what was there before this run has been listed.
    listed: bool,
    /// By lane, ascending.
    ids: [VecDeque<BatchId>; 2],
    /// Checksums that Spark left, by path.
    sidecars: HashSet<String>,
    committed: Option<BatchId>,
    /// The micro-batch whose entries were flushed last, and when, on the monotonic clock.
    flushed: Option<(BatchId, Duration)>,
}

impl OnDisk {
    pub(super) fn new(settings: &Settings) -> Self {
        let entries = usize::try_from(settings.retain_entries_min).unwrap_or(usize::MAX);
        let in_background = settings.purge == PurgeTime::InBackground;
        let step = if in_background { settings.purge_step_entries } else { 1 };
        Self {
            keep: Keep { entries, step },
            in_background,
            known: Mutex::default(),
            purging: tokio::sync::Mutex::default(),
            due: Arc::default(),
        }
    }

    /// Takes note of a new entry.
    pub(super) fn written(&self, lane: Lane, id: BatchId) {
        let mut known = self.known.lock();
        let ids = &mut known.ids[lane as usize];
        // At the end, unless another process writes too and a listing has seen that process's
        // entries. A listing that ran meanwhile may also have seen this entry first.
        let place = ids.partition_point(|known| *known < id);
        if ids.get(place) != Some(&id) {
            ids.insert(place, id);
        }
        if lane == Lane::Commits {
            known.committed = Some(id);
            let due = !known.listed || known.is_due(self.keep);
            if self.in_background && due {
                self.due.notify_one();
            }
        }
    }
}

impl Known {
    /// How many of a lane's entries, from the oldest on, are not needed.
    fn expired(&self, lane: Lane, retain_entries: usize) -> usize {
        let Some(committed) = self.committed else { return 0 };
        let ids = &self.ids[lane as usize];
        // Both bounds must hold, so the smaller count is deleted: by id alone, a log with gaps
        // would keep too few files.
        let by_id = committed.0.saturating_sub(retain_entries as u64);
        let by_id = ids.partition_point(|id| id.0 < by_id);
        let by_count = ids.partition_point(|id| *id <= committed).saturating_sub(retain_entries);
        by_id.min(by_count)
    }

    fn is_due(&self, keep: Keep) -> bool {
        Lane::ALL.iter().any(|lane| self.expired(*lane, keep.entries) >= keep.step)
    }

    /// Takes the files out that are not needed, if they are enough.
    fn take_expired(&mut self, keep: Keep) -> Vec<String> {
        let mut names = Vec::new();
        if !self.is_due(keep) {
            return names;
        }
        for lane in Lane::ALL {
            let expired = self.expired(lane, keep.entries);
            let flushed = self.flushed.map(|(id, _)| id);
            let drained: Vec<_> = self.ids[lane as usize].drain(..expired).collect();
            if let Some(flushed) = flushed.filter(|flushed| drained.contains(flushed)) {
                self.ids[lane as usize].push_front(flushed);
            }
            for id in drained.into_iter().filter(|id| Some(*id) != flushed) {
                let directory = lane.directory();
                let sidecar = format!("{directory}/{}", layout::sidecar(&id.to_string()));
                if self.sidecars.remove(&sidecar) {
                    names.push(sidecar);
                }
                names.push(format!("{directory}/{id}"));
            }
        }
        names
    }

    /// The micro-batch whose entries are to be flushed before any are deleted at `now`.
    fn to_be_flushed(&self, keep: Keep, now: Duration) -> Option<BatchId> {
        let is_due = |(_, at): &(_, Duration)| now.saturating_sub(*at) >= FLUSHED_AGAIN;
        let is_old = self.flushed.as_ref().is_none_or(is_due);
        self.committed.filter(|_| is_old && self.is_due(keep))
    }

    /// Adds what a listing of `lane` found from before this run.
    fn add_listed(&mut self, lane: Lane, mut listed: Listed) {
        let ids = &mut self.ids[lane as usize];
        // What this run wrote is known already; the listing counts only for what is older.
        if let Some(first) = ids.front() {
            listed.ids.truncate(listed.ids.partition_point(|id| id < first));
        }
        listed.ids.append(ids);
        *ids = listed.ids;
        self.sidecars.extend(listed.sidecars);
    }
}

/// What a listing found. Made before the lock is taken, for which the writer waits: there may be a
/// million names.
struct Listed {
    ids: VecDeque<BatchId>,
    sidecars: Vec<String>,
}

impl Listed {
    fn of(lane: Lane, names: &[String]) -> Self {
        let sidecars = names.iter().filter(|name| layout::sidecar_of(name).is_some());
        let sidecars = sidecars.map(|name| format!("{}/{name}", lane.directory())).collect();
        Self { ids: layout::batch_ids(names).into(), sidecars }
    }
}

/// Deletes what is due. A failure is only warned about: the files are left for a later start.
pub(super) async fn run(shared: &Shared) {
    // Two purges at once would list twice and delete the same names.
    let _one_at_a_time = shared.on_disk.purging.lock().await;
    if let Err(error) = try_run(shared).await {
        tracing::warn!(%error, "old log entries were not deleted");
    }
}

async fn try_run(shared: &Shared) -> Result<(), StorageError> {
    let on_disk = &shared.on_disk;
    if !on_disk.known.lock().listed {
        for lane in Lane::ALL {
            let names = shared.storage().list(lane.directory()).await?;
            let listed = Listed::of(lane, &names);
            on_disk.known.lock().add_listed(lane, listed);
        }
        on_disk.known.lock().listed = true;
    }
    if matches!(shared.storage(), Storage::Local(_)) {
        let now = shared.checkpoint.env().monotonic();
        let newest = on_disk.known.lock().to_be_flushed(on_disk.keep, now);
        if let Some(newest) = newest {
            // The commit entry last: it must not be there without the intent.
            let names = Lane::ALL.map(|lane| format!("{}/{newest}", lane.directory()));
            shared.storage().flush(names.into()).await?;
            on_disk.known.lock().flushed = Some((newest, now));
        }
    }
    let names = on_disk.known.lock().take_expired(on_disk.keep);
    if names.is_empty() { Ok(()) } else { shared.storage().retire_many(names).await }
}

/// The task that purges when enough has gathered.
pub(super) struct Purger {
    task: Option<Task<()>>,
}

impl Purger {
    pub(super) fn start(env: &Env, shared: &Arc<Shared>) -> Self {
        // Weak, so that a waiting purger does not keep the checkpoint's lock.
        let (due, shared) = (shared.on_disk.due.clone(), Arc::downgrade(shared));
        Self { task: Some(env.spawn("log purge", purge_when_due(due, shared))) }
    }

    /// Ends the task; it holds nothing of the checkpoint any more.
    pub(super) async fn stop(mut self) {
        if let Some(task) = self.task.take() {
            task.stop().await;
        }
    }
}

impl Drop for Purger {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

async fn purge_when_due(due: Arc<Notify>, shared: Weak<Shared>) {
    loop {
        due.notified().await;
        let Some(shared) = shared.upgrade() else { return };
        run(&shared).await;
    }
}

#[cfg(test)]
mod tests;

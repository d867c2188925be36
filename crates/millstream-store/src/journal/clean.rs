//! Deleting segments that the query is past.

use std::sync::Arc;
use std::time::Duration;

use super::{Facts, JournalError, KEYS, Shared, position};
use crate::crash_points::{self, Step};
use crate::layout;
use crate::offset_log;
use crate::storage::{Durability, Storage};

/// How often is looked, at most: a listing of a local directory costs little.
const STEP_LOCAL: Duration = Duration::from_millis(500);
const STEP_OBJECT: Duration = Duration::from_secs(10);
/// So many segments are deleted at once, and their keys are one file.
const DELETED_MAX: usize = 1_000;

/// Deletes until the journal ends.
pub(super) async fn run(shared: Arc<Shared>) {
    let step = match &shared.storage {
        Storage::Local(_) => STEP_LOCAL,
        Storage::Object(_) => STEP_OBJECT,
    };
    loop {
        shared.released.notified().await;
        while !shared.state.lock().ends && shared.may_clean() {
            match shared.clean().await {
                Ok(true) => {
                    shared.changed.notify_waiters();
                    if shared.is_half_full() {
                        continue;
                    }
                }
                Ok(false) => {}
                Err(error) => {
                    // Deleting is tried again with the next step; what needs the room waits.
                    tracing::warn!(%error, "old input in the journal cannot be deleted");
                }
            }
            // The commit entry may be on its way, and somebody may wait.
            let pause = if shared.is_half_full() { STEP_LOCAL } else { step };
            tokio::select! {
                () = shared.env.sleep(pause) => {}
                () = shared.wait_for(|state| state.ends) => {}
            }
        }
        if shared.state.lock().ends {
            return;
        }
    }
}

impl Shared {
    /// Whether the query said that it is past a segment that may be deleted. Once writing has
    /// failed nobody knows what is on the storage, and all stays.
    pub(super) fn may_clean(&self) -> bool {
        let state = self.state.lock();
        let is_past = |oldest: &Facts| oldest.end <= state.released;
        let oldest = state.segments.front().filter(|_| state.deletable() > 0);
        state.failure.is_none() && oldest.is_some_and(is_past)
    }

    /// Whether somebody may soon wait for room. Otherwise passes are rare: each may leave a file.
    fn is_half_full(&self) -> bool {
        self.state.lock().bytes() >= self.settings.bytes_max / 2
    }

    /// Deletes the segments that the commit log is past. Gives whether there were any.
    async fn clean(&self) -> Result<bool, JournalError> {
        let Some(committed) = self.committed().await? else { return Ok(false) };
        let now_us = self.env.now_us();
        let (dropped, keys, expired) = {
            let mut state = self.state.lock();
            let end = committed.min(state.released);
            let may_go = state.segments.iter().take(state.deletable().min(DELETED_MAX));
            let dropped: Vec<Facts> =
                may_go.take_while(|segment| segment.end <= end).copied().collect();
            let acknowledged = state.acknowledged;
            let mut expired = state.keys.expire(now_us, acknowledged);
            expired.append(&mut state.expired);
            let below = dropped.last().map(|segment| segment.end);
            let of_dropped = |below| state.keys.of_dropped(below, now_us, acknowledged);
            let keys = below.and_then(of_dropped);
            (dropped, keys, expired)
        };
        let Some(below) = dropped.last().map(|segment| segment.end) else {
            self.storage.delete_many(self.keys_paths(&expired)).await?;
            return Ok(false);
        };
        let file = keys.as_ref().map(|keys| keys.first);
        if let Some(keys) = keys {
            let name = self.path(&format!("{KEYS}{}", keys.first));
            // One of a pass that was cut off before it deleted the segments.
            self.storage.delete_many(vec![name.clone()]).await?;
            self.storage.put_if_absent(&name, keys.file.encode(), Durability::Power).await?;
        }
        crash_points::reached(Step::JournalSuperseded);
        // In any order: what a crash leaves of them is recognized as being below the commit log.
        let paths = dropped.iter().map(|segment| self.path(&segment.name())).collect();
        self.storage.delete_many(paths).await?;
        self.storage.delete_many(self.keys_paths(&expired)).await?;
        let mut state = self.state.lock();
        let bytes: u64 = state.segments.drain(..dropped.len()).map(|segment| segment.bytes).sum();
        state.stored_bytes -= bytes;
        let unneeded = state.keys.drop_below(below, file);
        state.expired.extend(unneeded);
        Ok(true)
    }

    fn keys_paths(&self, numbers: &[u64]) -> Vec<String> {
        numbers.iter().map(|first| self.path(&format!("{KEYS}{first}"))).collect()
    }

    /// Where the source stands after the last micro-batch in the commit log, which survives a power
    /// cut from now on. `None` if that is not known now.
    pub(super) async fn committed(&self) -> Result<Option<u64>, JournalError> {
        let ids = layout::batch_ids(&self.storage.list(layout::COMMITS).await?);
        let Some(last) = ids.last() else { return Ok(None) };
        // It may have been deleted since.
        let Some(intent) = self.storage.get(&layout::intent(*last)).await? else {
            return Ok(None);
        };
        let Ok(entry) = offset_log::Entry::decode(&intent) else { return Ok(None) };
        let Some(Some(offset)) = entry.offsets.get(self.source) else { return Ok(None) };
        let committed = position(offset)?;
        self.storage.flush(vec![layout::intent(*last), layout::commit(*last)]).await?;
        Ok(Some(committed))
    }
}

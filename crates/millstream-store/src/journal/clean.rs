//! Deleting segments that the query is past.

use std::sync::Arc;
use std::time::Duration;

use super::segment::KeysFile;
use super::{Facts, JournalError, KEYS, Shared, position};
use crate::crash_points::{self, Step};
use crate::layout;
use crate::offset_log;
use crate::storage::{Durability, Storage};

/// How often is looked, at most: a listing of a local directory costs little.
const STEP_LOCAL: Duration = Duration::from_millis(500);
const STEP_OBJECT: Duration = Duration::from_secs(10);

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
                Ok(true) => shared.changed.notify_waiters(),
                Ok(false) => {}
                Err(error) => {
                    // Deleting is tried again with the next step; what needs the room waits.
                    tracing::warn!(%error, "old input in the journal cannot be deleted");
                }
            }
            tokio::select! {
                () = shared.env.sleep(step) => {}
                () = shared.wait_for(|state| state.ends) => {}
            }
        }
        if shared.state.lock().ends {
            return;
        }
    }
}

impl Shared {
    /// Whether the query said that it is past a segment. The last one is never deleted.
    fn may_clean(&self) -> bool {
        let state = self.state.lock();
        let oldest = state.segments.front().filter(|_| state.segments.len() > 1);
        oldest.is_some_and(|oldest| oldest.end <= state.released)
    }

    /// Deletes the segments that the commit log is past. Gives whether there were any.
    async fn clean(&self) -> Result<bool, JournalError> {
        let Some(committed) = self.committed().await? else { return Ok(false) };
        let now_us = self.env.now_us();
        let (dropped, keys, expired) = {
            let mut state = self.state.lock();
            let end = committed.min(state.released);
            let last = state.segments.len() - 1;
            let is_past = |segment: &&Facts| segment.end <= end;
            let dropped: Vec<Facts> =
                state.segments.iter().take(last).take_while(is_past).copied().collect();
            let acknowledged = state.acknowledged;
            let mut expired = state.keys.expire(now_us, acknowledged);
            expired.append(&mut state.expired);
            let below = dropped.last().map(|segment| segment.end);
            let keys = below.and_then(|below| state.keys.of_dropped(below, now_us));
            (dropped, keys, expired)
        };
        let expired: Vec<String> =
            expired.iter().map(|first| self.path(&format!("{KEYS}{first}"))).collect();
        let Some(below) = dropped.last().map(|segment| segment.end) else {
            self.storage.delete_many(expired).await?;
            return Ok(false);
        };
        let has_file = keys.is_some();
        if let Some((first, end, newest_us, keys)) = keys {
            let name = self.path(&format!("{KEYS}{first}"));
            // One of a pass that was cut off before it deleted the segments.
            self.storage.delete_many(vec![name.clone()]).await?;
            let bytes = KeysFile { newest_us, end, keys }.encode();
            self.storage.put_if_absent(&name, bytes, Durability::Power).await?;
        }
        crash_points::reached(Step::JournalSuperseded);
        // The oldest first, so that what a crash leaves has no gap.
        for segment in &dropped {
            self.storage.delete_many(vec![self.path(&segment.name())]).await?;
        }
        self.storage.delete_many(expired).await?;
        let mut state = self.state.lock();
        state.segments.drain(..dropped.len());
        state.keys.drop_below(below, has_file);
        Ok(true)
    }

    /// Where the source stands after the last micro-batch in the commit log, which survives a power
    /// cut from now on. `None` if that is not known now.
    async fn committed(&self) -> Result<Option<u64>, JournalError> {
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

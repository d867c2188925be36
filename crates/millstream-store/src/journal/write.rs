//! Writing: what has queued up is one frame.

use std::sync::Arc;
use std::time::Duration;

use super::segment::{self, Key, Record};
use super::{Facts, JournalError, SEGMENT, Shared, numbers, segment_name};
use crate::crash_points::{self, Step};
use crate::storage::{Directory, DiskFile, Durability, LocalStorage, PutError, Storage};

/// Bytes of one frame, about: more is not flushed at once. Nor is more than a segment should have.
const FRAME_BYTES: u64 = 8 << 20;
/// In an object store it is certain for so long after a put that nobody else has written the
/// journal and deleted what it wrote: that takes several requests of a process that has yet to
/// start.
const ALONE_FOR: Duration = Duration::from_secs(2);

/// The segment of a local disk that is written.
struct Active {
    salt: u64,
    file: Box<dyn DiskFile>,
}

/// Writes until the journal ends.
pub(super) async fn run(shared: Arc<Shared>) {
    let mut active = None;
    loop {
        let Some((first, records)) = shared.take_group() else {
            if shared.state.lock().ends {
                shared.fail(JournalError::Ended);
                return;
            }
            shared.work.notified().await;
            continue;
        };
        crash_points::reached(Step::BeforeJournal);
        if let Err(error) = shared.write(&mut active, first, records).await {
            tracing::debug!(%error, "the journal has failed");
            shared.fail(error);
            return;
        }
        crash_points::reached(Step::AfterJournal);
        shared.changed.notify_waiters();
        if shared.may_clean() {
            // The query is past the segment that was the last until now.
            shared.released.notify_one();
        }
    }
}

impl Shared {
    /// What is written next: the position of the first, and the records. `None` if there are none.
    fn take_group(&self) -> Option<(u64, Vec<Record>)> {
        let mut state = self.state.lock();
        let (mut count, mut bytes) = (0, 0);
        let bytes_max = FRAME_BYTES.min(self.settings.segment_bytes());
        while bytes < bytes_max && count < state.queue.len() {
            bytes += state.queue[count].bytes() as u64;
            count += 1;
        }
        if count == 0 {
            return None;
        }
        let rest = state.queue.split_off(count);
        Some((state.durable, std::mem::replace(&mut state.queue, rest)))
    }

    async fn write(
        &self,
        active: &mut Option<Active>,
        first: u64,
        records: Vec<Record>,
    ) -> Result<(), JournalError> {
        let acknowledged = self.state.lock().acknowledged;
        let facts = (first, acknowledged, self.env.now_us());
        let keys: Vec<Option<Key>> = records.iter().map(|record| record.key).collect();
        let bytes: u64 = records.iter().map(|record| record.bytes() as u64).sum();
        let written = match &self.storage {
            Storage::Local(local) => {
                let is_full = || {
                    let state = self.state.lock();
                    let last = state.segments.back();
                    last.is_none_or(|last| last.bytes >= self.settings.segment_bytes())
                };
                let open = active.take().filter(|_| !is_full());
                let (open, written) = self.write_local(local, open, facts, records).await?;
                *active = Some(open);
                written
            }
            Storage::Object(_) => {
                let salt = self.env.random_u64();
                let mut object = segment::encode_header(salt, first);
                segment::encode_frame(&mut object, salt, facts, records.iter());
                let written = object.len() as u64;
                self.begin(first);
                let name = self.path(&segment_name(first));
                self.storage.put_if_absent(&name, object, Durability::Power).await?;
                self.check_alone(first).await?;
                written
            }
        };
        let mut state = self.state.lock();
        for (position, key) in (first..).zip(&keys) {
            state.keys.add(*key, position, facts.2);
        }
        let end = first + keys.len() as u64;
        state.durable = end;
        state.queued_bytes -= bytes;
        let last = state.segments.back_mut().expect("one was begun");
        (last.end, last.bytes) = (end, last.bytes + written);
        state.stored_bytes += written;
        Ok(())
    }

    /// Whether the object at `first`, which was just put, continues what is there. Where another
    /// process has taken over while this one stood still, it may have written an object of that
    /// name and deleted it since, and the put does not notice.
    async fn check_alone(&self, first: u64) -> Result<(), JournalError> {
        let now = (self.env.monotonic(), self.env.now_us());
        let (alone_at, predecessor) = {
            let state = self.state.lock();
            let predecessor = state.segments.iter().rfind(|segment| segment.end > segment.first);
            (state.alone_at, predecessor.map(|segment| segment.first))
        };
        // The monotonic clock may have stood still too.
        let since_us = u64::try_from(now.1.saturating_sub(alone_at.1)).unwrap_or(0);
        let since = now.0.saturating_sub(alone_at.0).max(Duration::from_micros(since_us));
        if since > ALONE_FOR {
            let firsts = numbers(&self.storage.list(&self.directory).await?, SEGMENT);
            let is_last = firsts.last().is_none_or(|last| *last <= first);
            let follows = predecessor.is_none_or(|predecessor| firsts.contains(&predecessor));
            if !(is_last && follows) {
                let path = self.path(&segment_name(first));
                // It is in nobody's way if it is gone; if it stays, it is below the commit log.
                self.storage.delete_many(vec![path.clone()]).await?;
                return Err(JournalError::Fenced { path: self.storage.path_of(&path) });
            }
        }
        self.state.lock().alone_at = now;
        Ok(())
    }

    /// A new segment begins at `first`.
    fn begin(&self, first: u64) {
        let mut state = self.state.lock();
        state.segments.push_back(Facts { first, end: first, bytes: 0 });
        state.keys.begin(first);
        // Also where nothing is deleted for a long time, keys do not become too many.
        let (now_us, acknowledged) = (self.env.now_us(), state.acknowledged);
        let expired = state.keys.expire(now_us, acknowledged);
        state.expired.extend(expired);
    }

    /// Writes a frame into the open segment, or a new one. Gives it, and how many bytes were
    /// written.
    async fn write_local(
        &self,
        local: &LocalStorage,
        open: Option<Active>,
        facts: (u64, u64, i64),
        records: Vec<Record>,
    ) -> Result<(Active, u64), JournalError> {
        let name = self.path(&segment_name(facts.0));
        let salt = self.env.random_u64();
        if open.is_none() {
            self.begin(facts.0);
        }
        let write = move |directory: &Directory| -> Result<(Active, u64), PutError> {
            let (mut active, mut written) = match open {
                Some(active) => (active, 0),
                None => {
                    let mut file = directory.create(&name)?;
                    let header = segment::encode_header(salt, facts.0);
                    // Flushed by itself: without a header nothing behind it can be told from what a
                    // crash has torn.
                    directory.append(&name, &mut *file, &header)?;
                    directory.flush_names(&name)?;
                    (Active { salt, file }, header.len() as u64)
                }
            };
            let mut frame = Vec::new();
            segment::encode_frame(&mut frame, active.salt, facts, records.iter());
            directory.append(&name, &mut *active.file, &frame)?;
            written += frame.len() as u64;
            Ok((active, written))
        };
        Ok(local.blocking(write).await?)
    }
}

//! The ingest journal: input of sources that cannot be asked for it again.
//!
//! A message bus that forgets what is acknowledged, a webhook, a device: none has offsets to read
//! again from. So what arrives is written here first, and the sender is told that it is safe
//! when it is. From then on the journal is the source, and a position in it, which counts records
//! from 0, is an offset as any other.
//!
//! ```text
//! append ──▶ queue ──▶ one frame, flushed ──▶ Ticket::durable: acknowledge, and give to the query
//!                      (what has queued up       │
//!                       meanwhile is the next)   └─▶ read: what a replay needs, or did not fit
//!                                                    into memory
//! released ──▶ once the commit log has it: segments are deleted
//! ```
//!
//! The files are in the source's part of the checkpoint ([`segment`] has the bytes):
//!
//! ```text
//! sources/<id>/journal-<P>   a segment; its first record is at position P
//! sources/<id>/keys-<P>      keys of segments that are deleted, the first of which began at P
//! ```
//!
//! On a local disk a segment is appended to until it is large; in an object store each flush is an
//! object. A restart always begins a new segment, so what a crash has torn stays behind the last
//! whole frame, and is known by the next segment beginning there.
//!
//! A segment is deleted when the commit log on the storage, not what is about to be written there,
//! says that the query is past it. The last one that has records stays: its end is where the
//! positions go on.
//!
//! Records may have keys, by which a sender's repetitions are recognized ([`keys`]).
//!
//! The journal is bounded. It never refuses a record; who appends waits for [`Journal::room`]
//! before it takes more from outside. There is room, too, where only the last segment is left,
//! however large: nothing else would ever make some.

mod clean;
mod error;
mod keys;
mod open;
mod segment;
#[cfg(test)]
mod tests;
mod write;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

pub use error::JournalError;
use keys::Keys;
use parking_lot::Mutex;
pub use segment::{DecodeError, Key, Record};
use tokio::sync::Notify;

use crate::env::{Env, Task};
use crate::layout;
use crate::offset::SourceOffset;
use crate::storage::Storage;

/// The name of the position in an offset.
const OFFSET: &str = "journal";
const SEGMENT: &str = "journal-";
const KEYS: &str = "keys-";

/// How a journal is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Bytes of all segments, about; beyond, there is no [`Journal::room`].
    pub bytes_max: u64,
    /// How long keys are known after their acknowledgement was confirmed.
    pub key_window: Duration,
    /// How many keys are known at most, those with open acknowledgements aside.
    pub keys_max: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { bytes_max: 1 << 30, key_window: Duration::from_secs(600), keys_max: 4_000_000 }
    }
}

impl Settings {
    /// A segment is closed when it has grown to this.
    fn segment_bytes(&self) -> u64 {
        (self.bytes_max / 8).clamp(64 << 10, 16 << 20)
    }
}

/// A position as an offset.
pub fn offset(position: u64) -> SourceOffset {
    SourceOffset::new(format!("{{\"{OFFSET}\":{position}}}"))
}

/// The position that is an offset.
///
/// # Errors
/// It is the offset of some other source.
pub fn position(offset: &SourceOffset) -> Result<u64, JournalError> {
    let value: Option<serde_json::Value> = serde_json::from_str(offset.as_str()).ok();
    let position = value.as_ref().and_then(|value| value.get(OFFSET)?.as_u64());
    position.ok_or_else(|| JournalError::ForeignOffset { offset: offset.as_str().to_owned() })
}

/// A journal that is open. Dropped, it writes what is queued and ends.
pub struct Journal {
    shared: Arc<Shared>,
    tasks: Mutex<Vec<Task<()>>>,
}

struct Shared {
    storage: Storage,
    /// The directory in the storage, and the source's place in the plan.
    directory: String,
    source: usize,
    env: Env,
    settings: Settings,
    state: Mutex<State>,
    /// Records are queued, or the journal is to end.
    work: Notify,
    /// The query has come further, or the journal is to end.
    released: Notify,
    /// Records are durable, there is room again, or it has failed.
    changed: Notify,
}

struct State {
    /// Records that are not written yet.
    queue: Vec<Record>,
    queued_bytes: u64,
    /// The position of the next record that is appended.
    next: u64,
    /// Records below this position survive a crash.
    durable: u64,
    /// Records below this position were acknowledged, and that was confirmed.
    acknowledged: u64,
    /// Records below this position are not needed, once the commit log says so.
    released: u64,
    /// Ascending; the last is the one that is written.
    segments: VecDeque<Facts>,
    /// Bytes of all segments.
    stored_bytes: u64,
    keys: Keys,
    /// Numbers of files of keys that are not needed any more.
    expired: Vec<u64>,
    failure: Option<JournalError>,
    ends: bool,
    /// When it was last certain that nobody else writes the journal: on the monotonic clock, and
    /// microseconds since the epoch.
    alone_at: (Duration, i64),
}

/// A segment on the storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Facts {
    first: u64,
    end: u64,
    bytes: u64,
}

impl Facts {
    fn name(&self) -> String {
        segment_name(self.first)
    }
}

fn segment_name(first: u64) -> String {
    format!("{SEGMENT}{first}")
}

/// The numbers behind `prefix` in `names`, ascending.
fn numbers(names: &[String], prefix: &str) -> Vec<u64> {
    let number = |name: &String| layout::batch_id(name.strip_prefix(prefix)?).map(|id| id.0);
    let mut numbers: Vec<u64> = names.iter().filter_map(number).collect();
    numbers.sort_unstable();
    numbers
}

impl State {
    fn bytes(&self) -> u64 {
        self.queued_bytes + self.stored_bytes
    }

    /// What is below `position` was confirmed at `now_us` at the latest.
    fn acknowledged(&mut self, position: u64, now_us: i64) {
        if position > self.acknowledged {
            self.keys.confirmed(self.acknowledged, position, now_us);
            self.acknowledged = position;
        }
    }

    fn has_room(&self, bytes_max: u64) -> bool {
        let is_least = self.queued_bytes == 0 && self.segments.len() <= 1;
        self.bytes() < bytes_max || is_least
    }

    /// How many segments at the beginning may be deleted when the query is past them: the last one
    /// that has records, and what was begun after it, stay.
    fn deletable(&self) -> usize {
        self.segments.iter().rposition(|segment| segment.end > segment.first).unwrap_or(0)
    }
}

impl Journal {
    /// The position of the first record that is still there.
    pub fn first(&self) -> u64 {
        let state = self.shared.state.lock();
        state.segments.front().map_or(state.durable, |segment| segment.first)
    }

    /// Records below this position survive a crash.
    pub fn durable(&self) -> u64 {
        self.shared.state.lock().durable
    }

    /// Bytes on the storage, and those on their way there.
    pub fn bytes(&self) -> u64 {
        self.shared.state.lock().bytes()
    }

    /// Records below this position were acknowledged, and that was confirmed, as far as is known:
    /// of those of an earlier run it may be more.
    pub fn acknowledged_below(&self) -> u64 {
        self.shared.state.lock().acknowledged
    }

    /// How many keys are known, and how many were forgotten because there were too many.
    pub fn keys(&self) -> (usize, u64) {
        let state = self.shared.state.lock();
        (state.keys.len(), state.keys.forgotten_early())
    }

    /// Where the record with `key` is, if the journal has it or had it not long ago.
    pub fn position_of(&self, key: &Key) -> Option<u64> {
        self.shared.state.lock().keys.position(key)
    }

    /// From now on keys are kept for so long.
    pub fn set_key_window(&self, window: Duration) {
        self.shared.state.lock().keys.set_window(window);
    }

    /// Waits until the journal has room for more, or has failed.
    pub async fn room(&self) {
        let max = self.shared.settings.bytes_max;
        let has_room = |state: &State| state.failure.is_some() || state.has_room(max);
        self.shared.wait_for(has_room).await;
    }

    /// Queues records, which get the next positions. One whose key is known is not queued again:
    /// it is where it was, and its key is known for another window.
    pub fn append(&self, records: Vec<Record>) -> Appended {
        let now_us = self.shared.env.now_us();
        let mut state = self.shared.state.lock();
        let mut positions = Vec::with_capacity(records.len());
        let first = state.next;
        for record in records {
            if let Some(known) = record.key.as_ref().and_then(|key| state.keys.position(key)) {
                state.keys.confirmed(known, known + 1, now_us);
                positions.push(known);
                continue;
            }
            let position = state.next;
            if let Some(key) = record.key {
                state.keys.know(key, position);
            }
            state.next += 1;
            state.queued_bytes += record.bytes() as u64;
            state.queue.push(record);
            positions.push(position);
        }
        drop(state);
        self.shared.work.notify_one();
        let end = positions.iter().max().map_or(first, |last| last + 1);
        Appended { positions, first, ticket: Ticket { shared: Arc::clone(&self.shared), end } }
    }

    /// Waits until more than what is below `position` is durable, or the journal has failed.
    pub async fn advanced(&self, position: u64) {
        let has_advanced = |state: &State| state.durable > position || state.failure.is_some();
        self.shared.wait_for(has_advanced).await;
    }

    /// Records from position `from` on, with their positions, below `to` and below what is durable:
    /// those of one segment. None if there are none.
    ///
    /// # Errors
    /// The records are gone, or damaged.
    pub async fn read(&self, from: u64, to: u64) -> Result<Vec<(u64, Record)>, JournalError> {
        let (segment, durable) = {
            let state = self.shared.state.lock();
            let found = state.segments.iter().rfind(|segment| segment.first <= from).copied();
            (found, state.durable)
        };
        let to = to.min(durable);
        if from >= to {
            return Ok(Vec::new());
        }
        let missing = || self.shared.missing(from, to);
        let segment = segment.ok_or_else(missing)?;
        let bytes = self.shared.get(&segment.name()).await?.ok_or_else(missing)?;
        let read = segment::decode(&bytes.into(), segment.first);
        let read = read.map_err(|problem| self.shared.damaged(&segment.name(), problem))?;
        // Behind the last whole frame there may be one that is just being written.
        if read.end() <= from {
            return Err(missing());
        }
        let is_asked_for = |(position, _): &(u64, Record)| *position >= from;
        Ok(read.into_records(to).filter(is_asked_for).collect())
    }

    /// Records below `position` were acknowledged, and the sender has confirmed that: their keys
    /// are known for the window, counted from now.
    pub fn acknowledged(&self, position: u64) {
        let now_us = self.shared.env.now_us();
        self.shared.state.lock().acknowledged(position, now_us);
    }

    /// The query does not need records below `position` once its commit log says so too.
    pub fn released(&self, position: u64) {
        let mut state = self.shared.state.lock();
        if state.released < position {
            state.released = position;
            drop(state);
            self.shared.released.notify_one();
        }
    }

    /// Why nothing is written any more, if that is so.
    pub fn failure(&self) -> Option<JournalError> {
        self.shared.state.lock().failure.clone()
    }

    /// Writes what is queued, and ends.
    pub async fn close(&self) {
        self.end();
        let tasks = std::mem::take(&mut *self.tasks.lock());
        for task in tasks {
            task.join().await;
        }
    }

    fn end(&self) {
        self.shared.state.lock().ends = true;
        self.shared.work.notify_one();
        self.shared.released.notify_one();
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.end();
    }
}

/// Records that were queued.
pub struct Appended {
    /// Where each of them is, in their order.
    pub positions: Vec<u64>,
    /// Those below this position were there before.
    pub first: u64,
    /// When all of them are durable.
    pub ticket: Ticket,
}

impl Appended {
    /// Waits until all of the records survive a crash.
    ///
    /// # Errors
    /// They could not be written.
    pub async fn durable(&self) -> Result<(), JournalError> {
        self.ticket.durable().await
    }
}

/// Tells when records are durable. Cheap to clone.
#[derive(Clone)]
pub struct Ticket {
    shared: Arc<Shared>,
    end: u64,
}

impl Ticket {
    /// Waits until the records survive a crash.
    ///
    /// # Errors
    /// They could not be written.
    pub async fn durable(&self) -> Result<(), JournalError> {
        let end = self.end;
        self.shared.wait_for(|state| state.durable >= end || state.failure.is_some()).await;
        let state = self.shared.state.lock();
        match &state.failure {
            Some(failure) if state.durable < end => Err(failure.clone()),
            _ => Ok(()),
        }
    }
}

impl Shared {
    async fn wait_for(&self, condition: impl Fn(&State) -> bool) {
        loop {
            // Begun before looking, so that a change in between is not missed.
            let changed = self.changed.notified();
            if condition(&self.state.lock()) {
                return;
            }
            changed.await;
        }
    }

    fn fail(&self, error: JournalError) {
        self.state.lock().failure.get_or_insert(error);
        self.changed.notify_waiters();
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.directory)
    }

    async fn get(&self, name: &str) -> Result<Option<Vec<u8>>, JournalError> {
        Ok(self.storage.get(&self.path(name)).await?)
    }

    fn damaged(&self, name: &str, problem: DecodeError) -> JournalError {
        JournalError::Damaged { path: self.storage.path_of(&self.path(name)), problem }
    }

    fn missing(&self, from: u64, to: u64) -> JournalError {
        JournalError::Missing { location: self.storage.path_of(&self.directory), from, to }
    }
}

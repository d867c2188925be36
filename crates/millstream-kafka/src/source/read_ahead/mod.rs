//! The buffer between the reader and the driver: chunks that are read and not taken yet.
//!
//! The reader pushes chunks, the driver takes them. Per partition there are three numbers: `taken`,
//! the end of what the driver has; `read`, the end of what the reader has, which is also past
//! records that are never handed out (transaction markers, gaps of compaction); and `end`, where
//! the query stops, if it stops. Rows at or past `end` are dropped on arrival. If no rows are left
//! before `end` but such a gap is, one more take without rows brings `taken` to `end`, so that the
//! log ends there too, as Spark's does.
//!
//! A partition may [go back](queue) to an offset that it was past.

mod queue;

use std::collections::BTreeMap;
use std::time::Duration;

use millstream_engine::api::source::{Failure, ReadLimit};
use millstream_store::env::Env;
use millstream_store::offset::SourceOffset;
use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::Notify;

use super::chunk::Chunk;
use super::limits::{Limits, shares};
use crate::offsets::{PartitionId, PerPartition, to_json};
use queue::{Held, Queue};

/// The reader pauses while this much waits; the client's own queue fills then, and the client
/// stops fetching.
const WAITING_BYTES_MAX: usize = 64 << 20;
/// The same limit in rows, for small records.
const WAITING_ROWS_MAX: u64 = 2_000_000;

/// What a chunk takes beside its rows, about: columns of Arrow, each with its buffers.
const CHUNK_BYTES: usize = 1_024;

/// Chunks that wait to be taken, and positions.
pub struct ReadAhead {
    env: Env,
    limits: Limits,
    state: Mutex<State>,
    /// Something arrived that a waiting driver may want to look at.
    arrived: Notify,
    /// Something was taken, so that there may be space.
    space: Condvar,
}

#[derive(Default)]
struct State {
    partitions: BTreeMap<PartitionId, Partition>,
    rows: u64,
    bytes: usize,
    /// How much may wait, and so how much a micro-batch takes at most.
    bytes_max: usize,
    fixed_end: bool,
    /// The driver wants everything up to the fixed end in one micro-batch.
    whole: bool,
    failure: Option<Failure>,
    /// When the driver last took something, on the monotonic clock.
    taken_at: Duration,
}

struct Partition {
    taken: i64,
    read: i64,
    end: Option<i64>,
    queue: Queue,
}

/// What [`ReadAhead::take`] returns.
pub struct PolledChunks {
    /// The end of all partitions.
    pub end: SourceOffset,
    /// Rows in all chunks.
    pub rows: u64,
    /// When the first of the rows arrived.
    pub oldest_arrival_us: i64,
    /// Chunks in order, by partition.
    pub chunks: Vec<(PartitionId, Vec<Chunk>)>,
}

/// What one drain of the reader brought for one partition.
// Nearly all are rows: a box would cost an allocation and save nothing.
#[allow(clippy::large_enum_variant)]
pub enum Arrival {
    /// Rows.
    Rows(Chunk),
    /// The end of the partition, as far as may be read now.
    End(i64),
}

/// Whether the client has more messages than were copied into the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum More {
    /// It had more when the drain ended.
    Waits,
    /// Its queue was empty, or another thread is draining it and will notify.
    WillBeNotified,
}

enum Readiness {
    Ready,
    Later(Duration),
    OnArrival,
}

impl ReadAhead {
    /// An empty one.
    pub fn new(env: Env, limits: Limits) -> Self {
        let taken_at = env.monotonic();
        let state = State { taken_at, bytes_max: WAITING_BYTES_MAX, ..State::default() };
        Self {
            env,
            limits,
            state: Mutex::new(state),
            arrived: Notify::new(),
            space: Condvar::new(),
        }
    }

    /// With room for `bytes` where memory is limited. A single chunk that is larger is still held.
    pub fn holding(mut self, bytes: Option<usize>) -> Self {
        if let Some(bytes) = bytes {
            self.state.get_mut().bytes_max = bytes.min(WAITING_BYTES_MAX);
        }
        self
    }

    /// Adds a partition whose rows up to `position` are not wanted.
    pub fn add(&self, id: PartitionId, position: i64) {
        let mut state = self.state.lock();
        // A partition that appears after the end was fixed is not part of this query any more.
        let end = state.fixed_end.then_some(position);
        let queue = Queue::default();
        state.partitions.insert(id, Partition { taken: position, read: position, end, queue });
    }

    /// Drops a partition and what waits of it.
    pub fn remove(&self, id: &PartitionId) {
        let mut state = self.state.lock();
        if let Some(gone) = state.partitions.remove(id) {
            state.changed(gone.queue.held(), Held::default());
        }
        self.space.notify_all();
        drop(state);
        self.arrived.notify_one();
    }

    /// The partitions and the end of what was taken of each.
    pub fn taken(&self) -> PerPartition {
        let state = self.state.lock();
        state.partitions.iter().map(|(id, partition)| (id.clone(), partition.taken)).collect()
    }

    /// The partitions that have more rows than were taken. `end_seen` gives a partition's end as
    /// far as it is known; a partition whose end is unknown counts as behind.
    pub fn behind(&self, end_seen: impl Fn(&PartitionId) -> Option<i64>) -> Vec<PartitionId> {
        // Asked without the lock: a reader that hands rows over has its own lock when it asks for
        // this one.
        let known: Vec<(PartitionId, i64, Option<i64>)> = {
            let state = self.state.lock();
            let known = state.partitions.iter();
            known.map(|(id, partition)| (id.clone(), partition.taken, partition.end)).collect()
        };
        let is_behind = |(id, taken, end): &(PartitionId, i64, Option<i64>)| {
            end.or_else(|| end_seen(id)).is_none_or(|end| *taken < end)
        };
        known.into_iter().filter(is_behind).map(|(id, ..)| id).collect()
    }

    /// The partitions and how far each was read.
    pub fn read(&self) -> PerPartition {
        let state = self.state.lock();
        state.partitions.iter().map(|(id, partition)| (id.clone(), partition.read)).collect()
    }

    /// Takes in what one drain brought.
    pub fn push(&self, arrivals: impl IntoIterator<Item = (PartitionId, Arrival)>) {
        let mut state = self.state.lock();
        for (id, arrival) in arrivals {
            state.push(&id, arrival);
        }
    }

    /// Makes a driver that waits look again.
    pub fn notify(&self) {
        self.arrived.notify_one();
    }

    /// Makes the next [`take`](Self::take) fail.
    pub fn fail(&self, failure: Failure) {
        self.state.lock().failure.get_or_insert(failure);
        self.arrived.notify_one();
    }

    /// Whether more may be read now.
    pub fn has_space(&self) -> bool {
        !self.state.lock().is_full()
    }

    /// True if nothing of a partition is wanted any more, since it was read to its fixed end.
    pub fn has_all_of(&self, id: &PartitionId) -> bool {
        let state = self.state.lock();
        let partition = state.partitions.get(id);
        partition.is_some_and(|partition| partition.end.is_some_and(|end| partition.read >= end))
    }

    /// Waits until more may be read, for `patience` at most. Returns whether it may.
    pub fn wait_for_space(&self, patience: Duration) -> bool {
        let mut state = self.state.lock();
        if state.is_full() {
            self.space.wait_for(&mut state, patience);
        }
        !state.is_full()
    }

    /// Nothing at or past `ends` is handed out any more. Partitions that `ends` lacks have ended.
    pub fn fix_end(&self, ends: &PerPartition) {
        let mut state = self.state.lock();
        state.fixed_end = true;
        let state = &mut *state;
        for (id, partition) in &mut state.partitions {
            let start = partition.queue.start(partition.taken);
            let end = ends.get(id).copied().unwrap_or(start).max(start);
            partition.end = Some(end);
            let before = partition.queue.held();
            partition.queue.cut(end);
            let after = partition.queue.held();
            state.rows = state.rows - before.rows + after.rows;
            state.bytes = state.bytes - before.bytes + after.bytes;
        }
        self.arrived.notify_one();
    }

    /// A partition is another one, which is read from `to` on and ends at `latest` now. What was
    /// read of the former one is still handed out. Nothing happens if `to` is not passed yet.
    pub fn begin_again(&self, id: &PartitionId, to: i64, latest: i64) {
        self.go_back(id, to, latest, |_| ());
    }

    /// The log of a partition is another one from `to` on, and ends at `latest` now. What was read
    /// there and not taken yet is dropped: its offsets are those of other records.
    pub fn cut_back(&self, id: &PartitionId, to: i64, latest: i64) {
        self.go_back(id, to, latest, |queue| queue.cut(to));
    }

    fn go_back(&self, id: &PartitionId, to: i64, latest: i64, drop: impl FnOnce(&mut Queue)) {
        let mut state = self.state.lock();
        let Some(partition) = state.partitions.get_mut(id) else { return };
        if partition.read <= to {
            return;
        }
        let before = partition.queue.held();
        drop(&mut partition.queue);
        let after = partition.queue.held();
        if partition.next() > to {
            partition.queue.go_back(to);
        }
        partition.read = to;
        // An end that was fixed in the former log may never come in this one.
        partition.end = partition.end.map(|end| end.min(latest.max(to)));
        state.changed(before, after);
        self.space.notify_all();
        self.arrived.notify_one();
    }

    /// True once [`fix_end`](Self::fix_end) was called.
    pub fn has_fixed_end(&self) -> bool {
        self.state.lock().fixed_end
    }

    /// True once everything before the fixed end was taken.
    pub fn at_end(&self) -> bool {
        self.state.lock().at_end()
    }

    /// Hands over what waits. Never waits itself.
    /// Errors: what the reader reported.
    pub fn take(&self, limit: ReadLimit) -> Result<Option<PolledChunks>, Failure> {
        let mut state = self.state.lock();
        if let Some(failure) = state.failure.take() {
            return Err(failure);
        }
        let limited = limit == ReadLimit::Configured;
        state.whole = !limited && state.fixed_end;
        let waits = limited || state.whole;
        let ready = !waits || matches!(self.readiness(&state), Readiness::Ready);
        if !ready || state.at_end() || (state.rows == 0 && !state.all_read()) {
            return Ok(None);
        }
        let rows_max = if limited { self.limits.rows_max } else { None };
        let taken = state.take(rows_max, self.env.now_us());
        state.taken_at = self.env.monotonic();
        self.space.notify_all();
        Ok(Some(taken))
    }

    /// Completes when [`take`](Self::take) would give something or fail, or at the end. Calls
    /// `look` to bring in what the client has, at the start and whenever something came; it says
    /// whether there was more than it brought.
    pub async fn arrived(&self, look: impl Fn() -> More) {
        loop {
            let more = look();
            let readiness = self.readiness(&self.state.lock());
            match readiness {
                Readiness::Ready => return,
                _ if more == More::Waits => tokio::task::yield_now().await,
                Readiness::OnArrival => self.arrived.notified().await,
                Readiness::Later(wait) => tokio::select! {
                    () = self.arrived.notified() => {}
                    () = self.env.sleep(wait) => {}
                },
            }
        }
    }

    fn readiness(&self, state: &MutexGuard<'_, State>) -> Readiness {
        if state.failure.is_some() || state.all_read() {
            return Readiness::Ready;
        }
        if state.rows == 0 || (state.whole && !state.is_full()) {
            return Readiness::OnArrival;
        }
        let enough = self.limits.rows_min.is_none_or(|rows_min| state.rows >= rows_min);
        if enough || state.is_full() {
            return Readiness::Ready;
        }
        let since = self.env.monotonic().saturating_sub(state.taken_at);
        match self.limits.delay_max.checked_sub(since) {
            Some(rest) if !rest.is_zero() => Readiness::Later(rest),
            _ => Readiness::Ready,
        }
    }
}

impl State {
    fn is_full(&self) -> bool {
        self.rows >= WAITING_ROWS_MAX || self.bytes >= self.bytes_max
    }

    /// True if the end is fixed and the reader has come to it everywhere.
    fn all_read(&self) -> bool {
        let read = |partition: &Partition| partition.end.is_some_and(|end| partition.read >= end);
        self.fixed_end && self.partitions.values().all(read)
    }

    fn at_end(&self) -> bool {
        let taken = |partition: &Partition| {
            let at_end = partition.end.is_some_and(|end| partition.taken >= end);
            at_end && partition.queue.is_empty()
        };
        self.fixed_end && self.rows == 0 && self.partitions.values().all(taken)
    }

    fn push(&mut self, id: &PartitionId, arrival: Arrival) {
        // Chunks of a partition that was removed meanwhile are dropped.
        let Some(partition) = self.partitions.get_mut(id) else { return };
        let chunk = match arrival {
            Arrival::End(offset) => {
                partition.read = offset;
                return;
            }
            Arrival::Rows(chunk) => chunk,
        };
        partition.read = chunk.end_offset();
        let wanted = cut(chunk, partition.end.unwrap_or(i64::MAX));
        let Some(chunk) = wanted else { return };
        self.rows += chunk.rows() as u64;
        self.bytes += cost(&chunk);
        partition.queue.push(chunk);
    }

    /// What waits of a partition is not what it was.
    fn changed(&mut self, before: Held, after: Held) {
        self.rows = self.rows - before.rows + after.rows;
        self.bytes = self.bytes - before.bytes + after.bytes;
    }

    fn take(&mut self, rows_max: Option<u64>, now_us: i64) -> PolledChunks {
        let waiting: Vec<u64> = self.partitions.values().map(|it| it.queue.rows()).collect();
        let shares = match rows_max {
            Some(rows_max) => shares(rows_max, &waiting),
            None => waiting,
        };
        let mut chunks = Vec::new();
        for ((id, partition), share) in self.partitions.iter_mut().zip(&shares) {
            let (taken, bytes) = partition.take(*share);
            self.bytes += bytes;
            if !taken.is_empty() {
                chunks.push((id.clone(), taken));
            }
        }
        let all = || chunks.iter().flat_map(|(_, chunks)| chunks);
        let oldest_arrival_us = all().map(|chunk| chunk.arrival_us).min().unwrap_or(now_us);
        for chunk in all() {
            self.bytes -= cost(chunk);
        }
        let rows = shares.iter().sum();
        self.rows -= rows;
        let ends = self.partitions.iter().map(|(id, partition)| (id, partition.taken));
        let end = SourceOffset::new(to_json(ends));
        PolledChunks { end, rows, oldest_arrival_us, chunks }
    }
}

impl Partition {
    /// Up to where the newest rows would be taken if all that waits were.
    fn next(&self) -> i64 {
        self.queue.end(self.taken)
    }

    /// Takes so many rows, and gives the bytes that are counted besides; see [`Queue::take`].
    fn take(&mut self, rows: u64) -> (Vec<Chunk>, usize) {
        if let Some(to) = self.queue.take_back() {
            self.taken = to;
            return (Vec::new(), 0);
        }
        let (taken, bytes) = self.queue.take(rows);
        // With nothing left the position is past the last row: `read` also covers transaction
        // markers and compacted records, which have offsets but no rows.
        if self.queue.is_empty() {
            self.taken = self.read.min(self.end.unwrap_or(i64::MAX));
        } else if let Some(last) = taken.last() {
            self.taken = last.end_offset();
        }
        (taken, bytes)
    }
}

/// What a chunk counts: its rows, and what it takes however few they are.
fn cost(chunk: &Chunk) -> usize {
    chunk.bytes() + CHUNK_BYTES
}

/// The rows of `chunk` before `end`, if there are any.
pub fn cut(chunk: Chunk, end: i64) -> Option<Chunk> {
    match chunk.rows_before(end) {
        0 => None,
        all if all == chunk.rows() => Some(chunk),
        some => Some(chunk.slice(0, some)),
    }
}

#[cfg(test)]
mod tests;

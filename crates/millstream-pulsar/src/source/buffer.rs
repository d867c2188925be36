//! Entries that wait for the driver, by partition.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use millstream_engine::api::source::{Failure, SourcePartition};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::position::{Position, Positions};
use crate::protocol::messages::MessageMetadata;

/// What an entry costs beside its bytes, about.
const OVERHEAD: usize = 512;

/// An entry as it arrived, not unpacked.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) id: (u64, u64),
    pub(super) metadata: MessageMetadata,
    pub(super) payload: Bytes,
    /// Messages that are in it; none in a chunk, but for the last one, which has the whole message.
    pub(super) messages: usize,
    /// How many of those were read before.
    pub(super) skip: usize,
    /// The first entry of the oldest message in chunks that is not complete behind this entry.
    pub(super) from: Option<(u64, u64)>,
    /// Microseconds since the epoch.
    pub(super) arrival_us: i64,
}

impl Entry {
    /// How many rows it becomes.
    pub(super) fn rows(&self) -> usize {
        self.messages - self.skip
    }

    fn bytes(&self) -> usize {
        self.payload.len() + OVERHEAD
    }
}

/// What all partitions have read ahead.
pub(super) struct Buffer {
    state: Mutex<State>,
    changed: Notify,
    drained: Notify,
    bytes_max: usize,
}

#[derive(Default)]
struct State {
    partitions: BTreeMap<String, Waiting>,
    failure: Option<Failure>,
    /// Whether the end is fixed.
    is_ending: bool,
}

struct Waiting {
    entries: VecDeque<Entry>,
    bytes: usize,
    taken: Position,
    /// The last entry that is taken, in a run that ends.
    end: Option<(u64, u64)>,
}

/// Entries of a micro-batch.
pub(super) struct Taken {
    /// By partition, in order.
    pub(super) entries: Vec<(String, Vec<Entry>)>,
    /// Where all partitions stand then.
    pub(super) end: Positions,
}

impl Buffer {
    /// A buffer of about `bytes_max` bytes.
    pub(super) fn new(bytes_max: usize) -> Self {
        let (state, changed, drained) = (Mutex::default(), Notify::new(), Notify::new());
        Self { state, changed, drained, bytes_max }
    }

    /// A partition is read from `position` on. False if it is there already.
    pub(super) fn add(&self, partition: &str, position: Position) -> bool {
        let mut state = self.state.lock();
        if state.partitions.contains_key(partition) {
            return false;
        }
        // What comes after the end was fixed is not waited for.
        let end = state.is_ending.then(|| position.entry().unwrap_or((0, 0)));
        let waiting = Waiting { entries: VecDeque::new(), bytes: 0, taken: position, end };
        state.partitions.insert(partition.to_owned(), waiting);
        true
    }

    /// The partitions that are read.
    pub(super) fn partitions(&self) -> Vec<String> {
        self.state.lock().partitions.keys().cloned().collect()
    }

    /// Adds an entry behind those that are there.
    pub(super) fn put(&self, partition: &str, entry: Entry) {
        let mut state = self.state.lock();
        if let Some(waiting) = state.partitions.get_mut(partition) {
            waiting.bytes += entry.bytes();
            waiting.entries.push_back(entry);
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Completes when a partition may read on: it has less than its share.
    pub(super) async fn has_room(&self, partition: &str) {
        loop {
            let drained = self.drained.notified();
            {
                let state = self.state.lock();
                let share = self.bytes_max / state.partitions.len().max(1);
                let waiting = state.partitions.get(partition).map_or(0, |waiting| waiting.bytes);
                if waiting == 0 || waiting < share {
                    return;
                }
            }
            drained.await;
        }
    }

    /// About how many bytes a partition may have on its way.
    pub(super) fn share(&self) -> usize {
        self.bytes_max / self.state.lock().partitions.len().max(1)
    }

    pub(super) fn fail(&self, failure: Failure) {
        self.state.lock().failure.get_or_insert(failure);
        self.changed.notify_one();
    }

    /// About `bytes_max` bytes of entries; `None` where there is none.
    pub(super) fn take(&self, bytes_max: Option<usize>) -> Result<Option<Taken>, Failure> {
        let mut state = self.state.lock();
        let filled = state.partitions.values().filter(|it| it.has_some()).count();
        if filled == 0 {
            return state.failure.take().map_or(Ok(None), Err);
        }
        let share = bytes_max.map_or(usize::MAX, |bytes| bytes / filled);
        let mut entries = Vec::new();
        for (name, waiting) in &mut state.partitions {
            let taken = waiting.take(share);
            if !taken.is_empty() {
                entries.push((name.clone(), taken));
            }
        }
        let end = state.partitions.iter();
        let end = end.map(|(name, waiting)| (name.clone(), waiting.taken)).collect();
        drop(state);
        self.drained.notify_waiters();
        Ok(Some(Taken { entries, end }))
    }

    /// Whether something can be taken, or taking would fail.
    pub(super) fn is_filled(&self) -> bool {
        let state = self.state.lock();
        state.failure.is_some() || state.partitions.values().any(Waiting::has_some)
    }

    /// Completes when more arrived, or reading has failed, since the last time.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// The run ends with these entries; a partition that is not named ends where it is.
    pub(super) fn fix_end(&self, ends: &BTreeMap<String, Option<(u64, u64)>>) {
        let mut state = self.state.lock();
        state.is_ending = true;
        for (name, waiting) in &mut state.partitions {
            let found = ends.get(name).copied().flatten();
            waiting.end = Some(found.or(waiting.taken.entry()).unwrap_or((0, 0)));
            if found.is_none() && waiting.taken == Position::Earliest {
                // Nothing was there, so nothing is taken.
                waiting.end = None;
                waiting.entries.clear();
            }
        }
        // A partition without an end has none to wait for.
        drop(state);
        self.changed.notify_one();
    }

    /// Whether everything before the end was taken.
    pub(super) fn at_end(&self) -> bool {
        let state = self.state.lock();
        state.is_ending && state.partitions.values().all(Waiting::is_at_end)
    }

    /// Partitions of which entries wait.
    pub(super) fn behind(&self) -> Vec<SourcePartition> {
        let state = self.state.lock();
        let behind = state.partitions.iter().filter(|(_, waiting)| waiting.has_some());
        behind.map(|(name, _)| number_of(name)).collect()
    }
}

impl Waiting {
    fn is_within(&self, entry: &Entry) -> bool {
        self.end.is_none_or(|end| entry.id <= end)
    }

    fn has_some(&self) -> bool {
        self.entries.front().is_some_and(|entry| self.is_within(entry))
    }

    fn is_at_end(&self) -> bool {
        self.end.is_none_or(|end| self.taken.entry().is_some_and(|taken| taken >= end))
            || self.entries.front().is_some_and(|entry| !self.is_within(entry))
    }

    fn take(&mut self, bytes_max: usize) -> Vec<Entry> {
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while let Some(entry) = self.entries.front()
            && self.is_within(entry)
            && (taken.is_empty() || bytes + entry.bytes() <= bytes_max)
        {
            bytes += entry.bytes();
            self.taken = Position::with_incomplete(entry.id, entry.from);
            taken.extend(self.entries.pop_front());
        }
        self.bytes -= bytes;
        taken
    }
}

/// The number of a partition, the same in every run: FNV-1a of its name.
pub(super) fn number_of(partition: &str) -> SourcePartition {
    partition.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(ledger: u64, entry: u64) -> Entry {
        Entry {
            id: (ledger, entry),
            metadata: MessageMetadata::default(),
            payload: Bytes::from_static(&[0; 488]),
            messages: 1,
            skip: 0,
            from: None,
            arrival_us: 0,
        }
    }

    fn ids(buffer: &Buffer, bytes_max: Option<usize>) -> Vec<(u64, u64)> {
        let taken = buffer.take(bytes_max).expect("nothing has failed");
        let entries = taken.into_iter().flat_map(|taken| taken.entries);
        entries.flat_map(|(_, entries)| entries).map(|entry| entry.id).collect()
    }

    #[test]
    fn each_partition_gets_its_share_of_a_limit() {
        let buffer = Buffer::new(10_000);
        assert!(buffer.add("a", Position::Earliest) && buffer.add("b", Position::after((1, 0))));
        assert!(!buffer.add("a", Position::Earliest));
        for number in 1..=4 {
            buffer.put("a", entry(1, number));
        }
        buffer.put("b", entry(1, 1));
        assert_eq!(ids(&buffer, Some(4_000)), [(1, 1), (1, 2), (1, 1)]);
        assert_eq!(ids(&buffer, Some(1)), [(1, 3)], "one at least");
        let end = buffer.take(None).expect("nothing has failed").expect("there is one").end;
        assert_eq!(end["a"], Position::after((1, 4)));
        assert_eq!(end["b"], Position::after((1, 1)));
        assert!(!buffer.is_filled());
    }

    #[test]
    fn a_run_that_ends_takes_nothing_behind_its_end() {
        let buffer = Buffer::new(10_000);
        buffer.add("a", Position::Earliest);
        buffer.add("empty", Position::Earliest);
        buffer.put("a", entry(1, 1));
        buffer.put("a", entry(2, 0));
        buffer
            .fix_end(&BTreeMap::from([("a".to_owned(), Some((1, 1))), ("empty".to_owned(), None)]));
        assert!(!buffer.at_end());
        assert_eq!(ids(&buffer, None), [(1, 1)]);
        assert!(buffer.at_end() && !buffer.is_filled());
    }
}

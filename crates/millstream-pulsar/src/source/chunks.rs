//! Messages that their producer has divided into chunks, each an entry of its own, put together
//! again.
//!
//! ```text
//! entry   10         11        12         13        14
//!         a, 1 of 3  all of b  a, 2 of 3  all of c  a, 3 of 3
//! ```
//!
//! A message is read where its last chunk stands: b, c, a. So a query that has read up to entry 13
//! has read b and c, and has to begin with entry 10 again. What becomes of a message depends only
//! on the entries from its first chunk on, so that reading them again ends in the same. Chunks of
//! one message have a name in common and come in order.
//!
//! What its producer has not completed is given up once much has come since: entries, chunks, bytes
//! of chunks. That is no matter of time: clocks of producers differ, and what a replication brings
//! later has old times. And it bounds the memory, whatever producers send.

use std::collections::BTreeMap;
use std::mem;

use bytes::{BufMut as _, Bytes, BytesMut};

use crate::protocol::messages::MessageMetadata;

/// Bytes of chunks that may come from the first chunk of a message on until it is complete; so a
/// message has no more, and neither have all incomplete ones of a partition together.
const BYTES_MAX: u64 = 256 << 20;
/// Messages in chunks that may begin after a message until it is complete.
const BEGUN_MAX: u64 = 1_000;
/// Entries that may come after a chunk until the next of its message does.
const ENTRIES_MAX: u64 = 100_000;
/// Bytes of the name that chunks of a message have in common.
const UUID_MAX: usize = 1 << 10;

/// Why chunks cannot be put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChunkError {
    /// The message is larger than what is held of messages.
    TooLarge,
    /// The chunks are not what they say of themselves.
    Inconsistent,
}

/// The incomplete messages of one partition.
#[derive(Default)]
pub(super) struct Chunks {
    /// By their first entries.
    incomplete: BTreeMap<(u64, u64), Incomplete>,
    come: Come,
}

/// What has come since the reading began.
#[derive(Clone, Copy, Default)]
struct Come {
    entries: u64,
    /// First chunks.
    begun: u64,
    /// Bytes of chunks.
    bytes: u64,
}

struct Incomplete {
    uuid: String,
    /// The number of the chunk that comes next.
    next: i32,
    count: i32,
    /// Bytes of all chunks together.
    size: usize,
    payload: BytesMut,
    /// What had come before its first chunk.
    first: Come,
    /// Entries that had come with its last one.
    last: u64,
}

impl Incomplete {
    fn is_given_up(&self, come: Come) -> bool {
        come.entries - self.last > ENTRIES_MAX
            || come.begun - self.first.begun > BEGUN_MAX
            || come.bytes - self.first.bytes > BYTES_MAX
    }
}

/// Whether an entry is a chunk.
pub(super) fn is_chunk(metadata: &MessageMetadata) -> bool {
    metadata.num_chunks_from_msg.is_some_and(|count| count > 1)
}

impl Chunks {
    /// The first entry of the oldest message that is incomplete.
    pub(super) fn first(&self) -> Option<(u64, u64)> {
        self.incomplete.first_key_value().map(|(first, _)| *first)
    }

    /// An entry of any kind is about to be read, with `bytes` of payload. Gives how many messages
    /// are given up.
    pub(super) fn reach(&mut self, metadata: &MessageMetadata, bytes: usize) -> usize {
        self.come.entries += 1;
        if is_chunk(metadata) {
            self.come.bytes += bytes as u64;
        }
        let (before, come) = (self.incomplete.len(), self.come);
        self.incomplete.retain(|_, message| !message.is_given_up(come));
        before - self.incomplete.len()
    }

    /// Takes a chunk. Gives the payload of the whole message, compressed as it was, if that was
    /// the last one. Chunks that are sent twice, and those without the ones before them, are
    /// nothing.
    ///
    /// # Errors
    /// [`ChunkError`]. The message is given up then.
    pub(super) fn take(
        &mut self,
        id: (u64, u64),
        metadata: &MessageMetadata,
        payload: &Bytes,
    ) -> Result<Option<Bytes>, ChunkError> {
        let chunk = metadata.chunk_id.unwrap_or(0);
        if chunk == 0 {
            self.begin(id, metadata, payload)?;
        }
        let uuid = metadata.uuid.as_deref().unwrap_or_default();
        let found = self.incomplete.iter_mut().find(|(_, message)| message.uuid == uuid);
        let Some((first, message)) = found else { return Ok(None) };
        let first = *first;
        if chunk < message.next {
            return Ok(None);
        }
        if chunk > message.next {
            self.remove(first);
            return Ok(None);
        }
        if message.payload.len() + payload.len() > message.size {
            self.remove(first);
            return Err(ChunkError::Inconsistent);
        }
        message.payload.put_slice(payload);
        message.next += 1;
        message.last = self.come.entries;
        if message.next < message.count {
            return Ok(None);
        }
        let is_whole = message.payload.len() == message.size;
        let payload = self.remove(first);
        if is_whole { Ok(Some(payload)) } else { Err(ChunkError::Inconsistent) }
    }

    fn begin(
        &mut self,
        id: (u64, u64),
        metadata: &MessageMetadata,
        payload: &Bytes,
    ) -> Result<(), ChunkError> {
        self.come.begun += 1;
        let uuid = metadata.uuid.clone().unwrap_or_default();
        // A producer that begins a message again has not ended it before.
        let before = self.incomplete.iter().find(|(_, message)| message.uuid == uuid);
        if let Some(first) = before.map(|(first, _)| *first) {
            self.remove(first);
        }
        let size = metadata.total_chunk_msg_size.and_then(|size| usize::try_from(size).ok());
        let size = size.filter(|_| uuid.len() <= UUID_MAX).ok_or(ChunkError::Inconsistent)?;
        if size as u64 > BYTES_MAX {
            return Err(ChunkError::TooLarge);
        }
        let Come { entries, begun, bytes } = self.come;
        let first = Come { entries, begun, bytes: bytes.saturating_sub(payload.len() as u64) };
        let count = metadata.num_chunks_from_msg.unwrap_or(1);
        let payload = BytesMut::new();
        let message = Incomplete { uuid, next: 0, count, size, payload, first, last: entries };
        self.incomplete.insert(id, message);
        Ok(())
    }

    fn remove(&mut self, first: (u64, u64)) -> Bytes {
        let Some(mut message) = self.incomplete.remove(&first) else { return Bytes::new() };
        mem::take(&mut message.payload).freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(uuid: &str, chunk: i32, count: i32, size: usize) -> MessageMetadata {
        MessageMetadata {
            uuid: Some(uuid.to_owned()),
            chunk_id: Some(chunk),
            num_chunks_from_msg: Some(count),
            total_chunk_msg_size: Some(i32::try_from(size).expect("it is small")),
            publish_time: 1_000,
            ..MessageMetadata::default()
        }
    }

    fn take(
        chunks: &mut Chunks,
        entry: u64,
        metadata: &MessageMetadata,
        payload: &'static str,
    ) -> Result<Option<String>, ChunkError> {
        let taken = chunks.take((1, entry), metadata, &Bytes::from_static(payload.as_bytes()));
        Ok(taken?.map(|whole| String::from_utf8(whole.to_vec()).expect("it is text")))
    }

    #[test]
    fn chunks_of_several_messages_stand_in_any_order() {
        let mut chunks = Chunks::default();
        assert_eq!(take(&mut chunks, 1, &chunk("a", 0, 3, 6), "aa"), Ok(None));
        assert_eq!(take(&mut chunks, 2, &chunk("b", 0, 2, 3), "bb"), Ok(None));
        assert_eq!(take(&mut chunks, 3, &chunk("a", 1, 3, 6), "AA"), Ok(None));
        assert_eq!(chunks.first(), Some((1, 1)));
        // Sent twice.
        assert_eq!(take(&mut chunks, 4, &chunk("a", 1, 3, 6), "AA"), Ok(None));
        assert_eq!(take(&mut chunks, 5, &chunk("a", 2, 3, 6), "aa"), Ok(Some("aaAAaa".into())));
        assert_eq!(chunks.first(), Some((1, 2)));
        assert_eq!(take(&mut chunks, 6, &chunk("b", 1, 2, 3), "B"), Ok(Some("bbB".into())));
        assert_eq!(chunks.first(), None);
    }

    #[test]
    fn a_message_is_nothing_without_one_of_its_chunks() {
        let mut chunks = Chunks::default();
        // The reading began behind its first chunk.
        assert_eq!(take(&mut chunks, 1, &chunk("a", 1, 2, 2), "a"), Ok(None));
        assert_eq!(chunks.first(), None);
        assert_eq!(take(&mut chunks, 2, &chunk("b", 0, 3, 3), "b"), Ok(None));
        assert_eq!(take(&mut chunks, 3, &chunk("b", 2, 3, 3), "b"), Ok(None));
        assert_eq!(chunks.first(), None);
        // Its producer begins again.
        assert_eq!(take(&mut chunks, 4, &chunk("c", 0, 2, 2), "x"), Ok(None));
        assert_eq!(take(&mut chunks, 5, &chunk("c", 0, 2, 2), "c"), Ok(None));
        assert_eq!(chunks.first(), Some((1, 5)));
        assert_eq!(take(&mut chunks, 6, &chunk("c", 1, 2, 2), "c"), Ok(Some("cc".into())));
    }

    #[test]
    fn a_message_that_is_not_completed_is_given_up_by_later_entries() {
        let mut chunks = Chunks::default();
        // Times of producers do not count.
        let other = MessageMetadata { publish_time: u64::MAX, ..MessageMetadata::default() };
        assert_eq!(take(&mut chunks, 1, &chunk("a", 0, 2, 2), "a"), Ok(None));
        for _ in 0..ENTRIES_MAX {
            assert_eq!(chunks.reach(&other, 1 << 20), 0);
        }
        assert_eq!(chunks.reach(&other, 1), 1);
        assert_eq!(chunks.first(), None);
        assert_eq!(take(&mut chunks, 2, &chunk("a", 1, 2, 2), "a"), Ok(None));
    }

    #[test]
    fn memory_has_a_limit() {
        let mut chunks = Chunks::default();
        let large = usize::try_from(BYTES_MAX).expect("it is small") + 1;
        let refused = take(&mut chunks, 1, &chunk("a", 0, 2, large), "a");
        assert_eq!(refused, Err(ChunkError::TooLarge));
        let longer = take(&mut chunks, 1, &chunk("a", 0, 2, 2), "aaa");
        assert_eq!((longer, chunks.first()), (Err(ChunkError::Inconsistent), None));
        let name = "u".repeat(UUID_MAX + 1);
        let named = take(&mut chunks, 1, &chunk(&name, 0, 2, 2), "a");
        assert_eq!(named, Err(ChunkError::Inconsistent));
        // The oldest of many goes.
        let mut chunks = Chunks::default();
        for number in 0..=BEGUN_MAX {
            let metadata = chunk(&number.to_string(), 0, 2, 2);
            assert_eq!(chunks.reach(&metadata, 1), 0);
            assert_eq!(take(&mut chunks, number, &metadata, "a"), Ok(None));
        }
        assert_eq!(take(&mut chunks, 2_000, &chunk("n", 0, 2, 2), "a"), Ok(None));
        assert_eq!(chunks.reach(&MessageMetadata::default(), 1), 1);
        assert_eq!(chunks.first(), Some((1, 1)));
        // So does what waits while many bytes of others come.
        let half = usize::try_from(BYTES_MAX / 2).expect("it is small");
        assert_eq!(chunks.reach(&chunk("x", 1, 2, half), half), 0);
        assert_ne!(chunks.reach(&chunk("x", 1, 2, half), half), 0);
        assert_eq!(chunks.first(), None);
    }
}

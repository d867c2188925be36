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
//! one message have a name in common and come in order. What its producer has not completed is
//! given up by the times of later entries, not by a clock of ours.

use std::collections::BTreeMap;
use std::mem;

use bytes::{BufMut as _, Bytes, BytesMut};

use crate::protocol::messages::MessageMetadata;

/// What the incomplete messages of a partition may have together, bytes; so one message, too.
const BYTES_MAX: usize = 256 << 20;
/// Incomplete messages of a partition.
const INCOMPLETE_MAX: usize = 1_000;
/// A message whose last chunk was sent so much earlier than a later entry, milliseconds, is not
/// completed any more: its producer has ended.
const GIVEN_UP_MS: u64 = 3_600_000;

/// Why chunks cannot be put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChunkError {
    /// There is more of incomplete messages than is held.
    TooLarge,
    /// Too many messages are incomplete.
    TooMany,
    /// The chunks are not what they say of themselves.
    Inconsistent,
}

/// The incomplete messages of one partition.
#[derive(Default)]
pub(super) struct Chunks {
    /// By their first entries.
    incomplete: BTreeMap<(u64, u64), Incomplete>,
    bytes: usize,
}

struct Incomplete {
    uuid: String,
    /// The number of the chunk that comes next.
    next: i32,
    count: i32,
    /// Bytes of all chunks together.
    size: usize,
    payload: BytesMut,
    /// When the last chunk was sent, milliseconds since the epoch.
    sent_ms: u64,
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

    /// An entry of any kind, sent at `sent_ms`, is about to be read. Gives how many messages are
    /// given up.
    pub(super) fn reach(&mut self, sent_ms: u64) -> usize {
        let before = self.incomplete.len();
        let bytes = &mut self.bytes;
        self.incomplete.retain(|_, message| {
            let stays = message.sent_ms.saturating_add(GIVEN_UP_MS) >= sent_ms;
            if !stays {
                *bytes -= message.payload.len();
            }
            stays
        });
        before - self.incomplete.len()
    }

    /// Takes a chunk. Gives the payload of the whole message, compressed as it was, if that was
    /// the last one. Chunks that are sent twice, and those without the ones before them, are
    /// nothing.
    ///
    /// # Errors
    /// [`ChunkError`]
    pub(super) fn take(
        &mut self,
        id: (u64, u64),
        metadata: &MessageMetadata,
        payload: &Bytes,
    ) -> Result<Option<Bytes>, ChunkError> {
        let chunk = metadata.chunk_id.unwrap_or(0);
        if chunk == 0 {
            self.begin(id, metadata)?;
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
            return Err(ChunkError::Inconsistent);
        }
        self.bytes += payload.len();
        if self.bytes > BYTES_MAX {
            return Err(ChunkError::TooLarge);
        }
        message.payload.put_slice(payload);
        message.next += 1;
        message.sent_ms = metadata.publish_time;
        if message.next < message.count {
            return Ok(None);
        }
        let is_whole = message.payload.len() == message.size;
        let payload = self.remove(first);
        if is_whole { Ok(Some(payload)) } else { Err(ChunkError::Inconsistent) }
    }

    fn begin(&mut self, id: (u64, u64), metadata: &MessageMetadata) -> Result<(), ChunkError> {
        let uuid = metadata.uuid.clone().unwrap_or_default();
        // A producer that begins a message again has not ended it before.
        let before = self.incomplete.iter().find(|(_, message)| message.uuid == uuid);
        if let Some(first) = before.map(|(first, _)| *first) {
            self.remove(first);
        }
        let size = metadata.total_chunk_msg_size.and_then(|size| usize::try_from(size).ok());
        let size = size.ok_or(ChunkError::Inconsistent)?;
        if size > BYTES_MAX {
            return Err(ChunkError::TooLarge);
        }
        if self.incomplete.len() >= INCOMPLETE_MAX {
            return Err(ChunkError::TooMany);
        }
        let message = Incomplete {
            uuid,
            next: 0,
            count: metadata.num_chunks_from_msg.unwrap_or(1),
            size,
            payload: BytesMut::new(),
            sent_ms: metadata.publish_time,
        };
        self.incomplete.insert(id, message);
        Ok(())
    }

    fn remove(&mut self, first: (u64, u64)) -> Bytes {
        let Some(mut message) = self.incomplete.remove(&first) else { return Bytes::new() };
        self.bytes -= message.payload.len();
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
        assert_eq!((chunks.first(), chunks.bytes), (None, 0));
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
        assert_eq!(take(&mut chunks, 1, &chunk("a", 0, 2, 2), "a"), Ok(None));
        assert_eq!(chunks.reach(1_000 + GIVEN_UP_MS), 0);
        assert_eq!(chunks.reach(1_001 + GIVEN_UP_MS), 1);
        assert_eq!((chunks.first(), chunks.bytes), (None, 0));
        assert_eq!(take(&mut chunks, 2, &chunk("a", 1, 2, 2), "a"), Ok(None));
    }

    #[test]
    fn memory_has_a_limit() {
        let mut chunks = Chunks::default();
        let large = take(&mut chunks, 1, &chunk("a", 0, 2, BYTES_MAX + 1), "a");
        assert_eq!(large, Err(ChunkError::TooLarge));
        let longer = take(&mut chunks, 1, &chunk("a", 0, 2, 2), "aaa");
        assert_eq!(longer, Err(ChunkError::Inconsistent));
        let mut chunks = Chunks::default();
        for number in 0..1_000 {
            let uuid = number.to_string();
            assert_eq!(take(&mut chunks, number, &chunk(&uuid, 0, 2, 2), "a"), Ok(None));
        }
        let many = take(&mut chunks, 1_000, &chunk("a", 0, 2, 2), "a");
        assert_eq!(many, Err(ChunkError::TooMany));
    }
}

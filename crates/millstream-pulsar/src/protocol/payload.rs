//! The messages of an entry: one, or a batch of them.

use bytes::{Buf as _, BufMut as _, Bytes};
use prost::Message as _;

use super::compression::Compression;
use super::frame::{WireError, len_u32};
use super::messages::{KeyValue, MessageMetadata, SingleMessageMetadata};

/// What an entry may have when it is unpacked. Brokers allow some megabytes, and a batch that was
/// much smaller compressed is a sign of something else.
const UNPACKED_MAX: usize = 256 << 20;

/// One message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Message {
    /// Its key as bytes, whatever form it was sent in.
    pub(crate) key: Option<Bytes>,
    /// `None` for one that says that a key has no value.
    pub(crate) value: Option<Bytes>,
    /// In the order of the producer.
    pub(crate) properties: Vec<KeyValue>,
    /// Milliseconds since the epoch, if the producer has set it.
    pub(crate) event_time: Option<u64>,
}

/// How many messages an entry has by its metadata; at least one.
pub(crate) fn count(metadata: &MessageMetadata) -> usize {
    let count = metadata.num_messages_in_batch.unwrap_or(1);
    usize::try_from(count).unwrap_or(0).max(1)
}

/// The messages of an entry.
///
/// # Errors
/// The payload is not what its metadata say.
pub(crate) fn unpack(
    metadata: &MessageMetadata,
    payload: Bytes,
) -> Result<Vec<Message>, WireError> {
    let number = metadata.compression.unwrap_or(0);
    let compression = Compression::of(number).ok_or_else(|| WireError::Payload {
        problem: format!(
            "compressed in a way that is not known here (number {number}); let its producer \
             compress by LZ4, ZLIB, ZSTD or SNAPPY"
        ),
    })?;
    let size = metadata.uncompressed_size.unwrap_or(0) as usize;
    if compression != Compression::None && size > UNPACKED_MAX {
        let problem = format!("{size} bytes large when it is unpacked");
        return Err(WireError::Payload { problem });
    }
    let mut payload = compression.decompress(payload, size)?;
    if metadata.num_messages_in_batch.is_none() {
        let is_encoded = metadata.partition_key_b64_encoded == Some(true);
        return Ok(vec![Message {
            key: key(metadata.partition_key.as_deref(), is_encoded),
            value: (metadata.null_value != Some(true)).then_some(payload),
            properties: metadata.properties.clone(),
            event_time: metadata.event_time.filter(|time| *time > 0),
        }]);
    }
    let count = count(metadata);
    // Each has four bytes at least, whatever the count says.
    let mut messages = Vec::with_capacity(count.min(payload.len() / 4 + 1));
    for _ in 0..count {
        messages.push(next(&mut payload)?);
    }
    Ok(messages)
}

/// Takes the first message off a batch.
fn next(batch: &mut Bytes) -> Result<Message, WireError> {
    let size = batch.try_get_u32().map_err(|_| WireError::Short)? as usize;
    if batch.len() < size {
        return Err(WireError::Short);
    }
    let single = SingleMessageMetadata::decode(batch.split_to(size));
    let single = single.map_err(|error| WireError::Metadata { problem: error.to_string() })?;
    let size = usize::try_from(single.payload_size).map_err(|_| WireError::Short)?;
    if batch.len() < size {
        return Err(WireError::Short);
    }
    let value = batch.split_to(size);
    let is_encoded = single.partition_key_b64_encoded == Some(true);
    Ok(Message {
        key: key(single.partition_key.as_deref(), is_encoded),
        value: (single.null_value != Some(true)).then_some(value),
        properties: single.properties,
        event_time: single.event_time.filter(|time| *time > 0),
    })
}

fn key(text: Option<&str>, is_encoded: bool) -> Option<Bytes> {
    use base64::Engine as _;
    let text = text?;
    if is_encoded {
        // A key that says so and is not is taken as it is: it is still one.
        if let Ok(bytes) = base64::prelude::BASE64_STANDARD.decode(text) {
            return Some(bytes.into());
        }
    }
    Some(Bytes::copy_from_slice(text.as_bytes()))
}

/// A key as text, and whether that is Base64, since keys on the wire are texts.
pub(crate) fn key_text(key: &[u8]) -> (String, bool) {
    use base64::Engine as _;
    match std::str::from_utf8(key) {
        Ok(text) => (text.to_owned(), false),
        Err(_) => (base64::prelude::BASE64_STANDARD.encode(key), true),
    }
}

/// A batch in the making.
#[derive(Default)]
pub(crate) struct MessageBatch {
    packed: Vec<u8>,
    messages: usize,
}

/// A message as it is added to a batch.
#[derive(Default)]
pub(crate) struct Added<'a> {
    pub(crate) key: Option<(String, bool)>,
    pub(crate) value: Option<&'a [u8]>,
    pub(crate) properties: Vec<KeyValue>,
    /// Milliseconds since the epoch.
    pub(crate) event_time: Option<u64>,
}

impl MessageBatch {
    /// How many messages there are.
    pub(crate) fn messages(&self) -> usize {
        self.messages
    }

    /// How many bytes they have.
    pub(crate) fn bytes(&self) -> usize {
        self.packed.len()
    }

    /// Adds a message. Gives the bytes that it takes.
    pub(crate) fn add(&mut self, message: Added<'_>) -> usize {
        let before = self.packed.len();
        let value = message.value.unwrap_or_default();
        let (partition_key, is_encoded) = message.key.unzip();
        let single = SingleMessageMetadata {
            properties: message.properties,
            partition_key,
            payload_size: i32::try_from(value.len()).unwrap_or(i32::MAX),
            event_time: message.event_time,
            partition_key_b64_encoded: is_encoded.filter(|is_encoded| *is_encoded),
            sequence_id: None,
            null_value: message.value.is_none().then_some(true),
        };
        self.packed.put_u32(len_u32(single.encoded_len()));
        single.encode(&mut self.packed).expect("a vector takes all bytes");
        self.packed.extend_from_slice(value);
        self.messages += 1;
        self.packed.len() - before
    }

    /// The metadata, without names and numbers, and the payload; the batch is empty then.
    pub(crate) fn take(&mut self, compression: Compression) -> (MessageMetadata, Vec<u8>) {
        let (packed, messages) =
            (std::mem::take(&mut self.packed), std::mem::take(&mut self.messages));
        let mut metadata = MessageMetadata {
            num_messages_in_batch: Some(i32::try_from(messages).unwrap_or(i32::MAX)),
            ..MessageMetadata::default()
        };
        if compression != Compression::None {
            metadata.compression = Some(compression.number());
            metadata.uncompressed_size = Some(len_u32(packed.len()));
        }
        (metadata, compression.compress(packed))
    }
}

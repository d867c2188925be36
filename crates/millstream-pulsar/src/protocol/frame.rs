//! Frames: a command, and with some the entry that it is about.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use crc32c::{crc32c, crc32c_append};
use prost::Message as _;
use thiserror::Error;

use super::messages::{BaseCommand, MessageMetadata};

/// What stands before the checksum of an entry.
const MAGIC: u16 = 0x0e01;
/// What stands before what a broker adds to an entry, in front of the other.
const BROKER_MAGIC: u16 = 0x0e02;
/// A frame is at most this much larger than the largest message: what commands and metadata take.
const OVERHEAD: usize = 64 << 10;

/// Bytes that are not what the protocol says.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub(crate) enum WireError {
    #[error("a frame of {bytes} bytes, where at most {max} are allowed")]
    Size { bytes: usize, max: usize },
    #[error("a frame that is shorter than it says")]
    Short,
    #[error("a command that cannot be read: {problem}")]
    Command { problem: String },
    #[error("metadata that cannot be read: {problem}")]
    Metadata { problem: String },
    #[error("the checksum is {found:08x} and should be {wanted:08x}")]
    Checksum { found: u32, wanted: u32 },
    #[error("a message that is {problem}")]
    Payload { problem: String },
}

/// One frame as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) command: BaseCommand,
    /// The entry behind the command, not looked into; empty if there is none.
    pub(crate) entry: Bytes,
}

/// Takes the first frame off `received`; `None` while it is not complete.
///
/// # Errors
/// The bytes are no frame, or one that no broker should send to a client that takes messages of
/// `message_bytes_max`.
pub(crate) fn take(
    received: &mut BytesMut,
    message_bytes_max: usize,
) -> Result<Option<Frame>, WireError> {
    let Some(size) = received.first_chunk::<4>().map(|size| u32::from_be_bytes(*size) as usize)
    else {
        return Ok(None);
    };
    let max = message_bytes_max.saturating_add(OVERHEAD);
    if size > max {
        return Err(WireError::Size { bytes: size, max });
    }
    if received.len() < 4 + size {
        received.reserve(4 + size - received.len());
        return Ok(None);
    }
    received.advance(4);
    let mut frame = received.split_to(size).freeze();
    let command_size = frame.try_get_u32().map_err(|_| WireError::Short)? as usize;
    if frame.len() < command_size {
        return Err(WireError::Short);
    }
    let command = BaseCommand::decode(frame.split_to(command_size));
    let command = command.map_err(|error| WireError::Command { problem: error.to_string() })?;
    Ok(Some(Frame { command, entry: frame }))
}

/// A command without an entry.
pub(crate) fn command(command: &BaseCommand) -> Bytes {
    let size = command.encoded_len();
    let mut frame = BytesMut::with_capacity(8 + size);
    frame.put_u32(len_u32(size + 4));
    frame.put_u32(len_u32(size));
    frame.extend_from_slice(&command.encode_to_vec());
    frame.freeze()
}

/// A command with an entry.
pub(crate) fn command_with_entry(
    command: &BaseCommand,
    metadata: &MessageMetadata,
    payload: &[u8],
) -> Bytes {
    let (command, metadata) = (command.encode_to_vec(), metadata.encode_to_vec());
    let size = 4 + command.len() + 2 + 4 + 4 + metadata.len() + payload.len();
    let mut frame = BytesMut::with_capacity(4 + size);
    frame.put_u32(len_u32(size));
    frame.put_u32(len_u32(command.len()));
    frame.extend_from_slice(&command);
    frame.put_u16(MAGIC);
    let metadata_size = len_u32(metadata.len()).to_be_bytes();
    let of_metadata = crc32c_append(crc32c(&metadata_size), &metadata);
    frame.put_u32(crc32c_append(of_metadata, payload));
    frame.extend_from_slice(&metadata_size);
    frame.extend_from_slice(&metadata);
    frame.extend_from_slice(payload);
    frame.freeze()
}

/// The metadata and the payload of an entry.
///
/// # Errors
/// It is damaged.
pub(crate) fn entry(mut entry: Bytes) -> Result<(MessageMetadata, Bytes), WireError> {
    if magic(&entry) == Some(BROKER_MAGIC) {
        entry.advance(2);
        let size = entry.try_get_u32().map_err(|_| WireError::Short)? as usize;
        if entry.len() < size {
            return Err(WireError::Short);
        }
        entry.advance(size);
    }
    if magic(&entry) == Some(MAGIC) {
        entry.advance(2);
        let wanted = entry.try_get_u32().map_err(|_| WireError::Short)?;
        let found = crc32c(&entry);
        if found != wanted {
            return Err(WireError::Checksum { found, wanted });
        }
    }
    let size = entry.try_get_u32().map_err(|_| WireError::Short)? as usize;
    if entry.len() < size {
        return Err(WireError::Short);
    }
    let metadata = MessageMetadata::decode(entry.split_to(size));
    let metadata = metadata.map_err(|error| WireError::Metadata { problem: error.to_string() })?;
    Ok((metadata, entry))
}

fn magic(entry: &Bytes) -> Option<u16> {
    entry.first_chunk::<2>().map(|magic| u16::from_be_bytes(*magic))
}

/// The length of something that was made here, and so is shorter than a frame may be.
pub(crate) fn len_u32(len: usize) -> u32 {
    u32::try_from(len).expect("messages have at most some megabytes")
}

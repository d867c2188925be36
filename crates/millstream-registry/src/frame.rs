//! How a record says which schema it was written with: Confluent's wire format.
//!
//! ```text
//! 0 | id of the schema, 4 bytes, the most significant first | the value
//! ```
//!
//! Where the schema is Protobuf, the value begins with the place of the message type in its file;
//! that belongs to decoding, not to the frame.
//!
//! Since 2025 Confluent's clients can put a schema's GUID, after a byte 1, into the record's header
//! `__key_schema_id` or `__value_schema_id` instead; the record then has no frame. That is not the
//! default of any client and is not read here.

use millstream_store::error::{Classified, Kind};
use thiserror::Error;

/// The first byte of every frame.
const MAGIC: u8 = 0;
/// The first byte where a GUID follows instead of an id.
const MAGIC_OF_GUID: u8 = 1;
/// Bytes of a frame.
pub const LENGTH: usize = 5;

/// A record does not begin with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NotFramed {
    /// It is too short for one.
    #[error(
        "a record of {length} bytes is too short to begin with the id of its schema, which takes \
         {LENGTH}: it was not written with a schema registry"
    )]
    Short {
        /// The record's length, bytes.
        length: usize,
    },
    /// It begins with another byte.
    #[error(
        "the record begins with byte {byte} instead of 0, which stands before the id of a schema: \
         it was not written with a schema registry"
    )]
    Magic {
        /// Its first byte.
        byte: u8,
    },
    /// It begins as one that has a GUID.
    #[error(
        "the record begins with byte 1, which stands before the GUID of a schema: its producer has \
         to write ids instead (prefix_schema_id_serializer, PrefixSchemaIdSerializer)"
    )]
    Guid,
}

impl Classified for NotFramed {
    fn kind(&self) -> Kind {
        Kind::Data
    }
}

/// The id of a record's schema, and what follows the frame.
///
/// # Errors
/// The record has no frame.
pub fn id(record: &[u8]) -> Result<(u32, &[u8]), NotFramed> {
    let (frame, value) = match record.split_first_chunk::<LENGTH>() {
        Some(split) => split,
        None => return Err(NotFramed::Short { length: record.len() }),
    };
    match *frame {
        [MAGIC, a, b, c, d] => Ok((u32::from_be_bytes([a, b, c, d]), value)),
        [MAGIC_OF_GUID, ..] => Err(NotFramed::Guid),
        [byte, ..] => Err(NotFramed::Magic { byte }),
    }
}

/// The frame of records that are written with the schema `id`.
pub fn of(id: u32) -> [u8; LENGTH] {
    let [a, b, c, d] = id.to_be_bytes();
    [MAGIC, a, b, c, d]
}

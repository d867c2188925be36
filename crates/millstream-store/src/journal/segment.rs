//! The bytes of a journal's files. Numbers are little-endian.
//!
//! ```text
//! segment   header  "MSJ" version:u8 salt:u64 first:u64 crc:u32       crc of all before it
//!           frame*
//! frame     header  position:u64 acknowledged:u64 time_us:i64 count:u32 length:u32 crc:u32
//!           body    records, `length` bytes
//!           crc:u32                                                   of salt and body
//! record    length:u32 has_key:u8 [key: 16 bytes] content: `length` bytes
//! keys      "MSK" version:u8 newest_us:i64 end:u64 count:u64 [key: 16 bytes]* crc:u32
//! ```
//!
//! A frame is what is flushed at once, and the next one is written only after that. So bytes that
//! are no frame are what a crash has torn if nothing comes after them; if a frame does, they were
//! flushed, and have been damaged since. The crc of a frame's header begins with the salt, which is
//! random and in each segment another: content cannot be made to look like a frame.

use bytes::Bytes;
use thiserror::Error;

/// The version that is written.
const VERSION: u8 = 1;
const MAGIC: &[u8; 3] = b"MSJ";
const KEYS_MAGIC: &[u8; 3] = b"MSK";
/// Bytes of a segment's header.
pub(super) const HEADER: usize = 24;
/// Bytes of a frame's header.
const FRAME_HEADER: usize = 36;
const CRC: usize = 4;

/// What tells one record from another, where the sender repeats records.
pub type Key = [u8; 16];

/// A record: its meaning is the source's own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// What the sender calls it.
    pub key: Option<Key>,
    /// What it says.
    pub content: Bytes,
}

impl Record {
    /// Bytes that it takes in a segment.
    pub(super) fn bytes(&self) -> usize {
        CRC + 1 + self.key.map_or(0, |key| key.len()) + self.content.len()
    }
}

/// What is flushed at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    /// The position of its first record.
    pub position: u64,
    /// What is below this position had been acknowledged, and that was confirmed.
    pub acknowledged: u64,
    /// When it was written, microseconds since the epoch.
    pub time_us: i64,
    pub records: Vec<Record>,
}

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// Of a version from the future.
    #[error("it was written by a newer version (format {0}; this one reads up to {VERSION})")]
    Newer(u8),
    /// It does not begin as such a file does.
    #[error("it does not begin with the header of a journal's file")]
    Header,
    /// Its name says another position.
    #[error("it is the file of position {0}, under another name")]
    Name(u64),
    /// What should be a frame is none.
    #[error("the records from position {position} on (byte {byte}) are not what was written")]
    Frame {
        /// The position that should be there.
        position: u64,
        /// Where in the file.
        byte: usize,
    },
    /// A file of keys is not what was written.
    #[error("its checksum is wrong")]
    Checksum,
}

/// The first bytes of the segment that begins at `first`.
pub(super) fn encode_header(salt: u64, first: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER);
    bytes.extend_from_slice(MAGIC);
    bytes.push(VERSION);
    bytes.extend_from_slice(&salt.to_le_bytes());
    bytes.extend_from_slice(&first.to_le_bytes());
    bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
    bytes
}

fn salted(salt: u64, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&salt.to_le_bytes());
    hasher.update(bytes);
    hasher.finalize()
}

/// Appends a frame of `records` to `bytes`.
pub(super) fn encode_frame<'a>(
    bytes: &mut Vec<u8>,
    salt: u64,
    (position, acknowledged, time_us): (u64, u64, i64),
    records: impl Iterator<Item = &'a Record>,
) {
    let header = bytes.len();
    bytes.resize(header + FRAME_HEADER, 0);
    let body = bytes.len();
    let mut count = 0_u32;
    for record in records {
        count += 1;
        bytes.extend_from_slice(&(record.content.len() as u32).to_le_bytes());
        bytes.push(u8::from(record.key.is_some()));
        bytes.extend_from_slice(record.key.as_ref().map_or(&[][..], |key| key));
        bytes.extend_from_slice(&record.content);
    }
    let length = (bytes.len() - body) as u32;
    let crc = salted(salt, &bytes[body..]);
    bytes.extend_from_slice(&crc.to_le_bytes());
    let head = &mut bytes[header..body];
    head[..8].copy_from_slice(&position.to_le_bytes());
    head[8..16].copy_from_slice(&acknowledged.to_le_bytes());
    head[16..24].copy_from_slice(&time_us.to_le_bytes());
    head[24..28].copy_from_slice(&count.to_le_bytes());
    head[28..32].copy_from_slice(&length.to_le_bytes());
    let crc = salted(salt, &head[..32]);
    head[32..].copy_from_slice(&crc.to_le_bytes());
}

/// A segment as it was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub first: u64,
    pub frames: Vec<Frame>,
    /// Bytes behind the last frame that are none, if there are any: the error that they are unless
    /// a crash explains them.
    pub rest: Option<DecodeError>,
}

impl Segment {
    /// The position behind its last record.
    pub fn end(&self) -> u64 {
        self.frames.last().map_or(self.first, |last| last.position + last.records.len() as u64)
    }

    /// Its records below `below`, with their positions.
    pub fn into_records(self, below: u64) -> impl Iterator<Item = (u64, Record)> {
        let numbered = |frame: Frame| (frame.position..).zip(frame.records);
        let is_below = move |(position, _): &(u64, Record)| *position < below;
        self.frames.into_iter().flat_map(numbered).take_while(is_below)
    }
}

/// Reads the segment that is named after position `first`. What a crash may have left at its end
/// is in [`Segment::rest`].
///
/// # Errors
/// The file is damaged, whatever has happened.
pub(super) fn decode(bytes: &Bytes, first: u64) -> Result<Segment, DecodeError> {
    if bytes.len() < HEADER {
        // The header is flushed before anything else is written.
        return Ok(Segment { first, frames: Vec::new(), rest: Some(DecodeError::Header) });
    }
    let salt = decode_header(bytes, first)?;
    let (mut frames, mut at, mut position) = (Vec::new(), HEADER, first);
    while at < bytes.len() {
        let problem = DecodeError::Frame { position, byte: at };
        let Some((frame, end)) = decode_frame(bytes, at, salt, position) else {
            if has_frame_behind(bytes, at, salt) {
                return Err(problem);
            }
            return Ok(Segment { first, frames, rest: Some(problem) });
        };
        position += frame.records.len() as u64;
        frames.push(frame);
        at = end;
    }
    Ok(Segment { first, frames, rest: None })
}

fn decode_header(bytes: &[u8], first: u64) -> Result<u64, DecodeError> {
    if !bytes.starts_with(MAGIC) {
        return Err(DecodeError::Header);
    }
    if bytes[3] > VERSION {
        return Err(DecodeError::Newer(bytes[3]));
    }
    if bytes[3] == 0 || crc32fast::hash(&bytes[..20]) != u32_at(bytes, 20) {
        return Err(DecodeError::Header);
    }
    let named = u64_at(bytes, 12);
    if named == first { Ok(u64_at(bytes, 4)) } else { Err(DecodeError::Name(named)) }
}

/// The bytes of a frame's header at `at`, if it is one.
fn frame_header(bytes: &[u8], at: usize, salt: u64) -> Option<&[u8]> {
    let head = bytes.get(at..at + FRAME_HEADER)?;
    (salted(salt, &head[..32]) == u32_at(head, 32)).then_some(head)
}

/// The frame at `at`, and where it ends.
fn decode_frame(bytes: &Bytes, at: usize, salt: u64, position: u64) -> Option<(Frame, usize)> {
    let head = frame_header(bytes, at, salt)?;
    let (count, length) = (u32_at(head, 24) as usize, u32_at(head, 28) as usize);
    if u64_at(head, 0) != position || count == 0 {
        return None;
    }
    let start = at + FRAME_HEADER;
    let body = bytes.get(start..start.checked_add(length)?)?;
    let crc = bytes.get(start + length..start + length + CRC)?;
    if salted(salt, body) != u32_at(crc, 0) {
        return None;
    }
    let mut records = Vec::new();
    let mut rest = bytes.slice(start..start + length);
    while !rest.is_empty() {
        records.push(take_record(&mut rest)?);
    }
    let (acknowledged, time_us) = (u64_at(head, 8), u64_at(head, 16) as i64);
    let frame = Frame { position, acknowledged, time_us, records };
    (frame.records.len() == count).then_some((frame, start + length + CRC))
}

fn take_record(rest: &mut Bytes) -> Option<Record> {
    let length = u32_at(rest.get(..4)?, 0) as usize;
    let key_length = match rest.get(4)? {
        0 => 0,
        1 => size_of::<Key>(),
        _ => return None,
    };
    let content = 5 + key_length;
    if rest.len() < content.checked_add(length)? {
        return None;
    }
    let record = rest.split_to(content + length);
    let key = (key_length > 0).then(|| record[5..content].try_into().expect("it has the length"));
    Some(Record { key, content: record.slice(content..) })
}

/// Whether a frame begins anywhere behind `at`, or what is at `at` is the beginning of a frame that
/// is followed by more: then what is there was flushed.
fn has_frame_behind(bytes: &[u8], at: usize, salt: u64) -> bool {
    if let Some(head) = frame_header(bytes, at, salt) {
        let end = at + FRAME_HEADER + u32_at(head, 28) as usize + CRC;
        return end < bytes.len();
    }
    (at + 1..bytes.len()).any(|at| frame_header(bytes, at, salt).is_some())
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Keys of segments that are dropped, which may still be sent again.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct KeysFile {
    /// When the newest of their records was written, microseconds since the epoch.
    pub newest_us: i64,
    /// The position behind the last of their records.
    pub end: u64,
    pub keys: Vec<Key>,
}

impl KeysFile {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(28 + self.keys.len() * size_of::<Key>() + CRC);
        bytes.extend_from_slice(KEYS_MAGIC);
        bytes.push(VERSION);
        bytes.extend_from_slice(&self.newest_us.to_le_bytes());
        bytes.extend_from_slice(&self.end.to_le_bytes());
        bytes.extend_from_slice(&(self.keys.len() as u64).to_le_bytes());
        bytes.extend_from_slice(self.keys.as_flattened());
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (content, crc) = bytes.split_last_chunk::<CRC>().ok_or(DecodeError::Header)?;
        if content.len() < 28 || !content.starts_with(KEYS_MAGIC) {
            return Err(DecodeError::Header);
        }
        if content[3] > VERSION {
            return Err(DecodeError::Newer(content[3]));
        }
        let (keys, rest) = content[28..].as_chunks::<16>();
        let is_whole = rest.is_empty() && keys.len() as u64 == u64_at(content, 20);
        if !is_whole || crc32fast::hash(content) != u32::from_le_bytes(*crc) {
            return Err(DecodeError::Checksum);
        }
        let (newest_us, end) = (u64_at(content, 4) as i64, u64_at(content, 12));
        Ok(Self { newest_us, end, keys: keys.to_vec() })
    }
}

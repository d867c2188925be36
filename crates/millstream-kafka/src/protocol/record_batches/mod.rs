//! Record batches as brokers keep them, read where they lie: headers first, which say how far a
//! batch goes, then its records one after the other.
//!
//! Format: Kafka's documentation, "Record Batch" (version 2, since 0.11) and "Control Batches".

use std::borrow::Cow;
use std::io;

use crc32c::crc32c;

use super::compression::Compression;
use super::record_batch::OVERHEAD;

/// Bytes before those that the batch's length counts.
const BEFORE_LENGTH: usize = 12;
/// Where the leader's epoch stands.
const EPOCH_AT: usize = 12;
/// Where the version stands, in older forms too.
const MAGIC_AT: usize = 16;
const MAGIC: u8 = 2;
/// The checksum's place; it covers what follows it.
const CHECKSUM_AT: usize = 17;
const CHECKED_FROM: usize = 21;
/// Bits of the attributes.
const COMPRESSION: i16 = 0x07;
const TIME_OF_APPENDING: i16 = 1 << 3;
const TRANSACTIONAL: i16 = 1 << 4;
const CONTROL: i16 = 1 << 5;
/// The type of a control record that says that a transaction was aborted.
const ABORT: i16 = 0;

/// Why bytes are no record batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// They do not follow the format.
    Form,
    /// Their checksum is another one.
    Checksum,
    /// They are of a form before version 2, which brokers before 4.0 may still keep.
    OldForm,
    /// The records cannot be decompressed.
    Compression,
}

/// A batch: its header, and its records as bytes.
#[derive(Clone, Copy, Debug)]
pub struct RawBatch<'a> {
    /// The first offset, which may be one of a record that was compacted away.
    pub base_offset: i64,
    /// The last offset, in the same sense.
    pub last_offset: i64,
    /// The epoch of the leader that took it; below 0 if it has none. The checksum does not cover
    /// it, as each broker sets it.
    pub epoch: i32,
    /// Who has written it; -1 for nobody in particular.
    pub producer: i64,
    attributes: i16,
    base_timestamp: i64,
    max_timestamp: i64,
    count: i32,
    /// All of it.
    whole: &'a [u8],
}

/// The batches that lie in `bytes`, one after the other; one that is cut off is left out.
#[derive(Clone, Debug)]
pub struct RawBatches<'a> {
    rest: &'a [u8],
}

impl<'a> RawBatches<'a> {
    /// Of what a broker has sent of one partition.
    pub fn of(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }
}

impl<'a> Iterator for RawBatches<'a> {
    type Item = Result<RawBatch<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let length = i32::from_be_bytes(*self.rest.get(8..)?.first_chunk()?);
        let whole = usize::try_from(length).ok().map(|length| length + BEFORE_LENGTH);
        let magic = *self.rest.get(MAGIC_AT)?;
        let wrong = match (whole, magic) {
            (_, 0 | 1) => Some(Malformed::OldForm),
            (Some(whole), MAGIC) if whole >= OVERHEAD => None,
            _ => Some(Malformed::Form),
        };
        if let Some(wrong) = wrong {
            self.rest = &[];
            return Some(Err(wrong));
        }
        let (whole, rest) = self.rest.split_at_checked(whole?)?;
        self.rest = rest;
        Some(RawBatch::read(whole))
    }
}

impl<'a> RawBatch<'a> {
    fn read(whole: &'a [u8]) -> Result<Self, Malformed> {
        let i16_at =
            |at: usize| i16::from_be_bytes(*whole[at..].first_chunk().expect("it is there"));
        let i32_at =
            |at: usize| i32::from_be_bytes(*whole[at..].first_chunk().expect("it is there"));
        let i64_at =
            |at: usize| i64::from_be_bytes(*whole[at..].first_chunk().expect("it is there"));
        let (base_offset, delta, count) = (i64_at(0), i32_at(23), i32_at(57));
        let last_offset = base_offset.checked_add(i64::from(delta)).ok_or(Malformed::Form)?;
        if base_offset < 0 || delta < 0 || count < 0 || last_offset == i64::MAX {
            return Err(Malformed::Form);
        }
        Ok(Self {
            base_offset,
            last_offset,
            epoch: i32_at(EPOCH_AT),
            producer: i64_at(43),
            attributes: i16_at(21),
            base_timestamp: i64_at(27),
            max_timestamp: i64_at(35),
            count,
            whole,
        })
    }

    /// How many records it has.
    pub fn count(&self) -> usize {
        usize::try_from(self.count).unwrap_or(0)
    }

    /// Checks its checksum.
    pub fn check(&self) -> Result<(), Malformed> {
        let given = u32::from_be_bytes(*self.whole[CHECKSUM_AT..].first_chunk().expect("there"));
        if crc32c(&self.whole[CHECKED_FROM..]) == given { Ok(()) } else { Err(Malformed::Checksum) }
    }

    /// True if its records are compressed.
    pub fn is_compressed(&self) -> bool {
        self.attributes & COMPRESSION != 0
    }

    /// True if it was written in a transaction.
    pub fn is_transactional(&self) -> bool {
        self.attributes & TRANSACTIONAL != 0
    }

    /// True if it says how a transaction has ended, and has no records of anybody.
    pub fn is_control(&self) -> bool {
        self.attributes & CONTROL != 0
    }

    /// True if the broker has set the times of the records.
    pub fn has_times_of_appending(&self) -> bool {
        self.attributes & TIME_OF_APPENDING != 0
    }

    /// Of a control batch, whether it says that a transaction was aborted. One that compaction has
    /// emptied says nothing.
    pub fn is_abort(&self) -> Result<bool, Malformed> {
        let mut records = Records::of(self, &self.whole[OVERHEAD..]);
        let Some(record) = records.next().transpose()? else { return Ok(false) };
        // A version, then the type.
        let kind = record.key.and_then(|key| key.get(2..)?.first_chunk()).ok_or(Malformed::Form)?;
        Ok(i16::from_be_bytes(*kind) == ABORT)
    }

    /// The records as bytes, decompressed.
    pub fn records(&self) -> Result<Cow<'a, [u8]>, Malformed> {
        let records = &self.whole[OVERHEAD..];
        let way = Compression::of_attribute(self.attributes & COMPRESSION);
        match way.ok_or(Malformed::Compression)? {
            Compression::None => Ok(Cow::Borrowed(records)),
            way => way
                .decompress(records)
                .map(Cow::Owned)
                .map_err(|_: io::Error| Malformed::Compression),
        }
    }
}

/// A record, where it lies.
#[derive(Clone, Copy, Debug)]
pub struct RawRecord<'a> {
    /// Its offset.
    pub offset: i64,
    /// Milliseconds since the epoch; -1 for none.
    pub timestamp_ms: i64,
    /// Its key.
    pub key: Option<&'a [u8]>,
    /// Its value.
    pub value: Option<&'a [u8]>,
    headers: &'a [u8],
    headers_count: usize,
}

/// The records of a batch.
pub struct Records<'a> {
    rest: &'a [u8],
    left: usize,
    base_offset: i64,
    last_offset: i64,
    base_timestamp: i64,
    /// The time of all records, where the broker has set it.
    appended: Option<i64>,
}

impl<'a> Records<'a> {
    /// Those of `batch`, whose records are `bytes`.
    pub fn of(batch: &RawBatch<'_>, bytes: &'a [u8]) -> Self {
        Self {
            rest: bytes,
            left: batch.count(),
            base_offset: batch.base_offset,
            last_offset: batch.last_offset,
            base_timestamp: batch.base_timestamp,
            appended: batch.has_times_of_appending().then_some(batch.max_timestamp),
        }
    }

    fn read(&mut self) -> Option<RawRecord<'a>> {
        let length = usize::try_from(signed(&mut self.rest)?).ok()?;
        let (mut record, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        // Attributes, of which there are none.
        take(&mut record, 1)?;
        let (time, offset) = (signed(&mut record)?, signed(&mut record)?);
        let offset = self.base_offset.checked_add(offset)?;
        if !(self.base_offset..=self.last_offset).contains(&offset) {
            return None;
        }
        let timestamp_ms = match self.appended {
            Some(time) => time,
            None => self.base_timestamp.checked_add(time)?,
        };
        let (key, value) = (bytes(&mut record)?, bytes(&mut record)?);
        let headers_count = usize::try_from(signed(&mut record)?).ok()?;
        let headers = record;
        for _ in 0..headers_count {
            header(&mut record)?;
        }
        Some(RawRecord { offset, timestamp_ms, key, value, headers, headers_count })
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<RawRecord<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let read = self.read();
        if read.is_none() {
            self.left = 0;
        }
        Some(read.ok_or(Malformed::Form))
    }
}

impl<'a> RawRecord<'a> {
    /// Its headers, in order: name and value.
    pub fn headers(&self) -> impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> + use<'a> {
        let mut rest = self.headers;
        (0..self.headers_count).map_while(move |_| header(&mut rest))
    }
}

fn header<'a>(rest: &mut &'a [u8]) -> Option<(&'a [u8], Option<&'a [u8]>)> {
    Some((bytes(rest)??, bytes(rest)?))
}

/// Bytes with their length in front, which is negative for null.
fn bytes<'a>(rest: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    match signed(rest)? {
        ..0 => Some(None),
        length => take(rest, usize::try_from(length).ok()?).map(Some),
    }
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(count)?;
    *rest = left;
    Some(taken)
}

/// A signed variable-length integer, zigzag-encoded.
fn signed(rest: &mut &[u8]) -> Option<i64> {
    // Nearly all lengths and differences fit into a byte or two.
    let (&first, left) = rest.split_first()?;
    if first < 0x80 {
        *rest = left;
        return Some(i64::from(first >> 1) ^ -i64::from(first & 1));
    }
    let mut value = u64::from(first & 0x7f);
    for (at, &byte) in left.iter().take(9).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * (at + 1));
        if byte < 0x80 {
            *rest = &left[at + 1..];
            return Some((value >> 1).cast_signed() ^ -(value & 1).cast_signed());
        }
    }
    None
}

#[cfg(test)]
mod tests;

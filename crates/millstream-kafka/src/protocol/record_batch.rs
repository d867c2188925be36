//! A record batch, version 2: what one partition gets of one transaction, or a part of it.

use crc32c::crc32c;

use super::ProducerIdentity;
use super::compression::Compression;
use super::write::{Writer, signed_len};

/// The bytes of a batch beside its records.
pub const OVERHEAD: usize = 61;
/// Bytes before those that the batch's length counts: the base offset and the length itself.
const AFTER_LENGTH: usize = 12;
/// The place of the checksum, which covers all that follows it.
const CHECKSUM: usize = 17;
const MAGIC: i8 = 2;
/// The attribute of a batch that belongs to a transaction. The lower bits say how it is compressed,
/// and that its timestamps are the producer's.
const TRANSACTIONAL: i16 = 1 << 4;

/// A header's name and value.
pub type Header<'a> = (&'a str, Option<&'a [u8]>);

/// A record to be written.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Its key.
    pub key: Option<&'a [u8]>,
    /// Its value.
    pub value: Option<&'a [u8]>,
    /// Its headers, in order.
    pub headers: &'a [Header<'a>],
}

/// Records of one partition, in order.
#[derive(Debug, Default)]
pub struct RecordBatch {
    records: Writer,
    count: i32,
}

impl RecordBatch {
    /// How many bytes the whole will have.
    pub fn bytes(&self) -> usize {
        OVERHEAD + self.records.len()
    }

    /// How many records there are.
    pub fn count(&self) -> i32 {
        self.count
    }

    /// Adds a record.
    pub fn push(&mut self, record: &Record<'_>) {
        let body = record_len(record, self.count);
        let records = &mut self.records;
        records.signed(body as i64);
        // Attributes, of which there are none, and the time since the batch's, which all share.
        records.i8(0);
        records.signed(0);
        records.signed(i64::from(self.count));
        put(records, record.key);
        put(records, record.value);
        records.signed(record.headers.len() as i64);
        for (name, value) in record.headers {
            put(records, Some(name.as_bytes()));
            put(records, *value);
        }
        self.count += 1;
    }

    /// The batch as `writer` sends it, in a transaction or in none; `sequence` counts the records
    /// that the partition got in this epoch before. Records that compression would not make
    /// smaller stay as they are.
    pub fn encode(
        &self,
        writer: ProducerIdentity,
        sequence: i32,
        is_transactional: bool,
        timestamp_ms: i64,
        compression: Compression,
    ) -> Vec<u8> {
        let plain = self.records.as_slice();
        let compressed = match compression {
            Compression::None => None,
            way => way.compress(plain).ok().filter(|compressed| compressed.len() < plain.len()),
        };
        let (records, compression) = match &compressed {
            Some(compressed) => (compressed.as_slice(), compression),
            None => (plain, Compression::None),
        };
        let mut bytes = Writer::default();
        // The base offset is the broker's to give; the length counts what follows it.
        bytes.i64(0);
        bytes.i32((OVERHEAD + records.len() - AFTER_LENGTH) as i32);
        // The leader's epoch, which the broker sets. It stands before the checksum, so that the
        // broker can change it.
        bytes.i32(-1);
        bytes.i8(MAGIC);
        // The checksum, filled in at the end.
        bytes.i32(0);
        let transactional = if is_transactional { TRANSACTIONAL } else { 0 };
        bytes.i16(transactional | compression.attribute());
        // The offset of the last record relative to the first, then first and last timestamp.
        bytes.i32(self.count - 1);
        bytes.i64(timestamp_ms);
        bytes.i64(timestamp_ms);
        // The brokers know a repeated batch by producer, epoch and sequence, and keep one copy.
        bytes.i64(writer.id);
        bytes.i16(writer.epoch);
        bytes.i32(sequence);
        bytes.i32(self.count);
        bytes.raw(records);
        let sum = crc32c(&bytes.as_slice()[CHECKSUM + 4..]);
        bytes.replace_i32(CHECKSUM, sum as i32);
        bytes.into_bytes()
    }
}

/// How many bytes a record adds to a batch, at most.
pub fn bytes_of(record: &Record<'_>) -> usize {
    let body = record_len(record, i32::MAX);
    body + signed_len(body as i64)
}

fn record_len(record: &Record<'_>, offset: i32) -> usize {
    let headers =
        record.headers.iter().map(|(name, value)| len_of(Some(name.as_bytes())) + len_of(*value));
    let (key, value) = (len_of(record.key), len_of(record.value));
    let count = signed_len(record.headers.len() as i64);
    2 + signed_len(i64::from(offset)) + key + value + count + headers.sum::<usize>()
}

fn len_of(bytes: Option<&[u8]>) -> usize {
    bytes.map_or(1, |bytes| signed_len(bytes.len() as i64) + bytes.len())
}

fn put(writer: &mut Writer, bytes: Option<&[u8]>) {
    match bytes {
        Some(bytes) => {
            writer.signed(bytes.len() as i64);
            writer.raw(bytes);
        }
        None => writer.signed(-1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITER: ProducerIdentity = ProducerIdentity { id: 7, epoch: 3 };

    #[test]
    fn bytes_are_as_the_format_says() {
        let mut batch = RecordBatch::default();
        let headers = [("h", Some(&b"x"[..])), ("n", None)];
        batch.push(&Record { key: Some(b"k"), value: Some(b"vv"), headers: &headers });
        batch.push(&Record { key: None, value: None, headers: &[] });
        let bytes = batch.encode(WRITER, 5, true, 1_000, Compression::None);
        assert_eq!(bytes.len(), batch.bytes());
        let (head, records) = bytes.split_at(OVERHEAD);
        assert_eq!(head[8..12], ((bytes.len() - 12) as i32).to_be_bytes());
        assert_eq!((head[16], head[22], head[26]), (2, 0x10, 1));
        assert_eq!(head[17..21], crc32c(&bytes[21..]).to_be_bytes());
        assert_eq!((head[50], head[52], head[56], head[60]), (7, 3, 5, 2));
        let first = [32, 0, 0, 0, 2, b'k', 4, b'v', b'v', 4, 2, b'h', 2, b'x', 2, b'n', 1];
        assert_eq!(records, [&first[..], &[12, 0, 0, 2, 1, 1, 0]].concat());
    }

    #[test]
    fn records_are_compressed_behind_the_header_where_that_helps() {
        let value = [b'v'; 9_000];
        let mut batch = RecordBatch::default();
        batch.push(&Record { key: None, value: Some(&value), headers: &[] });
        let plain = batch.encode(WRITER, 0, true, 1_000, Compression::None);
        let ways = [Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];
        for (way, bits) in ways.into_iter().zip(1..) {
            let bytes = batch.encode(WRITER, 0, true, 1_000, way);
            assert_eq!(bytes[22], 0x10 | bits);
            assert_eq!(bytes[8..12], ((bytes.len() - 12) as i32).to_be_bytes());
            assert_eq!(bytes[17..21], crc32c(&bytes[21..]).to_be_bytes());
            assert_eq!(bytes[23..OVERHEAD], plain[23..OVERHEAD]);
            assert_eq!(bytes[OVERHEAD..], way.compress(&plain[OVERHEAD..]).unwrap());
        }
        let mut small = RecordBatch::default();
        small.push(&Record { key: None, value: Some(b"v"), headers: &[] });
        let plain = small.encode(WRITER, 0, true, 1_000, Compression::None);
        assert_eq!(small.encode(WRITER, 0, true, 1_000, Compression::Gzip), plain);
    }

    #[test]
    fn a_record_is_never_larger_than_said() {
        for size in [0, 1, 62, 63, 64, 200, 9_000] {
            let value = vec![b'v'; size];
            let record = Record { key: Some(b"key"), value: Some(&value), headers: &[] };
            let mut batch = RecordBatch::default();
            batch.push(&record);
            let said = OVERHEAD + bytes_of(&record);
            assert!(batch.bytes() <= said && said <= batch.bytes() + 8, "{size}");
        }
    }
}

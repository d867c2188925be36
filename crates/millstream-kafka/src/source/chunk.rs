//! Records of one partition as columns, undecoded.
//!
//! The reader thread appends messages to a [`ChunkBuilder`]; a finished [`Chunk`] is immutable and
//! is cut in two without copying.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray as _, BinaryArray, Int32Array, Int64Array, ListArray, StringArray,
    StructArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Field, FieldRef, Fields};

/// Rows of one partition, in offset order. All columns have the same length.
#[derive(Clone, Debug)]
pub struct Chunk {
    /// Record keys.
    pub key: BinaryArray,
    /// Record values.
    pub value: BinaryArray,
    /// Offsets, ascending; there may be gaps.
    pub offset: Int64Array,
    /// Milliseconds since the epoch.
    pub timestamp_ms: Int64Array,
    /// Who set the timestamp, as Spark numbers it.
    pub timestamp_type: Int32Array,
    /// Record headers, where the table asks for them.
    pub headers: Option<ListArray>,
    /// When the chunk was received, microseconds since the epoch.
    pub arrival_us: i64,
}

/// What one row costs beyond its key and value: offset, timestamp, its type and two offsets.
const ROW_OVERHEAD_BYTES: usize = 28;
/// An estimate of the bytes of one header beside its name and value.
const HEADER_BYTES: usize = 32;

impl Chunk {
    /// How many rows it has.
    pub fn rows(&self) -> usize {
        self.offset.len()
    }

    /// Memory of its rows, about, which counts toward the read-ahead limit.
    pub fn bytes(&self) -> usize {
        let headers = self.headers.as_ref().map_or(0, |headers| {
            let ends = headers.value_offsets();
            let (first, last) = (ends[0] as usize, ends[ends.len() - 1] as usize);
            let columns = headers.values().as_struct();
            let name = columns.column(0).as_string::<i32>().value_offsets();
            let value = columns.column(1).as_binary::<i32>().value_offsets();
            let bytes = |offsets: &[i32]| (offsets[last] - offsets[first]) as usize;
            (last - first) * HEADER_BYTES + bytes(name) + bytes(value)
        });
        data_bytes(&self.key) + data_bytes(&self.value) + headers + self.rows() * ROW_OVERHEAD_BYTES
    }

    /// The offset after the last row.
    pub fn end_offset(&self) -> i64 {
        self.offset.value(self.rows() - 1) + 1
    }

    /// How many rows have an offset below `end`.
    pub fn rows_before(&self, end: i64) -> usize {
        self.offset.values().partition_point(|offset| *offset < end)
    }

    /// `rows` rows from row `from` on, without copying.
    pub fn slice(&self, from: usize, rows: usize) -> Self {
        Self {
            key: self.key.slice(from, rows),
            value: self.value.slice(from, rows),
            offset: self.offset.slice(from, rows),
            timestamp_ms: self.timestamp_ms.slice(from, rows),
            timestamp_type: self.timestamp_type.slice(from, rows),
            headers: self.headers.as_ref().map(|headers| headers.slice(from, rows)),
            arrival_us: self.arrival_us,
        }
    }
}

fn data_bytes(column: &BinaryArray) -> usize {
    let offsets = column.value_offsets();
    (offsets[offsets.len() - 1] - offsets[0]) as usize
}

/// Spark's type of the `headers` column.
pub fn headers_type() -> DataType {
    DataType::List(header_item())
}

fn header_item() -> FieldRef {
    Arc::new(Field::new("element", DataType::Struct(header_fields()), true))
}

fn header_fields() -> Fields {
    Fields::from(vec![
        Field::new("key", DataType::Utf8, true),
        Field::new("value", DataType::Binary, true),
    ])
}

/// Collects rows for a [`Chunk`]. It is reused, and reserves for the next chunk what the last one
/// needed.
#[derive(Default)]
pub struct ChunkBuilder {
    key: BytesBuilder,
    value: BytesBuilder,
    offset: Vec<i64>,
    timestamp_ms: Vec<i64>,
    timestamp_type: Vec<i32>,
    headers: Option<HeadersBuilder>,
}

impl ChunkBuilder {
    /// A builder; `with_headers` says whether [`end_headers`](Self::end_headers) will be called.
    pub fn new(with_headers: bool) -> Self {
        Self { headers: with_headers.then(HeadersBuilder::default), ..Self::default() }
    }

    /// True without rows.
    pub fn is_empty(&self) -> bool {
        self.offset.is_empty()
    }

    /// Rows so far.
    pub fn rows(&self) -> usize {
        self.offset.len()
    }

    /// Forgets all rows from `rows` on.
    pub fn truncate(&mut self, rows: usize) {
        if rows >= self.rows() {
            return;
        }
        self.key.truncate(rows);
        self.value.truncate(rows);
        self.offset.truncate(rows);
        self.timestamp_ms.truncate(rows);
        self.timestamp_type.truncate(rows);
        if let Some(headers) = &mut self.headers {
            headers.ends.truncate(rows);
            let kept = headers.ends.last().copied().unwrap_or(0);
            headers.name.truncate(kept);
            headers.value.truncate(kept);
        }
    }

    /// Bytes of keys, values and headers so far.
    pub fn bytes(&self) -> usize {
        let headers = self.headers.as_ref().map_or(0, |headers| {
            headers.name.bytes.len() + headers.value.bytes.len() + headers.name.len() * HEADER_BYTES
        });
        self.key.bytes.len() + self.value.bytes.len() + headers
    }

    /// Appends one record.
    pub fn push(
        &mut self,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        offset: i64,
        timestamp_ms: i64,
        timestamp_type: i32,
    ) {
        self.key.push(key);
        self.value.push(value);
        self.offset.push(offset);
        self.timestamp_ms.push(timestamp_ms);
        self.timestamp_type.push(timestamp_type);
    }

    /// Appends a header of the record pushed last.
    pub fn push_header(&mut self, name: &str, value: Option<&[u8]>) {
        if let Some(headers) = &mut self.headers {
            headers.name.push(Some(name.as_bytes()));
            headers.value.push(value);
        }
    }

    /// Ends the headers of the record pushed last.
    pub fn end_headers(&mut self) {
        if let Some(headers) = &mut self.headers {
            headers.ends.push(headers.name.len());
        }
    }

    /// The rows so far as a chunk that was received at `arrival_us`; the builder is empty again.
    pub fn finish(&mut self, arrival_us: i64) -> Chunk {
        let rows = self.offset.len();
        Chunk {
            key: self.key.finish(),
            value: self.value.finish(),
            offset: take_reserving(&mut self.offset).into(),
            timestamp_ms: take_reserving(&mut self.timestamp_ms).into(),
            timestamp_type: take_reserving(&mut self.timestamp_type).into(),
            headers: self.headers.as_mut().map(|headers| headers.finish(rows)),
            arrival_us,
        }
    }
}

/// Takes a full vector and leaves one with room for as much again.
fn take_reserving<T>(full: &mut Vec<T>) -> Vec<T> {
    let next = Vec::with_capacity(full.len());
    std::mem::replace(full, next)
}

#[derive(Default)]
struct BytesBuilder {
    bytes: Vec<u8>,
    /// Where each value ends. Arrow's 32 bits are enough: the reader finishes a chunk long before.
    ends: Vec<i32>,
    /// Filled from the first null on: columns without nulls, as values are nearly always, cost
    /// nothing here.
    valid: Vec<bool>,
    nulls: usize,
}

impl BytesBuilder {
    fn len(&self) -> usize {
        self.ends.len()
    }

    fn push(&mut self, value: Option<&[u8]>) {
        if let Some(value) = value {
            self.bytes.extend_from_slice(value);
        }
        if value.is_none() && self.nulls == 0 {
            self.valid.resize(self.ends.len(), true);
        }
        let end = i32::try_from(self.bytes.len()).expect("chunks are finished before 2 GiB");
        self.ends.push(end);
        if value.is_none() || self.nulls > 0 {
            self.nulls += usize::from(value.is_none());
            self.valid.push(value.is_some());
        }
    }

    fn truncate(&mut self, values: usize) {
        self.ends.truncate(values);
        self.bytes.truncate(self.ends.last().map_or(0, |end| *end as usize));
        // Without a null there is no mark for any value.
        self.valid.truncate(values);
        self.nulls = self.valid.iter().filter(|valid| !**valid).count();
        if self.nulls == 0 {
            self.valid.clear();
        }
    }

    fn finish_parts(&mut self) -> (OffsetBuffer<i32>, Vec<u8>, Option<NullBuffer>) {
        let mut offsets = Vec::with_capacity(self.ends.len() + 1);
        offsets.push(0);
        offsets.append(&mut self.ends);
        let nulls = (self.nulls > 0).then(|| NullBuffer::from(std::mem::take(&mut self.valid)));
        self.nulls = 0;
        let bytes = take_reserving(&mut self.bytes);
        (OffsetBuffer::new(ScalarBuffer::from(offsets)), bytes, nulls)
    }

    fn finish(&mut self) -> BinaryArray {
        let (offsets, bytes, nulls) = self.finish_parts();
        BinaryArray::new(offsets, bytes.into(), nulls)
    }

    fn finish_text(&mut self) -> StringArray {
        let (offsets, bytes, nulls) = self.finish_parts();
        StringArray::new(offsets, bytes.into(), nulls)
    }
}

#[derive(Default)]
struct HeadersBuilder {
    name: BytesBuilder,
    value: BytesBuilder,
    ends: Vec<usize>,
}

impl HeadersBuilder {
    fn finish(&mut self, rows: usize) -> ListArray {
        assert_eq!(self.ends.len(), rows, "every record's headers are ended");
        let mut last = 0;
        let lengths: Vec<usize> =
            self.ends.drain(..).map(|end| end - std::mem::replace(&mut last, end)).collect();
        // Spark has null, not an empty array, where a record has no headers.
        let nulls = NullBuffer::from_iter(lengths.iter().map(|length| *length > 0));
        let columns: Vec<ArrayRef> =
            vec![Arc::new(self.name.finish_text()), Arc::new(self.value.finish())];
        let items = StructArray::new(header_fields(), columns, None);
        let offsets = OffsetBuffer::from_lengths(lengths);
        ListArray::new(header_item(), offsets, Arc::new(items), Some(nulls))
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Array as _;

    use super::*;

    fn chunk(offsets: &[i64]) -> Chunk {
        let mut builder = ChunkBuilder::new(true);
        for offset in offsets {
            let key = offset.to_string();
            let key = (offset % 2 == 0).then_some(key.as_bytes());
            builder.push(key, Some(format!("v{offset}").as_bytes()), *offset, offset * 10, 0);
            if offset % 3 == 0 {
                builder.push_header("h", None);
            }
            builder.end_headers();
        }
        builder.finish(7)
    }

    #[test]
    fn columns_hold_what_was_pushed() {
        let chunk = chunk(&[3, 4, 5, 6]);
        assert_eq!(chunk.key.iter().collect::<Vec<_>>(), [None, Some(&b"4"[..]), None, Some(b"6")]);
        assert_eq!(chunk.value.value(2), b"v5");
        assert_eq!(chunk.timestamp_ms.values(), &[30, 40, 50, 60]);
        let headers = chunk.headers.as_ref().unwrap();
        assert!(headers.is_valid(0) && headers.is_null(1) && headers.is_valid(3));
        assert_eq!(headers.value_length(3), 1);
        assert_eq!((chunk.end_offset(), chunk.rows()), (7, 4));
    }

    #[test]
    fn a_builder_is_empty_after_finish() {
        let mut builder = ChunkBuilder::new(false);
        builder.push(None, None, 0, 0, 0);
        builder.push(Some(b"k"), Some(b"v"), 1, 0, 0);
        assert_eq!(builder.finish(0).value.null_count(), 1);
        assert!(builder.is_empty());
        builder.push(None, Some(b"w"), 2, 0, 0);
        let next = builder.finish(0);
        assert_eq!((next.rows(), next.value.null_count()), (1, 0));
        assert_eq!(next.value.value(0), b"w");
    }

    #[test]
    fn rows_that_are_forgotten_leave_no_trace() {
        let mut builder = ChunkBuilder::new(true);
        for offset in 0..6_i64 {
            let (key, value) = ((offset > 3).then_some(&b"k"[..]), [b'v'; 3]);
            builder.push(
                (offset < 3).then_some(b"key").or(key.map(|_| b"two")).map(|it| &it[..]),
                Some(&value),
                offset,
                0,
                0,
            );
            (0..offset).for_each(|_| builder.push_header("h", Some(b"x")));
            builder.end_headers();
        }
        builder.truncate(3);
        builder.push(None, None, 9, 0, 0);
        builder.end_headers();
        let chunk = builder.finish(0);
        assert_eq!(chunk.offset.values(), &[0, 1, 2, 9]);
        assert_eq!((chunk.key.null_count(), chunk.value.null_count()), (1, 1));
        assert_eq!((chunk.key.value(2), chunk.value.value(2)), (&b"key"[..], &b"vvv"[..]));
        let headers = chunk.headers.unwrap();
        assert_eq!((headers.value_length(2), headers.is_null(3)), (2, true));
    }

    #[test]
    fn rows_before_counts_offsets_not_positions() {
        let chunk = chunk(&[2, 5, 9]);
        for (end, rows) in [(0, 0), (2, 0), (3, 1), (5, 1), (6, 2), (9, 2), (10, 3), (99, 3)] {
            assert_eq!(chunk.rows_before(end), rows, "end {end}");
        }
    }

    #[test]
    fn a_slice_counts_its_own_bytes() {
        let chunk = chunk(&[2, 5, 9]);
        let slice = chunk.slice(1, 1);
        assert_eq!((slice.rows(), slice.offset.value(0), slice.end_offset()), (1, 5, 6));
        assert_eq!(slice.value.value(0), b"v5");
        assert!(slice.bytes() < chunk.bytes() / 2);
    }
}

//! One partition's part of a micro-batch.

use std::sync::Arc;

use arrow::array::{Array, AsArray, BinaryArray, RecordBatch};
use arrow::compute::concat;
use arrow::datatypes::{Int32Type, Int64Type};
use millstream_engine::api::dead_letter::Letter;
use millstream_engine::api::source::{
    Failure, RecordBatches, Records, SourcePartition, Split, Traced,
};

use super::chunk::Chunk;
use super::rows::Rows;
use crate::error::RowsError;
use crate::offsets::PartitionId;

/// Rows of one record batch: few enough for the processor's cache, enough to amortize each
/// operator's start.
const BATCH_ROWS: usize = 8_192;
/// Bytes of chunks that are joined: far less than Arrow's offsets and decoders take.
const BATCH_BYTES: usize = 64 << 20;

/// Chunks of one partition, in order, not decoded yet.
pub struct KafkaSplit {
    /// The partition.
    pub id: PartitionId,
    /// Its chunks.
    pub chunks: Vec<Chunk>,
    /// How rows are made of them.
    pub rows: Arc<Rows>,
}

impl Split for KafkaSplit {
    fn rows(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.rows() as u64).sum()
    }

    fn partition(&self) -> Option<SourcePartition> {
        Some(self.id.source_partition())
    }

    fn read(self: Box<Self>, projection: &[usize]) -> RecordBatches {
        let mut reader = match self.rows.reader(projection) {
            Ok(reader) => reader,
            Err(failure) => return Box::new(std::iter::once(Err(failure))),
        };
        let id = self.id;
        Box::new(evenly(self.chunks).map(move |chunk| reader.read(&id, &chunk)))
    }

    fn read_with_letters(
        self: Box<Self>,
        projection: &[usize],
        letters: &mut Vec<Letter>,
    ) -> Result<Vec<RecordBatch>, Failure> {
        let mut reader = self.rows.reader(projection)?;
        let chunks = evenly(self.chunks);
        chunks.map(|chunk| reader.read_with_letters(&self.id, &chunk, letters)).collect()
    }

    fn records(&self) -> Vec<Arc<dyn Records>> {
        let (chunks, rows) = (self.chunks.clone(), Arc::clone(&self.rows));
        vec![Arc::new(PartitionRecords { id: self.id.clone(), chunks, rows })]
    }
}

/// The records of a split, kept for a second reading. Their numbers are their offsets.
struct PartitionRecords {
    id: PartitionId,
    chunks: Vec<Chunk>,
    rows: Arc<Rows>,
}

impl Records for PartitionRecords {
    fn partition(&self) -> Option<SourcePartition> {
        Some(self.id.source_partition())
    }

    fn read(&self, projection: &[usize], apart: bool) -> Result<Vec<Traced>, Failure> {
        let malformed = self.rows.malformed();
        let mut reader = self.rows.reader(projection)?;
        let mut read = |chunk: &Chunk| {
            if apart {
                reader.read_with_letters(&self.id, chunk, &mut Vec::new())
            } else {
                reader.read(&self.id, chunk)
            }
        };
        let mut traced = Vec::new();
        for chunk in evenly(self.chunks.clone()) {
            let rows = read(&chunk)?;
            if rows.num_rows() == chunk.rows() {
                traced.push(Traced { rows, numbers: offsets(&chunk) });
                continue;
            }
            // Some were left out, and only decoding one by one shows which.
            for record in 0..chunk.rows() {
                let record = chunk.slice(record, 1);
                let rows = read(&record)?;
                if rows.num_rows() > 0 {
                    traced.push(Traced { rows, numbers: offsets(&record) });
                }
            }
        }
        self.rows.set_malformed(malformed);
        Ok(traced)
    }

    fn letter(&self, number: u64) -> Result<Letter, Failure> {
        let offset = number.cast_signed();
        let found = self.chunks.iter().find_map(|chunk| {
            let row = chunk.offset.values().binary_search(&offset).ok()?;
            Some(chunk.letter(&self.id, row, String::new()))
        });
        found.ok_or_else(|| RowsError::NoSuchRecord { id: self.id.clone(), offset }.into())
    }
}

fn offsets(chunk: &Chunk) -> Vec<u64> {
    chunk.offset.values().iter().map(|offset| offset.cast_unsigned()).collect()
}

/// Cuts large chunks and joins small ones, in order, so that each has about [`BATCH_ROWS`] rows.
fn evenly(chunks: Vec<Chunk>) -> impl Iterator<Item = Chunk> + Send {
    let mut pieces = chunks.into_iter().flat_map(pieces).peekable();
    std::iter::from_fn(move || {
        let first = pieces.next()?;
        let (mut rows, mut bytes) = (first.rows(), first.bytes());
        let mut joined = vec![first];
        let fits = |rows: usize, bytes: usize| rows <= BATCH_ROWS && bytes <= BATCH_BYTES;
        while let Some(next) = pieces.next_if(|next| fits(rows + next.rows(), bytes + next.bytes()))
        {
            rows += next.rows();
            bytes += next.bytes();
            joined.push(next);
        }
        Some(join(joined))
    })
}

fn pieces(chunk: Chunk) -> impl Iterator<Item = Chunk> {
    let rows = chunk.rows();
    (0..rows).step_by(BATCH_ROWS).map(move |from| chunk.slice(from, BATCH_ROWS.min(rows - from)))
}

fn join(mut chunks: Vec<Chunk>) -> Chunk {
    if chunks.len() == 1 {
        return chunks.pop().expect("one chunk");
    }
    let joined = |column: fn(&Chunk) -> &dyn Array| {
        let parts: Vec<&dyn Array> = chunks.iter().map(column).collect();
        concat(&parts).expect("chunks of one source have the same columns")
    };
    let binary = |column: fn(&Chunk) -> &dyn Array| -> BinaryArray {
        joined(column).as_binary::<i32>().clone()
    };
    let headers = chunks[0].headers.is_some().then(|| {
        joined(|chunk| chunk.headers.as_ref().expect("all chunks have headers, or none"))
            .as_list::<i32>()
            .clone()
    });
    Chunk {
        key: binary(|chunk| &chunk.key),
        value: binary(|chunk| &chunk.value),
        offset: joined(|chunk| &chunk.offset).as_primitive::<Int64Type>().clone(),
        timestamp_ms: joined(|chunk| &chunk.timestamp_ms).as_primitive::<Int64Type>().clone(),
        timestamp_type: joined(|chunk| &chunk.timestamp_type).as_primitive::<Int32Type>().clone(),
        headers,
        arrival_us: chunks[0].arrival_us,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::chunk::ChunkBuilder;

    fn chunk(from: i64, rows: i64) -> Chunk {
        let mut builder = ChunkBuilder::new(true);
        for offset in from..from + rows {
            builder.push(None, Some(offset.to_string().as_bytes()), offset, 0, 0);
            builder.push_header("h", Some(b"x"));
            builder.end_headers();
        }
        builder.finish(1)
    }

    #[test]
    fn large_records_are_not_joined() {
        let large = vec![b'x'; BATCH_BYTES / 2];
        let one = |offset| {
            let mut builder = ChunkBuilder::new(false);
            builder.push(None, Some(&large), offset, 0, 0);
            builder.finish(1)
        };
        let rows: Vec<usize> = evenly(vec![one(0), one(1), one(2)]).map(|it| it.rows()).collect();
        assert_eq!(rows, [1, 1, 1]);
    }

    #[test]
    fn small_chunks_are_joined_and_large_ones_cut() {
        let sizes = [1, 2, 3, 20_000, 5, 5];
        let mut from = 0;
        let chunks = sizes.map(|rows| {
            from += rows;
            chunk(from - rows, rows)
        });
        let even: Vec<Chunk> = evenly(chunks.to_vec()).collect();
        let rows: Vec<usize> = even.iter().map(Chunk::rows).collect();
        assert_eq!(rows, [6, 8_192, 8_192, 3_626]);
        let offsets: Vec<i64> =
            even.iter().flat_map(|chunk| chunk.offset.values().to_vec()).collect();
        assert_eq!(offsets, (0..20_016).collect::<Vec<i64>>());
        for chunk in &even {
            assert_eq!(chunk.headers.as_ref().unwrap().len(), chunk.rows());
            let value = chunk.value.value(chunk.rows() - 1);
            assert_eq!(value, (chunk.end_offset() - 1).to_string().as_bytes());
        }
    }
}

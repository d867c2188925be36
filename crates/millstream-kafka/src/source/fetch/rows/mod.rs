//! Record batches of one partition become chunks of columns: a record's bytes are copied once, from
//! the answer into its column.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};

use crate::protocol::fetch::{Aborted, Position};
use crate::protocol::record_batches::{Malformed, RawBatch, RawBatches, Records};
use crate::source::chunk::{Chunk, ChunkBuilder};
use crate::source::fetch::epochs::Beginning;

/// A chunk is finished when it has this many bytes; Arrow's offsets end at 2 GiB.
const CHUNK_BYTES_MAX: usize = 256 << 20;
/// So many bytes of one partition are copied at once, about, however well they are compressed.
const COPIED_BYTES_MAX: usize = 64 << 20;
/// The times of records as Spark numbers them: the producer's, and the broker's.
const CREATED: i32 = 0;
const APPENDED: i32 = 1;

/// Where an answer ends, from its headers alone.
///
/// Returns the offset after its last whole batch, and the batch's epoch; `position` without one.
/// Batches that turn out to be malformed are found by [`Copying`].
pub fn end_of(records: &[u8], position: Position) -> Position {
    let batches = RawBatches::of(records).map_while(Result::ok);
    batches.fold(position, |end, batch| match batch.last_offset {
        last if last < end.offset => end,
        last => Position { offset: last + 1, epoch: batch.epoch, ..end },
    })
}

/// True if some of it is compressed, so that it may be far more than it seems.
pub fn is_compressed(records: &[u8]) -> bool {
    RawBatches::of(records).map_while(Result::ok).any(|batch| batch.is_compressed())
}

/// Copies records into columns.
pub struct Copying {
    builder: ChunkBuilder,
    include_headers: bool,
    only_committed: bool,
    checks: bool,
}

/// What became of a partition's record batches.
#[derive(Debug, Default)]
pub struct Copied {
    /// The rows, in order.
    pub chunks: Vec<Chunk>,
    /// Where to read on; `position` if there was no whole batch.
    pub end: i64,
    /// Epochs that begin among what was read: each with the offset from which on batches are of it.
    pub epochs: Vec<Beginning>,
    /// Why reading cannot go on from there.
    pub malformed: Option<Malformed>,
}

impl Copying {
    /// Into rows with headers, or without; with records of transactions that are committed, or of
    /// all; with a look at the checksums, or without.
    pub fn new(include_headers: bool, only_committed: bool, checks: bool) -> Self {
        let builder = ChunkBuilder::new(include_headers);
        Self { builder, include_headers, only_committed, checks }
    }

    /// Copies the records from `position` on. Those of transactions that are `aborted` are left
    /// out, where that is asked for; so are control records.
    pub fn copy(
        &mut self,
        records: &[u8],
        position: Position,
        aborted: &[Aborted],
        arrival_us: i64,
    ) -> Copied {
        let mut copied = Copied { end: position.offset, ..Copied::default() };
        let mut epoch = position.epoch;
        let mut transactions = Transactions::new(aborted);
        let mut copied_bytes = 0;
        for batch in RawBatches::of(records) {
            // The rest is asked for again, once there is space.
            if copied_bytes > COPIED_BYTES_MAX {
                break;
            }
            let done = batch.and_then(|batch| {
                let position = copied.end;
                // Brokers give whole batches, also such as are read already.
                if batch.last_offset < position {
                    return Ok(position);
                }
                if self.checks {
                    batch.check()?;
                }
                let is_left_out = self.only_committed && transactions.leave_out(&batch)?;
                if !batch.is_control() && !is_left_out {
                    copied_bytes +=
                        self.copy_batch(&batch, position, &mut copied.chunks, arrival_us)?;
                }
                if batch.epoch != epoch {
                    epoch = batch.epoch;
                    copied.epochs.push(Beginning { epoch, offset: position });
                }
                Ok(batch.last_offset + 1)
            });
            match done {
                Ok(end) => copied.end = copied.end.max(end),
                Err(malformed) => {
                    copied.malformed = Some(malformed);
                    break;
                }
            }
        }
        if !self.builder.is_empty() {
            copied.chunks.push(self.builder.finish(arrival_us));
        }
        copied
    }

    fn copy_batch(
        &mut self,
        batch: &RawBatch<'_>,
        position: i64,
        chunks: &mut Vec<Chunk>,
        arrival_us: i64,
    ) -> Result<usize, Malformed> {
        let mut position = position;
        let bytes = batch.records()?;
        let kind = if batch.has_times_of_appending() { APPENDED } else { CREATED };
        let rows = self.builder.rows();
        let copied = Records::of(batch, &bytes).try_for_each(|record| {
            let record = record?;
            // A request gives whole batches, and the first may begin before what was asked for.
            if record.offset < position {
                return Ok(());
            }
            position = record.offset + 1;
            self.builder.push(record.key, record.value, record.offset, record.timestamp_ms, kind);
            if self.include_headers {
                for (name, value) in record.headers() {
                    self.builder.push_header(&String::from_utf8_lossy(name), value);
                }
                self.builder.end_headers();
            }
            // Decompressed, one batch may have more than a chunk.
            if self.builder.bytes() > CHUNK_BYTES_MAX {
                chunks.push(self.builder.finish(arrival_us));
            }
            Ok(())
        });
        // A batch that is malformed is not read at all, as it would be read again from its start.
        if copied.is_err() {
            self.builder.truncate(rows);
        }
        copied.map(|()| bytes.len())
    }
}

/// Which transactions are aborted where the reader stands.
struct Transactions {
    /// Those that begin later: first offset, then producer.
    later: BinaryHeap<Reverse<(i64, i64)>>,
    /// The producers of those that have begun.
    open: HashSet<i64>,
}

impl Transactions {
    fn new(aborted: &[Aborted]) -> Self {
        let later = aborted.iter().map(|(producer, first)| Reverse((*first, *producer))).collect();
        Self { later, open: HashSet::new() }
    }

    /// Whether the records of a batch belong to an aborted transaction. Batches come in order.
    fn leave_out(&mut self, batch: &RawBatch<'_>) -> Result<bool, Malformed> {
        while let Some(Reverse((first, producer))) = self.later.peek().copied()
            && first <= batch.last_offset
        {
            self.later.pop();
            self.open.insert(producer);
        }
        if batch.is_control() {
            if self.open.contains(&batch.producer) && batch.is_abort()? {
                self.open.remove(&batch.producer);
            }
            return Ok(true);
        }
        Ok(batch.is_transactional() && self.open.contains(&batch.producer))
    }
}

#[cfg(test)]
mod tests;

//! The replica of an operator that is made of shards ([`super::sharded`]).
//!
//! Without a limit of memory it is one shard, to which each entry is applied as it comes. With a
//! limit, or where the state is large, the rows that the entries have for a shard are written into
//! a file first, and the shards are made one after the other: each row is written and read once,
//! and no more than one shard is in memory.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use millstream_store::offset::BatchId;

use super::micro_batch::{MicroBatchFacts, Snapshot};
use super::shard::{Shard, ShardSpec};
use super::snapshot_builder::SnapshotBuilder;
use super::spill::SpillFile;
use super::spread::Spread;
use super::watermark::Watermark;

/// A piece of a snapshot has about so many bytes, or one record batch.
const PIECE_BYTES: usize = 64 << 20;
/// Rows that are not in files yet take at most this fraction of the limit, an eighth.
const PENDING_PART: u64 = 8;
/// Nor more than this, in bytes.
const PENDING_MAX: u64 = 64 << 20;

/// A replica in memory.
pub struct InMemory<S: Shard> {
    spec: Arc<S::Spec>,
    shard: Option<S>,
    /// The rest of its state once pieces are given: rows, and the input that each belongs to.
    rows: VecDeque<(usize, RecordBatch)>,
}

impl<S: Shard> InMemory<S> {
    /// Without state.
    pub fn new(spec: Arc<S::Spec>) -> Result<Self> {
        let shard = Some(S::new(&spec)?);
        Ok(Self { spec, shard, rows: VecDeque::new() })
    }
}

impl<S: Shard> SnapshotBuilder for InMemory<S> {
    fn apply(&mut self, facts: &MicroBatchFacts, inputs: Vec<Vec<RecordBatch>>) -> Result<()> {
        let shard = self.shard.as_mut().expect("nothing is taken after the first piece");
        shard.apply(&self.spec, facts, inputs).map(drop)
    }

    fn next_piece(&mut self) -> Result<Option<Snapshot>> {
        if let Some(shard) = self.shard.take() {
            for (input, rows) in shard.snapshot(&self.spec)?.into_iter().enumerate() {
                self.rows.extend(rows.into_iter().map(|rows| (input, rows)));
            }
        }
        let (mut piece, mut bytes) = (vec![Vec::new(); self.spec.inputs().len()], 0);
        while bytes < PIECE_BYTES
            && let Some((input, rows)) = self.rows.pop_front()
        {
            bytes += rows.get_array_memory_size().max(1);
            piece[input].push(rows);
        }
        Ok((bytes > 0).then_some(piece))
    }
}

/// A replica whose rows wait in files.
pub struct InFiles<S: Shard> {
    spec: Arc<S::Spec>,
    spread: Spread,
    /// By shard; reversed once pieces are given, so that the next one is popped from the end.
    backlogs: Vec<Backlog>,
    has_given_pieces: bool,
    pending_bytes: u64,
    pending_max: u64,
    /// The watermark of the last micro-batch.
    last: Watermark,
}

/// The entries that a shard will be made of.
#[derive(Default)]
struct Backlog {
    file: Option<SpillFile>,
    /// The facts of each step in the file.
    facts: Vec<MicroBatchFacts>,
    pending: Vec<(MicroBatchFacts, Snapshot)>,
}

impl<S: Shard> InFiles<S> {
    /// Without state, for an operator with `shards` shards and so many bytes of memory.
    pub fn new(spec: Arc<S::Spec>, shards: usize, memory_bytes: u64) -> Self {
        Self {
            spec,
            spread: Spread::new(shards),
            backlogs: std::iter::repeat_with(Backlog::default).take(shards).collect(),
            has_given_pieces: false,
            pending_bytes: 0,
            pending_max: (memory_bytes / PENDING_PART).min(PENDING_MAX),
            last: MicroBatchFacts::NOTHING_LATE,
        }
    }

    fn write_pending(&mut self) -> Result<()> {
        let schemas = self.spec.inputs();
        self.backlogs.iter_mut().try_for_each(|backlog| backlog.write(&schemas))?;
        self.pending_bytes = 0;
        Ok(())
    }
}

impl<S: Shard> SnapshotBuilder for InFiles<S> {
    fn apply(&mut self, facts: &MicroBatchFacts, inputs: Vec<Vec<RecordBatch>>) -> Result<()> {
        for (input, rows) in inputs.iter().enumerate() {
            let keys = |rows: &RecordBatch| self.spec.keys(input, rows.columns());
            for (backlog, rows) in self.backlogs.iter_mut().zip(self.spread.rows(rows, keys)?) {
                for rows in rows {
                    self.pending_bytes += rows.get_array_memory_size() as u64;
                    backlog.of(facts, inputs.len())[input].push(rows);
                }
            }
        }
        if !facts.is_snapshot {
            self.last = facts.watermark;
        }
        if self.pending_bytes > self.pending_max { self.write_pending() } else { Ok(()) }
    }

    fn next_piece(&mut self) -> Result<Option<Snapshot>> {
        if !std::mem::replace(&mut self.has_given_pieces, true) {
            self.write_pending()?;
            self.backlogs.reverse();
        }
        while let Some(backlog) = self.backlogs.pop() {
            let Some(file) = backlog.file else { continue };
            let mut making = Making { shard: S::new(&self.spec)?, evict_ms: i64::MIN };
            file.read(|step, inputs| making.apply(&self.spec, &backlog.facts[step], inputs))?;
            making.close(&self.spec, self.last)?;
            let piece = making.shard.snapshot(&self.spec)?;
            if piece.iter().flatten().any(|rows| rows.num_rows() > 0) {
                return Ok(Some(piece));
            }
        }
        Ok(None)
    }
}

impl Backlog {
    /// The pending rows of a micro-batch, by input.
    fn of(&mut self, facts: &MicroBatchFacts, inputs: usize) -> &mut Snapshot {
        let continues = |(last, _): &(MicroBatchFacts, _)| {
            last.id == facts.id && last.is_snapshot == facts.is_snapshot
        };
        if !self.pending.last().is_some_and(continues) {
            self.pending.push((*facts, vec![Vec::new(); inputs]));
        }
        &mut self.pending.last_mut().expect("it was put there").1
    }

    fn write(&mut self, schemas: &[SchemaRef]) -> Result<()> {
        for (facts, inputs) in self.pending.drain(..) {
            // Record batches may have a row or two each; every one has a cost in the file.
            let together = |(schema, rows): (&SchemaRef, &Vec<RecordBatch>)| {
                Ok(vec![concat_batches(schema, rows)?])
            };
            let inputs = schemas.iter().zip(&inputs).map(together).collect::<Result<Vec<_>>>()?;
            let file = match &mut self.file {
                Some(file) => file,
                none => none.insert(SpillFile::new()?),
            };
            file.add_all(schemas, &inputs)?;
            self.facts.push(facts);
        }
        Ok(())
    }
}

/// A shard while its backlog is applied.
struct Making<S> {
    shard: S,
    /// What ends by this time is closed already.
    evict_ms: i64,
}

impl<S: Shard> Making<S> {
    fn apply(&mut self, spec: &S::Spec, facts: &MicroBatchFacts, inputs: Snapshot) -> Result<()> {
        if !facts.is_snapshot {
            // Micro-batches without rows for this shard are not in its backlog, but their
            // watermarks closed groups all the same.
            self.close(spec, facts.watermark.closing_nothing())?;
            self.evict_ms = self.evict_ms.max(facts.watermark.evict_ms);
        }
        self.shard.apply(spec, facts, inputs).map(drop)
    }

    fn close(&mut self, spec: &S::Spec, watermark: Watermark) -> Result<()> {
        if watermark.evict_ms <= self.evict_ms {
            return Ok(());
        }
        self.evict_ms = watermark.evict_ms;
        let facts = MicroBatchFacts::new(BatchId(0), watermark);
        self.shard.apply(spec, &facts, vec![Vec::new(); spec.inputs().len()]).map(drop)
    }
}

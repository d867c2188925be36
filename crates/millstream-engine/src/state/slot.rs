//! A shard in memory, or its state in a file.

use arrow::array::RecordBatch;
use datafusion::common::Result;
use millstream_store::offset::BatchId;

use super::micro_batch::MicroBatchFacts;
use super::shard::{Aside, Outcome, Shard, ShardSpec};
use super::spill::SpillFile;

/// See the module's head.
pub enum Slot<S> {
    /// In memory.
    InMemory(S),
    /// In a file.
    Spilled(Spilled),
}

/// A shard's state in a file, and the facts that are needed without reading it.
pub struct Spilled {
    file: SpillFile,
    /// By input, rows that are not in the file yet.
    pending: Vec<Vec<RecordBatch>>,
    pending_bytes: usize,
    /// See [`Shard::needs_from`].
    first: Option<BatchId>,
    /// The watermark at which it gives output without new rows, microseconds since the epoch.
    due_us: Option<i64>,
    /// Rows of state, and rows that wait to be applied.
    rows: u64,
}

/// Rows wait until they have this many bytes, so that one write has those of many micro-batches.
const WRITTEN_TOGETHER_BYTES: usize = 128 << 10;

impl<S: Shard> Slot<S> {
    /// As [`Shard::apply`]. State in a file is read where it is needed.
    pub fn apply(
        &mut self,
        spec: &S::Spec,
        facts: &MicroBatchFacts,
        inputs: Vec<Vec<RecordBatch>>,
    ) -> Result<Outcome> {
        let evict_us = facts.watermark.evict_us();
        if let Self::Spilled(spilled) = self
            && (!S::PUBLISHES_ALL || !facts.is_wanted)
            && !is_due(spilled.due_us, evict_us)
        {
            if inputs.iter().flatten().all(|rows| rows.num_rows() == 0) {
                return Ok(Outcome::default());
            }
            // Rows whose group closes with this watermark, though they are not late, cannot wait.
            let aside = S::put_aside(spec, facts, &inputs)?;
            if let Some(aside) = aside.filter(|aside| !is_due(aside.due_us, evict_us)) {
                return spilled.add(spec, facts.id, aside);
            }
        }
        self.load(spec, facts)?.apply(spec, facts, inputs)
    }

    /// Whether it is in memory.
    pub fn is_in_memory(&self) -> bool {
        matches!(self, Self::InMemory(_))
    }

    /// The shard, in memory, as it is before the micro-batch of `facts`.
    fn load(&mut self, spec: &S::Spec, facts: &MicroBatchFacts) -> Result<&mut S> {
        if let Self::Spilled(_) = self {
            let Self::Spilled(spilled) = std::mem::replace(self, Self::InMemory(S::new(spec)?))
            else {
                unreachable!("the pattern above matched")
            };
            if let Self::InMemory(shard) = self {
                spilled.read_into(spec, shard)?;
                if !S::PUBLISHES_ALL && !facts.is_snapshot {
                    // While it was in the file, watermarks passed that would have evicted state.
                    let watermark = facts.watermark.closing_nothing();
                    let before = MicroBatchFacts { watermark, ..*facts }.for_state_alone();
                    shard.apply(spec, &before, vec![Vec::new(); spec.inputs().len()])?;
                }
            }
        }
        match self {
            Self::InMemory(shard) => Ok(shard),
            Self::Spilled(_) => unreachable!("it was read"),
        }
    }

    /// Writes the state into a file, or rows that have arrived for a state that is in one.
    pub fn spill(&mut self, spec: &S::Spec) -> Result<()> {
        let shard = match self {
            Self::InMemory(shard) => shard,
            Self::Spilled(spilled) => return spilled.write_pending(spec),
        };
        let (first, due_us, rows) = (shard.needs_from(), shard.due_us(spec), shard.rows());
        let shard = std::mem::replace(shard, S::new(spec)?);
        let mut file = SpillFile::new()?;
        file.add_all(&spec.inputs(), &shard.snapshot(spec)?)?;
        let (pending, pending_bytes) = (vec![Vec::new(); spec.inputs().len()], 0);
        *self = Self::Spilled(Spilled { file, pending, pending_bytes, first, due_us, rows });
        Ok(())
    }

    /// As [`Shard::due_us`].
    pub fn due_us(&self, spec: &S::Spec) -> Option<i64> {
        match self {
            Self::InMemory(shard) => shard.due_us(spec),
            Self::Spilled(spilled) => spilled.due_us,
        }
    }

    /// As [`Shard::closing_rows`]; none of a state in a file.
    pub fn closing_rows(&self, evict_us: i64) -> u64 {
        match self {
            Self::InMemory(shard) => shard.closing_rows(evict_us),
            Self::Spilled(_) => 0,
        }
    }

    /// As [`Shard::needs_from`].
    pub fn needs_from(&self) -> Option<BatchId> {
        match self {
            Self::InMemory(shard) => shard.needs_from(),
            Self::Spilled(spilled) => spilled.first,
        }
    }

    /// As [`Shard::rows`]; every row that waits for a state in a file counts too.
    pub fn rows(&self) -> u64 {
        match self {
            Self::InMemory(shard) => shard.rows(),
            Self::Spilled(spilled) => spilled.rows,
        }
    }

    /// Memory, in bytes.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::InMemory(shard) => shard.bytes(),
            Self::Spilled(spilled) => spilled.pending_bytes as u64,
        }
    }

    /// Bytes in files.
    pub fn spilled_bytes(&self) -> u64 {
        match self {
            Self::InMemory(_) => 0,
            Self::Spilled(spilled) => spilled.file.bytes(),
        }
    }
}

fn is_due(due_us: Option<i64>, evict_us: i64) -> bool {
    due_us.is_some_and(|due_us| due_us <= evict_us)
}

impl Spilled {
    fn add<S: ShardSpec>(&mut self, spec: &S, id: BatchId, aside: Aside) -> Result<Outcome> {
        self.first = Some(self.first.map_or(id, |first| first.min(id)));
        self.due_us = self.due_us.into_iter().chain(aside.due_us).min();
        for (pending, rows) in self.pending.iter_mut().zip(aside.rows) {
            for rows in rows {
                self.rows += rows.num_rows() as u64;
                self.pending_bytes += rows.get_array_memory_size();
                pending.push(rows);
            }
        }
        if self.pending_bytes >= WRITTEN_TOGETHER_BYTES {
            self.write_pending(spec)?;
        }
        Ok(Outcome { late: aside.late, ..Outcome::default() })
    }

    fn write_pending<S: ShardSpec>(&mut self, spec: &S) -> Result<()> {
        self.file.add_all(&spec.inputs(), &self.pending)?;
        self.pending.iter_mut().for_each(Vec::clear);
        self.pending_bytes = 0;
        Ok(())
    }

    fn read_into<S: Shard>(self, spec: &S::Spec, shard: &mut S) -> Result<()> {
        let id = self.first.unwrap_or(BatchId(0));
        let facts = MicroBatchFacts::from_snapshot(id);
        self.file.read(|_, inputs| shard.apply(spec, &facts, inputs).map(drop))?;
        shard.apply(spec, &facts, self.pending).map(drop)
    }
}

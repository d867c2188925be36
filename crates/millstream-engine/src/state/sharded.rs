//! An operator's work spread over the cores.
//!
//! Rows of a micro-batch are spread by the hash of their keys over *shards*, one per core. All rows
//! of a key meet in one shard, now and later, so shards need nothing of each other. Few rows are
//! worked on where they are: handing them to other cores would cost more. But a micro-batch of few
//! rows may close a window of a million groups; that is work for the cores, too.
//!
//! Where the query has a limit of memory, there are many small shards instead, and beyond the limit
//! some of them live in files ([`Slot`]). Then one shard after the other is worked on, so that no
//! more than the limit and one shard are in memory.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::common::Result;
use millstream_store::env::Env;
use millstream_store::offset::BatchId;

use super::codec;
use super::micro_batch::{Applied, MicroBatchFacts};
use super::operator::Operator;
use super::shard::{Outcome, Shard, ShardSpec};
use super::sharded_snapshot_builder::{InFiles, InMemory};
use super::slot::Slot;
use super::snapshot_builder::SnapshotBuilder;
use super::spread::Spread;
use crate::api::progress::OperatorMetrics;

/// Fewer rows than this are worked on by one core.
const ROWS_WORTH_A_CORE: usize = 4_096;

/// The number of shards of an operator whose memory is limited: so many that each one is small.
const SHARDS_WITHIN_LIMIT: usize = 64;

/// A snapshot of more state than this is made by way of files even where memory is not limited: a
/// second copy of the state would be in memory otherwise. In unit tests some states are as large.
const SNAPSHOT_IN_MEMORY_BYTES: u64 = if cfg!(test) { 4 << 10 } else { 128 << 20 };

/// What an operator may use.
#[derive(Clone, Copy, Debug)]
pub struct ResourceLimits {
    /// How many cores.
    pub cores: usize,
    /// How much memory its state may use, in bytes; `None` for no limit.
    pub memory_bytes: Option<u64>,
}

/// An operator made of shards; see the module's head.
pub struct Sharded<S: Shard> {
    spec: Arc<S::Spec>,
    limits: ResourceLimits,
    spread: Spread,
    /// Empty while they are worked on.
    slots: Vec<Slot<S>>,
    memory: Memory,
    metrics: OperatorMetrics,
}

/// Keeps track of the memory of all shards.
#[derive(Clone, Copy, Default)]
struct Memory {
    limit_bytes: Option<u64>,
    /// The bytes of all shards when they were last measured.
    known_bytes: u64,
    /// The bytes of rows that were applied since then.
    since_bytes: u64,
}

impl<S: Shard> Sharded<S> {
    /// An operator without state yet.
    pub fn new(spec: Arc<S::Spec>, limits: ResourceLimits) -> Result<Self> {
        let metrics = OperatorMetrics { name: spec.name(), ..OperatorMetrics::default() };
        let shards = limits.memory_bytes.map_or(limits.cores, |_| SHARDS_WITHIN_LIMIT);
        let slots =
            (0..shards).map(|_| S::new(&spec).map(Slot::InMemory)).collect::<Result<_>>()?;
        let memory = Memory { limit_bytes: limits.memory_bytes, ..Memory::default() };
        Ok(Self { spec, limits, spread: Spread::new(shards), slots, memory, metrics })
    }

    /// Divides rows by shard, and for each shard by input.
    fn shares(&self, inputs: &[Vec<RecordBatch>]) -> Result<Vec<Share>> {
        let mut shares = vec![Vec::with_capacity(inputs.len()); self.slots.len()];
        for (input, rows) in inputs.iter().enumerate() {
            let keys = |rows: &RecordBatch| self.spec.keys(input, rows.columns());
            for (share, rows) in shares.iter_mut().zip(self.spread.rows(rows, keys)?) {
                share.push(rows);
            }
        }
        Ok(shares)
    }

    /// Applies the rows to the slots, which are divided into `groups`: each group is a task, and
    /// all run at once.
    async fn work(
        &mut self,
        env: &Env,
        groups: usize,
        facts: MicroBatchFacts,
        mut shares: Vec<Share>,
    ) -> Result<Vec<Outcome>> {
        let in_group = self.slots.len().div_ceil(groups);
        let mut tasks = Vec::with_capacity(groups);
        let mut slots = std::mem::take(&mut self.slots);
        while !slots.is_empty() {
            let rest = slots.split_off(in_group.min(slots.len()));
            let own = std::mem::replace(&mut slots, rest);
            let rest = shares.split_off(own.len());
            let share = std::mem::replace(&mut shares, rest);
            let spec = Arc::clone(&self.spec);
            // Only a single group can keep the memory of all shards within the limit.
            let memory = if groups == 1 { self.memory } else { Memory::default() };
            tasks.push(env.spawn_on_cores("operator", async move {
                let mut group = Group { slots: own, memory };
                let outcomes = group.apply(&spec, &facts, share);
                (group, outcomes)
            }));
        }
        let mut outcomes = Vec::with_capacity(tasks.len());
        for task in tasks {
            let (group, group_outcomes) = task.join().await;
            self.slots.extend(group.slots);
            if groups == 1 {
                self.memory = group.memory;
            }
            outcomes.push(group_outcomes);
        }
        let outcomes = outcomes.into_iter().collect::<Result<Vec<_>>>()?;
        Ok(outcomes.into_iter().flatten().collect())
    }
}

/// A shard's rows, by input.
type Share = Vec<Vec<RecordBatch>>;

/// Slots that one core works on.
struct Group<S> {
    slots: Vec<Slot<S>>,
    memory: Memory,
}

impl<S: Shard> Group<S> {
    fn apply(
        &mut self,
        spec: &S::Spec,
        facts: &MicroBatchFacts,
        shares: Vec<Share>,
    ) -> Result<Vec<Outcome>> {
        let mut outcomes = Vec::with_capacity(self.slots.len());
        for (at, share) in shares.into_iter().enumerate() {
            let was_in_memory = self.slots[at].is_in_memory();
            let taken = self.memory.limit_bytes.map_or(0, |_| bytes_of(&share));
            outcomes.push(self.slots[at].apply(spec, facts, share)?);
            if self.memory.limit_bytes.is_some() {
                let was_read = !was_in_memory && self.slots[at].is_in_memory();
                let read = if was_read { self.slots[at].bytes() } else { 0 };
                self.memory.since_bytes += taken + read;
                self.make_room(spec)?;
            }
        }
        Ok(outcomes)
    }

    /// Writes the largest shards into files while all together are beyond the limit.
    fn make_room(&mut self, spec: &S::Spec) -> Result<()> {
        let Memory { limit_bytes: Some(limit), known_bytes, since_bytes } = self.memory else {
            return Ok(());
        };
        if known_bytes + since_bytes <= limit {
            return Ok(());
        }
        let mut bytes: Vec<u64> = self.slots.iter().map(Slot::bytes).collect();
        let mut total: u64 = bytes.iter().sum();
        // Down to three quarters, so that the next rows do not spill again at once.
        while total > limit / 4 * 3 {
            let largest = (0..self.slots.len()).max_by_key(|at| bytes[*at]);
            let Some(largest) = largest.filter(|at| bytes[*at] > 0) else { break };
            self.slots[largest].spill(spec)?;
            total -= std::mem::replace(&mut bytes[largest], 0);
        }
        (self.memory.known_bytes, self.memory.since_bytes) = (total, 0);
        Ok(())
    }
}

fn bytes_of(share: &[Vec<RecordBatch>]) -> u64 {
    share.iter().map(|rows| codec::encoded_bytes(rows) as u64).sum()
}

#[async_trait]
impl<S: Shard> Operator for Sharded<S> {
    async fn apply(
        &mut self,
        env: &Env,
        facts: &MicroBatchFacts,
        inputs: Vec<Vec<RecordBatch>>,
    ) -> Result<Applied> {
        let total: usize = inputs.iter().flatten().map(RecordBatch::num_rows).sum();
        let shares = self.shares(&inputs)?;
        let outcomes = if self.is_crowded(&inputs) {
            self.work(env, 1, *facts, shares).await?
        } else if !self.is_worth_cores(total, facts) || self.slots.len() == 1 {
            let slots = std::mem::take(&mut self.slots);
            let mut group = Group { slots, memory: Memory::default() };
            let outcomes = group.apply(&self.spec, facts, shares);
            // Put back before an error is returned: the state must not be lost with it.
            self.slots = group.slots;
            outcomes?
        } else {
            self.work(env, self.limits.cores, *facts, shares).await?
        };
        self.count(total as u64, &outcomes);
        Ok(collected(outcomes, inputs))
    }

    fn input_schemas(&self) -> Vec<SchemaRef> {
        self.spec.inputs()
    }

    fn is_due(&self, evict_us: i64) -> bool {
        let due = self.slots.iter().filter_map(|slot| slot.due_us(&self.spec)).min();
        due.is_some_and(|due| due <= evict_us)
    }

    fn needs_from(&self) -> Option<BatchId> {
        self.slots.iter().filter_map(Slot::needs_from).min()
    }

    fn metrics(&self) -> OperatorMetrics {
        let rows = self.slots.iter().map(Slot::rows).sum();
        let spilled_bytes = self.slots.iter().map(Slot::spilled_bytes).sum();
        OperatorMetrics { rows, spilled_bytes, ..self.metrics.clone() }
    }

    fn bytes(&self) -> u64 {
        self.slots.iter().map(Slot::bytes).sum()
    }

    fn snapshot_builder(&self) -> Result<Box<dyn SnapshotBuilder>> {
        let spec = Arc::clone(&self.spec);
        let limit = self.limits.memory_bytes;
        let is_large = || self.bytes() > SNAPSHOT_IN_MEMORY_BYTES;
        Ok(match limit.or_else(|| is_large().then_some(SNAPSHOT_IN_MEMORY_BYTES)) {
            None => Box::new(InMemory::<S>::new(spec)?),
            Some(bytes) => Box::new(InFiles::<S>::new(spec, SHARDS_WITHIN_LIMIT, bytes)),
        })
    }
}

impl<S: Shard> Sharded<S> {
    /// Whether there is enough to do for several cores: by `total` rows, or by what they close. The
    /// thread of the flow would do nothing else meanwhile, and that may be seconds.
    fn is_worth_cores(&self, total: usize, facts: &MicroBatchFacts) -> bool {
        let evict_us = facts.watermark.evict_us();
        let closing = || self.slots.iter().map(|slot| slot.closing_rows(evict_us)).sum::<u64>();
        total >= ROWS_WORTH_A_CORE || closing() >= ROWS_WORTH_A_CORE as u64
    }

    /// Whether memory has to be checked after each shard: when half of the limit may be used, or a
    /// shard is in a file.
    fn is_crowded(&mut self, inputs: &[Vec<RecordBatch>]) -> bool {
        let Some(limit) = self.memory.limit_bytes else { return false };
        let Memory { known_bytes, since_bytes, .. } = self.memory;
        let taken = bytes_of(inputs);
        if known_bytes + since_bytes + taken > limit / 2
            || self.slots.iter().any(|slot| !slot.is_in_memory())
        {
            return true;
        }
        self.memory.since_bytes += taken;
        false
    }

    fn count(&mut self, total: u64, outcomes: &[Outcome]) {
        let count = |of: fn(&Outcome) -> u64| outcomes.iter().map(of).sum::<u64>();
        self.metrics.rows_late = count(|outcome| outcome.late);
        let unused = self.metrics.rows_late + count(|outcome| outcome.dropped);
        self.metrics.rows_updated = total.saturating_sub(unused);
        self.metrics.rows_removed = count(|outcome| outcome.removed);
    }
}

/// The outcomes of all shards as one result.
fn collected(outcomes: Vec<Outcome>, inputs: Vec<Vec<RecordBatch>>) -> Applied {
    let mut changes: Option<Vec<Vec<RecordBatch>>> = None;
    let mut output = Vec::with_capacity(outcomes.len());
    for outcome in outcomes {
        if let Some(shard_changes) = outcome.changes {
            let known = changes.get_or_insert_with(|| vec![Vec::new(); shard_changes.len()]);
            known.iter_mut().zip(shard_changes).for_each(|(known, rows)| known.extend(rows));
        }
        output.push(outcome.published);
    }
    Applied { output, changes: changes.unwrap_or(inputs) }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use arrow::array::{Array, Int64Array, TimestampMicrosecondArray};
    use arrow::datatypes::{Field, Schema};

    use super::*;
    use crate::state::aggregate::closing::ClosingAggregate;
    use crate::state::aggregate::spec::{AggregateSpec, TimeKey, TimeKind};
    use crate::state::watermark::Watermark;

    /// Rows of so many groups, which close at the same time.
    fn rows(groups: i64) -> RecordBatch {
        let times = TimestampMicrosecondArray::from_value(5, groups as usize);
        let ids = Int64Array::from_iter_values(0..groups);
        let fields = [("time", times.data_type()), ("id", ids.data_type())];
        let fields = fields.map(|(name, data_type)| Field::new(name, data_type.clone(), true));
        let schema = Arc::new(Schema::new(fields.to_vec()));
        RecordBatch::try_new(schema, vec![Arc::new(times), Arc::new(ids)]).unwrap()
    }

    #[tokio::test]
    async fn a_window_of_many_groups_leaves_the_thread_to_others_while_it_closes() {
        let env = Env::real();
        let limits = ResourceLimits { cores: 2, memory_bytes: None };
        for (groups, is_left) in [(10, false), (ROWS_WORTH_A_CORE as i64, true)] {
            let (rows, time) = (rows(groups), TimeKey { column: 0, kind: TimeKind::Instant });
            let (input, output) = (rows.schema(), rows.schema());
            let spec = AggregateSpec::new(2, Some(time), Vec::new(), input, output).unwrap();
            let mut operator = ClosingAggregate::new(Arc::new(spec), limits).unwrap();
            let facts = MicroBatchFacts::new(BatchId(0), MicroBatchFacts::NOTHING_LATE);
            let applied = operator.apply(&env, &facts, vec![vec![rows]]).await.unwrap();
            assert!(applied.output.iter().all(Vec::is_empty));

            let has_run = Arc::new(AtomicBool::new(false));
            let other = Arc::clone(&has_run);
            let other = env.spawn("other", async move { other.store(true, Ordering::Relaxed) });
            let watermark = Watermark { evict_ms: 1, ..MicroBatchFacts::NOTHING_LATE };
            let facts = MicroBatchFacts::new(BatchId(1), watermark);
            let applied = operator.apply(&env, &facts, vec![Vec::new()]).await.unwrap();
            assert_eq!(has_run.load(Ordering::Relaxed), is_left, "{groups} groups");
            let closed = applied.output.iter().flatten().map(RecordBatch::num_rows).sum::<usize>();
            assert_eq!(closed, groups as usize);
            other.join().await;
        }
    }
}

//! Groups that are published as they change: output modes `update` and `complete`.
//!
//! State is a row of partial aggregates per key. A micro-batch's rows of a key are merged with the
//! key's row, and the result takes its place: the cost follows the keys touched. With `update` the
//! touched groups are published, and the watermark evicts groups; with `complete` all groups are
//! published, and kept for ever.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{Schema, SchemaRef, TimestampMicrosecondType};
use datafusion::common::Result;
use datafusion::logical_expr::EmitTo;
use datafusion::physical_plan::aggregates::group_values::new_group_values;
use datafusion::physical_plan::aggregates::order::GroupOrdering;
use millstream_store::offset::BatchId;

use super::spec::{AggregateSpec, results_of, results_of_all};
use crate::state::expiry_index::ExpiryIndex;
use crate::state::keyed::{Key, KeyFormat, Keyed, Keys};
use crate::state::late_rows;
use crate::state::micro_batch::{MicroBatchFacts, Snapshot};
use crate::state::shard::{Outcome, Shard};
use crate::state::sharded::Sharded;

/// An aggregation that publishes the groups that a micro-batch has changed.
pub type UpdatingAggregate = Sharded<Changing<false>>;
/// An aggregation that publishes all groups every time.
pub type CompleteAggregate = Sharded<Changing<true>>;

/// The groups of some keys, by key.
pub struct Changing<const COMPLETE: bool> {
    format: KeyFormat,
    keys: SchemaRef,
    states: Keyed,
    /// By time, the keys that are evicted when the watermark has passed it.
    expiry: ExpiryIndex<Key>,
    /// The micro-batch of the first key that is never evicted: the state log is needed from there.
    first: Option<BatchId>,
}

impl<const COMPLETE: bool> Shard for Changing<COMPLETE> {
    type Spec = AggregateSpec;

    const PUBLISHES_ALL: bool = COMPLETE;

    fn new(spec: &AggregateSpec) -> Result<Self> {
        let keys: Vec<_> = spec.input().fields()[..spec.key_count()].to_vec();
        let keys = Arc::new(Schema::new(keys));
        let states = Keyed::new(Arc::clone(spec.input()));
        let (format, expiry) = (KeyFormat::new(&keys)?, ExpiryIndex::default());
        Ok(Self { format, keys, states, expiry, first: None })
    }

    fn apply(
        &mut self,
        spec: &AggregateSpec,
        facts: &MicroBatchFacts,
        mut inputs: Vec<Vec<RecordBatch>>,
    ) -> Result<Outcome> {
        let rows = inputs.pop().unwrap_or_default();
        let mut outcome = Outcome::default();
        let mut fresh = Vec::with_capacity(rows.len());
        for rows in rows {
            let before = rows.num_rows();
            // Spark too takes late rows in `complete` mode: no group is ever evicted, so none is
            // too old.
            let rows = if COMPLETE { rows } else { without_late(spec, facts, rows)? };
            outcome.late += (before - rows.num_rows()) as u64;
            if rows.num_rows() > 0 {
                fresh.push(rows);
            }
        }
        if !fresh.is_empty() {
            let changed = self.merge(spec, facts.id, &fresh)?;
            if !COMPLETE && facts.is_wanted {
                outcome.published.push(results_of(spec, &changed)?);
            }
        }
        if !COMPLETE {
            outcome.removed = self.evict(facts.watermark.evict_us());
        } else if facts.is_wanted {
            outcome.published = results_of_all(spec, &self.states)?;
        }
        Ok(outcome)
    }

    fn due_us(&self, _: &AggregateSpec) -> Option<i64> {
        self.expiry.next_us().filter(|_| !COMPLETE)
    }

    fn needs_from(&self) -> Option<BatchId> {
        self.expiry.first().into_iter().chain(self.first).min()
    }

    fn rows(&self) -> u64 {
        self.states.len() as u64
    }

    fn bytes(&self) -> u64 {
        (self.states.bytes() + self.expiry.bytes(self.states.mean_key_bytes())) as u64
    }

    fn snapshot(self, _: &AggregateSpec) -> Result<Snapshot> {
        Ok(vec![self.states.all()?])
    }
}

impl<const COMPLETE: bool> Changing<COMPLETE> {
    /// Merges partial rows into the rows of their keys; gives the latter.
    fn merge(
        &mut self,
        spec: &AggregateSpec,
        id: BatchId,
        fresh: &[RecordBatch],
    ) -> Result<RecordBatch> {
        let mut groups = Groups::new(&self.keys)?;
        let fresh_groups =
            fresh.iter().map(|rows| groups.intern(&rows.columns()[..spec.key_count()], rows));
        let fresh_groups: Vec<Vec<usize>> = fresh_groups.collect::<Result<_>>()?;
        let (columns, total) = groups.emit()?;
        let keys = self.format.keys(&columns, total)?;
        let (known, places) = self.states.rows_of(keys.iter())?;

        let fresh_groups = fresh_groups.iter().map(Vec::as_slice);
        // The rows of the state come first, so functions like `first` keep the earlier value.
        let parts = [(&known, places.as_slice())].into_iter().chain(fresh.iter().zip(fresh_groups));
        let merged = spec.states(columns, &mut spec.merged(parts, total)?)?;
        self.put(spec, id, &keys, merged.clone())?;
        Ok(merged)
    }

    fn put(
        &mut self,
        spec: &AggregateSpec,
        id: BatchId,
        keys: &Keys,
        rows: RecordBatch,
    ) -> Result<()> {
        let time = spec.time().filter(|_| !COMPLETE);
        let times = time.map(|time| {
            rows.column(time.column).as_primitive::<TimestampMicrosecondType>().clone()
        });
        let (expiry, first) = (&mut self.expiry, &mut self.first);
        self.states.put(keys, rows, |at| match times.as_ref().filter(|times| times.is_valid(at)) {
            Some(times) => expiry.add(times.value(at), id, keys.at(at).into()),
            None => _ = first.get_or_insert(id),
        })
    }

    /// Evicts the groups that the watermark has passed; gives how many.
    fn evict(&mut self, evict_us: i64) -> u64 {
        let expiry = self.expiry.take_until(evict_us);
        expiry.map(|key| u64::from(self.states.remove(&key))).sum()
    }
}

/// Numbers the different keys of some rows.
struct Groups {
    values: Option<Box<dyn datafusion::physical_plan::aggregates::group_values::GroupValues>>,
}

impl Groups {
    fn new(keys: &SchemaRef) -> Result<Self> {
        if keys.fields().is_empty() {
            return Ok(Self { values: None });
        }
        Ok(Self { values: Some(new_group_values(Arc::clone(keys), &GroupOrdering::None)?) })
    }

    fn intern(&mut self, keys: &[ArrayRef], rows: &RecordBatch) -> Result<Vec<usize>> {
        let mut groups = Vec::with_capacity(rows.num_rows());
        match &mut self.values {
            Some(values) => values.intern(keys, &mut groups)?,
            None => groups.resize(rows.num_rows(), 0),
        }
        Ok(groups)
    }

    /// The keys in the order of their numbers, and how many there are.
    fn emit(self) -> Result<(Vec<ArrayRef>, usize)> {
        let Some(mut values) = self.values else { return Ok((Vec::new(), 1)) };
        let total = values.len();
        Ok((values.emit(EmitTo::All)?, total))
    }
}

fn without_late(
    spec: &AggregateSpec,
    facts: &MicroBatchFacts,
    rows: RecordBatch,
) -> Result<RecordBatch> {
    let Some(time) = spec.time() else { return Ok(rows) };
    let times = rows.column(time.column).as_primitive::<TimestampMicrosecondType>().clone();
    late_rows::without(&times, facts.watermark.late_us(), rows)
}

//! Groups that are published as they change: output modes `update` and `complete`.
//!
//! State is a row of partial aggregates per key. A micro-batch's rows of a key are merged with the
//! key's row, and the result takes its place: the cost follows the keys touched. With `update` the
//! touched groups are published, and the watermark lets groups go; with `complete` all groups are
//! published, and kept for ever.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{Schema, SchemaRef, TimestampMicrosecondType};
use datafusion::common::Result;
use datafusion::logical_expr::EmitTo;
use datafusion::physical_plan::aggregates::group_values::new_group_values;
use datafusion::physical_plan::aggregates::order::GroupOrdering;
use millstream_store::offset::BatchId;

use super::spec::{AggregateSpec, results_of};
use super::{Outcome, Shard, ShardedAggregate};
use crate::state::keyed::{Key, KeyFormat, Keyed, Keys};
use crate::state::operator::MicroBatchFacts;

/// An aggregation that publishes the groups that a micro-batch has changed.
pub type UpdatingAggregate = ShardedAggregate<Changing<false>>;
/// An aggregation that publishes all groups every time.
pub type CompleteAggregate = ShardedAggregate<Changing<true>>;

/// The groups of some keys, by key.
pub struct Changing<const COMPLETE: bool> {
    format: KeyFormat,
    keys: SchemaRef,
    states: Keyed,
    /// By time, the keys that go when the watermark has passed it.
    leaving: BTreeMap<i64, Vec<Key>>,
    first: Option<BatchId>,
}

impl<const COMPLETE: bool> Shard for Changing<COMPLETE> {
    fn new(spec: &AggregateSpec) -> Result<Self> {
        let keys: Vec<_> = spec.input().fields()[..spec.keys()].to_vec();
        let keys = Arc::new(Schema::new(keys));
        let states = Keyed::new(Arc::clone(spec.input()));
        let (format, leaving) = (KeyFormat::new(&keys)?, BTreeMap::new());
        Ok(Self { format, keys, states, leaving, first: None })
    }

    fn apply(
        &mut self,
        spec: &AggregateSpec,
        facts: &MicroBatchFacts,
        rows: Vec<RecordBatch>,
    ) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        let mut fresh = Vec::with_capacity(rows.len());
        for rows in rows {
            let before = rows.num_rows();
            let rows = if COMPLETE { rows } else { without_late(spec, facts, rows)? };
            outcome.late += (before - rows.num_rows()) as u64;
            if rows.num_rows() > 0 {
                fresh.push(rows);
            }
        }
        if !fresh.is_empty() {
            self.first.get_or_insert(facts.id);
            let changed = self.merge(spec, &fresh)?;
            if !COMPLETE {
                outcome.published.push(results_of(spec, &changed)?);
            }
        }
        if COMPLETE {
            if self.states.len() > 0 {
                outcome.published.push(results_of(spec, &self.states.all()?)?);
            }
        } else {
            outcome.removed = self.evict(facts.watermark.evict_us());
        }
        Ok(outcome)
    }

    fn is_due(&self, evict_us: i64) -> bool {
        !COMPLETE && self.leaving.keys().next().is_some_and(|at| *at <= evict_us)
    }

    fn needs_from(&self) -> Option<BatchId> {
        self.first.filter(|_| self.states.len() > 0)
    }

    fn groups(&self) -> u64 {
        self.states.len() as u64
    }

    fn bytes(&self) -> u64 {
        self.states.bytes() as u64
    }

    fn snapshot(self, _: &AggregateSpec) -> Result<Vec<RecordBatch>> {
        Ok(vec![self.states.all()?])
    }
}

impl<const COMPLETE: bool> Changing<COMPLETE> {
    /// Merges partial rows into the rows of their keys; gives the latter.
    fn merge(&mut self, spec: &AggregateSpec, fresh: &[RecordBatch]) -> Result<RecordBatch> {
        let mut groups = Groups::new(&self.keys)?;
        let of_fresh = fresh.iter().map(|rows| groups.intern(&rows.columns()[..spec.keys()], rows));
        let of_fresh = of_fresh.collect::<Result<Vec<_>>>()?;
        let (columns, total) = groups.emit()?;
        let keys = self.format.keys(&columns, total)?;
        let (known, places) = self.states.rows_of(keys.iter())?;

        let mut accumulators = spec.accumulators()?;
        if known.num_rows() > 0 {
            spec.merge(&mut accumulators, known.columns(), &places, total)?;
        }
        for (rows, groups) in fresh.iter().zip(&of_fresh) {
            spec.merge(&mut accumulators, rows.columns(), groups, total)?;
        }
        let merged = spec.states(columns, &mut accumulators)?;
        self.put(spec, &keys, merged.clone())?;
        Ok(merged)
    }

    fn put(&mut self, spec: &AggregateSpec, keys: &Keys, rows: RecordBatch) -> Result<()> {
        let time = spec.time().filter(|_| !COMPLETE);
        let times = time.map(|time| {
            rows.column(time.column).as_primitive::<TimestampMicrosecondType>().clone()
        });
        let leaving = &mut self.leaving;
        self.states.put(keys, rows, |at| {
            if let Some(times) = times.as_ref().filter(|times| times.is_valid(at)) {
                leaving.entry(times.value(at)).or_default().push(keys.at(at).into());
            }
        })
    }

    /// Lets go of the groups that the watermark has passed; gives how many.
    fn evict(&mut self, evict_us: i64) -> u64 {
        let staying = self.leaving.split_off(&evict_us.saturating_add(1));
        let leaving = std::mem::replace(&mut self.leaving, staying);
        let leaving = leaving.into_values().flatten();
        leaving.map(|key| u64::from(self.states.remove(&key))).sum()
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
    let late_us = facts.watermark.late_us();
    let times = rows.column(time.column).as_primitive::<TimestampMicrosecondType>();
    if times.null_count() == 0 && times.values().iter().all(|time| *time > late_us) {
        return Ok(rows);
    }
    // What has no time is never late, and stays for ever.
    let kept = times.iter().map(|time| Some(time.is_none_or(|time| time > late_us)));
    let kept: BooleanArray = kept.collect();
    Ok(filter_record_batch(&rows, &kept)?)
}

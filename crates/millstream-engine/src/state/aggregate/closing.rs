//! Groups that are published once, when the watermark has passed their time.
//!
//! State is kept by closing time: a *bucket* per window end ([`bucket`](super::bucket)), each with
//! tables of its own of group keys and accumulators. To close a window is to evaluate its bucket
//! whole and drop it, without a search for the keys that belong to it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt32Array};
use arrow::compute::{filter_record_batch, is_not_null, take};
use arrow::datatypes::TimestampMicrosecondType;
use datafusion::common::Result;
use millstream_store::offset::BatchId;

use super::bucket::Bucket;
use super::spec::AggregateSpec;
use crate::state::late_rows;
use crate::state::micro_batch::{MicroBatchFacts, Snapshot};
use crate::state::shard::Aside;
use crate::state::shard::{Outcome, Shard};
use crate::state::sharded::Sharded;

/// An aggregation whose groups are published when they close.
pub type ClosingAggregate = Sharded<Closing>;

/// The groups of some keys, by closing time.
#[derive(Default)]
pub struct Closing {
    /// By the time at which they close, microseconds since the epoch.
    buckets: BTreeMap<i64, Bucket>,
    scratch: Vec<usize>,
}

impl Shard for Closing {
    type Spec = AggregateSpec;

    fn new(spec: &AggregateSpec) -> Result<Self> {
        assert!(spec.time().is_some(), "groups close by their time");
        Ok(Self::default())
    }

    fn apply(
        &mut self,
        spec: &AggregateSpec,
        facts: &MicroBatchFacts,
        mut inputs: Vec<Vec<RecordBatch>>,
    ) -> Result<Outcome> {
        let rows = inputs.pop().unwrap_or_default();
        let mut outcome = Outcome::default();
        for rows in rows {
            let timely = with_times(spec, &rows)?;
            outcome.dropped += (rows.num_rows() - timely.num_rows()) as u64;
            for (at, columns, count) in by_time(spec, &timely)? {
                // Late is what the micro-batch before could have closed. A window that only this
                // micro-batch closes still takes its rows, as in Spark.
                if at <= facts.watermark.late_us() {
                    outcome.late += count as u64;
                    continue;
                }
                let bucket = match self.buckets.entry(at) {
                    Entry::Occupied(known) => known.into_mut(),
                    Entry::Vacant(new) => new.insert(Bucket::new(spec, facts.id)?),
                };
                bucket.merge(spec, columns, count, &mut self.scratch)?;
            }
        }
        // A window closes when the watermark reaches its end: `evict_us` itself is included.
        let open = self.buckets.split_off(&facts.watermark.evict_us().saturating_add(1));
        for (at, bucket) in std::mem::replace(&mut self.buckets, open) {
            outcome.removed += bucket.groups() as u64;
            if facts.is_wanted {
                outcome.published.extend(bucket.close(spec, at)?);
            }
        }
        Ok(outcome)
    }

    fn due_us(&self, _: &AggregateSpec) -> Option<i64> {
        self.buckets.keys().next().copied()
    }

    fn closing_rows(&self, evict_us: i64) -> u64 {
        self.buckets.range(..=evict_us).map(|(_, bucket)| bucket.groups() as u64).sum()
    }

    fn put_aside(
        spec: &AggregateSpec,
        facts: &MicroBatchFacts,
        inputs: &[Vec<RecordBatch>],
    ) -> Result<Option<Aside>> {
        let column = spec.time().expect("groups close by their time").column;
        let times = |rows: &RecordBatch| {
            rows.column(column).as_primitive::<TimestampMicrosecondType>().clone()
        };
        let (mut kept, mut late, mut due_us) = (Vec::new(), 0, None);
        for rows in &inputs[0] {
            let timely = late_rows::without(&times(rows), facts.watermark.late_us(), rows.clone())?;
            late += (rows.num_rows() - timely.num_rows()) as u64;
            due_us = due_us.into_iter().chain(arrow::compute::min(&times(&timely))).min();
            kept.push(timely);
        }
        Ok(Some(Aside { rows: vec![kept], late, due_us }))
    }

    fn needs_from(&self) -> Option<BatchId> {
        self.buckets.values().map(|bucket| bucket.first).min()
    }

    fn rows(&self) -> u64 {
        self.buckets.values().map(|bucket| bucket.groups() as u64).sum()
    }

    fn bytes(&self) -> u64 {
        self.buckets.values().map(|bucket| bucket.bytes() as u64).sum()
    }

    fn snapshot(self, spec: &AggregateSpec) -> Result<Snapshot> {
        let rows = self.buckets.into_iter().map(|(at, bucket)| bucket.partial_rows(spec, at));
        Ok(vec![rows.collect::<Result<Vec<_>>>()?.concat()])
    }
}

/// The rows that have a time: others would never close.
fn with_times(spec: &AggregateSpec, rows: &RecordBatch) -> Result<RecordBatch> {
    let times = rows.column(spec.time().expect("it was asked for").column);
    if times.null_count() == 0 {
        return Ok(rows.clone());
    }
    Ok(filter_record_batch(rows, &is_not_null(times)?)?)
}

/// Splits rows by the time at which their groups close: the time, the columns, how many rows.
fn by_time(spec: &AggregateSpec, rows: &RecordBatch) -> Result<Vec<(i64, Vec<ArrayRef>, usize)>> {
    let column = spec.time().expect("it was asked for").column;
    let times = rows.column(column).as_primitive::<TimestampMicrosecondType>().values();
    let Some(first) = times.first() else { return Ok(Vec::new()) };
    if times.iter().all(|time| time == first) {
        return Ok(vec![(*first, rows.columns().to_vec(), rows.num_rows())]);
    }
    let mut places: BTreeMap<i64, Vec<u32>> = BTreeMap::new();
    for (place, time) in (0_u32..).zip(times) {
        places.entry(*time).or_default().push(place);
    }
    let picked = |(time, places): (i64, Vec<u32>)| {
        let count = places.len();
        let places = UInt32Array::from(places);
        let columns = rows.columns().iter().map(|column| take(column, &places, None));
        Ok((time, columns.collect::<std::result::Result<_, _>>()?, count))
    };
    places.into_iter().map(picked).collect()
}

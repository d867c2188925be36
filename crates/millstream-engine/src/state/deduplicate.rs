//! Deduplication: of the rows of a key only the first one is published.
//!
//! State is the set of keys that were seen. A key that contains an event time is evicted when
//! the watermark has passed it: later rows with it would be late. *Within the watermark* a key is
//! evicted when the watermark has passed its first row's time by the delay; later rows do not keep
//! it longer. Any other key is kept for ever.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, RecordBatch, TimestampMicrosecondArray, UInt32Array, new_null_array,
};
use arrow::compute::take_record_batch;
use arrow::datatypes::{FieldRef, Schema, SchemaRef, TimestampMicrosecondType};
use datafusion::common::Result;
use millstream_store::offset::BatchId;

use super::expiry_index::ExpiryIndex;
use super::keyed::{KeyFormat, ROWS_TOGETHER};
use super::late_rows;
use super::micro_batch::{MicroBatchFacts, Snapshot};
use super::shard::{Outcome, Shard, ShardSpec};
use super::sharded::Sharded;

/// An operator that lets the first row of each key through.
pub type Deduplicate = Sharded<Seen>;

/// What a deduplication consists of. Its input has the output's columns first, then the keys, then
/// the event time, a timestamp in microseconds, if there is one.
pub struct DeduplicateSpec {
    input: SchemaRef,
    output: SchemaRef,
    keys: Range<usize>,
    /// The column of the event time.
    time: Option<usize>,
    /// How long keys are kept.
    retention: Retention,
}

/// How long a key is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// It has no event time.
    ForEver,
    /// The event time is among the keys.
    UntilItsTime,
    /// Until so many microseconds after its first row's event time.
    After(i64),
}

impl DeduplicateSpec {
    /// `input` is the schema of the rows as the plan below gives them.
    pub fn new(
        input: &SchemaRef,
        output: SchemaRef,
        keys: Range<usize>,
        time: Option<usize>,
        retention: Retention,
    ) -> Self {
        // In a snapshot only keys and time have values.
        let fields = input.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
        let input = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        Self { input, output, keys, time, retention }
    }

    fn key_schema(&self) -> Schema {
        Schema::new(self.input.fields()[self.keys.clone()].to_vec())
    }

    /// The event times of rows.
    fn times(&self, rows: &RecordBatch) -> Option<TimestampMicrosecondArray> {
        let column = rows.column(self.time?);
        Some(column.as_primitive::<TimestampMicrosecondType>().clone())
    }

    /// When a key is evicted whose first row has this time; `None` for never.
    fn evicted_at(&self, time_us: Option<i64>) -> Option<i64> {
        match self.retention {
            Retention::ForEver => None,
            Retention::UntilItsTime => time_us,
            Retention::After(delay_us) => Some(time_us.unwrap_or(0).saturating_add(delay_us)),
        }
    }

    /// Rows with these keys and nothing else, each to be evicted at its time in `at`.
    fn rows_of(
        &self,
        keys: Vec<ArrayRef>,
        at: impl ExactSizeIterator<Item = Option<i64>>,
    ) -> Result<RecordBatch> {
        let nulls = |field: &FieldRef| new_null_array(field.data_type(), at.len());
        let mut columns: Vec<ArrayRef> = self.input.fields().iter().map(nulls).collect();
        if let Some(time) = self.time {
            let delay_us = match self.retention {
                Retention::After(delay_us) => delay_us,
                Retention::ForEver | Retention::UntilItsTime => 0,
            };
            // The inverse of `evicted_at`: when the snapshot is read the delay is added again.
            let times = at.map(|at| Some(at?.saturating_sub(delay_us)));
            let times = times.collect::<TimestampMicrosecondArray>();
            let data_type = self.input.field(time).data_type().clone();
            columns[time] = Arc::new(times.with_data_type(data_type));
        }
        for (place, key) in self.keys.clone().zip(keys) {
            columns[place] = key;
        }
        Ok(RecordBatch::try_new(Arc::clone(&self.input), columns)?)
    }
}

impl ShardSpec for DeduplicateSpec {
    fn name(&self) -> &'static str {
        match self.retention {
            Retention::After(_) => "dedupeWithinWatermark",
            _ => "dedupe",
        }
    }

    fn inputs(&self) -> Vec<SchemaRef> {
        vec![Arc::clone(&self.input)]
    }

    fn keys(&self, _: usize, columns: &[ArrayRef]) -> Vec<ArrayRef> {
        columns[self.keys.clone()].to_vec()
    }
}

/// The keys that were seen.
pub struct Seen {
    format: KeyFormat,
    keys: HashSet<Arc<[u8]>>,
    key_bytes: usize,
    /// The keys that are evicted, by the time at which they are.
    expiry: ExpiryIndex<Arc<[u8]>>,
    /// The micro-batch of the first key that is never evicted: the state log is needed from there.
    first: Option<BatchId>,
}

impl Shard for Seen {
    type Spec = DeduplicateSpec;

    fn new(spec: &DeduplicateSpec) -> Result<Self> {
        let format = KeyFormat::new(&Arc::new(spec.key_schema()))?;
        let (keys, expiry) = (HashSet::new(), ExpiryIndex::default());
        Ok(Self { format, keys, key_bytes: 0, expiry, first: None })
    }

    fn apply(
        &mut self,
        spec: &DeduplicateSpec,
        facts: &MicroBatchFacts,
        mut inputs: Vec<Vec<RecordBatch>>,
    ) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        let mut changes = Vec::new();
        for rows in inputs.pop().unwrap_or_default() {
            let before = rows.num_rows();
            let rows = without_late(spec, facts.watermark.late_us(), rows)?;
            outcome.late += (before - rows.num_rows()) as u64;
            let first_ones = self.first_ones(spec, facts.id, &rows)?;
            outcome.dropped += (rows.num_rows() - first_ones.num_rows()) as u64;
            if first_ones.num_rows() > 0 && facts.is_wanted {
                let columns = first_ones.columns()[..spec.output.fields().len()].to_vec();
                outcome.published.push(RecordBatch::try_new(Arc::clone(&spec.output), columns)?);
                changes.push(first_ones);
            }
        }
        // Duplicates change nothing, so the state log keeps the first rows alone.
        outcome.changes = Some(vec![changes]);
        outcome.removed = self.evict(facts.watermark.evict_us());
        Ok(outcome)
    }

    fn due_us(&self, _: &DeduplicateSpec) -> Option<i64> {
        // Evicting a key gives no rows, so it can wait until there are some.
        None
    }

    fn needs_from(&self) -> Option<BatchId> {
        self.expiry.first().into_iter().chain(self.first).min()
    }

    fn rows(&self) -> u64 {
        self.keys.len() as u64
    }

    fn bytes(&self) -> u64 {
        let entry_bytes = 2 * size_of::<Arc<[u8]>>() + 2 * size_of::<usize>();
        (self.key_bytes + self.keys.capacity() * entry_bytes + self.expiry.bytes(0)) as u64
    }

    fn snapshot(self, spec: &DeduplicateSpec) -> Result<Snapshot> {
        let mut staying = self.keys;
        let mut all = Vec::with_capacity(staying.len());
        for (at, keys) in self.expiry.into_all() {
            for key in keys {
                staying.remove(&key);
                all.push((key, Some(at)));
            }
        }
        all.extend(staying.into_iter().map(|key| (key, None)));
        let format = self.format;
        let rows = all.chunks(ROWS_TOGETHER).map(|keys| {
            let columns = format.columns(keys.iter().map(|(key, _)| &**key))?;
            spec.rows_of(columns, keys.iter().map(|(_, at)| *at))
        });
        Ok(vec![rows.collect::<Result<_>>()?])
    }
}

impl Seen {
    /// The rows whose keys were not seen before; they are now.
    fn first_ones(
        &mut self,
        spec: &DeduplicateSpec,
        id: BatchId,
        rows: &RecordBatch,
    ) -> Result<RecordBatch> {
        let keys = self.format.keys(&rows.columns()[spec.keys.clone()], rows.num_rows())?;
        let times = spec.times(rows);
        let mut places = Vec::new();
        for (place, key) in keys.iter().enumerate() {
            if self.keys.contains(key) {
                continue;
            }
            let key: Arc<[u8]> = key.into();
            self.key_bytes += key.len();
            self.keys.insert(Arc::clone(&key));
            places.push(u32::try_from(place).expect("a record batch has fewer rows"));
            let times = times.as_ref().filter(|times| times.is_valid(place));
            match spec.evicted_at(times.map(|times| times.value(place))) {
                None => _ = self.first.get_or_insert(id),
                Some(at) => self.expiry.add(at, id, key),
            }
        }
        if places.len() == rows.num_rows() {
            return Ok(rows.clone());
        }
        Ok(take_record_batch(rows, &UInt32Array::from(places))?)
    }

    fn evict(&mut self, evict_us: i64) -> u64 {
        let mut removed = 0;
        for key in self.expiry.take_until(evict_us) {
            self.keys.remove(&key);
            self.key_bytes -= key.len();
            removed += 1;
        }
        removed
    }
}

fn without_late(spec: &DeduplicateSpec, late_us: i64, rows: RecordBatch) -> Result<RecordBatch> {
    let Some(times) = spec.times(&rows) else { return Ok(rows) };
    late_rows::without(&times, late_us, rows)
}

#[cfg(test)]
mod tests {
    use arrow::array::Int64Array;
    use arrow::datatypes::{DataType, Field, Int64Type, TimeUnit};

    use super::*;
    use crate::state::watermark::Watermark;

    fn spec(retention: Retention) -> DeduplicateSpec {
        let time = DataType::Timestamp(TimeUnit::Microsecond, None);
        let input = Arc::new(Schema::new(vec![
            Field::new("k", DataType::Int64, false),
            Field::new("t", time, true),
        ]));
        let output = Arc::new(input.project(&[0]).unwrap());
        let keys = if retention == Retention::UntilItsTime { 0..2 } else { 0..1 };
        DeduplicateSpec::new(&input, output, keys, Some(1), retention)
    }

    fn rows(rows: &[(i64, i64)]) -> Vec<Vec<RecordBatch>> {
        let keys = Int64Array::from_iter_values(rows.iter().map(|(key, _)| *key));
        let times = rows.iter().map(|(_, second)| second * 1_000_000);
        let times = TimestampMicrosecondArray::from_iter_values(times);
        let spec = spec(Retention::ForEver);
        let columns: Vec<ArrayRef> = vec![Arc::new(keys), Arc::new(times)];
        vec![vec![RecordBatch::try_new(Arc::clone(&spec.input), columns).unwrap()]]
    }

    fn facts(id: u64, late_s: i64, evict_s: i64) -> MicroBatchFacts {
        let watermark = Watermark { late_ms: late_s * 1_000, evict_ms: evict_s * 1_000 };
        MicroBatchFacts::new(BatchId(id), watermark)
    }

    fn keys(outcome: &Outcome) -> Vec<i64> {
        let columns = outcome.published.iter().map(|rows| rows.column(0));
        columns.flat_map(|keys| keys.as_primitive::<Int64Type>().values().to_vec()).collect()
    }

    #[test]
    fn a_key_goes_on_once_and_is_forgotten_by_its_time() {
        for (retention, third) in [
            (Retention::ForEver, vec![3]),
            (Retention::UntilItsTime, vec![1, 2, 3]),
            (Retention::After(5_000_000), vec![1, 2, 3]),
            (Retention::After(50_000_000), vec![3]),
        ] {
            let spec = spec(retention);
            let mut seen = Seen::new(&spec).unwrap();
            let first = rows(&[(1, 10), (2, 11), (1, 10)]);
            let first = seen.apply(&spec, &facts(0, 0, 0), first).unwrap();
            assert_eq!((keys(&first), first.dropped), (vec![1, 2], 1), "{retention:?}");
            let late = seen.apply(&spec, &facts(1, 9, 20), rows(&[(5, 9), (1, 10)])).unwrap();
            assert_eq!((keys(&late), late.late), (vec![], 1), "{retention:?}");
            let then = seen.apply(&spec, &facts(2, 20, 20), rows(&[(1, 30), (2, 30), (3, 30)]));
            assert_eq!(keys(&then.unwrap()), third, "{retention:?}");
        }
    }

    #[test]
    fn a_snapshot_gives_the_same_keys_and_times() {
        for retention in [Retention::ForEver, Retention::UntilItsTime, Retention::After(5_000_000)]
        {
            let spec = spec(retention);
            let mut seen = Seen::new(&spec).unwrap();
            seen.apply(&spec, &facts(0, 0, 0), rows(&[(1, 10), (2, 11), (3, 12)])).unwrap();
            let snapshot = seen.snapshot(&spec).unwrap();
            let mut again = Seen::new(&spec).unwrap();
            let facts_of_snapshot = MicroBatchFacts::from_snapshot(BatchId(0));
            again.apply(&spec, &facts_of_snapshot, snapshot).unwrap();
            let then = rows(&[(1, 10), (3, 12), (4, 12)]);
            let then = again.apply(&spec, &facts(1, 0, 16), then).unwrap();
            assert_eq!(keys(&then), [4], "{retention:?}");
            let left = match retention {
                Retention::ForEver => 4,
                Retention::UntilItsTime => 0,
                Retention::After(_) => 2,
            };
            assert_eq!((again.rows(), then.removed), (left, 4 - left), "{retention:?}");
        }
    }
    #[test]
    fn a_snapshot_of_keys_with_times_of_their_own_is_one_record_batch() {
        let spec = spec(Retention::UntilItsTime);
        let mut seen = Seen::new(&spec).unwrap();
        let all: Vec<(i64, i64)> = (0..1_000).map(|key| (key, 10 + key)).collect();
        seen.apply(&spec, &facts(0, 0, 0), rows(&all)).unwrap();
        let snapshot = seen.snapshot(&spec).unwrap();
        let of_batches: Vec<usize> = snapshot[0].iter().map(RecordBatch::num_rows).collect();
        assert_eq!(of_batches, [1_000]);
    }
}

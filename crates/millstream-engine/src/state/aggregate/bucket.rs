//! The groups that close at one time.
//!
//! To close them is to make columns of all that they hold, and only then can what they held go. So
//! a bucket that has become large is divided into parts by the hash of its keys, and closes part by
//! part: beside the result there is one part in memory, and not all of them once more.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use datafusion::common::Result;
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use datafusion::physical_plan::aggregates::group_values::{GroupValues, new_group_values};
use datafusion::physical_plan::aggregates::order::GroupOrdering;
use millstream_store::offset::BatchId;

use super::spec::AggregateSpec;
use crate::state::codec::own_bytes;
use crate::state::spread::Spread;

/// A bucket that has more is divided. In unit tests that is any bucket that took a few rows.
const PART_BYTES: usize = if cfg!(test) { 256 } else { 32 << 20 };
/// Into how many parts.
const PARTS: usize = 16;

/// See the module's head.
pub struct Bucket {
    /// One, or [`PARTS`] of them by the hash of their keys.
    parts: Vec<Part>,
    /// Bytes of rows that it took since it was last measured.
    since_bytes: usize,
    /// The micro-batch that began it: the state log is needed from there.
    pub first: BatchId,
}

/// The groups of some keys of a bucket.
struct Part {
    /// `None` where there is no key beside the time: then there is one group.
    keys: Option<Box<dyn GroupValues>>,
    accumulators: Vec<Box<dyn GroupsAccumulator>>,
}

impl Bucket {
    /// An empty one.
    pub fn new(spec: &AggregateSpec, first: BatchId) -> Result<Self> {
        Ok(Self { parts: vec![Part::new(spec)?], since_bytes: 0, first })
    }

    /// Merges partial rows, of which there are `rows`.
    pub fn merge(
        &mut self,
        spec: &AggregateSpec,
        columns: Vec<ArrayRef>,
        rows: usize,
        scratch: &mut Vec<usize>,
    ) -> Result<()> {
        if let [part] = &mut *self.parts {
            self.since_bytes += columns.iter().map(own_bytes).sum::<usize>();
            part.merge(spec, &columns, rows, scratch)?;
            return if self.since_bytes > PART_BYTES { self.divide_if_large(spec) } else { Ok(()) };
        }
        let rows = RecordBatch::try_new(Arc::clone(spec.input()), columns)?;
        self.merge_into_parts(spec, &rows, scratch)
    }

    fn merge_into_parts(
        &mut self,
        spec: &AggregateSpec,
        rows: &RecordBatch,
        scratch: &mut Vec<usize>,
    ) -> Result<()> {
        let keys = |rows: &RecordBatch| spec.other_columns(rows.columns());
        let shares = Spread::within_shard(PARTS).rows(std::slice::from_ref(rows), keys)?;
        for (part, share) in self.parts.iter_mut().zip(shares) {
            for rows in share {
                part.merge(spec, rows.columns(), rows.num_rows(), scratch)?;
            }
        }
        Ok(())
    }

    /// Divides it where it has become large and has keys to be divided by.
    fn divide_if_large(&mut self, spec: &AggregateSpec) -> Result<()> {
        self.since_bytes = 0;
        if self.parts[0].keys.is_none() || self.bytes() <= PART_BYTES {
            return Ok(());
        }
        let whole = self.parts.remove(0);
        self.parts = (0..PARTS).map(|_| Part::new(spec)).collect::<Result<_>>()?;
        // The time is a key among others, and the parts do not look at it.
        let rows = whole.partial_rows(spec, 0)?;
        self.merge_into_parts(spec, &rows, &mut Vec::new())
    }

    /// How many groups it has.
    pub fn groups(&self) -> usize {
        self.parts.iter().map(Part::groups).sum()
    }

    /// Its memory, in bytes.
    pub fn bytes(&self) -> usize {
        self.parts.iter().map(Part::bytes).sum()
    }

    /// The results of its groups, which close at `at`, in microseconds since the epoch.
    pub fn close(self, spec: &AggregateSpec, at: i64) -> Result<Vec<RecordBatch>> {
        self.filled().map(|part| part.close(spec, at)).collect()
    }

    /// Its groups as rows that another bucket can merge.
    pub fn partial_rows(self, spec: &AggregateSpec, at: i64) -> Result<Vec<RecordBatch>> {
        self.filled().map(|part| part.partial_rows(spec, at)).collect()
    }

    fn filled(self) -> impl Iterator<Item = Part> {
        let is_only = self.parts.len() == 1;
        self.parts.into_iter().filter(move |part| is_only || part.groups() > 0)
    }
}

impl Part {
    fn new(spec: &AggregateSpec) -> Result<Self> {
        let others = spec.others();
        let keys = if others.fields().is_empty() {
            None
        } else {
            Some(new_group_values(Arc::clone(others), &GroupOrdering::None)?)
        };
        Ok(Self { keys, accumulators: spec.accumulators()? })
    }

    fn merge(
        &mut self,
        spec: &AggregateSpec,
        columns: &[ArrayRef],
        rows: usize,
        scratch: &mut Vec<usize>,
    ) -> Result<()> {
        scratch.clear();
        match &mut self.keys {
            Some(keys) => keys.intern(&spec.other_columns(columns), scratch)?,
            None => scratch.resize(rows, 0),
        }
        let total = self.groups();
        spec.merge(&mut self.accumulators, columns, scratch, total)
    }

    fn groups(&self) -> usize {
        self.keys.as_ref().map_or(1, |keys| keys.len())
    }

    fn bytes(&self) -> usize {
        let accumulators = self.accumulators.iter().map(|accumulator| accumulator.size());
        self.keys.as_ref().map_or(0, |keys| keys.size()) + accumulators.sum::<usize>()
    }

    /// The group columns of its partial rows.
    fn emit_keys(&mut self, spec: &AggregateSpec, at: i64) -> Result<Vec<ArrayRef>> {
        let groups = self.groups();
        let others = self.keys.as_mut().map_or(Ok(Vec::new()), |keys| keys.emit(EmitTo::All))?;
        Ok(spec.key_columns(others, at, groups))
    }

    fn close(mut self, spec: &AggregateSpec, at: i64) -> Result<RecordBatch> {
        let keys = self.emit_keys(spec, at)?;
        spec.results(&keys, &mut self.accumulators)
    }

    fn partial_rows(mut self, spec: &AggregateSpec, at: i64) -> Result<RecordBatch> {
        let keys = self.emit_keys(spec, at)?;
        spec.states(keys, &mut self.accumulators)
    }
}

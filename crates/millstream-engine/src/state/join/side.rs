//! The rows of one side of a join: by key, and by the time at which they are evicted.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::TimestampMicrosecondType;
use datafusion::common::Result;
use millstream_store::offset::BatchId;

use super::spec::SideSpec;
use super::trues;
use crate::state::expiry_index::ExpiryIndex;
use crate::state::keyed::{Key, KeyFormat, Keys};
use crate::state::late_rows;
use crate::state::retained_micro_batches::RetainedMicroBatches;
use crate::state::row_log::RowLog;

/// See the module's head.
pub struct Side {
    format: KeyFormat,
    rows: RowLog,
    by_key: HashMap<Key, Vec<u64>>,
    key_bytes: usize,
    /// By time, microseconds since the epoch, the rows that are evicted then.
    expiry: ExpiryIndex<u64>,
    /// By row, the earlier micro-batch of the partner that it met when it came. The partner may be
    /// evicted first, but without it a replay of the state log would not mark the row.
    partners: HashMap<u64, BatchId>,
    /// Those micro-batches.
    partners_from: RetainedMicroBatches,
}

/// A micro-batch's rows of a side, without late ones.
pub struct Fresh {
    pub(super) rows: RecordBatch,
    /// By row, whether it has met a partner.
    pub(super) is_marked: Vec<bool>,
    /// By row, the last micro-batch with a partner that it has met.
    pub(super) met_in: Vec<Option<BatchId>>,
    keys: Keys,
    /// By row, whether a key is null: null equals nothing, so such a row has no partner.
    is_null: Vec<bool>,
}

/// Rows that were evicted.
pub struct Evicted {
    pub(super) rows: RecordBatch,
    pub(super) is_marked: Vec<bool>,
}

impl Fresh {
    /// The key of a row; `None` where it is null.
    pub(super) fn key(&self, place: usize) -> Option<&[u8]> {
        (!self.is_null[place]).then(|| self.keys.at(place))
    }
}

impl Side {
    pub(super) fn new(spec: &SideSpec) -> Result<Self> {
        Ok(Self {
            format: KeyFormat::new(&spec.key_schema())?,
            rows: RowLog::new(Arc::clone(&spec.input)),
            by_key: HashMap::new(),
            key_bytes: 0,
            expiry: ExpiryIndex::default(),
            partners: HashMap::new(),
            partners_from: RetainedMicroBatches::default(),
        })
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn bytes(&self) -> usize {
        let entry_bytes = size_of::<(Key, Vec<u64>)>() + 1;
        let index = self.by_key.capacity() * entry_bytes + self.key_bytes;
        let partners = self.partners.capacity() * (size_of::<(u64, BatchId)>() + 1);
        self.rows.bytes() + index + partners + 2 * self.rows.len() * size_of::<u64>()
    }

    /// The first micro-batch that has a row, or what its mark follows from.
    pub(super) fn first(&self) -> Option<BatchId> {
        self.rows.first().into_iter().chain(self.partners_from.first()).min()
    }

    pub(super) fn micro_batch(&self, number: u64) -> BatchId {
        self.rows.micro_batch(number)
    }

    /// The rows that are not late, and how many are; `None` where there are none at all.
    pub(super) fn fresh(
        &self,
        spec: &SideSpec,
        rows: Vec<RecordBatch>,
        late_us: i64,
    ) -> Result<Option<(Fresh, u64)>> {
        if rows.iter().all(|rows| rows.num_rows() == 0) {
            return Ok(None);
        }
        let all = concat_batches(&rows[0].schema(), &rows)?;
        let before = all.num_rows();
        let rows = match spec.late {
            None => all,
            Some(column) => {
                let times = all.column(column).as_primitive::<TimestampMicrosecondType>().clone();
                late_rows::without(&times, late_us, all)?
            }
        };
        let columns = spec.key_columns(rows.columns());
        let keys = self.format.keys(&columns, rows.num_rows())?;
        let is_null = nulls(&columns, rows.num_rows());
        let is_marked = trues(rows.column(spec.mark));
        let late = (before - rows.num_rows()) as u64;
        let met_in = vec![None; rows.num_rows()];
        Ok(Some((Fresh { rows, is_marked, met_in, keys, is_null }, late)))
    }

    /// The rows with a key.
    pub(super) fn with_key(&self, key: &[u8]) -> &[u64] {
        self.by_key.get(key).map_or(&[], Vec::as_slice)
    }

    pub(super) fn rows(&self, numbers: &[u64]) -> Result<RecordBatch> {
        self.rows.rows(numbers)
    }

    pub(super) fn mark(&mut self, number: u64) -> bool {
        self.rows.mark(number)
    }

    /// Keeps the rows of a micro-batch.
    pub(super) fn keep(&mut self, spec: &SideSpec, id: BatchId, fresh: Fresh) -> Result<()> {
        let times = spec.evict.map(|evict| {
            let times = fresh.rows.column(evict.column);
            times.as_primitive::<TimestampMicrosecondType>().clone()
        });
        let first = self.rows.add(id, fresh.rows.clone(), fresh.is_marked.clone())?;
        for (number, place) in (first..).zip(0..fresh.rows.num_rows()) {
            if let Some(key) = fresh.key(place) {
                match self.by_key.get_mut(key) {
                    Some(numbers) => numbers.push(number),
                    None => {
                        self.key_bytes += key.len();
                        self.by_key.insert(key.into(), vec![number]);
                    }
                }
            }
            if let Some(times) = times.as_ref().filter(|times| times.is_valid(place)) {
                self.expiry.add(times.value(place), id, number);
            }
            if let Some(earlier) = fresh.met_in[place].filter(|met_in| *met_in < id) {
                self.partners.insert(number, earlier);
                self.partners_from.add(earlier, 1);
            }
        }
        Ok(())
    }

    /// The watermark that evicts the first row.
    pub(super) fn due_us(&self, spec: &SideSpec) -> Option<i64> {
        Some(self.expiry.next_us()?.saturating_sub(spec.evict?.offset_us))
    }

    /// Evicts the rows that the watermark has passed.
    pub(super) fn evict(&mut self, spec: &SideSpec, evict_us: i64) -> Result<Option<Evicted>> {
        if self.due_us(spec).is_none_or(|due_us| due_us > evict_us) {
            return Ok(None);
        }
        let Some(evict) = spec.evict else { return Ok(None) };
        let numbers: Vec<u64> = self.expiry.take_until(evict.bound_us(evict_us)).collect();
        let rows = self.rows.rows(&numbers)?;
        let is_marked = numbers.iter().map(|number| self.rows.is_marked(*number)).collect();
        let columns = spec.key_columns(rows.columns());
        let keys = self.format.keys(&columns, rows.num_rows())?;
        let is_null = nulls(&columns, rows.num_rows());
        for ((number, key), is_null) in numbers.iter().zip(keys.iter()).zip(is_null) {
            if !is_null {
                self.unindex(key, *number);
            }
        }
        self.rows.remove(&numbers)?;
        for number in &numbers {
            if let Some(earlier) = self.partners.remove(number) {
                self.partners_from.remove(earlier);
            }
        }
        Ok(Some(Evicted { rows, is_marked }))
    }

    fn unindex(&mut self, key: &[u8], number: u64) {
        let Some(numbers) = self.by_key.get_mut(key) else { return };
        // Rows are added and evicted in about the same order, so the search ends soon.
        if let Some(at) = numbers.iter().position(|other| *other == number) {
            numbers.remove(at);
        }
        if numbers.is_empty() {
            self.by_key.remove(key);
            self.key_bytes -= key.len();
        }
    }

    /// All rows, with their marks in their column.
    pub(super) fn snapshot(self, spec: &SideSpec) -> Result<Vec<RecordBatch>> {
        let with_marks = |(rows, marks): (RecordBatch, Vec<bool>)| {
            let mut columns = rows.columns().to_vec();
            columns[spec.mark] = Arc::new(BooleanArray::from(marks));
            Ok(RecordBatch::try_new(rows.schema(), columns)?)
        };
        self.rows.all()?.into_iter().map(with_marks).collect()
    }
}

fn nulls(columns: &[ArrayRef], rows: usize) -> Vec<bool> {
    let mut is_null = vec![false; rows];
    for column in columns.iter().filter(|column| column.null_count() > 0) {
        for (at, is_null) in is_null.iter_mut().enumerate() {
            *is_null |= column.is_null(at);
        }
    }
    is_null
}

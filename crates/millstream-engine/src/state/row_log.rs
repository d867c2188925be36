//! Rows by number: state that is added, looked up and removed row by row.
//!
//! Rows stay in the record batches in which they came, *chunks* of ascending numbers. Small chunks
//! are merged with those before them, so that there are few, and each row is copied a number of
//! times that is the logarithm of how many there are. Merging does not change numbers, so indexes
//! that hold them stay valid. Removed rows are dropped when chunks are merged, or when they are
//! more than half of their chunk.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::{concat_batches, filter_record_batch};
use arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use millstream_store::offset::BatchId;

use super::keyed::{ROWS_TOGETHER, gather};
use super::retained_micro_batches::RetainedMicroBatches;

/// Chunks of fewer rows than this are not worth tidying by themselves.
const TIDY_ROWS_MIN: usize = 1_024;
/// Fewer starts of micro-batches are not worth tidying.
const STARTS_TIDY_MIN: usize = 64;

/// See the module's head.
pub struct RowLog {
    schema: SchemaRef,
    chunks: Vec<Chunk>,
    next: u64,
    live: usize,
    /// By micro-batch, how many of its rows are there.
    firsts: RetainedMicroBatches,
    /// The first number of each micro-batch, ascending.
    starts: VecDeque<(u64, BatchId)>,
}

struct Chunk {
    /// Ascending.
    numbers: Vec<u64>,
    rows: RecordBatch,
    is_live: Vec<bool>,
    is_marked: Vec<bool>,
    live: usize,
}

impl RowLog {
    /// No rows yet; they will have `schema`.
    pub fn new(schema: SchemaRef) -> Self {
        let (chunks, firsts, starts) =
            (Vec::new(), RetainedMicroBatches::default(), VecDeque::new());
        Self { schema, chunks, next: 0, live: 0, firsts, starts }
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.live
    }

    /// Memory of the rows, about, in bytes.
    pub fn bytes(&self) -> usize {
        let of = |chunk: &Chunk| {
            chunk.rows.get_array_memory_size() + chunk.numbers.len() * (size_of::<u64>() + 2)
        };
        self.chunks.iter().map(of).sum()
    }

    /// The first micro-batch of which a row is there.
    pub fn first(&self) -> Option<BatchId> {
        self.firsts.first()
    }

    /// Adds rows of the micro-batch `id`, some of them marked; gives the first one's number. The
    /// others follow.
    pub fn add(&mut self, id: BatchId, rows: RecordBatch, is_marked: Vec<bool>) -> Result<u64> {
        let (first, count) = (self.next, rows.num_rows());
        if count == 0 {
            return Ok(first);
        }
        let columns = rows.columns().to_vec();
        let rows = RecordBatch::try_new(Arc::clone(&self.schema), columns)?;
        self.next += count as u64;
        self.live += count;
        self.firsts.add(id, count);
        self.starts.push_back((first, id));
        let (numbers, is_live) = ((first..self.next).collect(), vec![true; count]);
        self.chunks.push(Chunk { numbers, rows, is_live, is_marked, live: count });
        self.merge_small()?;
        Ok(first)
    }

    /// Rows by their numbers, which are there.
    pub fn rows(&self, numbers: &[u64]) -> Result<RecordBatch> {
        if numbers.is_empty() {
            return Ok(RecordBatch::new_empty(Arc::clone(&self.schema)));
        }
        let places: Vec<_> = numbers.iter().map(|number| self.place(*number)).collect();
        gather(&places, |chunk| &self.chunks[chunk].rows)
    }

    /// All rows, and which are marked.
    pub fn all(self) -> Result<Vec<(RecordBatch, Vec<bool>)>> {
        let chunks = self.chunks.into_iter();
        chunks.map(|chunk| chunk.tidied().map(|chunk| (chunk.rows, chunk.is_marked))).collect()
    }

    /// Marks a row; whether it was not before.
    pub fn mark(&mut self, number: u64) -> bool {
        let (chunk, at) = self.place(number);
        !std::mem::replace(&mut self.chunks[chunk].is_marked[at], true)
    }

    /// Whether a row is marked.
    pub fn is_marked(&self, number: u64) -> bool {
        let (chunk, at) = self.place(number);
        self.chunks[chunk].is_marked[at]
    }

    /// The micro-batch that a row came with.
    pub fn micro_batch(&self, number: u64) -> BatchId {
        self.starts[self.start(number)].1
    }

    /// Removes rows by their numbers, which must exist.
    pub fn remove(&mut self, numbers: &[u64]) -> Result<()> {
        for number in numbers {
            let (chunk, at) = self.place(*number);
            let chunk = &mut self.chunks[chunk];
            chunk.is_live[at] = false;
            chunk.live -= 1;
            self.count_down(*number);
        }
        self.live -= numbers.len();
        for chunk in &mut self.chunks {
            let rows = chunk.numbers.len();
            if chunk.live > 0 && rows >= TIDY_ROWS_MIN && chunk.live * 2 < rows {
                chunk.tidy()?;
            }
        }
        self.chunks.retain(|chunk| chunk.live > 0);
        Ok(())
    }

    /// Where the start of a row's micro-batch is.
    fn start(&self, number: u64) -> usize {
        self.starts.partition_point(|(first, _)| *first <= number) - 1
    }

    fn count_down(&mut self, number: u64) {
        let id = self.micro_batch(number);
        self.firsts.remove(id);
        while self.starts.front().is_some_and(|(_, id)| !self.firsts.has(*id)) {
            self.starts.pop_front();
        }
        // One row that stays for long keeps the front in place while later micro-batches end; their
        // starts would pile up behind it.
        if self.starts.len() > STARTS_TIDY_MIN + 2 * self.firsts.len() {
            let firsts = &self.firsts;
            self.starts.retain(|(_, id)| firsts.has(*id));
        }
    }

    fn place(&self, number: u64) -> (usize, usize) {
        let chunk = self.chunks.partition_point(|chunk| chunk.numbers[0] <= number) - 1;
        let numbers = &self.chunks[chunk].numbers;
        // Where no row of the chunk was dropped the place follows from the number; otherwise it is
        // searched.
        let at = usize::try_from(number - numbers[0]).unwrap_or(usize::MAX);
        if numbers.get(at) == Some(&number) {
            return (chunk, at);
        }
        (chunk, numbers.partition_point(|other| *other < number))
    }

    /// Merges the last chunks while one is not much smaller than the one before.
    fn merge_small(&mut self) -> Result<()> {
        while let [.., before, last] = &self.chunks[..]
            && last.live * 2 >= before.live
            && last.live + before.live <= ROWS_TOGETHER
        {
            let last = self.chunks.pop().expect("there are two").tidied()?;
            let before = self.chunks.pop().expect("there are two").tidied()?;
            self.chunks.push(before.and(last)?);
        }
        Ok(())
    }
}

impl Chunk {
    fn tidied(mut self) -> Result<Self> {
        self.tidy()?;
        Ok(self)
    }

    fn tidy(&mut self) -> Result<()> {
        if self.live == self.numbers.len() {
            return Ok(());
        }
        self.rows = filter_record_batch(&self.rows, &BooleanArray::from(self.is_live.clone()))?;
        let mut live = self.is_live.iter();
        self.numbers.retain(|_| *live.next().expect("one for each"));
        let mut live = self.is_live.iter();
        self.is_marked.retain(|_| *live.next().expect("one for each"));
        self.is_live = vec![true; self.live];
        Ok(())
    }

    fn and(mut self, other: Self) -> Result<Self> {
        self.rows = concat_batches(&self.rows.schema(), [&self.rows, &other.rows])?;
        self.numbers.extend(other.numbers);
        self.is_live.extend(other.is_live);
        self.is_marked.extend(other.is_marked);
        self.live += other.live;
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use arrow::array::{AsArray, Int64Array};
    use arrow::datatypes::{DataType, Field, Int64Type, Schema};
    use proptest::prelude::*;

    use super::*;

    fn schema() -> SchemaRef {
        Arc::new(Schema::new(vec![Field::new("v", DataType::Int64, false)]))
    }

    fn rows(values: &[i64]) -> RecordBatch {
        let values = Int64Array::from(values.to_vec());
        RecordBatch::try_new(schema(), vec![Arc::new(values)]).unwrap()
    }

    fn values(rows: &RecordBatch) -> Vec<i64> {
        rows.column(0).as_primitive::<Int64Type>().values().to_vec()
    }

    proptest! {
        #[test]
        fn rows_are_found_by_their_numbers_whatever_was_removed(
            steps in proptest::collection::vec((1..40_usize, 0..60_usize), 1..60)
        ) {
            let mut log = RowLog::new(schema());
            let mut known: BTreeMap<u64, (i64, u64)> = BTreeMap::new();
            for (id, (adds, removes)) in (0_u64..).zip(steps) {
                let new: Vec<i64> = (0_i64..).take(adds).map(|v| v + 1_000 * id as i64).collect();
                let first = log.add(BatchId(id), rows(&new), vec![false; adds]).unwrap();
                known.extend((first..).zip(new.into_iter().map(|value| (value, id))));
                let gone: Vec<u64> =
                    known.keys().copied().step_by(2).take(removes).collect();
                log.remove(&gone).unwrap();
                known.retain(|number, _| !gone.contains(number));
                let numbers: Vec<u64> = known.keys().rev().copied().collect();
                let expected: Vec<i64> = known.values().rev().map(|(value, _)| *value).collect();
                prop_assert_eq!(values(&log.rows(&numbers).unwrap()), expected);
                prop_assert_eq!(log.len(), known.len());
                let first = known.values().map(|(_, id)| BatchId(*id)).min();
                prop_assert_eq!(log.first(), first);
                prop_assert!(log.chunks.len() < 16, "{} chunks", log.chunks.len());
            }
        }
    }

    #[test]
    fn marks_stay_with_their_rows() {
        let mut log = RowLog::new(schema());
        log.add(BatchId(0), rows(&[0, 1, 2, 3]), vec![false, true, false, false]).unwrap();
        assert!(log.mark(3) && !log.mark(3) && log.is_marked(1) && !log.is_marked(2));
        log.remove(&[0, 2]).unwrap();
        log.add(BatchId(1), rows(&[4, 5]), vec![false; 2]).unwrap();
        let all = log.all().unwrap();
        let all: Vec<_> = all
            .into_iter()
            .flat_map(|(rows, marks)| values(&rows).into_iter().zip(marks))
            .collect();
        assert_eq!(all, [(1, true), (3, true), (4, false), (5, false)]);
    }
}

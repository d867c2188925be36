//! Sources: where rows come from. Steps 1 and 2 of a micro-batch.
//!
//! A source reads ahead all the time, so that the driver never waits for a network round trip to
//! learn what is new. [`Source::poll`] hands over what has arrived as [`Split`]s together with the
//! offset they end at; the driver logs that offset as the micro-batch's intent. A split is not
//! decoded yet: decoding happens in the plan's scan, in parallel, and only for the columns that
//! the query reads.
//!
//! A source can replay: given two offsets of its own it produces the same rows again, which is
//! what recovery rests on.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
pub use millstream_store::error::{Classified, Failure, Kind};
pub use millstream_store::offset::SourceOffset;
pub use millstream_store::source_log::SourceLog;

use super::dead_letter::Letter;
use super::filter::Filter;
use super::snapshot::{HeldRows, Snapshot};

/// A piece of a micro-batch's input that is read by one task, in order.
pub trait Split: Send {
    /// How many rows the split has, before any is dropped as malformed.
    fn rows(&self) -> u64;

    /// Which of the source's partitions the rows are from, for example of a Kafka topic; its rows
    /// are in order among themselves. `None` where the source has no partitions.
    fn partition(&self) -> Option<SourcePartition> {
        None
    }

    /// Decodes the split into record batches with the columns `projection` (indices into
    /// [`Source::schema`], in that order; empty means rows without columns).
    fn read(self: Box<Self>, projection: &[usize]) -> RecordBatches;

    /// Decodes the split as [`read`](Self::read) does, but for records that cannot be decoded:
    /// whatever their table's mode, those go to `letters`, in order, and not into the rows.
    /// To be written where a record can be malformed.
    fn read_with_letters(
        self: Box<Self>,
        projection: &[usize],
        _letters: &mut Vec<Letter>,
    ) -> Result<Vec<RecordBatch>, Failure> {
        self.read(projection).collect()
    }

    /// The records that are read, to be looked at one by one where a plan fails with one of them.
    /// It is asked for before every reading, and so has to cost next to nothing. Empty where
    /// nobody can tell one record from another.
    fn records(&self) -> Vec<Arc<dyn Records>> {
        Vec::new()
    }
}

/// Records of one partition, in order, that can be read more than once.
pub trait Records: Send + Sync {
    /// As [`Split::partition`].
    fn partition(&self) -> Option<SourcePartition> {
        None
    }

    /// Decodes the records into rows with the columns `projection`, as [`Split::read`] has, or
    /// where they are read `apart` [`Split::read_with_letters`]. What is malformed and left out was
    /// told then.
    fn read(&self, projection: &[usize], apart: bool) -> Result<Vec<Traced>, Failure>;

    /// What the columns are called in the query, where rows have other names for them.
    fn names(&self) -> Option<&[String]> {
        None
    }

    /// The record `number` as a dead letter, without an error. Where it has neither bytes of its
    /// own nor a key, the payload is `None`.
    fn letter(&self, number: u64) -> Result<Letter, Failure>;
}

/// Rows, and which of their [`Records`] each was made of.
pub struct Traced {
    /// The rows.
    pub rows: RecordBatch,
    /// By row, the number of its record.
    pub numbers: Vec<u64>,
}

impl Traced {
    /// Rows that were made of the records from `first` on, one of each.
    pub fn in_order(rows: RecordBatch, first: u64) -> Self {
        let numbers = (first..).take(rows.num_rows()).collect();
        Self { rows, numbers }
    }

    /// As [`Self::in_order`], for all rows of a split whose first record is `first`.
    pub fn all_in_order(read: RecordBatches, first: u64) -> Result<Vec<Self>, Failure> {
        let mut next = first;
        let traced = read.map(|rows| {
            let traced = Self::in_order(rows?, next);
            next += traced.numbers.len() as u64;
            Ok(traced)
        });
        traced.collect()
    }
}

/// Names one of a source's partitions, the same in every micro-batch of a run.
pub type SourcePartition = u64;

/// Record batches of one split, in order, each of at most some thousand rows.
pub type RecordBatches = Box<dyn Iterator<Item = Result<RecordBatch, Failure>> + Send>;

/// What a source hands over for one micro-batch.
pub struct InputBatch {
    /// Where the micro-batch ends for this source, exclusive. Goes to the offset log.
    pub end: SourceOffset,
    /// Rows in all splits together, before decoding.
    pub rows: u64,
    /// The input itself. Rows of one Kafka partition never spread over two splits of one
    /// micro-batch out of order: splits are given out in order and each is read in order.
    pub splits: Vec<Box<dyn Split>>,
    /// When the oldest row arrived here, microseconds since the epoch; the start of its latency.
    pub oldest_arrival_us: i64,
}

/// Where a new query begins to read a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beginning {
    /// The option that decides it, as a user would write it.
    pub option: String,
    /// Whether rows that are there already may be left out.
    pub may_skip: bool,
}

/// How much one micro-batch takes. Origin: the read limits of Spark's sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadLimit {
    /// At most what the table's options say (`maxOffsetsPerTrigger`, `maxFilesPerTrigger`).
    Configured,
    /// All that has arrived: the `once` trigger ignores those options.
    AllAvailable,
}

/// A source that can be read in offset ranges, by one query.
///
/// The driver's order of calls is: `open`; then `replay` if a logged micro-batch was not published;
/// then `start`; then any number of `data_available`, `poll` and `committed`; then `close`. For the
/// triggers `once` and `availableNow`, and for a batch query, `fix_end` is called after `start` and
/// `poll` gives nothing beyond that end. Once the query has failed, `replay` may be called again
/// before `close`, to find a record.
#[async_trait]
pub trait Source: Send {
    /// What the source is, in Spark's words, for example `KafkaV2[Subscribe[in]]`.
    fn description(&self) -> String;

    /// All columns that splits can be asked for.
    fn schema(&self) -> SchemaRef;

    /// Connects, and says where a new query starts.
    ///
    /// `position` is `None` for a new query, else the offset to go on from, which the source
    /// checks and returns. `log` is the source's private part of the checkpoint.
    async fn open(
        &mut self,
        position: Option<&SourceOffset>,
        log: SourceLog,
    ) -> Result<SourceOffset, Failure>;

    /// Reads exactly the rows from `start` to `end` (exclusive) again; waits until it has them.
    async fn replay(
        &mut self,
        start: Option<&SourceOffset>,
        end: &SourceOffset,
    ) -> Result<InputBatch, Failure>;

    /// Where the table's options say that a new query begins; `None` where there is no choice.
    fn beginning(&self) -> Option<Beginning> {
        None
    }

    /// Whether an offset says all that is needed to read on from it, without the source's part of
    /// the checkpoint.
    fn offsets_stand_alone(&self) -> bool {
        false
    }

    /// Begins to read ahead from `position`, or from the start of a new query where `None`.
    async fn start(&mut self, position: &SourceOffset) -> Result<(), Failure>;

    /// Sets the end of the query to what is there now.
    async fn fix_end(&mut self) -> Result<(), Failure>;

    /// True once everything before the fixed end has been taken. Always false without one.
    fn at_end(&self) -> bool;

    /// Hands over what has arrived and was not taken yet, or `None`. Never waits.
    fn poll(&mut self, limit: ReadLimit) -> Result<Option<InputBatch>, Failure>;

    /// Completes when `poll` would give something, or fail, or the source is `at_end`.
    /// Dropping the future loses nothing.
    async fn data_available(&mut self);

    /// The partitions of which more rows are there than were taken: what is known of them now. A
    /// watermark waits for them, so that rows are not late because they were read later.
    fn partitions_behind(&self) -> Vec<SourcePartition> {
        Vec::new()
    }

    /// Every micro-batch up to `end` is published, and its commit entry is on its way to the log.
    fn committed(&mut self, end: &SourceOffset);

    /// The newest offset the outside is known to have, if the source knows one; for lag.
    fn latest(&self) -> Option<SourceOffset> {
        None
    }

    /// Counters for progress, by name: for example `rowsMalformed`, `offsetsBehindLatest`.
    fn metrics(&self) -> BTreeMap<String, u64> {
        BTreeMap::new()
    }

    /// Stops reading ahead and lets go of connections.
    async fn close(&mut self);
}

/// A table at rest: read whole as the static side of a join, or piece by piece as the input of a
/// batch query.
#[async_trait]
pub trait StaticTable: Send + Sync {
    /// The table's columns.
    fn schema(&self) -> SchemaRef;

    /// Changes whenever the content may have changed; cheap enough to ask every second.
    async fn fingerprint(&self) -> Result<String, Failure>;

    /// All rows. A file half-written or unreadable is an error, never a part of the rows.
    async fn read(&self) -> Result<Vec<RecordBatch>, Failure>;

    /// The records that [`read`](Self::read) makes its rows of, to be looked at one by one where a
    /// query fails with one of them. Empty where nobody can tell one from another.
    async fn records(&self) -> Result<Vec<Arc<dyn Records>>, Failure> {
        Ok(Vec::new())
    }

    /// At least the rows for which all `filters` hold. To be written where that saves reading.
    async fn read_where(&self, _filters: &[Filter]) -> Result<Vec<RecordBatch>, Failure> {
        self.read().await
    }

    /// The table as it is now, to be read piece by piece. To be written where the rows need not be
    /// in memory together.
    async fn snapshot(&self) -> Result<Arc<dyn Snapshot>, Failure> {
        Ok(Arc::new(HeldRows::new(self.read().await?)))
    }
}

//! Sinks: where rows go. Step 5 of a micro-batch.
//!
//! Publishing has two halves. [`Sink::publish`] hands a whole micro-batch over, in order; the
//! [`Acknowledgement`] it returns completes when the outside has accepted it. The driver may hand
//! over micro-batch N+1 before N is acknowledged, so a round trip to a broker delays nobody, and
//! it writes commit entries in order as acknowledgements come in.

use std::error::Error;
use std::fmt;

use arrow::array::RecordBatch;
use async_trait::async_trait;
use futures::future::BoxFuture;
pub use millstream_store::error::{Classified, Failure, Kind};
pub use millstream_store::offset::{BatchId, SourceOffset};

/// One micro-batch's result, to be published whole.
pub struct Output {
    /// The micro-batch's number. A replay has the same number as the first attempt.
    pub batch_id: BatchId,
    /// The result, by plan partition; order within a partition is the source's.
    pub partitions: Vec<Vec<RecordBatch>>,
    /// Where the query stands once this is published.
    pub end_offsets: EndOffsets,
}

/// Where a query stands after a micro-batch: what its entry in the offset log says. A sink that
/// answers publishes it together with the rows, and does not look into it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndOffsets {
    /// Where each source was read to, exclusive, in plan order; `None` before its first offset.
    pub ends: Vec<Option<SourceOffset>>,
    /// The micro-batch's time, milliseconds since the epoch.
    pub batch_time_ms: i64,
}

/// The last micro-batch that a sink has published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// Its number.
    pub batch_id: BatchId,
    /// Where the query stood after it; `None` from a sink that keeps only the number.
    pub end_offsets: Option<EndOffsets>,
}

/// Another query that a table knows to have published to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherQuery {
    /// Its id, without what a query's second sink adds to it.
    pub query_id: String,
    /// The flow's name, where the table knows it.
    pub flow: Option<String>,
    /// The last micro-batch that it published there.
    pub batch_id: BatchId,
    /// When, milliseconds since the epoch, where the table knows it.
    pub at_ms: Option<i64>,
}

/// A row that a sink refuses, now and whenever it gets it again: a record of it is too large, say.
/// A sink knows the row and not what it was made of: that is found out by whoever runs the query.
pub struct RefusedRow {
    cause: Box<dyn Classified>,
    is_among: Box<dyn Fn(&RecordBatch) -> bool + Send + Sync>,
    /// The sink, among those of the query.
    pub(crate) sink: usize,
}

impl RefusedRow {
    /// What the sink says of the row, and whether the row, or one that the sink refuses for the
    /// same reason, is among rows of its columns.
    pub fn new(
        cause: impl Classified,
        is_among: impl Fn(&RecordBatch) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self { cause: Box::new(cause), is_among: Box::new(is_among), sink: 0 }
    }

    /// Whether the row is among `rows`.
    pub fn is_among(&self, rows: &RecordBatch) -> bool {
        (self.is_among)(rows)
    }

    /// `failure` with the sink that it came from, where it is about a refused row.
    pub(crate) fn of_sink(failure: Failure, sink: usize) -> Failure {
        match failure.downcast::<Self>() {
            Ok(refused) => Self { sink, ..refused }.into(),
            Err(other) => other,
        }
    }
}

impl fmt::Debug for RefusedRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RefusedRow({:?})", self.cause)
    }
}

impl fmt::Display for RefusedRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.cause)
    }
}

impl Error for RefusedRow {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.source()
    }
}

impl Classified for RefusedRow {
    fn kind(&self) -> Kind {
        self.cause.kind()
    }
}

/// A run that was asked to stop has not published everything, as its options say: the next run
/// continues, and nothing is wrong.
#[derive(Debug, thiserror::Error)]
#[error("{what}. The next run continues with it")]
pub struct LeftToNextRun {
    /// What is left, a sentence without a full stop.
    pub what: String,
}

impl Classified for LeftToNextRun {
    fn kind(&self) -> Kind {
        Kind::Retry
    }
}

impl Output {
    /// Rows in all partitions.
    pub fn rows(&self) -> u64 {
        self.record_batches().map(|rows| rows.num_rows() as u64).sum()
    }

    /// All record batches, partition by partition.
    pub fn record_batches(&self) -> impl Iterator<Item = &RecordBatch> {
        self.partitions.iter().flatten()
    }
}

/// What a sink's promise rests on; decides what the driver waits for (step 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// A repeated micro-batch is written again: at-least-once.
    AtLeastOnce,
    /// A repeated micro-batch id replaces or is ignored, as long as it holds the same range: the
    /// intent must be durable before `publish` is called.
    Idempotent,
    /// Rows are published in one step with the micro-batch's number and [`EndOffsets`], and after a
    /// crash [`Sink::open`] tells the last of them: nothing needs to be logged before.
    Transactional,
}

/// When the outside accepts what was handed over in one `publish`.
pub enum Acknowledgement {
    /// It had accepted it all when `publish` returned.
    Done,
    /// It will have when this completes. The value is the moment it did, microseconds since the
    /// epoch: the driver looks at acknowledgements some milliseconds later, many at a time.
    Later(BoxFuture<'static, Result<i64, Failure>>),
}

impl Acknowledgement {
    /// Waits for it. Gives the moment the outside accepted, microseconds since the epoch, unless
    /// that was before `publish` returned.
    pub async fn accepted(self) -> Result<Option<i64>, Failure> {
        match self {
            Self::Done => Ok(None),
            Self::Later(accepted) => accepted.await.map(Some),
        }
    }
}

/// Why a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All of its input is published: what is left may take the time that it needs.
    Complete,
    /// It was asked to stop, or has failed: it is to end soon, and another run continues.
    Stopped,
}

/// Takes rows of a result before all of it is there.
#[async_trait]
pub trait PieceWriter: Send {
    /// Takes rows of the plan's partition `partition`, which are in order among themselves. Unless
    /// the sink is at least once, nobody sees them before the [`Sink::publish`] that follows, and
    /// without one they are given up. May wait while the sink's own buffers are full.
    async fn write(&mut self, partition: usize, rows: RecordBatch) -> Result<(), Failure>;
}

/// Takes micro-batches in order and makes each visible.
#[async_trait]
pub trait Sink: Send {
    /// What the sink is, for progress and messages.
    fn description(&self) -> String;

    /// What happens when a micro-batch is published twice. Settled once the sink is open.
    fn delivery(&self) -> Delivery;

    /// Connects, and removes what a crash may have left half-written. Returns the last micro-batch
    /// known to be published, if the sink can answer. It may leave out micro-batches without rows.
    async fn open(&mut self) -> Result<Option<Published>, Failure>;

    /// The other queries that are known to have published to the same place. Asked once the sink is
    /// open, and only for a query that begins anew: it may be one of them under another name, and
    /// would publish the same rows again.
    async fn other_queries(&mut self) -> Result<Vec<OtherQuery>, Failure> {
        Ok(Vec::new())
    }

    /// Completes when `publish` would not have to wait. The driver takes a micro-batch's input only
    /// then: rows that arrive meanwhile go along instead of waiting behind it. A sink that gathers
    /// micro-batches may wait longer, so that there are fewer of them.
    async fn ready(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// Completes when `publish` would not have to wait for long, and no later: what is asked where
    /// nobody waits until the sink is [`ready`](Self::ready). One whose `publish` may wait for the
    /// outside says so here, since only this wait ends when the run is asked to stop.
    async fn room(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// Hands one micro-batch over. May wait while the sink's own buffers are full. An output
    /// without rows is handed over too: it still counts for sinks that number their work. Only of a
    /// query with state an exactly-once sink gets none, since a restart may not know its number.
    async fn publish(&mut self, output: Output) -> Result<Acknowledgement, Failure>;

    /// What takes the result of a batch query in pieces, each written before it is published:
    /// [`publish`](Self::publish) then has no rows, and makes the pieces visible in one step, or,
    /// at least once, waits for them. `None` where the whole result goes to `publish`.
    fn piece_writer(&mut self) -> Option<&mut dyn PieceWriter> {
        None
    }

    /// How many micro-batches may be under way, where the sink gathers them and acknowledges many
    /// at once; `None` for the driver's own limit.
    fn micro_batches_in_flight_max(&self) -> Option<usize> {
        None
    }

    /// No micro-batch follows for now: what is held back to be published together is published.
    async fn flush(&mut self) {}

    /// The run ends, and nothing is published any more: as [`flush`](Self::flush), and what is not
    /// acknowledged yet must not take for ever. Called again if the run is stopped while it ends.
    async fn end(&mut self, _: Ending) {
        self.flush().await;
    }

    /// Lets go of connections; what was acknowledged stays.
    async fn close(&mut self) -> Result<(), Failure>;
}

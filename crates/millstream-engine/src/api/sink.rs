//! Sinks: where rows go. Step 5 of a micro-batch.
//!
//! Publishing has two halves. [`Sink::publish`] hands a whole micro-batch over, in order; the
//! [`Acknowledgement`] it returns completes when the outside has accepted it. The driver may hand
//! over micro-batch N+1 before N is acknowledged, so a round trip to a broker delays nobody, and
//! it writes commit entries in order as acknowledgements come in.

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
    pub reached: Reached,
}

/// Where a query stands after a micro-batch: what its entry in the offset log says. A sink that
/// answers publishes it together with the rows, and does not look into it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reached {
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
    pub reached: Option<Reached>,
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
    Repeats,
    /// A repeated micro-batch id replaces or is ignored, as long as it holds the same range: the
    /// intent must be durable before `publish` is called.
    IdempotentById,
    /// Rows are published in one step with the micro-batch's number and [`Reached`], and after a
    /// crash [`Sink::open`] tells the last of them: nothing needs to be logged before.
    Answers,
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
    /// then: rows that arrive meanwhile go along instead of waiting behind it.
    async fn ready(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// Hands one micro-batch over. May wait while the sink's own buffers are full. An output
    /// without rows is handed over too: it still counts for sinks that number their work.
    async fn publish(&mut self, output: Output) -> Result<Acknowledgement, Failure>;

    /// How many micro-batches may be under way, where the sink gathers them and acknowledges many
    /// at once; `None` for the driver's own limit.
    fn micro_batches_in_flight_max(&self) -> Option<usize> {
        None
    }

    /// No micro-batch follows for now: what is held back to be published together is published.
    async fn flush(&mut self) {}

    /// Lets go of connections; what was acknowledged stays.
    async fn close(&mut self) -> Result<(), Failure>;
}

//! What the driver tells the outside after each micro-batch.
//!
//! Facts only; the binary turns them into a terminal line, Spark's StreamingQueryProgress JSON or
//! Prometheus metrics.

use std::collections::BTreeMap;
use std::time::Duration;

use millstream_store::offset::{BatchId, SourceOffset};

/// Hears of every published micro-batch, in order. Must return quickly: it is called on the way to
/// the commit log.
pub trait Listener: Send + Sync {
    /// The query has opened its checkpoint and is about to run.
    fn started(&self, _query: &QueryStarted) {}

    /// The query has no micro-batch yet, and where it begins to read is settled.
    fn begins(&self, _sources: &[SourceBeginning]) {}

    /// All that the query reads from and writes to is open: it runs.
    fn runs(&self) {}

    /// Something outside does not answer any more, or answers again. Called from any thread.
    fn contact(&self, _contact: &Contact) {}

    /// The query has failed, and is started again in a while.
    fn restarts(&self, _restart: &Restart) {}

    /// A micro-batch was published.
    fn published(&self, progress: &Progress);
}

/// A listener that does not care.
pub struct Silent;

impl Listener for Silent {
    fn published(&self, _: &Progress) {}
}

/// Who a query is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryStarted {
    /// The id in the checkpoint's `metadata`; the same in every run.
    pub query_id: String,
    /// The id of this run; a new one each time.
    pub run_id: String,
}

/// Where a new query begins to read one source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceBeginning {
    /// The source, in Spark's words.
    pub description: String,
    /// The first offset.
    pub start: SourceOffset,
    /// The option that decided it, as a user would write it, where there is a choice.
    pub option: Option<String>,
}

/// A change of what is known of something outside, such as the brokers of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contact {
    /// What it is, for people: `the brokers of KafkaV2[Subscribe[in]]`.
    pub with: String,
    /// When it changed, milliseconds since the epoch.
    pub at_ms: i64,
    /// Since when there is no answer, milliseconds since the epoch.
    pub since_ms: i64,
    /// Whether there is one again.
    pub is_back: bool,
}

/// A query that failed will be started again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restart {
    /// When it failed, milliseconds since the epoch.
    pub at_ms: i64,
    /// How many times in a row, this one among them.
    pub count: u32,
    /// How many times in a row it may be.
    pub count_max: u32,
    /// After which time.
    pub wait: Duration,
    /// Why it failed.
    pub reason: String,
}

/// One published micro-batch.
#[derive(Clone, Debug)]
pub struct Progress {
    /// The micro-batch's number.
    pub batch_id: BatchId,
    /// When its trigger fired, milliseconds since the epoch.
    pub timestamp_ms: i64,
    /// Rows read from all sources, before filters.
    pub rows_in: u64,
    /// Rows handed to the sink, or to all sinks together.
    pub rows_out: u64,
    /// From the previous trigger to this one; `None` for the first of a run.
    pub since_previous: Option<Duration>,
    /// From the arrival of the micro-batch's oldest row to its publication, in the last sink.
    pub latency: Duration,
    /// Where the time went.
    pub durations: Durations,
    /// What each source contributed, in the order of the offset log.
    pub sources: Vec<SourceProgress>,
    /// The watermark that it ran with, milliseconds since the epoch; `None` for a query without
    /// state.
    pub watermark_ms: Option<i64>,
    /// What the stateful operators have and did.
    pub state: Vec<OperatorMetrics>,
    /// The sink's description; those of several with commas between.
    pub sink: String,
    /// What each sink got, where the query has several; else empty.
    pub sinks: Vec<SinkProgress>,
    /// How many rows met each constraint, in the order of the file.
    pub constraints: Vec<ConstraintProgress>,
}

/// What a stateful operator has, and did in the last micro-batch; names as in Spark's progress.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperatorMetrics {
    /// What it is.
    pub name: &'static str,
    /// Rows of state.
    pub rows: u64,
    /// Rows of state that were new or changed.
    pub rows_updated: u64,
    /// Rows of state that went.
    pub rows_removed: u64,
    /// Input rows that came after the watermark and were left out.
    pub rows_late: u64,
    /// Memory of the state.
    pub bytes: u64,
    /// Bytes of state in files, since it is more than the query may keep in memory.
    pub spilled_bytes: u64,
}

/// Rows of a micro-batch that met a constraint, and rows that did not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConstraintProgress {
    /// The constraint's name.
    pub name: String,
    /// Rows for which its condition was true.
    pub passed: u64,
    /// Rows for which it was false or null.
    pub failed: u64,
}

/// One sink's part of a micro-batch, of a query that has several.
#[derive(Clone, Debug)]
pub struct SinkProgress {
    /// The sink's description.
    pub description: String,
    /// Rows handed to it.
    pub rows: u64,
    /// From the arrival of the micro-batch's oldest row to its publication in this sink.
    pub latency: Duration,
}

/// Where a micro-batch's time went; the names are those of Spark's `durationMs`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Durations {
    /// Asking the sources what has arrived.
    pub latest_offset: Duration,
    /// Handing the intent to the offset log, including waiting for its back-pressure.
    pub wal_commit: Duration,
    /// Planning again because a static table changed.
    pub query_planning: Duration,
    /// Running the plan and handing the result to the sink.
    pub add_batch: Duration,
    /// From there to the sink's acknowledgement and the entry for the commit log.
    pub commit_offsets: Duration,
    /// All of it.
    pub trigger_execution: Duration,
}

/// One source's part of a micro-batch.
#[derive(Clone, Debug)]
pub struct SourceProgress {
    /// The source, in Spark's words.
    pub description: String,
    /// Where the micro-batch started; `None` in the first of a query.
    pub start: Option<SourceOffset>,
    /// Where it ended, exclusive.
    pub end: SourceOffset,
    /// The newest offset known outside.
    pub latest: Option<SourceOffset>,
    /// Rows read from this source.
    pub rows: u64,
    /// The source's own counters.
    pub metrics: BTreeMap<String, u64>,
}

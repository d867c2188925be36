//! How a flow is to run: what options of the table that it writes to decide, in values.
//!
//! Each has the default that a flow without the option has. The pipeline file's reader makes them;
//! the plan, the state and the driver act on them.

use std::time::Duration;

use millstream_store::log_writer::{PurgeTime, RETAINED_ENTRIES_MIN};

/// Which rows of an operator's result are published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutputMode {
    /// Each row once, when it cannot change any more.
    #[default]
    Append,
    /// Rows that a micro-batch has changed.
    Update,
    /// All rows, every time.
    Complete,
}

impl OutputMode {
    /// Its name in `outputMode`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Append => "append",
            Self::Update => "update",
            Self::Complete => "complete",
        }
    }
}

/// What becomes of a row with which a plan fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// The query fails.
    #[default]
    Fail,
    /// It is a dead letter, and the others go on.
    DeadLetter,
}

/// Which of several watermarks is the query's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// The least: nothing that is late in no source is dropped.
    #[default]
    Min,
    /// The greatest: no source holds up the others.
    Max,
}

/// What a source without rows does to the watermark, beyond Spark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Idling {
    /// A source that has given no row for this time is left out of the least; `None` for never.
    pub left_out_after: Option<Duration>,
    /// When no source has given a row for this time, the watermark goes on with the clock, as if
    /// event times did; `None` for never.
    pub closes_after: Option<Duration>,
}

/// Which micro-batches get entries in the logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProgressTracking {
    /// Every micro-batch.
    #[default]
    EveryMicroBatch,
    /// Every micro-batch, and the driver waits for each entry: what other engines do, for
    /// comparison.
    Blocking,
    /// The first of a run, then at most one in this time: `asyncProgressTrackingEnabled`. Zero
    /// means every one, as in Spark.
    Interval(Duration),
}

/// What the logs hold, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Logging {
    /// Which micro-batches get entries.
    pub tracking: ProgressTracking,
    /// When entries that are not needed are deleted.
    pub purge: PurgeTime,
    /// How many of the newest committed entries each log keeps at least; 2 or more.
    pub retain_entries_min: u64,
    /// Whether they are written by threads of the process's flows together, instead of one of the
    /// flow's own: slower, and for processes with very many flows.
    pub shares_threads: bool,
}

impl Default for Logging {
    fn default() -> Self {
        Self {
            tracking: ProgressTracking::default(),
            purge: PurgeTime::default(),
            retain_entries_min: RETAINED_ENTRIES_MIN,
            shares_threads: false,
        }
    }
}

/// When snapshots are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotSettings {
    /// When the entries that are needed have grown by so many bytes since the last one, or by its
    /// own size where that is more.
    pub after_bytes: u64,
    /// When this time has passed since the last one, and the log has grown.
    pub interval: Option<Duration>,
}

impl Default for SnapshotSettings {
    fn default() -> Self {
        Self { after_bytes: 256 << 20, interval: None }
    }
}

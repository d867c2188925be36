//! What a table needs now and then, beside the stream and never in its way.
//!
//! A thread of its own, of low priority, gets every commit and does what is due every
//! `delta.checkpointInterval` commits: the version's checksum file, a checkpoint, and the cleanup
//! of the log. A checksum file for every commit would be as many files and flushes again, to save a
//! reader the tail of the log. Nobody waits for it. While it is at work only the newest version is
//! remembered: if checkpoints take longer than the interval, there are fewer of them.
//!
//! Small files are compacted by a thread of its own ([`crate::compact::background`]), as that takes
//! longer and checkpoints do not wait for it.
//!
//! What fails here is logged and tried again at the next occasion; the table is whole without it.

use std::sync::Arc;
use std::time::Duration;

use delta_kernel::SnapshotRef;
use millstream_store::env::{Env, Thread};
use millstream_store::error::Classified;
use parking_lot::{Condvar, Mutex};

use crate::checkpoint::{self, CheckpointError, Checkpointer, PartFileNames, Settings};
use crate::compact::background::{AutoCompact, Compactions, Compactor};
use crate::error::TableError;
use crate::kernel::KernelEngine;
use crate::store::TableStore;
use crate::table::merge::{FileChanges, MergedFiles};
use crate::table::{Append, Appended, Table};

/// Commits between checkpoints where the table does not say; Spark's default.
const CHECKPOINT_INTERVAL: u64 = 10;
/// How long the log keeps the past where the table does not say.
const LOG_RETENTION_MS: i64 = 30 * 86_400_000;
/// Commits that a snapshot may have in memory before it is loaded anew from a checkpoint. Each
/// costs some hundred bytes to carry along.
const RENEWAL_INTERVAL: u64 = 500;
/// From one cleanup of the log to the next.
const CLEANUP_INTERVAL: Duration = Duration::from_secs(600);

/// A table that this process writes to, with what takes care of it.
pub struct LiveTable {
    table: Arc<Table>,
    shared: Arc<Shared>,
    part_file_names: PartFileNames,
    compactor: Option<Compactor>,
    /// Joined when this is dropped, after it was asked to end.
    _thread: Thread,
}

/// How a table is taken care of.
#[derive(Clone, Debug, Default)]
pub struct Care {
    /// How checkpoints are written.
    pub checkpoints: Settings,
    /// False to write none, for comparison.
    pub is_off: bool,
    /// Whether small files are compacted, and when.
    pub compaction: Option<AutoCompact>,
}

/// Checkpoints since [`LiveTable::start`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checkpoints {
    /// Those that were written.
    pub written: u64,
    /// Those that could not be.
    pub failed: u64,
    /// Elapsed time of those that were written, in sum.
    pub took: Duration,
    /// Elapsed time of the slowest.
    pub took_max: Duration,
    /// Files that were written for them; the others were copied or referenced again.
    pub parts_rewritten: u64,
}

struct Shared {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    /// The newest commit that nothing was done for yet.
    newest: Option<SnapshotRef>,
    checkpoints: Checkpoints,
    is_ending: bool,
    is_working: bool,
}

impl LiveTable {
    /// Takes care of `table` from now on. First what a crash left behind is put in order, which
    /// must come before the first commit: a half-written checkpoint is taken for a whole one by
    /// some writers' cleanup.
    pub fn start(table: Table, care: Care) -> Result<Self, TableError> {
        let store = table.store().in_background();
        let checkpointer = Checkpointer::open(store.clone(), care.checkpoints)
            .map_err(|error| checkpoint_error(&table, error))?;
        let repaired = checkpointer.repaired();
        if !repaired.is_empty() {
            tracing::info!(table = table.store().shown(), ?repaired, "put a table's log in order");
        }
        let (table, part_file_names) = (Arc::new(table), checkpointer.part_file_names());
        let shared = Arc::new(Shared { state: Mutex::default(), wake: Condvar::new() });
        let env = table.store().env().clone();
        let worker = Worker {
            engine: KernelEngine::new(&store),
            store,
            table: Arc::clone(&table),
            shared: Arc::clone(&shared),
            checkpointer,
            is_off: care.is_off,
            last_checkpoint: table.snapshot().log_segment().checkpoint_version.unwrap_or(0),
            last_renewal: table.version(),
            last_cleanup: None,
        };
        let thread = env.background_thread("lake-care", move || worker.run());
        let start = |settings| Compactor::start(&table, &part_file_names, settings);
        let compactor = care.compaction.map(start);
        Ok(Self { table, shared, part_file_names, compactor, _thread: thread })
    }

    /// The table.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Which names of new files keep checkpoints cheap.
    pub fn part_file_names(&self) -> &PartFileNames {
        &self.part_file_names
    }

    /// How many checkpoints were written, and how long they took.
    pub fn checkpoints(&self) -> Checkpoints {
        self.shared.state.lock().checkpoints
    }

    /// [`Table::append`], and tells the thread of it.
    pub fn append(&self, append: &Append<'_>) -> Result<Option<Appended>, TableError> {
        let Some((appended, snapshot)) = self.table.append_then(append)? else { return Ok(None) };
        self.shared.state.lock().newest = Some(snapshot);
        // `settle` may be waiting beside the thread.
        self.shared.wake.notify_all();
        if let Some(compactor) = &self.compactor {
            compactor.appended(append.application, appended.version, append.files);
        }
        Ok(Some(appended))
    }

    /// [`Table::merge`], and tells the thread of it.
    pub(crate) fn merge(
        &self,
        append: &Append<'_>,
        parameters: &[(&'static str, String)],
        changes: impl FnMut(&SnapshotRef) -> Result<FileChanges, TableError>,
    ) -> Result<Option<Appended>, TableError> {
        let merged = self.table.merge(append, parameters, changes)?;
        let Some((merged, snapshot)) = merged else { return Ok(None) };
        self.shared.state.lock().newest = Some(snapshot);
        self.shared.wake.notify_all();
        Ok(Some(merged))
    }

    /// Says which files the merge `version` of `application` has made what they are.
    pub(crate) fn merged(&self, application: &str, version: u64, files: MergedFiles) {
        if let Some(compactor) = &self.compactor {
            compactor.merged(application, version, files);
        }
    }

    /// What was compacted.
    pub fn compactions(&self) -> Compactions {
        self.compactor.as_ref().map(Compactor::compactions).unwrap_or_default()
    }

    /// Waits until everything that was due is done: for tests, benchmarks and the end of a run.
    pub fn settle(&self) {
        if let Some(compactor) = &self.compactor {
            compactor.settle();
        }
        let mut state = self.shared.state.lock();
        while state.newest.is_some() || state.is_working {
            self.shared.wake.wait(&mut state);
        }
    }
}

impl Checkpoints {
    fn add(&mut self, took: Duration, parts_rewritten: usize) {
        self.written += 1;
        self.took += took;
        self.took_max = self.took_max.max(took);
        self.parts_rewritten += parts_rewritten as u64;
    }
}

impl Drop for LiveTable {
    fn drop(&mut self) {
        self.shared.state.lock().is_ending = true;
        self.shared.wake.notify_all();
    }
}

fn checkpoint_error(table: &Table, error: CheckpointError) -> TableError {
    let table = table.store().shown();
    match error {
        // The store's trouble, whatever that is, not the log's.
        CheckpointError::Store { .. } => TableError::Store {
            action: "cannot put in order the log of",
            table,
            kind: error.kind(),
            cause: error.to_string(),
        },
        _ => TableError::Damaged { table, problem: error.to_string() },
    }
}

struct Worker {
    table: Arc<Table>,
    /// Gives way to commits, as does what uses it.
    store: TableStore,
    engine: KernelEngine,
    shared: Arc<Shared>,
    checkpointer: Checkpointer,
    is_off: bool,
    /// The version of the last checkpoint, 0 if there was none.
    last_checkpoint: u64,
    /// The version of the last cleanup of older commits.
    last_renewal: u64,
    /// On the monotonic clock.
    last_cleanup: Option<Duration>,
}

impl Worker {
    fn run(mut self) {
        if !self.is_off
            && let Err(error) = self.checkpointer.prepare()
        {
            let table = self.table.store().shown();
            tracing::warn!(table, %error, "the table's checkpoints cannot be looked at");
        }
        while let Some(snapshot) = self.next() {
            if !self.is_off && self.is_due(snapshot.version()) {
                self.checksum(&snapshot);
                self.checkpoint(snapshot.version());
            }
        }
    }

    /// The newest commit; `None` at the end.
    fn next(&self) -> Option<SnapshotRef> {
        let mut state = self.shared.state.lock();
        state.is_working = false;
        self.shared.wake.notify_all();
        loop {
            // What is due is done before the end: a query that is started for a few commits every
            // minute would never get a checkpoint otherwise.
            if let Some(snapshot) = state.newest.take() {
                state.is_working = true;
                return Some(snapshot);
            }
            if state.is_ending {
                return None;
            }
            self.shared.wake.wait(&mut state);
        }
    }

    /// Writes `N.crc`, if what it says is known without reading the table.
    fn checksum(&self, snapshot: &SnapshotRef) {
        if snapshot.get_file_stats_if_present().is_none() {
            return;
        }
        if let Err(error) = snapshot.write_checksum(&self.engine) {
            let table = self.table.store().shown();
            tracing::debug!(table, %error, "no checksum file was written");
        }
    }

    fn is_due(&self, version: u64) -> bool {
        version >= self.last_checkpoint + self.interval()
    }

    fn checkpoint(&mut self, version: u64) {
        let began = self.env().monotonic();
        match self.checkpointer.write(version) {
            Ok(written) => {
                self.last_checkpoint = version;
                let took = self.env().monotonic().saturating_sub(began);
                self.shared.state.lock().checkpoints.add(took, written.parts_rewritten);
                tracing::debug!(version, took_ms = took.as_millis(), ?written.layout,
                    rows = written.rows, rewritten = written.parts_rewritten, "checkpoint");
                for damaged in written.damaged {
                    tracing::warn!(damaged, "a checkpoint could not be used");
                }
                // What the snapshot in memory was loaded from may be among what is gone.
                if self.cleanup() || version >= self.last_renewal + RENEWAL_INTERVAL {
                    self.renew(version);
                }
            }
            Err(error) => {
                // Not at every commit: what is wrong may be wrong for long.
                self.last_checkpoint = version;
                self.shared.state.lock().checkpoints.failed += 1;
                let table = self.table.store().shown();
                tracing::warn!(table, version, %error, "no checkpoint was written");
            }
        }
    }

    /// Lets the table forget the commits before the checkpoint; seldom, as it costs a listing.
    fn renew(&mut self, version: u64) {
        self.last_renewal = version;
        if let Err(error) = self.table.renew() {
            tracing::debug!(%error, "the newest checkpoint was not taken into use");
        }
    }

    fn interval(&self) -> u64 {
        let given = self.table.property("delta.checkpointInterval");
        let given = given.and_then(|text| text.trim().parse().ok());
        given.filter(|interval| *interval > 0).unwrap_or(CHECKPOINT_INTERVAL)
    }

    /// Deletes what nobody reads any more, if it is time; true if there was something.
    fn cleanup(&mut self) -> bool {
        let is_on = self.table.property("delta.enableExpiredLogCleanup");
        let now = self.env().monotonic();
        let is_due = self.last_cleanup.is_none_or(|last| now >= last + CLEANUP_INTERVAL);
        if is_on.is_some_and(|text| text.eq_ignore_ascii_case("false")) || !is_due {
            return false;
        }
        self.last_cleanup = Some(now);
        let expired = self.delete_expired();
        self.thin_out() | expired
    }

    fn delete_expired(&self) -> bool {
        let retention = self.table.property("delta.logRetentionDuration");
        let retention_ms = match retention.as_deref().map(checkpoint::interval_ms) {
            None => LOG_RETENTION_MS,
            Some(Some(retention_ms)) => retention_ms,
            // What cannot be understood is kept.
            Some(None) => return false,
        };
        let cleaned = checkpoint::cleanup(&self.store, retention_ms, self.env().now_ms());
        match cleaned {
            Ok(cleaned) => {
                let (files, boundary) = (cleaned.deleted.len(), cleaned.boundary);
                tracing::debug!(files, boundary, "the table's log was cleaned up");
                files > 0
            }
            Err(error) => {
                tracing::warn!(%error, "the table's log was not cleaned up");
                false
            }
        }
    }

    fn thin_out(&self) -> bool {
        match checkpoint::remove_old(&self.store, self.env().now_ms()) {
            Ok(thinned) => {
                tracing::debug!(files = thinned.len(), "checkpoints were thinned out");
                !thinned.is_empty()
            }
            Err(error) => {
                tracing::warn!(%error, "the table's checkpoints were not thinned out");
                false
            }
        }
    }

    fn env(&self) -> &Env {
        self.table.store().env()
    }
}

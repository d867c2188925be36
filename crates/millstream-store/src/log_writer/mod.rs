//! The background writer of both logs.
//!
//! The driver hands over an intent when a micro-batch is taken, and a commit entry when it is
//! published, and goes on computing; each call returns a [`Ticket`] for those who must wait. What
//! the writer promises of the directory at any moment, and so after any crash:
//!
//! - `offsets/N+1` is there only if `offsets/N` is, for every N that was handed over;
//! - `commits/N` is there only if `offsets/N` and the commit entry before it are.
//!
//! Everything else overlaps. A local directory is written by one thread, in the order of the
//! calls, or where there are too many checkpoints for that by a task and shared threads; an object
//! store by two tasks, one per log, so that `offsets/N+1` and `commits/N` travel at the same time.
//!
//! At most [`Settings::in_flight_max`] entries of each log wait to be written: with slow storage
//! the calls wait, and micro-batches grow instead of the log falling behind. After a failed write
//! nothing more is written, and all tickets since then fail. Old entries are deleted in the
//! background ([`purge`]).

mod local;
mod object;
mod progress;
mod purge;

use std::sync::Arc;

use parking_lot::Mutex;

use self::progress::{Progress, Progressing};
use self::purge::Purger;
use crate::checkpoint::Checkpoint;
use crate::crash_points::{self, Step};
use crate::env::{Env, Thread};
use crate::error::{Classified, Kind};
use crate::offset::BatchId;
use crate::storage::{Durability, PutError, Storage};
use crate::{commit_log, layout, offset_log};

/// Spark's default of `spark.sql.streaming.minBatchesToRetain`.
pub const RETAINED_ENTRIES_MIN: u64 = 100;

/// Fewer superfluous entries than this are not worth a listing and its deletions.
const PURGE_STEP_ENTRIES: usize = 100;

/// How the logs are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How many of the newest committed entries each log keeps at least; 2 or more, because
    /// recovery reads two. Spark's `spark.sql.streaming.minBatchesToRetain`.
    pub retain_entries_min: u64,
    /// How many entries of each log may wait to be written; 1 or more.
    pub in_flight_max: usize,
    /// When old entries are deleted.
    pub purge: PurgeTime,
    /// How many entries of a log must have become superfluous before they are deleted in the
    /// background, together; 1 or more.
    pub purge_step_entries: usize,
    /// Whether a local directory is written by threads that are shared with others, instead of one
    /// of its own.
    pub shares_threads: bool,
}

/// When entries that are not needed any more are deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PurgeTime {
    /// Many at a time, by a task of its own.
    #[default]
    InBackground,
    /// Whenever [`LogWriter::purge`] is called, each at once.
    WhenCalled,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            retain_entries_min: RETAINED_ENTRIES_MIN,
            in_flight_max: 4,
            purge: PurgeTime::InBackground,
            purge_step_entries: PURGE_STEP_ENTRIES,
            shares_threads: false,
        }
    }
}

impl Settings {
    /// The settings for a checkpoint. A local directory takes thousands of entries a second, so
    /// many may be handed over at once; an object store some tens, each worth waiting for.
    pub fn of(checkpoint: &Checkpoint) -> Self {
        let in_flight_max = match checkpoint.storage() {
            Storage::Local(_) => 64,
            Storage::Object(_) => Self::default().in_flight_max,
        };
        Self { in_flight_max, ..Self::default() }
    }
}

/// Why an entry was not written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The entry is there already: somebody else wrote it.
    #[error(
        "another process is writing this checkpoint: {path} exists already. Run the query in one process only; this one has stopped"
    )]
    Fenced {
        /// The file.
        path: String,
    },
    /// The storage refused it.
    #[error("the checkpoint is not written any more: {0}")]
    Put(PutError),
    /// The writer ended before it came to the entry.
    #[error("the writer of the checkpoint ended before it wrote this entry")]
    Stopped,
}

impl Classified for WriteError {
    fn kind(&self) -> Kind {
        match self {
            Self::Fenced { .. } => Kind::Fenced,
            Self::Put(error) => error.kind(),
            Self::Stopped => Kind::Bug,
        }
    }
}

impl From<PutError> for WriteError {
    fn from(error: PutError) -> Self {
        match error {
            PutError::AlreadyExists { path } => Self::Fenced { path },
            error => Self::Put(error),
        }
    }
}

/// Writes both logs of one checkpoint. Dropped, it writes what is queued and ends.
pub struct LogWriter {
    shared: Arc<Shared>,
    queue: Mutex<Queue>,
    in_flight_max: u64,
    // Dropped before the thread, which ends when there is no more sender.
    sender: Sender,
    _thread: Option<Thread>,
    purger: Purger,
}

/// Which log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lane {
    Intents = 0,
    Commits = 1,
}

impl Lane {
    const ALL: [Self; 2] = [Self::Intents, Self::Commits];

    fn directory(self) -> &'static str {
        match self {
            Self::Intents => layout::OFFSETS,
            Self::Commits => layout::COMMITS,
        }
    }
}

/// What has been handed over, by lane.
#[derive(Default)]
struct Queue {
    /// How many entries.
    queued: [u64; 2],
    /// The last one's id.
    last: [Option<BatchId>; 2],
}

/// An entry on its way.
struct Job {
    id: BatchId,
    body: Body,
    durability: Durability,
    /// For a commit entry: the intent that must be written before.
    after_intent: Option<BatchId>,
}

enum Body {
    Intent(offset_log::Entry),
    Commit(commit_log::Entry),
}

impl Job {
    fn lane(&self) -> Lane {
        match self.body {
            Body::Intent(_) => Lane::Intents,
            Body::Commit(_) => Lane::Commits,
        }
    }

    fn name(&self) -> String {
        format!("{}/{}", self.lane().directory(), self.id)
    }

    /// Names the moment before the entry is written.
    fn before(&self) {
        crash_points::reached(match self.lane() {
            Lane::Intents => Step::BeforeIntent,
            Lane::Commits => Step::BeforeCommitEntry,
        });
    }

    /// Names the moment when the entry is written and no ticket has completed.
    fn after(&self) {
        crash_points::reached(match self.lane() {
            Lane::Intents => Step::AfterIntent,
            Lane::Commits => Step::AfterCommitEntry,
        });
    }

    fn encode(&self) -> Vec<u8> {
        match &self.body {
            Body::Intent(entry) => entry.encode(),
            Body::Commit(entry) => entry.encode(),
        }
    }
}

/// What the writers, the tickets and the purge share.
struct Shared {
    // Keeps the lock while anything is written.
    checkpoint: Checkpoint,
    progress: Arc<Progressing>,
    on_disk: purge::OnDisk,
}

impl Shared {
    fn storage(&self) -> &Storage {
        self.checkpoint.storage()
    }

    fn written(&self, lane: Lane, id: BatchId) {
        // Before the ticket completes, so that a purge that follows it knows of the entry.
        self.on_disk.written(lane, id);
        self.progress.change(|progress| {
            progress.written[lane as usize] += 1;
            if lane == Lane::Intents {
                progress.intent = Some(id);
            }
        });
    }

    fn fail(&self, error: WriteError) {
        self.progress.change(|progress| {
            progress.failure.get_or_insert_with(|| Arc::new(error));
        });
    }

    fn failure(&self) -> Option<Arc<WriteError>> {
        self.progress.now().failure
    }

    fn has_failed(&self) -> bool {
        self.failure().is_some()
    }
}

/// Fails the waiting tickets when a writer ends, even by a panic.
struct Ending {
    shared: Arc<Shared>,
    armed: bool,
}

impl Ending {
    fn new(shared: &Arc<Shared>) -> Self {
        Self { shared: shared.clone(), armed: true }
    }

    fn disarm(&mut self) {
        self.armed = false;
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        if self.armed {
            self.shared.fail(WriteError::Stopped);
        }
    }
}

enum Sender {
    Thread(std::sync::mpsc::Sender<Job>),
    Tasks([tokio::sync::mpsc::UnboundedSender<Job>; 2]),
}

impl Sender {
    fn send(&self, job: Job) {
        // A receiver that is gone has left a failure, which the ticket reports.
        match self {
            Self::Thread(sender) => drop(sender.send(job)),
            Self::Tasks(lanes) => drop(lanes[job.lane() as usize].send(job)),
        }
    }
}

impl LogWriter {
    /// Starts to write the logs of `checkpoint`, which has been recovered. Needs a tokio runtime.
    ///
    /// # Panics
    /// When a setting is below its minimum.
    pub fn start(checkpoint: &Checkpoint, env: &Env, settings: Settings) -> Self {
        assert!(settings.retain_entries_min >= 2, "recovery reads the last two entries");
        assert!(settings.in_flight_max >= 1, "one entry must be in flight to be written");
        assert!(settings.purge_step_entries >= 1, "a purge deletes something");
        let shared = Arc::new(Shared {
            checkpoint: checkpoint.clone(),
            progress: Arc::default(),
            on_disk: purge::OnDisk::new(&settings),
        });
        let (sender, thread) = match checkpoint.storage() {
            Storage::Local(local) if settings.shares_threads => {
                (Sender::Tasks(local::start_shared(&local.directory, env, &shared)), None)
            }
            Storage::Local(local) => {
                let (sender, thread) = local::start(&local.directory, env, &shared);
                (Sender::Thread(sender), Some(thread))
            }
            Storage::Object(object) => {
                (Sender::Tasks(object::start(&object.prefix, env, &shared)), None)
            }
        };
        let purger = Purger::start(env, &shared);
        Self {
            shared,
            queue: Mutex::default(),
            in_flight_max: settings.in_flight_max as u64,
            sender,
            _thread: thread,
            purger,
        }
    }

    /// Queues the intent of micro-batch `id`. Waits while too much is queued.
    ///
    /// # Panics
    /// When `id` is not above the last one.
    pub async fn intent(
        &self,
        id: BatchId,
        entry: offset_log::Entry,
        durability: Durability,
    ) -> Ticket {
        self.queue(id, Body::Intent(entry), durability).await
    }

    /// Queues the commit entry of micro-batch `id`. Waits while too much is queued.
    ///
    /// # Panics
    /// When `id` is not above the last one.
    pub async fn commit(&self, id: BatchId, entry: commit_log::Entry) -> Ticket {
        self.queue(id, Body::Commit(entry), Durability::Process).await
    }

    async fn queue(&self, id: BatchId, body: Body, durability: Durability) -> Ticket {
        let mut job = Job { id, body, durability, after_intent: None };
        let lane = job.lane();
        // A failure lets the call through: its ticket reports the failure, where waiting would
        // never end.
        let has_room = |progress: &Progress| {
            let queued = self.queue.lock().queued[lane as usize];
            progress.failure.is_some()
                || queued - progress.written[lane as usize] < self.in_flight_max
        };
        self.shared.progress.wait_for(has_room).await;

        let mut queue = self.queue.lock();
        let last = queue.last[lane as usize].replace(id);
        assert!(last < Some(id), "{lane:?}: {id} comes after {last:?}");
        queue.queued[lane as usize] += 1;
        let sequence = queue.queued[lane as usize];
        // An intent from before this run is on disk; of this run's, those up to `id` come first.
        job.after_intent = queue.last[Lane::Intents as usize].map(|queued| queued.min(id));
        self.sender.send(job);
        Ticket { progress: Arc::clone(&self.shared.progress), lane, sequence }
    }

    /// The failure that ended writing, if there was one.
    pub fn failure(&self) -> Option<Arc<WriteError>> {
        self.shared.failure()
    }

    /// Waits until all that was queued is written, and a purge that is due is done.
    pub async fn flush(&self) -> Result<(), WriteError> {
        let queued = self.queue.lock().queued;
        for lane in Lane::ALL {
            let sequence = queued[lane as usize];
            let progress = Arc::clone(&self.shared.progress);
            Ticket { progress, lane, sequence }.written().await?;
        }
        purge::run(&self.shared).await;
        Ok(())
    }

    /// Deletes what is not needed any more, and waits until it is gone.
    pub async fn purge(&self) {
        purge::run(&self.shared).await;
    }

    /// Flushes, and ends the writer. With the checkpoint's other handles its lock goes too.
    pub async fn close(self) -> Result<(), WriteError> {
        let result = self.flush().await;
        self.purger.stop().await;
        result
    }
}

/// Tells when one entry is written. Cheap to clone.
#[derive(Clone)]
pub struct Ticket {
    progress: Arc<Progressing>,
    lane: Lane,
    sequence: u64,
}

impl Ticket {
    /// Waits until the entry is written with the durability asked for.
    pub async fn written(self) -> Result<(), WriteError> {
        let (lane, sequence) = (self.lane as usize, self.sequence);
        let is_written = |progress: &Progress| progress.written[lane] >= sequence;
        // A writer that ends, however, leaves a failure for what it has not written.
        let known = self
            .progress
            .wait_for(|progress| is_written(progress) || progress.failure.is_some())
            .await;
        match &known.failure {
            Some(failure) if !is_written(&known) => Err(WriteError::clone(failure)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_writer_that_ends_by_a_panic_is_a_failure() {
        let env = Env::real();
        let checkpoint = Checkpoint::open_in(Storage::in_memory(), &env).await.expect("opened");
        let writer = LogWriter::start(&checkpoint, &env, Settings::default());
        let mut ending = Ending::new(&writer.shared);
        ending.disarm();
        drop(ending);
        assert_eq!(writer.failure(), None, "it was to end");
        drop(Ending::new(&writer.shared));
        assert_eq!(writer.failure().as_deref(), Some(&WriteError::Stopped));
    }
}

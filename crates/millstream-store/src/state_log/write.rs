//! Writing the state log, in the background.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::file::{Encoder, Section};
use super::read::StateReader;
use super::{Facts, changes_name};
use crate::checkpoint::Checkpoint;
use crate::crash_points::{self, Step};
use crate::env::{Env, Task};
use crate::error::Kind;
use crate::log_writer::WriteError;
use crate::offset::BatchId;
use crate::storage::{Durability, PutError, Storage};

/// A file is closed when it has grown to this.
const FILE_BYTES_MAX: usize = 32 << 20;
/// How many bytes may wait to be written; a call that would add more waits.
const QUEUED_BYTES_MAX: usize = 64 << 20;
/// How many files must have become superfluous before they are deleted, together.
const DELETED_AT_ONCE: usize = 32;

/// What the bytes of an entry may be beside those that it is said to have: a part of them, and so
/// many.
const SLACK_PART: usize = 32;
const SLACK_BYTES: usize = 4 << 10;

/// How the state log is written.
#[derive(Clone, Copy, Debug)]
pub struct WriteSettings {
    /// How long entries are gathered for one file while nobody waits.
    pub gathering: Duration,
}

impl WriteSettings {
    /// The settings for a checkpoint: a put to an object store costs more than one to a disk.
    pub fn of(checkpoint: &Checkpoint) -> Self {
        let gathering = match checkpoint.storage() {
            Storage::Local(_) => Duration::from_millis(25),
            Storage::Object(_) => Duration::from_millis(200),
        };
        Self { gathering }
    }
}

/// Writes the state log of one checkpoint.
pub struct StateLog {
    pub(super) shared: Arc<Shared>,
    writer: Mutex<Option<Task<()>>>,
}

pub(super) struct Shared {
    pub(super) storage: Storage,
    pub(super) env: Env,
    settings: WriteSettings,
    pub(super) queue: Mutex<Queue>,
    /// Something was handed over, or somebody waits.
    work: Notify,
    /// Something was written.
    written: Notify,
}

#[derive(Default)]
pub(super) struct Queue {
    entries: VecDeque<Queued>,
    bytes: usize,
    /// Entries up to here are waited for.
    urgent: Option<BatchId>,
    written: Option<BatchId>,
    /// When that was, microseconds since the epoch.
    written_us: i64,
    failure: Option<Arc<WriteError>>,
    /// Files that are there, first and last entry of each, ascending.
    files: VecDeque<(BatchId, BatchId)>,
    /// Snapshots that are there, ascending.
    pub(super) snapshots: Vec<BatchId>,
    /// Entries below are not needed any more.
    needed_from: Option<BatchId>,
    /// Whether superfluous files are being deleted.
    is_deleting: bool,
    /// The number of readers while the log is written; nothing is deleted while there is one.
    readers: usize,
    ends: bool,
}

struct Queued {
    facts: Facts,
    sections: Vec<Section<'static>>,
    bytes: usize,
}

impl StateLog {
    /// Starts to write behind what `reader` has listed. Needs a tokio runtime.
    pub fn start(
        checkpoint: &Checkpoint,
        env: &Env,
        settings: WriteSettings,
        reader: &StateReader,
    ) -> Self {
        let queue = Queue {
            files: reader.files().into(),
            snapshots: reader.snapshots().to_vec(),
            ..Queue::default()
        };
        let shared = Arc::new(Shared {
            storage: checkpoint.storage().clone(),
            env: env.clone(),
            settings,
            queue: Mutex::new(queue),
            work: Notify::new(),
            written: Notify::new(),
        });
        let writer = env.spawn_on_cores("state log", Arc::clone(&shared).run());
        Self { shared, writer: Mutex::new(Some(writer)) }
    }

    /// Hands over the entry of the next micro-batch. Its sections, of about `bytes` bytes together,
    /// are made on the thread that writes them. Waits while too much is queued.
    pub async fn append(
        &self,
        facts: Facts,
        bytes: usize,
        sections: Vec<Section<'static>>,
    ) -> Ticket {
        let shared = &self.shared;
        let has_room = |queue: &Queue| {
            queue.failure.is_some() || queue.entries.is_empty() || queue.bytes < QUEUED_BYTES_MAX
        };
        shared.wait_for(has_room).await;
        let id = BatchId(facts.batch_id);
        let mut queue = shared.queue.lock();
        queue.bytes += bytes;
        queue.entries.push_back(Queued { facts, sections, bytes });
        drop(queue);
        shared.work.notify_one();
        Ticket { shared: Arc::clone(shared), id }
    }

    /// Keeps the files that there are until what this gives is dropped, for one who reads them
    /// while the log is written.
    pub async fn keep_files(&self) -> KeptFiles {
        loop {
            // Deleting and reading exclude each other: files are either all there for a reader or
            // gone before it lists them.
            let may_read = |queue: &Queue| !queue.is_deleting || queue.failure.is_some();
            self.shared.wait_for(may_read).await;
            let mut queue = self.shared.queue.lock();
            if may_read(&queue) {
                queue.readers += 1;
                return KeptFiles(Arc::clone(&self.shared));
            }
        }
    }

    /// The failure that ended writing, if there was one.
    pub fn failure(&self) -> Option<Arc<WriteError>> {
        self.shared.queue.lock().failure.clone()
    }

    /// Writes what is queued, and ends.
    pub async fn close(&self) -> Result<(), WriteError> {
        self.shared.queue.lock().ends = true;
        self.shared.work.notify_one();
        let writer = self.writer.lock().take();
        if let Some(writer) = writer {
            writer.join().await;
        }
        match self.failure() {
            Some(failure) => Err(WriteError::clone(&failure)),
            None => Ok(()),
        }
    }
}

impl Drop for StateLog {
    fn drop(&mut self) {
        self.shared.queue.lock().ends = true;
        self.shared.work.notify_one();
    }
}

/// While this is there no file of the log is deleted. See [`StateLog::keep_files`].
pub struct KeptFiles(Arc<Shared>);

impl Drop for KeptFiles {
    fn drop(&mut self) {
        self.0.queue.lock().readers -= 1;
    }
}

/// Tells when an entry is written. Cheap to clone.
#[derive(Clone)]
pub struct Ticket {
    shared: Arc<Shared>,
    id: BatchId,
}

impl Ticket {
    /// Has the entry written at once, and waits until it survives a power cut.
    pub async fn written(&self) -> Result<(), WriteError> {
        let is_new = {
            let mut queue = self.shared.queue.lock();
            let is_new = queue.urgent < Some(self.id);
            queue.urgent = queue.urgent.max(Some(self.id));
            is_new
        };
        if is_new {
            self.shared.work.notify_one();
        }
        self.settled().await.map(drop)
    }

    /// Waits until the entry is written in its own time. Gives the moment of the last writing,
    /// microseconds since the epoch.
    pub async fn settled(&self) -> Result<i64, WriteError> {
        let is_known = |queue: &Queue| queue.written >= Some(self.id) || queue.failure.is_some();
        self.shared.wait_for(is_known).await;
        let queue = self.shared.queue.lock();
        match &queue.failure {
            Some(failure) if queue.written < Some(self.id) => Err(WriteError::clone(failure)),
            _ => Ok(queue.written_us),
        }
    }
}

impl Shared {
    async fn wait_for(&self, condition: impl Fn(&Queue) -> bool) {
        loop {
            // Begun before looking, so that a change in between is not missed.
            let changed = self.written.notified();
            if condition(&self.queue.lock()) {
                return;
            }
            changed.await;
        }
    }

    async fn run(self: Arc<Self>) {
        // A panic must not leave tickets waiting for ever.
        let mut ending = Ending(Some(Arc::clone(&self)));
        let mut began = self.env.monotonic();
        while self.wait_for_work(began).await {
            began = self.env.monotonic();
            let outcome = self.write_file().await;
            let has_failed = outcome.is_err();
            if let Err(error) = outcome {
                self.queue.lock().failure.get_or_insert_with(|| Arc::new(error));
            }
            self.written.notify_waiters();
            if has_failed {
                break;
            }
            self.delete_superfluous().await;
        }
        ending.0 = None;
    }

    /// Waits until a file is worth writing; false at the end.
    async fn wait_for_work(&self, last_began: Duration) -> bool {
        loop {
            let due_in = {
                let queue = self.queue.lock();
                let waits = queue.urgent > queue.written && !queue.entries.is_empty();
                if waits || queue.bytes >= FILE_BYTES_MAX || queue.ends {
                    return !(queue.ends && queue.entries.is_empty());
                }
                let since = self.env.monotonic().saturating_sub(last_began);
                (!queue.entries.is_empty()).then(|| self.settings.gathering.saturating_sub(since))
            };
            match due_in {
                None => self.work.notified().await,
                Some(Duration::ZERO) => return true,
                Some(due_in) => tokio::select! {
                    () = self.work.notified() => {}
                    () = self.env.sleep(due_in) => return true,
                },
            }
        }
    }

    /// Writes the oldest entries, as many as a file takes.
    async fn write_file(&self) -> Result<(), WriteError> {
        let mut encoder = Encoder::default();
        let (mut first, mut last, mut bytes, mut needs) = (None, None, 0, BatchId(0));
        // The lock is taken for each entry and released while it is encoded: encoding is the
        // expensive part, and the driver must be able to append meanwhile.
        while encoder.len() < FILE_BYTES_MAX {
            let Some(Queued { facts, sections, bytes: entry_bytes }) =
                self.queue.lock().entries.pop_front()
            else {
                break;
            };
            let id = BatchId(facts.batch_id);
            // The last entry's word counts, since a later snapshot may have replaced what earlier
            // entries needed.
            needs = BatchId(facts.needs);
            encoder.reserve(entry_bytes + entry_bytes / SLACK_PART + SLACK_BYTES);
            let added = encoder.add_sections(&facts, sections);
            added.map_err(|cause| cannot_encode(id, cause))?;
            (first, last) = (first.or(Some(id)), Some(id));
            bytes += entry_bytes;
        }
        let (Some(first), Some(last)) = (first, last) else { return Ok(()) };
        crash_points::reached(Step::BeforeState);
        let name = changes_name(first);
        self.storage.put_if_absent(&name, encoder.finish(), Durability::Power).await?;
        crash_points::reached(Step::AfterState);
        let mut queue = self.queue.lock();
        queue.bytes -= bytes;
        queue.written = Some(last);
        queue.written_us = self.env.now_us();
        queue.files.push_back((first, last));
        queue.needed_from = queue.needed_from.max(Some(needs));
        Ok(())
    }

    async fn delete_superfluous(&self) {
        let names: Vec<String> = {
            let mut queue = self.queue.lock();
            let needed_from = queue.needed_from;
            // The last file stays in any case: its facts say where the query stands.
            let old = queue.files.iter().take_while(|(_, last)| Some(*last) < needed_from).count();
            let old = old.min(queue.files.len().saturating_sub(1));
            if old < DELETED_AT_ONCE || queue.readers > 0 {
                return;
            }
            queue.is_deleting = true;
            queue.files.drain(..old).map(|(first, _)| changes_name(first)).collect()
        };
        if let Err(error) = self.storage.delete_many(names).await {
            tracing::warn!(%error, "state files that are not needed cannot be deleted");
        }
        self.queue.lock().is_deleting = false;
        self.written.notify_waiters();
    }
}

/// Tells waiting tickets when the writer ends by a panic.
struct Ending(Option<Arc<Shared>>);

impl Drop for Ending {
    fn drop(&mut self) {
        if let Some(shared) = &self.0 {
            shared.queue.lock().failure.get_or_insert_with(|| Arc::new(WriteError::Stopped));
            shared.written.notify_waiters();
        }
    }
}

fn cannot_encode(id: BatchId, cause: String) -> WriteError {
    let path = format!("the changes of micro-batch {id}");
    WriteError::Put(PutError::Other { path, cause, kind: Kind::Bug })
}

//! Compaction beside a stream.
//!
//! A thread of low priority is told of every file that this process adds, looks at them every two
//! seconds, and rewrites a few bins that are due. It reads the log for files of others at its start
//! and once an hour; in between nothing is read to know what there is.
//!
//! A commit waits for none of this but the swap, which holds the table for one request. So the swap
//! follows a commit at once: where commits come at intervals it is over before the next one. It is
//! made by a thread of ordinary priority, since a commit may wait for it. Beside merges it follows
//! nothing: the next commit may change one of the files, and the swap would be in vain.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use millstream_store::env::{Env, Thread};
use parking_lot::{Condvar, Mutex};

use super::bins::{self, Bin};
use super::left_behind;
use super::rewrite::Rewriter;
use super::small_files::{self, Place, SmallFile, Wanted};
use crate::checkpoint::PartFileNames;
use crate::data_file::DataFile;
use crate::error::TableError;
use crate::kernel::KernelEngine;
use crate::store::TableStore;
use crate::table::Table;
use crate::table::merge::{ChangedFile, MergedFiles};
use crate::table::replace::{Replaced, Replacement};

/// Between two looks: a swap is in the way of few commits, however many there are.
const PAUSE: Duration = Duration::from_secs(2);
/// After a failure, which may last.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(60);
/// Files of others are looked for so often.
const SCAN_INTERVAL: Duration = Duration::from_secs(3600);
/// Small files that are kept in mind, a kilobyte or two each. Further ones are found by a later
/// scan.
const FILES_MAX: usize = 20_000;
/// Files removed by others that are kept in mind; with more, the log is read again.
const REMOVALS_MAX: usize = 100_000;
/// What is rewritten for one commit, unless a single bin is more.
const COMMIT_BYTES: u64 = 256 << 20;
const COMMIT_BINS: usize = 64;
/// So long a swap waits for a commit to follow.
const PATIENCE: Duration = Duration::from_millis(100);

/// When files are compacted beside a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AutoCompact {
    /// As many files of one partition, bucket and tier are rewritten; at least 2.
    pub files_min: usize,
    /// The size of what comes of it, at most. Files of at least half of it are left alone.
    pub target_bytes: u64,
    /// From one look to the next.
    pub pause: Duration,
    /// The query that opened the table.
    pub application: String,
}

impl Default for AutoCompact {
    fn default() -> Self {
        let application = String::new();
        Self { files_min: 50, target_bytes: 128 << 20, pause: PAUSE, application }
    }
}

/// What was compacted beside the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compactions {
    /// Commits.
    pub commits: u64,
    /// Files that were removed.
    pub files_removed: u64,
    /// Files that took their place.
    pub files_added: u64,
    /// Bytes that were written.
    pub bytes_added: u64,
    /// Attempts that failed.
    pub failed: u64,
}

/// Compacts a table that this process writes to.
pub(crate) struct Compactor {
    shared: Arc<Shared>,
    /// Joined when this is dropped, after they were asked to end.
    _threads: [Thread; 2],
}

struct Shared {
    /// The query that opened the table.
    application: String,
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    /// Files that were added or changed since the last look, with their versions.
    added: Vec<(u64, Arrived)>,
    /// Counts appends.
    appends: u64,
    /// Whether the query that opened the table has published something.
    has_published: bool,
    compactions: Compactions,
    is_ending: bool,
    is_working: bool,
    /// Nothing is compacted any more.
    is_over: bool,
}

/// What is to be known of a commit of this process.
#[derive(Debug)]
enum Arrived {
    /// A file is new.
    Written(DataFile),
    /// A file got another deletion vector.
    Changed(ChangedFile),
    /// Rows were merged.
    Merge,
}

impl Compactor {
    /// Compacts `table` from now on.
    pub(crate) fn start(table: &Arc<Table>, names: &PartFileNames, settings: AutoCompact) -> Self {
        let application = settings.application.clone();
        let shared = Shared { application, state: Mutex::default(), wake: Condvar::new() };
        let shared = Arc::new(shared);
        table.watch_removals();
        let env = table.store().env().clone();
        let (jobs, work) = sync_channel(1);
        let (answers, published) = sync_channel(1);
        let swapping = Arc::clone(table);
        let swaps = env.thread("lake-swap", move || swap(&swapping, &work, &answers));
        let store = table.store().in_background();
        let worker = Worker {
            engine: KernelEngine::new(&store),
            store,
            table: Arc::clone(table),
            names: names.clone(),
            shared: Arc::clone(&shared),
            candidates: BTreeMap::new(),
            removed: HashMap::new(),
            swaps: Swaps { jobs, published },
            sees_merges: false,
            last_scan: None,
            scanned: 0,
            settings,
        };
        let looks = env.background_thread("lake-compact", move || worker.run());
        Self { shared, _threads: [looks, swaps] }
    }

    /// Says that `application` has added `files` with `version`.
    pub(crate) fn appended(&self, application: &str, version: u64, files: &[DataFile]) {
        self.shared.add(application, version, files.iter().cloned().map(Arrived::Written));
    }

    /// Says that `application` has added files with `version`, and given others another deletion
    /// vector.
    pub(crate) fn merged(&self, application: &str, version: u64, files: MergedFiles) {
        let MergedFiles { added, changed } = files;
        let added = added.into_iter().map(Arrived::Written);
        self.shared.add(
            application,
            version,
            std::iter::once(Arrived::Merge)
                .chain(added)
                .chain(changed.into_iter().map(Arrived::Changed)),
        );
    }

    /// What was done so far.
    pub(crate) fn compactions(&self) -> Compactions {
        self.shared.state.lock().compactions
    }

    /// Waits until everything that was added is looked at.
    pub(crate) fn settle(&self) {
        let mut state = self.shared.state.lock();
        while !state.is_over && (!state.added.is_empty() || state.is_working) {
            self.shared.wake.wait(&mut state);
        }
    }
}

impl Drop for Compactor {
    fn drop(&mut self) {
        self.shared.state.lock().is_ending = true;
        self.shared.wake.notify_all();
    }
}

/// Publishes what the other thread has written.
fn swap(
    table: &Table,
    work: &Receiver<Arc<Replacement>>,
    answers: &SyncSender<Result<Option<Replaced>, TableError>>,
) {
    while let Ok(replacement) = work.recv() {
        if answers.send(table.replace(&replacement)).is_err() {
            return;
        }
    }
}

struct Swaps {
    jobs: SyncSender<Arc<Replacement>>,
    published: Receiver<Result<Option<Replaced>, TableError>>,
}

impl Shared {
    fn add(&self, application: &str, version: u64, files: impl Iterator<Item = Arrived>) {
        let mut state = self.state.lock();
        if state.is_over {
            return;
        }
        state.appends += 1;
        state.has_published |= self.application == application;
        let room = FILES_MAX.saturating_sub(state.added.len());
        state.added.extend(files.take(room).map(|file| (version, file)));
        drop(state);
        self.wake.notify_all();
    }
}

struct Worker {
    table: Arc<Table>,
    /// Gives way to commits.
    store: TableStore,
    engine: KernelEngine,
    names: PartFileNames,
    shared: Arc<Shared>,
    settings: AutoCompact,
    /// Small files by place. Each is live, unless others have removed it since the last look.
    candidates: BTreeMap<Place, Vec<SmallFile>>,
    swaps: Swaps,
    /// What others have removed since the last scan. A file that this process has added may come to
    /// be looked at after that, so it is kept.
    removed: HashMap<String, u64>,
    /// Whether rows are merged into the table: a commit may then change any file.
    sees_merges: bool,
    /// On the monotonic clock.
    last_scan: Option<Duration>,
    /// The version that was scanned: what was added up to it is known from the scan.
    scanned: u64,
}

impl Worker {
    fn run(mut self) {
        let mut pause = Duration::ZERO;
        while let Some(added) = self.next(pause) {
            pause = self.settings.pause;
            match self.look(added) {
                Ok(()) => {}
                Err(error) if is_for_good(&error) => {
                    let table = self.store.shown();
                    tracing::warn!(table, %error, "the table's files are not compacted");
                    break;
                }
                Err(error) => {
                    self.shared.state.lock().compactions.failed += 1;
                    let table = self.store.shown();
                    tracing::warn!(table, %error, "small files were not compacted");
                    // What was in hand is found again.
                    (self.last_scan, pause) = (None, PAUSE_AFTER_FAILURE);
                }
            }
        }
        let mut state = self.shared.state.lock();
        (state.is_over, state.is_working) = (true, false);
        state.added = Vec::new();
        self.shared.wake.notify_all();
    }

    /// What was added, when it is time to look at it; `None` at the end.
    fn next(&self, pause: Duration) -> Option<Vec<(u64, Arrived)>> {
        let due = self.env().monotonic() + pause;
        let mut state = self.shared.state.lock();
        state.is_working = false;
        self.shared.wake.notify_all();
        loop {
            let left = due.saturating_sub(self.env().monotonic());
            // What is due is done before the end, as checkpoints are: a query that runs for a few
            // commits at a time would never be compacted otherwise.
            if !state.added.is_empty() && state.has_published && (left.is_zero() || state.is_ending)
            {
                state.is_working = true;
                return Some(std::mem::take(&mut state.added));
            }
            if state.is_ending {
                return None;
            }
            if left.is_zero() {
                self.shared.wake.wait(&mut state);
            } else {
                let _ = self.shared.wake.wait_for(&mut state, left);
            }
        }
    }

    fn look(&mut self, added: Vec<(u64, Arrived)>) -> Result<(), TableError> {
        self.removed.extend(self.table.take_removals());
        if self.is_scan_due() || self.removed.len() > REMOVALS_MAX {
            self.scan()?;
        }
        // A file that a merge has changed came here once for each time.
        let mut newest = HashMap::new();
        let scanned = self.scanned;
        for (version, file) in added.into_iter().filter(|(version, _)| *version > scanned) {
            match file {
                Arrived::Written(file) => self.keep(SmallFile::written(&file, version)),
                Arrived::Merge => self.sees_merges = true,
                Arrived::Changed(file) => {
                    newest.extend(
                        SmallFile::changed(&file, version)
                            .map(|file| (file.file.path.clone(), file)),
                    );
                }
            }
        }
        // Before their newest forms come: with each change a file was removed as it had been.
        self.forget_removed();
        newest.into_values().for_each(|file| self.keep(file));
        // Last: a file may be removed by others before it is looked at for the first time.
        self.forget_removed();
        let bins = self.due();
        if bins.is_empty() {
            return Ok(());
        }
        self.compact(&bins)
    }

    fn is_scan_due(&self) -> bool {
        let now = self.env().monotonic();
        self.last_scan.is_none_or(|last| now >= last + SCAN_INTERVAL)
    }

    /// Finds all small files anew.
    fn scan(&mut self) -> Result<(), TableError> {
        if self.scanned == 0 {
            let owner = owner(&self.settings.application);
            let cleared = left_behind::clear(&self.table, &self.store, Some(&owner))?;
            if cleared > 0 {
                let table = self.store.shown();
                tracing::info!(table, files = cleared, "deleted what a compaction left behind");
            }
        }
        let snapshot = self.table.snapshot();
        let wanted =
            Wanted { bytes: self.small_bytes(), files_max: FILES_MAX, partition: &|_| true };
        let found = small_files::find(&self.engine, &snapshot, &wanted)?;
        self.candidates.clear();
        found.into_iter().for_each(|file| self.keep(file));
        self.scanned = snapshot.version();
        self.last_scan = Some(self.env().monotonic());
        // What others had removed before is not among what was found, and of what this process has
        // added until then nothing is looked at. Later removals are kept in mind from here on.
        self.removed = self.table.take_removals();
        Ok(())
    }

    fn small_bytes(&self) -> u64 {
        self.settings.target_bytes / 2
    }

    fn keep(&mut self, file: SmallFile) {
        let count: usize = self.candidates.values().map(Vec::len).sum();
        // A large file with deleted rows would take as much memory as it is large.
        if count < FILES_MAX && file.file.size < self.small_bytes() {
            self.candidates.entry(file.place.clone()).or_default().push(file);
        }
    }

    fn forget_removed(&mut self) {
        let (table, removed) = (&self.table, &self.removed);
        if removed.is_empty() {
            return;
        }
        for files in self.candidates.values_mut() {
            let is_there = |file: &SmallFile| {
                let removed = removed.get(&table.file_name(&file.file.path));
                removed.is_none_or(|removed| *removed <= file.file.since)
            };
            files.retain(is_there);
        }
        self.candidates.retain(|_, files| !files.is_empty());
    }

    /// Takes bins that are due, as much as is rewritten for one commit.
    fn due(&mut self) -> Vec<Bin> {
        let AutoCompact { files_min, target_bytes, .. } = self.settings;
        let (mut bins, mut bytes) = (Vec::new(), 0);
        for (place, files) in &mut self.candidates {
            while bytes < COMMIT_BYTES
                && bins.len() < COMMIT_BINS
                && let Some(bin) = bins::due(place, files, (files_min.max(2), target_bytes))
            {
                bytes += bin.bytes();
                bins.push(bin);
            }
        }
        self.candidates.retain(|_, files| !files.is_empty());
        bins
    }

    fn compact(&mut self, bins: &[Bin]) -> Result<(), TableError> {
        let rewriter = Rewriter::new(&self.table, &self.store, &self.engine, Some(&self.names))?;
        let parameters = vec![
            ("predicate", "[]".to_owned()),
            ("zOrderBy", "[]".to_owned()),
            ("auto", "true".to_owned()),
        ];
        let began = self.env().monotonic();
        let owner = owner(&self.settings.application);
        let rewritten = rewriter.rewrite(bins, &owner, parameters)?;
        let took = self.env().monotonic().saturating_sub(began);
        if !self.sees_merges {
            self.wait_for_append();
        }
        let replacement = Arc::clone(rewritten.replacement());
        let published = self.swaps.publish(&replacement);
        rewritten.settle(&self.store, &published);
        let Some(replaced) = published? else {
            self.last_scan = None;
            return Ok(());
        };
        let mut compactions = self.shared.state.lock().compactions;
        compactions.commits += 1;
        for swap in replaced.swaps.iter().map(|index| &replacement.swaps[*index]) {
            compactions.files_removed += swap.removed.len() as u64;
            compactions.files_added += swap.added.len() as u64;
            compactions.bytes_added += swap.added.iter().map(|file| file.size).sum::<u64>();
            let written = |file| SmallFile::written(file, replaced.version);
            swap.added.iter().map(written).for_each(|file| self.keep(file));
        }
        if replaced.swaps.len() < bins.len() {
            // Somebody else is at work: some of the files of the others are there still.
            self.last_scan = None;
        }
        tracing::debug!(
            version = replaced.version,
            bins = bins.len(),
            ?compactions,
            took_ms = took.as_millis(),
            "small files were compacted"
        );
        self.shared.state.lock().compactions = compactions;
        Ok(())
    }

    /// Waits until a commit is through, but not for long: there may be none.
    fn wait_for_append(&self) {
        let mut state = self.shared.state.lock();
        let appends = state.appends;
        let is_waiting = |state: &mut State| state.appends == appends && !state.is_ending;
        self.shared.wake.wait_while_for(&mut state, is_waiting, PATIENCE);
    }

    fn env(&self) -> &Env {
        self.store.env()
    }
}

impl Swaps {
    fn publish(&self, replacement: &Arc<Replacement>) -> Result<Option<Replaced>, TableError> {
        let sent = self.jobs.send(Arc::clone(replacement));
        sent.expect("the other thread ends after this one");
        self.published.recv().expect("the other thread answers what it was sent")
    }
}

/// An application as it stands in names of files.
fn owner(application: &str) -> String {
    let is_plain = |letter: &char| letter.is_ascii_alphanumeric() || *letter == '-';
    application.chars().filter(is_plain).collect()
}

/// Whether another attempt would end in the same way.
fn is_for_good(error: &TableError) -> bool {
    matches!(
        error,
        TableError::Unsupported { .. }
            | TableError::Fenced { .. }
            | TableError::Gone { .. }
            | TableError::Missing { .. }
    )
}

//! Finds new files, and writes them into the source log before anybody hears of them.
//!
//! [`Scanner::scan`] is one look at the directory: list, leave out what was seen, count rows, log,
//! offer. A file that changes while its rows are counted is still being written; it is left for the
//! next look. [`watch`] repeats it in the background.

use std::collections::{HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use millstream_engine::api::source::{Failure, Kind};
use millstream_store::env::Env;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::error::FileError;
use super::listing::{FileStatus, Place, modified_ms};
use super::read::FileReader;
use super::source_log::{FileLog, Logged};

/// A directory whose time of change is this old cannot get a file without a newer time; it is the
/// coarsest step that file systems and remote clocks are expected to have.
const SETTLED_MS: i64 = 2_000;
/// Every so many looks the directory is listed even if its time of change says that nothing is new:
/// some remote file systems forget to update it.
const TRUSTED_LOOKS_MAX: u32 = 100;

/// A file whose rows were counted.
#[derive(Clone, Debug)]
pub(super) struct Counted {
    pub(super) file: FileStatus,
    pub(super) rows: u64,
}

/// The files of one entry of the source log.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) number: i64,
    pub(super) files: Vec<Counted>,
    /// When the files were found, microseconds since the epoch.
    pub(super) found_at_us: i64,
}

/// Entries that are logged and not taken yet; between the scanner and the source.
pub(super) struct Queue {
    content: Mutex<QueueContent>,
    /// Counts changes; the source waits on it.
    changes: watch::Sender<u64>,
}

#[derive(Default)]
struct QueueContent {
    entries: VecDeque<Entry>,
    failure: Option<Failure>,
    /// The last logged entry, -1 before the first.
    last_number: i64,
}

impl Queue {
    pub(super) fn new(last_number: i64) -> Self {
        let content = QueueContent { last_number, ..QueueContent::default() };
        Self { content: Mutex::new(content), changes: watch::Sender::new(0) }
    }

    pub(super) fn push(&self, entry: Entry) {
        let mut content = self.content.lock();
        content.last_number = content.last_number.max(entry.number);
        content.entries.push_back(entry);
        self.changes.send_modify(|changes| *changes += 1);
    }

    pub(super) fn fail(&self, failure: Failure) {
        self.content.lock().failure = Some(failure);
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// The next entries, at most `entries_max`; the failure once all entries are taken.
    pub(super) fn take(&self, entries_max: usize) -> Result<Vec<Entry>, Failure> {
        let mut content = self.content.lock();
        let count = content.entries.len().min(entries_max);
        if count == 0
            && let Some(failure) = content.failure.take()
        {
            return Err(failure);
        }
        Ok(content.entries.drain(..count).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        let content = self.content.lock();
        content.entries.is_empty() && content.failure.is_none()
    }

    pub(super) fn last_number(&self) -> i64 {
        self.content.lock().last_number
    }

    /// Completes when there is something to take.
    pub(super) async fn filled(&self) {
        let mut changes = self.changes.subscribe();
        // The sender is in `self`, so waiting cannot fail.
        let _ = changes.wait_for(|_| !self.is_empty()).await;
    }
}

/// Looks for new files.
pub(super) struct Scanner {
    env: Env,
    reader: FileReader,
    place: Place,
    log: FileLog,
    queue: Arc<Queue>,
    seen: Arc<Mutex<HashSet<PathBuf>>>,
    looked: Looked,
    /// Set once the end of the query is fixed.
    pub(super) is_closed: bool,
}

/// What is known of the watched directory from the last look.
#[derive(Clone, Copy, Debug, Default)]
struct Looked {
    modified_ms: Option<i64>,
    trusted: u32,
}

impl Scanner {
    /// A scanner that goes on after what `log` has.
    pub(super) fn new(
        env: Env,
        reader: FileReader,
        place: Place,
        log: FileLog,
        queue: Arc<Queue>,
    ) -> Self {
        let seen = log.files().iter().map(|logged| logged.file.path.clone()).collect();
        Self {
            env,
            reader,
            place,
            log,
            queue,
            seen: Arc::new(Mutex::new(seen)),
            looked: Looked::default(),
            is_closed: false,
        }
    }

    /// The logged files of entries after `start` up to and with `end`.
    pub(super) fn logged_between(&self, start: i64, end: i64) -> Vec<Logged> {
        let between = |logged: &&Logged| logged.entry > start && logged.entry <= end;
        self.log.files().iter().filter(between).cloned().collect()
    }

    /// Looks once, and offers what is new.
    pub(super) async fn scan(&mut self) -> Result<(), Failure> {
        let mut new: VecDeque<FileStatus> = self.list().await?.into();
        let found_at_us = self.env.now_us();
        while !new.is_empty() {
            let group = new.drain(..self.group(&new)).collect();
            let files = count_settled(&self.env, &self.reader, group).await?;
            if !files.is_empty() {
                self.offer(files, found_at_us).await?;
            }
        }
        Ok(())
    }

    /// How many of `new` one micro-batch may have: as many as the options and the limit of memory
    /// allow, at least one.
    fn group(&self, new: &VecDeque<FileStatus>) -> usize {
        let options = &self.reader.options;
        let files_max = options.files_max.unwrap_or(usize::MAX);
        let mut left = options.bytes_max.unwrap_or(u64::MAX);
        let fits = |file: &&FileStatus| {
            let size = file.size.unwrap_or(0);
            let has_room = size <= left;
            left = left.saturating_sub(size);
            has_room
        };
        new.iter().take(files_max).take_while(fits).count().max(1)
    }

    async fn list(&mut self) -> Result<Vec<FileStatus>, Failure> {
        let (place, seen, looked) = (self.place.clone(), self.seen.clone(), self.looked);
        let now_ms = self.env.now_ms();
        let look = move || list(&place, &seen.lock(), looked, now_ms);
        let (files, looked) = self.env.spawn_blocking("files-list", look).join().await?;
        self.looked = looked;
        Ok(files)
    }

    async fn offer(&mut self, files: Vec<Counted>, found_at_us: i64) -> Result<(), Failure> {
        // As it will be read back after a restart.
        let found = |counted: &Counted| FileStatus { size: None, ..counted.file.clone() };
        let new = files.iter().map(found).collect();
        let number = self.log.append(new, self.env.monotonic()).await?;
        self.seen.lock().extend(files.iter().map(|counted| counted.file.path.clone()));
        self.queue.push(Entry { number, files, found_at_us });
        Ok(())
    }
}

/// Files in `place` that are not in `seen`.
fn list(
    place: &Place,
    seen: &HashSet<PathBuf>,
    looked: Looked,
    now_ms: i64,
) -> Result<(Vec<FileStatus>, Looked), FileError> {
    let modified = |path: &Path| std::fs::metadata(path).ok().map(|now| modified_ms(&now));
    let modified_ms = place.watched_directory().and_then(modified);
    let is_settled = modified_ms.is_some_and(|modified| modified + SETTLED_MS < now_ms);
    let is_same = modified_ms.is_some() && modified_ms == looked.modified_ms;
    if is_same && looked.trusted < TRUSTED_LOOKS_MAX {
        return Ok((vec![], Looked { trusted: looked.trusted + 1, ..looked }));
    }
    let files = place.list(&|path| !seen.contains(path))?;
    // A file may still appear within the same tick of the file system's clock.
    let modified_ms = modified_ms.filter(|_| is_settled && files.is_empty());
    Ok((files, Looked { modified_ms, trusted: 0 }))
}

/// Counts the rows of `files`, leaving out those that are still being written or have gone.
async fn count_settled(
    env: &Env,
    reader: &FileReader,
    files: Vec<FileStatus>,
) -> Result<Vec<Counted>, Failure> {
    let reader = reader.clone();
    let work = move || {
        let mut counted = Vec::with_capacity(files.len());
        for file in files {
            match reader.count(&file) {
                Ok(rows) => counted.push(Counted { file, rows }),
                Err(FileError::Changed { .. } | FileError::Vanished { .. }) => {}
                // Logged as seen, so that it is not looked at for ever.
                Err(error) if reader.skips(&error) => counted.push(Counted { file, rows: 0 }),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(counted)
    };
    env.spawn_blocking("files-count", work).join().await
}

/// Counts the rows of files that are in the log: they must be there and as they were.
pub(super) async fn count_logged(
    env: &Env,
    reader: &FileReader,
    files: Vec<Logged>,
) -> Result<Vec<Entry>, Failure> {
    let found_at_us = env.now_us();
    let reader = reader.clone();
    let work = move || {
        let mut entries: Vec<Entry> = Vec::new();
        for Logged { file, entry } in files {
            let rows = match reader.count(&file) {
                Ok(rows) => rows,
                Err(error) if reader.skips(&error) => continue,
                Err(error) => return Err(Failure::from(error)),
            };
            let counted = Counted { file, rows };
            match entries.last_mut() {
                Some(last) if last.number == entry => last.files.push(counted),
                _ => entries.push(Entry { number: entry, files: vec![counted], found_at_us }),
            }
        }
        Ok(entries)
    };
    env.spawn_blocking("files-count", work).join().await
}

/// Scans every `interval` until the scanner is closed or fails for good.
pub(super) async fn watch(
    env: Env,
    scanner: Arc<tokio::sync::Mutex<Scanner>>,
    queue: Arc<Queue>,
    interval: Duration,
) {
    loop {
        {
            let mut scanner = scanner.lock().await;
            if scanner.is_closed {
                return;
            }
            match scanner.scan().await {
                Ok(()) => {}
                Err(failure) if failure.kind() == Kind::Retry => {
                    tracing::warn!("looking for files failed and is repeated: {failure}");
                }
                Err(failure) => {
                    queue.fail(failure);
                    return;
                }
            }
        }
        env.sleep(interval).await;
    }
}

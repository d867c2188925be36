//! A directory that one query writes to: whose it is, and how a commit is made.
//!
//! Commit N becomes visible in these steps:
//!
//! 1. its files are there whole, under hidden names, flushed to the disk;
//! 2. record N is put into `_millstream/commits` ([`super::commit_record`]). From now on N is made;
//! 3. the files get their names, `part-N-...`, each in one step;
//! 4. entry N of the manifest lists them ([`super::manifest`]), and record N-1 goes.
//!
//! A crash before 2 leaves hidden files, which the next start removes; their rows are read again. A
//! crash after 2 leaves the rest of the steps to the next start. So each file that ever had a name
//! that readers look at stays, a reader that goes by names reads each row once, and Spark, which
//! goes by the manifest, finds all files that it names.
//!
//! `_millstream/query_id` and `_millstream/lock` are there since a directory belongs to one query,
//! the numbers of another's micro-batches would be taken for repeats, and to one process at a time.

use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millstream_engine::api::sink::{BatchId, EndOffsets, Failure, Published};
use millstream_store::crash_points::{self, Step};
use parking_lot::Mutex;

use super::commit_record::{CommittedFile, Record, Records};
use super::durable::{self, TEMPORARY};
use super::error::FileError;
use super::listing::modified_ms;
use super::manifest::Manifest;
use super::target::Target;
use super::write::PartWriter;
use crate::gather::Destination;

/// Unfinished files of a process that may still live, where a file system has no locks, are left
/// alone for so long.
const ABANDONED: Duration = Duration::from_secs(3_600);

/// A directory, open for writing.
pub(super) struct Directory {
    target: Target,
    /// Tells names of this process from those of any other.
    instance: String,
    files_begun: Arc<AtomicU64>,
    manifest: Mutex<Manifest>,
    records: Records,
    _lock: Option<File>,
}

impl Directory {
    /// Opens it, finishes what a crash left half-done, and says what was published last.
    pub(super) fn open(target: Target) -> Result<(Self, Option<Published>), FileError> {
        let instance = format!("{:08x}", target.env.random_u64() as u32);
        let Target { path, options, env, .. } = &target;
        let own = path.join("_millstream");
        let records = Records::open(own.join("commits"))?;
        let lock = lock(&own.join("lock"))?;
        let manifest = Manifest::open(path, options.log.clone(), &instance, env)?;
        let last = records.last()?;
        claim(&target, last.is_some() || manifest.last().is_some())?;
        let manifest = Mutex::new(manifest);
        let files_begun = Arc::default();
        let directory = Self { target, instance, files_begun, manifest, records, _lock: lock };
        let published = directory.recover(last)?;
        directory.remove_unfinished()?;
        durable::sync_directory(&directory.target.path)?;
        // Each run of a query without a checkpoint adds to what is there.
        let counts = !directory.target.query_id.is_empty();
        Ok((directory, published.filter(|_| counts)))
    }

    /// Finishes the last commit, if a crash has cut it off.
    fn recover(&self, last: Option<Record>) -> Result<Option<Published>, FileError> {
        let mut manifest = self.manifest.lock();
        let Some(record) = last else {
            let legacy = manifest.last().map(BatchId);
            let names = durable::names(&self.target.path)?;
            if names.iter().any(|name| is_of_a_commit(name)) {
                let path = self.records.path().to_owned();
                return Err(FileError::NoRecord { path });
            }
            self.remove_unpublished(legacy, names)?;
            return Ok(legacy.map(|batch_id| Published { batch_id, end_offsets: None }));
        };
        let entry = record.entry();
        match manifest.last() {
            Some(last) if last == entry.number => {}
            Some(last) if last > entry.number => {
                let path = manifest.path().to_owned();
                return Err(FileError::Overtaken { path, last, ours: entry.number });
            }
            _ => self.finish(&record, &mut manifest)?,
        }
        self.records.forget_before(entry.number)?;
        Ok(Some(record.published()))
    }

    /// Removes files of micro-batches after `last` that earlier versions, which numbered files by
    /// micro-batch, had named and not published.
    fn remove_unpublished(
        &self,
        last: Option<BatchId>,
        names: Vec<String>,
    ) -> Result<(), FileError> {
        let path = &self.target.path;
        for name in names {
            let Some(batch_id) = legacy_batch_id(name.trim_start_matches('.')) else { continue };
            if name.starts_with('.') || last.is_none_or(|last| batch_id > last) {
                durable::remove(&path.join(name))?;
            }
        }
        Ok(())
    }

    /// Removes what was begun and is in no commit.
    fn remove_unfinished(&self) -> Result<(), FileError> {
        let manifest = self.manifest.lock().path().to_owned();
        for directory in [&self.target.path, &manifest, self.records.path()] {
            for name in durable::names(directory)? {
                let path = directory.join(&name);
                if name.starts_with(TEMPORARY) && self.is_abandoned(&path) {
                    durable::remove(&path)?;
                }
            }
        }
        Ok(())
    }

    fn is_abandoned(&self, path: &Path) -> bool {
        let age_ms = |metadata| self.target.env.now_ms().saturating_sub(modified_ms(&metadata));
        let is_old = |metadata| i128::from(age_ms(metadata)) > ABANDONED.as_millis() as i128;
        self._lock.is_some() || fs::metadata(path).is_ok_and(is_old)
    }

    fn commit(
        &self,
        files: Vec<CommittedFile>,
        batch_id: BatchId,
        end_offsets: &EndOffsets,
    ) -> Result<(), FileError> {
        let path = &self.target.path;
        let mut manifest = self.manifest.lock();
        let entry = manifest.next();
        // Only the record below decides; this spares its number where the other one is ahead.
        if manifest.has(entry) {
            return Err(FileError::Occupied { path: manifest.path().join(entry.name()) });
        }
        let extension = self.target.options.format.extension();
        let name = |place: usize| {
            format!("part-{:020}-{place:05}-{}.{extension}", entry.number, self.instance)
        };
        let named = |(place, part)| CommittedFile { name: name(place), ..part };
        let files: Vec<CommittedFile> = files.into_iter().enumerate().map(named).collect();
        durable::sync_directory(path)?;
        let record = Record::new(entry, batch_id, end_offsets, files);
        crash_points::reached(Step::BeforeCommit);
        self.records.put(&record, &self.instance)?;
        crash_points::reached(Step::AfterCommit);
        self.finish(&record, &mut manifest)?;
        self.records.forget_before(entry.number)?;
        tracing::debug!(entry = entry.number, files = record.files.len(), "committed");
        Ok(())
    }

    /// Steps 3 and 4 of a commit, or what is left of them.
    fn finish(&self, record: &Record, manifest: &mut Manifest) -> Result<(), FileError> {
        let path = &self.target.path;
        for part in &record.files {
            let (written, named) = (path.join(&part.written), path.join(&part.name));
            match fs::rename(&written, &named) {
                Err(error) if error.kind() == ErrorKind::NotFound && named.exists() => {}
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    return Err(FileError::Vanished { path: written });
                }
                renamed => renamed.map_err(|error| FileError::writing(&named, error))?,
            }
        }
        durable::sync_directory(path)?;
        crash_points::reached(Step::FilesNamed);
        manifest.append(record.entry(), path, &record.files)?;
        crash_points::reached(Step::FilesListed);
        Ok(())
    }
}

impl Destination for Directory {
    type File = CommittedFile;
    type Writer = PartWriter;

    const THREADS: [&'static str; 3] = ["files-gather", "files-write", "files-commit"];

    fn writer(&self) -> PartWriter {
        let files_begun = Arc::clone(&self.files_begun);
        let instance = self.instance.clone();
        let extension = self.target.options.format.extension();
        let next_name = move || {
            let number = files_begun.fetch_add(1, Ordering::Relaxed);
            format!("{TEMPORARY}{instance}-{number}.{extension}")
        };
        PartWriter::new(self.target.clone(), Box::new(next_name))
    }

    fn publish(
        &self,
        files: Vec<CommittedFile>,
        batch_id: BatchId,
        end_offsets: &EndOffsets,
    ) -> Result<(), Failure> {
        Ok(self.commit(files, batch_id, end_offsets)?)
    }
}

/// Takes the directory's lock, which ends with the process.
fn lock(path: &Path) -> Result<Option<File>, FileError> {
    let opened = File::options().read(true).write(true).create(true).truncate(false).open(path);
    let file = opened.map_err(|error| FileError::writing(path, error))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Err(FileError::InUse { path: path.to_owned() }),
        Err(TryLockError::Error(error)) => {
            // Records are still put only where none is, so a second writer is found out then.
            tracing::warn!(path = %path.display(), %error, "this file system has no locks; make \
                sure that no other process writes to the directory");
            Ok(None)
        }
    }
}

/// Makes the directory the query's own, or errors if commits of another are in it.
fn claim(target: &Target, is_used: bool) -> Result<(), FileError> {
    let directory = target.path.join("_millstream");
    let path = directory.join("query_id");
    match fs::read_to_string(&path) {
        Ok(found) if found.trim() == target.query_id => return Ok(()),
        Ok(found) if is_used => {
            let (path, found) = (target.path.clone(), found.trim().to_owned());
            return Err(FileError::OtherQuery { path, found, ours: target.query_id.clone() });
        }
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(FileError::Unreadable { path, error }),
    }
    durable::replace(&directory, "query_id", target.query_id.as_bytes())
}

/// Whether `name` is `part-<entry>-<place>-<instance>.<extension>`, as files of commits are named.
fn is_of_a_commit(name: &str) -> bool {
    let words: Vec<&str> = name.split(['-', '.']).collect();
    let is_number = |text: &str, length| text.len() == length && text.parse::<u64>().is_ok();
    matches!(words[..], ["part", entry, place, instance, _]
        if is_number(entry, 20) && is_number(place, 5) && instance.len() == 8)
}

/// The batch id in `part-<batch id>-<partition>.<extension>`, as earlier versions named files.
fn legacy_batch_id(name: &str) -> Option<BatchId> {
    let (batch_id, rest) = name.strip_prefix("part-")?.split_once('-')?;
    let is_ours = batch_id.len() == 20 && rest.split_once('.')?.0.parse::<u32>().is_ok();
    Some(BatchId(batch_id.parse().ok().filter(|_| is_ours)?))
}

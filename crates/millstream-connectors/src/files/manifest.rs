//! The manifest `_spark_metadata`: which files of a directory count, for Spark to read.
//!
//! Entry N has a line per file of commit N; a compact entry has the lines of all commits:
//!
//! ```text
//! v1
//! {"path":"file:///out/part-...","size":9,"isDir":false,"modificationTime":1767225600000,"blockReplication":1,"blockSize":33554432,"action":"add"}
//! ```
//!
//! Which entries there are, and when one is compact: [`metadata_log`]. What is superseded is
//! deleted when it is older than the cleanup delay: until then a reader that has listed the names
//! may still come for it. How old an entry is, its file's time of change says, which is set by the
//! query's clock when it is written.
//!
//! Origin: Spark's `FileStreamSinkLog`.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use millstream_store::env::Env;
use millstream_store::storage::make_directories;
use serde::{Deserialize, Serialize};

use super::commit_record::CommittedFile;
use super::durable::{self, put_if_absent};
use super::error::FileError;
use super::listing::modified_ms;
use super::metadata_log::{Entry, Numbers};
use super::options::LogSettings;
use super::uri;

const NAME: &str = "_spark_metadata";
const VERSION: &str = "v1";
/// What Hadoop says of a local file; nobody reads it.
const LOCAL_BLOCK_BYTES: u64 = 33_554_432;
/// A compact entry may repeat so many times what is new in it before they come less often.
const REPEATED_MAX: u64 = 4;

/// The manifest of a directory.
pub(super) struct Manifest {
    path: PathBuf,
    settings: LogSettings,
    instance: String,
    env: Env,
    numbers: Numbers,
    /// Size of the last compact entry, and of those after it.
    compact_bytes: u64,
    new_bytes: u64,
    /// When to look again for what can be deleted, milliseconds since the epoch.
    cleanup_due_ms: Option<i64>,
}

/// A line of an entry.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SinkFileStatus {
    path: String,
    size: u64,
    is_dir: bool,
    modification_time: i64,
    block_replication: u32,
    block_size: u64,
    action: &'static str,
}

/// What of a line decides whether it is repeated.
#[derive(Deserialize)]
struct Age {
    #[serde(rename = "modificationTime")]
    modified_ms: i64,
}

impl Manifest {
    /// Makes it, or reads it.
    pub(super) fn open(
        directory: &Path,
        settings: LogSettings,
        instance: &str,
        env: &Env,
    ) -> Result<Self, FileError> {
        let path = directory.join(NAME);
        make_directories(&path).map_err(|error| FileError::writing(&path, error))?;
        let entries: Vec<Entry> =
            durable::names(&path)?.iter().filter_map(|name| Entry::parse(name)).collect();
        let numbers = Numbers::of(&entries, settings.compact_interval)
            .map_err(|problem| damaged(&path, problem))?;
        let (instance, env) = (instance.to_owned(), env.clone());
        let (compact_bytes, new_bytes, cleanup_due_ms) = (0, 0, Some(0));
        let mut manifest = Self {
            path,
            settings,
            instance,
            env,
            numbers,
            compact_bytes,
            new_bytes,
            cleanup_due_ms,
        };
        for entry in manifest.numbers.current() {
            let path = manifest.path.join(entry.name());
            let metadata = fs::metadata(&path);
            let bytes = metadata.map_err(|error| FileError::Unreadable { path, error })?.len();
            manifest.count(entry, bytes);
        }
        Ok(manifest)
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The last entry.
    pub(super) fn last(&self) -> Option<u64> {
        self.numbers.last()
    }

    /// The entry that comes next.
    pub(super) fn next(&self) -> Entry {
        let repeats_much = self.new_bytes * REPEATED_MAX < self.compact_bytes;
        self.numbers.next(repeats_much)
    }

    /// Whether another writer has put `entry` there.
    pub(super) fn has(&self, entry: Entry) -> bool {
        let twin = Entry { is_compact: !entry.is_compact, ..entry };
        [entry, twin].iter().any(|entry| self.path.join(entry.name()).exists())
    }

    /// Writes the entry that comes next, with the files `parts` of `directory`; then deletes what
    /// nobody needs.
    pub(super) fn append(
        &mut self,
        entry: Entry,
        directory: &Path,
        parts: &[CommittedFile],
    ) -> Result<(), FileError> {
        let now_ms = self.env.now_ms();
        let mut bytes = 0;
        put_if_absent(&self.path, &entry.name(), &self.instance, |file| {
            let mut out = BufWriter::new(&mut *file);
            out.write_all(VERSION.as_bytes())?;
            if entry.is_compact {
                for repeated in self.numbers.current() {
                    self.repeat(repeated, now_ms, &mut out)?;
                }
            }
            for part in parts {
                let line = line(directory, part);
                write!(out, "\n{line}")?;
            }
            out.flush()?;
            drop(out);
            bytes = file.metadata()?.len();
            file.set_modified(UNIX_EPOCH + Duration::from_millis(now_ms.unsigned_abs()))
        })?;
        self.numbers.wrote(entry);
        self.count(entry, bytes);
        self.clean_up(entry.is_compact, now_ms);
        Ok(())
    }

    fn count(&mut self, entry: Entry, bytes: u64) {
        if entry.is_compact {
            (self.compact_bytes, self.new_bytes) = (bytes, 0)
        } else {
            self.new_bytes += bytes
        }
    }

    /// Copies the lines of `entry`, but for those of files past the retention.
    fn repeat(&self, entry: Entry, now_ms: i64, out: &mut impl Write) -> io::Result<()> {
        let path = self.path.join(entry.name());
        let of_file = |error: io::Error| {
            io::Error::new(error.kind(), format!("{} cannot be repeated: {error}", path.display()))
        };
        let lines = BufReader::new(File::open(&path).map_err(of_file)?).split(b'\n');
        for (place, line) in lines.enumerate() {
            let line = line.map_err(of_file)?;
            if place == 0 && line != VERSION.as_bytes() {
                let problem = format!("its first line is not {VERSION}");
                return Err(of_file(io::Error::new(io::ErrorKind::InvalidData, problem)));
            }
            if place == 0 || line.is_empty() || self.is_past(&line, now_ms) {
                continue;
            }
            out.write_all(b"\n")?;
            out.write_all(&line)?;
        }
        Ok(())
    }

    fn is_past(&self, line: &[u8], now_ms: i64) -> bool {
        let Some(retention) = self.settings.retention else { return false };
        // A line that does not read as one is repeated as it is: that is not for us to judge.
        let age =
            serde_json::from_slice::<Age>(line).map(|age| now_ms.saturating_sub(age.modified_ms));
        age.is_ok_and(|age_ms| i128::from(age_ms) > retention.as_millis() as i128)
    }

    /// Deletes entries that are superseded for longer than the cleanup delay.
    fn clean_up(&mut self, has_new: bool, now_ms: i64) {
        let is_due = self.cleanup_due_ms.is_some_and(|due_ms| due_ms <= now_ms);
        if !self.settings.deletion || !(has_new || is_due) {
            return;
        }
        match self.delete_superseded(now_ms) {
            Ok(left) => {
                let delay_ms = i64::try_from(self.settings.cleanup_delay.as_millis());
                let again = now_ms.saturating_add(delay_ms.unwrap_or(i64::MAX));
                self.cleanup_due_ms = left.then_some(again);
            }
            // What is left takes room and harms nobody; the next compact entry tries again.
            Err(error) => {
                self.cleanup_due_ms = None;
                tracing::warn!("superseded entries of the manifest stay: {error}");
            }
        }
    }

    /// True if some are too young yet.
    fn delete_superseded(&self, now_ms: i64) -> Result<bool, FileError> {
        let delay_ms = i64::try_from(self.settings.cleanup_delay.as_millis()).unwrap_or(i64::MAX);
        let mut left = false;
        for name in durable::names(&self.path)? {
            let entry = Entry::parse(&name);
            if !entry.is_some_and(|entry| self.numbers.is_superseded(entry.number)) {
                continue;
            }
            let path = self.path.join(name);
            // One that has gone meanwhile is as good as deleted.
            let Ok(metadata) = fs::metadata(&path) else { continue };
            if now_ms.saturating_sub(modified_ms(&metadata)) >= delay_ms {
                durable::remove(&path)?
            } else {
                left = true
            }
        }
        Ok(left)
    }
}

fn damaged(manifest: &Path, problem: String) -> FileError {
    FileError::Manifest { path: manifest.to_owned(), problem }
}

fn line(directory: &Path, part: &CommittedFile) -> String {
    let line = SinkFileStatus {
        path: uri::encode(&directory.join(&part.name)),
        size: part.size,
        is_dir: false,
        modification_time: part.modified_ms,
        block_replication: 1,
        block_size: LOCAL_BLOCK_BYTES,
        action: "add",
    };
    serde_json::to_string(&line).expect("text and numbers")
}

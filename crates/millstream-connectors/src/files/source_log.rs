//! The checkpoint's list of files: which file belongs to which offset.
//!
//! Entry N of the source log, the file `N`, holds the files between the offsets N-1 and N:
//!
//! ```text
//! v1
//! {"path":"file:///in/a.json","timestamp":1767225600000,"batchId":0}
//! ```
//!
//! `path` is URI-quoted, `timestamp` the time of the file's last change in milliseconds, `batchId`
//! the entry's number (not the micro-batch's). Some entries are called `N.compact` and repeat all
//! entries before them; which ones, [`super::metadata_log`] says. What is superseded is deleted:
//! after the cleanup delay, or at the next start, since nobody reads a checkpoint beside its query.
//!
//! Origin: Spark's `FileStreamSourceLog` and `CompactibleFileStreamLog`.

use std::collections::VecDeque;
use std::time::Duration;

use millstream_engine::api::source::{Failure, SourceLog};
use serde::{Deserialize, Serialize};

use super::error::FileError;
use super::listing::FileStatus;
use super::metadata_log::{Entry, Numbers};
use super::options::LogSettings;
use super::uri;

const VERSION: &str = "v1";
/// A compact entry may repeat so many times what is new in it before they come less often.
const REPEATED_MAX: usize = 4;

/// A file and the entry it stands in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Logged {
    pub(super) file: FileStatus,
    pub(super) entry: i64,
}

#[derive(Serialize, Deserialize)]
struct FileEntry {
    path: String,
    timestamp: i64,
    #[serde(rename = "batchId")]
    batch_id: i64,
}

/// The bytes of an entry.
fn encode<'a>(files: impl IntoIterator<Item = &'a Logged>) -> Vec<u8> {
    let mut text = VERSION.to_owned();
    for Logged { file, entry } in files {
        let line = FileEntry {
            path: uri::encode(&file.path),
            timestamp: file.modified_ms,
            batch_id: *entry,
        };
        text.push('\n');
        text.push_str(&serde_json::to_string(&line).expect("text and numbers"));
    }
    text.into_bytes()
}

fn decode(name: &str, bytes: &[u8]) -> Result<Vec<Logged>, FileError> {
    let damaged = |problem: String| FileError::Log { name: name.to_owned(), problem };
    let text = std::str::from_utf8(bytes).map_err(|error| damaged(error.to_string()))?;
    let mut lines = text.lines();
    if lines.next() != Some(VERSION) {
        return Err(damaged(format!("its first line is not {VERSION}")));
    }
    let logged = |text: &str| {
        let line: FileEntry = serde_json::from_str(text)
            .map_err(|error| damaged(format!("'{text}' is not an entry: {error}")))?;
        let path = uri::decode(&line.path)
            .ok_or_else(|| damaged(format!("'{}' is not a local path", line.path)))?;
        let file = FileStatus { path, modified_ms: line.timestamp, size: None };
        Ok(Logged { file, entry: line.batch_id })
    };
    lines.filter(|line| !line.is_empty()).map(logged).collect()
}

/// The list of files, to be added to.
pub(super) struct FileLog {
    log: SourceLog,
    settings: LogSettings,
    numbers: Numbers,
    /// All files that it has.
    files: Vec<Logged>,
    /// How many of them the last compact entry has.
    in_compact: usize,
    /// Entries that nobody needs, and when that was found, on the monotonic clock.
    superseded: VecDeque<(String, Duration)>,
}

impl FileLog {
    /// Reads it, and deletes what earlier runs have left.
    pub(super) async fn open(log: SourceLog, settings: LogSettings) -> Result<Self, Failure> {
        let names = log.list().await?;
        let entries: Vec<Entry> = names.iter().filter_map(|name| Entry::parse(name)).collect();
        let last = entries.iter().map(|entry| entry.number).max().unwrap_or(0);
        let numbers = Numbers::of(&entries, settings.compact_interval)
            .map_err(|problem| FileError::Log { name: last.to_string(), problem })?;
        let superseded = entries.iter().filter(|entry| numbers.is_superseded(entry.number));
        let superseded: Vec<String> = superseded.map(|entry| entry.name()).collect();
        let (files, in_compact) = (Vec::new(), 0);
        let superseded_since = VecDeque::new();
        let mut file_log =
            Self { log, settings, numbers, files, in_compact, superseded: superseded_since };
        for entry in file_log.numbers.current() {
            let name = entry.name();
            let bytes = file_log.log.get(&name).await?.ok_or_else(|| FileError::Log {
                name: name.clone(),
                problem: "it is missing".to_owned(),
            })?;
            let listed = decode(&name, &bytes)?;
            let number = i64::try_from(entry.number).unwrap_or(i64::MAX);
            let is_others = |logged: &&Logged| {
                if entry.is_compact { logged.entry > number } else { logged.entry != number }
            };
            if let Some(other) = listed.iter().find(is_others) {
                let problem = format!("it has files of entry {}: a copy of another", other.entry);
                return Err(FileError::Log { name, problem }.into());
            }
            file_log.files.extend(listed);
            if entry.is_compact {
                file_log.in_compact = file_log.files.len();
            }
        }
        if file_log.settings.deletion {
            file_log.delete(&superseded).await;
        }
        Ok(file_log)
    }

    /// All files in it.
    pub(super) fn files(&self) -> &[Logged] {
        &self.files
    }

    /// The number of the last entry; -1 where there is none.
    pub(super) fn last(&self) -> i64 {
        self.numbers.last().map_or(-1, signed)
    }

    /// Adds an entry with `files`; gives its number. `now` is on the monotonic clock.
    pub(super) async fn append(
        &mut self,
        files: Vec<FileStatus>,
        now: Duration,
    ) -> Result<i64, Failure> {
        let new = self.files.len() - self.in_compact;
        let entry = self.numbers.next(new.saturating_mul(REPEATED_MAX) < self.in_compact);
        let number = signed(entry.number);
        let new: Vec<Logged> =
            files.into_iter().map(|file| Logged { file, entry: number }).collect();
        let repeated = if entry.is_compact { &self.files[..] } else { &[] };
        let bytes = encode(repeated.iter().chain(&new));
        self.log.put_if_absent(&entry.name(), bytes).await?;
        let before = self.numbers.clone();
        self.numbers.wrote(entry);
        self.files.extend(new);
        if entry.is_compact {
            self.in_compact = self.files.len();
            // The compact entry before the previous one, and what followed it.
            let of = before.previous().into_iter().map(|number| Entry { number, is_compact: true });
            let gone = of.chain(before.current()).filter(|e| self.numbers.is_superseded(e.number));
            self.superseded.extend(gone.map(|entry| (entry.name(), now)));
        }
        self.clean_up(now).await;
        Ok(number)
    }

    async fn clean_up(&mut self, now: Duration) {
        if !self.settings.deletion {
            return;
        }
        let delay = self.settings.cleanup_delay;
        let is_old = |(_, since): &(String, Duration)| now.saturating_sub(*since) >= delay;
        let old = self.superseded.iter().take_while(|entry| is_old(entry)).count();
        let names: Vec<String> = self.superseded.drain(..old).map(|(name, _)| name).collect();
        self.delete(&names).await;
    }

    async fn delete(&self, names: &[String]) {
        if names.is_empty() {
            return;
        }
        // What stays takes room and harms nobody; the next start tries again.
        if let Err(error) = self.log.delete(names).await {
            tracing::warn!("superseded entries of the list of files stay: {error}");
        }
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).expect("numbers of a log stay far below")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logged(path: &str, entry: i64) -> Logged {
        let file =
            FileStatus { path: path.into(), modified_ms: 1_767_225_600_000 + entry, size: None };
        Logged { file, entry }
    }

    #[test]
    fn an_entry_has_the_bytes_that_spark_writes() {
        let entry = encode(&[logged("/data/in/a.json", 0), logged("/data/in/b c.json", 0)]);
        let wanted = "v1\n\
            {\"path\":\"file:///data/in/a.json\",\"timestamp\":1767225600000,\"batchId\":0}\n\
            {\"path\":\"file:///data/in/b%20c.json\",\"timestamp\":1767225600000,\"batchId\":0}";
        assert_eq!(String::from_utf8(entry).unwrap(), wanted);
    }

    fn settings(cleanup_delay: Duration) -> LogSettings {
        let (compact_interval, deletion, retention) = (10, true, None);
        LogSettings { compact_interval, deletion, cleanup_delay, retention }
    }

    async fn open(log: &SourceLog) -> Result<FileLog, Failure> {
        FileLog::open(log.clone(), settings(Duration::from_secs(600))).await
    }

    #[tokio::test]
    async fn a_log_that_spark_compacted_is_read() {
        let log = SourceLog::in_memory();
        let all: Vec<Logged> =
            (0..12).map(|entry| logged(&format!("/in/{entry}"), entry)).collect();
        log.put_if_absent("3", b"this entry is not needed any more".to_vec()).await.unwrap();
        log.put_if_absent("9.compact", encode(&all[..10])).await.unwrap();
        log.put_if_absent("10", encode(&all[10..11])).await.unwrap();
        log.put_if_absent("11", encode(&all[11..])).await.unwrap();
        let read = open(&log).await.unwrap();
        assert_eq!((read.files(), read.last()), (&all[..], 11));
        assert_eq!(log.list().await.unwrap(), ["10", "11", "9.compact"], "3 is superseded");
    }

    /// Two weeks of a file a minute: what the log keeps stays in proportion to the files.
    #[tokio::test]
    async fn what_is_superseded_goes_after_the_delay() {
        let log = SourceLog::in_memory();
        let delay = Duration::from_secs(600);
        let mut written = FileLog::open(log.clone(), settings(delay)).await.unwrap();
        for minute in 0..20_000_u64 {
            let file =
                FileStatus { path: format!("/in/{minute}").into(), modified_ms: 7, size: None };
            written.append(vec![file], Duration::from_secs(minute * 60)).await.unwrap();
        }
        let names = log.list().await.unwrap();
        let compact = names.iter().filter(|name| name.ends_with(".compact")).count();
        assert!(compact <= 3, "{compact} compact entries");
        let mut bytes = 0;
        for name in &names {
            bytes += log.get(name).await.unwrap().unwrap().len();
        }
        let files = encode(written.files()).len();
        assert!(bytes < 3 * files, "{bytes} bytes for {files} bytes of files");
        let read = open(&log).await.unwrap();
        assert_eq!((read.files(), read.last()), (written.files(), written.last()));
    }

    #[tokio::test]
    async fn damage_is_named() {
        let log = SourceLog::in_memory();
        assert_eq!(open(&log).await.map(|log| log.last()).unwrap(), -1);
        log.put_if_absent("1", b"v1\n{}".to_vec()).await.unwrap();
        let error = open(&log).await.err().unwrap().to_string();
        assert!(error.contains("list of files 1 is damaged: 0 is missing"), "{error}");
        log.put_if_absent("0", b"v1".to_vec()).await.unwrap();
        let error = open(&log).await.err().unwrap().to_string();
        assert!(error.contains("list of files 1 is damaged: '{}' is not an entry"), "{error}");
        log.put_if_absent("2.compact", b"v1".to_vec()).await.unwrap();
        log.put_if_absent("5", b"v1".to_vec()).await.unwrap();
        let error = open(&log).await.err().unwrap().to_string();
        assert!(error.contains("one in 3 should be compact"), "{error}");
    }
}

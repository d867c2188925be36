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
//! the entry's number (not the micro-batch's). Every tenth entry is called `N.compact` instead and
//! repeats all entries before it.
//!
//! Origin: Spark's `FileStreamSourceLog` and `CompactibleFileStreamLog`.

use millstream_engine::source::{Failure, SourceLog};
use serde::{Deserialize, Serialize};

use super::error::FileError;
use super::listing::Found;
use super::uri;

const VERSION: &str = "v1";
/// Spark's default for `spark.sql.streaming.fileSource.log.compactInterval`.
const COMPACT_INTERVAL: i64 = 10;

/// A file and the entry it stands in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Logged {
    pub(super) file: Found,
    pub(super) entry: i64,
}

#[derive(Serialize, Deserialize)]
struct Line {
    path: String,
    timestamp: i64,
    #[serde(rename = "batchId")]
    batch_id: i64,
}

/// Whether entry `entry` repeats all before it.
pub(super) fn is_compact(entry: i64) -> bool {
    (entry + 1) % COMPACT_INTERVAL == 0
}

/// The name of entry `entry`.
pub(super) fn name(entry: i64) -> String {
    if is_compact(entry) { format!("{entry}.compact") } else { entry.to_string() }
}

/// The number in an entry's name, and whether it repeats all before it; `None` for other files.
pub(super) fn parse_name(name: &str) -> Option<(i64, bool)> {
    let (number, compact) = match name.strip_suffix(".compact") {
        Some(number) => (number, true),
        None => (name, false),
    };
    let entry = number.parse().ok().filter(|entry| *entry >= 0)?;
    Some((entry, compact))
}

/// The bytes of an entry.
pub(super) fn encode<'a>(files: impl IntoIterator<Item = &'a Logged>) -> Vec<u8> {
    let mut text = VERSION.to_owned();
    for Logged { file, entry } in files {
        let line =
            Line { path: uri::encode(&file.path), timestamp: file.modified_ms, batch_id: *entry };
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
        let line: Line = serde_json::from_str(text)
            .map_err(|error| damaged(format!("'{text}' is not an entry: {error}")))?;
        let path = uri::decode(&line.path)
            .ok_or_else(|| damaged(format!("'{}' is not a local path", line.path)))?;
        let file = Found { path, modified_ms: line.timestamp, size: None };
        Ok(Logged { file, entry: line.batch_id })
    };
    lines.filter(|line| !line.is_empty()).map(logged).collect()
}

/// All files in the log, and the number of the last entry (-1 where there is none).
pub(super) async fn load(log: &SourceLog) -> Result<(Vec<Logged>, i64), Failure> {
    let names = log.list().await?;
    let entries: Vec<(i64, bool)> = names.iter().filter_map(|name| parse_name(name)).collect();
    if let Some((odd, _)) = entries.iter().find(|(entry, compact)| *compact != is_compact(*entry)) {
        let problem = format!(
            "every {COMPACT_INTERVAL}th entry should be compact, as with Spark's default \
             fileSource.log.compactInterval"
        );
        return Err(FileError::Log { name: odd.to_string(), problem }.into());
    }
    let last = entries.iter().map(|(entry, _)| *entry).max().unwrap_or(-1);
    let compact = entries.iter().filter(|(_, compact)| *compact).map(|(entry, _)| *entry).max();
    let mut files = Vec::new();
    for entry in compact.unwrap_or(0)..=last {
        let name = name(entry);
        let bytes = log.get(&name).await?.ok_or_else(|| FileError::Log {
            name: name.clone(),
            problem: "it is missing".to_owned(),
        })?;
        files.extend(decode(&name, &bytes)?);
    }
    Ok((files, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logged(path: &str, entry: i64) -> Logged {
        let file = Found { path: path.into(), modified_ms: 1_767_225_600_000 + entry, size: None };
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

    #[tokio::test]
    async fn a_log_that_spark_compacted_is_read() {
        let log = SourceLog::in_memory();
        let all: Vec<Logged> =
            (0..12).map(|entry| logged(&format!("/in/{entry}"), entry)).collect();
        log.put_if_absent("3", b"this entry is not needed any more".to_vec()).await.unwrap();
        log.put_if_absent("9.compact", encode(&all[..10])).await.unwrap();
        log.put_if_absent("10", encode(&all[10..11])).await.unwrap();
        log.put_if_absent("11", encode(&all[11..])).await.unwrap();
        assert_eq!(load(&log).await.unwrap(), (all, 11));
    }

    #[tokio::test]
    async fn damage_is_named() {
        let log = SourceLog::in_memory();
        assert_eq!(load(&log).await.unwrap(), (vec![], -1));
        log.put_if_absent("1", b"v1\n{}".to_vec()).await.unwrap();
        let error = load(&log).await.unwrap_err().to_string();
        assert!(error.contains("list of files 0 is damaged: it is missing"), "{error}");
        log.put_if_absent("0", b"v1".to_vec()).await.unwrap();
        let error = load(&log).await.unwrap_err().to_string();
        assert!(error.contains("list of files 1 is damaged: '{}' is not an entry"), "{error}");
        log.put_if_absent("2.compact", b"v1".to_vec()).await.unwrap();
        let error = load(&log).await.unwrap_err().to_string();
        assert!(error.contains("every 10th entry"), "{error}");
    }
}

//! What exactly-once rests on: the sink's own record of what is published.
//!
//! ```text
//! sinks/<name>/<N>   {"version":1,"table":"projects/p/datasets/d/tables/t","batchId":12,
//!                     "batchTimestampMs":1700000000000,"offsets":[{"rows":4000}],
//!                     "streams":[{"name":"projects/.../streams/a1","rows":4000}],"flushed":false,
//!                     "refused":[{"batchId":12,"batchTimestampMs":1700000000000,
//!                                 "rows":[{"row":"{\"n\":1}","error":"..."}]}]}
//! ```
//!
//! Rows are appended to streams of BigQuery that show nothing by themselves, and the entry that
//! names the streams, and how far each of them counts, is what publishes: it is written in one
//! step. That the rows are then made visible follows from it, and can be repeated. A crash before
//! the entry leaves rows that nobody sees and that are never made visible; after a crash behind it
//! the next start makes visible what is not yet.
//!
//! Rows that the service does not take are in the entry too, until they are among the dead letters:
//! nobody gives them again.
//!
//! An entry is only written behind the one that was read or written before, so of two processes
//! with the same checkpoint one is refused. Where the writing of an entry fails, it may be there
//! all the same; so before the next one it is looked at. Each process has a name of its own in its
//! entries, by which it knows them.

use millstream_engine::api::refusals::{Refusal, Refusals, RefusedRows};
use millstream_engine::api::sink::{BatchId, EndOffsets, Failure, Published, SourceOffset};
use millstream_store::error::Kind;
use millstream_store::sink_log::SinkLog;
use serde::{Deserialize, Serialize};

use super::error::BigQueryProblem;

/// The form of entries.
const VERSION: u32 = 1;

/// An entry.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Entry {
    version: u32,
    /// The resource name of the table, for people.
    table: String,
    /// The last micro-batch that is published; `None` where there is none.
    batch_id: Option<u64>,
    #[serde(default)]
    batch_timestamp_ms: i64,
    /// Where each source stood after it.
    #[serde(default)]
    offsets: Vec<Option<SourceOffset>>,
    /// The streams that have published rows.
    pub(super) streams: Vec<StreamRows>,
    /// Whether all of those rows are known to be visible.
    pub(super) flushed: bool,
    /// Rows up to there that the service does not take, and that may not be among the dead letters
    /// yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) refused: Vec<KeptRows>,
    /// The process that has written it.
    #[serde(default)]
    writer: String,
}

/// Refused rows of micro-batches that are published together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct KeptRows {
    /// The last of the micro-batches.
    batch_id: u64,
    batch_timestamp_ms: i64,
    rows: Vec<KeptRow>,
}

/// A refused row as JSON, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct KeptRow {
    row: String,
    error: String,
}

impl From<RefusedRows> for KeptRows {
    fn from(refused: RefusedRows) -> Self {
        let RefusedRows { batch_id, found_ms, rows, .. } = refused;
        let row = |Refusal { row, error }| KeptRow {
            row: String::from_utf8(row).unwrap_or_default(),
            error,
        };
        let rows = rows.into_iter().map(row).collect();
        Self { batch_id: batch_id.0, batch_timestamp_ms: found_ms, rows }
    }
}

impl From<KeptRows> for RefusedRows {
    fn from(kept: KeptRows) -> Self {
        let row = |KeptRow { row, error }| Refusal { row: row.into_bytes(), error };
        let rows = kept.rows.into_iter().map(row).collect();
        // All of them are published: it does not matter any more which is the first.
        let batch_id = BatchId(kept.batch_id);
        Self { first: batch_id, batch_id, found_ms: kept.batch_timestamp_ms, rows }
    }
}

/// What is refused and not among the dead letters yet, for an entry.
pub(super) fn kept(refusals: Option<&Refusals>) -> Vec<KeptRows> {
    let unpublished = refusals.map(Refusals::unpublished).unwrap_or_default();
    unpublished.into_iter().map(KeptRows::from).collect()
}

/// A stream of BigQuery, and how many of its rows are published.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StreamRows {
    pub(super) name: String,
    pub(super) rows: i64,
}

impl Entry {
    /// What `table` has once the rows of `streams` are visible.
    pub(super) fn new(
        table: &str,
        batch_id: BatchId,
        end_offsets: &EndOffsets,
        streams: Vec<StreamRows>,
    ) -> Self {
        Self {
            version: VERSION,
            table: table.to_owned(),
            batch_id: Some(batch_id.0),
            batch_timestamp_ms: end_offsets.batch_time_ms,
            offsets: end_offsets.ends.clone(),
            streams,
            flushed: false,
            refused: Vec::new(),
            writer: String::new(),
        }
    }

    /// What is reported to the driver.
    pub(super) fn published(&self) -> Option<Published> {
        let ends = self.offsets.clone();
        let end_offsets = EndOffsets { ends, batch_time_ms: self.batch_timestamp_ms };
        let batch_id = BatchId(self.batch_id?);
        Some(Published { batch_id, end_offsets: Some(end_offsets) })
    }

    /// What is published, for people.
    pub(super) fn upto(&self) -> String {
        match self.batch_id {
            None => "its beginning".to_owned(),
            Some(batch_id) => {
                let offsets = serde_json::to_string(&self.offsets).unwrap_or_default();
                format!("micro-batch {batch_id}, {offsets}")
            }
        }
    }
}

/// The entries of one sink, of which the last one counts.
pub(super) struct ProgressLog {
    log: SinkLog,
    number: Option<BatchId>,
    /// The last entry.
    pub(super) entry: Entry,
    /// This process.
    writer: String,
    /// Whether an entry could not be written, and may be there.
    is_unsettled: bool,
}

impl ProgressLog {
    /// Reads the last entry of `log`. `writer` is a name that no other process has.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) async fn read(log: SinkLog, table: &str, writer: String) -> Result<Self, Failure> {
        let Some((number, bytes)) = log.last().await? else {
            let (version, table) = (VERSION, table.to_owned());
            let entry = Entry { version, table, flushed: true, ..Entry::default() };
            return Ok(Self { log, number: None, entry, writer, is_unsettled: false });
        };
        let unreadable = |problem: String| {
            let location = format!("{}/{}", log.location(), number.0);
            BigQueryProblem::Record { location, problem }
        };
        let entry: Entry =
            serde_json::from_slice(&bytes).map_err(|error| unreadable(error.to_string()))?;
        if entry.version != VERSION {
            return Err(unreadable(format!("it has version {}", entry.version)).into());
        }
        Ok(Self { log, number: Some(number), entry, writer, is_unsettled: false })
    }

    /// Makes `entry` the last one.
    ///
    /// # Errors
    /// `Fenced`: another instance of the query has taken over.
    pub(super) async fn write(&mut self, entry: Entry) -> Result<(), Failure> {
        self.settle().await?;
        self.append(entry).await
    }

    async fn append(&mut self, entry: Entry) -> Result<(), Failure> {
        let entry = Entry { writer: self.writer.clone(), ..entry };
        loop {
            let before = self.number;
            let failure = match self.log.append(before, entry.bytes()).await {
                Ok(number) => {
                    self.number = Some(number);
                    self.entry = entry;
                    return Ok(());
                }
                Err(failure) => failure,
            };
            self.is_unsettled = true;
            if failure.kind() != Kind::Fenced {
                return Err(failure);
            }
            // It is refused, too, behind an entry of ours that came late, and where a store was
            // asked twice because its first answer was lost.
            self.settle().await?;
            if self.number == before {
                return Err(failure);
            }
            if self.entry == entry {
                return Ok(());
            }
        }
    }

    /// Finds out what became of an entry that could not be written.
    async fn settle(&mut self) -> Result<(), Failure> {
        if !self.is_unsettled {
            return Ok(());
        }
        let next = self.number.map_or(BatchId(0), |number| number.next());
        if let Some((number, bytes)) = self.log.last().await?
            && number == next
            && let Ok(entry) = serde_json::from_slice::<Entry>(&bytes)
            && entry.writer == self.writer
        {
            self.number = Some(number);
            self.entry = entry;
        }
        self.is_unsettled = false;
        Ok(())
    }

    /// Records that all rows of the last entry are visible, if those are the rows of `streams`, and
    /// which refused rows are not among the dead letters yet.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub(super) async fn write_flushed(
        &mut self,
        streams: &[StreamRows],
        mut refused: Vec<KeptRows>,
    ) -> Result<(), Failure> {
        self.settle().await?;
        // Those of a commit whose entry was not written are found again with its micro-batches.
        refused.retain(|kept| Some(kept.batch_id) <= self.entry.batch_id);
        let is_known = self.entry.flushed && self.entry.refused == refused;
        if is_known || self.entry.streams != streams {
            return Ok(());
        }
        self.append(Entry { flushed: true, refused, ..self.entry.clone() }).await
    }

    /// Checks that no other instance has taken over.
    ///
    /// # Errors
    /// `Fenced`: one has.
    pub(super) async fn check(&mut self) -> Result<(), Failure> {
        self.settle().await?;
        self.log.check(self.number).await
    }
}

impl Entry {
    fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("numbers and text")
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use millstream_store::checkpoint::Checkpoint;
    use millstream_store::env::Env;

    use super::*;

    async fn log_in(directory: &Path, writer: &str) -> ProgressLog {
        let location = directory.to_str().expect("text");
        let checkpoint = Checkpoint::open(location, &Env::real()).await.expect("it is new");
        let log = checkpoint.sink_log("t");
        ProgressLog::read(log, "t", writer.to_owned()).await.expect("readable")
    }

    fn entry(batch_id: u64, rows: i64) -> Entry {
        let streams = vec![StreamRows { name: "s".to_owned(), rows }];
        Entry::new("t", BatchId(batch_id), &EndOffsets::default(), streams)
    }

    /// Fails to record that all is visible; gives the place of entries, and what was not written.
    async fn fail_once(root: &Path, log: &mut ProgressLog) -> (PathBuf, Entry) {
        let (place, away) = (root.join("sinks/t"), root.join("sinks/away"));
        fs::rename(&place, &away).expect("it is there");
        fs::write(&place, b"no directory").expect("writable");
        let streams = log.entry.streams.clone();
        let failure =
            log.write_flushed(&streams, Vec::new()).await.expect_err("there is no place for it");
        assert_ne!(failure.kind(), Kind::Fenced, "{failure}");
        fs::remove_file(&place).expect("it is there");
        fs::rename(away, &place).expect("it is there");
        (place, Entry { flushed: true, ..log.entry.clone() })
    }

    #[tokio::test]
    async fn an_entry_that_failed_and_is_there_is_known_again() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut log = log_in(directory.path(), "one").await;
        log.write(entry(1, 5)).await.expect("written");
        let (place, failed) = fail_once(directory.path(), &mut log).await;
        fs::write(place.join("1"), failed.bytes()).expect("writable");
        log.write(entry(2, 9)).await.expect("nobody else has written");
        assert_eq!((log.number, log.entry.flushed), (Some(BatchId(2)), false));

        let (_, failed) = fail_once(directory.path(), &mut log).await;
        log.check().await.expect("it is not there");
        // It comes later.
        fs::write(place.join("3"), failed.bytes()).expect("writable");
        log.write(entry(3, 10)).await.expect("nobody else has written");
        assert_eq!(log.number, Some(BatchId(4)));

        // One of another process is not ours, whatever else it says.
        let (_, failed) = fail_once(directory.path(), &mut log).await;
        let other = Entry { writer: "two".to_owned(), ..failed };
        fs::write(place.join("5"), other.bytes()).expect("writable");
        let failure = log.write(entry(4, 11)).await.expect_err("another has taken over");
        assert_eq!(failure.kind(), Kind::Fenced);
    }

    #[tokio::test]
    async fn only_rows_that_are_meant_are_recorded_as_visible() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut log = log_in(directory.path(), "one").await;
        log.write(entry(1, 5)).await.expect("written");
        let visible = log.entry.streams.clone();
        // The next entry could not be written, and is there.
        let next = Entry { writer: "one".to_owned(), ..entry(2, 9) };
        fs::write(directory.path().join("sinks/t/1"), next.bytes()).expect("writable");
        log.is_unsettled = true;
        log.write_flushed(&visible, Vec::new()).await.expect("nothing is to be done");
        assert_eq!((log.entry.flushed, &log.entry.streams), (false, &next.streams));
        let rows = |batch_id| KeptRows { batch_id, batch_timestamp_ms: 0, rows: Vec::new() };
        // The rows of a commit that is not published are none of the entry's.
        log.write_flushed(&next.streams, vec![rows(2), rows(3)]).await.expect("written");
        assert!(log.entry.flushed);
        assert_eq!(log.entry.refused, [rows(2)]);
        // Once they are among the dead letters, they are not given again.
        log.write_flushed(&next.streams, Vec::new()).await.expect("written");
        assert_eq!(log.entry.refused, []);
    }
}

//! What exactly-once rests on: the sink's own record of what is published.
//!
//! ```text
//! sinks/<name>/<N>   {"version":1,"table":"projects/p/datasets/d/tables/t","batchId":12,
//!                     "batchTimestampMs":1700000000000,"offsets":[{"rows":4000}],
//!                     "streams":[{"name":"projects/.../streams/a1","rows":4000}],"flushed":false}
//! ```
//!
//! Rows are appended to streams of BigQuery that show nothing by themselves, and the entry that
//! names the streams, and how far each of them counts, is what publishes: it is written in one
//! step. That the rows are then made visible follows from it, and can be repeated. A crash before
//! the entry leaves rows that nobody sees and that are never made visible; after a crash behind it
//! the next start makes visible what is not yet.
//!
//! An entry is only written behind the one that was read or written before, so of two processes
//! with the same checkpoint one is refused.

use millstream_engine::api::sink::{BatchId, EndOffsets, Failure, Published, SourceOffset};
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
        }
    }

    /// What the driver is told.
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
}

impl ProgressLog {
    /// Reads the last entry of `log`.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) async fn read(log: SinkLog, table: &str) -> Result<Self, Failure> {
        let Some((number, bytes)) = log.last().await? else {
            let (version, table) = (VERSION, table.to_owned());
            let entry = Entry { version, table, flushed: true, ..Entry::default() };
            return Ok(Self { log, number: None, entry });
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
        Ok(Self { log, number: Some(number), entry })
    }

    /// Makes `entry` the last one.
    ///
    /// # Errors
    /// `Fenced`: another instance of the query has taken over.
    pub(super) async fn write(&mut self, entry: Entry) -> Result<(), Failure> {
        let bytes = serde_json::to_vec(&entry).expect("numbers and text");
        self.number = Some(self.log.append(self.number, bytes).await?);
        self.entry = entry;
        Ok(())
    }

    /// Records that all rows of the last entry are visible.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub(super) async fn write_flushed(&mut self) -> Result<(), Failure> {
        self.write(Entry { flushed: true, ..self.entry.clone() }).await
    }

    /// Checks that no other instance has taken over.
    ///
    /// # Errors
    /// `Fenced`: one has.
    pub(super) async fn check(&self) -> Result<(), Failure> {
        self.log.check(self.number).await
    }
}

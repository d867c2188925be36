//! The write time of each micro-batch, which a replay repeats.
//!
//! Cassandra keeps, of two values of a cell, the one with the later write time, whichever arrived
//! first. So a micro-batch that is written again under the time that it had before changes nothing,
//! and one that is late undoes nothing that came after it.
//!
//! Times have to grow from one micro-batch to the next, while the clock may stand still for a
//! thousand of them, or go back. So they are counted, two microseconds apart, from the beginning of
//! a *lease*, which is in the checkpoint before its first micro-batch is written:
//!
//! ```text
//! sinks/<name>/<N>   {"version":1,"table":"k.t","leases":[{"batchId":7,"us":1700000000000000}]}
//!                    micro-batch 7 has the time 1700000000000000, 8 has 1700000000000002, ...
//! ```
//!
//! A new lease begins at the clock when the count lags behind it too far. A replay finds the lease
//! that its number belongs to. What was not written before always gets a time later than any that
//! was used, so even where no lease is found, the end result is the right one.
//!
//! Of the two microseconds the first is for what a micro-batch removes, the second for what it
//! writes: a row that is deleted and then written again has lost its other columns.

use millstream_engine::api::sink::{BatchId, Failure};
use millstream_store::sink_log::SinkLog;
use serde::{Deserialize, Serialize};

use crate::error::CassandraProblem;

/// The form of entries.
const VERSION: u32 = 1;
/// Microseconds of one micro-batch.
const STEP_US: i64 = 2;
/// How far a lease's count may lag behind the clock.
const LAG_MAX_US: i64 = 500_000;
/// Micro-batches of one lease: more than begin while its count may lag. Whoever finds a lease knows
/// that no later time belongs to it; few, so that restarts do not take times ahead of the clock.
const BATCHES_MAX: u64 = 10_000;
/// Leases that are kept: those of micro-batches that a replay may repeat.
const LEASES_MAX: usize = 64;
/// A time so far ahead of the clock is reported.
const AHEAD_TOLD_US: i64 = 10_000_000;

/// An entry.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Entry {
    version: u32,
    /// The table, for people.
    table: String,
    /// Ascending by number and by time.
    leases: Vec<Lease>,
}

/// Times of the micro-batches from one number on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Lease {
    batch_id: u64,
    /// The time of that micro-batch, microseconds since the epoch.
    us: i64,
}

impl Lease {
    /// The time of a micro-batch; `None` where it is not one of this lease.
    fn time(self, batch_id: BatchId) -> Option<i64> {
        let nth = batch_id.0.checked_sub(self.batch_id).filter(|nth| *nth < BATCHES_MAX)?;
        Some(self.us + STEP_US * nth.cast_signed())
    }

    /// Later than all of its times.
    fn end(self) -> i64 {
        self.us + STEP_US * BATCHES_MAX.cast_signed()
    }
}

/// Gives micro-batches their times.
pub(crate) struct WriteTimes {
    /// `None` for a query that runs once, which no replay follows.
    log: Option<SinkLog>,
    number: Option<BatchId>,
    entry: Entry,
    /// When this run began, milliseconds since the epoch: what began before, a former one may have
    /// written.
    opened_ms: i64,
    /// The last of the leases is this run's, and its last time.
    current: Option<i64>,
    is_told: bool,
}

impl WriteTimes {
    /// Reads what earlier runs have kept. `now_ms` is the time, milliseconds since the epoch.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) async fn open(
        log: Option<SinkLog>,
        table: &str,
        now_ms: i64,
    ) -> Result<Self, Failure> {
        let mut times = Self {
            log,
            number: None,
            entry: Entry { version: VERSION, table: table.to_owned(), leases: Vec::new() },
            opened_ms: now_ms,
            current: None,
            is_told: false,
        };
        let Some(log) = &times.log else { return Ok(times) };
        let Some((number, bytes)) = log.last().await? else { return Ok(times) };
        let unreadable = |problem: String| {
            let location = format!("{}/{}", log.location(), number.0);
            CassandraProblem::Record { location, problem }
        };
        let entry: Entry =
            serde_json::from_slice(&bytes).map_err(|error| unreadable(error.to_string()))?;
        if entry.version != VERSION {
            return Err(unreadable(format!("it has version {}", entry.version)).into());
        }
        let is_ascending =
            |pair: &[Lease]| pair[0].batch_id < pair[1].batch_id && pair[0].us < pair[1].us;
        let sane = |lease: &Lease| (0..i64::MAX / 2).contains(&lease.us);
        if !entry.leases.windows(2).all(is_ascending) || !entry.leases.iter().all(sane) {
            return Err(unreadable("its times do not grow".to_owned()).into());
        }
        times.entry = entry;
        times.number = Some(number);
        Ok(times)
    }

    /// The time of a micro-batch, microseconds since the epoch, which the microsecond behind it
    /// belongs to as well. Once it is known it is in the checkpoint.
    ///
    /// # Errors
    /// The checkpoint cannot be written, or another instance of the query has written to it.
    pub(crate) async fn time(
        &mut self,
        batch_id: BatchId,
        batch_time_ms: i64,
    ) -> Result<i64, Failure> {
        // The result of a query that runs once comes without a time.
        let batch_time_ms = if self.log.is_none() { self.opened_ms } else { batch_time_ms };
        if batch_time_ms < self.opened_ms
            && self.current.is_none()
            && let Some(time) = self.former(batch_id)
        {
            return Ok(time);
        }
        let wanted = batch_time_ms.saturating_mul(1_000);
        if let (Some(last), Some(lease)) = (self.current, self.entry.leases.last())
            && let Some(time) = lease.time(batch_id)
            && time > last
            && wanted - time <= LAG_MAX_US
        {
            self.current = Some(time);
            return Ok(time);
        }
        let time = self.begin(batch_id, wanted).await?;
        self.current = Some(time);
        Ok(time)
    }

    /// The time that a former run has given.
    fn former(&self, batch_id: BatchId) -> Option<i64> {
        let mut leases = self.entry.leases.iter().rev();
        leases.find(|lease| lease.batch_id <= batch_id.0)?.time(batch_id)
    }

    /// Begins a lease, later than all that were.
    async fn begin(&mut self, batch_id: BatchId, wanted: i64) -> Result<i64, Failure> {
        let after = match (self.current, self.entry.leases.last()) {
            // Of this run's lease it is known how far it was used.
            (Some(last), _) => last + STEP_US,
            (None, Some(former)) => former.end(),
            (None, None) => 0,
        };
        let time = wanted.max(after);
        if time - wanted > AHEAD_TOLD_US && !self.is_told {
            self.is_told = true;
            tracing::warn!(
                table = self.entry.table,
                seconds = (time - wanted) / 1_000_000,
                "write times are ahead of the clock, which has gone back: until it has caught up, \
                 what others write to the same rows is hidden"
            );
        }
        let mut leases = self.entry.leases.clone();
        // Numbers from here on were given by a run whose entries are lost: they are new ones.
        leases.retain(|lease| lease.batch_id < batch_id.0);
        leases.push(Lease { batch_id: batch_id.0, us: time });
        let surplus = leases.len().saturating_sub(LEASES_MAX);
        leases.drain(..surplus);
        let entry = Entry { leases, ..self.entry.clone() };
        if let Some(log) = &self.log {
            let bytes = serde_json::to_vec(&entry).expect("numbers and text");
            self.number = Some(log.append(self.number, bytes).await?);
        }
        self.entry = entry;
        Ok(time)
    }
}

#[cfg(test)]
mod tests;

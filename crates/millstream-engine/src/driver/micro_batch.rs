//! A micro-batch on its way through the driver: what was taken for it, and when.

use std::time::Duration;

use millstream_store::env::Env;
use millstream_store::log_writer::Ticket;
use millstream_store::offset::{BatchId, SourceOffset};
use millstream_store::offset_log;
use tokio::sync::OwnedSemaphorePermit;

use crate::api::progress::Durations;
use crate::api::source::{InputBatch, Split};

/// A micro-batch between taking its input and handing it to the committer.
pub(super) struct MicroBatch {
    pub(super) id: BatchId,
    pub(super) fired: Fired,
    pub(super) taken: Vec<Option<InputBatch>>,
    pub(super) intent: Intent,
    /// The sinks that get it; `None` for all.
    pub(super) sinks: Option<Vec<usize>>,
    /// See [`InFlight::completes`](super::committer::InFlight::completes).
    pub(super) completes: bool,
    /// See [`InFlight::repair`](super::committer::InFlight::repair).
    pub(super) repair: Vec<(BatchId, offset_log::Entry)>,
    pub(super) durations: Durations,
    pub(super) permit: Option<OwnedSemaphorePermit>,
}

/// What is still to be done about a micro-batch's entry in the offset log.
pub(super) enum Intent {
    /// It stands there: a replay.
    Logged,
    /// Being written; the sink waits for it.
    OnItsWay(Ticket),
    /// To be written by the committer.
    ToBeLogged(offset_log::Entry),
}

impl Intent {
    /// What the sink waits for.
    pub(super) fn take_ticket(&mut self) -> Option<Ticket> {
        match std::mem::replace(self, Self::Logged) {
            Self::OnItsWay(ticket) => Some(ticket),
            other => {
                *self = other;
                None
            }
        }
    }

    /// What the committer writes.
    pub(super) fn into_entry(self) -> Option<offset_log::Entry> {
        match self {
            Self::ToBeLogged(entry) => Some(entry),
            Self::Logged | Self::OnItsWay(_) => None,
        }
    }
}

/// When and for which moment a micro-batch runs.
pub(super) struct Fired {
    /// On the monotonic clock.
    pub(super) began: Duration,
    /// The micro-batch's time, milliseconds since the epoch; a replay has the first attempt's.
    pub(super) batch_time_ms: i64,
}

impl Fired {
    pub(super) fn now(env: &Env) -> Self {
        Self { began: env.monotonic(), batch_time_ms: env.now_ms() }
    }
}

/// What was taken from the sources, turned by kind of fact instead of by source.
pub(super) struct Input {
    pub(super) splits: Vec<Vec<Box<dyn Split>>>,
    pub(super) ends: Vec<Option<SourceOffset>>,
    pub(super) rows: Vec<u64>,
    pub(super) oldest_arrival_us: i64,
}

impl Input {
    /// Nothing from any of `sources` sources.
    pub(super) fn none(sources: usize, env: &Env) -> Self {
        Self::split((0..sources).map(|_| None).collect(), env)
    }

    pub(super) fn split(taken: Vec<Option<InputBatch>>, env: &Env) -> Self {
        let mut input = Self {
            splits: Vec::with_capacity(taken.len()),
            ends: Vec::with_capacity(taken.len()),
            rows: Vec::with_capacity(taken.len()),
            oldest_arrival_us: env.now_us(),
        };
        for taken in taken {
            let (splits, end, rows) = match taken {
                Some(taken) => {
                    input.oldest_arrival_us = input.oldest_arrival_us.min(taken.oldest_arrival_us);
                    (taken.splits, Some(taken.end), taken.rows)
                }
                None => (Vec::new(), None, 0),
            };
            input.splits.push(splits);
            input.ends.push(end);
            input.rows.push(rows);
        }
        input
    }
}

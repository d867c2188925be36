//! Snapshots of a query's state, made in the background.
//!
//! Without one, a restart applies every entry of the state log whose rows are still in the state.
//! For windows that is not much more than the state itself, since they close and their entries go.
//! For groups that stay it would be everything since the query began. So when the log has grown by
//! so many bytes, or the user's interval has passed, a snapshot is made from the log
//! ([`Replica`]) up to what all sinks have acknowledged, on a thread of low priority.

use std::sync::Arc;
use std::time::Duration;

use datafusion::error::DataFusionError;
use millstream_store::checkpoint::Checkpoint;
use millstream_store::env::{Env, Thread};
use millstream_store::error::Kind;
use millstream_store::offset::BatchId;
use millstream_store::state_log::{Entry, StateLog, StateReader};
use tokio::sync::oneshot;

use super::stateful::{BEFORE_ALL, watermark_of};
use crate::source::Failure;
use crate::state::operator::MicroBatchFacts;
use crate::state::replica::Replica;

/// When snapshots are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotSettings {
    /// When the log has grown by so many bytes since the last one.
    pub after_bytes: u64,
    /// When this time has passed since the last one, and the log has grown.
    pub interval: Option<Duration>,
}

impl Default for SnapshotSettings {
    fn default() -> Self {
        Self { after_bytes: 256 << 20, interval: None }
    }
}

/// Decides when a snapshot is made, and knows the last one.
pub(super) struct Snapshots {
    settings: SnapshotSettings,
    /// The micro-batch of the last one.
    last: Option<BatchId>,
    /// When it was begun, or the run was, on the monotonic clock.
    begun: Duration,
    /// By how much the log has grown since.
    bytes: u64,
    making: Option<Making>,
}

struct Making {
    made: oneshot::Receiver<Result<BatchId, Failure>>,
    _thread: Thread,
}

impl Snapshots {
    pub(super) fn new(settings: SnapshotSettings, last: Option<BatchId>, now: Duration) -> Self {
        Self { settings, last, begun: now, bytes: 0, making: None }
    }

    /// The micro-batch of the last one.
    pub(super) fn last(&self) -> Option<BatchId> {
        self.last
    }

    /// The log has grown by `bytes`; true if it is time for a snapshot up to `acknowledged`.
    pub(super) fn grown(
        &mut self,
        bytes: usize,
        acknowledged: Option<BatchId>,
        now: Duration,
    ) -> bool {
        self.bytes += bytes as u64;
        self.look();
        let passed = now.saturating_sub(self.begun);
        let is_due = self.bytes >= self.settings.after_bytes
            || self.settings.interval.is_some_and(|interval| passed >= interval);
        is_due && self.bytes > 0 && self.making.is_none() && acknowledged > self.last
    }

    fn look(&mut self) {
        let Some(making) = &mut self.making else { return };
        match making.made.try_recv() {
            Err(oneshot::error::TryRecvError::Empty) => return,
            Ok(Ok(id)) => self.last = Some(id),
            Ok(Err(failure)) => {
                tracing::warn!(%failure, "a snapshot of the state could not be made");
            }
            Err(oneshot::error::TryRecvError::Closed) => {
                tracing::warn!("a snapshot of the state was given up");
            }
        }
        self.making = None;
    }

    /// Begins one up to `end`, of state that `replica` can hold.
    pub(super) fn make(
        &mut self,
        checkpoint: &Checkpoint,
        env: &Env,
        log: &Arc<StateLog>,
        replica: Replica,
        end: BatchId,
    ) {
        (self.bytes, self.begun) = (0, env.monotonic());
        let (checkpoint, log) = (checkpoint.clone(), Arc::clone(log));
        let (made, receiver) = oneshot::channel();
        let of_thread = env.clone();
        let thread = env.background_thread("state-snapshot", move || {
            let making = make(&checkpoint, &of_thread, &log, replica, end);
            // The query may have ended meanwhile.
            let _ = made.send(of_thread.block_on_cores(making));
        });
        self.making = Some(Making { made: receiver, _thread: thread });
    }
}

async fn make(
    checkpoint: &Checkpoint,
    env: &Env,
    log: &StateLog,
    mut replica: Replica,
    end: BatchId,
) -> Result<BatchId, Failure> {
    let mut reader = StateReader::beside_a_writer(checkpoint).await?;
    let failed = |error: DataFusionError| Failure::new(Kind::Bug, error.to_string());
    let mut facts = None;
    if let Some(Entry { facts: of_snapshot, sections }) = reader.snapshot().await? {
        let id = BatchId(of_snapshot.batch_id);
        let before = MicroBatchFacts { id, watermark: BEFORE_ALL };
        replica.apply(env, &before, &sections).await.map_err(failed)?;
        facts = Some(of_snapshot);
    }
    while let Some(entry) = reader.next_up_to(end).await? {
        let of_batch = MicroBatchFacts { id: entry.id(), watermark: watermark_of(&entry.facts) };
        replica.apply(env, &of_batch, &entry.sections).await.map_err(failed)?;
        facts = Some(entry.facts);
    }
    let Some(facts) = facts else { return Ok(end) };
    let sections = replica.into_sections().map_err(failed)?;
    let snapshot = Entry { facts, sections };
    log.snapshot(&snapshot).await?;
    Ok(snapshot.id())
}

//! The second half of a micro-batch: logs the intent, awaits the sink's acknowledgement, logs the
//! commit.
//!
//! The intent of a transactional sink ([`Delivery::Transactional`]) waits for the acknowledgement
//! too. It is of no use before, and a process that another one has replaced at the sink, and that
//! does not know it yet, would log a range that was never published.
//!
//! Of several sinks each has to acknowledge a micro-batch before its commit entry is written. What
//! is run again for some of them only, before it runs for others, gets no entry at that time; and
//! the entries that repair the logs are written here too where sinks had to catch up before.
//!
//! Acknowledgements are awaited in the order of the micro-batches, whatever order the outside
//! answers in, so the commit log never has an entry whose predecessor could still fail.
//!
//! It works in steps, on micro-batches that the sink has had for some milliseconds: their
//! acknowledgements are in by then, mostly, and one wake-up serves them all, here and in the log's
//! writer. Nobody waits for a commit entry, and a wake-up for each would cost the cores more than
//! the entries themselves.
//!
//! With asynchronous progress tracking ([`ProgressTracking`]) only some micro-batches get entries,
//! both at once and after the acknowledgement. What was published last is held back until it is due
//! or the query ends, so that an idle query is logged as far as it came, and one that is stopped
//! repeats nothing.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use millstream_store::commit_log;
use millstream_store::env::{Env, Task};
use millstream_store::log_writer::{LogWriter, WriteError};
use millstream_store::offset::{BatchId, SourceOffset};
use millstream_store::offset_log;
use millstream_store::state_log;
use millstream_store::storage::Durability;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::Finished;
use super::branches::Branches;
use super::publish_result::Acknowledgements;
use super::tracking::Schedule;
use crate::api::progress::{Listener, Progress};
use crate::api::settings::ProgressTracking;
use crate::api::sink::Delivery;
use crate::api::source::Failure;

/// From one step to the next. Far below what a person or a take-over notices.
const STEP: Duration = Duration::from_millis(8);
/// What was handed over less than this time ago is left to the next step.
const RIPENING: Duration = Duration::from_millis(4);

/// A micro-batch that the sink has got and not acknowledged.
pub struct InFlight {
    pub acknowledgements: Acknowledgements,
    /// The intent, where it is not in the log yet.
    pub intent: Option<offset_log::Entry>,
    /// Whether it is published when this is acknowledged, and so gets its commit entry.
    pub completes: bool,
    /// What it changed in the query's state: its entries follow that.
    pub state: Option<state_log::Ticket>,
    /// The watermark of the next micro-batch, milliseconds since the epoch.
    pub next_watermark_ms: i64,
    /// Entries for both logs that are written after it: what sinks have published beyond the logs.
    pub repair: Vec<(BatchId, offset_log::Entry)>,
    pub progress: Progress,
    /// From the trigger until the sink had got it all.
    pub took: Duration,
    /// When the sink had got it all, microseconds since the epoch, and on the monotonic clock.
    pub handed_over_us: i64,
    pub publish_result: Duration,
    pub oldest_arrival_us: i64,
    pub ends: Vec<Option<SourceOffset>>,
    pub permit: Option<OwnedSemaphorePermit>,
}

/// A micro-batch that all sinks have acknowledged.
pub struct Committed {
    pub id: BatchId,
    /// Where each source stands, as far as it moved since the one before.
    pub ends: Vec<Option<SourceOffset>>,
}

/// The driver's handle on the committing task.
pub struct Committer {
    sender: Option<mpsc::UnboundedSender<InFlight>>,
    committed: mpsc::UnboundedReceiver<Committed>,
    task: Option<Task<Result<Finished, Failure>>>,
    permits: Arc<Semaphore>,
    in_flight_max: usize,
    /// The first micro-batch that was not acknowledged.
    failed_at: Arc<OnceLock<BatchId>>,
}

impl Committer {
    pub fn start(
        env: &Env,
        log: Arc<LogWriter>,
        listener: Arc<dyn Listener>,
        tracking: ProgressTracking,
        branches: &Branches,
    ) -> Self {
        let (sender, in_flight) = mpsc::unbounded_channel();
        let (committed_sender, committed) = mpsc::unbounded_channel();
        let failed_at = Arc::default();
        let in_flight_max = branches.micro_batches_in_flight_max();
        let permits = Arc::new(Semaphore::new(in_flight_max));
        let worker = Worker {
            in_flight,
            committed: committed_sender,
            log,
            listener,
            env: env.clone(),
            failed_at: Arc::clone(&failed_at),
            permits: Arc::clone(&permits),
            schedule: Schedule::new(tracking),
            delivery: branches.delivery(),
            held_back: None,
            finished: Finished::default(),
        };
        let task = Some(env.spawn("committer", worker.run()));
        Self { sender: Some(sender), committed, task, permits, in_flight_max, failed_at }
    }

    /// Waits until another micro-batch may be in flight. `None` once committing has failed.
    pub async fn permit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.permits).acquire_owned().await.ok()
    }

    /// Whether more than half of the micro-batches that may be in flight are.
    pub fn is_crowded(&self) -> bool {
        self.permits.available_permits() < self.in_flight_max / 2
    }

    /// Gives a micro-batch to the committing task.
    pub fn hand_over(&self, in_flight: InFlight) {
        let sender = self.sender.as_ref().expect("nothing is handed over after drain");
        // It fails only if the task has ended with a failure, which `committed` reports.
        let _ = sender.send(in_flight);
    }

    /// The ends of a micro-batch that was committed since the last call.
    pub fn next_committed(&mut self) -> Option<Committed> {
        self.committed.try_recv().ok()
    }

    /// Waits until another micro-batch is committed, and gives its ends. `None` once committing has
    /// failed.
    pub async fn committed(&mut self) -> Option<Committed> {
        self.committed.recv().await
    }

    /// The first micro-batch that was not acknowledged, where one has failed.
    pub fn failed_at(&self) -> Option<BatchId> {
        self.failed_at.get().copied()
    }

    /// Waits until everything handed over is committed, or one has failed.
    pub async fn drain(&mut self) -> Result<Finished, Failure> {
        self.sender = None;
        match self.task.take() {
            Some(task) => task.join().await,
            None => Ok(Finished::default()),
        }
    }
}

struct Worker {
    in_flight: mpsc::UnboundedReceiver<InFlight>,
    committed: mpsc::UnboundedSender<Committed>,
    log: Arc<LogWriter>,
    listener: Arc<dyn Listener>,
    env: Env,
    failed_at: Arc<OnceLock<BatchId>>,
    permits: Arc<Semaphore>,
    schedule: Schedule,
    delivery: Delivery,
    held_back: Option<HeldBack>,
    finished: Finished,
}

/// The last published micro-batch, where it has no entries yet.
struct HeldBack {
    id: BatchId,
    intent: Option<offset_log::Entry>,
    /// Where each source stands, as far as it moved since the last entries.
    ends: Vec<Option<SourceOffset>>,
    next_watermark_ms: i64,
}

impl Worker {
    async fn run(mut self) -> Result<Finished, Failure> {
        let outcome = self.step_by_step().await;
        if outcome.is_err() {
            // What was published before the failure need not be repeated. If it was the log that
            // failed, this fails too, for the reason that is reported already.
            let _ = self.log_held_back().await;
            self.permits.close();
        }
        outcome.map(|()| self.finished)
    }

    async fn step_by_step(&mut self) -> Result<(), Failure> {
        while let Some(mut oldest) = self.next().await? {
            while let Some(unripe) = self.step(oldest).await? {
                oldest = unripe;
            }
        }
        self.log_held_back().await
    }

    /// The next micro-batch, `None` at the end. Logs what is held back if it is due before.
    async fn next(&mut self) -> Result<Option<InFlight>, Failure> {
        if self.held_back.is_some() {
            let due_in = self.schedule.due_in(self.env.monotonic());
            tokio::select! {
                biased;
                next = self.in_flight.recv() => return Ok(next),
                () = self.env.sleep(due_in) => {}
            }
            self.log_held_back().await?;
        }
        Ok(self.in_flight.recv().await)
    }

    /// Waits until it is time for `oldest`, and commits it and all others that are ripe. Gives the
    /// first that is not.
    async fn step(&mut self, oldest: InFlight) -> Result<Option<InFlight>, Failure> {
        let since = |moment| self.env.monotonic().saturating_sub(moment);
        if !self.in_flight.is_closed() && !self.schedule.is_blocking() {
            self.env.sleep(STEP.saturating_sub(since(oldest.publish_result))).await;
        }
        self.commit(oldest).await?;
        let ripe_before = self.env.monotonic().saturating_sub(RIPENING);
        while let Ok(next) = self.in_flight.try_recv() {
            if next.publish_result > ripe_before && !self.in_flight.is_closed() {
                return Ok(Some(next));
            }
            self.commit(next).await?;
        }
        Ok(None)
    }

    async fn commit(&mut self, in_flight: InFlight) -> Result<(), Failure> {
        let InFlight { acknowledgements, mut intent, mut progress, ends, repair, .. } = in_flight;
        let id = progress.batch_id;
        let settled_us = match &in_flight.state {
            Some(state) => Some(state.settled().await?),
            None => None,
        };
        if !self.schedule.is_sparse()
            && self.delivery != Delivery::Transactional
            && let Some(intent) = intent.take()
        {
            self.log_intent(id, intent).await;
        }
        let handed_over_us = in_flight.handed_over_us;
        let oldest_us = in_flight.oldest_arrival_us;
        let each = |index: usize, moment_us: i64| {
            if let Some(sink) = progress.sinks.get_mut(index) {
                sink.latency = micros(moment_us - oldest_us);
            }
        };
        let accepted = acknowledgements.accepted(handed_over_us, each).await;
        let accepted_us = accepted.inspect_err(|_| {
            let _ = self.failed_at.set(id);
        })?;
        // A micro-batch without output rows is done when its changes of the state survive.
        let published_us = match settled_us.filter(|_| progress.rows_out == 0) {
            Some(settled_us) => accepted_us.max(settled_us),
            None => accepted_us,
        };
        let began_log = self.env.monotonic();
        let to_repair = (!repair.is_empty()).then(|| (repair, ends.clone()));
        if in_flight.completes {
            let next_watermark_ms = in_flight.next_watermark_ms;
            self.hold_back(HeldBack { id, intent, ends, next_watermark_ms });
        }
        if self.held_back.is_some() && self.schedule.due_in(began_log).is_zero() {
            self.log_held_back().await?;
        }
        if let Some((repair, ends)) = to_repair {
            self.repair(repair, ends).await?;
        }
        let logging = self.env.monotonic().saturating_sub(began_log);
        progress.durations.commit_offsets = micros(published_us - handed_over_us) + logging;
        progress.durations.trigger_execution = in_flight.took + progress.durations.commit_offsets;
        progress.latency = micros(published_us - oldest_us);
        self.finished.micro_batches += 1;
        self.finished.rows_in += progress.rows_in;
        self.finished.rows_out += progress.rows_out;
        self.listener.published(&progress);
        drop(in_flight.permit);
        Ok(())
    }

    /// Takes the place of what was held back before, whose entries are not needed any more.
    fn hold_back(&mut self, mut latest: HeldBack) {
        if let Some(before) = self.held_back.take() {
            // A source that gave nothing this time stands where it stood.
            for (end, before) in latest.ends.iter_mut().zip(before.ends) {
                *end = end.take().or(before);
            }
        }
        self.held_back = Some(latest);
    }

    async fn log_intent(&self, id: BatchId, intent: offset_log::Entry) {
        // After a power cut the last entries may be gone; that repeats their micro-batches, which a
        // sink without a durable intent may do anyway.
        self.log.intent(id, intent, Durability::Process).await;
    }

    async fn log_held_back(&mut self) -> Result<(), Failure> {
        let Some(held_back) = self.held_back.take() else { return Ok(()) };
        let HeldBack { id, intent, ends, next_watermark_ms } = held_back;
        self.schedule.logged(self.env.monotonic());
        if let Some(intent) = intent {
            self.log_intent(id, intent).await;
        }
        let entry = commit_log::Entry { next_batch_watermark_ms: next_watermark_ms };
        let ticket = self.log.commit(id, entry).await;
        if self.schedule.is_blocking() {
            ticket.written().await?;
        }
        self.tell_committed(id, ends)
    }

    fn tell_committed(&self, id: BatchId, ends: Vec<Option<SourceOffset>>) -> Result<(), Failure> {
        if let Some(error) = self.log.failure() {
            return Err(WriteError::clone(&error).into());
        }
        // The driver may be gone already, on its way out.
        let _ = self.committed.send(Committed { id, ends });
        Ok(())
    }

    /// Logs what every sink has published by now, `ends` being where that takes the sources.
    async fn repair(
        &mut self,
        entries: Vec<(BatchId, offset_log::Entry)>,
        ends: Vec<Option<SourceOffset>>,
    ) -> Result<(), Failure> {
        self.log_held_back().await?;
        self.schedule.logged(self.env.monotonic());
        let last = entries.last().map(|(id, _)| *id);
        let mut tickets = Vec::with_capacity(entries.len());
        for (id, entry) in entries {
            // Each says where the foremost sink was, and is known by those beside it as one that
            // need not agree with a sink that was behind: a power cut must not take them apart.
            self.log.intent(id, entry, Durability::Power).await;
            tickets.push(self.log.commit(id, commit_log::Entry::default()).await);
        }
        for ticket in tickets {
            ticket.written().await?;
        }
        last.map_or(Ok(()), |last| self.tell_committed(last, ends))
    }
}

/// A difference of two moments; zero if the clock was set back in between.
fn micros(difference: i64) -> Duration {
    Duration::from_micros(u64::try_from(difference).unwrap_or(0))
}

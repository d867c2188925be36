//! The micro-batch driver: runs one streaming query from its checkpoint until it is stopped.
//!
//! One micro-batch, from arrival to commit:
//! 1. sources read ahead on their own; once the sink is ready for more, [`Source::poll`] hands over
//!    what has arrived ([`pace`] decides when to ask);
//! 2. the ranges taken are micro-batch N's intent. A sink whose exactly-once rests on replaying the
//!    same range under the same id has it logged at once, and step 4 waits until it is durable;
//! 3. the plan, made once, runs over the splits;
//! 4. the sink gets the whole result, and the driver turns to micro-batch N+1 at once;
//! 5. the [`committer`] logs the intent of any other sink, awaits the sink's acknowledgement and
//!    writes entry N of the commit log; it takes the micro-batches in order, one after the other.
//!
//! So while N is being acknowledged, N+1 computes and N+2 is being read. What bounds this is
//! [`MICRO_BATCHES_IN_FLIGHT_MAX`] and the log writer's own limit: slow storage makes micro-batches
//! larger instead of letting the logs fall behind.
//!
//! Why the intent of such a sink comes so late: several micro-batches may be in flight, but Spark,
//! when it takes over a checkpoint, runs again only the last one logged. Logged in step 5 there is
//! never more than one intent that is not published, so Spark loses nothing either. (On an object
//! store commit entries may still be on their way, several of them.) After a crash an at-least-once
//! sink gets again what was in flight, which is all that it was promised. A transactional sink
//! ([`Delivery::Transactional`]) tells where it stands, and the logs are repaired from that.
//!
//! A crash between 2 and 5 leaves an intent without a commit; unless the sink has published it,
//! [`recovery`] runs that micro-batch again, with the same ranges, number and batch time.
//!
//! A query with state does more in steps 3 and 4, and restarts another way: see [`stateful`].
//!
//! A query may have several branches, each with a plan and a sink ([`branches`]): they share steps
//! 1 and 2, and in step 5 a micro-batch counts when every sink has acknowledged it.
//!
//! [`Source::poll`]: crate::api::source::Source::poll

pub mod batch_query;
pub mod branch;
pub mod branches;
pub mod checked_once;
mod committer;
pub mod dead_letter_sinks;
mod dead_letter_tables;
mod decoded;
mod micro_batch;
pub mod other_queries;
mod outputs;
mod pace;
mod publish_result;
mod recovery;
mod refused;
mod results;
mod run_all;
pub mod side_outputs;
pub mod sink_with_letters;
pub mod snapshots;
pub mod start;
mod startup;
mod stateful;
mod stateful_output;
pub mod stop;
#[cfg(test)]
mod tests;
pub mod tracking;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::select_all;
use millstream_sql::functions::BatchClock;
use millstream_store::checkpoint::Checkpoint;
use millstream_store::crash_points::{self, Step};
use millstream_store::env::{Env, Task};
use millstream_store::log_writer::{LogWriter, PurgeTime, Settings};
use millstream_store::offset::{BatchId, SourceOffset};
use millstream_store::offset_log;
use millstream_store::storage::Durability;

use crate::api::progress::{Durations, Listener, Progress, SourceProgress};
use crate::api::settings::{ProgressTracking, SnapshotSettings};
use crate::api::sink::{Delivery, EndOffsets, Ending};
use crate::api::source::{Failure, InputBatch, ReadLimit, Source};
use crate::api::trigger::Trigger;
use crate::plan::static_table::LoadedTable;
use crate::state::watermark::Watermarks;
use branches::Branches;
use committer::{Committed, Committer, InFlight};
use micro_batch::{Fired, Input, Intent, MicroBatch};
use outputs::Order;
use pace::Pace;
use publish_result::PublishResult;
use refused::{Range, Ranges};
use stateful::{QueryState, Written};
use stop::Stop;

/// Micro-batches handed to the sink and not committed yet. Enough that neither a broker's round
/// trip nor the committer's steps delay anybody at a micro-batch every tenth of a millisecond.
pub const MICRO_BATCHES_IN_FLIGHT_MAX: usize = 128;

/// How often static tables are looked at for changes.
const STATIC_REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// Everything a streaming query consists of.
pub struct Query {
    /// The query's plans, and where their rows go.
    pub branches: Branches,
    /// The sources, in the order of the plans' scans and of the offset log's lines.
    pub sources: Vec<Box<dyn Source>>,
    /// The static tables the plans read.
    pub statics: Vec<Arc<LoadedTable>>,
    /// What the query restarts from.
    pub checkpoint: Checkpoint,
    /// How the checkpoint's logs are written.
    pub log_settings: Settings,
    /// When micro-batches start.
    pub trigger: Trigger,
    /// Which micro-batches get entries in the logs.
    pub tracking: ProgressTracking,
    /// The time that `current_timestamp()` gives.
    pub batch_clock: BatchClock,
    /// The sources' watermarks; without any for a query without state.
    pub watermarks: Watermarks,
    /// When snapshots of the state are made.
    pub snapshots: SnapshotSettings,
    /// Hears of every micro-batch.
    pub listener: Arc<dyn Listener>,
    /// Ends the query when asked.
    pub stop: Stop,
    /// Clock and tasks.
    pub env: Env,
}

/// What a query did in this run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Finished {
    /// Micro-batches published.
    pub micro_batches: u64,
    /// Rows read.
    pub rows_in: u64,
    /// Rows handed to the sink.
    pub rows_out: u64,
}

impl Query {
    /// Runs until the trigger is done, or until asked to stop.
    ///
    /// Errors: the first failure of a source, the plan, the sink or a log; everything that was
    /// acknowledged by then is in the logs.
    pub async fn run(self) -> Result<Finished, Failure> {
        let mut driver = Driver::start(self).await?;
        driver.query.listener.runs();
        let outcome = driver.run().await;
        driver.finish(outcome).await
    }
}

struct Driver {
    query: Query,
    log: Arc<LogWriter>,
    committer: Committer,
    /// Where the next micro-batch starts, by source; `None` before a source's first.
    positions: Vec<Option<SourceOffset>>,
    next_id: BatchId,
    conf: Vec<(String, String)>,
    statics_changed: Arc<AtomicBool>,
    static_watch: Option<Task<()>>,
    previous_trigger: Option<Duration>,
    replayed: bool,
    /// `None` for a query without state.
    state: Option<QueryState>,
    /// What the last micro-batches were read from.
    ranges: Ranges,
}

impl Driver {
    /// Waits for the commit entry of the micro-batch in hand, where nothing may overtake it.
    async fn wait_if_blocking(&mut self) {
        if self.query.tracking != ProgressTracking::Blocking {
            return;
        }
        // A sink that is away may answer only when it hears that the run ends.
        let committed = tokio::select! {
            biased;
            committed = self.committer.committed() => committed,
            () = self.query.stop.requested() => return,
        };
        if let Some(committed) = committed {
            self.tell_committed(&committed);
        }
    }

    async fn run(&mut self) -> Result<(), Failure> {
        if self.query.trigger == Trigger::Once && self.replayed {
            return Ok(());
        }
        let mut pace = Pace::new(&self.query.trigger, self.query.env.clone());
        loop {
            let has_more = !self.all_at_end() || self.has_more_without_input();
            if !has_more {
                return Ok(());
            }
            match self.wait(&mut pace).await {
                Wake::Look => {}
                Wake::Hear(committed) => {
                    self.tell_committed(&committed);
                    self.hear_committed();
                    continue;
                }
                Wake::End => return Ok(()),
            }
            // With the trigger `once` this comes to an end after one micro-batch, unless there is
            // more input than a source can hold.
            self.micro_batch().await?;
        }
    }

    /// Waits until a micro-batch may be worth starting, or one is committed.
    async fn wait(&mut self, pace: &mut Pace) -> Wake {
        let idles_in = self.idle();
        let is_due = self.is_due_without_input();
        let Query { sources, stop, env, .. } = &mut self.query;
        let input = async {
            match pace.due().await {
                pace::Due::WhenInputArrives if !is_due => match idles_in {
                    None => any_arrived(sources).await,
                    Some(idles_in) => tokio::select! {
                        () = any_arrived(sources) => {}
                        () = env.sleep(idles_in) => {}
                    },
                },
                _ => {}
            }
        };
        tokio::select! {
            biased;
            () = stop.requested() => Wake::End,
            committed = self.committer.committed() => match committed {
                // A source may wait for that before it has more.
                Some(committed) => Wake::Hear(committed),
                None => Wake::End,
            },
            () = input => Wake::Look,
        }
    }

    /// Takes what has arrived, if anything has, and runs a micro-batch over it.
    async fn micro_batch(&mut self) -> Result<(), Failure> {
        // What has to be waited for is waited for before anything is taken: rows that arrive
        // meanwhile go along.
        let Query { branches, stop, .. } = &mut self.query;
        let permit = tokio::select! {
            biased;
            () = stop.requested() => return Ok(()),
            permit = self.committer.permit() => permit,
        };
        // A sink may be behind for hours.
        tokio::select! {
            biased;
            () = stop.requested() => return Ok(()),
            ready = branches.ready(self.committer.is_crowded()) => ready?,
        }
        let fired = Fired::now(&self.query.env);
        let limit = match self.query.trigger {
            Trigger::Once => ReadLimit::AllAvailable,
            _ => ReadLimit::Configured,
        };
        let mut taken = Vec::with_capacity(self.query.sources.len());
        for source in &mut self.query.sources {
            taken.push(source.poll(limit)?);
        }
        if taken.iter().all(Option::is_none) && !self.is_due_without_input() {
            return Ok(());
        }
        let mut durations =
            Durations { latest_offset: self.since(fired.began), ..Durations::default() };

        let id = self.next_id;
        self.next_id = id.next();
        let entry = self.intent(&taken, &fired);
        crash_points::reached(Step::AfterTake);
        let began_log = self.query.env.monotonic();
        let blocking = self.query.tracking == ProgressTracking::Blocking;
        let intent = match self.query.branches.delivery() {
            // The state log has what a restart needs.
            _ if self.state.is_some() => Intent::ToBeLogged(entry),
            Delivery::AtLeastOnce | Delivery::Transactional if blocking => {
                self.log.intent(id, entry, Durability::Process).await.written().await?;
                Intent::Logged
            }
            Delivery::AtLeastOnce | Delivery::Transactional => Intent::ToBeLogged(entry),
            Delivery::Idempotent => {
                Intent::OnItsWay(self.log.intent(id, entry, Durability::Power).await)
            }
        };
        durations.wal_commit = self.since(began_log);
        let (sinks, completes, repair) = (None, true, Vec::new());
        let micro_batch =
            MicroBatch { id, fired, taken, intent, sinks, completes, repair, durations, permit };
        self.execute(micro_batch).await?;
        self.wait_if_blocking().await;
        if self.query.log_settings.purge == PurgeTime::WhenCalled {
            self.log.purge().await;
        }
        Ok(())
    }

    fn intent(&self, taken: &[Option<InputBatch>], fired: &Fired) -> offset_log::Entry {
        let ends = taken.iter().map(|taken| taken.as_ref().map(|taken| &taken.end));
        let watermark = self.state.as_ref().map(|state| state.watermarks.next().evict_ms);
        let batch_time_ms = fired.batch_time_ms;
        let end_offsets = EndOffsets { ends: self.end_offsets(ends), batch_time_ms };
        self.entry(end_offsets, watermark.unwrap_or(0))
    }

    /// The offset log's entry of a micro-batch that takes the query to `end_offsets`.
    fn entry(&self, end_offsets: EndOffsets, batch_watermark_ms: i64) -> offset_log::Entry {
        let EndOffsets { ends: offsets, batch_time_ms: batch_timestamp_ms } = end_offsets;
        let conf = self.conf.clone();
        offset_log::Entry { batch_watermark_ms, batch_timestamp_ms, conf, offsets }
    }

    /// Where each source stands after a micro-batch that takes it to `ends`.
    fn end_offsets<'a>(
        &self,
        ends: impl Iterator<Item = Option<&'a SourceOffset>>,
    ) -> Vec<Option<SourceOffset>> {
        let positions = self.positions.iter();
        ends.zip(positions).map(|(end, position)| end.or(position.as_ref()).cloned()).collect()
    }

    /// Steps 3 and 4, and the hand-over to step 5.
    async fn execute(&mut self, mut micro_batch: MicroBatch) -> Result<(), Failure> {
        let began_planning = self.query.env.monotonic();
        if self.statics_changed.swap(false, Ordering::Relaxed) {
            self.query.branches.replan().await?;
            micro_batch.durations.query_planning = self.since(began_planning);
        }
        let batch_time_ms = micro_batch.fired.batch_time_ms;
        self.query.batch_clock.set(batch_time_ms * 1_000);

        let began_running = self.query.env.monotonic();
        let mut input = Input::split(std::mem::take(&mut micro_batch.taken), &self.query.env);
        let splits = std::mem::take(&mut input.splits);
        let ends = self.end_offsets(input.ends.iter().map(Option::as_ref));
        let end_offsets = EndOffsets { ends, batch_time_ms };
        let id = micro_batch.id;
        let (starts, records) = (self.positions.clone(), input.rows.iter().sum());
        self.ranges.add(Range { id, starts, ends: end_offsets.ends.clone(), records });
        let (publish_result, written) = match &self.state {
            Some(_) => {
                let (publish_result, written) =
                    self.publish_with_state(splits, id, end_offsets).await?;
                (publish_result, Some(written))
            }
            None => {
                let intent = micro_batch.intent.take_ticket();
                let order = Order { id, end_offsets, sinks: micro_batch.sinks.as_deref(), intent };
                let Query { branches, env, .. } = &mut self.query;
                (branches.publish(env, splits, order).await?, None)
            }
        };
        micro_batch.durations.add_batch = self.since(began_running);
        self.hand_to_committer(micro_batch, input, publish_result, written);
        Ok(())
    }

    /// The hand-over to step 5.
    fn hand_to_committer(
        &mut self,
        micro_batch: MicroBatch,
        input: Input,
        publish_result: PublishResult,
        written: Option<Written>,
    ) {
        let MicroBatch { id, fired, durations, intent, .. } = micro_batch;
        let PublishResult { acknowledgements, rows_out, sinks, constraints } = publish_result;
        let mut progress = self.progress(id, &fired, durations, &input.ends, &input.rows, rows_out);
        if let Some(written) = &written {
            progress.watermark_ms = Some(written.watermark_ms);
            progress.state = self.state_metrics();
        }
        for (position, end) in self.positions.iter_mut().zip(&input.ends) {
            if let Some(end) = end {
                *position = Some(end.clone());
            }
        }
        let next_watermark_ms = written.as_ref().map_or(0, |written| written.next_watermark_ms);
        self.committer.hand_over(InFlight {
            acknowledgements,
            intent: intent.into_entry(),
            completes: micro_batch.completes,
            state: written.and_then(|written| written.ticket),
            next_watermark_ms,
            repair: micro_batch.repair,
            progress: Progress { sinks, constraints, ..progress },
            took: self.since(fired.began),
            handed_over_us: self.query.env.now_us(),
            publish_result: self.query.env.monotonic(),
            oldest_arrival_us: input.oldest_arrival_us,
            ends: input.ends,
            permit: micro_batch.permit,
        });
        self.previous_trigger = Some(fired.began);
    }

    fn progress(
        &self,
        batch_id: BatchId,
        fired: &Fired,
        durations: Durations,
        ends: &[Option<SourceOffset>],
        rows: &[u64],
        rows_out: u64,
    ) -> Progress {
        let sources = self.query.sources.iter().enumerate();
        let sources = sources.filter_map(|(index, source)| {
            let start = self.positions[index].clone();
            Some(SourceProgress {
                description: source.description(),
                end: ends[index].clone().or_else(|| start.clone())?,
                start,
                latest: source.latest(),
                rows: rows[index],
                metrics: source.metrics(),
            })
        });
        Progress {
            batch_id,
            timestamp_ms: fired.batch_time_ms,
            rows_in: rows.iter().sum(),
            rows_out,
            since_previous: self.previous_trigger.map(|at| fired.began.saturating_sub(at)),
            latency: Duration::ZERO,
            durations,
            sources: sources.collect(),
            watermark_ms: None,
            state: Vec::new(),
            sink: self.query.branches.description(),
            sinks: Vec::new(),
            constraints: Vec::new(),
        }
    }

    fn since(&self, moment: Duration) -> Duration {
        self.query.env.monotonic().saturating_sub(moment)
    }

    /// Whether a micro-batch follows though the sources have come to their end. With the trigger
    /// `once` there is only one.
    fn has_more_without_input(&self) -> bool {
        self.query.trigger != Trigger::Once && self.is_due_without_input()
    }

    fn all_at_end(&self) -> bool {
        self.query.sources.iter().all(|source| source.at_end())
    }

    fn hear_committed(&mut self) {
        while let Some(committed) = self.committer.next_committed() {
            self.tell_committed(&committed);
        }
    }

    fn tell_committed(&mut self, committed: &Committed) {
        self.ranges.acknowledged(committed.id);
        if let Some(state) = &mut self.state {
            state.acknowledged(committed.id);
        }
        for (source, end) in self.query.sources.iter_mut().zip(&committed.ends) {
            if let Some(end) = end {
                source.committed(end);
            }
        }
    }

    fn watch_statics(&self) -> Option<Task<()>> {
        if self.query.statics.is_empty() {
            return None;
        }
        let statics = self.query.statics.clone();
        let (env, changed) = (self.query.env.clone(), Arc::clone(&self.statics_changed));
        Some(self.query.env.spawn("static-tables", async move {
            loop {
                env.sleep(STATIC_REFRESH_INTERVAL).await;
                for table in &statics {
                    match table.refresh().await {
                        Ok(true) => changed.store(true, Ordering::Relaxed),
                        Ok(false) => {}
                        Err(failure) => tracing::warn!(
                            %failure,
                            "a static table could not be read again; its rows stay as they were"
                        ),
                    }
                }
            }
        }))
    }

    /// Waits for what is in flight; not for long once the run is asked to stop.
    async fn drain(&mut self, ending: Ending) -> Result<Finished, Failure> {
        let Query { branches, stop, .. } = &mut self.query;
        let mut drained = pin!(self.committer.drain());
        tokio::select! {
            biased;
            committed = &mut drained => return committed,
            () = stop.requested(), if ending == Ending::Complete => {}
        }
        branches.end(Ending::Stopped).await;
        drained.await
    }

    /// Waits for what is in flight, closes everything, and gives the first failure, if any.
    async fn finish(mut self, outcome: Result<(), Failure>) -> Result<Finished, Failure> {
        if let Some(task) = self.static_watch.take() {
            task.abort();
        }
        let is_cut_short = outcome.is_err() || self.committer.failed_at().is_some();
        let ending = match is_cut_short || self.query.stop.is_requested() {
            true => Ending::Stopped,
            false => Ending::Complete,
        };
        self.query.branches.end(ending).await;
        let state = match &self.state {
            Some(state) => state.close().await,
            None => Ok(()),
        };
        let committed = self.drain(ending).await;
        let flushed = self.log.flush().await;
        self.hear_committed();
        let (outcome, committed) = match (outcome, committed) {
            (Err(failure), committed) => (Err(self.with_record(failure, None).await), committed),
            (Ok(()), Err(failure)) => {
                let first = self.committer.failed_at();
                (Ok(()), Err(self.with_record(failure, first).await))
            }
            fine => fine,
        };
        for source in &mut self.query.sources {
            source.close().await;
        }
        let closed = self.query.branches.close().await;
        // Nobody holds it any more but us: the checkpoint may be opened again after this.
        if let Some(log) = Arc::into_inner(self.log) {
            // What it cannot write has been told by `flush`.
            let _ = log.close().await;
        }
        outcome?;
        state?;
        let finished = committed?;
        flushed?;
        closed?;
        Ok(finished)
    }
}

/// What a wait ends with.
enum Wake {
    /// There may be input.
    Look,
    /// A micro-batch is committed.
    Hear(Committed),
    /// The run is to stop, or committing has failed.
    End,
}

/// Completes when a source that has not reached its end has something, or all have reached it.
async fn any_arrived(sources: &mut [Box<dyn Source>]) {
    let open = sources.iter_mut().filter(|source| !source.at_end());
    let arrivals: Vec<_> = open.map(|source| source.data_available()).collect();
    if !arrivals.is_empty() {
        select_all(arrivals).await;
    }
}

//! From a checkpoint to the first new micro-batch: what logs, sinks and state say, and what has to
//! be repeated.

use std::sync::Arc;

use millstream_store::checkpoint::Checkpoint;
use millstream_store::log_writer::LogWriter;
use millstream_store::offset::BatchId;
use millstream_store::recovery::Recovered;
use millstream_store::storage::Durability;
use millstream_store::{commit_log, offset_log};

use super::committer::Committer;
use super::dead_letter_tables::{self, PriorWork};
use super::micro_batch::{Fired, Intent, MicroBatch};
use super::recovery::{self, Replay, ResumeError};
use super::refused::Ranges;
use super::stateful::{self, StateToResume};
use super::{Driver, Query, other_queries};
use crate::api::progress::{Durations, SourceBeginning};
use crate::api::sink::Published;
use crate::api::source::Failure;
use crate::api::trigger::Trigger;

impl Driver {
    pub(super) async fn start(mut query: Query) -> Result<Self, Failure> {
        let recovered = query.checkpoint.recover().await?;
        let mut published = query.branches.open().await?;
        let is_new = other_queries::is_new(&query.checkpoint, &recovered, &published);
        other_queries::settle(&mut query, &recovered, &mut published).await?;
        let has_state = query.branches.stateful().next().is_some();
        let (resume, state) = if has_state {
            let (form, sources) = (stateful::form(&query.branches), query.sources.len());
            let checkpoint = &query.checkpoint;
            let found = stateful::find(checkpoint, &form, sources, recovered, &published);
            let (resume, state) = found.await?;
            (resume, Some(state))
        } else {
            let sources = query.sources.len();
            let resume = without_state(&query.checkpoint, sources, recovered, &published);
            (resume.await?, None)
        };
        let is_finished = state.as_ref().map_or(resume.is_finished(), StateToResume::is_finished);
        let tables = query.branches.dead_letter_tables();
        let found = PriorWork { is_finished, has_state };
        dead_letter_tables::settle(&query.checkpoint, &tables, found).await?;
        let log = LogWriter::start(&query.checkpoint, &query.env, query.log_settings);
        let log = Arc::new(log);
        let (listener, tracking) = (Arc::clone(&query.listener), query.tracking);
        let (env, branches) = (&query.env, &query.branches);
        let committer = Committer::start(env, Arc::clone(&log), listener, tracking, branches);
        let mut driver = Self {
            positions: vec![None; query.sources.len()],
            next_id: resume.next_id,
            conf: resume.conf.clone(),
            statics_changed: Arc::default(),
            static_watch: None,
            previous_trigger: None,
            replayed: false,
            state: None,
            ranges: Ranges::new(query.branches.micro_batches_in_flight_max()),
            query,
            log,
            committer,
        };
        match driver.resume(resume, state).await {
            Ok(()) => {
                if is_new {
                    driver.tell_beginning();
                }
                driver.static_watch = driver.watch_statics();
                Ok(driver)
            }
            Err(failure) => Err(driver.finish(Err(failure)).await.expect_err("it was given one")),
        }
    }

    /// Tells where a query without a micro-batch begins to read.
    fn tell_beginning(&self) {
        let sources = self.query.sources.iter().zip(&self.positions);
        let sources = sources.filter_map(|(source, start)| {
            let option = source.beginning().map(|beginning| beginning.option);
            Some(SourceBeginning {
                description: source.description(),
                start: start.clone()?,
                option,
            })
        });
        self.query.listener.begins(&sources.collect::<Vec<_>>());
    }

    /// Opens the sources where the logs say, repeats what was logged but not published, and lets
    /// the sources read ahead.
    async fn resume(
        &mut self,
        resume: recovery::Resume,
        state: Option<StateToResume>,
    ) -> Result<(), Failure> {
        for (index, source) in self.query.sources.iter_mut().enumerate() {
            let position = resume.positions[index].as_ref();
            let log = self.query.checkpoint.source_log(index);
            let start = source.open(position, log).await?;
            self.positions[index] = resume.positions[index].clone().or(Some(start));
        }
        if let Some(state) = state {
            self.resume_state(state).await?;
        }
        let carries_on = resume.next_id > BatchId(0);
        for id in resume.commit_only {
            self.log.commit(id, commit_log::Entry::default()).await;
        }
        if let (Some((first, _)), Some((last, _))) = (resume.repair.first(), resume.repair.last()) {
            tracing::info!(first = first.0, last = last.0, "logging what the sink has published");
        }
        if resume.replays.is_empty() {
            let mut tickets = Vec::with_capacity(resume.repair.len());
            for (id, entry) in resume.repair {
                self.log.intent(id, entry, Durability::Process).await;
                tickets.push(self.log.commit(id, commit_log::Entry::default()).await);
            }
            // Only while the foremost sink stands where they say can half of them be told from a
            // contradiction.
            for ticket in tickets {
                ticket.written().await?;
            }
        } else {
            self.replay_all(resume.replays, resume.repair).await?;
        }
        if self.replayed && self.query.trigger == Trigger::Once {
            // Spark's rule: a run with this trigger that finds such a micro-batch does no more.
            return Ok(());
        }
        for (source, position) in self.query.sources.iter_mut().zip(&self.positions) {
            let position = position.as_ref().expect("open gave every source a position");
            source.start(position).await?;
            if carries_on && !self.replayed {
                // The run before may have ended without telling. A replay tells by itself.
                source.committed(position);
            }
        }
        if matches!(self.query.trigger, Trigger::Once | Trigger::AvailableNow) {
            for source in &mut self.query.sources {
                source.fix_end().await?;
            }
        }
        Ok(())
    }

    /// Repeats micro-batches, for the sinks that lack them. The entries of `repair` say that all
    /// sinks have caught up, and so are written after the last of them.
    async fn replay_all(
        &mut self,
        replays: Vec<Replay>,
        repair: Vec<(BatchId, offset_log::Entry)>,
    ) -> Result<(), Failure> {
        self.replayed = true;
        let (first_unlogged, mut repair) = (repair.first().map(|(id, _)| *id), Some(repair));
        let mut replays = replays.into_iter().peekable();
        while let Some(replay) = replays.next() {
            tracing::info!(
                batch_id = replay.id.0,
                "repeating a micro-batch that was not committed"
            );
            let next = replays.peek();
            let is_logged = first_unlogged.is_none_or(|unlogged| replay.id < unlogged);
            let completes = is_logged && next.is_none_or(|next| next.id > replay.id);
            let repair = if next.is_none() { repair.take() } else { None };
            self.replay(replay, completes, repair.unwrap_or_default()).await?;
        }
        Ok(())
    }

    async fn replay(
        &mut self,
        replay: Replay,
        completes: bool,
        repair: Vec<(BatchId, offset_log::Entry)>,
    ) -> Result<(), Failure> {
        let began = self.query.env.monotonic();
        let mut taken = Vec::with_capacity(self.query.sources.len());
        for (index, source) in self.query.sources.iter_mut().enumerate() {
            let Some(end) = &replay.ends[index] else {
                taken.push(None);
                continue;
            };
            taken.push(Some(source.replay(replay.starts[index].as_ref(), end).await?));
        }
        self.positions = replay.starts;
        let is_logged = completes || !repair.is_empty();
        let repaired = repair.last().map(|(id, _)| *id);
        let micro_batch = MicroBatch {
            id: replay.id,
            fired: Fired { began, batch_time_ms: replay.batch_time_ms },
            taken,
            intent: Intent::Logged,
            sinks: Some(replay.sinks),
            completes,
            repair,
            durations: Durations::default(),
            permit: self.committer.permit().await,
        };
        self.execute(micro_batch).await?;
        match repaired {
            Some(repaired) => self.wait_until_repaired(repaired).await,
            None if is_logged => self.wait_if_blocking().await,
            None => {}
        }
        Ok(())
    }

    /// Waits until the entries up to `last` are written: nothing new is published before.
    async fn wait_until_repaired(&mut self, last: BatchId) {
        self.query.branches.flush().await;
        while let Some(committed) = self.committer.committed().await {
            self.tell_committed(&committed);
            if committed.id >= last {
                return;
            }
        }
    }
}

/// What a restart of a query without state does.
async fn without_state(
    checkpoint: &Checkpoint,
    sources: usize,
    recovered: Recovered,
    published: &[Option<Published>],
) -> Result<recovery::Resume, Failure> {
    stateful::refuse_state(checkpoint)?;
    match recovery::decide(recovered, published, sources) {
        // Another process may be at work yet: what it has published since the logs were read
        // stands in them by now, and the sink or the next entry will tell who goes on.
        Err(ResumeError::Ahead { .. }) => {
            let recovered = checkpoint.recover().await?;
            Ok(recovery::decide(recovered, published, sources)?)
        }
        decided => Ok(decided?),
    }
}

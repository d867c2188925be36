//! What the driver does more for a query with state.
//!
//! A micro-batch is run, and what its operators were given goes to the state log with where the
//! query stands. Rows are published only when that survives; a micro-batch without rows, and most
//! are when windows fill, waits for nothing. So the state log is never behind a sink, and a restart
//! takes it for the truth: it applies the entries, publishes again what a sink lacks, as the
//! entries give it, and reads the sources behind the last one. The entries of the other two logs
//! come later, in the committer, when those of the state log are written.
//!
//! A micro-batch may have no input at all: when the watermark has come to where an operator has
//! something to close, and no rows are there to go with it.
//!
//! An entry is needed as long as its rows are in the state, or until the micro-batch that took them
//! out is acknowledged by all sinks: up to then its rows may have to be given again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use millstream_store::checkpoint::Checkpoint;
use millstream_store::error::{Classified, Kind};
use millstream_store::log_writer::WriteError;
use millstream_store::offset::BatchId;
use millstream_store::recovery::Recovered;
use millstream_store::state_log::{
    self, Entry, Facts, Section, SnapshotReader, StateLog, StateReader, WriteSettings,
};
use millstream_store::{layout, offset_log};
use thiserror::Error;

use super::branch::Splits;
use super::branches::{Again, Branches};
use super::micro_batch::{Fired, Input, Intent, MicroBatch};
use super::outputs::Order;
use super::publish_result::PublishResult;
use super::recovery::{Resume, ResumeError};
use super::snapshots::Snapshots;
use super::{Driver, Query};
use crate::api::progress::{Durations, OperatorMetrics};
use crate::api::sink::{EndOffsets, Published};
use crate::api::source::{Failure, SourcePartition};
use crate::failures::from_datafusion;
use crate::state::codec;
use crate::state::micro_batch::MicroBatchFacts;
use crate::state::snapshot_builder::QueryReplica;
use crate::state::watermark::{Watermark, Watermarks};

/// How often the watermark is looked at while nothing comes, where it may move by itself.
const LOOK_WHILE_IDLE: Duration = Duration::from_millis(50);

/// How often the memory of the state is measured.
const MEASURE: Duration = Duration::from_secs(1);

/// Why a query with state cannot be continued.
#[derive(Debug, Error)]
pub enum StateError {
    /// A query without state ran on this checkpoint.
    #[error(
        "the checkpoint {location} was made by a query without state: it knows which rows were \
         read, but not what this query would have remembered of them. Use a new checkpoint \
         directory (the query then begins anew)"
    )]
    NoState {
        /// The checkpoint.
        location: String,
    },
    /// A query with state ran on this checkpoint.
    #[error(
        "the checkpoint {location} has the state of another query, and this one has none: rows \
         that the other has gathered and not published would be lost. Use a new checkpoint \
         directory (the query then begins anew)"
    )]
    UnwantedState {
        /// The checkpoint.
        location: String,
    },
    /// The logs know more than the state.
    #[error(
        "the checkpoint {location} has logged micro-batch {logged}, but its state ends {state}. \
         Files of {directory} are missing: restore them from a backup, or use a new checkpoint \
         directory (the query then begins anew)"
    )]
    Behind {
        /// The checkpoint.
        location: String,
        /// The last micro-batch in the logs.
        logged: BatchId,
        /// Where the state ends, in words.
        state: String,
        /// The directory of the state.
        directory: String,
    },
}

impl Classified for StateError {
    fn kind(&self) -> Kind {
        match self {
            Self::NoState { .. } | Self::UnwantedState { .. } => Kind::Config,
            Self::Behind { .. } => Kind::Data,
        }
    }
}

/// The state log of a running query, and its watermarks.
pub(super) struct QueryState {
    log: Arc<StateLog>,
    pub(super) watermarks: Watermarks,
    /// Whether a partition had more rows when that was last looked at.
    is_behind: bool,
    /// Micro-batches that are not acknowledged, with the entries that giving their rows again
    /// takes.
    in_flight: VecDeque<(BatchId, Option<BatchId>)>,
    acknowledged: Option<BatchId>,
    snapshots: Snapshots,
    /// By operator, the memory of its state when it was last asked for.
    bytes: Vec<u64>,
    /// When that was, on the monotonic clock.
    measured: Option<Duration>,
}

/// What a restart finds of a query with state.
pub(super) struct StateToResume {
    reader: StateReader,
    snapshot: Option<SnapshotReader>,
    /// Up to here, all sinks have everything.
    committed: Option<BatchId>,
    /// The intents above the last commit entry. There may be gaps.
    logged: Vec<BatchId>,
    published: Vec<Option<BatchId>>,
}

impl StateToResume {
    /// Whether all sinks have everything.
    pub(super) fn is_finished(&self) -> bool {
        self.reader.last().map(Facts::id) <= self.committed
    }
}

/// Refuses a checkpoint with state for a query that has none.
pub(super) fn refuse_state(checkpoint: &Checkpoint) -> Result<(), StateError> {
    if checkpoint.has_state() {
        Err(StateError::UnwantedState { location: checkpoint.location() })
    } else {
        Ok(())
    }
}

/// What all operators of a query are, for the state's marker.
pub(super) fn form(branches: &Branches) -> String {
    branches.stateful().map(|plan| plan.form()).collect()
}

/// What is different between two forms, in words.
fn difference(known: &str, own: &str) -> String {
    let missing = |from: &str, of: &str| -> Vec<String> {
        let lines = from.lines().filter(|line| !of.lines().any(|other| other == *line));
        lines.map(|line| format!("`{line}`")).collect()
    };
    match (missing(known, own), missing(own, known)) {
        (gone, new) if gone.is_empty() && new.is_empty() => {
            "its operators are the same in another order".to_owned()
        }
        (gone, new) if gone.is_empty() => format!("this query has {} besides", new.join(", ")),
        (gone, new) if new.is_empty() => format!("it had {} besides", gone.join(", ")),
        (gone, new) => format!("it had {}, this query has {}", gone.join(", "), new.join(", ")),
    }
}

/// Reads where a query with state stands, and holds it against the logs and the sinks.
///
/// `own` is what the query's operators are, and `sources` how many sources it has.
pub(super) async fn find(
    checkpoint: &Checkpoint,
    own: &str,
    sources: usize,
    recovered: Recovered,
    published: &[Option<Published>],
) -> Result<(Resume, StateToResume), Failure> {
    let mut reader = StateReader::open(checkpoint).await?;
    let logged = recovered.last_intent.as_ref().map(|(id, _)| *id);
    if !checkpoint.has_state() && logged.is_some() {
        return Err(StateError::NoState { location: checkpoint.location() }.into());
    }
    reader.check_form(own, |known| difference(known, own)).await?;
    let snapshot = reader.snapshot().await?;
    let last = reader.last().cloned();
    let state = last.as_ref().map(Facts::id);
    if logged > state {
        return Err(behind(checkpoint, logged, state).into());
    }
    let in_log = recovered.last_commit.as_ref().map(|(id, _)| *id);
    let known = last.as_ref().and_then(|facts| facts.acknowledged).map(BatchId);
    let committed = in_log.max(known).max(snapshot.as_ref().map(|snapshot| snapshot.facts().id()));
    let published: Vec<_> =
        published.iter().map(|sink| sink.as_ref().map(|sink| sink.batch_id)).collect();
    let foremost = published.iter().flatten().max().copied();
    if let Some(foremost) = foremost.filter(|foremost| Some(*foremost) > state) {
        let known = state.map_or("has none".to_owned(), |id| format!("ends with {id}"));
        return Err(ResumeError::Ahead { published: foremost, known }.into());
    }
    let positions = match &last {
        None => vec![None; sources],
        Some(facts) => facts.ends.clone(),
    };
    if positions.len() != sources {
        let in_checkpoint = positions.len();
        return Err(ResumeError::SourcesChanged { in_checkpoint, in_query: sources }.into());
    }
    let logged = recovered.unfinished.iter().map(|(id, _)| *id).collect();
    let conf = recovered.last_intent.map_or_else(offset_log::default_conf, |(_, last)| last.conf);
    let resume = Resume {
        next_id: state.map_or(BatchId(0), BatchId::next),
        positions,
        conf,
        commit_only: Vec::new(),
        repair: Vec::new(),
        replays: Vec::new(),
    };
    Ok((resume, StateToResume { reader, snapshot, committed, logged, published }))
}

fn behind(checkpoint: &Checkpoint, logged: Option<BatchId>, state: Option<BatchId>) -> StateError {
    StateError::Behind {
        location: checkpoint.location(),
        logged: logged.expect("it is above the state"),
        state: state.map_or("before it began".to_owned(), |id| format!("with {id}")),
        directory: checkpoint.storage().path_of(layout::STATE),
    }
}

impl Driver {
    /// Rebuilds the state, and publishes what sinks lack of it.
    pub(super) async fn resume_state(&mut self, found: StateToResume) -> Result<(), Failure> {
        let StateToResume { mut reader, mut snapshot, committed, logged, published } = found;
        let log = StateLog::start(
            &self.query.checkpoint,
            &self.query.env,
            WriteSettings::of(&self.query.checkpoint),
            &reader,
        );
        let (mut next, mut snapshot_bytes) = (None, 0);
        let needed = reader.last().map(|last| BatchId(last.needs));
        // Where later entries alone are needed, nothing of the snapshot is in the state any more,
        // and those between may be gone.
        let is_of_use = |id: BatchId| needed.is_none_or(|needed| needed <= id.next());
        match &mut snapshot {
            Some(snapshot) if is_of_use(snapshot.facts().id()) => {
                let id = snapshot.facts().id();
                let facts_of_snapshot = MicroBatchFacts::from_snapshot(id);
                let Query { branches, env, .. } = &mut self.query;
                while let Some(piece) = snapshot.next().await? {
                    snapshot_bytes += piece.iter().map(|section| section.len() as u64).sum::<u64>();
                    branches.apply(env, &facts_of_snapshot, &piece, Again::NONE).await?;
                }
                next = Some(id.next());
            }
            _ => reader.pass_below(needed.unwrap_or(BatchId(0))).await?,
        }
        let mut last_facts = snapshot.as_ref().map(|snapshot| snapshot.facts().clone());
        self.state = Some(QueryState {
            log: Arc::new(log),
            watermarks: {
                let mut watermarks = self.query.watermarks.clone();
                watermarks.begin(self.query.env.monotonic());
                watermarks
            },
            is_behind: false,
            in_flight: VecDeque::new(),
            acknowledged: committed,
            snapshots: Snapshots::new(
                self.query.snapshots,
                snapshot.as_ref().map(|snapshot| (snapshot.facts().id(), snapshot_bytes)),
                self.query.env.monotonic(),
            ),
            bytes: Vec::new(),
            measured: None,
        });
        while let Some(entry) = reader.next().await? {
            let id = entry.id();
            // Entries that are not needed may be gone, those at the beginning only.
            let expected = next.or(needed).unwrap_or(id);
            if (next.is_some() && id != expected) || (next.is_none() && id > expected) {
                return Err(reader.missing(expected).into());
            }
            if let Some(state) = &mut self.state {
                let bytes = entry.sections.iter().map(Vec::len).sum();
                state.snapshots.grown(id, bytes, BatchId(entry.facts.needs));
            }
            next = Some(id.next());
            last_facts = Some(entry.facts.clone());
            self.apply_entry(entry, committed, &logged, &published).await?;
        }
        if let (Some(facts), Some(state)) = (last_facts, &mut self.state) {
            let evict_ms = facts.next_watermark_ms;
            let watermark = Watermark { evict_ms, late_ms: facts.watermark_ms };
            state.watermarks.restore(watermark, &facts.seen_ms);
        }
        Ok(())
    }

    async fn apply_entry(
        &mut self,
        entry: Entry,
        committed: Option<BatchId>,
        logged: &[BatchId],
        published: &[Option<BatchId>],
    ) -> Result<(), Failure> {
        let Entry { facts, sections } = entry;
        let id = facts.id();
        let is_committed = Some(id) <= committed;
        let lacks = |sink: &usize| !is_committed && published[*sink] < Some(id);
        let wanted: Vec<usize> = (0..published.len()).filter(lacks).collect();
        let needs = self.query.branches.needs_from();
        let of_batch = MicroBatchFacts::new(id, Watermark::from_entry(&facts));
        self.query.batch_clock.set(facts.batch_time_ms * 1_000);
        let splits = self.splits_again(&facts, &wanted).await?;
        let again = Again { wanted: &wanted, splits };
        let Query { branches, env, .. } = &mut self.query;
        let computed = branches.apply(env, &of_batch, &sections, again).await?;
        if is_committed {
            return Ok(());
        }
        tracing::info!(batch_id = id.0, "a micro-batch that was not committed");
        self.replayed = true;
        let state = self.state.as_mut().expect("it is being resumed");
        state.in_flight.push_back((id, needs));
        let mut input = Input::none(self.query.sources.len(), &self.query.env);
        // The run before may have ended without telling the sources.
        input.ends.clone_from(&facts.ends);
        let end_offsets = EndOffsets { ends: facts.ends, batch_time_ms: facts.batch_time_ms };
        let intent = if logged.contains(&id) {
            Intent::Logged
        } else {
            Intent::ToBeLogged(self.entry(end_offsets.clone(), facts.watermark_ms))
        };
        let permit = self.committer.permit().await;
        let began = self.query.env.monotonic();
        let order = Order { id, end_offsets, sinks: Some(&wanted), intent: None };
        let Query { branches, env, .. } = &mut self.query;
        let publish_result = branches.hand_over(env, computed, order).await?;
        let micro_batch = MicroBatch {
            id,
            fired: Fired { began, batch_time_ms: facts.batch_time_ms },
            taken: Vec::new(),
            intent,
            sinks: None,
            completes: true,
            repair: Vec::new(),
            durations: Durations::default(),
            permit,
        };
        let written = Written {
            ticket: None,
            watermark_ms: facts.watermark_ms,
            next_watermark_ms: facts.next_watermark_ms,
        };
        self.hand_to_committer(micro_batch, input, publish_result, Some(written));
        self.wait_if_blocking().await;
        Ok(())
    }

    /// By source, the input of a micro-batch of an earlier run, where a plan without state has to
    /// compute its rows for a sink of `wanted` again: the state log has nothing of those. `None`
    /// where none has.
    async fn splits_again(
        &mut self,
        facts: &Facts,
        wanted: &[usize],
    ) -> Result<Option<Splits>, Failure> {
        if !self.query.branches.lacks_input(wanted) {
            return Ok(None);
        }
        let mut splits = Vec::with_capacity(self.query.sources.len());
        for (index, source) in self.query.sources.iter_mut().enumerate() {
            let (start, end) = (facts.starts[index].as_ref(), facts.ends[index].as_ref());
            splits.push(match end.filter(|end| Some(*end) != start) {
                Some(end) => source.replay(start, end).await?.splits,
                None => Vec::new(),
            });
        }
        Ok(Some(splits))
    }

    /// Runs a micro-batch and publishes what comes of it, once its changes survive.
    pub(super) async fn publish_with_state(
        &mut self,
        splits: Splits,
        id: BatchId,
        end_offsets: EndOffsets,
    ) -> Result<(PublishResult, Written), Failure> {
        let sources = self.query.sources.len();
        let behind = self.partitions_behind();
        let is_behind = behind.iter().any(|partitions| !partitions.is_empty());
        let Query { branches, env, checkpoint, .. } = &mut self.query;
        let state = self.state.as_mut().expect("the query has state");
        let watermark = state.watermarks.next();
        let needs_before = branches.needs_from();
        let of_batch = MicroBatchFacts::new(id, watermark);
        let mut computed =
            branches.run_with_state(env, &of_batch, end_offsets.batch_time_ms, splits).await?;
        state.watermarks.advance(&branches.take_newest(sources), &behind, env.monotonic());
        state.is_behind = is_behind;
        state.in_flight.push_back((id, needs_before));
        let needs = state.needs(branches.needs_from(), id);
        let facts = Facts {
            batch_id: id.0,
            batch_time_ms: end_offsets.batch_time_ms,
            starts: self.positions.clone(),
            ends: end_offsets.ends.clone(),
            watermark_ms: watermark.evict_ms,
            late_ms: watermark.late_ms,
            next_watermark_ms: state.watermarks.next().evict_ms,
            seen_ms: state.watermarks.seen_ms().to_vec(),
            needs: needs.0,
            acknowledged: state.acknowledged.map(|id| id.0),
            pieces: Vec::new(),
        };
        let next_watermark_ms = facts.next_watermark_ms;
        let has_rows = computed.has_rows();
        let sections = std::mem::take(&mut computed.sections);
        let schemas = branches.section_schemas();
        let bytes = sections.iter().map(|rows| codec::encoded_bytes(rows)).sum();
        let ticket = append(&state.log, facts, schemas, sections, bytes).await;
        state.snapshots.grown(id, bytes, needs);
        if state.snapshots.are_due(state.acknowledged, env.monotonic()) {
            let snapshot_builder = branches.snapshot_builder().map_err(from_datafusion)?;
            let end = state.acknowledged.expect("there is something to make one of");
            state.snapshots.make(checkpoint, env, &state.log, snapshot_builder, end);
        }
        if has_rows {
            ticket.written().await?;
        }
        // A restart may not know of one without rows, whose entry nobody waits for: a sink that
        // remembers its number would be ahead of the state.
        let sinks = (!has_rows).then(|| branches.at_least_once());
        let order = Order { id, end_offsets, sinks: sinks.as_deref(), intent: None };
        let publish_result = branches.hand_over(env, computed, order).await?;
        let watermark_ms = watermark.evict_ms;
        Ok((publish_result, Written { ticket: Some(ticket), watermark_ms, next_watermark_ms }))
    }

    /// What the operators have and did. Their memory is asked for now and then only: the answer
    /// may take a walk through all of it.
    pub(super) fn state_metrics(&mut self) -> Vec<OperatorMetrics> {
        let Some(state) = &mut self.state else { return Vec::new() };
        let mut metrics: Vec<_> =
            self.query.branches.stateful().flat_map(|plan| plan.metrics()).collect();
        let now = self.query.env.monotonic();
        if state.measured.is_none_or(|measured| now.saturating_sub(measured) >= MEASURE) {
            state.measured = Some(now);
            let bytes = self.query.branches.stateful().flat_map(|plan| plan.bytes());
            state.bytes = bytes.collect();
        }
        for (metrics, bytes) in metrics.iter_mut().zip(&state.bytes) {
            metrics.bytes = *bytes;
        }
        metrics
    }

    /// Whether a micro-batch without input would give rows or let state go.
    pub(super) fn is_due_without_input(&self) -> bool {
        let Some(state) = &self.state else { return false };
        let evict_us = state.watermarks.next().evict_us();
        self.query.branches.stateful().any(|plan| plan.is_due(evict_us))
    }

    /// Moves the watermark where sources have been idle; gives when to look again.
    pub(super) fn idle(&mut self) -> Option<Duration> {
        let state = self.state.as_ref()?;
        if !state.is_behind && state.watermarks.idles_at().is_none() {
            return None;
        }
        let now = self.query.env.monotonic();
        let behind = self.partitions_behind();
        let state = self.state.as_mut()?;
        state.is_behind = behind.iter().any(|partitions| !partitions.is_empty());
        let watermarks = &mut state.watermarks;
        watermarks.idle(&behind, now);
        let until = |at: Duration| at.checked_sub(now).filter(|until| !until.is_zero());
        let idles_in = watermarks.idles_at().map(|at| until(at).unwrap_or(LOOK_WHILE_IDLE));
        // A partition that is empty is known to be so only when the outside has said it.
        let looks_in = state.is_behind.then_some(LOOK_WHILE_IDLE);
        idles_in.into_iter().chain(looks_in).min()
    }

    /// By source, the partitions that have more rows; none for a query without state.
    fn partitions_behind(&self) -> Vec<Vec<SourcePartition>> {
        match &self.state {
            Some(state) if state.watermarks.exist() => {
                self.query.sources.iter().map(|source| source.partitions_behind()).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// What the committer is told of a micro-batch with state.
pub(super) struct Written {
    /// `None` where it is written.
    pub(super) ticket: Option<state_log::Ticket>,
    pub(super) watermark_ms: i64,
    pub(super) next_watermark_ms: i64,
}

async fn append(
    log: &StateLog,
    facts: Facts,
    schemas: Vec<SchemaRef>,
    sections: Vec<Vec<RecordBatch>>,
    bytes: usize,
) -> state_log::Ticket {
    let section = |(schema, rows): (SchemaRef, Vec<RecordBatch>)| -> Section<'static> {
        Box::new(move |to| codec::encode_to(&schema, rows, to).map_err(|error| error.to_string()))
    };
    let sections = schemas.into_iter().zip(sections).map(section).collect();
    log.append(facts, bytes, sections).await
}

impl Branches {
    fn snapshot_builder(&self) -> datafusion::common::Result<QueryReplica> {
        let of_plans = self.stateful().map(|plan| plan.snapshot_builder());
        let of_plans = of_plans.collect::<datafusion::common::Result<Vec<_>>>()?;
        Ok(QueryReplica::new(of_plans.into_iter().flatten().collect()))
    }

    fn needs_from(&self) -> Option<BatchId> {
        self.stateful().filter_map(|plan| plan.needs_from()).min()
    }
}

impl QueryState {
    /// Every micro-batch up to `id` is acknowledged.
    pub(super) fn acknowledged(&mut self, id: BatchId) {
        self.acknowledged = self.acknowledged.max(Some(id));
        while self.in_flight.front().is_some_and(|(first, _)| *first <= id) {
            self.in_flight.pop_front();
        }
    }

    /// The first entry that is needed to go on behind `id`, with rows in the state from `state` on.
    fn needs(&self, state: Option<BatchId>, id: BatchId) -> BatchId {
        let in_flight = self.in_flight.iter();
        let to_give_again = in_flight.map(|(id, needs)| needs.unwrap_or(*id).min(*id)).min();
        let needs = state.into_iter().chain(to_give_again).min().unwrap_or(id);
        needs.max(self.snapshots.last().map_or(BatchId(0), BatchId::next))
    }

    pub(super) async fn close(&self) -> Result<(), WriteError> {
        self.log.close().await
    }
}

//! Where a query's rows go: a plan and a sink for each of its branches.
//!
//! Most queries have one branch, and then this adds nothing: the splits go into its plan, the
//! result into its sink. Where several branches read the same sources, each split is decoded once,
//! with the columns that any of the plans asks for ([`decoded`](super::decoded)). Then one branch
//! after the other runs its plan and hands the result to its sink, all under the number of the
//! micro-batch. So the first branch's rows are on their way before the second one computes, and a
//! micro-batch is acknowledged when every sink has acknowledged it.
//!
//! What several sinks promise together is what the most demanding of them needs: an intent that is
//! durable before anything is published if one relies on the same range under the same number, an
//! intent after the acknowledgements if one tells what it published, else any.
//!
//! A sink that gathers micro-batches, as a table that commits once a second, is ready only every
//! so many milliseconds: alone it has no use for smaller pieces. Beside a sink that does not
//! gather it would delay the other's rows for nothing, so then the driver does not ask it. It may
//! take many more micro-batches that way, each of which is remembered until it is acknowledged.
//! Therefore they are limited, and once half of them are under way the gathering sinks are asked
//! again and space out the rest: rows wait some milliseconds longer, not for the next commit.
//!
//! Dead letters have sinks of their own, after those of the branches
//! ([`dead_letter_sinks`](super::dead_letter_sinks)).

use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use millstream_store::env::Env;
use millstream_store::log_writer::Ticket;
use millstream_store::offset::BatchId;

use super::branch::{Branch, Splits};
use super::dead_letter_sinks::{DeadLetterSinks, logged_for};
use super::decoded::{self, Decoded, Reading};
use super::letter_tables::LetterTable;
use super::publish_result::PublishResult;
use super::start::Start;
use super::stateful_output::Computed;
use super::{MICRO_BATCHES_IN_FLIGHT_MAX, dead_letter_run};
use crate::api::progress::SinkProgress;
use crate::api::sink::{
    Acknowledgement, Delivery, EndOffsets, Output, Published, RefusedRow, Sink,
};
use crate::api::source::Failure;
use crate::failures::from_datafusion;
use crate::plan::{StatefulPlan, StreamPlan};
use crate::state::event_times::{EventTimes, NewestTimes};
use crate::state::micro_batch::MicroBatchFacts;

/// Micro-batches in flight where a sink that gathers stands beside one that does not. Half of them
/// is what a table takes for one commit.
const IN_FLIGHT_BESIDE_GATHERING_MAX: usize = 16_384;

/// All branches of a query, in the order of the file.
pub struct Branches {
    pub(super) branches: Vec<Branch>,
    /// By source, what any plan reads; empty where there is one branch, and nothing beside it.
    readings: Vec<Reading>,
    /// Where dead letters go. Its sinks are counted after those of the branches.
    pub(super) letter_sinks: Option<DeadLetterSinks>,
    /// How a query without a micro-batch may begin.
    pub(super) start: Start,
}

/// A micro-batch on its way to the sinks.
pub(super) struct Order<'a> {
    pub(super) id: BatchId,
    pub(super) end_offsets: EndOffsets,
    /// The sinks that get it, ascending; `None` for all.
    pub(super) sinks: Option<&'a [usize]>,
    /// An intent that must be durable before anything is published.
    pub(super) intent: Option<Ticket>,
}

/// What a restart needs of a micro-batch that is in the state log.
pub(super) struct Again<'a> {
    /// The sinks that lack it, ascending.
    pub(super) wanted: &'a [usize],
    /// Its input, where [`Branches::lacks_input`].
    pub(super) splits: Option<Splits>,
}

impl Again<'_> {
    /// Its changes only.
    pub(super) const NONE: Self = Self { wanted: &[], splits: None };
}

impl Branches {
    /// The same, for a query that begins as `start` says.
    pub fn beginning(mut self, start: Start) -> Self {
        self.start = start;
        self
    }
}

impl Branches {
    /// The branches of one query, whose plans read the same sources in the same order.
    pub fn new(branches: Vec<Branch>) -> Self {
        assert!(!branches.is_empty(), "a query has at least one branch");
        let start = Start::default();
        let mut of_query = Self { branches, readings: Vec::new(), letter_sinks: None, start };
        of_query.find_columns();
        of_query
    }

    /// The same, with sinks for dead letters.
    pub fn with_letter_sinks(mut self, letter_sinks: DeadLetterSinks) -> Self {
        self.letter_sinks = Some(letter_sinks);
        self.find_columns();
        self
    }

    /// The branch of a query that has only one.
    pub fn one(plan: impl Into<StreamPlan>, sink: Box<dyn Sink>) -> Self {
        Self::new(vec![Branch { plan: plan.into(), sink }])
    }

    /// The only branch with another sink.
    #[cfg(test)]
    pub(super) fn with_sink(mut self, sink: Box<dyn Sink>) -> Self {
        self.branches[0].sink = sink;
        self
    }

    fn find_columns(&mut self) {
        if self.branches.len() > 1 {
            // Each has filters of its own, and they share the watermark.
            for seen in self.event_times() {
                seen.follow(None);
            }
        }
        if self.decodes_once() {
            let plans = self.branches.iter().map(|branch| branch.plan.columns_read());
            let mut columns = decoded::columns_of_any(plans);
            if let Some(letter_sinks) = &self.letter_sinks {
                letter_sinks.widen(&mut columns);
            }
            let apart = self.letter_sinks.as_ref().map_or(&[][..], DeadLetterSinks::apart);
            let apart = apart.iter().copied().chain(std::iter::repeat(false));
            let of_source = columns.into_iter().zip(apart).enumerate();
            let readings = of_source.map(|(source, (columns, apart))| Reading {
                columns,
                watched: self.watched(source),
                apart,
            });
            self.readings = readings.collect();
        }
    }

    /// Whether there is more than one plan and its sink.
    fn are_several(&self) -> bool {
        self.branches.len() > 1 || self.letter_sinks.is_some()
    }

    /// Whether splits are decoded before any plan runs: for several plans, or to gather letters.
    pub(super) fn decodes_once(&self) -> bool {
        let takes_apart = |letter_sinks: &DeadLetterSinks| letter_sinks.apart().contains(&true);
        self.branches.len() > 1 || self.letter_sinks.as_ref().is_some_and(takes_apart)
    }

    /// Decodes `splits` for all plans; gives them back where the only plan does that.
    async fn decode(
        &mut self,
        env: &Env,
        splits: Splits,
    ) -> Result<(Option<Decoded>, Splits), Failure> {
        if !self.decodes_once() {
            return Ok((None, splits));
        }
        let partitions = self.branches[0].plan.partitions();
        let decoded = decoded::decode(env, splits, &self.readings, partitions).await?;
        Ok((Some(decoded), Splits::new()))
    }

    /// Where the event times of a source are seen, by the first plan that asks for them.
    fn watched(&self, source: usize) -> Option<Arc<EventTimes>> {
        let slots = self.branches.iter().filter_map(|branch| branch.plan.scans().get(source));
        slots.filter_map(|slots| slots.event_times()).next().map(Arc::clone)
    }

    pub(super) fn sinks(&self) -> impl Iterator<Item = &dyn Sink> {
        let letters = self.letter_sinks.iter().flat_map(DeadLetterSinks::sinks);
        self.branches.iter().map(|branch| &*branch.sink).chain(letters)
    }

    pub(super) fn sinks_mut(&mut self) -> impl Iterator<Item = &mut Box<dyn Sink>> {
        let letters = self.letter_sinks.iter_mut().flat_map(DeadLetterSinks::sinks_mut);
        self.branches.iter_mut().map(|branch| &mut branch.sink).chain(letters)
    }

    /// What the sinks are, for progress and messages.
    pub(super) fn description(&self) -> String {
        match &self.branches[..] {
            [only] if self.letter_sinks.is_none() => only.sink.description(),
            _ => self.sinks().map(|sink| sink.description()).collect::<Vec<_>>().join(", "),
        }
    }

    /// The tables of dead letters.
    pub(super) fn letter_tables(&self) -> Vec<LetterTable> {
        self.letter_sinks.iter().flat_map(DeadLetterSinks::tables).collect()
    }

    /// What all sinks together need. Settled once they are open.
    pub(super) fn delivery(&self) -> Delivery {
        let any = |wanted| self.sinks().any(|sink| sink.delivery() == wanted);
        match () {
            // Which rows are letters may follow from the time of the micro-batch. A restart has to
            // decide it again for the same micro-batches, and not for what they come to together.
            () if self.letter_sinks.as_ref().is_some_and(DeadLetterSinks::choose_rows) => {
                Delivery::Idempotent
            }
            () if any(Delivery::Idempotent) => Delivery::Idempotent,
            () if any(Delivery::Transactional) => Delivery::Transactional,
            () => Delivery::AtLeastOnce,
        }
    }

    /// How many micro-batches may be under way.
    pub(super) fn micro_batches_in_flight_max(&self) -> usize {
        let beside = self.is_any_gathering() && !self.are_all_gathering();
        if beside || self.letter_sinks.as_ref().is_some_and(DeadLetterSinks::gather) {
            return IN_FLIGHT_BESIDE_GATHERING_MAX;
        }
        let of_sinks = self.sinks().filter_map(|sink| sink.micro_batches_in_flight_max());
        of_sinks.max().unwrap_or(0).max(MICRO_BATCHES_IN_FLIGHT_MAX)
    }

    fn is_any_gathering(&self) -> bool {
        self.branches.iter().any(Branch::gathers)
    }

    fn are_all_gathering(&self) -> bool {
        self.branches.iter().all(Branch::gathers)
    }

    /// Opens every sink; gives what each has published last.
    pub(super) async fn open(&mut self) -> Result<Vec<Option<Published>>, Failure> {
        let mut published = Vec::with_capacity(self.branches.len());
        for sink in self.sinks_mut() {
            published.push(sink.open().await?);
        }
        Ok(published)
    }

    /// Completes when another micro-batch is worth taking; `is_crowded` where more than half of
    /// those that may be under way are.
    pub(super) async fn ready(&mut self, is_crowded: bool) -> Result<(), Failure> {
        if let [only] = &mut self.branches[..] {
            only.sink.ready().await?;
        } else {
            let asks_all = is_crowded || self.are_all_gathering();
            for branch in &mut self.branches {
                if asks_all || !branch.gathers() {
                    branch.sink.ready().await?;
                }
            }
        }
        // Dead letters are few; what their sinks cannot take at once is waited for in `publish`.
        for sink in
            self.letter_sinks.iter_mut().flat_map(DeadLetterSinks::sinks_mut).filter(|_| is_crowded)
        {
            sink.ready().await?;
        }
        Ok(())
    }

    /// Plans again, with what the static tables hold now.
    pub(super) async fn replan(&mut self) -> Result<(), Failure> {
        for branch in &mut self.branches {
            branch.plan.replan().await.map_err(from_datafusion)?;
        }
        self.find_columns();
        Ok(())
    }

    /// The plans that have state, in order.
    pub(super) fn stateful(&self) -> impl Iterator<Item = &StatefulPlan> {
        self.branches.iter().filter_map(|branch| branch.plan.stateful())
    }

    /// By source, the newest event times among the rows read since the last call.
    pub(super) fn take_newest(&self, sources: usize) -> Vec<NewestTimes> {
        let mut newest = vec![NewestTimes::default(); sources];
        for branch in &self.branches {
            for (newest, slots) in newest.iter_mut().zip(branch.plan.scans()) {
                for (partition, us) in
                    slots.event_times().map(|seen| seen.take()).unwrap_or_default()
                {
                    let known = newest.entry(partition).or_insert(us);
                    *known = us.max(*known);
                }
            }
        }
        newest
    }

    fn forget_event_times(&self) {
        for seen in self.event_times() {
            seen.take();
        }
    }

    fn event_times(&self) -> impl Iterator<Item = &Arc<EventTimes>> {
        let scans = self.branches.iter().flat_map(|branch| branch.plan.scans());
        scans.filter_map(|slots| slots.event_times())
    }

    /// Runs all plans of a query with state over `splits`, by source, and hands over nothing.
    pub(super) async fn run_with_state(
        &mut self,
        env: &Env,
        facts: &MicroBatchFacts,
        batch_time_ms: i64,
        splits: Splits,
    ) -> Result<Computed, Failure> {
        let mut computed = Computed::default();
        if let ([only], None) = (&mut self.branches[..], &self.letter_sinks) {
            computed.add(only.run_with_state(env, facts, splits).await?);
            return Ok(computed);
        }
        let (mut input, mut splits) = self.decode(env, splits).await?;
        let rejected = input.as_mut().map(Decoded::take_letters).unwrap_or_default();
        for branch in &mut self.branches {
            let splits = decoded::input(input.as_ref(), &mut splits);
            computed.add(branch.run_with_state(env, facts, splits).await?);
        }
        if let Some(letter_sinks) = &self.letter_sinks {
            let mut letters = letter_sinks.sort(rejected);
            letter_sinks.add_aside(std::mem::take(&mut computed.rejected), &mut letters);
            computed.letters = letter_sinks.rows(&letters, batch_time_ms);
            computed.sections.extend(computed.letters.iter().cloned());
        }
        Ok(computed)
    }

    /// The schemas of the sections that an entry of the state log has: what the operators of all
    /// branches are given, then the letters of decoding.
    pub(super) fn section_schemas(&self) -> Vec<SchemaRef> {
        let of_plans = self.stateful().flat_map(|plan| plan.section_schemas());
        of_plans.chain(self.letter_sinks.iter().flat_map(DeadLetterSinks::schemas)).collect()
    }

    /// Whether one of the sinks `wanted` gets rows that the state log cannot give: those of a plan
    /// without state, which follow from the input alone.
    pub(super) fn lacks_input(&self, wanted: &[usize]) -> bool {
        let mut branches = wanted.iter().filter_map(|sink| self.branches.get(*sink));
        branches.any(|branch| branch.plan.stateful().is_none())
    }

    /// Applies an entry of the state log; gives the results of the branches where a sink lacks
    /// them, and the letters.
    pub(super) async fn apply(
        &mut self,
        env: &Env,
        facts: &MicroBatchFacts,
        sections: &[Vec<u8>],
        again: Again<'_>,
    ) -> Result<Computed, Failure> {
        let (mut computed, mut rest) = (Computed::default(), sections);
        let input = match again.splits {
            Some(splits) => {
                let partitions = self.branches[0].plan.partitions();
                Some(decoded::decode(env, splits, &self.readings, partitions).await?)
            }
            None => None,
        };
        let has_checks = self.letter_sinks.as_ref().is_some_and(DeadLetterSinks::has_checks);
        for (index, branch) in self.branches.iter_mut().enumerate() {
            let is_wanted = again.wanted.contains(&index);
            let partitions = match (&mut branch.plan, &input) {
                (StreamPlan::Stateful(plan), _) => {
                    let (own, others) = rest.split_at(plan.sections().min(rest.len()));
                    rest = others;
                    let is_wanted = is_wanted || (has_checks && !again.wanted.is_empty());
                    plan.apply(env, facts, plan.changes(own)?, is_wanted).await?
                }
                (StreamPlan::Stateless(plan), Some(input)) if is_wanted => {
                    plan.run_sifting(env, input.splits()).await?.partitions
                }
                _ => Vec::new(),
            };
            computed.results.push(partitions);
        }
        // The entry's own facts have what was seen of these rows.
        self.forget_event_times();
        if let Some(letter_sinks) = self.letter_sinks.as_ref().filter(|_| !again.wanted.is_empty())
        {
            computed.letters = letter_sinks.letters_again(rest)?;
        }
        Ok(computed)
    }

    /// Hands what was computed of a query with state to the sinks.
    pub(super) async fn hand_over(
        &mut self,
        computed: Computed,
        order: Order<'_>,
    ) -> Result<PublishResult, Failure> {
        let Computed { results, mut letters, .. } = computed;
        let mut publish_result = PublishResult::new(Acknowledgement::Done);
        let is_alone = !self.are_several();
        let is_meant = |index: &usize| order.sinks.is_none_or(|sinks| sinks.contains(index));
        for (index, (branch, mut partitions)) in self.branches.iter_mut().zip(results).enumerate() {
            let mut acknowledgement = Acknowledgement::Done;
            let mut rows = 0;
            if let Some(letter_sinks) = &self.letter_sinks {
                let mut broken = letter_sinks.sort(Vec::new());
                (partitions, publish_result.constraints) =
                    letter_sinks.check(partitions, &mut broken)?;
                let broken = letter_sinks.rows(&broken, order.end_offsets.batch_time_ms);
                for (letters, broken) in letters.iter_mut().zip(broken) {
                    letters.extend(broken);
                }
            }
            if is_meant(&index) {
                let end_offsets = order.end_offsets.clone();
                let output = Output { batch_id: order.id, partitions, end_offsets };
                rows = output.rows();
                acknowledgement = branch.publish(output, index).await?;
            }
            publish_result.rows_out += rows;
            publish_result.acknowledgements.set(index, acknowledgement);
            if !is_alone {
                let (description, latency) = (branch.sink.description(), Duration::ZERO);
                publish_result.sinks.push(SinkProgress { description, rows, latency });
            }
        }
        if let Some(letter_sinks) = &mut self.letter_sinks {
            let branches = self.branches.len();
            let is_meant = |letter_sink| is_meant(&(branches + letter_sink));
            let of_batch = (order.id, &order.end_offsets);
            // The state log has what an intent would give.
            let intent = &mut None;
            let published = letter_sinks.publish_rows(letters, of_batch, intent, is_meant);
            publish_result.add_letters(published.await?);
        }
        Ok(publish_result)
    }

    /// Runs the plans over `splits`, by source, and hands the results to the sinks.
    ///
    /// Errors: what a split could not read, a plan could not compute or a sink could not take. The
    /// sinks before have the micro-batch then, as after a crash at that moment.
    pub(super) async fn publish(
        &mut self,
        env: &Env,
        splits: Splits,
        order: Order<'_>,
    ) -> Result<PublishResult, Failure> {
        match &mut self.branches[..] {
            [only] if self.letter_sinks.is_none() => only.publish_alone(env, splits, order).await,
            _ => self.publish_to_several(env, splits, order).await,
        }
    }

    async fn publish_to_several(
        &mut self,
        env: &Env,
        splits: Splits,
        mut order: Order<'_>,
    ) -> Result<PublishResult, Failure> {
        let (mut input, mut splits) = self.decode(env, splits).await?;
        let mut publish_result = PublishResult::new(Acknowledgement::Done);
        let rejected = input.as_mut().map(Decoded::take_letters).unwrap_or_default();
        let mut letters =
            self.letter_sinks.as_ref().map(|letter_sinks| letter_sinks.sort(rejected));
        let mut ran = None;
        if self.letter_sinks.as_ref().is_some_and(DeadLetterSinks::puts_aside) {
            let all =
                dead_letter_run::run_all(&mut self.branches, env, input.as_ref(), &mut splits)
                    .await?;
            let letter_sinks = self.letter_sinks.as_ref().zip(letters.as_mut());
            ran = letter_sinks.map(|(sinks, letters)| sinks.put_aside(all, letters));
        }
        let sinks = order.sinks;
        let is_meant = |index: &usize| sinks.is_none_or(|sinks| sinks.contains(index));
        for (index, branch) in self.branches.iter_mut().enumerate() {
            let description = branch.sink.description();
            let (rows, latency) = (0, Duration::ZERO);
            let mut progress = SinkProgress { description, rows, latency };
            let mut acknowledgement = Acknowledgement::Done;
            let has_checks = self.letter_sinks.as_ref().is_some_and(DeadLetterSinks::has_checks);
            let mut partitions = Vec::new();
            if let Some(ran) = &mut ran {
                partitions = ran.take(index);
            } else if is_meant(&index) || has_checks {
                let splits = decoded::input(input.as_ref(), &mut splits);
                partitions = branch.run_sifting(env, splits).await?.partitions;
            }
            if let (Some(letter_sinks), Some(letters)) = (&self.letter_sinks, &mut letters) {
                (partitions, publish_result.constraints) =
                    letter_sinks.check(partitions, letters)?;
            }
            if is_meant(&index) {
                // That the letters' sink needs it is no reason for others to wait.
                let needs_none = |letter_sinks: &DeadLetterSinks| !letter_sinks.choose_rows();
                match self.letter_sinks.as_ref().is_some_and(needs_none) {
                    true => logged_for(branch.sink.delivery(), &mut order.intent).await?,
                    false => logged(order.intent.take()).await?,
                }
                let end_offsets = order.end_offsets.clone();
                let output = Output { batch_id: order.id, partitions, end_offsets };
                progress.rows = output.rows();
                acknowledgement = branch.publish(output, index).await?;
            }
            publish_result.rows_out += progress.rows;
            publish_result.sinks.push(progress);
            publish_result.acknowledgements.set(index, acknowledgement);
        }
        if let (Some(letter_sinks), Some(letters)) = (&mut self.letter_sinks, letters) {
            let (branches, intent) = (self.branches.len(), &mut order.intent);
            let is_meant = |letter_sink| is_meant(&(branches + letter_sink));
            let published =
                letter_sinks.publish(letters, (order.id, &order.end_offsets), intent, is_meant);
            publish_result.add_letters(published.await?);
        }
        Ok(publish_result)
    }

    /// Has every sink publish what it holds back.
    pub(super) async fn flush(&mut self) {
        for sink in self.sinks_mut() {
            sink.flush().await;
        }
    }

    /// Closes every sink; gives the first failure.
    pub(super) async fn close(&mut self) -> Result<(), Failure> {
        let mut outcome = Ok(());
        for sink in self.sinks_mut() {
            let closed = sink.close().await;
            outcome = outcome.and(closed);
        }
        outcome
    }
}

impl Branch {
    /// Hands `output` to the sink, which is the query's `index`th.
    async fn publish(&mut self, output: Output, index: usize) -> Result<Acknowledgement, Failure> {
        let published = self.sink.publish(output).await;
        published.map_err(|failure| RefusedRow::of_sink(failure, index))
    }

    async fn publish_alone(
        &mut self,
        env: &Env,
        splits: Splits,
        order: Order<'_>,
    ) -> Result<PublishResult, Failure> {
        let partitions = self.run_sifting(env, splits).await?.partitions;
        let output = Output { batch_id: order.id, partitions, end_offsets: order.end_offsets };
        let rows_out = output.rows();
        logged(order.intent).await?;
        let acknowledgement = self.sink.publish(output).await?;
        Ok(PublishResult { rows_out, ..PublishResult::new(acknowledgement) })
    }
}

async fn logged(intent: Option<Ticket>) -> Result<(), Failure> {
    if let Some(ticket) = intent {
        ticket.written().await?;
    }
    Ok(())
}

//! Where a query's rows go: a plan and a sink for each of its branches.
//!
//! Most queries have one branch, and then this adds nothing: the splits go into its plan, the
//! result into its sink. Where several branches read the same sources, each split is decoded once,
//! with the columns that any of the plans asks for ([`decoded`]). Then one branch after the other
//! runs its plan and hands the result to its sink, all under the number of the micro-batch. So the
//! first branch's rows are on their way before the second one computes, and a micro-batch is
//! acknowledged when every sink has acknowledged it.
//!
//! Rows that are rejected on the way have sinks of their own
//! ([`side_outputs`](super::side_outputs)). There is one list of all sinks
//! ([`outputs`](super::outputs)), and one loop over it: each gets the result of its branch, or what
//! was rejected for its side output up to then.

use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use millstream_store::env::Env;

use super::branch::{self, Branch, Splits};
use super::dead_letter_sinks::DeadLetterSinks;
use super::dead_letter_tables::RecordedTable;
use super::decoded::{self, Decoded, Reading};
use super::outputs::{Order, Outputs, Partitions, RowsOf};
use super::publish_result::PublishResult;
use super::results::Results;
use super::run_all;
use super::side_outputs::SideOutputs;
use super::start::Start;
use super::stateful_output::Computed;
use crate::api::progress::SinkProgress;
use crate::api::sink::{Acknowledgement, Delivery, Ending, Output, Published, Sink};
use crate::api::source::Failure;
use crate::failures::from_datafusion;
use crate::plan::{StatefulPlan, StreamPlan};
use crate::state::event_times::{EventTimes, NewestTimes};
use crate::state::micro_batch::MicroBatchFacts;

/// All branches of a query, in the order of the file.
pub struct Branches {
    /// By branch, its plan.
    pub(super) plans: Vec<StreamPlan>,
    /// All sinks: those of the branches, then those of the side outputs.
    outputs: Outputs,
    /// Which rows are rejected, and for which sinks.
    pub(super) side_outputs: SideOutputs,
    /// By source, what any plan reads; empty where there is one plan, and nothing is rejected.
    readings: Vec<Reading>,
    /// How a query without a micro-batch may begin.
    pub(super) start: Start,
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
    /// The branches of one query, whose plans read the same sources in the same order.
    pub fn new(branches: Vec<Branch>) -> Self {
        assert!(!branches.is_empty(), "a query has at least one branch");
        let split = |Branch { plan, sink }| (plan, sink);
        let (plans, sinks): (Vec<_>, Vec<_>) = branches.into_iter().map(split).unzip();
        let outputs = Outputs::from_branches(sinks);
        let (side_outputs, readings, start) =
            (SideOutputs::default(), Vec::new(), Start::default());
        let mut all = Self { plans, outputs, side_outputs, readings, start };
        all.find_columns();
        all
    }

    /// The same, for a query that begins as `start` says.
    pub fn beginning(mut self, start: Start) -> Self {
        self.start = start;
        self
    }

    /// The same, with side outputs.
    pub fn with_dead_letters(mut self, sinks: DeadLetterSinks) -> Self {
        let DeadLetterSinks { side_outputs, outputs } = sinks;
        self.outputs.append(outputs);
        self.side_outputs = side_outputs;
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
        self.outputs = Outputs::from_branches([sink]);
        self
    }

    fn find_columns(&mut self) {
        if self.plans.len() > 1 {
            // Each has filters of its own, and they share the watermark.
            for seen in self.event_times() {
                seen.follow(None);
            }
        }
        if self.decodes_once() {
            let mut columns =
                decoded::columns_of_any(self.plans.iter().map(StreamPlan::columns_read));
            self.side_outputs.widen(&mut columns);
            let takes_malformed = self.side_outputs.takes_malformed().iter().copied();
            let takes_malformed = takes_malformed.chain(std::iter::repeat(false));
            let sources = columns.into_iter().zip(takes_malformed).enumerate();
            let readings = sources.map(|(source, (columns, apart))| Reading {
                columns,
                watched: self.watched(source),
                apart,
            });
            self.readings = readings.collect();
        }
    }

    /// Whether there is more than one plan and its sink.
    fn are_several(&self) -> bool {
        self.plans.len() > 1 || !self.side_outputs.is_empty()
    }

    /// Whether splits are decoded before any plan runs: for several plans, or because decoding
    /// rejects records.
    pub(super) fn decodes_once(&self) -> bool {
        self.plans.len() > 1 || self.side_outputs.take_malformed_records()
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
        let partitions = self.plans[0].partitions();
        let decoded = decoded::decode(env, splits, &self.readings, partitions).await?;
        Ok((Some(decoded), Splits::new()))
    }

    /// Where the event times of a source are seen, by the first plan that asks for them.
    fn watched(&self, source: usize) -> Option<Arc<EventTimes>> {
        let slots = self.plans.iter().filter_map(|plan| plan.scans().get(source));
        slots.filter_map(|slots| slots.event_times()).next().map(Arc::clone)
    }

    pub(super) fn sinks(&self) -> impl Iterator<Item = &dyn Sink> {
        self.outputs.sinks()
    }

    pub(super) fn sinks_mut(&mut self) -> impl Iterator<Item = &mut Box<dyn Sink>> {
        self.outputs.sinks_mut()
    }

    /// What the sinks are, for progress and messages.
    pub(super) fn description(&self) -> String {
        match self.outputs.len() {
            1 => self.outputs.description(0),
            _ => self.sinks().map(|sink| sink.description()).collect::<Vec<_>>().join(", "),
        }
    }

    /// The dead-letter tables, as the checkpoint knows them.
    pub(super) fn dead_letter_tables(&self) -> Vec<RecordedTable> {
        self.side_outputs.recorded_tables()
    }

    /// What all sinks together need. Settled once they are open.
    pub(super) fn delivery(&self) -> Delivery {
        self.outputs.delivery()
    }

    /// How many micro-batches may be under way.
    pub(super) fn micro_batches_in_flight_max(&self) -> usize {
        self.outputs.micro_batches_in_flight_max()
    }

    /// Opens every sink; gives what each has published last.
    pub(super) async fn open(&mut self) -> Result<Vec<Option<Published>>, Failure> {
        self.outputs.open().await
    }

    /// Completes when another micro-batch is worth taking; `is_crowded` where more than half of
    /// those that may be under way are.
    pub(super) async fn ready(&mut self, is_crowded: bool) -> Result<(), Failure> {
        self.outputs.ready(is_crowded).await
    }

    /// Plans again, with what the static tables hold now.
    pub(super) async fn replan(&mut self) -> Result<(), Failure> {
        for plan in &mut self.plans {
            plan.replan().await.map_err(from_datafusion)?;
        }
        self.find_columns();
        Ok(())
    }

    /// The plans that have state, in order.
    pub(super) fn stateful(&self) -> impl Iterator<Item = &StatefulPlan> {
        self.plans.iter().filter_map(StreamPlan::stateful)
    }

    /// By source, the newest event times among the rows read since the last call.
    pub(super) fn take_newest(&self, sources: usize) -> Vec<NewestTimes> {
        let mut newest = vec![NewestTimes::default(); sources];
        for plan in &self.plans {
            for (newest, slots) in newest.iter_mut().zip(plan.scans()) {
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
        let scans = self.plans.iter().flat_map(|plan| plan.scans());
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
        if !self.are_several() {
            computed.add(branch::run_with_state(&mut self.plans[0], env, facts, splits).await?);
            return Ok(computed);
        }
        let (mut input, mut splits) = self.decode(env, splits).await?;
        let malformed = input.as_mut().map(Decoded::take_letters).unwrap_or_default();
        for plan in &mut self.plans {
            let splits = decoded::input(input.as_ref(), &mut splits);
            computed.add(branch::run_with_state(plan, env, facts, splits).await?);
        }
        let mut rejected = self.side_outputs.nothing();
        self.side_outputs.add_malformed(malformed, &mut rejected);
        self.side_outputs.add_failing(std::mem::take(&mut computed.rejected), &mut rejected);
        let rejected = rejected.into_iter().enumerate();
        let rows =
            rejected.map(|(at, rejected)| self.side_outputs.rows(at, rejected, batch_time_ms));
        computed.side_outputs = rows.collect();
        computed.sections.extend(computed.side_outputs.iter().cloned());
        Ok(computed)
    }

    /// The schemas of the sections that an entry of the state log has: what the operators of all
    /// branches are given, then the rows of the side outputs.
    pub(super) fn section_schemas(&self) -> Vec<SchemaRef> {
        let of_plans = self.stateful().flat_map(|plan| plan.section_schemas());
        of_plans.chain(self.side_outputs.schemas()).collect()
    }

    /// Whether one of the sinks `wanted` gets rows that the state log cannot give: those of a plan
    /// without state, which follow from the input alone.
    pub(super) fn lacks_input(&self, wanted: &[usize]) -> bool {
        let mut plans = wanted.iter().filter_map(|sink| self.plans.get(*sink));
        plans.any(|plan| plan.stateful().is_none())
    }

    /// Applies an entry of the state log; gives the results of the branches where a sink lacks
    /// them, and the rows of the side outputs.
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
                let partitions = self.plans[0].partitions();
                Some(decoded::decode(env, splits, &self.readings, partitions).await?)
            }
            None => None,
        };
        let has_checks = self.side_outputs.checks().is_some();
        for (index, plan) in self.plans.iter_mut().enumerate() {
            let is_wanted = again.wanted.contains(&index);
            let partitions = match (plan, &input) {
                (StreamPlan::Stateful(plan), _) => {
                    let (own, others) = rest.split_at(plan.sections().min(rest.len()));
                    rest = others;
                    let is_wanted = is_wanted || (has_checks && !again.wanted.is_empty());
                    plan.apply(env, facts, plan.changes(own)?, is_wanted).await?
                }
                (StreamPlan::Stateless(plan), Some(input)) if is_wanted => {
                    plan.run_rejecting(env, input.splits()).await?.partitions
                }
                _ => Vec::new(),
            };
            computed.results.push(partitions);
        }
        // The entry's own facts have what was seen of these rows.
        self.forget_event_times();
        if !again.wanted.is_empty() {
            computed.side_outputs = self.side_outputs.rows_again(rest)?;
        }
        Ok(computed)
    }

    /// The sinks that remember no numbers, ascending.
    pub(super) fn at_least_once(&self) -> Vec<usize> {
        self.outputs.at_least_once()
    }

    /// Hands what was computed of a query with state to the sinks.
    pub(super) async fn hand_over(
        &mut self,
        env: &Env,
        computed: Computed,
        order: Order<'_>,
    ) -> Result<PublishResult, Failure> {
        self.publish_results(env, Results::from_state(computed), order).await
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
        if !self.are_several() {
            return self.publish_alone(env, splits, order).await;
        }
        let results = self.begin(env, splits).await?;
        self.publish_results(env, results, order).await
    }

    /// As [`Self::publish`] for one branch, of whose rows none are rejected: nothing is gathered,
    /// copied or described.
    async fn publish_alone(
        &mut self,
        env: &Env,
        splits: Splits,
        order: Order<'_>,
    ) -> Result<PublishResult, Failure> {
        let partitions = branch::run(&mut self.plans[0], env, splits).await?.partitions;
        let output = Output { batch_id: order.id, partitions, end_offsets: order.end_offsets };
        let rows_out = output.rows();
        if let Some(intent) = order.intent {
            intent.written().await?;
        }
        let acknowledgement = self.outputs.first_mut().publish(output).await?;
        Ok(PublishResult::from_one(rows_out, acknowledgement))
    }

    /// Decodes `splits` where that is done for all plans, and runs the plans where that has to be
    /// done before anything is published.
    async fn begin(&mut self, env: &Env, splits: Splits) -> Result<Results, Failure> {
        let (mut input, mut splits) = self.decode(env, splits).await?;
        let mut rejected = self.side_outputs.nothing();
        let malformed = input.as_mut().map(Decoded::take_letters).unwrap_or_default();
        self.side_outputs.add_malformed(malformed, &mut rejected);
        let mut branches = vec![None; self.plans.len()];
        if self.side_outputs.take_failing_records() {
            let ran = run_all::run_all(&mut self.plans, env, input.as_ref(), &mut splits).await?;
            self.side_outputs.add_failing(ran.rejected, &mut rejected);
            branches = ran.results.into_iter().map(Some).collect();
        }
        Ok(Results { input, splits, branches, rejected, constraints: Vec::new() })
    }

    /// Hands each sink its rows, one after the other, so that the first branch's are on their way
    /// before the second one computes.
    async fn publish_results(
        &mut self,
        env: &Env,
        mut results: Results,
        mut order: Order<'_>,
    ) -> Result<PublishResult, Failure> {
        let are_several = self.are_several();
        let mut publish_result = PublishResult::from_one(0, Acknowledgement::Done);
        for index in 0..self.outputs.len() {
            let is_meant = order.is_for(index);
            let (mut rows, mut acknowledgement) = (0, Acknowledgement::Done);
            if let Some(partitions) = self.rows(env, index, is_meant, &order, &mut results).await? {
                rows = partitions.iter().flatten().map(|rows| rows.num_rows() as u64).sum();
                acknowledgement = self.outputs.publish(index, partitions, &mut order).await?;
            }
            if matches!(self.outputs.rows_of(index), RowsOf::Branch(_)) {
                publish_result.rows_out += rows;
            }
            publish_result.acknowledgements.set(index, acknowledgement);
            if are_several {
                let (description, latency) = (self.outputs.description(index), Duration::ZERO);
                publish_result.sinks.push(SinkProgress { description, rows, latency });
            }
        }
        publish_result.constraints = results.constraints;
        Ok(publish_result)
    }

    /// The rows of the sink number `index`; `None` where it gets no micro-batch. A branch runs now
    /// if it has not before.
    async fn rows(
        &mut self,
        env: &Env,
        index: usize,
        is_meant: bool,
        order: &Order<'_>,
        results: &mut Results,
    ) -> Result<Option<Partitions>, Failure> {
        let branch = match self.outputs.rows_of(index) {
            RowsOf::Branch(branch) => branch,
            RowsOf::SideOutput(at) => {
                let rejected = results.rejected.get_mut(at).map(std::mem::take);
                let batch_time_ms = order.end_offsets.batch_time_ms;
                let rows = self.side_outputs.rows(at, rejected.unwrap_or_default(), batch_time_ms);
                return Ok((is_meant && !rows.is_empty()).then(|| vec![rows]));
            }
        };
        let partitions = match results.branches[branch].take() {
            Some(partitions) => partitions,
            // Rows that its own sink has may be missing in a side output.
            None if is_meant || self.side_outputs.checks().is_some() => {
                let splits = decoded::input(results.input.as_ref(), &mut results.splits);
                branch::run(&mut self.plans[branch], env, splits).await?.partitions
            }
            None => return Ok(None),
        };
        let (partitions, constraints) =
            self.side_outputs.check(partitions, &mut results.rejected)?;
        results.constraints.extend(constraints);
        Ok(is_meant.then_some(partitions))
    }

    /// Has every sink publish what it holds back.
    pub(super) async fn flush(&mut self) {
        self.outputs.flush().await;
    }

    /// Tells every sink that nothing is published any more.
    pub(super) async fn end(&mut self, ending: Ending) {
        self.outputs.end(ending).await;
    }

    /// Closes every sink; gives the first failure.
    pub(super) async fn close(&mut self) -> Result<(), Failure> {
        self.outputs.close().await
    }
}

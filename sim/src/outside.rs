//! The model sinks, and the outside that each publishes to.
//!
//! The outside checks each micro-batch as it comes: a sink that is exactly-once has every row once
//! and in order, at every moment and so after any crash.

use std::collections::BTreeMap;
use std::time::Duration;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use async_trait::async_trait;
use futures::FutureExt;
use millstream_engine::api::sink::{
    Acknowledgement, BatchId, Classified, Delivery, EndOffsets, Failure, Kind, Output, Published,
    Sink,
};
use thiserror::Error;

use crate::checks::positions;
use crate::flaw::Flaw;
use crate::mutation::Mutation;
use crate::process::Process;
use crate::query::{Records, Rows};
use crate::scenario::{OutputTraits, SinkTraits};
use crate::topic::SOURCE_STEP;
use crate::world::{State, Way, or_never};

/// How long a process waits for an acknowledgement that was lost.
const PATIENCE: Duration = Duration::from_secs(1);

/// What is behind one sink.
pub struct Outside {
    /// What it gets.
    pub rows: Rows,
    records: Records,
    traits: SinkTraits,
    /// By source: which rows.
    got: Vec<Vec<bool>>,
    /// By source: every row below that is kept is there.
    pub complete_to: Vec<u64>,
    /// Micro-batches by number, where the sink knows numbers.
    by_id: BTreeMap<u64, (EndOffsets, Vec<i64>)>,
    epoch: u64,
}

/// A micro-batch on its way.
struct Parcel {
    from: usize,
    sink: usize,
    id: u64,
    rows: Vec<i64>,
    end_offsets: EndOffsets,
    fate: Fate,
}

/// Why a micro-batch is not acknowledged.
#[derive(Debug, Error)]
enum Refusal {
    #[error("one before was not published")]
    AfterAnother,
    #[error("refused")]
    Refused,
    #[error("another writer has taken over")]
    TakenOver,
    #[error("no answer")]
    NoAnswer,
}

impl Classified for Refusal {
    fn kind(&self) -> Kind {
        match self {
            Self::AfterAnother | Self::Refused | Self::NoAnswer => Kind::Retry,
            Self::TakenOver => Kind::Fenced,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Answered,
    Refused,
    /// Published, and the answer is lost.
    Unanswered,
}

impl Outside {
    /// The outside of a sink, without anything yet of `total` records of each source.
    pub fn new(output: &OutputTraits, records: Records, sources: usize, total: u64) -> Self {
        let total = output.rows.total(records, total);
        let mut outside = Self {
            rows: output.rows,
            records,
            traits: output.sink.clone(),
            got: vec![vec![false; total as usize]; sources],
            complete_to: vec![0; sources],
            by_id: BTreeMap::new(),
            epoch: 0,
        };
        (0..sources).for_each(|source| outside.skip(source));
        outside
    }

    /// What the sink promises.
    pub fn delivery(&self) -> Delivery {
        self.traits.delivery
    }

    /// Whether everything is there.
    pub fn is_complete(&self) -> bool {
        self.got.iter().zip(&self.complete_to).all(|(got, to)| *to >= got.len() as u64)
    }

    /// Whether every row is there that a micro-batch up to `ends` publishes.
    pub fn has(&self, ends: &[u64]) -> bool {
        let mut complete = self.complete_to.iter().zip(ends);
        !self.rows.follow_input() || complete.all(|(complete, end)| complete >= end)
    }

    /// Where micro-batch `id` ended, if it is there.
    pub fn ends_of(&self, id: u64) -> Option<&EndOffsets> {
        self.by_id.get(&id).map(|(end_offsets, _)| end_offsets)
    }

    /// Takes note of a row. False if there is no such row.
    fn add(&mut self, source: usize, row: u64) -> bool {
        let Some(got) = self.got[source].get_mut(row as usize) else { return false };
        *got = true;
        self.skip(source);
        true
    }

    /// Moves on over rows that are there, and those that are not published.
    fn skip(&mut self, source: usize) {
        let (got, to) = (&self.got[source], &mut self.complete_to[source]);
        let (rows, records) = (self.rows, self.records);
        while got.get(*to as usize).is_some_and(|got| *got || !rows.keeps(records, *to)) {
            *to += 1;
        }
    }

    fn last(&self) -> Option<(u64, &EndOffsets)> {
        self.by_id.last_key_value().map(|(id, (end_offsets, _))| (*id, end_offsets))
    }
}

impl State {
    /// A micro-batch arrives outside.
    fn arrives(&mut self, parcel: Parcel) -> Result<i64, Failure> {
        let (from, sink, id) = (parcel.from, parcel.sink, parcel.id);
        let (delivery, epoch) = (self.outsides[sink].delivery(), self.outsides[sink].epoch);
        let facts = &mut self.processes[from].sinks[sink];
        if delivery != Delivery::AtLeastOnce && facts.has_failed {
            return Err(Refusal::AfterAnother.into());
        }
        if parcel.fate == Fate::Refused {
            facts.has_failed = true;
            self.note(Some(from), format_args!("sink {sink} refuses micro-batch {id}"));
            return Err(Refusal::Refused.into());
        }
        let is_old = facts.epoch < epoch;
        if delivery == Delivery::Transactional && is_old && !self.has(Flaw::FencesNobody) {
            self.note(
                Some(from),
                format_args!("micro-batch {id} is of a writer of sink {sink} that was replaced"),
            );
            return Err(Refusal::TakenOver.into());
        }
        let unanswered = parcel.fate == Fate::Unanswered;
        self.publish(parcel);
        if unanswered {
            self.processes[from].sinks[sink].has_failed = true;
            return Err(Refusal::NoAnswer.into());
        }
        Ok(self.wall_us())
    }

    fn publish(&mut self, parcel: Parcel) {
        let Parcel { from, sink, id, rows, end_offsets, .. } = parcel;
        let (outside, delivery) = (&self.outsides[sink], self.outsides[sink].delivery());
        if delivery == Delivery::Idempotent
            && let Some((last, _)) = outside.last()
            && id <= last
        {
            let known = outside.by_id.get(&id);
            // One without rows may not have been given to it the first time.
            let is_same = match known {
                Some(known) => *known == (end_offsets, rows),
                None => rows.is_empty(),
            };
            self.note(Some(from), format_args!("sink {sink} has micro-batch {id}"));
            if !is_same && !self.objects.ever.is_given_again(id) {
                self.violated(format!("micro-batch {id} is repeated with other rows"));
            }
            return;
        }
        let count = rows.len();
        self.note(Some(from), format_args!("sink {sink} publishes {id}, {count} rows"));
        for value in &rows {
            let (source, value) = (value / SOURCE_STEP, value % SOURCE_STEP);
            self.check_row(from, sink, source as usize, value as u64);
        }
        if delivery == Delivery::AtLeastOnce {
            return;
        }
        if self.outsides[sink].last().is_some_and(|(last, _)| last >= id) {
            self.violated(format!("micro-batch {id} comes to sink {sink} after a higher one"));
        }
        if !self.outsides[sink].has(&positions(&end_offsets.ends)) {
            let text = format!("micro-batch {id} of sink {sink} does not reach as far as it says");
            self.violated(text);
        }
        self.outsides[sink].by_id.insert(id, (end_offsets, rows));
    }

    fn check_row(&mut self, from: usize, sink: usize, source: usize, value: u64) {
        let outside = &self.outsides[sink];
        let Some(row) = outside.rows.number(outside.records, value) else {
            return self.violated(format!("sink {sink} gets {value}, which no rows give"));
        };
        let once = outside.delivery() != Delivery::AtLeastOnce;
        let expected = outside.complete_to[source];
        if once && row != expected {
            let text = format!(
                "row {row} of source {source} comes to sink {sink}, where {expected} is next"
            );
            self.violated(text);
        }
        let published = &mut self.processes[from].sinks[sink].published[source];
        let last = std::mem::replace(published, row as i64);
        if last >= row as i64 && !self.is_muddled() {
            self.violated(format!(
                "row {row} of source {source} comes to sink {sink} after {last}"
            ));
        }
        if !self.outsides[sink].add(source, row) {
            self.violated(format!("source {source} has no row {row}"));
        }
    }

    /// Sends a micro-batch off; gives its acknowledgement.
    fn dispatch(&mut self, parcel: Parcel) -> Acknowledgement {
        let traits = self.outsides[parcel.sink].traits.clone();
        let (from, sink) = (parcel.from, parcel.sink);
        let acknowledges_early = self.has(Flaw::AcknowledgesEarly)
            || self.is_mutated(Mutation::CommitsBeforeAcknowledged)
            || sink > 0 && self.is_mutated(Mutation::CommitsAfterTheFirstSink);
        let takes_failures = self.is_mutated(Mutation::TakesFailureForSuccess);
        let now_us = self.wall_us();
        if traits.at_once && !acknowledges_early {
            return match self.arrives(parcel) {
                Ok(_) => Acknowledgement::Done,
                Err(_) if takes_failures => Acknowledgement::Done,
                Err(failure) => Acknowledgement::Later(async { Err(failure) }.boxed()),
            };
        }
        let limit = if self.calm { Duration::ZERO } else { Duration::MAX };
        let there = self.chance.up_to(traits.there.min(limit));
        let back = self.chance.up_to(traits.back.min(limit));
        let back = if parcel.fate == Fate::Unanswered { PATIENCE } else { back };
        let mut moment = self.now + there;
        if !self.has(Flaw::PublishesOutOfOrder) {
            let busy_until = &mut self.processes[from].sinks[sink].busy_until;
            moment = moment.max(*busy_until);
            *busy_until = moment;
        }
        let answered =
            self.send(from, Way::Sink(sink), moment, back, move |state| state.arrives(parcel));
        if acknowledges_early {
            return Acknowledgement::Later(async move { Ok(now_us) }.boxed());
        }
        let taken = move |answer: Result<i64, Failure>| match answer {
            Err(_) if takes_failures => Ok(now_us),
            answer => answer,
        };
        Acknowledgement::Later(or_never(answered).map(taken).boxed())
    }

    /// The number that a micro-batch is given to a sink under; `None` if it is not.
    fn mutated_number(&mut self, from: usize, sink: usize, id: u64) -> Option<u64> {
        let before = self.processes[..from].iter();
        let highest = before.filter_map(|process| process.sinks[sink].handed_over).max();
        let is_repeated = Some(id) <= highest;
        let is_of_letters = self.outsides[sink].rows == Rows::Letters;
        if is_repeated && is_of_letters && self.is_mutated(Mutation::RepeatsNoLetters) {
            return None;
        }
        let renumbers = self.is_mutated(Mutation::RenumbersReplays);
        let renumbered_by = &mut self.processes[from].sinks[sink].renumbered_by;
        if renumbers && is_repeated {
            *renumbered_by = (*renumbered_by).max(highest.map_or(0, |highest| highest + 1 - id));
        }
        Some(id + *renumbered_by)
    }

    fn draw_parcel_fate(&mut self, sink: usize) -> Fate {
        let SinkTraits { refused, unanswered, .. } = self.outsides[sink].traits;
        let fate = if self.calm {
            Fate::Answered
        } else if self.chance.percent(refused) {
            Fate::Refused
        } else if self.chance.percent(unanswered) {
            Fate::Unanswered
        } else {
            Fate::Answered
        };
        self.faulty |= fate != Fate::Answered;
        fate
    }

    /// A new writer: the older ones are replaced.
    fn writer_opens(&mut self, from: usize, sink: usize) -> Option<Published> {
        let outside = &mut self.outsides[sink];
        outside.epoch += 1;
        self.processes[from].sinks[sink].epoch = outside.epoch;
        let last = outside.last().map(|(id, end_offsets)| (BatchId(id), end_offsets.clone()));
        let published = match (outside.delivery(), last) {
            (Delivery::AtLeastOnce, _) | (_, None) => None,
            (Delivery::Idempotent, Some((batch_id, _))) => {
                Some(Published { batch_id, end_offsets: None })
            }
            (Delivery::Transactional, Some((batch_id, end_offsets))) => {
                Some(Published { batch_id, end_offsets: Some(end_offsets) })
            }
        };
        let shown = published.as_ref().map(|published| published.batch_id.0);
        self.note(Some(from), format_args!("sink {sink} says that {shown:?} is published"));
        let is_unheard = self.has(Flaw::AnswerUnheard) || self.is_mutated(Mutation::AsksNoSink);
        if is_unheard { None } else { published }
    }
}

/// A sink of one process.
pub struct ModelSink {
    process: Process,
    sink: usize,
    delivery: Delivery,
}

impl ModelSink {
    /// Sink number `sink` of `process`.
    pub fn new(process: &Process, sink: usize) -> Self {
        let delivery = process.with(|state| state.outsides[sink].delivery());
        Self { process: process.clone(), sink, delivery }
    }

    /// Its buffers are full now and then.
    async fn while_full(&self) {
        let sink = self.sink;
        let wait = self.process.with(|state| {
            let full = !state.calm && state.chance.percent(10);
            let there = state.outsides[sink].traits.there;
            if full { state.chance.up_to(there) } else { Duration::ZERO }
        });
        self.process.sleep(wait).await;
    }
}

/// The numbers in the first column.
fn numbers(rows: &RecordBatch) -> Vec<i64> {
    rows.column(0).as_primitive::<Int64Type>().values().to_vec()
}

#[async_trait]
impl Sink for ModelSink {
    fn description(&self) -> String {
        "Model".to_owned()
    }

    fn delivery(&self) -> Delivery {
        self.delivery
    }

    async fn open(&mut self) -> Result<Option<Published>, Failure> {
        let (id, sink) = (self.process.id, self.sink);
        self.process.step(format!("opens sink {sink}")).await;
        let way = self.process.with(|state| state.outsides[sink].traits.there);
        let there = self.process.with(|state| state.chance.up_to(way));
        let opens = move |state: &mut State| state.writer_opens(id, sink);
        Ok(self.process.send(Way::Sink(sink), there, there, opens).await)
    }

    async fn ready(&mut self) -> Result<(), Failure> {
        self.while_full().await;
        Ok(())
    }

    async fn publish(&mut self, output: Output) -> Result<Acknowledgement, Failure> {
        let (from, sink) = (self.process.id, self.sink);
        let given = self.process.with(|state| state.mutated_number(from, sink, output.batch_id.0));
        let Some(id) = given else { return Ok(Acknowledgement::Done) };
        let mut rows: Vec<i64> = output.record_batches().flat_map(numbers).collect();
        // Operators with state give the rows of a micro-batch in any order.
        rows.sort_unstable();
        let end_offsets = output.end_offsets;
        let ends = positions(&end_offsets.ends);
        let count = rows.len();
        self.process.step(format!("gives sink {sink} {id}, {count} rows up to {ends:?}")).await;
        self.process.with(|state| state.check_handed_over(from, sink, id, &end_offsets));
        self.while_full().await;
        Ok(self.process.with(|state| {
            let skips_empty = state.outsides[sink].traits.skips_empty;
            if self.delivery == Delivery::Transactional && skips_empty && rows.is_empty() {
                return Acknowledgement::Done;
            }
            let fate = state.draw_parcel_fate(sink);
            state.dispatch(Parcel { from, sink, id, rows, end_offsets, fate })
        }))
    }

    async fn close(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

//! The model sink, and the outside that it publishes to.
//!
//! The outside checks each micro-batch as it comes: a sink that is exactly-once has every row once
//! and in order, at every moment and so after any crash.

use std::collections::BTreeMap;
use std::time::Duration;

use arrow::array::AsArray;
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
use crate::process::Process;
use crate::topic::SOURCE_STEP;
use crate::world::{State, Way, or_never};

/// The query keeps the rows that this is true for.
pub fn is_kept(row: u64) -> bool {
    row % 10 != 9
}

/// How long a process waits for an acknowledgement that was lost.
const PATIENCE: Duration = Duration::from_secs(1);

/// What the outside has.
pub struct Outside {
    /// By source: which rows.
    got: Vec<Vec<bool>>,
    /// By source: every row below that is kept is there.
    pub complete_to: Vec<u64>,
    /// Micro-batches by number, where the sink knows numbers.
    by_id: BTreeMap<u64, (EndOffsets, Vec<i64>)>,
    /// How many micro-batches were published.
    pub published: u64,
    epoch: u64,
}

/// A micro-batch on its way.
struct Parcel {
    from: usize,
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
    /// An outside that has nothing of `rows` rows of each source.
    pub fn new(sources: usize, rows: u64) -> Self {
        Self {
            got: vec![vec![false; rows as usize]; sources],
            complete_to: vec![0; sources],
            by_id: BTreeMap::new(),
            published: 0,
            epoch: 0,
        }
    }

    /// Takes note of a row. False if there is no such row.
    fn add(&mut self, source: usize, row: u64) -> bool {
        let Some(got) = self.got[source].get_mut(row as usize) else { return false };
        *got = true;
        self.skip(source);
        true
    }

    /// Moves on over rows that are there, and those that the query drops.
    fn skip(&mut self, source: usize) {
        let (got, to) = (&self.got[source], &mut self.complete_to[source]);
        while got.get(*to as usize).is_some_and(|got| *got || !is_kept(*to)) {
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
        let (from, id, delivery) = (parcel.from, parcel.id, self.scenario.delivery);
        if delivery != Delivery::AtLeastOnce && self.processes[from].sink_failed {
            return Err(Refusal::AfterAnother.into());
        }
        if parcel.fate == Fate::Refused {
            self.note(Some(from), format_args!("micro-batch {id} is refused"));
            self.processes[from].sink_failed = true;
            return Err(Refusal::Refused.into());
        }
        let is_old = self.processes[from].epoch < self.outside.epoch;
        if delivery == Delivery::Transactional && is_old && self.flaw != Some(Flaw::FencesNobody) {
            self.note(
                Some(from),
                format_args!("micro-batch {id} is of a writer that was replaced"),
            );
            return Err(Refusal::TakenOver.into());
        }
        let unanswered = parcel.fate == Fate::Unanswered;
        self.publish(parcel);
        if unanswered {
            self.processes[from].sink_failed = true;
            return Err(Refusal::NoAnswer.into());
        }
        Ok(self.wall_us())
    }

    fn publish(&mut self, parcel: Parcel) {
        let Parcel { from, id, rows, end_offsets, .. } = parcel;
        if self.scenario.delivery == Delivery::Idempotent
            && let Some((last, _)) = self.outside.last()
            && id <= last
        {
            self.note(Some(from), format_args!("micro-batch {id} was published before"));
            let is_same = self.outside.by_id.get(&id) == Some(&(end_offsets, rows));
            if !is_same && !self.objects.ever.is_given_again(id) {
                self.violated(format!("micro-batch {id} is repeated with other rows"));
            }
            return;
        }
        self.note(Some(from), format_args!("micro-batch {id} is published, {} rows", rows.len()));
        self.outside.published += 1;
        for value in &rows {
            let (source, row) = (value / SOURCE_STEP, value % SOURCE_STEP);
            self.check_row(from, source as usize, row as u64);
        }
        if self.scenario.delivery != Delivery::AtLeastOnce {
            if self.outside.last().is_some_and(|(last, _)| last >= id) {
                self.violated(format!("micro-batch {id} comes after a higher one"));
            }
            if !self.is_published(&positions(&end_offsets.ends)) {
                self.violated(format!("micro-batch {id} does not reach as far as it says"));
            }
            self.outside.by_id.insert(id, (end_offsets, rows));
        }
    }

    fn check_row(&mut self, from: usize, source: usize, row: u64) {
        let once = self.scenario.delivery != Delivery::AtLeastOnce;
        let expected = self.outside.complete_to[source];
        if once && row != expected {
            self.violated(format!("row {row} of source {source} is published; {expected} is next"));
        }
        let last = std::mem::replace(&mut self.processes[from].published[source], row as i64);
        if last >= row as i64 && !self.is_muddled() {
            self.violated(format!("row {row} of source {source} comes after {last}"));
        }
        if !self.outside.add(source, row) {
            self.violated(format!("source {source} has no row {row}"));
        }
        self.outside.skip(source);
    }

    /// Sends a micro-batch off; gives its acknowledgement.
    fn dispatch(&mut self, parcel: Parcel) -> Acknowledgement {
        let traits = self.scenario.sink.clone();
        let (from, flaw) = (parcel.from, self.flaw);
        if traits.at_once && flaw != Some(Flaw::AcknowledgesEarly) {
            return match self.arrives(parcel) {
                Ok(_) => Acknowledgement::Done,
                Err(failure) => Acknowledgement::Later(async { Err(failure) }.boxed()),
            };
        }
        let limit = if self.calm { Duration::ZERO } else { Duration::MAX };
        let there = self.chance.up_to(traits.there.min(limit));
        let back = self.chance.up_to(traits.back.min(limit));
        let back = if parcel.fate == Fate::Unanswered { PATIENCE } else { back };
        let mut moment = self.now + there;
        if flaw != Some(Flaw::PublishesOutOfOrder) {
            moment = moment.max(self.processes[from].sink_busy_until);
            self.processes[from].sink_busy_until = moment;
        }
        let answered = self.send(from, Way::Sink, moment, back, move |state| state.arrives(parcel));
        if flaw == Some(Flaw::AcknowledgesEarly) {
            let now_us = self.wall_us();
            return Acknowledgement::Later(async move { Ok(now_us) }.boxed());
        }
        Acknowledgement::Later(or_never(answered).boxed())
    }

    fn draw_parcel_fate(&mut self) -> Fate {
        let (refused, unanswered) = (self.scenario.sink.refused, self.scenario.sink.unanswered);
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
    fn writer_opens(&mut self, from: usize) -> Option<Published> {
        self.outside.epoch += 1;
        self.processes[from].epoch = self.outside.epoch;
        let last = self.outside.last().map(|(id, end_offsets)| (BatchId(id), end_offsets.clone()));
        let published = match (self.scenario.delivery, last) {
            (Delivery::AtLeastOnce, _) | (_, None) => None,
            (Delivery::Idempotent, Some((batch_id, _))) => {
                Some(Published { batch_id, end_offsets: None })
            }
            (Delivery::Transactional, Some((batch_id, end_offsets))) => {
                Some(Published { batch_id, end_offsets: Some(end_offsets) })
            }
        };
        let shown = published.as_ref().map(|published| published.batch_id.0);
        self.note(Some(from), format_args!("the sink says that {shown:?} is published"));
        if self.flaw == Some(Flaw::AnswerUnheard) { None } else { published }
    }
}

/// A sink of one process.
pub struct ModelSink {
    process: Process,
    delivery: Delivery,
}

impl ModelSink {
    /// A sink of `process`.
    pub fn new(process: &Process) -> Self {
        let delivery = process.with(|state| state.scenario.delivery);
        Self { process: process.clone(), delivery }
    }

    /// Its buffers are full now and then.
    async fn while_full(&self) {
        let wait = self.process.with(|state| {
            let full = !state.calm && state.chance.percent(10);
            if full { state.chance.up_to(state.scenario.sink.there) } else { Duration::ZERO }
        });
        self.process.sleep(wait).await;
    }
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
        let id = self.process.id;
        self.process.step("opens the sink".to_owned()).await;
        let way = self.process.with(|state| state.scenario.sink.there);
        let there = self.process.with(|state| state.chance.up_to(way));
        Ok(self.process.send(Way::Sink, there, there, move |state| state.writer_opens(id)).await)
    }

    async fn ready(&mut self) -> Result<(), Failure> {
        self.while_full().await;
        Ok(())
    }

    async fn publish(&mut self, output: Output) -> Result<Acknowledgement, Failure> {
        let values =
            |column: &arrow::array::ArrayRef| column.as_primitive::<Int64Type>().values().to_vec();
        let rows: Vec<i64> =
            output.record_batches().flat_map(|rows| values(rows.column(0))).collect();
        let (from, id, end_offsets) = (self.process.id, output.batch_id.0, output.end_offsets);
        let ends = positions(&end_offsets.ends);
        let count = rows.len();
        self.process.step(format!("hands over {id}, {count} rows up to {ends:?}")).await;
        self.process.with(|state| state.check_handed_over(from, id, &end_offsets));
        self.while_full().await;
        Ok(self.process.with(|state| {
            let skips = self.delivery == Delivery::Transactional && state.scenario.sink.skips_empty;
            if skips && rows.is_empty() {
                return Acknowledgement::Done;
            }
            let fate = state.draw_parcel_fate();
            state.dispatch(Parcel { from, id, rows, end_offsets, fate })
        }))
    }

    async fn close(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

//! The model source: rows that come in bursts, under offsets that count them.
//!
//! Record `n` of source `s` has the number `s * SOURCE_STEP` and its value, which is mostly `n`
//! itself, so that the outside can tell which rows it has got, and in which order.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use async_trait::async_trait;
use millstream_engine::api::dead_letter::{Letter, Place};
use millstream_engine::api::source::{
    Classified, Failure, InputBatch, Kind, ReadLimit, RecordBatches, Source, SourceLog,
    SourceOffset, Split,
};
use thiserror::Error;
use tokio::sync::Notify;

use crate::Planted;
use crate::flaw::Flaw;
use crate::mutation::Mutation;
use crate::process::Process;
use crate::query::{Records, time_s};
use crate::world::State;

/// The distance between the rows of two sources.
pub const SOURCE_STEP: i64 = 1_000_000;

/// The longest time that reading a range again takes.
const REPLAY_MAX: Duration = Duration::from_millis(50);

/// A position is behind the rows that the topic has.
#[derive(Debug, Error)]
#[error("offset {position} of {visible} rows")]
struct RowsLost {
    position: u64,
    visible: u64,
}

impl Classified for RowsLost {
    fn kind(&self) -> Kind {
        Kind::Data
    }
}

/// What a source reads.
pub struct Topic {
    total: u64,
    /// Rows that have come in.
    visible: u64,
    more: Arc<Notify>,
    /// The highest offset that a process called published.
    pub committed: u64,
}

impl Topic {
    /// A topic that is empty yet, and will have `total` rows.
    pub fn new(total: u64) -> Self {
        Self { total, visible: 0, more: Arc::default(), committed: 0 }
    }
}

impl State {
    /// A burst of rows comes in, and later the next one; in quiet times all that are left.
    pub fn rows_arrive(&mut self, source: usize) {
        let (burst, gap) = (self.scenario.burst_rows, self.scenario.burst_gap);
        let rows = self.chance.among(1..=burst);
        let wait = self.chance.up_to(gap);
        let topic = &mut self.topics[source];
        topic.visible = if self.calm { topic.total } else { topic.total.min(topic.visible + rows) };
        topic.more.notify_waiters();
        let (visible, left) = (topic.visible, topic.total - topic.visible);
        self.note(None, format_args!("source {source} has {visible} rows"));
        if left > 0 {
            self.at(self.now + wait, move |state| state.rows_arrive(source));
        }
    }
}

/// The columns of every source.
pub fn schema() -> SchemaRef {
    let timestamp = DataType::Timestamp(TimeUnit::Microsecond, None);
    let fields = vec![Field::new("v", DataType::Int64, false), Field::new("ts", timestamp, true)];
    Arc::new(Schema::new(fields))
}

/// The offset in its textual form.
pub fn position_of(offset: &SourceOffset) -> u64 {
    offset.as_str().parse().expect("the model's offsets are numbers")
}

fn offset_of(position: u64) -> SourceOffset {
    SourceOffset::new(position.to_string())
}

/// A range of a source's records.
struct Range {
    schema: SchemaRef,
    records: Records,
    source: usize,
    numbers: std::ops::Range<u64>,
}

impl Range {
    fn decode(&self, numbers: &[u64], projection: &[usize]) -> RecordBatch {
        let first = self.source as i64 * SOURCE_STEP;
        let value = |n: &u64| first + self.records.value(*n) as i64;
        let values = Int64Array::from_iter_values(numbers.iter().map(value));
        let times = numbers.iter().map(|n| time_s(*n) as i64 * 1_000_000);
        let times = TimestampMicrosecondArray::from_iter_values(times);
        let columns: Vec<ArrayRef> = vec![Arc::new(values), Arc::new(times)];
        let rows = RecordBatch::try_new(Arc::clone(&self.schema), columns);
        rows.and_then(|rows| rows.project(projection)).expect("columns of the schema")
    }
}

impl Split for Range {
    fn rows(&self) -> u64 {
        self.numbers.end - self.numbers.start
    }

    fn read(self: Box<Self>, projection: &[usize]) -> RecordBatches {
        let numbers: Vec<u64> = self.numbers.clone().collect();
        Box::new(std::iter::once(Ok(self.decode(&numbers, projection))))
    }

    fn read_with_letters(
        self: Box<Self>,
        projection: &[usize],
        letters: &mut Vec<Letter>,
    ) -> Result<Vec<RecordBatch>, Failure> {
        let is_malformed = |n: &u64| self.records.is_malformed(*n);
        let (malformed, sound): (Vec<_>, Vec<_>) = self.numbers.clone().partition(is_malformed);
        letters.extend(malformed.into_iter().map(|n| {
            let place = Place::Record { topic: "model".into(), partition: 0, offset: n as i64 };
            Letter { place: Some(place), ..Letter::default() }
        }));
        Ok(vec![self.decode(&sound, projection)])
    }
}

/// A source of one process.
pub struct ModelSource {
    process: Process,
    schema: SchemaRef,
    records: Records,
    source: usize,
    next: u64,
    end: Option<u64>,
}

impl ModelSource {
    /// Source number `source` of `process`.
    pub fn new(process: &Process, source: usize) -> Self {
        let records = process.with(|state| state.scenario.records());
        Self { process: process.clone(), schema: schema(), records, source, next: 0, end: None }
    }

    fn readable(&self) -> u64 {
        self.end.unwrap_or_else(|| self.process.with(|state| state.topics[self.source].visible))
    }

    fn range(&self, start: u64, end: u64, rows_end: u64) -> InputBatch {
        let numbers = start..rows_end.max(start);
        let rows = numbers.end - numbers.start;
        let (schema, source) = (Arc::clone(&self.schema), self.source);
        let range = Range { schema, records: self.records, source, numbers };
        InputBatch {
            end: offset_of(end),
            rows,
            splits: vec![Box::new(range)],
            oldest_arrival_us: 0,
        }
    }
}

#[async_trait]
impl Source for ModelSource {
    fn description(&self) -> String {
        "Model".to_owned()
    }

    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// A new query starts at 0. A position that the topic does not have is lost data.
    async fn open(
        &mut self,
        position: Option<&SourceOffset>,
        _: SourceLog,
    ) -> Result<SourceOffset, Failure> {
        let position = position.map_or(0, position_of);
        let visible = self.process.with(|state| state.topics[self.source].visible);
        if position > visible {
            return Err(RowsLost { position, visible }.into());
        }
        Ok(offset_of(position))
    }

    /// A range that ends before it starts is empty, as with Kafka.
    async fn replay(
        &mut self,
        start: Option<&SourceOffset>,
        end: &SourceOffset,
    ) -> Result<InputBatch, Failure> {
        let (start, end) = (start.map_or(0, position_of), position_of(end));
        let source = self.source;
        self.process.step(format!("replays source {source} {start}..{end}")).await;
        let wait = self
            .process
            .with(|state| if state.calm { Duration::ZERO } else { state.chance.up_to(REPLAY_MAX) });
        self.process.sleep(wait).await;
        let (start, rows_end) = match self.process.with(|state| state.planted) {
            Planted::World(Flaw::ReplayLosesARow) => (start, end.saturating_sub(1).max(start)),
            Planted::World(Flaw::ReplayTakesTooMuch) => (start, end + 1),
            Planted::Driver(Mutation::ReplaysNothing) => (end, end),
            Planted::Driver(Mutation::ReplaysAnotherRange) => (start, self.readable().max(end)),
            _ => (start, end),
        };
        Ok(self.range(start, end, rows_end))
    }

    async fn start(&mut self, position: &SourceOffset) -> Result<(), Failure> {
        let position = position_of(position);
        self.next = match self.process.with(|state| state.planted) {
            Planted::Driver(Mutation::ContinuesTooLate) if position > 0 => position + 1,
            Planted::Driver(Mutation::ContinuesAtTheBeginning) => 0,
            _ => position,
        };
        Ok(())
    }

    async fn fix_end(&mut self) -> Result<(), Failure> {
        self.end = Some(self.readable());
        Ok(())
    }

    fn at_end(&self) -> bool {
        self.end.is_some_and(|end| self.next >= end)
    }

    fn poll(&mut self, limit: ReadLimit) -> Result<Option<InputBatch>, Failure> {
        let rows_max = match limit {
            ReadLimit::Configured => self.process.with(|state| state.scenario.rows_max),
            ReadLimit::AllAvailable => u64::MAX,
        };
        let (start, end) = (self.next, self.readable().min(self.next.saturating_add(rows_max)));
        // A source may be behind its start where the rows before it were never read.
        if end <= start {
            return Ok(None);
        }
        let source = self.source;
        if !self.process.try_step(format_args!("takes source {source} {start}..{end}")) {
            return Ok(None);
        }
        if self.process.is_mutated(Mutation::TellsSourcesTooEarly) {
            self.process.with(|state| state.check_heard(source, start));
        }
        self.next = end;
        Ok(Some(self.range(start, end, end)))
    }

    async fn data_available(&mut self) {
        let more = self.process.with(|state| Arc::clone(&state.topics[self.source].more));
        loop {
            let notified = more.notified();
            if self.process.is_gone() {
                std::future::pending::<()>().await;
            }
            if self.readable() > self.next || self.at_end() {
                return;
            }
            notified.await;
        }
    }

    fn committed(&mut self, end: &SourceOffset) {
        let (source, end) = (self.source, position_of(end));
        if self.process.try_step(format_args!("source {source} hears of {end} published")) {
            self.process.with(|state| state.check_heard(source, end));
        }
    }

    async fn close(&mut self) {}
}

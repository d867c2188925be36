//! The model source: rows that come in bursts, under offsets that count them.
//!
//! Row `n` of source `s` is the number `s * SOURCE_STEP + n`, so that the outside can tell which
//! rows it has got, and in which order.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use millstream_engine::api::source::{
    Classified, Failure, InputBatch, Kind, ReadLimit, RecordBatches, Source, SourceLog,
    SourceOffset, Split,
};
use thiserror::Error;
use tokio::sync::Notify;

use crate::flaw::Flaw;
use crate::process::Process;
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
    Arc::new(Schema::new(vec![Field::new("v", DataType::Int64, false)]))
}

/// The offset in its textual form.
pub fn position_of(offset: &SourceOffset) -> u64 {
    offset.as_str().parse().expect("the model's offsets are numbers")
}

fn offset_of(position: u64) -> SourceOffset {
    SourceOffset::new(position.to_string())
}

struct Rows {
    schema: SchemaRef,
    values: Vec<i64>,
}

impl Split for Rows {
    fn rows(&self) -> u64 {
        self.values.len() as u64
    }

    fn read(self: Box<Self>, _projection: &[usize]) -> RecordBatches {
        let column = Arc::new(Int64Array::from(self.values));
        let rows = RecordBatch::try_new(self.schema, vec![column]);
        Box::new(std::iter::once(Ok(rows.expect("one column of the schema"))))
    }
}

/// A source of one process.
pub struct ModelSource {
    process: Process,
    schema: SchemaRef,
    source: usize,
    next: u64,
    end: Option<u64>,
}

impl ModelSource {
    /// Source number `source` of `process`.
    pub fn new(process: &Process, source: usize) -> Self {
        Self { process: process.clone(), schema: schema(), source, next: 0, end: None }
    }

    fn readable(&self) -> u64 {
        self.end.unwrap_or_else(|| self.process.with(|state| state.topics[self.source].visible))
    }

    fn range(&self, start: u64, end: u64, rows_end: u64) -> InputBatch {
        let first = self.source as i64 * SOURCE_STEP;
        let values: Vec<i64> = (start..rows_end).map(|row| first + row as i64).collect();
        let rows = values.len() as u64;
        InputBatch {
            end: offset_of(end),
            rows,
            splits: vec![Box::new(Rows { schema: Arc::clone(&self.schema), values })],
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
        let rows_end = match self.process.with(|state| state.flaw) {
            Some(Flaw::ReplayLosesARow) => end.saturating_sub(1).max(start),
            Some(Flaw::ReplayTakesTooMuch) => end + 1,
            _ => end,
        };
        Ok(self.range(start, end, rows_end))
    }

    async fn start(&mut self, position: &SourceOffset) -> Result<(), Failure> {
        self.next = position_of(position);
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

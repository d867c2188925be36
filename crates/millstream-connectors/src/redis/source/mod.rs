//! A source that reads streams, from entry to entry.
//!
//! An entry's id is its offset: a stream is read again from any id, as long as nobody has trimmed
//! it. So no consumer group is needed, and none is made; what was read is in the checkpoint alone.
//! A reader ([`reader`]) fetches all the time; entries wait until the driver takes them, and become
//! columns ([`rows`]) while the query runs.
//!
//! Redis does not report that entries were trimmed before they were read: it begins with the first
//! that is left. So an [offset](offsets) counts the entries before it as well, and the count has to
//! agree with the server's own.

mod offsets;
mod options;
mod reader;
mod rows;

use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use millstream_engine::api::connector::{FlowContext, Memory, ReadMode, Table};
use millstream_engine::api::options::OptionError;
use millstream_engine::api::source::{
    Beginning, Failure, InputBatch, ReadLimit, Source, SourceLog, SourceOffset, Split,
};
use millstream_store::env::Task;

use super::error::RedisProblem;
use super::link::Link;
use offsets::Position;
pub(super) use options::{SourceOptions, mode_of};
use reader::{Buffer, Streams};
pub(super) use rows::typed;
use rows::{EntrySplit, Rows};

/// Bytes that are read ahead, where no limit of memory says it.
const READ_AHEAD: usize = 32 << 20;

/// The file of the source log with the positions that the query began at.
const INITIAL: &str = "0";

/// Reads streams of one server.
pub(super) struct RedisSource {
    options: SourceOptions,
    rows: Arc<Rows>,
    context: FlowContext,
    /// Where the query began, by stream.
    initial: Option<Vec<Position>>,
    /// By stream, up to where entries were taken.
    taken: Vec<Position>,
    /// By stream, where a query that ends does.
    ends: Option<Vec<offsets::Id>>,
    buffer: Arc<Buffer>,
    reading: Option<Task<()>>,
}

impl RedisSource {
    /// The columns of a table, which is checked without touching anything.
    pub(super) fn check(
        table: &Table,
        mode: ReadMode,
        base_dir: &Path,
    ) -> Result<SchemaRef, OptionError> {
        SourceOptions::parse(table, mode, base_dir)?;
        rows::columns(table)
    }

    /// A source of a table that was checked.
    pub(super) fn new(
        table: &Table,
        mode: ReadMode,
        base_dir: &Path,
        context: &FlowContext,
    ) -> Result<Self, Failure> {
        let options = SourceOptions::parse(table, mode, base_dir)?;
        let rows = Arc::new(Rows { schema: rows::columns(table)?, mode: options.mode });
        let bytes_max = context.memory.map_or(READ_AHEAD, Memory::read_ahead);
        let buffer = Arc::new(Buffer::new(options.keys.len(), bytes_max));
        let (context, taken, ends) = (context.clone(), Vec::new(), None);
        Ok(Self { options, rows, context, initial: None, taken, ends, buffer, reading: None })
    }

    fn streams(&self) -> Result<Streams, Failure> {
        let (server, env) = (self.options.server.clone(), self.context.env.clone());
        let contact = self.context.contacts.with(format!("Redis at {}", server.shown()));
        let link = Link::new(server, env, contact, super::sink::OPEN_PATIENCE)?;
        Ok(Streams::new(link, self.options.clone()))
    }

    fn offset(&self, positions: &[Position]) -> SourceOffset {
        offsets::encode(&self.options.keys, positions)
    }

    fn split(&self, stream: usize, entries: Vec<rows::Entry>) -> Box<dyn Split> {
        let key = self.options.keys[stream].clone();
        Box::new(EntrySplit { rows: Arc::clone(&self.rows), stream, key, entries })
    }
}

#[async_trait]
impl Source for RedisSource {
    fn description(&self) -> String {
        format!("Redis[{}]", self.options.keys.join(","))
    }

    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.rows.schema)
    }

    async fn open(
        &mut self,
        position: Option<&SourceOffset>,
        log: SourceLog,
    ) -> Result<SourceOffset, Failure> {
        let mut streams = self.streams()?;
        streams.check_server().await?;
        let keys = &self.options.keys;
        // Without a position but with an initial one the query crashed before its first
        // micro-batch; it starts there again.
        let initial = log.get(INITIAL).await?.map(|bytes| initial_of(keys, &bytes)).transpose()?;
        let positions = match (position, initial) {
            (Some(offset), initial) => {
                self.initial = initial;
                offsets::decode(keys, offset)?
            }
            (None, Some(initial)) => {
                self.initial = Some(initial.clone());
                initial
            }
            (None, None) => {
                let initial = streams.beginning().await?;
                let text = format!("v1\n{}", offsets::encode(keys, &initial));
                log.put_if_absent(INITIAL, text.into_bytes()).await?;
                self.initial = Some(initial.clone());
                initial
            }
        };
        streams.check_untrimmed(&positions).await?;
        Ok(self.offset(&positions))
    }

    async fn replay(
        &mut self,
        start: Option<&SourceOffset>,
        end: &SourceOffset,
    ) -> Result<InputBatch, Failure> {
        let keys = &self.options.keys;
        let ends = offsets::decode(keys, end)?;
        let mut streams = self.streams()?;
        let starts = match (start, &self.initial) {
            (Some(start), _) => offsets::decode(keys, start)?,
            (None, Some(initial)) => initial.clone(),
            (None, None) => return Err(RedisProblem::NoInitial.into()),
        };
        let (mut splits, mut rows) = (Vec::new(), 0);
        for (stream, (start, end)) in starts.iter().zip(&ends).enumerate() {
            let entries = streams.range(stream, *start, *end).await?;
            rows += entries.len() as u64;
            splits.push(self.split(stream, entries));
        }
        let oldest_arrival_us = self.context.env.now_us();
        Ok(InputBatch { end: end.clone(), rows, splits, oldest_arrival_us })
    }

    fn beginning(&self) -> Option<Beginning> {
        let option = format!("'startingOffsets' = '{}'", self.options.starting.name());
        Some(Beginning { option, may_skip: self.options.starting == options::Starting::Latest })
    }

    fn offsets_stand_alone(&self) -> bool {
        true
    }

    async fn start(&mut self, position: &SourceOffset) -> Result<(), Failure> {
        self.taken = offsets::decode(&self.options.keys, position)?;
        let (streams, positions) = (self.streams()?, self.taken.clone());
        let (buffer, env) = (Arc::clone(&self.buffer), self.context.env.clone());
        let reading = reader::read(streams, positions, buffer, env.clone());
        self.reading = Some(env.spawn("redis-reader", reading));
        Ok(())
    }

    async fn fix_end(&mut self) -> Result<(), Failure> {
        self.ends = Some(self.streams()?.last_ids().await?);
        self.buffer.end_is_fixed();
        Ok(())
    }

    fn at_end(&self) -> bool {
        let Some(ends) = &self.ends else { return false };
        let is_there = |(stream, end): (usize, &offsets::Id)| {
            let is_taken = self.taken[stream].id >= *end;
            is_taken || self.buffer.has_passed(stream, *end)
        };
        ends.iter().enumerate().all(is_there)
    }

    fn poll(&mut self, limit: ReadLimit) -> Result<Option<InputBatch>, Failure> {
        let rows_max = match limit {
            ReadLimit::Configured => self.options.rows_max,
            ReadLimit::AllAvailable => usize::MAX,
        };
        let Some(batch) = self.buffer.take(rows_max, self.ends.as_deref())? else {
            return Ok(None);
        };
        let (mut splits, mut rows) = (Vec::new(), 0);
        for (stream, entries) in batch.streams.into_iter().enumerate() {
            let Some(last) = entries.last() else { continue };
            let taken = &mut self.taken[stream];
            *taken = Position { id: last.id, read: last.rank };
            rows += entries.len() as u64;
            splits.push(self.split(stream, entries));
        }
        let (end, oldest_arrival_us) = (self.offset(&self.taken), batch.oldest_arrival_us);
        Ok(Some(InputBatch { end, rows, splits, oldest_arrival_us }))
    }

    async fn data_available(&mut self) {
        while !self.at_end() && !self.buffer.is_filled() {
            self.buffer.changed().await;
        }
    }

    fn committed(&mut self, _end: &SourceOffset) {}

    async fn close(&mut self) {
        if let Some(reading) = self.reading.take() {
            reading.stop().await;
        }
    }
}

/// Reads the file [`INITIAL`].
fn initial_of(keys: &[String], bytes: &[u8]) -> Result<Vec<Position>, RedisProblem> {
    let text = std::str::from_utf8(bytes).ok().and_then(|text| text.strip_prefix("v1\n"));
    let positions = text.and_then(|text| offsets::read(keys, text).ok());
    positions.ok_or_else(|| RedisProblem::ForeignOffset {
        offset: String::from_utf8_lossy(bytes).into_owned(),
    })
}

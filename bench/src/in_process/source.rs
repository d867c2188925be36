//! A source of messages in memory.
//!
//! They lie in chunks, by partition, as a Kafka client would have them: bytes and times, undecoded.
//! A micro-batch takes one chunk of each partition. Numbered records have a key besides, as JSON
//! has not.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BinaryBuilder, RecordBatch, RecordBatchOptions,
    TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use async_trait::async_trait;
use millstream_engine::api::connector::{Connector, FlowContext, ReadMode, Table};
use millstream_engine::api::error::ArrowBug;
use millstream_engine::api::options::{OptionError, OptionSpec};
use millstream_engine::api::source::{
    Classified, Failure, InputBatch, Kind, ReadLimit, RecordBatches, Source, SourceLog,
    SourceOffset, SourcePartition, Split,
};
use millstream_sql::json::{DecodeOptions, Decoder, MalformedRecord, UnsupportedSchema};
use millstream_store::env::Env;
use thiserror::Error;

use super::{CONNECTOR, Input};
use crate::error::Error;
use crate::messages::{MESSAGE_BYTES, Messages, Spread};
use crate::numbered::Numbered;

/// Messages of a chunk: as many as the engine decodes at a time.
const CHUNK_MESSAGES: usize = 8_192;
const ZONE: &str = "UTC";

/// Why messages are not read.
#[derive(Debug, Error)]
enum ChunksError {
    #[error("'{offset}' is no number of chunks")]
    ForeignOffset { offset: SourceOffset },
    #[error("{0}")]
    Columns(UnsupportedSchema),
    #[error("{0}")]
    Message(MalformedRecord),
}

impl Classified for ChunksError {
    fn kind(&self) -> Kind {
        match self {
            Self::ForeignOffset { .. } => Kind::Data,
            Self::Columns(_) | Self::Message(_) => Kind::Bug,
        }
    }
}

/// All messages, by partition.
pub struct Chunks(Vec<Vec<Arc<Chunk>>>);

struct Chunk {
    key: BinaryArray,
    value: BinaryArray,
    timestamp: TimestampMicrosecondArray,
}

impl Chunks {
    /// Makes them. The last one of each partition closes all windows.
    pub fn make(input: &Input) -> Result<Self, Error> {
        let spread = Spread { messages: input.messages, windows: input.windows };
        let partitions = usize::try_from(input.partitions).expect("it is at least 1");
        let mut messages = Messages::new(input.keys);
        let mut numbered = input.size.map(Numbered::new);
        let of_partition = |_| Filling::of(input.size.unwrap_or(MESSAGE_BYTES));
        let mut filling: Vec<_> = (0..partitions).map(of_partition).collect();
        for number in 0..input.messages {
            let (_, time_ms) = spread.of(number);
            let partition = usize::try_from(number).expect("it fits in memory") % partitions;
            let filling = &mut filling[partition];
            match &mut numbered {
                None => filling.add(None, messages.make()?.bytes, time_ms),
                Some(numbered) => {
                    let (key, value) = numbered.make(number);
                    filling.add(Some(key), value, time_ms);
                }
            }
        }
        if input.windows > 0 {
            let last = messages.make()?;
            filling.iter_mut().for_each(|filling| filling.add(None, last.bytes, spread.end_ms()));
        }
        Ok(Self(filling.into_iter().map(Filling::finish).collect()))
    }

    fn rounds(&self) -> usize {
        self.0.iter().map(Vec::len).max().unwrap_or(0)
    }

    /// Keys and values, in the order in which micro-batches take them.
    pub fn records(&self) -> impl Iterator<Item = (Option<&[u8]>, &[u8])> {
        let of_round =
            move |round: usize| self.0.iter().filter_map(move |chunks| chunks.get(round));
        (0..self.rounds()).flat_map(of_round).flat_map(|chunk| {
            chunk.key.iter().zip(chunk.value.iter().map(Option::unwrap_or_default))
        })
    }
}

struct Filling {
    /// About how many bytes a value has.
    value_bytes: usize,
    key: BinaryBuilder,
    value: BinaryBuilder,
    times_us: Vec<i64>,
    chunks: Vec<Arc<Chunk>>,
}

impl Filling {
    fn of(value_bytes: usize) -> Self {
        let (key, value) = (BinaryBuilder::new(), BinaryBuilder::new());
        Self { value_bytes, key, value, times_us: Vec::new(), chunks: Vec::new() }
    }

    fn add(&mut self, key: Option<&[u8]>, value: &[u8], time_ms: i64) {
        if self.times_us.is_empty() {
            let bytes = CHUNK_MESSAGES * self.value_bytes;
            self.value = BinaryBuilder::with_capacity(CHUNK_MESSAGES, bytes);
        }
        self.key.append_option(key);
        self.value.append_value(value);
        self.times_us.push(time_ms * 1_000);
        if self.times_us.len() == CHUNK_MESSAGES {
            self.end_chunk();
        }
    }

    fn end_chunk(&mut self) {
        if !self.times_us.is_empty() {
            let timestamp = TimestampMicrosecondArray::from(std::mem::take(&mut self.times_us));
            let timestamp = timestamp.with_timezone(ZONE);
            let (key, value) = (self.key.finish(), self.value.finish());
            self.chunks.push(Arc::new(Chunk { key, value, timestamp }));
        }
    }

    fn finish(mut self) -> Vec<Arc<Chunk>> {
        self.end_chunk();
        self.chunks
    }
}

/// The connector. Its tables have declared columns, which are decoded from JSON, or else `value`,
/// `timestamp` and `key`.
pub struct InProcess {
    pub chunks: Arc<Chunks>,
}

impl Connector for InProcess {
    fn name(&self) -> &'static str {
        CONNECTOR
    }

    fn options(&self) -> &'static [OptionSpec] {
        &[]
    }

    fn check_source(&self, table: &Table, _mode: ReadMode) -> Result<SchemaRef, OptionError> {
        Ok(schema_of(table))
    }

    fn source(
        &self,
        table: &Table,
        _mode: ReadMode,
        context: &FlowContext,
    ) -> Result<Box<dyn Source>, Failure> {
        Ok(Box::new(InProcessSource {
            chunks: Arc::clone(&self.chunks),
            schema: schema_of(table),
            decodes: table.columns.is_some(),
            env: context.env.clone(),
            taken: 0,
        }))
    }
}

fn schema_of(table: &Table) -> SchemaRef {
    let timestamp = DataType::Timestamp(TimeUnit::Microsecond, Some(ZONE.into()));
    let bytes = |name: &str| Field::new(name, DataType::Binary, true);
    let timestamp = Field::new("timestamp", timestamp, true);
    let undecoded = || Schema::new(vec![bytes("value"), timestamp, bytes("key")]);
    table.columns.clone().unwrap_or_else(|| Arc::new(undecoded()))
}

struct InProcessSource {
    chunks: Arc<Chunks>,
    schema: SchemaRef,
    decodes: bool,
    env: Env,
    /// Chunks taken of each partition.
    taken: usize,
}

impl InProcessSource {
    /// The chunks from `start` to `end` of each partition.
    fn chunks(&self, start: usize, end: usize) -> InputBatch {
        let mut splits: Vec<Box<dyn Split>> = Vec::new();
        for (partition, chunks) in self.chunks.0.iter().enumerate() {
            for chunk in &chunks[start.min(chunks.len())..end.min(chunks.len())] {
                splits.push(Box::new(InProcessSplit {
                    chunk: Arc::clone(chunk),
                    partition: partition as SourcePartition,
                    schema: Arc::clone(&self.schema),
                    decodes: self.decodes,
                }));
            }
        }
        let rows = splits.iter().map(|split| split.rows()).sum();
        InputBatch { end: offset(end), rows, splits, oldest_arrival_us: self.env.now_us() }
    }
}

fn offset(chunks: usize) -> SourceOffset {
    SourceOffset::new(chunks.to_string())
}

fn chunks_of(offset: &SourceOffset) -> Result<usize, Failure> {
    let chunks = offset.as_str().parse();
    chunks.map_err(|_| ChunksError::ForeignOffset { offset: offset.clone() }.into())
}

#[async_trait]
impl Source for InProcessSource {
    fn description(&self) -> String {
        CONNECTOR.to_owned()
    }

    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    async fn open(
        &mut self,
        position: Option<&SourceOffset>,
        _log: SourceLog,
    ) -> Result<SourceOffset, Failure> {
        Ok(offset(position.map_or(Ok(0), chunks_of)?))
    }

    async fn replay(
        &mut self,
        start: Option<&SourceOffset>,
        end: &SourceOffset,
    ) -> Result<InputBatch, Failure> {
        Ok(self.chunks(start.map_or(Ok(0), chunks_of)?, chunks_of(end)?))
    }

    async fn start(&mut self, position: &SourceOffset) -> Result<(), Failure> {
        self.taken = chunks_of(position)?;
        Ok(())
    }

    async fn fix_end(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    fn at_end(&self) -> bool {
        self.taken >= self.chunks.rounds()
    }

    fn poll(&mut self, _limit: ReadLimit) -> Result<Option<InputBatch>, Failure> {
        if self.at_end() {
            return Ok(None);
        }
        let taken = self.chunks(self.taken, self.taken + 1);
        self.taken += 1;
        Ok(Some(taken))
    }

    /// Everything is here.
    async fn data_available(&mut self) {}

    fn partitions_behind(&self) -> Vec<SourcePartition> {
        let partitions = (0..).zip(&self.chunks.0);
        partitions
            .filter(|(_, chunks)| chunks.len() > self.taken)
            .map(|(partition, _)| partition)
            .collect()
    }

    fn committed(&mut self, _end: &SourceOffset) {}

    async fn close(&mut self) {}
}

struct InProcessSplit {
    chunk: Arc<Chunk>,
    partition: SourcePartition,
    schema: SchemaRef,
    decodes: bool,
}

impl InProcessSplit {
    fn rows_of(&self, projection: &[usize]) -> Result<RecordBatch, Failure> {
        if self.decodes {
            let decoder = Decoder::new(&self.schema, projection, DecodeOptions::default());
            let mut decoder = decoder.map_err(ChunksError::Columns)?;
            let decoded = decoder.decode(&self.chunk.value);
            return Ok(decoded.map_err(ChunksError::Message)?.rows);
        }
        let column = |index: &usize| -> ArrayRef {
            match index {
                0 => Arc::new(self.chunk.value.clone()),
                1 => Arc::new(self.chunk.timestamp.clone()),
                _ => Arc::new(self.chunk.key.clone()),
            }
        };
        let columns = projection.iter().map(column).collect();
        let schema = self.schema.project(projection).map_err(ArrowBug)?;
        let rows = usize::try_from(self.rows()).expect("a chunk is in memory");
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::new(schema), columns, &options)
            .map_err(|error| ArrowBug(error).into())
    }
}

impl Split for InProcessSplit {
    fn rows(&self) -> u64 {
        use arrow::array::Array as _;
        self.chunk.value.len() as u64
    }

    fn partition(&self) -> Option<SourcePartition> {
        Some(self.partition)
    }

    fn read(self: Box<Self>, projection: &[usize]) -> RecordBatches {
        let rows = self.rows_of(projection);
        Box::new(std::iter::once(rows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_partition_has_its_messages_and_one_that_closes() {
        let input = Input { messages: 20_001, partitions: 2, windows: 2, keys: None, size: None };
        let chunks = Chunks::make(&input).expect("they are made");
        let lengths: Vec<Vec<u64>> = (chunks.0.iter())
            .map(|chunks| {
                chunks.iter().map(|chunk| chunk.timestamp.values().len() as u64).collect()
            })
            .collect();
        assert_eq!(lengths, [[8_192, 1_810], [8_192, 1_809]]);
        let end_us = Spread { messages: 20_001, windows: 2 }.end_ms() * 1_000;
        for chunks in &chunks.0 {
            let last = chunks.last().expect("there are two");
            assert_eq!(last.timestamp.values().last(), Some(&end_us));
        }
    }

    #[test]
    fn numbered_records_come_once_each() {
        let (messages, size) = (20_000, Some(40));
        let input = Input { messages, partitions: 3, windows: 0, keys: None, size };
        let chunks = Chunks::make(&input).expect("they are made");
        let mut numbers: Vec<_> = (chunks.records())
            .map(|(key, value)| {
                let number = crate::numbered::number_of(value).expect("it has one");
                assert_eq!((value.len(), key), (40, Some(&*crate::numbered::key_of(number))));
                number
            })
            .collect();
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..messages));
    }
}

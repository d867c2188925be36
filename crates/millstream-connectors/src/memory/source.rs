//! Reads a table in this process; the offset is the number of rows, `{"rows":3}`.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use async_trait::async_trait;
use millstream_engine::api::dead_letter::{Letter, Place};
use millstream_engine::api::source::{
    Classified, Failure, InputBatch, Kind, ReadLimit, RecordBatches, Records, Source, SourceLog,
    SourceOffset, Split, StaticTable, Traced,
};
use millstream_store::env::Env;
use serde::Deserialize;
use thiserror::Error;

use super::MemoryTable;

/// Why a table in this process cannot be read.
#[derive(Debug, Error)]
enum MemoryError {
    /// The offset log holds an offset of some other source.
    #[error("the checkpoint's offset '{offset}' is not one of 'memory'")]
    ForeignOffset { offset: SourceOffset },
    /// Rows were pushed that do not have the table's columns.
    #[error("rows in a memory table differ from its columns: {error}")]
    Columns { error: ArrowError },
}

impl Classified for MemoryError {
    fn kind(&self) -> Kind {
        Kind::Data
    }
}

#[derive(Deserialize)]
struct Offset {
    rows: u64,
}

fn offset(rows: u64) -> SourceOffset {
    SourceOffset::new(format!("{{\"rows\":{rows}}}"))
}

fn rows_of(offset: &SourceOffset) -> Result<u64, Failure> {
    let known = serde_json::from_str::<Offset>(offset.as_str());
    let foreign = |_| MemoryError::ForeignOffset { offset: offset.clone() }.into();
    known.map(|offset| offset.rows).map_err(foreign)
}

/// A stream of the rows pushed into a table.
pub struct MemorySource {
    table: MemoryTable,
    schema: SchemaRef,
    rows_max: Option<u64>,
    env: Env,
    taken: u64,
    end: Option<u64>,
}

impl MemorySource {
    /// A source of the rows of `table`, which all have `schema`; at most `rows_max` of them in a
    /// micro-batch.
    pub fn new(table: MemoryTable, schema: SchemaRef, rows_max: Option<u64>, env: Env) -> Self {
        Self { table, schema, rows_max, env, taken: 0, end: None }
    }

    fn rows(&self, start: u64, end: u64) -> InputBatch {
        let record_batches = self.table.range(start, end);
        let schema = self.schema.clone();
        let split = MemorySplit { first: start, record_batches, schema };
        InputBatch {
            end: offset(end),
            rows: end - start,
            splits: vec![Box::new(split)],
            oldest_arrival_us: self.env.now_us(),
        }
    }

    fn available(&self) -> u64 {
        self.table.row_count().min(self.end.unwrap_or(u64::MAX))
    }
}

#[async_trait]
impl Source for MemorySource {
    fn description(&self) -> String {
        "MemoryStream".into()
    }

    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    async fn open(
        &mut self,
        position: Option<&SourceOffset>,
        _log: SourceLog,
    ) -> Result<SourceOffset, Failure> {
        Ok(offset(position.map_or(Ok(0), rows_of)?))
    }

    async fn replay(
        &mut self,
        start: Option<&SourceOffset>,
        end: &SourceOffset,
    ) -> Result<InputBatch, Failure> {
        let (start, end) = (start.map_or(Ok(0), rows_of)?, rows_of(end)?);
        self.table.more_than(end.saturating_sub(1)).await;
        Ok(self.rows(start.min(end), end))
    }

    async fn start(&mut self, position: &SourceOffset) -> Result<(), Failure> {
        self.taken = rows_of(position)?;
        Ok(())
    }

    async fn fix_end(&mut self) -> Result<(), Failure> {
        self.end = Some(self.table.row_count());
        Ok(())
    }

    fn at_end(&self) -> bool {
        self.end.is_some_and(|end| self.taken >= end)
    }

    fn poll(&mut self, limit: ReadLimit) -> Result<Option<InputBatch>, Failure> {
        let rows_max = match limit {
            ReadLimit::Configured => self.rows_max.unwrap_or(u64::MAX),
            ReadLimit::AllAvailable => u64::MAX,
        };
        let end = self.available().min(self.taken.saturating_add(rows_max));
        if end <= self.taken {
            return Ok(None);
        }
        let taken = self.rows(self.taken, end);
        self.taken = end;
        Ok(Some(taken))
    }

    async fn data_available(&mut self) {
        if !self.at_end() {
            self.table.more_than(self.taken).await;
        }
    }

    fn committed(&mut self, _end: &SourceOffset) {}

    fn latest(&self) -> Option<SourceOffset> {
        Some(offset(self.table.row_count()))
    }

    async fn close(&mut self) {}
}

#[derive(Clone)]
struct MemorySplit {
    /// The number of the first row.
    first: u64,
    record_batches: Vec<RecordBatch>,
    schema: SchemaRef,
}

impl Split for MemorySplit {
    fn rows(&self) -> u64 {
        self.record_batches.iter().map(|rows| rows.num_rows() as u64).sum()
    }

    fn read(self: Box<Self>, projection: &[usize]) -> RecordBatches {
        let projection = projection.to_vec();
        let schema = self.schema;
        let record_batches = self.record_batches.into_iter();
        Box::new(record_batches.map(move |rows| project(&rows, &schema, &projection)))
    }

    fn records(&self) -> Vec<Arc<dyn Records>> {
        vec![Arc::new(self.clone())]
    }
}

impl Records for MemorySplit {
    fn read(&self, projection: &[usize], _: bool) -> Result<Vec<Traced>, Failure> {
        Traced::all_in_order(Split::read(Box::new(self.clone()), projection), self.first)
    }

    fn letter(&self, row: u64) -> Result<Letter, Failure> {
        Ok(Letter { place: Some(Place::Row { of: "memory".into(), row }), ..Letter::default() })
    }
}

/// The columns `projection` of `rows`, which must have the types of `schema`.
fn project(
    rows: &RecordBatch,
    schema: &SchemaRef,
    projection: &[usize],
) -> Result<RecordBatch, Failure> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    let whole =
        RecordBatch::try_new_with_options(schema.clone(), rows.columns().to_vec(), &options);
    let projected = whole.and_then(|whole| whole.project(projection));
    projected.map_err(|error| MemoryError::Columns { error }.into())
}

/// All rows of a table, for the static side of a join.
pub(super) struct MemoryRows {
    pub(super) table: MemoryTable,
    pub(super) schema: SchemaRef,
}

#[async_trait]
impl StaticTable for MemoryRows {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    async fn fingerprint(&self) -> Result<String, Failure> {
        Ok(self.table.version().to_string())
    }

    async fn read(&self) -> Result<Vec<RecordBatch>, Failure> {
        let all: Vec<usize> = (0..self.schema.fields().len()).collect();
        let rows = self.table.record_batches();
        rows.iter().map(|rows| project(rows, &self.schema, &all)).collect()
    }
}

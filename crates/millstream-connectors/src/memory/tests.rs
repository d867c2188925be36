//! Rows in, rows out.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::Int64Type;
use futures::FutureExt;
use millstream_engine::api::sink::{BatchId, EndOffsets, Output, Sink};
use millstream_engine::api::source::{InputBatch, Kind, ReadLimit, Source, SourceLog, StaticTable};

use super::source::MemoryRows;
use super::{MemorySink, MemorySource, MemoryTable};
use crate::testing::ManualClock;

fn numbers(values: std::ops::Range<i64>) -> RecordBatch {
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(values));
    RecordBatch::try_from_iter([("n", column)]).unwrap()
}

fn source(table: &MemoryTable, rows_max: Option<u64>) -> MemorySource {
    let env = ManualClock::at(0).env();
    MemorySource::new(table.clone(), numbers(0..0).schema(), rows_max, env)
}

fn read(taken: InputBatch) -> Vec<i64> {
    let record_batches = taken.splits.into_iter().flat_map(|split| split.read(&[0]));
    let values = record_batches
        .flat_map(|rows| rows.unwrap().column(0).as_primitive::<Int64Type>().values().to_vec());
    values.collect()
}

#[tokio::test]
async fn rows_are_taken_once_within_limits_and_can_be_replayed() {
    let table = MemoryTable::default();
    table.push(numbers(0..3));
    table.push(numbers(3..5));
    let mut source = source(&table, Some(4));
    let start = source.open(None, SourceLog::in_memory()).await.unwrap();
    source.start(&start).await.unwrap();
    let first = source.poll(ReadLimit::Configured).unwrap().unwrap();
    let middle = first.end.clone();
    assert_eq!(read(first), [0, 1, 2, 3]);
    let second = source.poll(ReadLimit::Configured).unwrap().unwrap();
    let end = second.end.clone();
    assert_eq!(read(second), [4]);
    assert!(source.poll(ReadLimit::AllAvailable).unwrap().is_none());
    assert!(source.data_available().now_or_never().is_none());
    table.push(numbers(5..6));
    assert!(source.data_available().now_or_never().is_some());
    assert_eq!(read(source.replay(Some(&middle), &end).await.unwrap()), [4]);
    assert_eq!(read(source.replay(None, &middle).await.unwrap()), [0, 1, 2, 3]);
}

#[tokio::test]
async fn rows_pushed_after_the_end_was_fixed_are_left() {
    let table = MemoryTable::default();
    table.push(numbers(0..2));
    let mut source = source(&table, None);
    source.fix_end().await.unwrap();
    table.push(numbers(2..3));
    assert_eq!(read(source.poll(ReadLimit::AllAvailable).unwrap().unwrap()), [0, 1]);
    assert!(source.at_end());
    assert!(source.poll(ReadLimit::AllAvailable).unwrap().is_none());
}

#[tokio::test]
async fn what_is_published_can_be_read_with_its_batch_id() {
    let table = MemoryTable::named("what_is_published_can_be_read");
    let mut sink = MemorySink::new(table);
    let partitions = vec![vec![numbers(0..2)], vec![numbers(2..3)]];
    let output = Output { batch_id: BatchId(4), partitions, end_offsets: EndOffsets::default() };
    sink.publish(output).await.unwrap().accepted().await.unwrap();
    let same = MemoryTable::named("what_is_published_can_be_read");
    assert_eq!(same.published()[0].batch_id, BatchId(4));
    assert_eq!(same.row_count(), 3);
}

#[tokio::test]
async fn a_static_table_changes_its_fingerprint_with_its_rows() {
    let table = MemoryTable::default();
    table.push(numbers(0..2));
    let rows = MemoryRows { table: table.clone(), schema: numbers(0..0).schema() };
    let before = rows.fingerprint().await.unwrap();
    assert_eq!(before, rows.fingerprint().await.unwrap());
    table.push(numbers(2..3));
    assert_ne!(before, rows.fingerprint().await.unwrap());
    assert_eq!(rows.read().await.unwrap().iter().map(RecordBatch::num_rows).sum::<usize>(), 3);
}

#[tokio::test]
async fn rows_of_another_type_are_a_data_error() {
    let table = MemoryTable::default();
    let text: ArrayRef = Arc::new(arrow::array::StringArray::from(vec!["one"]));
    table.push(RecordBatch::try_from_iter([("n", text)]).unwrap());
    let taken = source(&table, None).poll(ReadLimit::AllAvailable).unwrap().unwrap();
    let error = taken.splits.into_iter().next().unwrap().read(&[0]).next().unwrap().unwrap_err();
    assert_eq!(error.kind(), Kind::Data);
}

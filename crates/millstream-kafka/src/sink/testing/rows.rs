//! What tests write.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, RecordBatch, StringArray};
use millstream_engine::api::sink::{BatchId, EndOffsets};

use crate::sink::columns::{SinkColumns, SinkRows};
use crate::sink::exactly_once::Content;

/// Micro-batch 12, which has rows with these topics, partitions and values.
pub fn content(all: &[(&str, i32, &str)]) -> Content {
    let end_offsets = EndOffsets::default();
    Content { batch_id: BatchId(12), rows: vec![rows(all)], end_offsets }
}

/// Rows with these topics, partitions and values.
pub fn rows(all: &[(&str, i32, &str)]) -> SinkRows {
    let topics: ArrayRef = Arc::new(StringArray::from_iter_values(all.iter().map(|row| row.0)));
    let partitions: ArrayRef = Arc::new(Int32Array::from_iter_values(all.iter().map(|row| row.1)));
    let values: ArrayRef = Arc::new(StringArray::from_iter_values(all.iter().map(|row| row.2)));
    let columns = [("topic", topics), ("partition", partitions), ("value", values)];
    let rows = RecordBatch::try_from_iter(columns).unwrap();
    SinkColumns::find(&rows.schema(), false).unwrap().of(&rows).unwrap()
}

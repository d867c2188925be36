//! Rows as every format gives them: a projection of the table's columns, in record batches.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;

use super::error::FileError;

/// Rows of one file, before it is known that the file stayed the same while it was read.
pub(super) type FileRows = Box<dyn Iterator<Item = Result<RecordBatch, FileError>> + Send>;

/// Columns of `rows` rows, of which there may be none.
pub(super) fn record_batch(
    schema: &SchemaRef,
    columns: Vec<ArrayRef>,
    rows: usize,
) -> Result<RecordBatch, ArrowError> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema.clone(), columns, &options)
}

/// The schema with the columns `projection` only.
pub(super) fn project(schema: &SchemaRef, projection: &[usize]) -> SchemaRef {
    Arc::new(schema.project(projection).expect("a projection names columns of the table"))
}

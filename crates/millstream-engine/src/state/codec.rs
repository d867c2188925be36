//! An operator's input rows as bytes of the state log: Arrow's IPC stream format, one stream per
//! operator input.

use std::io::Cursor;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::datatypes::Schema;
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;

/// The bytes of `rows`, which have `schema`; none for no rows.
pub fn encode(schema: &Schema, rows: &[RecordBatch]) -> Result<Vec<u8>, ArrowError> {
    if rows.iter().all(|rows| rows.num_rows() == 0) {
        return Ok(Vec::new());
    }
    let mut writer = StreamWriter::try_new(Vec::new(), schema)?;
    for rows in rows.iter().filter(|rows| rows.num_rows() > 0) {
        writer.write(rows)?;
    }
    writer.into_inner()
}

/// The rows in bytes that [`encode`] made.
pub fn decode(bytes: &[u8]) -> Result<Vec<RecordBatch>, ArrowError> {
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    StreamReader::try_new(Cursor::new(bytes), None)?.collect()
}

/// About how many bytes [`encode`] makes of `rows`. Of a slice only its own rows count, not the
/// whole array that it shares.
pub fn encoded_bytes(rows: &[RecordBatch]) -> usize {
    let own = |column: &ArrayRef| {
        let bytes = column.to_data().get_slice_memory_size();
        bytes.unwrap_or_else(|_| column.get_array_memory_size())
    };
    rows.iter().flat_map(RecordBatch::columns).map(own).sum()
}

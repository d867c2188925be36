//! An operator's input rows as bytes of the state log: Arrow's IPC stream format, one stream per
//! operator input.

use std::io::{Cursor, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::datatypes::Schema;
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::root_as_message;
use arrow::ipc::writer::StreamWriter;

/// What a message begins with.
const CONTINUATION: [u8; 4] = [0xff; 4];

/// The bytes of `rows`, which have `schema`; none for no rows.
pub fn encode(schema: &Schema, rows: &[RecordBatch]) -> Result<Vec<u8>, ArrowError> {
    let mut bytes = Vec::new();
    encode_to(schema, rows.to_vec(), &mut bytes)?;
    Ok(bytes)
}

/// As [`encode`], into `to`. Rows are let go of as soon as they are written.
pub fn encode_to(
    schema: &Schema,
    rows: Vec<RecordBatch>,
    to: &mut dyn Write,
) -> Result<(), ArrowError> {
    if rows.iter().all(|rows| rows.num_rows() == 0) {
        return Ok(());
    }
    let mut writer = StreamWriter::try_new(to, schema)?;
    for rows in rows.into_iter().filter(|rows| rows.num_rows() > 0) {
        writer.write(&rows)?;
    }
    writer.finish()
}

/// The rows in bytes that [`encode`] made.
pub fn decode(bytes: &[u8]) -> Result<Vec<RecordBatch>, ArrowError> {
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    check_lengths(bytes)?;
    let read = || StreamReader::try_new(Cursor::new(bytes), None)?.collect();
    // The reader trusts the places of buffers within a message, and panics where they are wrong.
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| {
        Err(ArrowError::IpcError("a message has buffers that are not in it".to_owned()))
    })
}

/// Checks that messages are as long as they say: the reader allocates that length before it reads.
fn check_lengths(bytes: &[u8]) -> Result<(), ArrowError> {
    let cut_off = || ArrowError::IpcError("a message is longer than the section".to_owned());
    let mut rest = bytes;
    // A message: a marker, the length of its metadata, metadata, body. Without a length or with
    // none, the stream has ended.
    while let Some((mut length, mut message)) = rest.split_first_chunk::<4>() {
        if *length == CONTINUATION {
            (length, message) = message.split_first_chunk().ok_or_else(cut_off)?;
        }
        let length = usize::try_from(i32::from_le_bytes(*length)).map_err(|_| cut_off())?;
        if length == 0 {
            break;
        }
        let (metadata, body) = message.split_at_checked(length).ok_or_else(cut_off)?;
        let metadata =
            root_as_message(metadata).map_err(|error| ArrowError::IpcError(error.to_string()))?;
        let length = usize::try_from(metadata.bodyLength()).map_err(|_| cut_off())?;
        rest = body.get(length..).ok_or_else(cut_off)?;
    }
    Ok(())
}

/// About how many bytes [`encode`] makes of `rows`.
pub fn encoded_bytes(rows: &[RecordBatch]) -> usize {
    rows.iter().flat_map(RecordBatch::columns).map(own_bytes).sum()
}

/// The memory of a column, in bytes. Of a slice only its own rows count, not the whole array that
/// it shares.
pub fn own_bytes(column: &ArrayRef) -> usize {
    let bytes = column.to_data().get_slice_memory_size();
    bytes.unwrap_or_else(|_| column.get_array_memory_size())
}

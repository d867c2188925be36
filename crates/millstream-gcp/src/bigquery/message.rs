//! Rows as messages: the schema and each record batch as Arrow's encapsulated IPC messages, as
//! `AppendRows` takes them.
//!
//! A request may have ten megabytes. Many small record batches become one message, and a large one
//! becomes several. Messages are made one by one, so that no more are in memory than may be.

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::Schema;
use arrow::ipc::writer::{
    DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions, write_message,
};
use bytes::Bytes;

use super::mapping::Mapping;
use super::rows::{self, RowProblem};

/// Rows go out when so many bytes of them have gathered: a request's own cost is small by then, and
/// much of the ten megabytes is left where rows are of different size.
pub(super) const BYTES_WANTED: usize = 1 << 20;
/// A request may have 10 MB, with its header.
const BYTES_MAX: usize = 9_500_000;

/// Rows on their way.
#[derive(Clone, Debug)]
pub(super) struct Message {
    /// The rows as the query gave them, to name one that is refused.
    pub(super) rows: RecordBatch,
    /// The encapsulated message.
    pub(super) bytes: Bytes,
}

/// The encapsulated message of a schema.
pub(super) fn schema(schema: &Schema) -> Bytes {
    let (options, generator) = (IpcWriteOptions::default(), IpcDataGenerator::default());
    let mut dictionaries = DictionaryTracker::new(false);
    let encoded =
        generator.schema_to_bytes_with_dictionary_tracker(schema, &mut dictionaries, &options);
    let mut bytes = Vec::new();
    write_message(&mut bytes, encoded, &options).expect("memory takes everything");
    bytes.into()
}

/// `batches` in groups, of each of which a message can be made.
pub(super) fn groups(batches: &[RecordBatch]) -> Vec<Vec<RecordBatch>> {
    let (mut groups, mut together, mut bytes) = (Vec::new(), Vec::new(), 0);
    for piece in batches.iter().flat_map(pieces) {
        let size = size_of_rows(&piece);
        if bytes + size > BYTES_WANTED && !together.is_empty() {
            groups.push(std::mem::take(&mut together));
            bytes = 0;
        }
        bytes += size;
        together.push(piece);
    }
    if !together.is_empty() {
        groups.push(together);
    }
    groups
}

/// About the bytes that a group takes up while it is under way: its rows, and the message.
pub(super) fn size_under_way(group: &[RecordBatch]) -> usize {
    2 * group.iter().map(size_of_rows).sum::<usize>()
}

/// The messages of a group of record batches, which have the columns of the query: one, unless it
/// would be too large.
///
/// # Errors
/// Some row of them cannot be written.
pub(super) fn messages(
    mapping: &Mapping,
    group: &[RecordBatch],
) -> Result<Vec<Message>, RowProblem> {
    let mut messages = Vec::new();
    let rows = match group {
        [] => return Ok(messages),
        [one] => one.clone(),
        several => concat_batches(&several[0].schema(), several)
            .expect("the record batches of a query have the same columns"),
    };
    add_halves(mapping, rows, &mut messages)?;
    Ok(messages)
}

/// About the bytes that rows have, without what of their buffers belongs to other rows.
pub(super) fn size_of_rows(rows: &RecordBatch) -> usize {
    let size = |column: &arrow::array::ArrayRef| column.to_data().get_slice_memory_size();
    rows.columns().iter().map(|column| size(column).unwrap_or(0)).sum()
}

/// A record batch in pieces of about the size wanted.
fn pieces(batch: &RecordBatch) -> Vec<RecordBatch> {
    let (rows, size) = (batch.num_rows(), size_of_rows(batch));
    let each = (rows * BYTES_WANTED).checked_div(size).unwrap_or(rows).clamp(1, rows.max(1));
    (0..rows).step_by(each).map(|first| batch.slice(first, each.min(rows - first))).collect()
}

/// Adds `rows` as one message, or as two where that would be too large.
fn add_halves(
    mapping: &Mapping,
    rows: RecordBatch,
    messages: &mut Vec<Message>,
) -> Result<(), RowProblem> {
    let bytes = encode(&rows::convert(mapping, &rows)?);
    if bytes.len() <= BYTES_MAX {
        messages.push(Message { rows, bytes });
        return Ok(());
    }
    if rows.num_rows() == 1 {
        return Err(RowProblem::TooLarge { bytes: bytes.len(), bytes_max: BYTES_MAX });
    }
    let half = rows.num_rows() / 2;
    add_halves(mapping, rows.slice(0, half), messages)?;
    add_halves(mapping, rows.slice(half, rows.num_rows() - half), messages)
}

fn encode(rows: &RecordBatch) -> Bytes {
    let (options, generator) = (IpcWriteOptions::default(), IpcDataGenerator::default());
    let mut dictionaries = DictionaryTracker::new(false);
    let mut context = IpcWriteContext::default();
    let (none, encoded) = generator
        .encode(rows, &mut dictionaries, &options, &mut context)
        .expect("plain columns can be encoded");
    debug_assert!(none.is_empty(), "dictionaries were made plain");
    let mut bytes = Vec::with_capacity(encoded.arrow_data.len() + encoded.ipc_message.len() + 64);
    write_message(&mut bytes, encoded, &options).expect("memory takes everything");
    bytes.into()
}

/// Whether a row of `rows` is one of those that the sink refuses: `refused` is one row.
pub(super) fn has_row(rows: &RecordBatch, refused: &RecordBatch) -> bool {
    let same = |row: usize| {
        let columns = rows.columns().iter().zip(refused.columns());
        columns.into_iter().all(|(all, one)| all.slice(row, 1).to_data() == one.to_data())
    };
    rows.num_columns() == refused.num_columns() && (0..rows.num_rows()).any(same)
}

/// Whether `rows` have a row that cannot be sent.
pub(super) fn refuses(mapping: &Mapping, rows: &RecordBatch) -> bool {
    messages(mapping, std::slice::from_ref(rows)).is_err()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::StringArray;
    use arrow::datatypes::{DataType, Field};
    use arrow::ipc::reader::StreamReader;

    use super::super::columns::{Column, Kind};
    use super::super::mapping::map;
    use super::*;

    fn texts(lengths: &[usize]) -> (Mapping, RecordBatch) {
        let texts: StringArray = lengths.iter().map(|length| Some("x".repeat(*length))).collect();
        let schema = Arc::new(Schema::new(vec![Field::new("t", DataType::Utf8, true)]));
        let mapping = map(&schema, &[Column::nullable("T", Kind::String)]).expect("it fits");
        (mapping, RecordBatch::try_new(schema, vec![Arc::new(texts)]).expect("it is one"))
    }

    fn rows_in(mapping: &Mapping, message: &Message) -> usize {
        let stream = [schema(&mapping.sent), message.bytes.clone()].concat();
        let reader = StreamReader::try_new(&stream[..], None).expect("a schema");
        reader.map(|batch| batch.expect("rows").num_rows()).sum()
    }

    #[test]
    fn small_batches_are_sent_together_and_large_ones_in_pieces() {
        let sent = |mapping: &Mapping, batches: &[RecordBatch]| {
            let groups = groups(batches);
            let sent = groups.iter().flat_map(|group| {
                let sent = messages(mapping, group).expect("they can be");
                assert_eq!(sent.len(), 1);
                let bytes: usize = sent.iter().map(|message| message.bytes.len()).sum();
                let rows: usize = group.iter().map(size_of_rows).sum();
                let estimated = size_under_way(group);
                assert!(rows + bytes < estimated + 2_000, "{rows} and {bytes}: {estimated}");
                sent
            });
            sent.collect::<Vec<_>>()
        };
        let (mapping, small) = texts(&[5, 6]);
        let together = sent(&mapping, &vec![small; 10]);
        assert_eq!(together.len(), 1);
        assert_eq!(rows_in(&mapping, &together[0]), 20);

        let (mapping, large) = texts(&[1_000; 5_000]);
        let sent = sent(&mapping, &[large]);
        assert_eq!(sent.len(), 5);
        assert!(sent.iter().all(|message| message.bytes.len() < 2 * BYTES_WANTED));
        assert_eq!(sent.iter().map(|message| rows_in(&mapping, message)).sum::<usize>(), 5_000);
    }

    #[test]
    fn what_no_request_can_hold_is_refused() {
        let (mapping, uneven) = texts(&[10, 8_000_000, 8_000_000, 10]);
        let sent = groups(&[uneven]);
        let sent: Vec<_> =
            sent.iter().flat_map(|group| messages(&mapping, group).expect("they can be")).collect();
        assert!(sent.len() >= 2 && sent.iter().all(|message| message.bytes.len() <= BYTES_MAX));
        let (mapping, huge) = texts(&[10, 10_000_000]);
        let refused = messages(&mapping, std::slice::from_ref(&huge));
        assert!(matches!(refused, Err(RowProblem::TooLarge { bytes: 10_000_000.., .. })));
        assert!(refuses(&mapping, &huge) && !refuses(&mapping, &huge.slice(0, 1)));
    }

    #[test]
    fn a_refused_row_is_found_again() {
        let (_, rows) = texts(&[1, 2, 3]);
        assert!(has_row(&rows, &rows.slice(1, 1)));
        assert!(!has_row(&rows.slice(0, 1), &rows.slice(1, 1)));
    }
}

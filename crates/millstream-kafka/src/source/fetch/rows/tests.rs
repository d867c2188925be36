use super::*;
use crate::protocol::ProducerIdentity;
use crate::protocol::compression::Compression;
use crate::protocol::record_batch::{Record, RecordBatch};

const TRANSACTIONAL: u8 = 1 << 4;
const CONTROL: u8 = 1 << 5;

/// A batch of `producer` with the attributes `attributes`, whose records have these values from
/// the offset `base` on.
fn batch(producer: i64, attributes: u8, base: i64, values: &[&[u8]]) -> Vec<u8> {
    let mut batch = RecordBatch::default();
    for value in values {
        // The key of a control record has its version and its type.
        let key = if attributes & CONTROL != 0 { *value } else { &b"k"[..] };
        batch.push(&Record { key: Some(key), value: Some(value), headers: &[("h", Some(b"x"))] });
    }
    let writer = ProducerIdentity { id: producer, epoch: 0 };
    // With its checksum, but for the attribute of control batches.
    let is_transactional = attributes & TRANSACTIONAL != 0;
    let mut bytes = batch.encode(writer, 0, is_transactional, 1_000, Compression::None);
    bytes[..8].copy_from_slice(&base.to_be_bytes());
    bytes[22] = attributes;
    bytes
}

fn marker(producer: i64, base: i64, is_commit: bool) -> Vec<u8> {
    batch(producer, TRANSACTIONAL | CONTROL, base, &[&[0, 0, 0, u8::from(is_commit)]])
}

fn at(offset: i64) -> Position {
    Position::at(offset)
}

fn offsets(copied: &Copied) -> Vec<i64> {
    copied.chunks.iter().flat_map(|chunk| chunk.offset.values().to_vec()).collect()
}

#[test]
fn records_before_the_position_are_left_out() {
    let bytes = [batch(-1, 0, 5, &[b"a", b"b", b"c"]), batch(-1, 0, 12, &[b"d"])].concat();
    assert_eq!((end_of(&bytes, at(6)), end_of(b"", at(6))), (at(13), at(6)));
    let copied = Copying::new(true, false, false).copy(&bytes, at(6), &[], 9);
    assert_eq!((offsets(&copied), copied.end, copied.malformed), (vec![6, 7, 12], 13, None));
    let chunk = &copied.chunks[0];
    assert_eq!((chunk.value.value(0), chunk.key.value(2)), (&b"b"[..], &b"k"[..]));
    assert_eq!((chunk.timestamp_ms.value(1), chunk.timestamp_type.value(1)), (1_000, CREATED));
    assert_eq!((chunk.headers.as_ref().unwrap().value_length(2), chunk.arrival_us), (1, 9));
}

#[test]
fn aborted_transactions_are_left_out_where_that_is_asked_for() {
    // Producer 1 aborts, then commits; 2 aborts around both; 3 is in no transaction.
    let bytes = [
        batch(2, TRANSACTIONAL, 0, &[b"x"]),
        batch(1, TRANSACTIONAL, 1, &[b"x", b"x"]),
        marker(1, 3, false),
        batch(3, 0, 4, &[b"a"]),
        batch(1, TRANSACTIONAL, 5, &[b"a"]),
        marker(1, 6, true),
        batch(2, TRANSACTIONAL, 7, &[b"x"]),
        marker(2, 8, false),
        batch(2, TRANSACTIONAL, 9, &[b"a"]),
    ]
    .concat();
    let aborted = [(2, 0), (1, 1)];
    let committed = Copying::new(false, true, false).copy(&bytes, at(0), &aborted, 0);
    assert_eq!((offsets(&committed), committed.end), (vec![4, 5, 9], 10));
    let all = Copying::new(false, false, false).copy(&bytes, at(0), &aborted, 0);
    assert_eq!(offsets(&all), [0, 1, 2, 4, 5, 7, 9]);
}

#[test]
fn a_batch_that_is_malformed_ends_it_before_itself() {
    let good = batch(-1, 0, 5, &[b"a", b"b"]);
    let mut bad = batch(-1, 0, 7, &[b"c", b"d"]);
    let last = bad.len() - 2;
    // The length of the last value of a header.
    bad[last] = 0x7e;
    let bytes = [good, bad].concat();
    let copied = Copying::new(true, false, false).copy(&bytes, at(5), &[], 0);
    assert_eq!((offsets(&copied), copied.end), (vec![5, 6], 7));
    assert_eq!(copied.malformed, Some(Malformed::Form));
    let checked = Copying::new(true, false, true).copy(&bytes, at(5), &[], 0);
    assert_eq!(checked.malformed, Some(Malformed::Checksum));
}

#[test]
fn what_comes_twice_is_read_once() {
    let first = batch(-1, 0, 5, &[b"a", b"b"]);
    let overlapping = batch(-1, 0, 6, &[b"b", b"c"]);
    let bytes = [first.clone(), first, overlapping].concat();
    let copied = Copying::new(false, false, true).copy(&bytes, at(5), &[], 0);
    assert_eq!((offsets(&copied), copied.end), (vec![5, 6, 7], 8));
}

#[test]
fn a_batch_whose_attributes_have_changed_is_not_left_out() {
    let mut bytes = batch(-1, 0, 5, &[b"a"]);
    bytes[22] |= CONTROL;
    let sum = crate::protocol::record_batches::RawBatches::of(&bytes);
    assert!(sum.map(|batch| batch.unwrap()).all(|batch| batch.is_control()));
    let copied = Copying::new(false, false, true).copy(&bytes, at(5), &[], 0);
    assert_eq!((copied.end, copied.malformed), (5, Some(Malformed::Checksum)));
}

#[test]
fn an_empty_control_batch_says_nothing() {
    let bytes = [batch(1, TRANSACTIONAL | CONTROL, 5, &[]), batch(-1, 0, 6, &[b"a"])].concat();
    let mut bytes = bytes;
    // The last offset of an empty batch is kept by compaction.
    bytes[23..27].copy_from_slice(&0_i32.to_be_bytes());
    let copied = Copying::new(false, true, false).copy(&bytes, at(5), &[(1, 5)], 0);
    assert_eq!((offsets(&copied), copied.malformed), (vec![6], None));
}

#[test]
fn the_epochs_of_batches_are_noted_where_they_begin() {
    let of = |epoch: i32, base: i64, values: &[&[u8]]| {
        let mut bytes = batch(-1, 0, base, values);
        bytes[12..16].copy_from_slice(&epoch.to_be_bytes());
        bytes
    };
    let bytes = [of(3, 5, &[b"a", b"b"]), of(3, 7, &[b"c"]), of(4, 9, &[b"d"]), of(6, 10, &[b"e"])];
    let bytes = bytes.concat();
    let epochs = |from: Position| {
        let copied = Copying::new(false, false, true).copy(&bytes, from, &[], 0);
        let last = copied.epochs.last().map_or(from.epoch, |last| last.epoch);
        assert_eq!(end_of(&bytes, from), Position { offset: copied.end, epoch: last, ..from });
        copied.epochs.iter().map(|it| (it.epoch, it.offset)).collect::<Vec<_>>()
    };
    // Offsets that compaction has left out belong to the batch after them.
    assert_eq!(epochs(Position::at(6)), [(3, 6), (4, 8), (6, 10)]);
    assert_eq!(epochs(Position { epoch: 3, ..Position::at(7) }), [(4, 8), (6, 10)]);
    // Batches before the position are read already, whatever they are of.
    assert_eq!(epochs(Position { epoch: 6, ..Position::at(11) }), []);
}

use millstream_fuzz::Target;
use proptest::prelude::*;

use super::*;
use crate::protocol::ProducerIdentity;
use crate::protocol::record_batch::{Record, RecordBatch};

const WRITER: ProducerIdentity = ProducerIdentity { id: 7, epoch: 3 };

type Owned = (Option<Vec<u8>>, Option<Vec<u8>>, Vec<(String, Option<Vec<u8>>)>);

fn encode(records: &[Owned], base_offset: i64, way: Compression) -> Vec<u8> {
    let mut batch = RecordBatch::default();
    for (key, value, headers) in records {
        let headers: Vec<_> =
            headers.iter().map(|(name, value)| (name.as_str(), value.as_deref())).collect();
        batch.push(&Record { key: key.as_deref(), value: value.as_deref(), headers: &headers });
    }
    let mut bytes = batch.encode(WRITER, 0, true, 1_000, way);
    bytes[..8].copy_from_slice(&base_offset.to_be_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> Result<Vec<(i64, i64, Owned)>, Malformed> {
    let mut all = Vec::new();
    for batch in RawBatches::of(bytes) {
        let batch = batch?;
        batch.check()?;
        let records = batch.records()?;
        for record in Records::of(&batch, &records) {
            let record = record?;
            let text = |name| String::from_utf8_lossy(name).into_owned();
            let headers = record.headers().map(|(name, value)| (text(name), value.map(Vec::from)));
            let (key, value) = (record.key.map(Vec::from), record.value.map(Vec::from));
            all.push((record.offset, record.timestamp_ms, (key, value, headers.collect())));
        }
    }
    Ok(all)
}

fn bytes() -> impl Strategy<Value = Option<Vec<u8>>> {
    prop::option::of(prop::collection::vec(any::<u8>(), 0..300))
}

fn records() -> impl Strategy<Value = Vec<Owned>> {
    let headers = prop::collection::vec(("[a-z]{0,4}", bytes()), 0..3);
    prop::collection::vec((bytes(), bytes(), headers), 1..20)
}

proptest! {
    #[test]
    fn what_was_written_is_read(records in records(), way in 0..5_i16, base in 0..1_000_000_i64) {
        let way = Compression::of_attribute(way).unwrap();
        let mut bytes = encode(&records, base, way);
        // The beginning of another batch, which a broker has cut off.
        let next = bytes[..bytes.len() / 2].to_vec();
        bytes.extend(next);
        let expected: Vec<_> =
            records.into_iter().zip(base..).map(|(record, at)| (at, 1_000, record)).collect();
        prop_assert_eq!(decode(&bytes).unwrap(), expected);
    }
}

#[test]
fn what_is_wrong_is_named() {
    let record = (None, Some(vec![b'v'; 40]), Vec::new());
    let good = encode(&[record], 5, Compression::None);
    let changed = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        decode(&bytes).unwrap_err()
    };
    assert_eq!(changed(MAGIC_AT, 1), Malformed::OldForm);
    assert_eq!(changed(MAGIC_AT, 9), Malformed::Form);
    assert_eq!(changed(good.len() - 5, b'w'), Malformed::Checksum);
    // A negative length, and one of less than a header.
    assert_eq!(changed(8, 0xff), Malformed::Form);
    assert_eq!(changed(11, 3), Malformed::Form);
}

#[test]
fn the_broker_may_set_the_time() {
    let mut bytes = encode(&[(None, None, Vec::new())], 5, Compression::None);
    bytes[22] |= 1 << 3;
    bytes[35..43].copy_from_slice(&77_i64.to_be_bytes());
    let batch = RawBatches::of(&bytes).next().unwrap().unwrap();
    assert!(batch.has_times_of_appending() && batch.is_transactional() && !batch.is_control());
    let records = batch.records().unwrap();
    let record = Records::of(&batch, &records).next().unwrap().unwrap();
    assert_eq!((record.offset, record.timestamp_ms), (5, 77));
}

/// As [`decode`], whatever the checksum: it would refuse all that a fuzzer makes.
fn outcome(bytes: &[u8]) -> String {
    let mut said = String::new();
    for batch in RawBatches::of(bytes) {
        let read = batch.and_then(|batch| {
            let records = batch.records()?;
            let mut count = 0;
            for record in Records::of(&batch, &records) {
                count += 1 + record?.headers().count();
            }
            let kind = batch.is_control().then(|| batch.is_abort());
            Ok(format!("{} of {kind:?} ", count.min(5)))
        });
        said += &read.unwrap_or_else(|malformed| format!("{malformed:?} "));
    }
    said
}

#[test]
fn fuzz_record_batches() {
    let record = |value: &[u8]| (Some(b"k".to_vec()), Some(value.to_vec()), Vec::new());
    let headers = vec![("h".to_owned(), Some(b"x".to_vec())), ("n".to_owned(), None)];
    let records = [record(&[b'v'; 300]), record(b""), (None, None, headers)];
    let seeds: Vec<Vec<u8>> =
        (0..5).map(|way| encode(&records, 3, Compression::of_attribute(way).unwrap())).collect();
    for seed in &seeds {
        assert_eq!(outcome(seed), "5 of None ");
    }
    Target::bytes("kafka_record_batches").seeds(seeds).run(outcome);
}

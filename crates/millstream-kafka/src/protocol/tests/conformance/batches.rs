//! Record batches: what is written here is valid for Kafka, and what Kafka writes is read.

use serde_json::{Value, json};

use super::{from_hex, hex, kafka};
use crate::protocol::ProducerIdentity;
use crate::protocol::compression::Compression;
use crate::protocol::record_batch::{Header, OVERHEAD, Record, RecordBatch};
use crate::protocol::record_batches::{Malformed, RawBatch, RawBatches, Records};

const COMPRESSIONS: [&str; 5] = ["none", "gzip", "snappy", "lz4", "zstd"];
/// Milliseconds.
const TIMES: [i64; 3] = [0, 1_700_000_000_123, i64::MAX >> 2];

/// Key, value, and headers.
type Row = (Option<Vec<u8>>, Option<Vec<u8>>, Vec<(String, Option<Vec<u8>>)>);

/// Records with and without key, value and headers, none of them short only.
fn rows() -> Vec<Row> {
    let text = |text: &str| Some(text.as_bytes().to_vec());
    let header = |name: &str, value: Option<Vec<u8>>| (name.to_owned(), value);
    let noise = |bytes: u32| (0..bytes).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8);
    let mut rows = vec![
        (text("key"), text("value"), Vec::new()),
        (None, text("no key"), vec![header("h", text("x"))]),
        // A tombstone.
        (text("gone"), None, Vec::new()),
        (None, None, Vec::new()),
        (text(""), text(""), vec![header("", text(""))]),
        (
            text("Maß-末-𝄞"),
            text("é"),
            vec![header("Maß-末-𝄞", None), header("h", Some(vec![0xff; 300])), header("h", None)],
        ),
        (Some(noise(200).collect()), Some(noise(40_000).collect()), Vec::new()),
        (
            None,
            Some(vec![b'v'; 100_000]),
            (0..100).map(|at| header("many", text(&at.to_string()))).collect(),
        ),
    ];
    // More than two bytes of offsets, counted from the first.
    rows.extend((0..9_000).map(|at| (None, text(&at.to_string()), Vec::new())));
    rows
}

fn json_of((key, value, headers): &Row) -> (Value, Value, Value) {
    let bytes = |bytes: &Option<Vec<u8>>| json!(bytes.as_deref().map(hex));
    let headers: Vec<_> = headers.iter().map(|(name, value)| json!([name, bytes(value)])).collect();
    (bytes(key), bytes(value), json!(headers))
}

fn written(
    rows: &[Row],
    writer: ProducerIdentity,
    sequence: i32,
    is_transactional: bool,
    timestamp_ms: i64,
    compression: Compression,
) -> Vec<u8> {
    let mut batch = RecordBatch::default();
    for (key, value, headers) in rows {
        let headers: Vec<Header<'_>> =
            headers.iter().map(|(name, value)| (name.as_str(), value.as_deref())).collect();
        batch.push(&Record { key: key.as_deref(), value: value.as_deref(), headers: &headers });
    }
    batch.encode(writer, sequence, is_transactional, timestamp_ms, compression)
}

/// What Kafka reads of a batch that was written here.
struct Expected<'a> {
    rows: &'a [Row],
    bytes: usize,
    compression: &'a str,
    writer: ProducerIdentity,
    sequence: i32,
    is_transactional: bool,
    timestamp_ms: i64,
}

impl Expected<'_> {
    fn to_json(&self) -> Value {
        // Sequences begin at 0 again after the largest number.
        let sequence = |at: usize| (i64::from(self.sequence) + at as i64) & i64::from(i32::MAX);
        let record = |(at, row): (usize, &Row)| {
            let (key, value, headers) = json_of(row);
            json!({
                "offset": at, "timestamp": self.timestamp_ms, "sequence": sequence(at), "key": key,
                "value": value, "headers": headers,
            })
        };
        let count = self.rows.len();
        json!({
            "magic": 2,
            "bytes": self.bytes,
            "compression": self.compression,
            "timestamps": "CreateTime",
            "transactional": self.is_transactional,
            "control": false,
            "base": 0,
            "last": count - 1,
            "count": count,
            "producer": self.writer.id,
            "epoch": self.writer.epoch,
            "sequence": self.sequence,
            "last_sequence": sequence(count - 1),
            "latest": self.timestamp_ms,
            "delete_horizon": false,
            "leader_epoch": -1,
            "records": self.rows.iter().enumerate().map(record).collect::<Vec<_>>(),
        })
    }
}

#[test]
fn kafka_takes_the_batches_that_are_written() {
    let rows = rows();
    let writers = [(7, 0), (i64::MAX, i16::MAX), (0, 3)];
    let sequences = [0, 5, i32::MAX - 3];
    let mut cases = Vec::new();
    for compression in COMPRESSIONS {
        let cases_of_it = writers.into_iter().zip(sequences).zip(TIMES);
        for ((((id, epoch), sequence), timestamp_ms), at) in cases_of_it.zip(0..) {
            let rows = if at == 0 { &rows[..] } else { &rows[..8] };
            let (writer, is_transactional) = (ProducerIdentity { id, epoch }, at != 1);
            let way = Compression::named(compression).expect("it is known");
            let bytes = written(rows, writer, sequence, is_transactional, timestamp_ms, way);
            let length = bytes.len();
            let expected = Expected {
                rows,
                bytes: length,
                compression,
                writer,
                sequence,
                is_transactional,
                timestamp_ms,
            };
            cases.push((bytes, expected.to_json()));
        }
    }
    // Compression that does not help is left out.
    let (writer, one) = (ProducerIdentity { id: 1, epoch: 1 }, &rows[..1]);
    let bytes = written(one, writer, 0, true, 5, Compression::Gzip);
    let expected = Expected {
        rows: one,
        bytes: bytes.len(),
        compression: "none",
        writer,
        sequence: 0,
        is_transactional: true,
        timestamp_ms: 5,
    };
    cases.push((bytes, expected.to_json()));
    for (bytes, expected) in cases {
        let said = kafka::ask(&json!({"ask": "read", "batches": hex(&bytes)}));
        assert_eq!(said["valid"], bytes.len());
        let [batch] = &said["batches"].as_array().expect("a list")[..] else { panic!("{said}") };
        for (field, value) in expected.as_object().expect("an object") {
            assert!(batch[field] == *value, "{field} of {}", expected["compression"]);
        }
        assert_eq!(batch.as_object().map(|it| it.len()), expected.as_object().map(|it| it.len()));
    }
}

/// A batch as Kafka is to write it, whose records stand at `offsets`, each a millisecond later than
/// the one before.
fn batch(compression: &str, base: i64, offsets: &[i64], rows: &[Row]) -> Value {
    let record = |((at, row), offset): ((i64, &Row), &i64)| {
        let (key, value, headers) = json_of(row);
        json!({
            "offset": offset, "timestamp": TIMES[1] + at, "key": key, "value": value,
            "headers": headers,
        })
    };
    let records: Vec<_> = (0..).zip(rows).zip(offsets).map(record).collect();
    json!({
        "compression": compression, "timestamps": "CreateTime", "base": base, "records": records,
        "producer": 9_i64 << 40, "epoch": 4, "sequence": 17, "leader_epoch": 12,
        "transactional": true,
    })
}

fn write(batches: &[Value]) -> Vec<u8> {
    let said = kafka::ask(&json!({"ask": "write", "batches": batches}));
    from_hex(&said["batches"])
}

/// Checks what was read of a batch.
fn assert_read(read: &RawBatch<'_>, written: &Value) {
    let records = written["records"].as_array().expect("a list");
    let field = |name: &str| written[name].as_i64();
    let last = field("last").or_else(|| records.last()?["offset"].as_i64());
    assert_eq!((Some(read.base_offset), Some(read.last_offset)), (field("base"), last));
    assert_eq!((read.count(), Some(read.producer)), (records.len(), field("producer")));
    assert_eq!(read.is_compressed(), written["compression"] != "none");
    assert_eq!(json!(read.is_transactional()), written["transactional"]);
    assert!(!read.is_control());
    let appended = field("append_time");
    assert_eq!(read.has_times_of_appending(), appended.is_some());
    read.check().unwrap();
    let bytes = read.records().unwrap();
    let mut all = Records::of(read, &bytes);
    for expected in records {
        let record = all.next().expect("there is another").unwrap();
        assert_eq!(json!(record.offset), expected["offset"]);
        let time = appended.or_else(|| expected["timestamp"].as_i64());
        assert_eq!(Some(record.timestamp_ms), time);
        assert!(json!(record.key.map(hex)) == expected["key"], "a key");
        assert!(json!(record.value.map(hex)) == expected["value"], "a value");
        let name = |name| str::from_utf8(name).expect("it is text");
        let headers: Vec<_> =
            record.headers().map(|(key, value)| json!([name(key), value.map(hex)])).collect();
        assert!(json!(headers) == expected["headers"], "headers");
    }
    assert!(all.next().is_none());
}

fn read(bytes: &[u8]) -> Vec<RawBatch<'_>> {
    RawBatches::of(bytes).collect::<Result<_, _>>().unwrap()
}

#[test]
fn batches_that_kafka_writes_are_read() {
    let rows = rows();
    for compression in COMPRESSIONS {
        let all: Vec<i64> = (1_i64 << 40..).take(rows.len()).collect();
        let whole = batch(compression, all[0], &all, &rows);
        // What compaction leaves: offsets with gaps, the first and the last ones gone.
        let mut compacted = batch(compression, 100, &[103, 104, 110], &rows[..3]);
        compacted["last"] = json!(120);
        let mut horizon = batch(compression, 200, &[200, 201], &rows[..2]);
        horizon["delete_horizon"] = json!(TIMES[1] - 5_000);
        let mut appended = batch(compression, 300, &[300, 301, 302], &rows[..3]);
        appended["timestamps"] = json!("LogAppendTime");
        (appended["append_time"], appended["transactional"]) = (json!(TIMES[1] + 9), json!(false));
        let written = [whole, compacted, horizon, appended];
        let bytes = write(&written);
        let batches = read(&bytes);
        assert_eq!(batches.len(), written.len());
        for (read, written) in batches.iter().zip(&written) {
            assert_read(read, written);
        }
        // One that is cut off is left out, wherever it is cut.
        let small = write(&written[1..]);
        for length in 0..small.len() {
            let whole = RawBatches::of(&small[..length]).map(Result::unwrap);
            assert!(whole.count() < 3, "{length} bytes of {}", small.len());
        }
    }
}

#[test]
fn records_without_a_time_are_read() {
    let mut written = batch("none", 0, &[0], &rows()[..1]);
    written["records"][0]["timestamp"] = json!(-1);
    let bytes = write(&[written.clone()]);
    assert_read(&read(&bytes)[0], &written);
}

#[test]
fn the_end_of_a_transaction_is_read() {
    let end = |kind: &str| {
        json!({
            "compression": "none", "timestamps": "CreateTime", "base": 7, "producer": 9, "epoch": 4,
            "transactional": true,
            "marker": {"type": kind, "timestamp": 1_000, "coordinator_epoch": 3},
        })
    };
    let bytes = write(&[end("COMMIT"), end("ABORT")]);
    let batches = read(&bytes);
    let said: Vec<_> = batches.iter().map(|it| (it.is_control(), it.is_abort().unwrap())).collect();
    assert_eq!(said, [(true, false), (true, true)]);
    for batch in batches {
        assert_eq!((batch.base_offset, batch.last_offset, batch.producer), (7, 7, 9));
        assert!(batch.is_transactional() && batch.check().is_ok());
    }
}

#[test]
fn old_forms_are_named() {
    for magic in [0, 1] {
        let mut old = batch("none", 0, &[0], &rows()[..1]);
        // There were no transactions.
        old = json!({
            "magic": magic, "compression": "none", "timestamps": "CreateTime", "base": 0,
            "records": old["records"],
        });
        old["records"][0]["timestamp"] = json!(if magic == 0 { -1 } else { 5 });
        let bytes = write(&[old]);
        assert!(bytes.len() < OVERHEAD);
        let read: Vec<_> = RawBatches::of(&bytes).map(|it| it.map(|_| ())).collect();
        assert_eq!(read, [Err(Malformed::OldForm)], "{magic}");
    }
}

//! How fast Avro records become columns: ours beside arrow-avro's, on the same bytes.
//!
//! `cargo run --release -p millstream-records --example avro_speed`
//!
//! A record has ten columns: two longs, two ints, a double, a boolean, two strings of about 12
//! bytes, a nullable string and a timestamp. Each turn decodes all records, in batches of 8192
//! rows, by both in alternation; printed are the medians, in MB/s of Avro bytes (without the five
//! bytes that frame each record for arrow-avro).

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use arrow_avro::reader::ReaderBuilder;
use arrow_avro::schema::{AvroSchema, Fingerprint, FingerprintAlgorithm, SchemaStore};
use millstream_records::avro::{Decoder, Plan, Schema, Target};

const SCHEMA: &str = r#"{"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "long"},
    {"name": "customer", "type": "long"},
    {"name": "quantity", "type": "int"},
    {"name": "shop", "type": "int"},
    {"name": "price", "type": "double"},
    {"name": "paid", "type": "boolean"},
    {"name": "product", "type": "string"},
    {"name": "city", "type": "string"},
    {"name": "note", "type": ["null", "string"]},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}}
]}"#;

const RECORDS: u64 = 400_000;
const BATCH: usize = 8192;
const TURNS: usize = 5;

fn main() -> Result<(), Box<dyn Error>> {
    let records: Vec<Vec<u8>> = (0..RECORDS).map(record).collect();
    let bytes: usize = records.iter().map(Vec::len).sum();
    let framed: Vec<u8> =
        records.iter().flat_map(|record| [&[0, 0, 0, 0, 7], record.as_slice()].concat()).collect();
    println!("{RECORDS} records of {} bytes on average", bytes / records.len());

    let mut rates = [Vec::new(), Vec::new()];
    for _ in 0..TURNS {
        for (rates, decode) in rates.iter_mut().zip([ours, arrow_avros]) {
            let begin = Clock::start();
            decode(&records, &framed)?;
            rates.push(bytes as f64 / begin.seconds() / 1e6);
        }
    }
    for (name, mut rates) in ["ours", "arrow-avro"].into_iter().zip(rates) {
        rates.sort_by(f64::total_cmp);
        println!("{name:>10}: {:6.0} MB/s (of {rates:.0?})", rates[rates.len() / 2]);
    }
    Ok(())
}

/// Measures this thread's processor time where Linux tells it, so that what else runs on the
/// machine counts little; elsewhere the time on the wall.
struct Clock {
    wall: Instant,
    processor: Option<f64>,
}

impl Clock {
    #[expect(clippy::disallowed_methods, reason = "what is measured is real time")]
    fn start() -> Self {
        Self { wall: Instant::now(), processor: processor_seconds() }
    }

    fn seconds(&self) -> f64 {
        match (self.processor, processor_seconds()) {
            (Some(begin), Some(end)) => end - begin,
            _ => self.wall.elapsed().as_secs_f64(),
        }
    }
}

fn processor_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanos: u64 = text.split(' ').next()?.parse().ok()?;
    Some(nanos as f64 / 1e9)
}

fn ours(records: &[Vec<u8>], _: &[u8]) -> Result<(), Box<dyn Error>> {
    let schema = Schema::parse(SCHEMA, &[])?;
    let all: Vec<usize> = (0..10).collect();
    let mut decoder = Decoder::new(&schema.columns(0)?, &all)?;
    let target = Target::Reader { schema: &schema, recursion: 0 };
    let plan = Plan::new(&schema, target, decoder.layout())?;
    for batch in records.chunks(BATCH) {
        for record in batch {
            decoder.append(&plan, record)?;
        }
        black_box(decoder.finish());
    }
    Ok(())
}

fn arrow_avros(_: &[Vec<u8>], framed: &[u8]) -> Result<(), Box<dyn Error>> {
    let mut store = SchemaStore::new_with_type(FingerprintAlgorithm::Id);
    store.set(Fingerprint::Id(7), AvroSchema::new(SCHEMA.to_owned()))?;
    let builder = ReaderBuilder::new().with_batch_size(BATCH).with_writer_schema_store(store);
    let mut decoder = builder.build_decoder()?;
    let mut at = 0;
    while at < framed.len() {
        at += decoder.decode(&framed[at..])?;
        black_box(decoder.flush()?);
    }
    Ok(())
}

/// A record with values like those of a shop's orders, the same for the same number.
fn record(number: u64) -> Vec<u8> {
    let random = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (number << 7);
    let mut bytes = Vec::with_capacity(80);
    long(1_000_000 + number as i64, &mut bytes);
    long((random % 5_000_000) as i64, &mut bytes);
    long((random % 20) as i64, &mut bytes);
    long((random >> 8) as i64 % 3000, &mut bytes);
    bytes.extend(((random >> 16) as u16 as f64 / 100.0).to_le_bytes());
    bytes.push((random >> 20) as u8 & 1);
    text(&format!("item-{:07}", random % 9_999_999), &mut bytes);
    let cities = ["Regensburg", "Saarbruecken", "Osnabrueck", "Zwickau an der"];
    text(cities[(random >> 30) as usize % 4], &mut bytes);
    match random >> 40 & 1 {
        0 => long(0, &mut bytes),
        _ => {
            long(1, &mut bytes);
            text("ring the bell", &mut bytes);
        }
    }
    long(1_700_000_000_000_000 + (random >> 24) as i64 % 1_000_000_000, &mut bytes);
    bytes
}

fn text(text: &str, bytes: &mut Vec<u8>) {
    long(text.len() as i64, bytes);
    bytes.extend_from_slice(text.as_bytes());
}

fn long(value: i64, bytes: &mut Vec<u8>) {
    let mut raw = ((value << 1) ^ (value >> 63)) as u64;
    while raw >= 0x80 {
        bytes.push(raw as u8 | 0x80);
        raw >>= 7;
    }
    bytes.push(raw as u8);
}

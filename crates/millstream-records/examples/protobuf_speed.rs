//! How fast Protobuf records become columns, beside prost-reflect's messages without a descriptor
//! at compile time. `cargo run --release -p millstream-records --example protobuf_speed`

use std::hint::black_box;
use std::time::Duration;

use arrow::array::RecordBatch;
use millstream_records::protobuf::{Decoder, Encoder, Options, Plan, Schema};
use prost_reflect::prost::Message as _;
use prost_reflect::{DynamicMessage, Value};

const ROWS: usize = 20_000;
const ROUNDS: usize = 5;

const TEXT: &str = r#"
    syntax = "proto3";
    import "google/protobuf/timestamp.proto";
    message Event {
        int64 id = 1;
        int64 amount = 2;
        int32 kind = 3;
        int32 count = 4;
        double price = 5;
        bool is_new = 6;
        string customer = 7;
        string country = 8;
        string page = 9;
        google.protobuf.Timestamp at = 10;
    }
"#;

fn record(schema: &Schema, row: i64) -> Vec<u8> {
    let mut message = DynamicMessage::new(schema.descriptor().clone());
    let mut set = |name: &str, value| message.set_field_by_name(name, value);
    set("id", Value::I64(1_000_000_000 + row));
    set("amount", Value::I64(row * 7_919 + 1));
    set("kind", Value::I32((row % 100) as i32 + 1));
    set("count", Value::I32((row % 5_000) as i32 + 1));
    set("price", Value::F64(row as f64 * 0.25 + 1.0));
    set("is_new", Value::Bool(true));
    set("customer", Value::String(format!("customer{:04}", row % 10_000)));
    set("country", Value::String(format!("country-{:04}", row % 200)));
    set("page", Value::String(format!("/page/{:06}", row % 100_000)));
    let Some(prost_reflect::Kind::Message(time)) =
        schema.descriptor().get_field_by_name("at").map(|field| field.kind())
    else {
        unreachable!("the field is a message")
    };
    let mut at = DynamicMessage::new(time);
    at.set_field_by_name("seconds", Value::I64(1_700_000_000 + row));
    at.set_field_by_name("nanos", Value::I32(123_456_000));
    message.set_field_by_name("at", Value::Message(at));
    message.encode_to_vec()
}

#[allow(clippy::disallowed_methods, reason = "a benchmark measures the time that passes")]
fn time(work: impl FnOnce()) -> Duration {
    let start = std::time::Instant::now();
    work();
    start.elapsed()
}

fn report(name: &str, mut times: Vec<Duration>, bytes: usize) {
    times.sort();
    let seconds = times[ROUNDS / 2].as_secs_f64();
    println!(
        "{name:>24}: {:7.1} MB/s {:6.1} ns a record",
        bytes as f64 / seconds / 1e6,
        seconds * 1e9 / ROWS as f64
    );
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let schema = Schema::from_text(TEXT, &[], None)?;
    let columns = schema.columns(&Options::default())?;
    let projection: Vec<usize> = (0..columns.fields().len()).collect();
    let plan = Plan::new(&schema, &Options::default(), &columns, &projection)?;
    let mut decoder = Decoder::new(&columns, &projection)?;
    let encoder = Encoder::new(&schema, &columns)?;
    let records: Vec<Vec<u8>> = (0..ROWS as i64).map(|row| record(&schema, row)).collect();
    let bytes = records.iter().map(Vec::len).sum();

    let mut decode = || -> RecordBatch {
        records.iter().for_each(|record| decoder.append(&plan, record).expect("well-formed"));
        decoder.finish()
    };
    let batch = decode();
    let (mut ours, mut dynamic, mut encoding) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(time(|| drop(black_box(decode()))));
        dynamic.push(time(|| {
            for record in &records {
                let message = DynamicMessage::decode(schema.descriptor().clone(), &record[..]);
                drop(black_box(message.expect("well-formed")));
            }
        }));
        encoding.push(time(|| drop(black_box(encoder.encode(&batch, &[]).expect("fits")))));
    }
    println!("{ROWS} records of {} bytes on average, median of {ROUNDS}", bytes / ROWS);
    report("decoding to columns", ours, bytes);
    report("DynamicMessage::decode", dynamic, bytes);
    report("encoding", encoding, bytes);
    Ok(())
}

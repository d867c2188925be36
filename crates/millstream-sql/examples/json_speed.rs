//! How fast one core decodes and encodes JSON: `cargo run --release --example json_speed`.
//!
//! Prints one JSON object a line: what was measured, bytes a record, megabytes of text a second and
//! records a second. Numbers of a debug build say nothing.

use std::hint::black_box;

use arrow::array::{StringArray, StructArray};
use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use millstream_sql::json::{DecodeOptions, Decoder, EncodeOptions, encode};

/// Records in one call: about what a source hands over at once under load.
const RECORDS: usize = 8192;
/// Calls to measure; enough for some seconds.
const CALLS: usize = 400;

fn main() {
    let short = (0..RECORDS).map(|at| {
        format!(
            r#"{{"service":"checkout-{}","ts":"2026-01-01T00:00:{:02}.123Z","message":"paid order {at} in {} ms"}}"#,
            at % 17,
            at % 60,
            at % 900
        )
    });
    let short: StringArray = short.map(Some).collect();
    let columns = vec![
        Field::new("service", DataType::Utf8, true),
        Field::new("ts", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())), true),
        Field::new("message", DataType::Utf8, true),
    ];
    measure("short, all columns", &short, Schema::new(columns.clone()), &[0, 1, 2]);
    measure("short, one column", &short, Schema::new(columns), &[2]);

    let long: StringArray = (0..RECORDS).map(|at| Some(long_record(at))).collect();
    let reading = |name: &str| Field::new(name, DataType::Float64, true);
    let tags = DataType::new_list(DataType::Utf8, true);
    let place = vec![reading("latitude"), reading("longitude")];
    let columns = vec![
        Field::new("id", DataType::Int64, true),
        Field::new("temperature", DataType::Float64, true),
        Field::new("place", DataType::Struct(place.into()), true),
        Field::new("tags", tags, true),
        Field::new("text", DataType::Utf8, true),
    ];
    measure("long, all columns", &long, Schema::new(columns.clone()), &[0, 1, 2, 3, 4]);
    measure("long, two columns", &long, Schema::new(columns), &[0, 1]);
}

fn long_record(at: usize) -> String {
    let tags: Vec<String> =
        (0..12).map(|tag| format!("\"building-{}\"", (at + tag) % 50)).collect();
    let text = "the generator's bearing runs warm but within its limits; ".repeat(13);
    format!(
        r#"{{"id": {at}, "temperature": {}.25, "place": {{"latitude": 52.{at}, "longitude": 13.{at}}}, "tags": [{}], "text": "{text}"}}"#,
        at % 120,
        tags.join(", ")
    )
}

#[expect(clippy::disallowed_methods, reason = "a measurement needs the machine's own clock")]
fn measure(name: &str, records: &StringArray, schema: Schema, projection: &[usize]) {
    let options = DecodeOptions::default();
    let mut decoder = Decoder::new(&schema, projection, options).expect("the types are supported");
    let bytes = records.value_data().len();
    let started = std::time::Instant::now();
    let mut rows = None;
    for _ in 0..CALLS {
        let decoded =
            decoder.decode(black_box(records)).expect("permissive decoding has no errors");
        assert_eq!(decoded.malformed, 0, "the records were made to fit");
        rows = Some(black_box(decoded.rows));
    }
    report("decode", name, bytes, started.elapsed().as_secs_f64());

    let rows = StructArray::from(rows.expect("there was at least one call"));
    let started = std::time::Instant::now();
    let mut written = 0;
    for _ in 0..CALLS {
        let text = encode(black_box(&rows), EncodeOptions::default()).expect("the types have JSON");
        written = text.value_data().len();
    }
    report("encode", name, written, started.elapsed().as_secs_f64());
}

fn report(step: &str, name: &str, bytes_per_call: usize, seconds: f64) {
    let megabytes = (bytes_per_call * CALLS) as f64 / seconds / 1e6;
    let records = (RECORDS * CALLS) as f64 / seconds;
    let length = bytes_per_call / RECORDS;
    println!(
        r#"{{"bench":"json_{step}","case":"{name}","record_bytes":{length},"mb_per_s":{megabytes:.0},"records_per_s":{records:.0}}}"#
    );
}

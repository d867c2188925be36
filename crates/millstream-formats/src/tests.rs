//! Whatever a record contains is decoded or is malformed, and what is encoded is decoded again.

use std::sync::Arc;

use arrow::array::{BinaryArray, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use millstream_engine::api::options::Options;
use millstream_fuzz::Target;

use crate::csv::{CsvOptions, split_once};
use crate::records::Malformed;
use crate::{RecordEncoder, RecordFormat, excerpt, infer, text};

/// Columns of every type that has a text.
fn columns() -> Schema {
    let zone = || Some("UTC".into());
    Schema::new(vec![
        Field::new("t", DataType::Utf8, true),
        Field::new("n", DataType::Int64, true),
        Field::new("i", DataType::Int8, true),
        Field::new("d", DataType::Float64, true),
        Field::new("b", DataType::Boolean, true),
        Field::new("m", DataType::Decimal128(38, 10), true),
        Field::new("day", DataType::Date32, true),
        Field::new("at", DataType::Timestamp(TimeUnit::Microsecond, zone()), true),
        Field::new("local", DataType::Timestamp(TimeUnit::Microsecond, None), true),
    ])
}

fn options(entries: &[(&str, &str)]) -> Options {
    Options::new(entries.iter().map(|(key, value)| ((*key).into(), (*value).into())))
}

fn format_of(csv: &CsvOptions, columns: &Schema) -> RecordFormat {
    let malformed = Malformed::parse(&options(&[])).expect("options");
    RecordFormat::csv(columns, &malformed, csv.clone()).expect("the types have texts")
}

/// The lines of `rows`, each without its line break.
fn encoded(encoder: &RecordEncoder, rows: &RecordBatch) -> Vec<Vec<u8>> {
    let line = |row| {
        let mut line = Vec::new();
        encoder.write(&rows.slice(row, 1), &mut line).expect("it is in memory");
        assert_eq!(line.pop(), Some(b'\n'));
        line
    };
    (0..rows.num_rows()).map(line).collect()
}

fn records(input: &[u8]) -> BinaryArray {
    BinaryArray::from_iter_values(input.split(|byte| *byte == 0x1e))
}

#[test]
fn fuzz_separated_values() {
    let seeds = [
        "a,1,2,3.5,true,1.25,2026-03-02,2026-03-02T01:02:03Z,2026-03-02 01:02:03",
        "\"a,\"\"b\",,-1,NaN,FALSE,-99999999999999999999999999.9999999999,0001-01-01,,",
        "\\\"a\",\"x\"y,\"\\\"\"\n\"",
    ];
    let words = &["\"", "\"\"", ",", "\\", "\\\"", "\n", "\r\n", "2026-03-02T", "Z", "+01:00"];
    let kinds: [&[(&str, &str)]; 4] = [
        &[],
        &[("sep", ";"), ("quote", "'"), ("nullValue", "-")],
        &[("escape", "\""), ("header", "true")],
        &[("quote", ""), ("sep", "\t")],
    ];
    let csv: Vec<_> = kinds.iter().map(|kind| CsvOptions::parse(&options(kind))).collect();
    let csv: Vec<CsvOptions> = csv.into_iter().map(|csv| csv.expect("options")).collect();
    let columns = columns();
    let all: Vec<usize> = (0..columns.fields().len()).collect();
    Target::text("csv").seeds(seeds).words(words).run(move |input| {
        let mut outcomes = String::new();
        for csv in &csv {
            let format = format_of(csv, &columns);
            let _ = (split_once(input, csv), infer::csv_columns(input, csv));
            let values = records(input);
            let mut problems = Vec::new();
            let mut reject = |_: usize, problem: String| problems.push(problem);
            let decoded = format.decoder(&all).decode_apart(&values, &mut reject);
            outcomes.push_str(&format!("{} {} ", decoded.rows.num_rows() > 0, problems.join(" ")));
            // Text without quotes cannot hold separators, so it need not come back.
            let encoder = RecordEncoder::Csv(csv.clone());
            if csv.quote.is_some() && encoder.check(&columns).is_ok() {
                let lines = encoded(&encoder, &decoded.rows);
                let lines = BinaryArray::from_iter_values(lines);
                let again = format.decoder(&all).decode(&lines).expect("it is permissive");
                assert_eq!(again.rows, decoded.rows, "{csv:?}");
            }
        }
        outcomes
    });
}

fn nested() -> SchemaRef {
    let inner = Schema::new(vec![Field::new("x", DataType::Int32, true)]);
    let list = Field::new_list_field(DataType::Struct(inner.fields().clone()), true);
    let entries = vec![
        Field::new("key", DataType::Utf8, false),
        Field::new("value", DataType::Float64, true),
    ];
    let entries = Field::new("entries", DataType::Struct(entries.into()), false);
    let mut fields = columns().fields().to_vec();
    fields.push(Arc::new(Field::new("l", DataType::List(Arc::new(list)), true)));
    fields.push(Arc::new(Field::new("map", DataType::Map(Arc::new(entries), false), true)));
    fields.push(Arc::new(Field::new("bin", DataType::Binary, true)));
    Arc::new(Schema::new(fields))
}

#[test]
fn fuzz_json_records() {
    let seeds = [
        r#"{"t":"a\u00e9\n","n":1,"i":-7,"d":1e3,"b":true,"m":1.25,"day":"2026-03-02",
            "at":"2026-03-02T01:02:03.004Z","local":"2026-03-02T01:02:03","bin":"AAEC"}"#,
        r#"{"l":[{"x":1},null,{"X":2,"y":[[],{}]}],"map":{"a":1,"b":null,"a":-0.0}}"#,
        r#"{"t":{"a":[1, 2]},"n":"5","d":"NaN","m":"1","i":300,"b":"true","at":5,"day":19000}"#,
    ];
    let words = &[
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        "\"t\":",
        "\"n\":",
        "\"d\":",
        "\"m\":",
        "\"at\":",
        "\"l\":",
        "\"map\":",
        "\"bin\":",
        "\"day\":",
        "null",
        "\\u",
        "\\ud800",
        "-Infinity",
        "\"+1\"",
    ];
    let columns = nested();
    let malformed = Malformed::parse(&options(&[])).expect("options");
    let format = RecordFormat::json(&columns, &malformed).expect("JSON has the types");
    let all: Vec<usize> = (0..columns.fields().len()).collect();
    Target::text("json").seeds(seeds).words(words).run(move |input| {
        let mut problems = String::new();
        let values = records(input);
        let mut reject = |_: usize, problem: String| problems.push_str(&problem);
        let decoded = format.decoder(&all).decode_apart(&values, &mut reject);
        let encoder = RecordEncoder::Json { ignore_null_fields: true };
        let lines = encoded(&encoder, &decoded.rows);
        for line in &lines {
            serde_json::from_slice::<serde_json::Value>(line).expect("it is JSON");
        }
        // JSON's times have milliseconds, so they are compared as text.
        let values = BinaryArray::from_iter_values(&lines);
        let again = format.decoder(&all).decode(&values).expect("it is permissive");
        assert_eq!(again.malformed, 0);
        let relined = encoded(&encoder, &again.rows);
        let as_text = |lines: &[Vec<u8>]| String::from_utf8_lossy(&lines.join(&b'\n')).into_owned();
        assert_eq!(as_text(&relined), as_text(&lines));
        format!("{} {problems}", decoded.rows.num_rows() > 0)
    });
}

/// Columns that are found out from samples, and raw bytes as text.
#[test]
fn fuzz_samples_and_text() {
    let seeds = [r#"{"a":1,"b":{"c":[1,2.5,"x"]},"d":null}"#, r#"{"a":[{"x":1},{"x":null}]}"#];
    let words = &["{", "}", "[", "]", "\"a\":", "null", "1.5", "true", "\u{1e}"];
    Target::text("samples").seeds(seeds).words(words).run(|input| {
        let sample: Vec<serde_json::Value> = input
            .split(|byte| *byte == 0x1e)
            .filter_map(|record| serde_json::from_slice(record).ok())
            .collect();
        let columns = infer::json_columns(&sample);
        if let Ok(columns) = &columns {
            let malformed = Malformed::parse(&options(&[])).expect("options");
            let _ = RecordFormat::json(columns, &malformed);
        }
        let _ = (excerpt(input), text::lossy(&records(input)));
        let length = i32::try_from(input.len()).expect("it is small");
        let strict = text::strict(input.to_vec(), vec![0, length / 2, length]);
        format!("{} {}", columns.is_ok(), strict.is_ok())
    });
}

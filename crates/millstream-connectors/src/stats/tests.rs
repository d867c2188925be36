//! The sketch against sorted values, and the sink against a clock moved by hand.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, Int64Array, RecordBatch, TimestampMicrosecondArray, TimestampSecondArray,
};
use arrow::datatypes::Schema;
use millstream_engine::api::options::Options;
use millstream_engine::api::sink::{BatchId, EndOffsets, Output, Sink};
use serde_json::Value;

use super::{LatencySketch, StatsOptions, StatsSink};
use crate::testing::ManualClock;

fn options(entries: &[(&str, &str)]) -> Options {
    Options::new(entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())))
}

fn rows(times: Vec<Option<i64>>) -> RecordBatch {
    let values: ArrayRef = Arc::new(Int64Array::from(vec![0; times.len()]));
    let times: ArrayRef = Arc::new(TimestampMicrosecondArray::from(times).with_timezone("UTC"));
    RecordBatch::try_from_iter_with_nullable([("n", values, true), ("t", times, true)]).unwrap()
}

fn output(record_batches: Vec<RecordBatch>) -> Output {
    Output {
        batch_id: BatchId(0),
        partitions: vec![record_batches],
        end_offsets: EndOffsets::default(),
    }
}

#[test]
fn few_values_are_exact() {
    let mut sketch = LatencySketch::new();
    assert!(sketch.summary().is_none());
    for latency_ms in 1..=1_000 {
        sketch.record_ms(f64::from(latency_ms));
    }
    let summary = sketch.summary().unwrap();
    assert_eq!((summary.count, summary.p50_ms, summary.p90_ms), (1_000, 500.0, 900.0));
    assert_eq!((summary.p99_ms, summary.p999_ms, summary.max_ms), (990.0, 999.0, 1_000.0));
}

#[test]
fn many_values_keep_the_tail() {
    const COUNT: i64 = 400_000;
    let mut merged = LatencySketch::new();
    for part in 0..4 {
        let mut sketch = LatencySketch::new();
        // A permutation, so that order does not help.
        (0..COUNT).skip(part).step_by(4).for_each(|i| sketch.record_us((i * 7_919) % COUNT));
        merged.merge(&sketch);
    }
    assert_eq!(merged.count(), COUNT as u64);
    for rank in [0.5, 0.99, 0.999] {
        let found = merged.quantile_us(rank).unwrap() as f64 / COUNT as f64;
        assert!((found - rank).abs() < 0.0004, "rank {rank} came out as {found}");
    }
    assert_eq!(merged.quantile_us(1.0), Some(COUNT - 1));
}

#[tokio::test]
async fn the_report_has_intervals_and_the_whole_run() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("report.jsonl");
    let clock = ManualClock::at(10_000_000);
    let entries = options(&[("reportInterval", "1s"), ("path", "unused")]);
    let options = StatsOptions::parse(&entries, &rows(vec![]).schema()).unwrap();
    assert_eq!(options.timestamp_column, 1);
    let mut sink = StatsSink::new(options, Some(file.clone()), clock.env());
    sink.open().await.unwrap();
    let ages = |now_us: i64, ages_us: &[i64]| {
        rows(ages_us.iter().map(|age_us| Some(now_us - age_us)).chain([None]).collect())
    };
    sink.publish(output(vec![ages(10_000_000, &[2_000, 4_000])]))
        .await
        .unwrap()
        .accepted()
        .await
        .unwrap();
    clock.advance_us(1_000_000);
    let second = output(vec![ages(11_000_000, &[6_000]), ages(11_000_000, &[8_500])]);
    sink.publish(second).await.unwrap().accepted().await.unwrap();
    assert_eq!(sink.last_micro_batch().count(), 2);
    clock.advance_us(1_000_000);
    sink.close().await.unwrap();

    let text = std::fs::read_to_string(file).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert_eq!(lines[0]["stats"], "interval");
    assert_eq!(lines[1]["stats"], "overall");
    assert_eq!((&lines[1]["count"], &lines[1]["nulls"]), (&4.into(), &3.into()));
    assert_eq!(lines[1]["p50_ms"], 4.0);
    assert_eq!(lines[1]["max_ms"], 8.5);
    assert_eq!(lines[1]["micro_batches"], 2);
    assert_eq!(lines[1]["seconds"], 2.0);
    assert_eq!(lines[1]["rows_per_second"], 3.5);
}

#[tokio::test]
async fn timestamps_of_any_unit_count() {
    let clock = ManualClock::at(100_500_000);
    let times: ArrayRef = Arc::new(TimestampSecondArray::from(vec![100]));
    let rows = RecordBatch::try_from_iter([("t", times)]).unwrap();
    let options = StatsOptions::parse(&options(&[]), &rows.schema()).unwrap();
    let mut sink = StatsSink::new(options, None, clock.env());
    sink.publish(output(vec![rows])).await.unwrap().accepted().await.unwrap();
    assert_eq!(sink.overall().unwrap().quantile_us(0.5), Some(500_000));
}

#[tokio::test]
async fn a_report_that_cannot_be_written_is_found_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("no/such/directory/report");
    let options = StatsOptions::parse(&options(&[]), &rows(vec![]).schema()).unwrap();
    let mut sink = StatsSink::new(options, Some(file.clone()), ManualClock::at(0).env());
    let error = sink.open().await.unwrap_err().to_string();
    assert!(error.contains(file.to_str().unwrap()), "{error}");
}

#[test]
fn options_are_checked() {
    let schema = rows(vec![]).schema();
    let wrong = |entries: &[(&str, &str)]| {
        StatsOptions::parse(&options(entries), &schema).unwrap_err().key.unwrap()
    };
    assert_eq!(wrong(&[("timestampColumn", "n")]), "timestampColumn");
    assert_eq!(wrong(&[("timestampColumn", "missing")]), "timestampColumn");
    assert_eq!(wrong(&[("reportInterval", "0s")]), "reportInterval");
    assert_eq!(wrong(&[("output", "stderr"), ("path", "x")]), "output");
    assert_eq!(wrong(&[("output", "s3://bucket/x")]), "output");
    let without = Schema::new(vec![schema.field(0).clone()]);
    assert!(StatsOptions::parse(&options(&[]), &without).is_err());
}

//! When micro-batches start and when a run ends, and what a run tells about itself.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

use crate::kafka::free_port;
use crate::millstream::{Finished, Pipeline, progress, table};
use crate::wait;

/// Rows on a clock into nothing.
fn rate_to_noop(sink: &[(&str, &str)]) -> Pipeline {
    Pipeline::new(&format!(
        "{}{}CREATE FLOW ticks AS INSERT INTO nothing SELECT timestamp, value FROM STREAM clock;\n",
        table("clock", "", "rate", &[("rowsPerSecond", "1000"), ("numPartitions", "1")]),
        table("nothing", "", "noop", sink),
    ))
}

/// Three input files with two rows each, at most one file in a micro-batch.
fn three_files() -> Pipeline {
    let source = [("path", "input"), ("maxFilesPerTrigger", "1")];
    let pipeline = Pipeline::new(&format!(
        "{}{}CREATE FLOW copy AS INSERT INTO target SELECT n FROM STREAM source;\n",
        table("source", "(n BIGINT)", "json", &source),
        table("target", "", "json", &[("path", "output")]),
    ));
    std::fs::create_dir(pipeline.path("input")).expect("the directory is writable");
    for file in 0..3 {
        let text = format!("{{\"n\":{}}}\n{{\"n\":{}}}\n", 2 * file, 2 * file + 1);
        std::fs::write(pipeline.path(&format!("input/{file}.json")), text).expect("it is writable");
    }
    pipeline
}

fn rows_in(finished: &Finished) -> Vec<u64> {
    let rows = |progress: &Value| progress["numInputRows"].as_u64().expect("it is a count");
    finished.progress().iter().map(rows).collect()
}

/// The milliseconds within its second when a micro-batch's trigger fired.
fn millisecond_of_second(progress: &Value) -> u32 {
    let timestamp = progress["timestamp"].as_str().expect("it is text");
    let (_, fraction) = timestamp.split_once('.').expect("it has milliseconds");
    fraction.strip_suffix('Z').and_then(|ms| ms.parse().ok()).expect("it ends in .123Z")
}

#[test]
fn once_is_one_micro_batch_whatever_the_limits() {
    let pipeline = three_files();
    let once = ["--trigger", "once", "--progress", "json"];
    assert_eq!(rows_in(&pipeline.run(&once).expect_success()), [6]);
    assert_eq!(pipeline.checkpoint().ids("commits"), [0]);
}

#[test]
fn available_now_keeps_the_limits_and_ends() {
    let pipeline = three_files();
    let available = ["--trigger", "availableNow", "--progress", "json"];
    assert_eq!(rows_in(&pipeline.run(&available).expect_success()), [2, 2, 2]);
    assert_eq!(pipeline.checkpoint().ids("commits"), [0, 1, 2]);
    assert!(pipeline.run(&available).expect_success().progress().is_empty());
}

#[test]
fn a_trigger_in_the_pipeline_file_counts_and_a_flag_goes_before_it() {
    let pipeline = rate_to_noop(&[("trigger", "1 second")]);
    let count = |flags: &[&str]| {
        let flags = [flags, &["--for", "2 seconds", "--progress", "json"]].concat();
        pipeline.run(&flags).expect_success().progress().len()
    };
    let by_file = count(&[]);
    assert!((1..=4).contains(&by_file), "{by_file} micro-batches in two seconds");
    let by_flag = count(&["--trigger", "0 seconds"]);
    assert!(by_flag > 10, "{by_flag} micro-batches in two seconds");
}

#[test]
fn an_interval_is_aligned_to_the_clock() {
    let pipeline = rate_to_noop(&[]);
    let flags = ["--trigger", "1 second", "--for", "5 seconds", "--progress", "json"];
    let finished = pipeline.run(&flags).expect_success();
    let progress = finished.progress();
    assert!((3..=7).contains(&progress.len()), "{}", finished.stdout);
    // The first one starts at once, wherever the clock stands.
    for micro_batch in &progress[1..] {
        let late_ms = millisecond_of_second(micro_batch);
        assert!(late_ms < 500, "{late_ms} ms after the tick: {micro_batch}");
    }
    // The second one has what has come since the first, which is any part of a second.
    for micro_batch in &progress[2..] {
        // A second of rows, less or more by half a second between two ticks.
        let rows = micro_batch["numInputRows"].as_u64().expect("it is a count");
        assert!((300..=2_000).contains(&rows), "{rows} rows of a second: {micro_batch}");
    }
}

#[test]
fn a_run_ends_after_the_time_it_was_given() {
    let pipeline = rate_to_noop(&[]);
    let (finished, took) = wait::timed(|| pipeline.run(&["--for", "2 seconds"]));
    finished.expect_success();
    assert!(took >= Duration::from_secs(2), "after {took:?}");
    assert!(took < Duration::from_secs(20), "after {took:?}");
    let checkpoint = pipeline.checkpoint();
    assert_eq!(checkpoint.latest("offsets"), checkpoint.latest("commits"));
}

#[test]
fn ctrl_c_ends_after_the_micro_batch_in_hand() {
    let pipeline = rate_to_noop(&[]);
    let mut running = pipeline.start(&[]);
    let checkpoint = pipeline.checkpoint();
    running.wait_while_running("a few commits", || checkpoint.ids("commits").len() > 3);
    let finished = running.stop().expect_success();
    assert_eq!(checkpoint.latest("offsets"), checkpoint.latest("commits"));
    assert!(!finished.stderr.contains(['\r', '\x1b']), "no terminal, no decoration");
}

#[test]
fn progress_objects_have_the_keys_of_spark() {
    let pipeline = three_files();
    let flags = ["--trigger", "availableNow", "--progress", "json"];
    let finished = pipeline.run(&flags).expect_success();
    let progress = finished.progress();
    let [first, second] = [&progress[0], &progress[1]];
    let keys = |value: &Value| -> Vec<String> {
        value.as_object().unwrap_or_else(|| panic!("{value}")).keys().cloned().collect()
    };
    // A rate needs a micro-batch before; Spark leaves out what it does not know.
    let expected = [
        "id",
        "runId",
        "name",
        "timestamp",
        "batchId",
        "batchDuration",
        "numInputRows",
        "inputRowsPerSecond",
        "processedRowsPerSecond",
        "durationMs",
        "stateOperators",
        "sources",
        "sink",
        // Not one of Spark's.
        "latencyMs",
    ];
    assert_eq!(keys(second), expected);
    let without_rate: Vec<_> =
        expected.into_iter().filter(|key| *key != "inputRowsPerSecond").collect();
    assert_eq!(keys(first), without_rate);

    let durations = keys(&second["durationMs"]);
    let expected = [
        "addBatch",
        "commitOffsets",
        "getBatch",
        "latestOffset",
        "queryPlanning",
        "triggerExecution",
        "walCommit",
    ];
    assert_eq!(durations, expected);
    let source = keys(&second["sources"][0]);
    for key in ["description", "startOffset", "endOffset", "numInputRows"] {
        assert!(source.iter().any(|found| found == key), "no {key} in {source:?}");
    }
    assert_eq!(second["name"], "copy");
    assert_eq!(second["batchId"], 1);
    assert_eq!(second["sources"][0]["endOffset"], serde_json::json!({ "logOffset": 1 }));
    assert_eq!(second["sources"][0]["startOffset"], serde_json::json!({ "logOffset": 0 }));
    assert_eq!(second["sink"]["numOutputRows"], 2);
    assert_eq!(second["stateOperators"], serde_json::json!([]));
    assert_same_identity(&pipeline, &progress);
}

/// `id` is the checkpoint's and survives a restart, `runId` is the run's.
fn assert_same_identity(pipeline: &Pipeline, progress: &[Value]) {
    let metadata = std::fs::read(pipeline.path("checkpoint/metadata")).expect("it was written");
    let metadata: Value = serde_json::from_slice(&metadata).expect("it is JSON");
    std::fs::write(pipeline.path("input/more.json"), "{\"n\":7}\n").expect("it is writable");
    let flags = ["--trigger", "availableNow", "--progress", "json"];
    let again = pipeline.run(&flags).expect_success().progress();
    let all: Vec<_> = progress.iter().chain(&again).collect();
    assert!(all.iter().all(|progress| progress["id"] == metadata["id"]));
    let runs: BTreeSet<_> = all.iter().map(|progress| progress["runId"].to_string()).collect();
    assert_eq!(runs.len(), 2);
}

#[test]
fn metrics_are_served_while_it_runs() {
    let address = format!("127.0.0.1:{}", free_port());
    let pipeline = rate_to_noop(&[]);
    let mut running = pipeline.start(&["--metrics", &address, "--progress", "json"]);
    let mut text = String::new();
    running.wait_while_running("metrics that count rows", || {
        text = metrics(&address).unwrap_or_default();
        samples(&text).iter().any(|(name, value)| name.contains("ticks") && *value > 0.0)
    });
    // Each is written by a task of its own.
    wait::until_true("progress", wait::SOON, || !progress(&running.stdout()).is_empty());
    running.stop().expect_success();
    assert!(text.contains("# TYPE millstream_"), "names have a prefix:\n{text}");
    assert!(metrics(&address).is_none(), "nobody listens after the end");
}

/// The page of metrics; `None` if nobody listens.
pub fn metrics(address: &str) -> Option<String> {
    let mut connection = TcpStream::connect(address).ok()?;
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).ok()?;
    let mut response = String::new();
    connection.read_to_string(&mut response).ok()?;
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    Some(response.split_once("\r\n\r\n")?.1.to_owned())
}

/// The samples of Prometheus' text format: name with labels, and value.
fn samples(text: &str) -> Vec<(&str, f64)> {
    let lines = text.lines().filter(|line| line.starts_with("millstream_"));
    lines.filter_map(|line| line.rsplit_once(' ')).filter_map(parse_sample).collect()
}

fn parse_sample<'a>((name, value): (&'a str, &str)) -> Option<(&'a str, f64)> {
    value.parse().ok().map(|value| (name, value))
}

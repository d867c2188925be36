//! Where a new query starts to read Kafka: each of Spark's forms.

use crate::kafka;
use crate::millstream::{Finished, Pipeline, table};
use crate::topics::{Record, Topics, sorted_values};

/// The timestamp of record 0 of each partition; the others follow a second apart.
const START_MS: i64 = 1_700_000_000_000;

/// A topic of two partitions with five records each, `<partition>-<number>`.
fn fill(topics: &Topics, topic: &str) {
    topics.create(topic, 2);
    let record = |partition: i32, number: i64| {
        let at_ms = START_MS + number * 1_000;
        Record::of(format!("{partition}-{number}")).to(partition).at_ms(at_ms)
    };
    topics.produce(topic, (0..5).flat_map(|number| [0, 1].map(|p| record(p, number))));
}

/// A pipeline from `input` to a new topic `output`, values as they are.
fn copy(input: &str, output: &str, options: &[(&str, &str)]) -> Pipeline {
    let broker = kafka::shared();
    broker.topics().create(output, 1);
    let servers = broker.address();
    let mut source = vec![("kafka.bootstrap.servers", servers.as_str()), ("subscribe", input)];
    source.extend(options);
    let sink = [
        ("kafka.bootstrap.servers", servers.as_str()),
        ("topic", output),
        ("delivery", "at-least-once"),
    ];
    Pipeline::new(&format!(
        "{}{}INSERT INTO target SELECT value FROM STREAM source;\n",
        table("source", "", "kafka", &source),
        table("target", "", "kafka", &sink),
    ))
}

fn copied(input: &str, output: &str, options: &[(&str, &str)]) -> Vec<String> {
    copy(input, output, options).run_available();
    sorted_values(&kafka::shared().topics().read(output))
}

fn refused(input: &str, output: &str, options: &[(&str, &str)]) -> Finished {
    copy(input, output, options).run(&["--trigger", "availableNow"]).without_internals()
}

fn values(partition: i32, numbers: std::ops::Range<i64>) -> Vec<String> {
    numbers.map(|number| format!("{partition}-{number}")).collect()
}

#[test]
fn earliest_and_offsets_by_partition() {
    fill(kafka::shared().topics(), "starts_offsets");
    let everything = [values(0, 0..5), values(1, 0..5)].concat();
    let earliest = [("startingOffsets", "earliest")];
    assert_eq!(copied("starts_offsets", "starts_earliest", &earliest), everything);

    let by_partition = r#"{"starts_offsets":{"0":3,"1":-2}}"#;
    let expected = [values(0, 3..5), values(1, 0..5)].concat();
    let found = copied("starts_offsets", "starts_json", &[("STARTINGOFFSETS", by_partition)]);
    assert_eq!(found, expected);

    let with_latest = r#"{"starts_offsets":{"0":-1,"1":4}}"#;
    let found = copied("starts_offsets", "starts_json_latest", &[("startingOffsets", with_latest)]);
    assert_eq!(found, values(1, 4..5));
}

#[test]
fn latest_is_the_default_and_is_remembered_between_runs() {
    let topics = kafka::shared().topics();
    fill(topics, "starts_latest");
    let pipeline = copy("starts_latest", "starts_latest_out", &[]);
    pipeline.run_available();
    assert_eq!(topics.written("starts_latest_out"), 0);
    assert_eq!(pipeline.checkpoint().kafka_start("starts_latest"), [(0, 5), (1, 5)].into());

    // Written between two runs of one query: the query had started, so it must not miss them.
    topics.produce_values("starts_latest", ["between"]);
    pipeline.run_available();
    assert_eq!(sorted_values(&topics.read("starts_latest_out")), ["between"]);
}

#[test]
fn timestamps() {
    fill(kafka::shared().topics(), "starts_times");
    let at = |seconds: i64| (START_MS + seconds * 1_000).to_string();

    let found = copied("starts_times", "starts_time", &[("startingTimestamp", &at(2))]);
    assert_eq!(found, [values(0, 2..5), values(1, 2..5)].concat());

    let by_partition = format!(r#"{{"starts_times":{{"0":{},"1":{}}}}}"#, at(1), at(4));
    // The timestamp option goes before the plain one, whatever that says.
    let options =
        [("startingOffsetsByTimestamp", by_partition.as_str()), ("startingOffsets", "latest")];
    let found = copied("starts_times", "starts_by_time", &options);
    assert_eq!(found, [values(0, 1..5), values(1, 4..5)].concat());
}

#[test]
fn a_timestamp_after_the_last_record_is_an_error_unless_latest_is_asked_for() {
    fill(kafka::shared().topics(), "starts_future");
    let future = (START_MS + 1_000_000).to_string();
    let options = [("startingTimestamp", future.as_str())];
    refused("starts_future", "starts_future_refused", &options).expect_exit(1).says(&[
        "starts_future",
        &future,
        "startingOffsetsByTimestampStrategy",
    ]);

    let options = [options[0], ("startingOffsetsByTimestampStrategy", "latest")];
    assert!(copied("starts_future", "starts_future_out", &options).is_empty());
}

#[test]
fn offsets_that_leave_a_partition_out_are_refused() {
    fill(kafka::shared().topics(), "starts_partial");
    let options = [("startingOffsets", r#"{"starts_partial":{"0":1}}"#)];
    refused("starts_partial", "starts_partial_out", &options)
        .expect_exit(1)
        .says(&["startingOffsets", "starts_partial"]);
}

#[test]
fn offsets_that_are_no_offsets_are_refused_before_anything_is_touched() {
    for wrong in ["newest", r#"{"t":[0]}"#, r#"{"t":{"zero":1}}"#] {
        copy_without_broker(&[("subscribe", "t"), ("startingOffsets", wrong)])
            .run(&[])
            .without_internals()
            .expect_exit(2)
            .says(&["pipeline.sql:3:", "startingOffsets", "earliest"]);
    }
}

#[test]
fn exactly_one_way_to_name_topics() {
    let both = [("subscribe", "a"), ("subscribePattern", "b.*")];
    for options in [&both[..], &[]] {
        copy_without_broker(options).run(&[]).without_internals().expect_exit(2).says(&[
            "subscribe",
            "subscribePattern",
            "assign",
        ]);
    }
}

/// A pipeline that must be refused before a connection is tried.
fn copy_without_broker(options: &[(&str, &str)]) -> Pipeline {
    let mut source = vec![("kafka.bootstrap.servers", "127.0.0.1:1")];
    source.extend(options);
    let flow = "INSERT INTO target SELECT value FROM STREAM source;\n";
    let source = table("source", "", "kafka", &source);
    Pipeline::new(&format!("{source}{}{flow}", table("target", "", "noop", &[])))
}

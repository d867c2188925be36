//! Kafka as operators know it: limits, patterns, new partitions, headers, groups, client settings.

use serde_json::Value;

use crate::kafka;
use crate::millstream::{Pipeline, table};
use crate::topics::{Received, Record, sorted_values};
use crate::wait;

/// A pipeline from Kafka to Kafka on the shared broker; `select` is all that follows `SELECT`.
fn pipeline(source: &[(&str, &str)], sink: &[(&str, &str)], select: &str) -> Pipeline {
    let servers = kafka::shared().address();
    let with_servers = |options: &[(&str, &str)]| -> Vec<(String, String)> {
        let servers = [("kafka.bootstrap.servers", servers.as_str())];
        servers.iter().chain(options).map(|(k, v)| ((*k).into(), (*v).into())).collect()
    };
    let declare = |name: &str, options: &[(&str, &str)]| {
        let options = with_servers(options);
        let options: Vec<_> = options.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        table(name, "", "kafka", &options)
    };
    // Tests here count what is written, and transactions write markers.
    let sink = [sink, &[("delivery", "at-least-once")]].concat();
    let (source, sink) = (declare("source", source), declare("target", &sink));
    Pipeline::new(&format!("{source}{sink}INSERT INTO target BY NAME SELECT {select};\n"))
}

const EARLIEST: (&str, &str) = ("startingOffsets", "earliest");

#[test]
fn a_micro_batch_reads_no_more_than_asked_for_and_shares_it_out() {
    let topics = kafka::shared().topics();
    topics.create("limit_in", 3);
    topics.create("limit_out", 1);
    topics.produce("limit_in", (0..1_800).map(|n| Record::of(format!("a{n}")).to(0)));
    topics.produce("limit_in", (0..200).map(|n| Record::of(format!("b{n}")).to(1)));
    let source = [("subscribe", "limit_in"), EARLIEST, ("maxOffsetsPerTrigger", "20")];
    let pipeline = pipeline(&source, &[("topic", "limit_out")], "value FROM STREAM source");
    pipeline.run_available();

    let checkpoint = pipeline.checkpoint();
    let sizes = checkpoint.kafka_batch_sizes("limit_in");
    assert!(sizes.iter().all(|size| (1..=20).contains(size)), "{sizes:?}");
    assert_eq!(sizes.iter().sum::<i64>(), 2_000);
    assert!(sizes.len() <= 110, "micro-batches are not smaller than they need be: {sizes:?}");
    // Shares are of what has been read by then, so the first micro-batches differ from run to run;
    // but if a partition waited for another's end, it would still wait here.
    let early = checkpoint.kafka_end(80, "limit_in");
    assert!(early[&0] > 0 && early[&1] > 0, "no partition waits for another's end: {early:?}");
    assert_eq!(early.get(&2), Some(&0), "an empty partition is in the log too");
    assert_eq!(topics.written("limit_out"), 2_000);
}

#[test]
fn topics_by_pattern() {
    let topics = kafka::shared().topics();
    for topic in ["pattern_a1", "pattern_a2", "pattern_b1", "pattern_out"] {
        topics.create(topic, 1);
        if topic != "pattern_out" {
            topics.produce_values(topic, [topic]);
        }
    }
    let source = [("subscribePattern", "pattern_a[0-9]"), EARLIEST];
    let pipeline = pipeline(
        &source,
        &[("topic", "pattern_out")],
        "concat(topic, '=', CAST(value AS STRING)) AS value FROM STREAM source",
    );
    pipeline.run_available();
    let found = sorted_values(&topics.read("pattern_out"));
    assert_eq!(found, ["pattern_a1=pattern_a1", "pattern_a2=pattern_a2"]);

    topics.create("pattern_a3", 1);
    topics.produce_values("pattern_a3", ["late"]);
    pipeline.run_available();
    let found = sorted_values(&topics.read("pattern_out"));
    assert_eq!(found.last().map(String::as_str), Some("pattern_a3=late"));
    assert_eq!(found.len(), 3);
}

#[test]
fn partitions_by_assignment() {
    let topics = kafka::shared().topics();
    topics.create("assign_in", 3);
    topics.create("assign_out", 1);
    topics.produce("assign_in", (0..3).map(|p| Record::of(format!("p{p}")).to(p)));
    let source = [("assign", r#"{"assign_in":[0,2]}"#), EARLIEST];
    let pipeline = pipeline(&source, &[("topic", "assign_out")], "value FROM STREAM source");
    pipeline.run_available();
    assert_eq!(sorted_values(&topics.read("assign_out")), ["p0", "p2"]);
    let checkpoint = pipeline.checkpoint();
    let last = checkpoint.latest("commits");
    assert_eq!(checkpoint.kafka_end(last, "assign_in"), [(0, 1), (2, 1)].into());
}

#[test]
fn every_column_of_a_record_can_be_read() {
    let topics = kafka::shared().topics();
    topics.create("columns_in", 2);
    topics.create("columns_out", 1);
    topics.produce("columns_in", [Record::of("v").key("k").to(1).at_ms(1_700_000_000_123)]);
    let pipeline = pipeline(
        &[("subscribe", "columns_in"), EARLIEST],
        &[("topic", "columns_out")],
        "to_json(struct(CAST(key AS STRING) AS key, CAST(value AS STRING) AS value, topic, \
         partition, offset, timestampType, \
         unix_millis(timestamp) AS ms)) AS value FROM STREAM source",
    );
    pipeline.run_available();
    let expected = r#"{"key":"k","value":"v","topic":"columns_in","partition":1,"offset":0,"timestampType":0,"ms":1700000000123}"#;
    assert_eq!(sorted_values(&topics.read("columns_out")), [expected]);
}

#[test]
fn headers_keys_topics_and_partitions_reach_the_sink() {
    let topics = kafka::shared().topics();
    topics.create("columns_a", 1);
    topics.create("columns_b", 3);
    topics.create("columns_c", 3);
    let plain = Record::of("plain");
    let tombstone = Record { value: None, ..Record::default().key("gone") };
    let full = Record::of("full").key("k").header("trace", b"1").header("trace", b"\x00\xff");
    topics.produce("columns_a", [plain, tombstone, full].map(|record| record.to(0)));
    let pipeline = pipeline(
        &[("subscribe", "columns_a"), EARLIEST, ("includeHeaders", "true")],
        &[],
        "key, value, headers, 2 AS partition, \
         CASE WHEN value IS NULL THEN 'columns_c' ELSE 'columns_b' END AS topic \
         FROM STREAM source",
    );
    pipeline.run_available();

    let found = topics.read("columns_b");
    assert!(found.iter().all(|record| record.partition == 2), "{found:?}");
    let [plain, full] = <[Received; 2]>::try_from(found).expect("two records went there");
    assert_eq!((plain.key.as_deref(), plain.value(), plain.headers.len()), (None, "plain", 0));
    let header = |value: &[u8]| ("trace".to_owned(), Some(value.to_vec()));
    assert_eq!((full.key.as_deref(), full.value.as_deref()), (Some("k"), Some("full")));
    assert_eq!(full.headers, [header(b"1"), header(b"\x00\xff")]);
    let [gone] = <[Received; 1]>::try_from(topics.read("columns_c")).expect("one went there");
    assert_eq!((gone.key.as_deref(), gone.value), (Some("gone"), None));
}

#[test]
fn a_sink_without_a_topic_is_refused() {
    let pipeline = pipeline(&[("subscribe", "t")], &[], "value FROM STREAM source");
    let finished = pipeline.run(&[]).without_internals().expect_exit(2);
    finished.says(&["pipeline.sql:", "topic"]);
}

#[test]
fn a_new_partition_is_picked_up_while_running() {
    let topics = kafka::shared().topics();
    topics.create("grow_in", 1);
    topics.create("grow_out", 1);
    topics.produce_values("grow_in", ["old"]);
    let source = [("subscribe", "grow_in"), EARLIEST];
    let pipeline = pipeline(&source, &[("topic", "grow_out")], "value FROM STREAM source");
    let mut running = pipeline.start(&[]);
    running.wait_while_running("the first record", || topics.written("grow_out") == 1);

    topics.grow("grow_in", 3);
    topics.produce("grow_in", (1..3).map(|p| Record::of(format!("new{p}")).to(p)));
    running.wait_while_running("the new partitions", || topics.written("grow_out") == 3);
    running.stop().expect_success();
    assert_eq!(sorted_values(&topics.read("grow_out")), ["new1", "new2", "old"]);
    let checkpoint = pipeline.checkpoint();
    let end = checkpoint.kafka_end(checkpoint.latest("commits"), "grow_in");
    assert_eq!(end, [(0, 1), (1, 1), (2, 1)].into());
}

#[test]
fn a_new_partition_is_picked_up_by_a_restart_from_its_earliest_record() {
    let topics = kafka::shared().topics();
    topics.create("regrow_in", 1);
    topics.create("regrow_out", 1);
    // `latest` is only for partitions that are there when the query is new.
    let source = [("subscribe", "regrow_in"), ("startingOffsets", "latest")];
    let pipeline = pipeline(&source, &[("topic", "regrow_out")], "value FROM STREAM source");
    pipeline.run_available();
    topics.grow("regrow_in", 2);
    topics.produce("regrow_in", [Record::of("new").to(1)]);
    pipeline.run_available();
    assert_eq!(sorted_values(&topics.read("regrow_out")), ["new"]);
}

#[test]
fn progress_shows_in_the_consumer_group() {
    let topics = kafka::shared().topics();
    topics.create("group_in", 2);
    topics.create("group_out", 1);
    topics.produce("group_in", (0..10).map(|n| Record::of(n.to_string()).to(n % 2)));
    let group = ("kafka.group.id", "group_of_the_test");
    let source = [("subscribe", "group_in"), EARLIEST, group];
    let pipeline = pipeline(&source, &[("topic", "group_out")], "value FROM STREAM source");
    // The last commit is waited for, but no longer than it takes.
    pipeline.run_available().says_not(&["may lack the last offsets"]);
    assert_eq!(topics.committed(group.1, "group_in"), topics.ends("group_in"));
}

#[test]
fn client_settings_pass_through_and_aborted_records_do_not_stop_a_run() {
    let topics = kafka::shared().topics();
    topics.create("isolation_in", 1);
    for output in ["isolation_committed", "isolation_all"] {
        topics.create(output, 1);
    }
    topics.produce_values("isolation_in", ["kept"]);
    // The topic ends in a record that no consumer is ever given: the marker of the abort.
    topics.produce_and_abort("isolation_in", &["aborted"]);
    let copy = |level: &str, output: &str| {
        let source = [("subscribe", "isolation_in"), EARLIEST, ("kafka.isolation.level", level)];
        let pipeline = pipeline(&source, &[("topic", output)], "value FROM STREAM source");
        pipeline.run_available();
        let checkpoint = pipeline.checkpoint();
        let last = checkpoint.latest("commits");
        assert_eq!(checkpoint.kafka_end(last, "isolation_in"), [(0, 3)].into());
        sorted_values(&topics.read(output))
    };
    assert_eq!(copy("read_committed", "isolation_committed"), ["kept"]);
    assert_eq!(copy("read_uncommitted", "isolation_all"), ["aborted", "kept"]);
}

#[test]
fn client_settings_that_would_break_the_source_are_refused() {
    for setting in ["kafka.auto.offset.reset", "kafka.enable.auto.commit"] {
        let source = [("subscribe", "t"), (setting, "true")];
        let pipeline = pipeline(&source, &[("topic", "t")], "value FROM STREAM source");
        let finished = pipeline.run(&[]).without_internals().expect_exit(2);
        finished.says(&["pipeline.sql:3:", setting]);
    }
}

#[test]
fn an_oversized_record_stops_the_flow_and_is_not_counted_as_done() {
    let topics = kafka::shared().topics();
    topics.create("oversized_in", 1);
    topics.create_with("oversized_out", 1, &[("max.message.bytes", "2000")]);
    topics.produce_values("oversized_in", ["small".to_owned(), "x".repeat(10_000)]);
    let source = [("subscribe", "oversized_in"), EARLIEST];
    let pipeline = pipeline(&source, &[("topic", "oversized_out")], "value FROM STREAM source");
    let finished = pipeline.run(&["--trigger", "availableNow"]).without_internals();
    finished.expect_exit(1).says(&["oversized_out", "large"]);
    assert!(pipeline.checkpoint().ids("commits").is_empty(), "nothing was committed");
}

#[test]
fn two_flows_in_one_file_run_side_by_side() {
    let servers = kafka::shared().address();
    let topics = kafka::shared().topics();
    for topic in ["flows_in", "flows_left", "flows_right"] {
        topics.create(topic, 1);
    }
    topics.produce_values("flows_in", ["1", "2", "3", "4"]);
    let servers = ("kafka.bootstrap.servers", servers.as_str());
    let sql = [
        table("source", "", "kafka", &[servers, ("subscribe", "flows_in"), EARLIEST]),
        table(
            "left_out",
            "",
            "kafka",
            &[servers, ("topic", "flows_left"), ("delivery", "at-least-once")],
        ),
        table(
            "right_out",
            "",
            "kafka",
            &[servers, ("topic", "flows_right"), ("delivery", "at-least-once")],
        ),
        "CREATE FLOW low AS INSERT INTO left_out SELECT value FROM STREAM source \
         WHERE CAST(CAST(value AS STRING) AS INT) <= 2;\n"
            .into(),
        "CREATE FLOW high AS INSERT INTO right_out SELECT value FROM STREAM source \
         WHERE CAST(CAST(value AS STRING) AS INT) > 2;\n"
            .into(),
    ];
    let pipeline = Pipeline::new(&sql.concat());
    let run = |flags: &[&str]| {
        let arguments = [&["run", "pipeline.sql", "--trigger", "availableNow"], flags].concat();
        let running = pipeline.spawn(pipeline.bare_command(&arguments));
        running.wait(wait::SOON).expect_success()
    };
    run(&["--flow", "low"]);
    assert_eq!(sorted_values(&topics.read("flows_left")), ["1", "2"]);
    assert_eq!(topics.written("flows_right"), 0, "only the flow that was asked for");

    let finished = run(&["--progress", "json"]);
    assert_eq!(sorted_values(&topics.read("flows_left")), ["1", "2"]);
    assert_eq!(sorted_values(&topics.read("flows_right")), ["3", "4"]);
    let names: Vec<_> = finished.progress().iter().map(|p| p["name"].clone()).collect();
    assert_eq!(names, [Value::from("high")], "the other flow had nothing to do");
    for flow in ["low", "high"] {
        let offsets = pipeline.path(&format!(".millstream/pipeline/{flow}/offsets/0"));
        assert!(offsets.exists(), "{} is the default checkpoint", offsets.display());
    }
    let unknown = ["run", "pipeline.sql", "--flow", "lwo"];
    let running = pipeline.spawn(pipeline.bare_command(&unknown));
    running.wait(wait::SOON).expect_exit(2).says(&["lwo", "low"]);
}

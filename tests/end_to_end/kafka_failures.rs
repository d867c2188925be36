//! Kafka when it misbehaves: away, restarted, and with records that are no longer there.

use std::time::Duration;

use crate::kafka::{self, Broker};
use crate::millstream::{Finished, Pipeline, table};
use crate::topics::{Record, Topics, sorted_values};
use crate::triggers::metrics;
use crate::wait;

/// A pipeline that copies the values of topics `subscribe` to topic `output`.
fn copy(servers: &str, subscribe: &str, output: &str, options: &[(&str, &str)]) -> Pipeline {
    let servers = ("kafka.bootstrap.servers", servers);
    let source = [servers, ("subscribe", subscribe), ("startingOffsets", "earliest")];
    Pipeline::new(&format!(
        "{}{}INSERT INTO target SELECT value FROM STREAM source;\n",
        table("source", "", "kafka", &[&source, options].concat()),
        table("target", "", "kafka", &[servers, ("topic", output), ("delivery", "at-least-once")]),
    ))
}

fn distinct(topics: &Topics, topic: &str) -> Vec<String> {
    let mut values = sorted_values(&topics.read(topic));
    values.dedup();
    values
}

#[test]
fn a_broker_that_restarts_in_mid_stream_is_waited_for() {
    let broker = Broker::start();
    let topics = broker.topics();
    topics.create("restart_in", 2);
    topics.create("restart_out", 2);
    let produce = |numbers: std::ops::Range<i32>| {
        let record = |n: i32| Record::of(format!("{n:04}")).to(n % 2);
        topics.produce("restart_in", numbers.map(record));
    };
    let pipeline = copy(&broker.address(), "restart_in", "restart_out", &[]);
    let mut running = pipeline.start(&[]);
    produce(0..500);
    running.wait_while_running("records before", || topics.written("restart_out") >= 500);

    broker.kill();
    // Long enough for every client in the process to notice.
    wait::pause(Duration::from_secs(3));
    assert!(running.is_running(), "it gave up at once:\n{}", running.stderr());
    broker.restart();
    produce(500..1_000);
    running.wait_while_running("records after", || topics.written("restart_out") >= 1_000);
    broker.stop();
    broker.restart();
    produce(1_000..1_200);
    running.wait_while_running("all records", || distinct(topics, "restart_out").len() == 1_200);
    running.stop().expect_success();

    let expected: Vec<_> = (0..1_200).map(|n| format!("{n:04}")).collect();
    assert_eq!(distinct(topics, "restart_out"), expected);
    pipeline.checkpoint().assert_well_formed(1);
}

#[test]
fn a_frozen_broker_does_not_look_like_peace() {
    let broker = Broker::start();
    let topics = broker.topics();
    topics.create("frozen_in", 1);
    topics.create("frozen_out", 1);
    topics.produce_values("frozen_in", ["before"]);
    let pipeline = copy(&broker.address(), "frozen_in", "frozen_out", &[]);
    let address = format!("127.0.0.1:{}", kafka::free_port());
    let mut running = pipeline.start(&["--progress", "json", "--metrics", &address]);
    running.wait_while_running("a record", || topics.written("frozen_out") == 1);
    let metric = |name: &str| {
        let text = metrics(&address).expect("they are served");
        let line = text.lines().find_map(|line| line.strip_prefix(name).map(str::to_owned));
        let value = line.as_deref().and_then(|line| line.rsplit_once(' '));
        value.expect("it is there").1.parse::<f64>().expect("a number")
    };
    let (unanswered, lag) = ("millstream_unanswered_since_seconds", "millstream_lag_records");
    assert_eq!((metric(unanswered), metric(lag)), (0.0, 0.0));

    broker.freeze();
    let source = "the brokers of KafkaV2[Subscribe[frozen_in]]";
    let lost = format!("no answer from {source} since ");
    running.wait_while_running("the silence to be told", || said(&pipeline).contains(&lost));
    assert!(metric(unanswered) > 1e9, "the time when it began");
    assert!(metric(lag).is_nan(), "it is not known");
    // That it lasts is not told again.
    wait::pause(Duration::from_secs(3));
    assert_eq!(said(&pipeline).matches(&lost).count(), 1);

    broker.thaw();
    let back = format!("{source} answered again after ");
    running.wait_while_running("the end to be told", || said(&pipeline).contains(&back));
    assert_eq!(metric(unanswered), 0.0);
    topics.produce_values("frozen_in", ["after"]);
    running.wait_while_running("both records", || distinct(topics, "frozen_out").len() == 2);
    let finished = running.stop().expect_success();
    let events = finished.progress().into_iter().filter(|line| line["of"] == source);
    let events: Vec<_> = events.map(|event| event["event"].as_str().unwrap().to_owned()).collect();
    assert_eq!(events, ["unanswered", "answered"]);
}

/// Options of a client of the listener on `port`, with the password that is in a file.
fn with_password(port: u16) -> Vec<(&'static str, String)> {
    vec![
        ("kafka.bootstrap.servers", format!("127.0.0.1:{port}")),
        ("kafka.security.protocol", "SASL_PLAINTEXT".to_owned()),
        ("kafka.sasl.mechanism", "PLAIN".to_owned()),
        ("kafka.sasl.username", "app".to_owned()),
        ("kafka.sasl.password", "${file:password}".to_owned()),
    ]
}

/// A copy between topics of a broker that asks for a password.
fn copy_with_password(port: u16, delivery: &str) -> Pipeline {
    let all = with_password(port);
    let all: Vec<_> = all.iter().map(|(key, value)| (*key, value.as_str())).collect();
    let source = [("subscribe", "password_in"), ("startingOffsets", "earliest")];
    let target = [("topic", "password_out"), ("delivery", delivery)];
    Pipeline::new(&format!(
        "{}{}INSERT INTO target SELECT value FROM STREAM source;\n",
        table("source", "", "kafka", &[&all[..], &source].concat()),
        table("target", "", "kafka", &[&all[..], &target].concat()),
    ))
}

#[test]
fn a_password_that_is_replaced_is_looked_up_again() {
    for delivery in ["exactly-once", "at-least-once"] {
        let (broker, port) = Broker::start_with_password("the-first");
        let topics = broker.topics();
        topics.create("password_in", 1);
        topics.create("password_out", 1);
        let pipeline = copy_with_password(port, delivery);
        let password = pipeline.path("password");
        std::fs::write(&password, "the-first\n").expect("it is writable");
        topics.produce_values("password_in", ["a"]);
        let mut running = pipeline.start(&[]);
        running.wait_while_running("a record", || topics.written("password_out") >= 1);

        broker.stop();
        broker.set_password("the-second");
        broker.restart();
        topics.produce_values("password_in", ["b"]);
        // The brokers have the new one before the file has.
        running.wait_while_running("another start", || said(&pipeline).contains("starts again in"));
        std::fs::write(&password, "the-second\n").expect("it is writable");
        running.wait_while_running("both records", || distinct(topics, "password_out").len() == 2);
        let finished = running.stop().expect_success();
        finished.says(&["refuse this client"]).says_not(&["the-first", "the-second"]);
        if delivery == "exactly-once" {
            assert_eq!(sorted_values(&topics.read("password_out")), ["a", "b"]);
        }
    }
}

#[test]
fn a_writer_whose_password_is_replaced_gets_the_new_one() {
    let (broker, port) = Broker::start_with_password("the-first");
    let topics = broker.topics();
    topics.create("rate_out", 1);
    let all = with_password(port);
    let all: Vec<_> = all.iter().map(|(key, value)| (*key, value.as_str())).collect();
    let target = [("topic", "rate_out"), ("delivery", "at-least-once")];
    let pipeline = Pipeline::new(&format!(
        "{}{}INSERT INTO target SELECT CAST(value AS STRING) AS value FROM STREAM source;\n",
        table("source", "", "rate", &[("rowsPerSecond", "20")]),
        table("target", "", "kafka", &[&all[..], &target].concat()),
    ));
    let password = pipeline.path("password");
    std::fs::write(&password, "the-first").expect("it is writable");
    let mut running = pipeline.start(&[]);
    running.wait_while_running("records", || topics.written("rate_out") >= 10);
    broker.stop();
    broker.set_password("the-second");
    std::fs::write(&password, "the-second").expect("it is writable");
    broker.restart();
    let before = topics.written("rate_out");
    running.wait_while_running("more records", || topics.written("rate_out") >= before + 10);
    running.stop().expect_success().says(&["refuse this client", "starts again in"]);
    let mut numbers: Vec<u64> =
        topics.read("rate_out").iter().map(|record| record.value().parse().unwrap()).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<_>>(), "none is missing");
}

#[test]
fn a_wrong_password_is_an_error_at_the_first_start() {
    let (broker, port) = Broker::start_with_password("right");
    broker.topics().create("password_in", 1);
    broker.topics().create("password_out", 1);
    let pipeline = copy_with_password(port, "exactly-once");
    std::fs::write(pipeline.path("password"), "wrong").expect("it is writable");
    let finished = pipeline.run(&[]);
    let words = ["refuse this client", "correct the user, the password or the key"];
    finished.expect_exit(1).says(&words).says_not(&["starts again"]);
}

/// What the first run has said so far.
fn said(pipeline: &Pipeline) -> String {
    std::fs::read_to_string(pipeline.path("stderr.0")).unwrap_or_default()
}

#[test]
fn a_limit_of_memory_bounds_the_micro_batch_too() {
    let broker = kafka::shared();
    let topics = broker.topics();
    topics.create("limited_in", 4);
    topics.create("unfilled_in", 4);
    let filler = "x".repeat(2_000);
    let record =
        |n: i32| Record::of(format!("{{\"k\":{},\"v\":\"{filler}\"}}", n % 1_000)).to(n % 4);
    topics.produce("limited_in", (0..50_000).map(record));
    let servers = broker.address();
    let peak = |topic: &str, records: u64, limit: &[(&str, &str)]| {
        let source = [
            ("kafka.bootstrap.servers", servers.as_str()),
            ("subscribe", topic),
            ("startingOffsets", "earliest"),
            ("value.format", "json"),
        ];
        let pipeline = Pipeline::new(&format!(
            "{}{}INSERT INTO target SELECT CAST(k AS STRING) AS key, upper(v) AS value\n\
             FROM STREAM source WHERE length(v) = 3;\n",
            table("source", "(k BIGINT, v STRING)", "kafka", &source),
            table("target", "", "noop", limit),
        ));
        let mut running = pipeline.start(&["--progress", "json"]);
        running.wait_while_running("all rows", || {
            let lines = crate::millstream::progress(&pipeline_stdout(&pipeline));
            let rows = lines.iter().filter_map(|line| line["numInputRows"].as_u64());
            !lines.is_empty() && rows.sum::<u64>() == records
        });
        let peak = running.memory_peak();
        running.stop().expect_success();
        peak >> 20
    };
    topics.produce("unfilled_in", [record(0)]);
    let limit = [("memoryLimit", "32mb")];
    // What the program takes by itself (its code, in a debug build the most of it) is not in the
    // limit, and grows with the program.
    let own = peak("unfilled_in", 1, &limit);
    let (free, limited) = (peak("limited_in", 50_000, &[]), peak("limited_in", 50_000, &limit));
    let found = format!("{limited} MB with a limit, {free} MB without, {own} MB with one record");
    println!("{found}");
    assert!(limited < own + 48 && limited < free, "{found}");
}

fn pipeline_stdout(pipeline: &Pipeline) -> String {
    std::fs::read_to_string(pipeline.path("stdout.0")).unwrap_or_default()
}

#[test]
fn a_broker_that_is_not_there_at_start_is_an_error_soon() {
    let nobody = format!("127.0.0.1:{}", kafka::free_port());
    let pipeline = copy(&nobody, "any", "other", &[]);
    pipeline
        .start(&[])
        .wait(Duration::from_secs(90))
        .without_internals()
        .expect_exit(1)
        .says(&[&nobody, "kafka.bootstrap.servers", "Connection refused"])
        .says_not(&["suppressed", "0/1 brokers"]);
    assert!(pipeline.checkpoint().ids("offsets").is_empty());
}

#[test]
fn a_topic_that_is_not_there_at_start_is_an_error_that_names_it() {
    let broker = kafka::shared();
    broker.topics().create("absent_out", 1);
    let pipeline = copy(&broker.address(), "absent_in", "absent_out", &[]);
    pipeline.run(&[]).without_internals().expect_exit(1).says(&["absent_in"]);

    broker.topics().create("present_in", 1);
    broker.topics().produce_values("present_in", ["x"]);
    let pipeline = copy(&broker.address(), "present_in", "absent_sink", &[]);
    pipeline.run(&[]).without_internals().expect_exit(1).says(&["absent_sink"]);
    assert!(pipeline.checkpoint().ids("commits").is_empty(), "nothing was committed");
}

#[test]
fn a_topic_deleted_while_running_stops_the_flow() {
    let broker = kafka::shared();
    let topics = broker.topics();
    let pipeline = two_topics("deleted");
    let mut running = pipeline.start(&[]);
    running.wait_while_running("both records", || topics.written("deleted_out") == 2);
    topics.delete("deleted_b");
    // The flow may learn of it only when it next looks for new partitions.
    topics.produce_values("deleted_a", ["after"]);
    running
        .wait(Duration::from_secs(120))
        .without_internals()
        .expect_exit(1)
        .says(&["deleted_b", "failOnDataLoss"]);
}

#[test]
fn a_topic_deleted_while_running_is_let_go_where_the_user_asked_for_it() {
    let broker = kafka::shared();
    let topics = broker.topics();
    let pipeline = two_topics("dropped");
    let sql = std::fs::read_to_string(pipeline.path("pipeline.sql")).expect("it was written");
    pipeline.rewrite(&sql.replacen("OPTIONS (", "OPTIONS ('failOnDataLoss' = 'false', ", 1));
    let mut running = pipeline.start(&[]);
    running.wait_while_running("both records", || topics.written("dropped_out") == 2);
    topics.delete("dropped_b");
    wait::pause(Duration::from_secs(5));
    topics.produce_values("dropped_a", ["after"]);
    running.wait_while_running("the other topic", || topics.written("dropped_out") == 3);
    let finished = running.stop().expect_success();
    assert!(finished.stderr.contains("dropped_b"), "a warning names it:\n{}", finished.stderr);
}

/// A pipeline that reads `<name>_a` and `<name>_b`, each of which has one record.
fn two_topics(name: &str) -> Pipeline {
    let broker = kafka::shared();
    let topics = broker.topics();
    for (topic, values) in [("a", &["a"][..]), ("b", &["b"]), ("out", &[])] {
        topics.create(&format!("{name}_{topic}"), 1);
        topics.produce_values(&format!("{name}_{topic}"), values.to_vec());
    }
    let subscribe = format!("{name}_a, {name}_b");
    copy(&broker.address(), &subscribe, &format!("{name}_out"), &[])
}

/// Runs a copy of ten records, then `lose`s some while it is stopped, then runs again twice: as it
/// is, and with `failOnDataLoss` = false.
fn after_losing(name: &str, lose: impl FnOnce(&Topics, &str)) -> (Finished, Vec<String>) {
    let broker = kafka::shared();
    let topics = broker.topics();
    let [input, output] = ["in", "out"].map(|side| format!("{name}_{side}"));
    topics.create(&input, 1);
    topics.create(&output, 1);
    topics.produce_values(&input, (0..10).map(|n| n.to_string()));
    let pipeline = copy(&broker.address(), &input, &output, &[]);
    pipeline.run_available();
    lose(topics, &input);

    let before = pipeline.checkpoint().bytes();
    let refused = pipeline.run(&["--trigger", "availableNow"]).without_internals().expect_exit(1);
    assert_eq!(pipeline.checkpoint().bytes(), before, "a refusal changes nothing");
    let sql = std::fs::read_to_string(pipeline.path("pipeline.sql")).expect("it was written");
    pipeline.rewrite(&sql.replacen("OPTIONS (", "OPTIONS ('failOnDataLoss' = 'false', ", 1));
    pipeline.run_available();
    let values = topics.read(&output).into_iter().map(|record| record.value().to_owned());
    (refused, values.skip(10).collect())
}

#[test]
fn records_that_aged_out_are_missed() {
    let (refused, values) = after_losing("aged", |topics, input| {
        topics.produce_values(input, (10..20).map(|n| n.to_string()));
        topics.delete_before(input, 0, 15);
    });
    refused.says(&["aged_in", "10", "15", "failOnDataLoss"]);
    assert_eq!(values, ["15", "16", "17", "18", "19"]);
}

#[test]
fn a_topic_that_was_made_anew_is_noticed() {
    let (refused, values) = after_losing("anew", |topics, input| {
        topics.delete(input);
        topics.create(input, 1);
        topics.produce_values(input, ["fresh"]);
    });
    refused.says(&["anew_in", "failOnDataLoss"]);
    assert_eq!(values, ["fresh"]);
}

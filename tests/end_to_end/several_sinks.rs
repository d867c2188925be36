//! One reading of a source for several sinks: whatever happens to the process, each of them has
//! each row once.
//!
//! `MILLSTREAM_KILLS` says how often the process is ended at each step, and ten times as often at
//! random moments, as for one sink.

use std::path::PathBuf;

use crate::delta::{assert_numbers, versions};
use crate::files_and_static::{json_table, sorted_lines};
use crate::kafka::{self, Broker};
use crate::live::{ASYNC, Numbers, PARTITIONS, STEPS, crashing_at, kills};
use crate::millstream::{Pipeline, Running, table};
use crate::oracle;
use crate::topics::{OpenReader, Record, Topics};
use crate::wait;

/// A flow that writes the numbers of a topic which end in 3 to another topic, and all of them to a
/// table.
struct Split<'a> {
    topics: &'a Topics,
    numbers: Numbers<'a>,
    pipeline: Pipeline,
    alerts: String,
}

impl<'a> Split<'a> {
    fn new(broker: &'a Broker, name: &str, archive: &[(&str, &str)]) -> Self {
        let (topics, alerts) = (broker.topics(), format!("{name}_alerts"));
        let numbers = Numbers::new(topics, format!("{name}_in"));
        topics.create(&alerts, PARTITIONS as usize);
        let servers = broker.address();
        let servers = ("kafka.bootstrap.servers", servers.as_str());
        let source = [servers, ("subscribe", &numbers.topic), ("startingOffsets", "earliest")];
        let to_alerts = [servers, ("topic", &alerts), ("delivery", "exactly-once")];
        let pipeline = Pipeline::new(&format!(
            "{}{}{}CREATE FLOW split AS FROM STREAM source\n\
             INSERT INTO alerts BY NAME SELECT value, partition\n\
             WHERE CAST(value AS STRING) LIKE '%3'\n\
             INSERT INTO archive SELECT CAST(CAST(value AS STRING) AS BIGINT) AS id, partition,\n\
             CAST(value AS STRING) AS text;\n",
            table("source", "", "kafka", &source),
            table("alerts", "", "kafka", &to_alerts),
            table("archive", "", "delta", &[&[("path", "table")], archive].concat()),
        ));
        Self { topics, numbers, pipeline, alerts }
    }

    fn table(&self) -> PathBuf {
        self.pipeline.path("table")
    }

    fn wait_for_more(&self, running: &mut Running) {
        let written = || (self.topics.written(&self.alerts), versions(&self.table()));
        let before = written();
        running.wait_while_running("more in both sinks", || {
            let now = written();
            now.0 > before.0 && now.1 > before.1
        });
    }

    /// Runs what is left, and holds both sinks and the logs against what was produced.
    fn assert_exactly_once(&self) {
        self.numbers.run_the_rest(&self.pipeline, "archive");
        self.numbers.assert_in(&self.alerts, |number| number % 10 == 3);
        assert_numbers(&self.table(), self.numbers.produced());
        self.numbers.assert_logged(&self.pipeline);
    }
}

#[test]
fn alerts_and_archive_have_each_record_once() {
    let split = Split::new(kafka::shared(), "split_plain", &[]);
    split.numbers.produce(500);
    split.assert_exactly_once();
    split.numbers.produce(500);
    split.assert_exactly_once();
}

#[test]
fn kills_at_random_moments_lose_and_double_nothing_in_either_sink() {
    kill_at_random_moments(&Split::new(kafka::shared(), "split_killed", &[COMMIT_SOON]));
}

#[test]
fn kills_at_random_moments_lose_and_double_nothing_with_asynchronous_tracking_in_either_sink() {
    let options = [&[COMMIT_SOON], &ASYNC[..]].concat();
    kill_at_random_moments(&Split::new(kafka::shared(), "split_killed_async", &options));
}

/// Often enough to be killed in between, seldom enough for the alerts to be ahead.
const COMMIT_SOON: (&str, &str) = ("commitInterval", "100ms");

fn kill_at_random_moments(split: &Split<'_>) {
    let wait_for_more = |running: &mut Running| split.wait_for_more(running);
    split.numbers.kill_at_random(&split.pipeline, kills(1) * 10, wait_for_more);
    split.assert_exactly_once();
}

#[test]
fn a_crash_at_any_step_loses_and_doubles_nothing_in_either_sink() {
    let split = Split::new(kafka::shared(), "split_steps", &[COMMIT_SOON]);
    split.numbers.while_producing(|| {
        for step in STEPS {
            for kill in 0..kills(1) * 2 {
                let nth = 1 + kill * 3 % 10;
                crashing_at(&split.pipeline, step, nth).wait(wait::SOON).expect_crash(step);
            }
        }
    });
    split.assert_exactly_once();
}

#[test]
fn an_alert_is_out_long_before_the_table_commits() {
    let split = Split::new(kafka::shared(), "split_early", &[("commitInterval", "30s")]);
    let mut running = split.pipeline.start(&["--progress", "json"]);
    for round in 1..=3 {
        split.numbers.produce(10);
        let alerts = || split.topics.read(&split.alerts).len() as u64;
        running.wait_while_running("the alerts", || alerts() == round * PARTITIONS as u64);
        // Its first version, and what came after a pause: that did not wait.
        assert!(versions(&split.table()) <= 2, "the table has another commit already");
    }
    // Killed now, the table lacks what the topic has.
    running.kill();
    split.assert_exactly_once();
}

/// An alert may take so many times as long as a record that is only written and read: it is read
/// and written once more in between, in a transaction. With no reason to wait it takes two to four
/// times as long; the rest is for a busy machine.
const ALERT_TAKES_TIMES_MAX: u32 = 10;

#[test]
fn an_alert_takes_few_times_as_long_as_a_bare_write_and_read() {
    let broker = kafka::shared();
    let split = Split::new(broker, "split_soon", &[("commitInterval", "30s")]);
    let topics = broker.topics();
    topics.create("split_bare", 1);
    let producer = topics.open_producer();
    let (bare, alerts) = (topics.open_reader("split_bare"), topics.open_reader(&split.alerts));
    let round_trip = |topic: &str, reader: &OpenReader, number: u64| {
        let text = format!("{number:06}");
        let ((), took) = wait::timed(|| {
            producer.send(topic, &Record::of(text.clone()).to(0));
            assert_eq!(reader.next().value(), text);
        });
        took
    };
    let running = split.pipeline.start(&[]);
    // The first ones wait for connections.
    let rounds = 0..35_u64;
    let (mut of_bare, mut of_alerts) = (Vec::new(), Vec::new());
    for number in rounds.map(|round| round * 10 + 3) {
        of_bare.push(round_trip("split_bare", &bare, number));
        of_alerts.push(round_trip(&split.numbers.topic, &alerts, number));
    }
    let [of_bare, of_alerts] = [of_bare, of_alerts].map(|mut took| {
        took.drain(..5);
        took.sort();
        took[took.len() / 2]
    });
    println!("median of a bare record {of_bare:?}, of an alert {of_alerts:?}");
    assert!(
        of_alerts < of_bare * ALERT_TAKES_TIMES_MAX,
        "an alert takes {of_alerts:?}, a record that is only written and read {of_bare:?}"
    );
    running.stop().expect_success();
}

#[test]
fn files_and_a_table_have_each_record_once() {
    let broker = kafka::shared();
    let numbers = Numbers::new(broker.topics(), "split_files_in".to_owned());
    let servers = broker.address();
    let source = [
        ("kafka.bootstrap.servers", servers.as_str()),
        ("subscribe", &numbers.topic),
        ("startingOffsets", "earliest"),
    ];
    let pipeline = Pipeline::new(&format!(
        "{}{}{}FROM STREAM source\n\
         INSERT INTO files SELECT CAST(value AS STRING) AS text, partition\n\
         INSERT INTO archive SELECT CAST(CAST(value AS STRING) AS BIGINT) AS id, partition,\n\
         CAST(value AS STRING) AS text;\n",
        table("source", "", "kafka", &source),
        json_table("files", "", "output"),
        table("archive", "", "delta", &[("path", "table"), COMMIT_SOON]),
    ));
    numbers.while_producing(|| {
        for step in STEPS.iter().filter(|step| **step != "after-offsets") {
            crashing_at(&pipeline, step, 2).wait(wait::SOON).expect_crash(step);
        }
    });
    pipeline.run_available();
    let mut expected: Vec<String> = (0..numbers.produced())
        .flat_map(|number| {
            let row = move |at| format!(r#"{{"text":"{number:06}","partition":{at}}}"#);
            (0..PARTITIONS).map(row)
        })
        .collect();
    expected.sort();
    assert_eq!(sorted_lines(&pipeline.path("output")), expected);
    assert_numbers(&pipeline.path("table"), numbers.produced());
}

#[test]
fn the_console_and_two_topics_get_their_rows() {
    let broker = kafka::shared();
    let topics = broker.topics();
    let servers = broker.address();
    let servers = ("kafka.bootstrap.servers", servers.as_str());
    let out = ["split_first", "split_second"];
    for topic in ["split_console_in"].iter().chain(&out) {
        topics.create(topic, 1);
    }
    let source = [servers, ("subscribe", "split_console_in"), ("startingOffsets", "earliest")];
    let to = |topic| [servers, ("topic", topic), ("delivery", "exactly-once")];
    let pipeline = Pipeline::new(&format!(
        "{}{}{}{}FROM STREAM source INSERT INTO screen SELECT CAST(value AS STRING) AS shown\n\
         INSERT INTO first SELECT value\n\
         INSERT INTO second SELECT upper(CAST(value AS STRING)) AS value;\n",
        table("source", "", "kafka", &source),
        table("screen", "", "console", &[]),
        table("first", "", "kafka", &to(out[0])),
        table("second", "", "kafka", &to(out[1])),
    ));
    for round in 1..=2 {
        topics.produce_values("split_console_in", [format!("round {round}")]);
        let finished = pipeline.run_available();
        assert!(finished.stdout.contains(&format!("round {round}")), "{}", finished.stdout);
    }
    let read = |topic| -> Vec<String> {
        topics.read(topic).iter().map(|record| record.value().to_owned()).collect()
    };
    assert_eq!(read(out[0]), ["round 1", "round 2"]);
    assert_eq!(read(out[1]), ["ROUND 1", "ROUND 2"]);
}

fn batch() -> Pipeline {
    let pipeline = Pipeline::new(&format!(
        "{}{}{}CREATE FLOW both AS FROM source\n\
         INSERT INTO many SELECT n WHERE n < 3 INSERT INTO one SELECT sum(n) AS total;\n",
        json_table("source", "(n BIGINT)", "input"),
        json_table("many", "", "many"),
        table("one", "", "delta", &[("path", "one")]),
    ));
    std::fs::create_dir(pipeline.path("input")).expect("the directory is writable");
    let rows = (1..=4).map(|n| format!("{{\"n\":{n}}}\n")).collect::<String>();
    std::fs::write(pipeline.path("input/rows.json"), rows).expect("the directory is writable");
    pipeline
}

#[test]
fn a_query_over_tables_at_rest_writes_to_two_sinks() {
    let pipeline = batch();
    pipeline.run(&[]).expect_success();
    assert_eq!(sorted_lines(&pipeline.path("many")), [r#"{"n":1}"#, r#"{"n":2}"#]);
    let total = oracle::light().query(&pipeline.path("one"), "SELECT sum(total) AS t FROM TABLE");
    assert_eq!(total["t"].to_string().trim_matches('"'), "10");
}

#[test]
fn validate_shows_both_sinks_and_both_plans() {
    let pipeline = batch();
    let running = pipeline.spawn(pipeline.bare_command(&["validate", "pipeline.sql"]));
    let shown = running.wait(wait::SOON).expect_success().stdout;
    for words in ["sink        many (json)", "sink        one (delta)", "logical plan of many"] {
        assert!(shown.contains(words), "no '{words}' in:\n{shown}");
    }
    assert!(shown.contains("physical plan of one"), "{shown}");
    assert_eq!(shown.matches("source      source").count(), 1, "{shown}");
}

#[test]
fn progress_tells_of_each_sink() {
    let split = Split::new(kafka::shared(), "split_progress", &[COMMIT_SOON]);
    split.numbers.produce(50);
    let finished = split.pipeline.run(&["--trigger", "availableNow", "--progress", "json"]);
    let progress = finished.expect_success().progress();
    let rows = |sink: usize| -> u64 {
        let of = |line: &serde_json::Value| line["sinks"][sink]["numOutputRows"].as_u64();
        progress.iter().map(|line| of(line).expect("each line has both sinks")).sum()
    };
    assert_eq!((rows(0), rows(1)), (5 * PARTITIONS as u64, 50 * PARTITIONS as u64));
    // Which of the two is first at the end of a run is for chance to say.
    let tells = |line: &serde_json::Value| {
        (0..2).all(|sink| line["sinks"][sink]["latencyMs"].as_f64().is_some())
    };
    assert!(progress.iter().all(tells), "{progress:?}");
}

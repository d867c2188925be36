//! Rows that a receiver refuses, as dead letters: each is accepted or a letter, and a letter once,
//! whatever happens to the process.
//!
//! `MILLSTREAM_KILLS` says how often the process is ended at each step, and ten times as often at
//! random moments.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;

use crate::files_and_static::put;
use crate::http_receiver::{Answer, Receiver};
use crate::kafka;
use crate::live::{Numbers, kills, occurrences, some_time};
use crate::millstream::{Pipeline, Running, table};
use crate::oracle;
use crate::webhook;

/// What a micro-batch with refused rows comes to beside the others.
pub const REFUSED_STEPS: [&str; 2] = ["rows-refused", "letters-published"];

/// Of the numbers produced each so many is sent.
const EACH: u64 = 5;
/// Of these each so many is refused, always.
const REFUSED: u64 = 15;

const ASIDE: [(&str, &str); 2] = [("onError", "dead letter"), ("deadLetter", "bad")];

/// What is in the table of letters: the rows, sorted, and whether all of them have the rest.
fn letters(pipeline: &Pipeline) -> (Vec<Value>, bool) {
    let path = pipeline.path("bad");
    if !path.join("_delta_log/00000000000000000000.json").exists() {
        return (Vec::new(), true);
    }
    let sql = "SELECT string_agg(decode(payload), '\n' ORDER BY decode(payload)) AS payloads, \
               count(*) AS letters, count(*) FILTER (flow_name = 'told' AND error <> '' \
               AND found_time IS NOT NULL AND source_table IS NULL AND position IS NULL \
               AND constraint_name IS NULL) AS whole FROM TABLE";
    let found = oracle::light().query(&path, sql);
    let lines = found["payloads"].as_str().unwrap_or_default().lines();
    let rows = lines.map(|line| serde_json::from_str(line).expect("JSON")).collect();
    (rows, found["letters"] == found["whole"])
}

fn number(row: &Value) -> u64 {
    row["n"].as_u64().expect("it has a number")
}

/// A number, behind its partition.
type Row = (u64, u64);

/// A flow from a topic of numbers to a receiver that refuses some.
struct Told<'a> {
    numbers: Numbers<'a>,
    pipeline: Pipeline,
    receiver: Receiver,
}

impl Told<'_> {
    fn new(
        name: &str,
        decide: impl Fn(u64) -> Answer + Send + Sync + 'static,
        letters: &[(&str, &str)],
    ) -> Self {
        let broker = kafka::shared();
        let numbers = Numbers::new(broker.topics(), format!("{name}_in"));
        let receiver = Receiver::start(move |request, _| {
            decide(number(&serde_json::from_str(&request.body).expect("JSON")))
        });
        let url = receiver.address();
        let sink = [
            ("url", url.as_str()),
            ("proxy", "none"),
            ("retryBackoff", "5ms"),
            ("maxRequestsInFlight", "8"),
        ];
        let pipeline = Pipeline::new(&format!(
            "{}{}{}CREATE FLOW told AS INSERT INTO target\n\
             SELECT n, partition FROM (SELECT CAST(CAST(value AS STRING) AS BIGINT) AS n, partition \
             FROM STREAM source) WHERE n % {EACH} = 0;\n",
            numbers.source_table(&broker.address()),
            table("target", "", "webhook", &[&sink[..], &ASIDE].concat()),
            table("bad", "", "delta", &[&[("path", "bad")], letters].concat()),
        ));
        Self { numbers, pipeline, receiver }
    }

    fn wait_for_more(&self, running: &mut Running) {
        let before = self.receiver.received().len();
        running.wait_while_running("more requests", || self.receiver.received().len() > before);
    }

    /// The rows that were accepted, and those that are letters, each with its partition.
    fn outcome(&self) -> (BTreeSet<Row>, Vec<Row>) {
        self.numbers.run_the_rest(&self.pipeline, "target");
        let of = |row: &Value| (row["partition"].as_u64().expect("a number"), number(row));
        let received = self.receiver.received();
        let accepted = received.iter().filter(|request| request.is_accepted);
        let accepted = accepted.map(|request| serde_json::from_str(&request.body).expect("JSON"));
        let (letters, are_whole) = letters(&self.pipeline);
        assert!(are_whole, "columns of letters are missing");
        let mut letters: Vec<_> = letters.iter().map(of).collect();
        letters.sort_unstable();
        self.numbers.assert_logged(&self.pipeline);
        (accepted.map(|row: Value| of(&row)).collect(), letters)
    }

    fn expected(&self, wanted: impl Fn(&u64) -> bool) -> Vec<Row> {
        let numbers = || (0..self.numbers.produced()).filter(|n| n % EACH == 0).filter(&wanted);
        (0..2).flat_map(|partition| numbers().map(move |n| (partition, n))).collect()
    }

    /// Each refused row is a letter once, and no other.
    fn assert_exactly_once(&self) {
        let (accepted, letters) = self.outcome();
        assert!(letters == self.expected(|n| n % REFUSED == 0), "{} letters", letters.len());
        let expected = self.expected(|n| n % REFUSED != 0);
        assert!(accepted.iter().eq(&expected), "{} of {}", accepted.len(), expected.len());
    }
}

fn refuses_some(n: u64) -> Answer {
    match n % REFUSED {
        0 => Answer::status(422),
        _ => Answer::accept(),
    }
}

const SOON: [(&str, &str); 1] = [("commitInterval", "100ms")];

#[test]
fn a_crash_at_any_step_loses_and_doubles_no_letter() {
    let told = Told::new("refused_steps", refuses_some, &SOON);
    let steps = [&webhook::STEPS[..], &REFUSED_STEPS].concat();
    told.numbers.crash_at_steps(&told.pipeline, &steps, &occurrences(8));
    told.assert_exactly_once();
}

#[test]
fn kills_at_random_moments_lose_and_double_no_letter() {
    let told = Told::new("refused_killed", refuses_some, &SOON);
    told.numbers.while_producing(|| {
        for round in 0..kills(2) * 5 {
            let mut running = told.pipeline.start(&[]);
            told.wait_for_more(&mut running);
            some_time(round, 300);
            running.kill();
        }
    });
    told.assert_exactly_once();
}

#[test]
fn letters_in_a_topic_are_neither_lost_nor_doubled() {
    let broker = kafka::shared();
    let topic = "refused_letters";
    broker.topics().create(topic, 2);
    let told = Told::new("refused_topic", refuses_some, &SOON);
    let servers = broker.address();
    let options =
        [("kafka.bootstrap.servers", &*servers), ("topic", topic), ("delivery", "exactly-once")];
    let delta = table("bad", "", "delta", &[&[("path", "bad")], &SOON[..]].concat());
    let sql = std::fs::read_to_string(told.pipeline.path("pipeline.sql")).expect("it is there");
    assert!(sql.contains(&delta));
    told.pipeline.rewrite(&sql.replace(&delta, &table("bad", "", "kafka", &options)));
    let steps = [&webhook::STEPS[..2], &REFUSED_STEPS, &REFUSED_STEPS].concat();
    told.numbers.crash_at_steps(&told.pipeline, &steps, &[1, 4]);
    told.numbers.run_the_rest(&told.pipeline, "target");
    let of = |row: Value| (row["partition"].as_u64().expect("a number"), number(&row));
    let records = broker.topics().read(topic);
    let rows = records.iter().map(|record| serde_json::from_str(record.value()).expect("JSON"));
    let mut letters: Vec<Row> = rows.map(of).collect();
    letters.sort_unstable();
    assert!(letters == told.expected(|n| n % REFUSED == 0), "{} letters", letters.len());
}

#[test]
fn stops_at_random_moments_lose_and_double_no_letter() {
    // The table's next commit is far away: a run that is stopped does not wait for it.
    let told = Told::new("refused_stopped", refuses_some, &[("commitInterval", "20s")]);
    told.numbers.while_producing(|| {
        for round in 0..6 {
            let mut running = told.pipeline.start(&[]);
            told.wait_for_more(&mut running);
            some_time(round, 300);
            running.stop().expect_success();
        }
    });
    told.assert_exactly_once();
}

#[test]
fn a_receiver_that_changes_its_mind_gets_each_row_or_it_is_a_letter() {
    let asked = std::sync::atomic::AtomicU64::new(0);
    let decide = move |_| match asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % 7 {
        3 => Answer::status(400),
        _ => Answer::accept(),
    };
    let told = Told::new("refused_changing", decide, &SOON);
    let steps = [&webhook::STEPS[..], &REFUSED_STEPS].concat();
    told.numbers.crash_at_steps(&told.pipeline, &steps, &[2]);
    let (accepted, letters) = told.outcome();
    let distinct: BTreeSet<_> = letters.iter().copied().collect();
    assert_eq!(distinct.len(), letters.len(), "a letter is doubled");
    assert!(!letters.is_empty());
    let all: Vec<_> = accepted.union(&distinct).copied().collect();
    assert!(all == told.expected(|_| true), "{} rows", all.len());
}

/// A pipeline from a file of ten rows to `url`.
fn of_file(url: &str, sink: &[(&str, &str)], bad: &str) -> Pipeline {
    let fixed = [("url", url), ("proxy", "none"), ("retryBackoff", "5ms")];
    let pipeline = Pipeline::new(&format!(
        "{}{}{bad}CREATE FLOW told AS INSERT INTO target SELECT n FROM STREAM source;\n",
        table("source", "(n BIGINT)", "json", &[("path", "input")]),
        table("target", "", "webhook", &[&fixed, sink].concat()),
    ));
    let rows: String = (0..10).map(|n| format!("{{\"n\":{n}}}\n")).collect();
    put(&pipeline, "input/0.json", &rows);
    pipeline
}

#[test]
fn rows_of_a_refused_array_and_of_a_request_that_is_given_up_are_letters() {
    let receiver = Receiver::start(|request, _| match request.body.as_str() {
        body if body.contains("\"n\":2}") => {
            Answer::Status(422, Vec::new(), "no such guard".into(), Duration::ZERO)
        }
        body if body.contains("\"n\":7}") => Answer::status(503),
        _ => Answer::accept(),
    });
    let bad = table("bad", "", "delta", &[("path", "bad")]);
    let arrays = [("body", "array"), ("maxRowsPerRequest", "2"), ("maxRetries", "2")];
    let pipeline = of_file(&receiver.address(), &[&arrays[..], &ASIDE].concat(), &bad);
    let finished = pipeline.run(&["--trigger", "availableNow", "--restart", "never"]);
    finished.expect_success();
    let (found, are_whole) = letters(&pipeline);
    assert!(are_whole);
    assert_eq!(found.iter().map(number).collect::<Vec<_>>(), [2, 3, 6, 7]);
    assert_eq!(receiver.accepted(), 3);
    let errors = oracle::light()
        .query(&pipeline.path("bad"), "SELECT min(error) AS first, max(error) AS last FROM TABLE");
    let said = errors.to_string();
    for part in ["422 Unprocessable Entity: no such guard", "key is", "in 3 attempts", "503"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    // The next run has nothing to do.
    pipeline.run(&["--trigger", "availableNow"]).expect_success();
    assert_eq!(letters(&pipeline).0.len(), 4);
}

#[test]
fn what_cannot_be_put_aside_is_said() {
    let receiver = Receiver::start(|_, _| Answer::status(400));
    let files = table("bad", "", "json", &[("path", "bad")]);
    let refused = of_file(&receiver.address(), &ASIDE, &files);
    refused.run(&[]).expect_exit(2).says(&["`bad`", "a directory of files", "Delta or Kafka"]);
    // A file for them is what was asked for, and then such a table has no second writer.
    let with_file = [&ASIDE[..], &[("refusedPath", "refused.jsonl")]].concat();
    let pipeline = of_file(&receiver.address(), &with_file, &files);
    pipeline.run(&["--trigger", "availableNow"]).expect_success();
    let kept = std::fs::read_to_string(pipeline.path("refused.jsonl")).expect("it is there");
    assert_eq!(kept.lines().count(), 10);
}

//! Rows that BigQuery does not take, as dead letters: each row is in the table or a letter, and a
//! letter once, whatever happens to the process or to the service.
//!
//! The service is the fake, which refuses rows as the documentation says: all rows of a message
//! that has one of them.

use millstream_testkit::bigquery::BigQuery;
use serde_json::{Value, json};

use crate::bigquery::STEPS;
use crate::files_and_static::put;
use crate::live::{crashing_at, kills, some_time};
use crate::millstream::{Pipeline, Running, table};
use crate::oracle;
use crate::refused_messages::REFUSED_STEPS;
use crate::wait;

/// One row in so many is refused.
const EACH: u64 = 97;
const REFUSED: u64 = 13;

/// A flow of numbers into a table that does not take all of them.
struct Sorted<'a> {
    server: &'a BigQuery,
    pipeline: Pipeline,
}

impl<'a> Sorted<'a> {
    /// So many numbers a second, each with so many letters.
    fn new(server: &'a BigQuery, rows: u32, letters: u32, more: &[(&str, &str)]) -> Self {
        let columns = json!([{"name": "n", "type": "INTEGER"}, {"name": "text", "type": "STRING"}]);
        server.create_fake_table("d.target", &columns);
        let (grpc, rest) = (server.grpc_url(), server.rest_url());
        let options = [
            ("table", "d.target"),
            ("project", "p"),
            ("bigQueryStorageGrpcEndpoint", &grpc),
            ("bigQueryHttpEndpoint", &rest),
            ("triggeringFrequency", "200 milliseconds"),
            ("trigger", "1 millisecond"),
            ("onError", "dead letter"),
            ("deadLetter", "bad"),
        ];
        let pipeline = Pipeline::new(&format!(
            "{}{}{}CREATE FLOW told AS INSERT INTO target SELECT value AS n, \
             CASE WHEN value % {EACH} = {REFUSED} THEN 'bad' ELSE repeat('x', {letters}) END AS text \
             FROM STREAM source;\n",
            table("source", "", "rate", &[("rowsPerSecond", &rows.to_string())]),
            table("target", "", "bigquery", &[&options, more].concat()),
            table("bad", "", "delta", &[("path", "bad"), ("commitInterval", "100ms")]),
        ));
        Self { server, pipeline }
    }

    fn count(&self) -> u64 {
        self.server.count("d.target")
    }

    fn wait_for_more(&self, running: &mut Running) {
        let before = self.count();
        running.wait_while_running("more rows", || self.count() > before);
    }

    fn crash_at_steps(&self, steps: &[&str], nth: u64) {
        for step in steps {
            let is_once = ["progress-claimed", "before-begin"].contains(step);
            let nth = if is_once { 1 } else { nth };
            crashing_at(&self.pipeline, step, nth).wait(wait::SOON).expect_crash(step);
        }
    }

    fn kill_at_random(&self, rounds: u64) {
        for round in 0..rounds {
            let mut running = self.pipeline.start(&[]);
            self.wait_for_more(&mut running);
            some_time(round, 400);
            running.kill();
        }
    }

    /// Runs what is left; gives the numbers in the table and those of the letters, sorted.
    fn outcome(&self) -> (Vec<u64>, Vec<u64>) {
        let mut running = self.pipeline.start(&[]);
        self.wait_for_more(&mut running);
        running.stop().expect_success();
        let number = |row: &Value| row["n"].as_u64().expect("a number");
        let mut rows: Vec<u64> = self.server.rows("d.target").iter().map(number).collect();
        rows.sort_unstable();
        (rows, letters(&self.pipeline))
    }

    fn assert_exactly_once(&self) {
        let (rows, letters) = self.outcome();
        let all = (rows.len() + letters.len()) as u64;
        let is_letter = |n: &u64| n % EACH == REFUSED;
        let of = |wanted: bool| (0..all).filter(move |n| is_letter(n) == wanted);
        assert!(letters.iter().copied().eq(of(true)), "{} letters of {all}", letters.len());
        assert!(rows.iter().copied().eq(of(false)), "{} rows of {all}", rows.len());
        let checkpoint = self.pipeline.checkpoint();
        let last = checkpoint.latest("commits");
        assert_eq!(checkpoint.latest("offsets"), last, "every micro-batch is committed");
    }
}

/// The numbers in the rows of the letters, sorted.
fn letters(pipeline: &Pipeline) -> Vec<u64> {
    let sql = "SELECT string_agg(decode(payload), '\n') AS rows FROM TABLE \
               WHERE flow_name = 'told' AND error LIKE '%a row of projects/p/datasets/d/tables/%'";
    let found = oracle::light().query(&pipeline.path("bad"), sql);
    let rows = found["rows"].as_str().unwrap_or_default().lines();
    let number = |line: &str| {
        let row: Value = serde_json::from_str(line).expect("JSON");
        row["n"].as_u64().expect("a number")
    };
    let mut numbers: Vec<u64> = rows.map(number).collect();
    numbers.sort_unstable();
    numbers
}

#[test]
fn a_crash_at_any_step_loses_and_doubles_no_letter() {
    let server = BigQuery::start_fake(&[]);
    let sorted = Sorted::new(&server, 2_000, 1, &[]);
    let steps = [&STEPS[..STEPS.len() - 1], &REFUSED_STEPS].concat();
    for nth in [1, 3] {
        sorted.crash_at_steps(&steps, nth);
    }
    sorted.assert_exactly_once();
}

#[test]
fn kills_with_many_messages_under_way_lose_and_double_no_letter() {
    let server = BigQuery::start_fake(&[]);
    let sorted = Sorted::new(&server, 8_000, 1_000, &[("numStreams", "2")]);
    sorted.kill_at_random(3 * kills(1));
    sorted.assert_exactly_once();
}

#[test]
fn failures_of_every_kind_and_kills_lose_and_double_no_letter() {
    let server = BigQuery::start_fake(&["--chaos", "40"]);
    // A source that went on while the flow was away has its backlog; at more rows a second a busy
    // machine would never come to the end of it between two failures.
    let sorted = Sorted::new(&server, 2_000, 500, &[("numStreams", "2")]);
    sorted.kill_at_random(3 * kills(1));
    sorted.assert_exactly_once();
}

#[test]
fn at_least_once_no_row_is_lost_and_a_letter_is_there_once() {
    let server = BigQuery::start_fake(&[]);
    let sorted = Sorted::new(&server, 8_000, 500, &[("delivery", "at-least-once")]);
    sorted.kill_at_random(3 * kills(1));
    sorted.crash_at_steps(&REFUSED_STEPS, 2);
    let (mut rows, letters) = sorted.outcome();
    rows.dedup();
    let all = (rows.len() + letters.len()) as u64;
    let last = rows.last().copied().max(letters.last().copied()).unwrap_or(0);
    let is_there = |n: &u64| rows.binary_search(n).is_ok() || letters.contains(n);
    let missing: Vec<u64> = (0..=last).filter(|n| !is_there(n)).collect();
    assert!(missing.is_empty(), "{missing:?} of {last}");
    let expected = (0..all).filter(|n| n % EACH == REFUSED);
    assert!(letters.iter().copied().eq(expected), "{} letters of {all}", letters.len());
    assert_eq!(rows.last().copied().max(letters.last().copied()), Some(all - 1));
}

#[test]
fn rows_that_cannot_be_sent_are_letters_too() {
    for delivery in ["exactly-once", "at-least-once"] {
        let server = BigQuery::start_fake(&[]);
        let columns = json!([{"name": "n", "type": "INTEGER"},
                             {"name": "items", "type": "INTEGER", "mode": "REPEATED"}]);
        server.create_fake_table("d.target", &columns);
        let (grpc, rest) = (server.grpc_url(), server.rest_url());
        let options = [
            ("table", "d.target"),
            ("project", "p"),
            ("delivery", delivery),
            ("bigQueryStorageGrpcEndpoint", &grpc),
            ("bigQueryHttpEndpoint", &rest),
            ("onError", "dead letter"),
            ("deadLetter", "bad"),
        ];
        let pipeline = Pipeline::new(&format!(
            "{}{}{}CREATE FLOW told AS INSERT INTO target SELECT n, \
             CASE WHEN n % 10 = 3 THEN array(n, NULL) ELSE array(n) END AS items \
             FROM STREAM source;\n",
            table("source", "(n BIGINT)", "json", &[("path", "input")]),
            table("target", "", "bigquery", &options),
            table("bad", "", "delta", &[("path", "bad")]),
        ));
        let rows: String = (0..100).map(|n| format!("{{\"n\":{n}}}\n")).collect();
        put(&pipeline, "input/0.json", &rows);
        pipeline.run(&["--trigger", "availableNow"]).expect_success();
        assert_eq!(letters(&pipeline), (0..10).map(|n| 10 * n + 3).collect::<Vec<u64>>());
        assert_eq!(server.count("d.target"), 90);
        // The next run has nothing to do, and no letters to give again.
        pipeline.run(&["--trigger", "availableNow"]).expect_success();
        assert_eq!(letters(&pipeline).len(), 10, "{delivery}");
    }
}

//! Exactly once into BigQuery: an emulator, counted by Google's own client, and a fake that follows
//! the service's documentation and fails when it is told to.
//!
//! The source is `rate`, whose rows are numbered from 0 on: the table has to hold just these
//! numbers. `MILLSTREAM_KILLS` says how often a process is ended at each step, and ten times as
//! often at random moments.

use std::time::Duration;

use millstream_testkit::bigquery::BigQuery;
use serde_json::{Value, json};

use crate::files_and_static::put;
use crate::live::{ASYNC, crashing_at, kills, occurrences, some_time};
use crate::millstream::{Pipeline, Running, table};
use crate::wait;

/// Steps of a run, and of a micro-batch that becomes visible with others.
pub const STEPS: [&str; 13] = [
    "progress-claimed",
    "after-take",
    "after-run",
    "before-begin",
    "after-produce",
    "before-commit",
    "after-commit",
    "streams-flushed",
    "before-intent",
    "after-intent",
    "before-commit-entry",
    "after-commit-entry",
    "streams-half-flushed",
];

/// A flow of numbers into a table.
struct Numbered<'a> {
    server: &'a BigQuery,
    table: &'static str,
    is_fake: bool,
    pipeline: Pipeline,
}

/// So many numbers a second, each with so many letters, and how far commits are apart.
struct Rate(u32, u32, &'static str);

const SMALL: Rate = Rate(2_000, 1, "100 milliseconds");
/// More than one message for a commit.
const LARGE: Rate = Rate(8_000, 1_000, "400 milliseconds");

impl<'a> Numbered<'a> {
    /// Into a table of the emulator, which makes more than one row of it visible at a time.
    fn emulated(
        server: &'a BigQuery,
        table: &'static str,
        rate: Rate,
        more: &[(&str, &str)],
    ) -> Self {
        server.create_dataset("d");
        server.create_table(table, &columns());
        Self::new(server, table, false, rate, more)
    }

    /// Into a table of the fake.
    fn faked(server: &'a BigQuery, table: &'static str, rate: Rate, more: &[(&str, &str)]) -> Self {
        server.create_fake_table(table, &columns());
        Self::new(server, table, true, rate, more)
    }

    fn new(
        server: &'a BigQuery,
        name: &'static str,
        is_fake: bool,
        Rate(rows, letters, every): Rate,
        more: &[(&str, &str)],
    ) -> Self {
        let (grpc, rest) = (server.grpc_url(), server.rest_url());
        let options = [
            ("table", name),
            ("project", "p"),
            ("bigQueryStorageGrpcEndpoint", &grpc),
            ("bigQueryHttpEndpoint", &rest),
            ("triggeringFrequency", every),
            ("trigger", "1 millisecond"),
        ];
        let pipeline = Pipeline::new(&format!(
            "{}{}CREATE FLOW numbered AS INSERT INTO target SELECT value AS n, \
             repeat('x', {letters}) AS text FROM STREAM source;\n",
            table("source", "", "rate", &[("rowsPerSecond", &rows.to_string())]),
            table("target", "", "bigquery", &[&options, more].concat()),
        ));
        let variables = if is_fake { &[][..] } else { &EMULATOR };
        Self { server, table: name, is_fake, pipeline: pipeline.with_variables(variables) }
    }

    /// Rows, different numbers, the least and the greatest.
    fn found(&self) -> [u64; 4] {
        if self.is_fake {
            let rows = self.server.rows(self.table);
            let mut numbers: Vec<u64> =
                rows.iter().map(|row| row["n"].as_u64().expect("a number")).collect();
            numbers.sort_unstable();
            let (first, last) = (numbers.first().copied(), numbers.last().copied());
            let count = numbers.len() as u64;
            numbers.dedup();
            return [count, numbers.len() as u64, first.unwrap_or(0), last.unwrap_or(0)];
        }
        let figures = "COUNT(*), COUNT(DISTINCT n), IFNULL(MIN(n), 0), IFNULL(MAX(n), 0)";
        let rows = self.server.query(&format!("SELECT {figures} FROM {}", self.table));
        let figure = |index: usize| {
            rows[0][index].as_u64().unwrap_or_else(|| panic!("{rows:?} are no figures"))
        };
        [0, 1, 2, 3].map(figure)
    }

    fn count(&self) -> u64 {
        if self.is_fake { self.server.count(self.table) } else { self.found()[0] }
    }

    fn wait_for_more(&self, running: &mut Running) {
        let before = self.count();
        running.wait_while_running("more rows", || self.count() > before);
    }

    fn run_briefly(&self) {
        let mut running = self.pipeline.start(&[]);
        self.wait_for_more(&mut running);
        let mut stopped = running.stop();
        for _ in 0..3 {
            // The emulator may need longer than a run that is stopped waits for it. The next one
            // does what is left.
            if self.is_fake || !stopped.stderr.contains("for 20 s: it does not answer") {
                break;
            }
            let running = self.pipeline.start(&[]);
            wait::pause(Duration::from_secs(10));
            stopped = running.stop();
        }
        stopped.expect_success();
    }

    fn kill_at_random(&self, rounds: u64) {
        for round in 0..rounds {
            let mut running = self.pipeline.start(&[]);
            self.wait_for_more(&mut running);
            some_time(round, 300);
            running.kill();
        }
    }

    fn crash_at_steps(&self, steps: &[&str], occurrences: &[u64]) {
        for step in steps {
            for nth in occurrences {
                // A run has only one beginning, and a small one opens one stream.
                let is_once = ["progress-claimed", "before-begin"].contains(step);
                let nth = if is_once { 1 } else { *nth };
                crashing_at(&self.pipeline, step, nth).wait(wait::SOON).expect_crash(step);
            }
        }
    }

    fn assert_numbers(&self) {
        let [rows, different, first, last] = self.found();
        assert!(rows > 0, "the table is empty");
        assert_eq!([different, first, last], [rows, 0, rows - 1], "of {rows} rows");
    }

    /// Runs what is left, and compares the table with the numbers that were read.
    fn assert_exactly_once(&self) {
        self.run_briefly();
        self.assert_numbers();
        let checkpoint = self.pipeline.checkpoint();
        checkpoint.assert_entries_well_formed(1);
        let last = checkpoint.latest("commits");
        assert_eq!(checkpoint.latest("offsets"), last, "every micro-batch is committed");
        let ended = format!("{{\"rows\":{}}}", self.count());
        let entry = self.pipeline.path(&format!("checkpoint/offsets/{last}"));
        let entry = std::fs::read_to_string(entry).expect("it is there");
        assert!(entry.contains(&ended), "{ended} is not in {entry}");
    }
}

/// The times of a step at which a process is ended: few, since the emulator takes its time, unless
/// `MILLSTREAM_KILLS` asks for more.
fn few() -> Vec<u64> {
    if kills(0) == 0 { vec![2] } else { occurrences(5) }
}

/// The emulator's FlushRows takes a count, and not an offset.
const EMULATOR: [(&str, &str); 1] = [("BIGQUERY_EMULATOR_FLUSH_COUNTS", "1")];

fn columns() -> Value {
    json!([{"name": "n", "type": "INTEGER"}, {"name": "text", "type": "STRING"}])
}

#[test]
fn a_crash_at_any_step_loses_and_doubles_nothing() {
    let server = BigQuery::start();
    let numbered = Numbered::emulated(&server, "d.numbers", SMALL, &[]);
    numbered.crash_at_steps(&STEPS, &few());
    numbered.assert_exactly_once();
}

#[test]
fn kills_at_random_moments_lose_and_double_nothing() {
    let server = BigQuery::start();
    let small = Numbered::emulated(&server, "d.small", SMALL, &[]);
    small.kill_at_random(10 * kills(1) / 2);
    small.assert_exactly_once();
    let large = Numbered::emulated(&server, "d.large", LARGE, &[("numStreams", "3")]);
    large.kill_at_random(10 * kills(1) / 2);
    large.crash_at_steps(&["streams-half-flushed"], &few());
    let (step, second) = ("before-begin", 2);
    crashing_at(&large.pipeline, step, second).wait(wait::SOON).expect_crash(step);
    large.assert_exactly_once();
}

#[test]
fn kills_with_asynchronous_tracking_lose_and_double_nothing() {
    let server = BigQuery::start_fake(&[]);
    let numbered = Numbered::faked(&server, "d.numbers", SMALL, &ASYNC);
    numbered.kill_at_random(10 * kills(1) / 2);
    numbered.run_briefly();
    numbered.assert_numbers();
}

#[test]
fn failures_of_every_kind_and_kills_lose_and_double_nothing() {
    let server = BigQuery::start_fake(&["--chaos", "40"]);
    let small = Numbered::faked(&server, "d.small", SMALL, &[]);
    small.kill_at_random(10 * kills(1));
    small.crash_at_steps(&STEPS[..STEPS.len() - 1], &[2]);
    small.assert_exactly_once();
    let large = Numbered::faked(&server, "d.large", LARGE, &[("numStreams", "3")]);
    large.kill_at_random(10 * kills(1) / 3);
    large.assert_exactly_once();
}

/// What a run survives without a restart of its flow, and how often it may happen in a row.
const PASSING: [(&str, u64); 7] = [
    ("reset-before", 3),
    ("reset-after", 3),
    ("append-quota", 3),
    ("internal", 3),
    ("expired", 1),
    ("flush-unavailable", 2),
    ("flush-lost", 1),
];

#[test]
fn failures_that_pass_are_waited_for() {
    let server = BigQuery::start_fake(&[]);
    let numbered = Numbered::faked(&server, "d.numbers", LARGE, &[]);
    let mut running = numbered.pipeline.start(&["--restart", "never"]);
    numbered.wait_for_more(&mut running);
    for (fault, times) in PASSING {
        server.order(fault, 1, times);
        running.wait_while_running(fault, || server.seen()["orders"] == 0);
        numbered.wait_for_more(&mut running);
    }
    running.stop().expect_success();
    numbered.assert_numbers();
    let seen = server.seen();
    assert_eq!(seen["trace_ids"][0], "millstream:numbered");
    assert_eq!(seen["open"], 0, "streams are ended with the run");
    // So is a start that meets a quota.
    server.order("create-quota", 0, 3);
    server.order("rest-quota", 0, 3);
    numbered.run_briefly();
    numbered.assert_numbers();
}

#[test]
fn a_small_flow_has_one_stream() {
    let server = BigQuery::start_fake(&[]);
    let numbered = Numbered::faked(&server, "d.numbers", Rate(20, 1, "100 milliseconds"), &[]);
    let mut running = numbered.pipeline.start(&[]);
    for _ in 0..5 {
        numbered.wait_for_more(&mut running);
    }
    running.stop().expect_success();
    numbered.assert_numbers();
    assert_eq!(server.seen()["creates"], 1);
}

#[test]
fn a_stream_that_ends_is_replaced() {
    let server = BigQuery::start_fake(&[]);
    let numbered = Numbered::faked(&server, "d.numbers", SMALL, &[]);
    let mut running = numbered.pipeline.start(&[]);
    for _ in 0..kills(2) {
        numbered.wait_for_more(&mut running);
        server.order("finalize", 2, 1);
        running.wait_while_running("the end of a stream", || server.seen()["orders"] == 0);
    }
    numbered.wait_for_more(&mut running);
    running.stop().expect_success().says(&["has ended", "written again"]);
    numbered.assert_numbers();
    // One that was forgotten while nothing ran is not missed.
    server.forget_streams();
    numbered.run_briefly();
    numbered.assert_numbers();
}

#[test]
fn rows_whose_stream_is_gone_before_they_are_visible_are_reported() {
    let server = BigQuery::start_fake(&[]);
    let numbered = Numbered::faked(&server, "d.numbers", SMALL, &[]);
    numbered.run_briefly();
    crashing_at(&numbered.pipeline, "after-commit", 2)
        .wait(wait::SOON)
        .expect_crash("after-commit");
    server.forget_streams();
    let refused = numbered.pipeline.run(&[]).says(&["does not know the stream", "failOnDataLoss"]);
    assert!(!refused.status.success());
    let before = numbered.count();
    let mut running = numbered.pipeline.start(&["--set", "target.failOnDataLoss=false"]);
    numbered.wait_for_more(&mut running);
    running.stop().expect_success().says(&["going on"]);
    let [rows, different, first, last] = numbered.found();
    assert_eq!([rows, first], [different, 0]);
    assert!(last + 1 > rows, "rows are missing, as was said, behind {before}");
}

#[test]
fn only_the_rows_of_a_stream_that_is_gone_are_given_up() {
    let server = BigQuery::start_fake(&[]);
    let numbered = Numbered::faked(&server, "d.numbers", LARGE, &[("numStreams", "3")]);
    let step = "after-commit";
    crashing_at(&numbered.pipeline, step, 2).wait(wait::SOON).expect_crash(step);
    // Whoever lacks a permission does not know that rows are lost.
    let going_on = ["--set", "target.failOnDataLoss=false", "--restart", "never"];
    server.order("flush-denied", 0, 1);
    let denied =
        numbered.pipeline.run(&going_on).says(&["TABLES_UPDATE_DATA", "make rows visible"]);
    assert!(!denied.status.success());
    crashing_at(&numbered.pipeline, step, 2).wait(wait::SOON).expect_crash(step);
    let hidden = server.forget_a_stream();
    let refused = numbered.pipeline.run(&[]).says(&["does not know the stream", "failOnDataLoss"]);
    assert_eq!(refused.stderr.matches("rows of the write stream").count(), 1);
    let mut running = numbered.pipeline.start(&going_on);
    numbered.wait_for_more(&mut running);
    running.stop().expect_success().says(&["going on"]);
    let [rows, different, first, last] = numbered.found();
    assert_eq!([rows, first], [different, 0]);
    let missing = last + 1 - rows;
    assert!((1..=hidden).contains(&missing), "{missing} are missing, and {hidden} were in it");
}

#[test]
fn a_run_that_is_stopped_while_a_server_stands_still_ends() {
    for options in [&[][..], &[("delivery", "at-least-once")]] {
        let server = BigQuery::start_fake(&[]);
        let numbered = Numbered::faked(&server, "d.numbers", SMALL, options);
        let mut running = numbered.pipeline.start(&[]);
        numbered.wait_for_more(&mut running);
        server.pause();
        let told = "BigQuery at";
        let is_told = || running.stderr().contains(told);
        wait::until_true("the silence to be told", wait::SOON, is_told);
        running.interrupt();
        // Less than an answer may take otherwise.
        let ended = running.wait(Duration::from_secs(40)).says(&["BigQuery did not"]);
        assert!(!ended.status.success());
        server.go_on();
        numbered.run_briefly();
        let [rows, different, first, last] = numbered.found();
        assert_eq!([different, first], [last + 1, 0], "nothing is lost");
        assert!(rows == different || !options.is_empty(), "nothing is there twice");
    }
}

#[test]
fn a_server_that_stands_still_is_waited_for() {
    let server = BigQuery::start_fake(&[]);
    let numbered = Numbered::faked(&server, "d.numbers", SMALL, &[]);
    let mut running = numbered.pipeline.start(&[]);
    numbered.wait_for_more(&mut running);
    server.pause();
    wait::pause(Duration::from_secs(20));
    assert!(running.is_running());
    server.go_on();
    numbered.wait_for_more(&mut running);
    running.stop().expect_success();
    numbered.assert_numbers();
}

#[test]
fn at_least_once_repeats_after_a_crash_and_loses_nothing() {
    let server = BigQuery::start_fake(&[]);
    let numbered = Numbered::faked(&server, "d.numbers", SMALL, &[("writeAtLeastOnce", "true")]);
    numbered.kill_at_random(10 * kills(1) / 2);
    numbered.crash_at_steps(&["after-produce", "before-commit-entry"], &[1, 3]);
    numbered.run_briefly();
    let [rows, different, first, last] = numbered.found();
    assert_eq!([different, first], [last + 1, 0], "nothing is lost");
    assert!(rows > different, "what was not logged is written again");

    let fake = BigQuery::start_fake(&["--chaos", "30"]);
    let options = [("delivery", "at-least-once"), ("numStreams", "3")];
    let numbered = Numbered::faked(&fake, "d.numbers", LARGE, &options);
    for _ in 0..3 {
        numbered.run_briefly();
    }
    let [_, different, first, last] = numbered.found();
    assert_eq!([different, first], [last + 1, 0], "nothing is lost");
    assert_eq!(fake.seen()["creates"], 0, "the default stream is not created");
}

#[test]
fn a_second_instance_takes_over_and_the_first_says_so() {
    let server = BigQuery::start_fake(&[]);
    let numbered = Numbered::faked(&server, "d.numbers", SMALL, &[]);
    numbered.run_briefly();
    let mut first = numbered.pipeline.start(&[]);
    numbered.wait_for_more(&mut first);
    // Another machine with the same checkpoint: here, without the lock.
    first.pause();
    let lock = numbered.pipeline.path("checkpoint/.millstream.lock");
    let _ = std::fs::remove_file(lock);
    let mut second = numbered.pipeline.start(&[]);
    numbered.wait_for_more(&mut second);
    first.go_on();
    let first = first.wait(wait::SOON);
    assert!(!first.says(&["another"]).status.success());
    numbered.wait_for_more(&mut second);
    second.stop().expect_success();
    numbered.assert_numbers();
}

/// A pipeline of one row of many types into a table, and what comes before `INSERT`.
fn typed(server: &BigQuery, options: &[(&str, &str)], select: &str) -> Pipeline {
    let (grpc, rest) = (server.grpc_url(), server.rest_url());
    let fixed = [
        ("project", "p"),
        ("dataset", "d"),
        ("bigQueryStorageGrpcEndpoint", &*grpc),
        ("bigQueryHttpEndpoint", &*rest),
    ];
    let pipeline = Pipeline::new(&format!(
        "{}{}INSERT INTO target {select};\n",
        table("source", "(n BIGINT, text STRING)", "json", &[("path", "in")]),
        table("target", "", "bigquery", &[&fixed, options].concat()),
    ));
    put(&pipeline, "in/rows.json", "{\"n\":1,\"text\":\"a\"}\n{\"n\":2,\"text\":\"bad\"}\n");
    pipeline.with_variables(&EMULATOR)
}

const TYPES: &str = "SELECT n, CAST(n AS TINYINT) AS tiny, CAST(n AS DOUBLE) AS real, \
     CAST('1.25' AS DECIMAL(20,2)) AS money, text, CAST(text AS BINARY) AS raw, \
     n = 1 AS flag, DATE '2026-01-31' AS day, TIMESTAMP '2026-01-31 10:20:30.123456+00:00' AS moment, \
     TIMESTAMP_NTZ '2026-01-31 10:20:30' AS wall, array(1, 2) AS list FROM source WHERE n = 1";
/// Those that the emulator does not have.
const MORE_TYPES: &str = "SELECT CAST('0.00000000000000000001' AS DECIMAL(38,20)) AS exact, \
     named_struct('x', n, 'y', array('p')) AS rec, map('k', n) AS pairs FROM source WHERE n = 1";

#[test]
fn each_type_arrives_in_a_table_made_for_the_query() {
    let server = BigQuery::start();
    server.create_dataset("d");
    let creating = [("createDisposition", "CREATE_IF_NEEDED")];
    let batch = typed(&server, &creating, TYPES);
    batch.run(&[]).expect_success();
    let columns = server.describe("d.target");
    let columns = columns.as_array().expect("they are listed").iter();
    let types: Vec<&str> = columns.map(|column| column["type"].as_str().expect("a name")).collect();
    let wanted = [
        "INTEGER",
        "INTEGER",
        "FLOAT",
        "NUMERIC",
        "STRING",
        "BYTES",
        "BOOLEAN",
        "DATE",
        "TIMESTAMP",
        "DATETIME",
        "INTEGER",
    ];
    assert_eq!(types, wanted);
    let rows = server.query(
        "SELECT n, tiny, real, money = 1.25, text, raw, flag, CAST(day AS STRING), \
         UNIX_MICROS(moment), CAST(wall AS STRING), list FROM d.target",
    );
    let at_us = 1_769_854_830_123_456_u64;
    let wanted = json!([
        1,
        1,
        1.0,
        true,
        "a",
        "61",
        true,
        "2026-01-31",
        at_us,
        "2026-01-31 10:20:30",
        [1, 2]
    ]);
    assert_eq!(rows, [wanted]);
    let fake = BigQuery::start_fake(&[]);
    typed(&fake, &creating, MORE_TYPES).run(&[]).expect_success();
    let rows = fake.rows("d.target");
    let exact = rows[0]["exact"].as_str().expect("a text");
    assert!(exact.starts_with("1.000") && exact.ends_with("E-20"), "{exact}");
    assert_eq!(rows[0]["rec"], json!({"x": 1, "y": ["p"]}));
    assert_eq!(rows[0]["pairs"], json!([{"key": "k", "value": 1}]));
}

#[test]
fn a_run_that_has_read_all_of_its_input_waits_for_the_service() {
    let server = BigQuery::start_fake(&[]);
    server.create_fake_table("d.target", &columns());
    let pipeline = typed(&server, &[], "SELECT n FROM STREAM source").with_variables(&[]);
    // For more than the 20 seconds that a run has which is stopped.
    server.order("append-quota", 0, 11);
    pipeline.run_available().says(&["is asked again"]);
    assert_eq!(server.count("d.target"), 2);
}

#[test]
fn a_result_that_is_lost_is_not_computed_to_its_end() {
    let server = BigQuery::start_fake(&["--discard"]);
    server.create_fake_table("d.target", &columns());
    let squared = "SELECT a.n AS n FROM source AS a CROSS JOIN source AS b";
    let pipeline = typed(&server, &[], squared);
    let rows: String = (0..4_000).map(|n| format!("{{\"n\":{n}}}\n")).collect();
    put(&pipeline, "in/more.json", &rows);
    server.order("finalize", 0, 1);
    assert!(!pipeline.run(&[]).says(&["has ended"]).status.success());
    let appended = server.seen()["rows_appended"].as_u64().expect("a number");
    assert!(appended < 2_000_000, "{appended} of sixteen million rows were sent");
    assert_eq!(server.count("d.target"), 0, "and none is visible");
}

#[test]
fn a_table_that_does_not_fit_and_a_row_that_is_refused_are_named() {
    let server = BigQuery::start_fake(&[]);
    let missing = typed(&server, &[], "SELECT n FROM STREAM source").run(&[
        "--trigger",
        "availableNow",
        "--restart",
        "never",
    ]);
    assert!(!missing.says(&["has no table", "CREATE_IF_NEEDED"]).status.success());
    server.create_fake_table("d.target", &columns());
    let wrong = typed(&server, &[], "SELECT text AS n, text FROM STREAM source").run(&[
        "--trigger",
        "availableNow",
        "--restart",
        "never",
    ]);
    let words = ["column n of projects/p/datasets/d/tables/target", "CAST(... AS BIGINT)"];
    assert!(!wrong.says(&words).status.success());
    // One that was just created is waited for.
    server.order("table-unknown", 0, 2);
    let creating = [("table", "new"), ("createDisposition", "CREATE_IF_NEEDED")];
    typed(&server, &creating, "SELECT n FROM source").run(&[]).expect_success();
    assert_eq!(server.count("d.new"), 2);
    // So is one that a run before has created, or somebody.
    server.create_fake_table("d.newer", &columns());
    server.order("table-unknown", 0, 2);
    typed(&server, &[("table", "newer")], "SELECT n FROM source").run(&[]).expect_success();
    assert_eq!(server.count("d.newer"), 2);
    for options in [&[][..], &[("delivery", "at-least-once")]] {
        let refused = typed(&server, options, "SELECT n, text FROM STREAM source").run(&[
            "--trigger",
            "availableNow",
            "--restart",
            "never",
        ]);
        let words = ["rows.json:2", "row 1 has a bad value"];
        assert!(!refused.says(&words).status.success());
    }
    assert_eq!(server.count("d.target"), 0, "nothing of a refused message is there");
    let nulls = "SELECT n, array(n, NULL) AS text FROM STREAM source";
    server.create_fake_table(
        "d.lists",
        &json!([{"name": "n", "type": "INTEGER"},
                {"name": "text", "type": "INTEGER", "mode": "REPEATED"}]),
    );
    let refused = typed(&server, &[("table", "lists")], nulls).run(&[
        "--trigger",
        "availableNow",
        "--restart",
        "never",
    ]);
    assert!(!refused.says(&["IS NOT NULL", "rows.json"]).status.success());
}

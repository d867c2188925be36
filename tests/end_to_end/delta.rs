//! Delta tables written from Kafka, read back by the engines that users have.
//!
//! `MILLSTREAM_KILLS` says how often a process is ended at each step (three times without it), as
//! for Kafka, and ten times as often at random moments.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::kafka::{self, Broker};
use crate::live::{ASYNC, Numbers, PARTITIONS, kills, occurrences};
use crate::millstream::{Pipeline, Running, table};
use crate::oracle;
use crate::wait;

/// The steps of a micro-batch into a table, and those of a checkpoint of the table's log.
pub const STEPS: [&str; 14] = [
    "after-take",
    "after-run",
    "before-begin",
    "after-produce",
    "before-commit",
    "after-commit",
    "before-intent",
    "after-intent",
    "before-commit-entry",
    "after-commit-entry",
    "checkpoint-staged",
    "checkpoint-half-published",
    "checkpoint-unhinted",
    "checkpoint-hinted",
];

/// A flow from a topic to a table. The records are numbers, the same ones in each partition.
struct Landed<'a> {
    numbers: Numbers<'a>,
    pipeline: Pipeline,
}

impl<'a> Landed<'a> {
    fn new(broker: &'a Broker, name: &str, sink: &[(&str, &str)]) -> Self {
        let numbers = Numbers::new(broker.topics(), format!("{name}_in"));
        let to = [("path", "table")];
        let pipeline = Pipeline::new(&format!(
            "{}{}CREATE FLOW landed AS INSERT INTO target\n\
             SELECT CAST(CAST(value AS STRING) AS BIGINT) AS id, partition,\n\
             CAST(value AS STRING) AS text FROM STREAM source;\n",
            numbers.source_table(&broker.address()),
            table("target", "", "delta", &[&to, sink].concat()),
        ));
        Self { numbers, pipeline }
    }

    fn table(&self) -> PathBuf {
        self.pipeline.path("table")
    }

    /// Waits until `running` has committed more.
    fn wait_for_more(&self, running: &mut Running) {
        let before = versions(&self.table());
        running.wait_while_running("another commit", || versions(&self.table()) > before);
    }

    /// Runs what is left, and holds the table, as DuckDB and delta-rs see it, against what was
    /// produced.
    fn assert_exactly_once(&self) {
        self.numbers.run_the_rest(&self.pipeline, "target");
        self.assert_table();
        self.numbers.assert_logged(&self.pipeline);
    }

    fn assert_table(&self) {
        assert_numbers(&self.table(), self.numbers.produced());
    }
}

/// Holds a table, as DuckDB and delta-rs see it, against `produced` numbers in each partition of a
/// topic.
pub fn assert_numbers(table: &Path, produced: u64) {
    let mut oracle = oracle::light();
    let found = oracle.query(
        table,
        "SELECT count(*) AS rows, count(DISTINCT (id, partition)) AS different, \
         sum(id) AS sum, max(id) AS last FROM TABLE",
    );
    let number = |value: &Value| -> u64 {
        let text = value.as_str().map_or(value.to_string(), str::to_owned);
        text.parse().unwrap_or_else(|_| panic!("{value} is no number"))
    };
    let facts = ["rows", "different", "sum", "last"].map(|fact| number(&found[fact]));
    let rows = produced * PARTITIONS as u64;
    let sum = produced * (produced - 1) / 2 * PARTITIONS as u64;
    assert_eq!(facts, [rows, rows, sum, produced - 1], "rows, different rows, sum, last");
    oracle.agreed(&["deltalake", "duckdb"], table);
}

/// Commits in the table's log.
pub fn versions(table: &Path) -> usize {
    log_files(table).iter().filter(|name| name.ends_with(".json") && name.len() == 25).count()
}

fn log_files(table: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(table.join("_delta_log")) else { return Vec::new() };
    let names = entries.map(|entry| entry.expect("readable").file_name());
    let mut names: Vec<_> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn each_record_lands_once() {
    let landed = Landed::new(kafka::shared(), "delta_plain", &[]);
    landed.numbers.produce(500);
    landed.assert_exactly_once();
    landed.numbers.produce(500);
    landed.assert_exactly_once();
    let commits = versions(&landed.table());
    landed.assert_exactly_once();
    assert_eq!(versions(&landed.table()), commits, "nothing new: nothing is written");
}

#[test]
fn one_large_record_batch_is_more_than_one_writer_begins_with() {
    let pipeline = Pipeline::new(
        "CREATE TABLE small (n BIGINT) USING json OPTIONS ('path' = 'small');\n\
         CREATE TABLE large USING delta OPTIONS ('path' = 'large');\n\
         INSERT INTO large SELECT n, repeat('x', 4000) AS text FROM small;\n",
    );
    let rows: String = (0..8_000).map(|n| format!("{{\"n\":{n}}}\n")).collect();
    std::fs::create_dir_all(pipeline.path("small")).expect("a directory can be made");
    std::fs::write(pipeline.path("small/rows.json"), rows).expect("a file can be written");
    pipeline.run(&[]).expect_success();
    let all = "SELECT count(DISTINCT n) AS rows, sum(length(text)) AS bytes FROM TABLE";
    let found = oracle::light().query(&pipeline.path("large"), all);
    assert_eq!(found["rows"].as_i64(), Some(8_000));
}

#[test]
fn micro_batches_are_gathered_into_a_commit() {
    let landed = Landed::new(kafka::shared(), "delta_gathered", &[("commitInterval", "500ms")]);
    let mut running = landed.pipeline.start(&[]);
    let mut commits = 0;
    landed.numbers.while_producing(|| {
        landed.wait_for_more(&mut running);
        landed.wait_for_more(&mut running);
        let before = versions(&landed.table());
        wait::pause(Duration::from_secs(5));
        commits = versions(&landed.table()) - before;
    });
    assert!((3..=12).contains(&commits), "{commits} commits in five seconds");
    // What is gathered when the user stops it is published first.
    running.stop().expect_success();
    landed.assert_table_up_to_checkpoint();
    landed.assert_exactly_once();
}

impl Landed<'_> {
    /// The table has what the checkpoint says is done, and no more.
    fn assert_table_up_to_checkpoint(&self) {
        let checkpoint = self.pipeline.checkpoint();
        let last = checkpoint.latest("commits");
        let ends: i64 = checkpoint.kafka_end(last, &self.numbers.topic).values().sum();
        let rows = oracle::light().query(&self.table(), "SELECT count(*) AS rows FROM TABLE");
        assert_eq!(rows["rows"].as_i64(), Some(ends));
    }
}

#[test]
fn a_commit_for_each_micro_batch_makes_checkpoints_that_others_read() {
    let options = [("commitInterval", "0"), ("partSize", "20"), ("delta.checkpointInterval", "5")];
    let landed = Landed::new(kafka::shared(), "delta_often", &options);
    let mut running = landed.pipeline.start(&[]);
    let has_parts =
        || log_files(&landed.table()).iter().any(|name| name.contains(".checkpoint.0000000001."));
    landed
        .numbers
        .while_producing(|| running.wait_while_running("a checkpoint in parts", has_parts));
    running.stop().expect_success();
    landed.assert_exactly_once();
}

#[test]
fn kills_at_random_moments_lose_and_double_no_row() {
    let often = [("commitInterval", "50ms"), ("delta.checkpointInterval", "3"), ("partSize", "50")];
    kill_at_random_moments(&Landed::new(kafka::shared(), "delta_killed", &often));
}

#[test]
fn kills_at_random_moments_lose_and_double_no_row_with_asynchronous_tracking() {
    let often = [("commitInterval", "50ms"), ("delta.checkpointInterval", "3"), ("partSize", "50")];
    let options = [&often[..], &ASYNC[..]].concat();
    kill_at_random_moments(&Landed::new(kafka::shared(), "delta_killed_async", &options));
}

fn kill_at_random_moments(landed: &Landed<'_>) {
    let wait_for_more = |running: &mut Running| landed.wait_for_more(running);
    landed.numbers.kill_at_random(&landed.pipeline, kills(1) * 10, wait_for_more);
    landed.assert_exactly_once();
}

#[test]
fn a_crash_at_any_step_loses_and_doubles_no_row() {
    let often = [("commitInterval", "30ms"), ("delta.checkpointInterval", "3"), ("partSize", "50")];
    let landed = Landed::new(kafka::shared(), "delta_steps", &often);
    landed.numbers.crash_at_steps(&landed.pipeline, &STEPS, &occurrences(12));
    landed.assert_exactly_once();
}

//! Delta tables as streams: every row once, whatever is killed and whoever else is at the table.
//!
//! `MILLSTREAM_KILLS` says how often a process is ended at a random moment (three times without
//! it).

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use crate::live::{crashing_at, kills, some_time};
use crate::millstream::{Pipeline, table};
use crate::{delta, oracle, wait};

const FACTS: &str = "count(*) AS rows, count(DISTINCT id) AS different, sum(id) AS total";

/// A table that another process writes numbers to, and a flow that copies it.
struct Copied {
    writer: Pipeline,
    reader: Pipeline,
}

impl Copied {
    /// The copy is `format`'s: a Delta table or a directory of files.
    fn new(format: &str, source: &[(&str, &str)]) -> Self {
        let rate = [("rowsPerSecond", "3000"), ("rampUpTime", "0s")];
        let lake = [("path", "lake"), ("commitInterval", "40ms")];
        let writer = Pipeline::new(&format!(
            "{}{}CREATE FLOW fed AS INSERT INTO lake\n\
             SELECT value AS id, value % 7 AS part FROM STREAM numbers;\n",
            table("numbers", "", "rate", &rate),
            table("lake", "", "delta", &lake),
        ));
        let path = writer.path("lake").display().to_string();
        let source = [&[("path", path.as_str())], source].concat();
        let target: &[_] = match format {
            "delta" => &[("path", "copy"), ("commitInterval", "50ms")],
            _ => &[("path", "copy")],
        };
        let reader = Pipeline::new(&format!(
            "{}{}CREATE FLOW copied AS INSERT INTO copy SELECT * FROM STREAM lake;\n",
            table("lake", "", "delta", &source),
            table("copy", "", format, target),
        ));
        Self { writer, reader }
    }

    fn lake(&self) -> PathBuf {
        self.writer.path("lake")
    }

    /// Writes for some time.
    fn write(&self) {
        let mut running = self.writer.start(&[]);
        let before = delta::versions(&self.lake());
        running.wait_while_running("commits", || delta::versions(&self.lake()) > before + 3);
        running.stop().expect_success();
    }

    fn facts(&self, format: &str) -> Value {
        let copy = self.reader.path("copy");
        let sql = match format {
            "delta" => format!("SELECT {FACTS} FROM delta_scan('{}')", copy.display()),
            _ => format!("SELECT {FACTS} FROM read_json('{}/*.json')", copy.display()),
        };
        let request = json!({"op": "sql", "engine": "duckdb", "sql": sql});
        oracle::light().expect(&request)["rows"][0].clone()
    }

    /// Reads what is left, and compares the copy with the table.
    fn assert_exactly_once(&self, format: &str) {
        self.reader.run_available();
        let wanted = oracle::light().query(&self.lake(), &format!("SELECT {FACTS} FROM TABLE"));
        assert_eq!(wanted["rows"], wanted["different"], "the numbers are different ones");
        assert_eq!(self.facts(format), wanted);
    }
}

fn killed(format: &str) {
    let copied = Copied::new(format, &[("maxFilesPerTrigger", "3")]);
    copied.write();
    for step in ["after-take", "after-commit", "before-commit-entry", "after-intent"] {
        copied.write();
        crashing_at(&copied.reader, step, 2).wait(wait::SOON).expect_crash(step);
    }
    let writing = copied.writer.start(&[]);
    for round in 0..kills(3) {
        let mut running = copied.reader.start(&[]);
        let checkpoint = copied.reader.checkpoint();
        let before = checkpoint.latest("offsets");
        running.wait_while_running("micro-batches", || checkpoint.latest("offsets") > before);
        some_time(round, 200);
        running.kill();
    }
    writing.stop().expect_success();
    copied.assert_exactly_once(format);
    copied.assert_exactly_once(format);
}

#[test]
fn each_row_comes_to_a_table_once_wherever_the_process_is_killed() {
    killed("delta");
}

#[test]
fn each_row_comes_to_files_once_wherever_the_process_is_killed() {
    killed("json");
}

#[test]
fn a_commit_of_another_process_is_seen_at_once() {
    let copied = Copied::new("delta", &[]);
    copied.write();
    let mut running = copied.reader.start(&["--progress", "json"]);
    let copy = copied.reader.path("copy");
    running.wait_while_running("the first rows", || delta::versions(&copy) > 1);
    let mut oracle = oracle::light();
    let before = delta::versions(&copy);
    let schema = "id bigint, part bigint";
    let ((), took) = wait::timed(|| {
        oracle.expect(&json!({"op": "append", "engine": "deltalake", "table": copied.lake(),
            "rows": 1, "first": 1_000_000_000, "schema": schema}));
        running.wait_while_running("the row", || delta::versions(&copy) > before);
    });
    assert!(took < Duration::from_secs(5), "it took {took:?}");
    drop(oracle);
    running.stop().expect_success();
    copied.assert_exactly_once("delta");
}

/// A table of the foreign engines, and a flow that copies it.
struct Foreign {
    table: PathBuf,
    pipeline: Pipeline,
    _directory: tempfile::TempDir,
}

const SCHEMA: &str = "id bigint, text string";

impl Foreign {
    fn new(source: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let table = directory.path().join("lake");
        let path = table.display().to_string();
        let source = [&[("path", path.as_str())], source].concat();
        let pipeline = Pipeline::new(&format!(
            "{}{}CREATE FLOW copied AS INSERT INTO copy SELECT * FROM STREAM lake;\n",
            crate::millstream::table("lake", "", "delta", &source),
            crate::millstream::table(
                "copy",
                "",
                "delta",
                &[("path", "copy"), ("commitInterval", "0"), ("mergeSchema", "true")]
            ),
        ));
        Self { table, pipeline, _directory: directory }
    }

    fn ask(&self, engine: &str, op: &str, more: Value) {
        let mut request = json!({"op": op, "engine": engine, "table": self.table});
        request.as_object_mut().expect("it is one").append(&mut more.as_object().unwrap().clone());
        oracle::all().expect(&request);
    }

    fn append(&self, engine: &str, first: u64, rows: u64) {
        self.ask(engine, "append", json!({"first": first, "rows": rows, "schema": SCHEMA}));
    }

    /// The same, once the table has a third column.
    fn append_wide(&self, first: u64, rows: u64) {
        let schema = format!("{SCHEMA}, more int");
        self.ask("deltalake", "append", json!({"first": first, "rows": rows, "schema": schema}));
    }

    fn sql(&self, sql: &str) {
        let sql = sql.replace("LAKE", &format!("delta.`{}`", self.table.display()));
        oracle::all().expect(&json!({"op": "sql", "engine": "spark", "sql": sql}));
    }

    fn copy(&self) -> PathBuf {
        self.pipeline.path("copy")
    }

    fn commit(&self, version: u64) -> PathBuf {
        self.table.join(format!("_delta_log/{version:020}.json"))
    }

    /// How many rows, different rows and their sum.
    fn copied(&self) -> [u64; 3] {
        facts_of(&self.copy())
    }
}

fn facts_of(table: &Path) -> [u64; 3] {
    let found = oracle::light().query(table, &format!("SELECT {FACTS} FROM TABLE"));
    ["rows", "different", "total"].map(|fact| {
        let text = found[fact].as_str().map_or_else(|| found[fact].to_string(), str::to_owned);
        text.parse().unwrap_or(0)
    })
}

fn numbers(ranges: &[std::ops::Range<u64>]) -> [u64; 3] {
    let all = || ranges.iter().cloned().flatten();
    let rows = all().count() as u64;
    [rows, rows, all().sum()]
}

fn up_to(end: u64) -> [u64; 3] {
    numbers(std::slice::from_ref(&(0..end)))
}

#[test]
fn spark_and_millstream_take_turns_on_one_checkpoint() {
    let foreign = Foreign::new(&[("maxFilesPerTrigger", "2")]);
    let turn = |first| {
        foreign.append("spark", first, 10);
        foreign.append("deltalake", first + 10, 10);
        foreign.append("spark", first + 20, 10);
    };
    let spark = || {
        foreign.ask(
            "spark",
            "stream",
            json!({"target": foreign.copy(), "options": {"maxFilesPerTrigger": "2"},
                "checkpoint": foreign.pipeline.path("checkpoint")}),
        );
    };
    turn(0);
    spark();
    assert_eq!(foreign.copied(), up_to(30), "Spark began");
    turn(100);
    foreign.pipeline.run_available();
    assert_eq!(foreign.copied(), numbers(&[0..30, 100..130]));
    // A commit without rows, which either passes over.
    foreign.ask("spark", "optimize", json!({}));
    turn(200);
    spark();
    assert_eq!(foreign.copied(), numbers(&[0..30, 100..130, 200..230]));
    foreign.pipeline.run_available();
    turn(300);
    foreign.pipeline.run_available();
    spark();
    assert_eq!(foreign.copied(), numbers(&[0..30, 100..130, 200..230, 300..330]));
}

/// A table of six files of ten rows, of which Spark or Millstream reads all with two files to a
/// micro-batch. Then the checkpoint forgets all but the first of them, and the copy everything.
struct InTheFirstVersion {
    foreign: Foreign,
    options: Vec<(&'static str, &'static str)>,
}

fn actions(commit: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(commit).expect("it is there");
    text.lines().map(|line| serde_json::from_str(line).expect("an action")).collect()
}

impl InTheFirstVersion {
    /// The times of the files are in another order than they were written in, and some are the
    /// same.
    const TIMES_MS: [u64; 6] = [5_000, 3_000, 3_000, 9_000, 1_000, 3_000];

    fn new(more: &[(&'static str, &'static str)]) -> Self {
        let options = [&[("maxFilesPerTrigger", "2")], more].concat();
        let foreign = Foreign::new(&options);
        let feed = json!({"schema": SCHEMA, "properties": {"delta.enableChangeDataFeed": "true"}});
        foreign.ask("deltalake", "create", feed);
        for first in (0..60).step_by(10) {
            foreign.append("deltalake", first, 10);
        }
        for (version, time) in (1..).zip(Self::TIMES_MS) {
            let mut actions = actions(&foreign.commit(version));
            let add = actions.iter_mut().find_map(|action| action.get_mut("add"));
            add.expect("a file")["modificationTime"] = json!(time);
            let lines = actions.iter().map(|action| format!("{action}\n"));
            std::fs::write(foreign.commit(version), lines.collect::<String>()).expect("writable");
        }
        Self { foreign, options }
    }

    fn spark(&self) {
        let foreign = &self.foreign;
        let options: std::collections::BTreeMap<_, _> = self.options.iter().copied().collect();
        foreign.ask(
            "spark",
            "stream",
            json!({"target": foreign.copy(), "options": options,
                "checkpoint": foreign.pipeline.path("checkpoint")}),
        );
    }

    fn millstream(&self) {
        self.foreign.pipeline.run_available();
    }

    /// Rows of the files that come behind the first two.
    fn behind_the_first_micro_batch(&self) -> Vec<std::ops::Range<u64>> {
        let file = |(file, time): (u64, u64)| {
            let actions = actions(&self.foreign.commit(file + 1));
            let add = actions.iter().find_map(|action| action.get("add")).expect("a file");
            (time, add["path"].as_str().expect("text").to_owned(), file)
        };
        let mut files: Vec<_> = (0..).zip(Self::TIMES_MS).map(file).collect();
        files.sort();
        assert_eq!((files[0].2, files[5].2), (4, 3), "the order of their times");
        files[2..].iter().map(|(.., file)| file * 10..(file + 1) * 10).collect()
    }

    fn forget_all_but_the_first_micro_batch(&self) {
        for log in ["offsets", "commits"] {
            let log = self.foreign.pipeline.path("checkpoint").join(log);
            for entry in std::fs::read_dir(log).expect("it is there") {
                let entry = entry.expect("an entry");
                let name = entry.file_name().into_string().expect("text");
                if !["0", ".0.crc"].contains(&name.as_str()) {
                    std::fs::remove_file(entry.path()).expect("it is there");
                }
            }
        }
        let text = std::fs::read_to_string(self.foreign.pipeline.path("checkpoint/offsets/0"));
        let text = text.expect("the first micro-batch was logged");
        assert!(text.contains("\"index\":1,\"isStartingVersion\":true"), "{text}");
        std::fs::remove_dir_all(self.foreign.copy()).expect("it is there");
    }

    /// The rest of the first version, and what comes then, is read by the other one.
    fn taken_over(&self, first: impl Fn(&Self), then: impl Fn(&Self)) {
        first(self);
        assert_eq!(self.foreign.copied(), up_to(60));
        self.forget_all_but_the_first_micro_batch();
        let mut rows = self.behind_the_first_micro_batch();
        then(self);
        assert_eq!(self.foreign.copied(), numbers(&rows));
        self.foreign.append("deltalake", 100, 10);
        then(self);
        rows.push(100..110);
        assert_eq!(self.foreign.copied(), numbers(&rows));
    }
}

#[test]
fn millstream_takes_over_from_spark_inside_the_first_version() {
    InTheFirstVersion::new(&[]).taken_over(InTheFirstVersion::spark, InTheFirstVersion::millstream);
}

#[test]
fn spark_takes_over_from_millstream_inside_the_first_version() {
    InTheFirstVersion::new(&[]).taken_over(InTheFirstVersion::millstream, InTheFirstVersion::spark);
}

#[test]
fn changes_are_taken_over_from_spark_inside_the_first_version() {
    let changes = InTheFirstVersion::new(&[("readChangeFeed", "true")]);
    changes.taken_over(InTheFirstVersion::spark, InTheFirstVersion::millstream);
    let kinds =
        "SELECT count(DISTINCT _change_type) AS rows FROM TABLE WHERE _change_type = 'insert'";
    let found = oracle::light().query(&changes.foreign.copy(), kinds);
    assert_eq!(found["rows"].as_u64(), Some(1), "{found}");
}

#[test]
fn tables_of_other_engines_are_read_once_through_optimise_and_vacuum() {
    let foreign = Foreign::new(&[("maxFilesPerTrigger", "3")]);
    foreign.append("deltalake", 0, 10);
    foreign.append("spark", 10, 10);
    foreign.ask("spark", "checkpoint", json!({}));
    foreign.pipeline.run_available();
    foreign.append("deltalake", 20, 10);
    foreign.append("spark", 30, 10);
    foreign.ask("deltalake", "optimize", json!({}));
    foreign.append("deltalake", 40, 10);
    foreign.ask("spark", "optimize", json!({}));
    foreign.pipeline.run_available();
    assert_eq!(foreign.copied(), up_to(50));
    // What was read may go.
    foreign.ask("spark", "vacuum", json!({"retain_hours": 0}));
    foreign.append("spark", 50, 10);
    foreign.pipeline.run_available();
    assert_eq!(foreign.copied(), up_to(60));

    foreign.ask("spark", "delete", json!({"where": "id < 5"}));
    let refused = foreign.pipeline.run(&["--trigger", "availableNow"]);
    assert!(!refused.says(&["skipChangeCommits", "changes rows"]).status.success());
    let skip = ["--trigger", "availableNow", "--set", "lake.skipChangeCommits=true"];
    foreign.pipeline.run(&skip).expect_success();
    foreign.ask("deltalake", "delete", json!({"where": "id >= 0"}));
    foreign.append("deltalake", 60, 10);
    let ignore = ["--trigger", "availableNow", "--set", "lake.ignoreDeletes=true"];
    foreign.pipeline.run(&ignore).expect_success();
    assert_eq!(foreign.copied(), up_to(70));

    foreign.sql("ALTER TABLE LAKE ADD COLUMNS (more int)");
    foreign.append_wide(70, 10);
    foreign.pipeline.run_available();
    assert_eq!(foreign.copied(), up_to(80));

    // Files that were not read yet, and are gone.
    foreign.append_wide(80, 10);
    foreign.append_wide(90, 10);
    foreign.ask("spark", "optimize", json!({}));
    foreign.ask("spark", "vacuum", json!({"retain_hours": 0}));
    let refused = foreign.pipeline.run(&["--trigger", "availableNow"]);
    assert!(!refused.says(&["VACUUM", "failOnDataLoss"]).status.success());
    let lax = ["--trigger", "availableNow", "--set", "lake.failOnDataLoss=false"];
    foreign.pipeline.run(&lax).expect_success().says(&["going on without its rows"]);
    assert_eq!(foreign.copied(), up_to(80));
    foreign.append_wide(100, 10);
    foreign.pipeline.run_available();
    assert_eq!(foreign.copied(), numbers(&[0..80, 100..110]));
}

#[test]
fn a_schema_that_changes_while_the_query_runs_ends_it_until_it_is_started_again() {
    let foreign = Foreign::new(&[]);
    foreign.append("deltalake", 0, 10);
    let mut running = foreign.pipeline.start(&[]);
    running.wait_while_running("rows", || foreign.copy().join("_delta_log").exists());
    running.wait_while_running("rows", || delta::versions(&foreign.copy()) > 1);
    foreign.append("deltalake", 10, 10);
    foreign.sql("ALTER TABLE LAKE ADD COLUMNS (more int)");
    let ended = running.wait(wait::SOON);
    assert!(!ended.says(&["changes its schema", "after a restart"]).status.success());
    foreign.append_wide(20, 10);
    foreign.pipeline.run_available();
    assert_eq!(foreign.copied(), up_to(30));
    let found = oracle::light().query(&foreign.copy(), "SELECT count(more) AS rows FROM TABLE");
    assert_eq!(found["rows"].as_u64(), Some(10), "the new column came along: {found}");
}

#[test]
fn a_table_that_is_made_anew_is_another_one() {
    let foreign = Foreign::new(&[]);
    foreign.append("deltalake", 0, 10);
    foreign.pipeline.run_available();
    std::fs::remove_dir_all(&foreign.table).expect("it is there");
    foreign.append("deltalake", 0, 10);
    foreign.append("deltalake", 10, 10);
    let refused = foreign.pipeline.run(&["--trigger", "availableNow"]);
    assert!(!refused.says(&["another table", "checkpoint"]).status.success());
    assert_eq!(foreign.copied(), up_to(10));
}

#[test]
fn changes_are_those_that_spark_reads() {
    let foreign = Foreign::new(&[("readChangeFeed", "true"), ("startingVersion", "1")]);
    foreign.ask(
        "spark",
        "create",
        json!({"schema": SCHEMA, "properties": {"delta.enableChangeDataFeed": "true",
            "delta.enableDeletionVectors": "true"}}),
    );
    foreign.append("spark", 0, 20);
    foreign.append("spark", 20, 20);
    foreign.sql("UPDATE LAKE SET text = 'changed' WHERE id % 10 = 3");
    foreign.sql("DELETE FROM LAKE WHERE id % 10 = 4");
    foreign.sql("DELETE FROM LAKE WHERE id % 10 = 5");
    foreign.sql(
        "MERGE INTO LAKE AS lake USING (SELECT id, 'merged' AS text FROM range(38, 44)) AS new \
         ON lake.id = new.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
    );
    foreign.ask("spark", "optimize", json!({}));
    foreign.sql("DELETE FROM LAKE WHERE id = 39");
    foreign.pipeline.run_available();
    let columns = "id, text, _change_type, _commit_version, _commit_timestamp";
    let ours = format!("SELECT {columns} FROM delta.`{}`", foreign.copy().display());
    let theirs = foreign.table.display();
    let theirs = format!("SELECT {columns} FROM table_changes_by_path('{theirs}', 1)");
    let differ = format!(
        "SELECT (SELECT count(*) FROM ({ours})) AS ours, (SELECT count(*) FROM ({theirs})) AS theirs, \
         (SELECT count(*) FROM (({ours}) EXCEPT ALL ({theirs}))) AS more"
    );
    let found = oracle::all().expect(&json!({"op": "sql", "engine": "spark", "sql": differ}));
    let found = &found["rows"][0];
    assert!(found["theirs"].as_u64() > Some(50), "{found}");
    assert_eq!((&found["ours"], found["more"].as_u64()), (&found["theirs"], Some(0)), "{found}");
}

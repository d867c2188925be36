//! Small files of Delta tables put together, by the command and beside a stream, read back by the
//! engines that users have.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use crate::lake::{ENGINES, Feed, read_here, sum_to};
use crate::millstream::{CRASH_AT, Finished, table};
use crate::{delta, oracle, wait};

/// The steps of a compaction.
pub const STEPS: [&str; 2] = ["files-rewritten", "files-swapped"];

const ON: [(&str, &str); 2] = [("autoCompact", "true"), ("autoCompact.minNumFiles", "2")];

/// `millstream table optimize` with `flags`.
fn optimize(feed: &Feed, flags: &[&str]) -> Finished {
    let path = feed.table().display().to_string();
    let arguments = [&["table", "optimize", &path], flags].concat();
    feed.pipeline.spawn(feed.pipeline.bare_command(&arguments)).wait(wait::SOON)
}

/// The actions of all commits that are there, by version.
fn commits(table: &Path) -> Vec<(String, Vec<Value>)> {
    let mut commits = Vec::new();
    for entry in fs::read_dir(table.join("_delta_log")).expect("the log") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|extension| extension == "json") {
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            let text = fs::read_to_string(&path).expect("readable");
            let lines = text.lines().map(|line| serde_json::from_str(line).expect("JSON"));
            commits.push((name, lines.collect()));
        }
    }
    commits.sort_by(|a, b| a.0.cmp(&b.0));
    commits
}

/// How many commits are compactions, each of which says that no data changed.
fn compactions(table: &Path) -> usize {
    let is_one = |actions: &&Vec<Value>| {
        actions.iter().any(|action| action["commitInfo"]["operation"] == json!("OPTIMIZE"))
    };
    let commits = commits(table);
    let found: Vec<_> = commits.iter().map(|(_, actions)| actions).filter(is_one).collect();
    for action in found.iter().flat_map(|actions| actions.iter()) {
        for kind in ["add", "remove"] {
            let file = &action[kind];
            assert!(file.is_null() || file["dataChange"] == json!(false), "{action}");
        }
    }
    found.len()
}

/// The files that records of compactions name.
fn recorded(table: &Path) -> Vec<PathBuf> {
    let Ok(records) = fs::read_dir(table.join("_millstream/rewrites")) else { return Vec::new() };
    let files = records.flat_map(|record| {
        let text = fs::read(record.expect("an entry").path()).expect("readable");
        let record: Value = serde_json::from_slice(&text).expect("JSON");
        record["files"].as_array().expect("names").clone()
    });
    files.map(|file| table.join(file.as_str().expect("a name"))).collect()
}

/// DuckDB and delta-rs see each of `rows` rows once.
fn assert_rows(table: &Path, rows: u64) {
    let mut oracle = oracle::light();
    let agreed = oracle.agreed(&["deltalake", "duckdb"], table);
    assert_eq!(agreed["rows"].as_u64(), Some(rows), "{agreed}");
    let found = oracle.query(table, "SELECT count(DISTINCT id) AS n FROM TABLE");
    assert_eq!(found["n"].as_u64(), Some(rows), "{found}");
}

#[test]
fn the_command_puts_files_together_and_all_engines_see_the_same_rows() {
    let mut feed = Feed::new(&[("partitionBy", "day")]);
    feed.commit(5);
    let before = delta::versions(&feed.table());
    let dry = optimize(&feed, &["--dry-run"]).expect_success();
    assert!(dry.stdout.contains("15 files"), "{}", dry.stdout);
    assert_eq!(delta::versions(&feed.table()), before, "a dry run commits nothing");
    let one = optimize(&feed, &["--where", "day = DATE '2026-01-02'"]).expect_success();
    assert!(one.stdout.contains("5 files"), "{}", one.stdout);
    let rest = optimize(&feed, &[]).expect_success();
    assert!(rest.stdout.contains("10 files"), "{}", rest.stdout);
    assert_eq!(compactions(&feed.table()), 2);
    let wrong = optimize(&feed, &["--where", "price > 1"]);
    assert!(!wrong.status.success());
    wrong.says(&["--where", "price", "partition columns are day"]).without_internals();
    let agreed = oracle::all().agreed(&ENGINES, &feed.table());
    assert_eq!(agreed["rows"].as_u64(), Some(feed.rows()), "{agreed}");
    assert_eq!(agreed["sums"]["id"].as_str(), Some(&*sum_to(feed.rows()).to_string()), "{agreed}");
    feed.commit(8);
    let agreed = oracle::all().agreed(&ENGINES, &feed.table());
    assert_eq!(agreed["rows"].as_u64(), Some(feed.rows()), "{agreed}");
    assert_eq!(read_here(&feed.table(), &feed.pipeline), (feed.rows(), sum_to(feed.rows())));
}

#[test]
fn rows_that_spark_has_deleted_do_not_come_back() {
    let mut feed = Feed::new(&[("delta.enableDeletionVectors", "true")]);
    feed.commit(4);
    let path = feed.table();
    oracle::all().expect(&json!({"op": "delete", "engine": "spark", "table": path,
        "where": "id % 2 = 0"}));
    optimize(&feed, &[]).expect_success();
    let agreed = oracle::all().agreed(&ENGINES, &path);
    assert_eq!(agreed["rows"].as_u64(), Some(feed.rows() / 2), "{agreed}");
    let again = optimize(&feed, &[]).expect_success();
    assert!(again.stdout.starts_with("0 files"), "{}", again.stdout);
    let compaction = commits(&path).pop().expect("a commit").1;
    let (adds, removes): (Vec<_>, Vec<_>) = (
        compaction.iter().filter(|action| !action["add"].is_null()).collect(),
        compaction.iter().filter(|action| !action["remove"].is_null()).collect(),
    );
    assert!(adds.iter().all(|action| action["add"]["deletionVector"].is_null()), "{adds:?}");
    assert!(removes.iter().any(|action| !action["remove"]["deletionVector"].is_null()));
}

#[test]
fn a_stream_of_the_table_passes_over_compactions() {
    let mut feed = Feed::new(&[]);
    feed.commit(4);
    let copying = crate::millstream::Pipeline::new(&format!(
        "{}{}CREATE FLOW copied AS INSERT INTO copy SELECT * FROM STREAM source;\n",
        table("source", "", "delta", &[("path", &feed.table().display().to_string())]),
        table("copy", "", "delta", &[("path", "copy")]),
    ));
    copying.run(&["--trigger", "availableNow"]).expect_success();
    optimize(&feed, &[]).expect_success();
    copying.run(&["--trigger", "availableNow"]).expect_success();
    feed.commit(2);
    copying.run(&["--trigger", "availableNow"]).expect_success();
    assert_eq!(compactions(&feed.table()), 1);
    assert_rows(&copying.path("copy"), feed.rows());
}

#[test]
fn a_crash_in_a_compaction_loses_and_doubles_no_row_and_leaves_nothing() {
    let mut feed = Feed::new(&ON);
    feed.commit(1);
    for step in [STEPS, STEPS].concat() {
        feed.put(4);
        let mut command = feed.pipeline.command(&["--trigger", "availableNow"]);
        command.env(CRASH_AT, step);
        feed.pipeline.spawn(command).wait(Duration::from_secs(120)).expect_crash(step);
        let written = recorded(&feed.table());
        assert!(!written.is_empty() && written.iter().all(|file| file.exists()), "{written:?}");
        // What is in the table when the process ends is there for all, and once.
        oracle::light().agreed(&["deltalake", "duckdb"], &feed.table());
        feed.commit(1);
        assert_rows(&feed.table(), feed.rows());
        let is_swapped = step == STEPS[1];
        assert!(written.iter().all(|file| file.exists() == is_swapped), "{step}: {written:?}");
        assert_eq!(recorded(&feed.table()), Vec::<PathBuf>::new(), "{step}");
    }
    assert!(compactions(&feed.table()) > 1);
    let agreed = oracle::all().agreed(&ENGINES, &feed.table());
    assert_eq!(agreed["rows"].as_u64(), Some(feed.rows()), "{agreed}");
}

#[test]
fn a_compacted_stream_that_is_killed_at_any_moment_loses_and_doubles_no_row() {
    let mut feed = Feed::new(&ON);
    feed.commit(1);
    for kill in 0..8 {
        feed.put(6);
        let mut running = feed.pipeline.start(&[]);
        let before = delta::versions(&feed.table());
        let wanted = before + 1 + kill % 6;
        running.wait_while_running("commits", || delta::versions(&feed.table()) >= wanted);
        running.kill();
        oracle::light().agreed(&["deltalake", "duckdb"], &feed.table());
    }
    feed.commit(1);
    assert_rows(&feed.table(), feed.rows());
    assert_eq!(read_here(&feed.table(), &feed.pipeline), (feed.rows(), sum_to(feed.rows())));
    assert!(compactions(&feed.table()) > 0);
}

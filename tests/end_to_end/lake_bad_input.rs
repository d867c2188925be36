//! What goes wrong around Delta tables: types, rules, rights, disks, features.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::bad_input::{Shortage, SmallDisk};
use crate::millstream::{Finished, Pipeline, table};
use crate::{oracle, process, wait};

const AVAILABLE: [&str; 2] = ["--trigger", "availableNow"];

/// A pipeline that copies `columns` of JSON files in `input` to the Delta table `table`.
fn into_delta(columns: &str, sink: &[(&str, &str)]) -> Pipeline {
    let to = [("path", "lake/table"), ("commitInterval", "0")];
    let pipeline = Pipeline::new("");
    rewrite(&pipeline, columns, &[&to, sink].concat());
    fs::create_dir(pipeline.path("input")).expect("it can be made");
    pipeline
}

fn rewrite(pipeline: &Pipeline, columns: &str, sink: &[(&str, &str)]) {
    pipeline.rewrite(&format!(
        "{}{}CREATE FLOW fed AS INSERT INTO target SELECT * FROM STREAM source;\n",
        table("source", columns, "json", &[("path", "input"), ("maxFilesPerTrigger", "1")]),
        table("target", "", "delta", sink),
    ));
}

fn put(pipeline: &Pipeline, name: &str, lines: &str) {
    fs::write(pipeline.path("input").join(name), lines).expect("it is writable");
}

fn run(pipeline: &Pipeline) -> Finished {
    pipeline.run(&AVAILABLE).without_internals()
}

fn rows_of(table: &Path) -> u64 {
    let row = oracle::light().query(table, "SELECT count(*) AS n FROM TABLE");
    row["n"].as_u64().expect("a number")
}

#[test]
fn columns_that_do_not_fit_are_named_with_a_remedy() {
    let pipeline = into_delta("(n BIGINT)", &[]);
    put(&pipeline, "a.json", "{\"n\":1}\n");
    run(&pipeline).expect_success();
    let to = [("path", "lake/table"), ("commitInterval", "0")];

    rewrite(&pipeline, "(n STRING)", &to);
    put(&pipeline, "b.json", "{\"n\":\"2\"}\n");
    run(&pipeline).expect_exit(1).says(&["column n", "CAST(n AS"]);

    rewrite(&pipeline, "(n BIGINT, more STRING)", &to);
    run(&pipeline).expect_exit(1).says(&["no column more", "mergeSchema"]);

    rewrite(&pipeline, "(n BIGINT, more STRING)", &[&to[..], &[("mergeSchema", "true")]].concat());
    run(&pipeline).expect_success();
    assert_eq!(rows_of(&pipeline.path("lake/table")), 2);
}

#[test]
fn rules_of_a_table_are_obeyed_or_the_table_is_refused() {
    let pipeline = into_delta("(n BIGINT)", &[]);
    let path = pipeline.path("lake/table");
    let named = format!("delta.`{}`", path.display());
    let schema = format!("CREATE TABLE {named} (n BIGINT NOT NULL) USING delta");
    let sql = |sql: &str| json!({"op": "sql", "engine": "spark", "sql": sql});
    oracle::all().expect(&sql(&schema));
    put(&pipeline, "a.json", "{\"n\":1}\n");
    put(&pipeline, "b.json", "{\"n\":null}\n");
    run(&pipeline).expect_exit(1).says(&["n is null", "NOT NULL"]);
    assert_eq!(rows_of(&path), 1, "what came before the row is there");

    let check = format!("ALTER TABLE {named} ADD CONSTRAINT small CHECK (n < 10)");
    oracle::all().expect(&sql(&check));
    run(&pipeline).expect_exit(1).says(&["checkConstraints"]);
}

#[test]
fn a_directory_that_may_not_be_written_is_named() {
    use std::os::unix::fs::PermissionsExt;
    let pipeline = into_delta("(n BIGINT)", &[]);
    put(&pipeline, "a.json", "{\"n\":1}\n");
    let lake = pipeline.path("lake");
    fs::create_dir(&lake).expect("it can be made");
    let set_mode = |mode| fs::set_permissions(&lake, fs::Permissions::from_mode(mode));
    set_mode(0o500).expect("it is ours");
    let mut command = pipeline.command(&AVAILABLE);
    process::respect_permissions(&mut command);
    let finished = pipeline.spawn(command).wait(wait::SOON).without_internals();
    finished.expect_exit(1).says(&["lake/table", "ermission"]);

    set_mode(0o700).expect("it is ours");
    run(&pipeline).expect_success();
    assert_eq!(rows_of(&pipeline.path("lake/table")), 1);
}

#[test]
fn a_full_disk_stops_the_flow_and_loses_nothing() {
    for shortage in Shortage::all(4 * 1024) {
        let pipeline = into_delta("(n BIGINT, s STRING)", &[("compression", "none")]);
        let files = 40;
        for file in 0..files {
            let line = |n: u64| format!("{{\"n\":{n},\"s\":\"{:0>500}\"}}\n", n * 7919);
            let lines: String = (file * 20..(file + 1) * 20).map(line).collect();
            put(&pipeline, &format!("{file:03}.json"), &lines);
        }
        let mut command = pipeline.command(&AVAILABLE);
        let disk = shortage.begin(pipeline.path("lake"), &mut command);
        let finished = pipeline.spawn(command).wait(wait::SOON).without_internals();
        finished.expect_exit(1).says(&["lake/table", shortage.reason()]);
        let so_far = rows_of(&pipeline.path("lake/table"));
        assert!(so_far < files * 20 && so_far.is_multiple_of(20), "whole commits: {so_far}");

        disk.iter().for_each(SmallDisk::grow);
        run(&pipeline).expect_success();
        assert_eq!(rows_of(&pipeline.path("lake/table")), files * 20);
    }
}

#[test]
fn a_table_that_is_not_there_is_named() {
    let pipeline = Pipeline::new("");
    pipeline.rewrite(&format!(
        "{}SELECT * FROM lake;\n",
        table("lake", "", "delta", &[("path", "nowhere")])
    ));
    pipeline.run(&[]).without_internals().expect_exit(2).says(&["no Delta table", "nowhere"]);
}

#[test]
fn a_table_is_described_listed_and_swept() {
    let pipeline = into_delta("(n BIGINT)", &[]);
    for file in 0..3 {
        put(&pipeline, &format!("{file}.json"), &format!("{{\"n\":{file}}}\n"));
    }
    run(&pipeline).expect_success();
    let expect = |arguments: &[&str], words: &[&str]| {
        let arguments = [&["table"], arguments, &["lake/table"]].concat();
        let command = pipeline.bare_command(&arguments);
        let said = pipeline.spawn(command).wait(wait::SOON).expect_success().stdout;
        words.iter().for_each(|word| assert!(said.contains(word), "no {word:?} in:\n{said}"));
    };
    expect(&["describe"], &["3 files", "n BIGINT", "reader"]);
    expect(&["history"], &["STREAMING UPDATE", "CREATE TABLE", "Millstream"]);
    expect(&["checkpoint"], &["version 3"]);
    fs::write(pipeline.path("lake/table/left.parquet"), b"PAR1").expect("it is writable");
    expect(&["vacuum"], &["0 files deleted", "too young"]);
    expect(&["vacuum", "--retain", "0s", "--force"], &["1 file deleted"]);
    assert_eq!(rows_of(&pipeline.path("lake/table")), 3);
}

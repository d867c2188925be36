//! What somebody else has done to a checkpoint or a table: numbers that no query comes to, pipes
//! and devices in place of files, older entries over newer ones, and what is gone. All of it is
//! refused with a name and a remedy; nothing hangs, panics or is begun anew.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::files_and_static::put;
use crate::millstream::{Finished, Pipeline, table};
use crate::{process, wait};

const AVAILABLE: [&str; 2] = ["--trigger", "availableNow"];

/// Lines of files, counted by key where there is state, into files or a Delta table; what cannot be
/// decoded becomes a dead letter.
fn pipeline(sink: &str, query: &str) -> Pipeline {
    let source = [("path", "input"), ("deadLetter", "bad"), ("maxFilesPerTrigger", "1")];
    Pipeline::new(&format!(
        "{}{}{}INSERT INTO target {query};\n",
        table("bad", "", "json", &[("path", "bad")]),
        table("source", "(n BIGINT)", "json", &source),
        table("target", "", sink, &[("path", "output")]),
    ))
}

const PLAIN: &str = "SELECT n FROM STREAM source";
const WITH_STATE: &str = "SELECT DISTINCT n FROM STREAM source";

/// A pipeline that has run, a micro-batch per file.
fn having_run(sink: &str, query: &str, files: usize) -> Pipeline {
    let pipeline = pipeline(sink, query);
    for file in 0..files {
        put(&pipeline, &format!("input/{file}.json"), &format!("{{\"n\":{file}}}\nbad\n"));
        pipeline.run(&AVAILABLE).expect_success();
    }
    put(&pipeline, "input/more.json", "{\"n\":1000}\n");
    pipeline
}

/// The highest entry of a log: the file whose name ends in the greatest number.
fn newest(directory: &Path, prefix: &str) -> PathBuf {
    let number = |path: &PathBuf| {
        let name = path.file_name()?.to_string_lossy().into_owned();
        let name = name.strip_prefix(prefix)?.trim_end_matches(".json").to_owned();
        name.parse::<u64>().ok()
    };
    let entries = fs::read_dir(directory).expect("the log is there");
    let paths = entries.map(|entry| entry.expect("readable").path());
    paths.filter(|path| number(path).is_some()).max_by_key(number).expect("it has an entry")
}

/// The logs of a pipeline: where, and what stands before the number.
fn logs(sink: &str, query: &str) -> Vec<(&'static str, &'static str)> {
    let mut logs = vec![
        ("checkpoint/offsets", ""),
        ("checkpoint/commits", ""),
        ("checkpoint/sources/0", ""),
        ("checkpoint/dead-letters", ""),
    ];
    if query == WITH_STATE {
        logs.push(("checkpoint/state", "changes-"));
    }
    if sink == "delta" {
        logs.extend([("checkpoint/sinks/target", ""), ("output/_delta_log", "")]);
    }
    logs
}

fn refused(finished: Finished, what: &Path) {
    let finished = finished.without_internals();
    assert_ne!(finished.status.code(), Some(0), "{}: {}", what.display(), finished.stderr);
    let name = what.file_name().expect("it has a name").to_string_lossy();
    // A number in a table's log says that all before it are missing, which is what is told.
    let is_of_table = what.to_string_lossy().contains("_delta_log");
    let told: &[&str] = if is_of_table { &["output"] } else { &[&*name] };
    finished.says(told).says_not(&["invariant"]);
}

#[test]
fn a_number_that_no_query_comes_to_is_refused() {
    for (sink, query) in [("json", PLAIN), ("json", WITH_STATE), ("delta", PLAIN)] {
        let pipeline = having_run(sink, query, 2);
        for (log, prefix) in logs(sink, query) {
            let directory = pipeline.path(log);
            let numbers = ["9223372036854775807", "9223372036854775806", "18446744073709551615"];
            for number in numbers {
                let (number, ending) = if log.ends_with("_delta_log") {
                    (format!("{number:0>20}"), ".json")
                } else {
                    (number.to_owned(), "")
                };
                if number == "18446744073709551615" && ending.is_empty() {
                    continue; // No entry for Spark, and so a foreign name, which is left alone.
                }
                let planted = directory.join(format!("{prefix}{number}{ending}"));
                fs::copy(newest(&directory, prefix), &planted).expect("it can be copied");
                let finished = pipeline.start(&AVAILABLE).wait(wait::SOON);
                refused(finished, &planted);
                fs::remove_file(planted).expect("it was left alone");
            }
        }
        pipeline.run(&AVAILABLE).expect_success();
    }
}

#[test]
fn a_pipe_or_a_device_in_place_of_an_entry_is_refused() {
    for (sink, query) in [("json", PLAIN), ("json", WITH_STATE), ("delta", PLAIN)] {
        let pipeline = having_run(sink, query, 2);
        let logs = logs(sink, query).into_iter().map(Some).chain([None]);
        for log in logs {
            let place = match log {
                Some((log, prefix)) => newest(&pipeline.path(log), prefix),
                None => pipeline.path("checkpoint/metadata"),
            };
            let (aside, planted) = (pipeline.path("aside"), place.clone());
            fs::rename(&place, &aside).expect("it is there");
            for make in [process::make_pipe, |path: &Path| {
                symlink("/dev/zero", path).expect("it can be made");
            }] {
                make(&planted);
                let finished = pipeline.start(&AVAILABLE).wait(wait::SOON);
                refused(finished, &planted);
                fs::remove_file(&planted).expect("it was left alone");
            }
            fs::rename(aside, place).expect("it was ours");
        }
        pipeline.run(&AVAILABLE).expect_success();
    }
}

#[test]
fn an_older_entry_over_the_newest_is_refused() {
    let pipeline = Pipeline::new(&format!(
        "{}{}INSERT INTO target {PLAIN};\n",
        table("source", "(n BIGINT)", "json", &[("path", "input")]),
        table("target", "", "delta", &[("path", "output")]),
    ));
    for file in 0..3 {
        put(&pipeline, &format!("input/{file}.json"), "{\"n\":1}\n");
        pipeline.run(&AVAILABLE).expect_success();
    }
    put(&pipeline, "input/more.json", "{\"n\":1000}\n");
    let last = newest(&pipeline.path("checkpoint/offsets"), "");
    fs::copy(pipeline.path("checkpoint/offsets/0"), &last).expect("it can be copied");
    let last = last.display().to_string();
    let commit = last.replace("offsets", "commits");
    let finished = pipeline.run(&AVAILABLE).without_internals().expect_exit(1);
    finished.says(&[&last, "before the end of", "backup", &commit]);

    fs::remove_file(&last).expect("it is there");
    fs::remove_file(&commit).expect("it is there");
    let mut command = pipeline.command(&AVAILABLE);
    command.arg("-v");
    pipeline.spawn(command).wait(wait::SOON).expect_success().says(&["1 row in, 1 row out"]);
}

#[test]
fn a_state_file_over_another_is_refused() {
    let pipeline = having_run("json", WITH_STATE, 3);
    let state = pipeline.path("checkpoint/state");
    let last = newest(&state, "changes-");
    fs::copy(state.join("changes-0"), &last).expect("it can be copied");
    let finished = pipeline.run(&AVAILABLE).without_internals().expect_exit(1);
    finished.says(&[&last.display().to_string(), "copy of another"]);
}

/// A flow that writes to a Delta table all the time.
fn writing() -> Pipeline {
    Pipeline::new(&format!(
        "{}{}INSERT INTO target SELECT value FROM STREAM source;\n",
        table("source", "", "rate", &[("rowsPerSecond", "200")]),
        table("target", "", "delta", &[("path", "output"), ("commitInterval", "200ms")]),
    ))
}

fn commits(pipeline: &Pipeline) -> Vec<PathBuf> {
    let entries = fs::read_dir(pipeline.path("output/_delta_log")).into_iter().flatten();
    let paths = entries.map(|entry| entry.expect("readable").path());
    let mut commits: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|ending| ending == "json")).collect();
    commits.sort();
    commits
}

/// Whether a checkpoint of the table's log is of the version of `commit`.
fn has_checkpoint(commit: &Path) -> bool {
    let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
    let version = name(&commit.with_extension("checkpoint")).expect("it has a name");
    let entries = fs::read_dir(commit.parent().expect("it is in the log")).expect("readable");
    let mut names = entries.filter_map(|entry| name(&entry.expect("readable").path()));
    names.any(|name| name.starts_with(&version))
}

#[test]
fn a_table_that_goes_while_a_flow_writes_to_it_is_noticed() {
    let losses: [fn(&Pipeline); 2] = [
        |pipeline| {
            // The one that is newest by the time may have been followed.
            for commit in commits(pipeline).iter().rev().take(2) {
                let _ = fs::remove_file(commit);
            }
        },
        |pipeline| {
            let gone = pipeline.path("gone");
            fs::rename(pipeline.path("output"), gone).expect("it is there");
        },
    ];
    for lose in losses {
        let pipeline = writing();
        let mut running = pipeline.start(&[]);
        running.wait_while_running("some commits", || commits(&pipeline).len() > 5);
        lose(&pipeline);
        let before = commits(&pipeline);
        let finished = running.wait(wait::SOON).without_internals().expect_exit(1);
        finished.says(&["is not there any more", "output", "backup"]);
        assert!(commits(&pipeline).len() <= before.len() + 1, "{:?}", commits(&pipeline));
        // And a restart does not begin another, nor go behind the hole.
        let before = commits(&pipeline);
        let finished = pipeline.run(&["--for", "1s"]).without_internals().expect_exit(1);
        finished.says(&["is not there any more", "output", "backup", "sinks/target"]);
        assert_eq!(commits(&pipeline), before);
    }
}

#[test]
fn a_table_that_went_between_two_runs_is_noticed() {
    let pipeline = writing();
    pipeline.run(&["--for", "2s"]).expect_success();
    // A version that a checkpoint of the table's log has does not need its commit.
    while has_checkpoint(&commits(&pipeline).pop().expect("there are commits")) {
        pipeline.run(&["--for", "200ms"]).expect_success();
    }
    let newest = commits(&pipeline).pop().expect("there are commits");
    let aside = pipeline.path("aside");
    fs::rename(&newest, &aside).expect("it is there");
    let missing = pipeline.run(&["--for", "1s"]).without_internals().expect_exit(1);
    missing.says(&["is not there any more", "the table ends at version", "sinks/target"]);
    fs::rename(&aside, &newest).expect("it is there");
    pipeline.run(&["--for", "1s"]).expect_success();

    fs::remove_dir_all(pipeline.path("output")).expect("it is there");
    let missing = pipeline.run(&["--for", "1s"]).without_internals().expect_exit(1);
    missing.says(&["is not there any more", "no table", "sinks/target"]);
    assert!(!pipeline.path("output").exists(), "no other table is begun");

    fs::remove_dir_all(pipeline.path("checkpoint/sinks/target")).expect("it is there");
    pipeline.run(&["--for", "1s"]).expect_success();
}

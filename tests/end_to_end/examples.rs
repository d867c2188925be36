//! The pipelines in `examples/`, each run in a copy of its directory.

use std::fs;
use std::path::Path;

use millstream_testkit::redis::Redis;

use crate::cache::repository;
use crate::files_and_static::sorted_lines;
use crate::http_receiver::{Answer, Receiver};
use crate::millstream::Pipeline;
use crate::oracle;
use crate::wait;

/// Runs the example and compares each directory in `expected` with the one beside it that the
/// pipeline wrote. Running it again must change nothing.
fn check(name: &str) -> Pipeline {
    let example = repository().join("examples").join(name);
    let pipeline = Pipeline::new("");
    copy(&example, &pipeline.path(""));
    let expected = entries(&example.join("expected"));
    assert!(!expected.is_empty(), "there is something to compare with");
    for _ in 0..2 {
        let command = pipeline.bare_command(&["run", "pipeline.sql"]);
        pipeline.spawn(command).wait(wait::SOON).expect_success();
        for output in &expected {
            let written = sorted_lines(&pipeline.path(output));
            assert_eq!(written, sorted_lines(&example.join("expected").join(output)), "{output}");
        }
    }
    pipeline
}

fn entries(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("the example has it");
    let name = |entry: fs::DirEntry| entry.file_name().into_string().expect("names are text");
    entries.map(|entry| name(entry.expect("it can be listed"))).collect()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("the directory is writable");
    for entry in entries(from) {
        let (from, to) = (from.join(&entry), to.join(&entry));
        if from.is_dir() {
            copy(&from, &to);
        } else {
            fs::copy(from, to).expect("it can be copied");
        }
    }
}

#[test]
fn alerts_and_archive() {
    let pipeline = check("alerts-and-archive");
    let archive = pipeline.path("archive");
    let sql = "SELECT count(*) AS rows, count(DISTINCT message) AS messages FROM TABLE";
    let found = oracle::light().query(&archive, sql);
    assert_eq!((found["rows"].as_i64(), found["messages"].as_i64()), (Some(4), Some(4)));
}

#[test]
fn dead_letters() {
    check("dead-letters");
}

#[test]
fn security() {
    check("security");
}

#[test]
fn pii_leak() {
    check("pii-leak");
}

#[test]
fn elevator() {
    check("elevator");
}

#[test]
fn elevator_with_its_buildings_in_redis() {
    let redis = Redis::start();
    let example = repository().join("examples/elevator");
    let pipeline = Pipeline::new("");
    copy(&example, &pipeline.path(""));
    let port = format!("buildings.port={}", redis.port());
    for file in ["redis-load.sql", "redis.sql", "redis.sql"] {
        let command = pipeline.bare_command(&["run", file, "--set", &port]);
        pipeline.spawn(command).wait(wait::SOON).expect_success();
    }
    let expected = sorted_lines(&example.join("expected/alerts"));
    assert_eq!(sorted_lines(&pipeline.path("alerts")), expected);
}

#[test]
fn generator_temperature() {
    check("generator-temperature");
}

#[test]
fn notify() {
    let receiver = Receiver::start(|_, _| Answer::accept());
    let pipeline = Pipeline::new("");
    copy(&repository().join("examples/notify"), &pipeline.path(""));
    let url = |table: &str| format!("{table}.url={}/{table}", receiver.address());
    let settings = ["guards", "supervisor"].map(url);
    let [guards, supervisor] = &settings;
    for _ in 0..2 {
        let arguments = ["run", "pipeline.sql", "--set", guards, "--set", supervisor];
        pipeline.spawn(pipeline.bare_command(&arguments)).wait(wait::SOON).expect_success();
    }
    let received = receiver.received();
    let bodies = |path: &str| {
        let to = received.iter().filter(|request| request.path == path);
        to.map(|request| request.body.clone()).collect::<Vec<String>>()
    };
    let text = |place: &str| format!("\"text\":\"Elevator {place}\"");
    let wanted = [
        "1, floor 7: Harbour Road 12, South Wing",
        "1, floor 1: Mill Lane 3",
        "4, floor -2: building C3",
    ];
    let guards = bodies("/guards");
    assert_eq!(guards.len(), wanted.len(), "each once: {guards:?}");
    assert!(wanted.iter().zip(&guards).all(|(place, body)| body.contains(&text(place))));
    let [list] = &*bodies("/supervisor") else { panic!("one list: {received:?}") };
    assert_eq!(list.matches("emergency").count(), 3, "{list}");
    assert_eq!(list.matches("overload").count(), 1, "{list}");
}

#[test]
fn every_example_is_checked_and_has_a_readme() {
    let mut names = entries(&repository().join("examples"));
    names.sort();
    let expected = [
        "alerts-and-archive",
        "dead-letters",
        "elevator",
        "generator-temperature",
        "notify",
        "pii-leak",
        "security",
    ];
    assert_eq!(names, expected);
    for name in names {
        let readme = repository().join("examples").join(&name).join("README.md");
        assert!(readme.exists(), "{} is missing", readme.display());
    }
}

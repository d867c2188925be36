//! Checkpoints of earlier versions, of flows from topics: as in [`old_checkpoints`], and a fixture
//! has the records of all topics besides, which a test writes to a broker of its own: of the input,
//! of the output, and the record in which a sink keeps how far the query came.
//!
//! [`old_checkpoints`]: crate::old_checkpoints

use std::fs;
use std::path::Path;

use crate::files_and_static::sorted_lines;
use crate::kafka;
use crate::millstream::{CRASH_AT, Finished, Pipeline};
use crate::old_checkpoints::{copied, copy, directory, fixtures, made, names, replaced};
use crate::topics::{Record, sorted_values};
use crate::wait;

/// The kinds, and the step at which the run crashed that left the checkpoint.
pub const KINDS: [(&str, &str); 2] =
    [("kafka_source", "after-intent:2"), ("kafka_exactly_once", "after-commit:1")];

#[test]
fn kafka_source() {
    let pipeline = continue_from("kafka_source");
    let rows = sorted_lines(&pipeline.path("output"));
    let expected = (1..=9).map(|n| format!("{{\"text\":\"{n}\"}}"));
    assert_eq!(rows, expected.collect::<Vec<_>>());
}

#[test]
fn kafka_exactly_once() {
    continue_from("kafka_exactly_once");
    let values = sorted_values(&kafka::shared().topics().read("old_kafka_exactly_once_out"));
    assert_eq!(values, (1..=9).map(|n| format!("read {n}")).collect::<Vec<_>>());
}

fn continue_from(kind: &str) -> Pipeline {
    let pipeline = copied(kind);
    write_topics(&fixtures().join(kind).join("topics"), true);
    write_topics(&fixtures().join(kind).join("more_topics"), false);
    run(&pipeline, None).expect_success().says_not(&["begins anew"]);
    run(&pipeline, None).expect_success();
    pipeline
}

/// Writes the lines of a directory of topics: a partition and a value, separated by a tab.
fn write_topics(directory: &Path, are_new: bool) {
    let topics = kafka::shared().topics();
    for topic in names(directory) {
        let text = fs::read_to_string(directory.join(&topic)).expect("it can be read");
        let record = |line: &str| {
            let (partition, value) = line.split_once('\t').expect("a tab");
            Record::of(value.to_owned()).to(partition.parse().expect("a number"))
        };
        let records: Vec<Record> = text.lines().map(record).collect();
        if are_new {
            let last = records.iter().filter_map(|record| record.partition).max();
            topics.create(&topic, 1 + usize::try_from(last.unwrap_or(0)).expect("a number"));
        }
        topics.produce(&topic, records);
    }
}

fn run(pipeline: &Pipeline, crash: Option<&str>) -> Finished {
    let mut command = pipeline.command(&["--trigger", "availableNow"]);
    command.env("BROKER", kafka::shared().address());
    if let Some(step) = crash {
        command.env(CRASH_AT, step);
    }
    pipeline.spawn(command).wait(wait::SOON)
}

/// Makes what is missing, after `pipeline.sql`, the input's topic in `topics` and `more_topics`
/// were written by hand.
pub fn make_what_is_missing() {
    for (kind, step) in KINDS {
        let fixture = fixtures().join(kind);
        if fixture.join("checkpoint").exists() {
            continue;
        }
        let pipeline = Pipeline::new("");
        copy(&fixture, &pipeline.path(""), &<[u8]>::to_vec);
        write_topics(&fixture.join("topics"), true);
        let topics = kafka::shared().topics();
        let output = format!("old_{kind}_out");
        topics.create(&output, 1);
        run(&pipeline, Some(step)).expect_crash(step);
        for name in made(&pipeline) {
            let change = |bytes: &[u8]| replaced(bytes, &directory(&pipeline), "/FIXTURE");
            copy(&pipeline.path(&name), &fixture.join(&name), &change);
        }
        if !fixture.join("output").exists() {
            let metadata = fs::read(fixture.join("checkpoint/metadata")).expect("it is there");
            let metadata: serde_json::Value = serde_json::from_slice(&metadata).expect("JSON");
            let id = &metadata["id"].as_str().expect("a text")[..8];
            for topic in [output, format!("millstream-copied-{id}-published")] {
                let line = |record| format!("0\t{record}\n");
                let records = topics.read(&topic);
                let lines = records.iter().map(|record| line(record.value())).collect::<String>();
                fs::write(fixture.join("topics").join(topic), lines).expect("it is ours");
            }
        }
    }
}

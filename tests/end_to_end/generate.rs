//! `millstream generate`: the same messages from the same seed, whole files, and what is wrong.

use std::fs;

use crate::millstream::{Finished, Pipeline};
use crate::wait;

const TEMPLATE: &str = r#"{
  "n": {{index()}},
  "id": "{{integer(1000001,2000000)}}",
  "text": "{{alphaNumeric(20)}}"
}"#;

fn generate(directory: &Pipeline, template: &str, flags: &[&str]) -> Finished {
    fs::write(directory.path("schema.json"), template).expect("it is writable");
    let command = directory.bare_command(&[&["generate", "schema.json"], flags].concat());
    directory.spawn(command).wait(wait::SOON).without_internals()
}

fn numbers(lines: &str) -> Vec<u64> {
    let of = |line: &str| {
        let message: serde_json::Value = serde_json::from_str(line).expect("a message a line");
        assert_eq!(message["text"].as_str().map(str::len), Some(20), "{line}");
        message["n"].as_u64().expect("a number")
    };
    lines.lines().map(of).collect()
}

#[test]
fn a_seed_gives_the_same_messages() {
    let directory = Pipeline::new("");
    let run = |seed| {
        let flags = ["--limit", "50", "--seed", seed];
        generate(&directory, TEMPLATE, &flags).expect_success().says(&["50 messages"]).stdout
    };
    let (first, again, other) = (run("7"), run("7"), run("8"));
    assert_eq!(first, again);
    assert_ne!(first, other);
    assert_eq!(numbers(&first), (0..50).collect::<Vec<_>>());
}

#[test]
fn files_have_every_message_once() {
    let directory = Pipeline::new("");
    let flags = ["--limit", "3000", "--rate", "2000", "--to", "files", "--path", "out"];
    generate(&directory, TEMPLATE, &flags).expect_success();
    let mut names: Vec<_> = fs::read_dir(directory.path("out"))
        .expect("it was made")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    names.sort();
    assert!(names.len() > 1, "a new one every second: {names:?}");
    let lines: String = names.iter().map(|name| fs::read_to_string(name).expect("text")).collect();
    assert_eq!(numbers(&lines), (0..3_000).collect::<Vec<_>>());
}

#[test]
fn what_is_wrong_is_named_with_its_place() {
    let directory = Pipeline::new("");
    let repeated = "[\n  '{{repeat(2)}}',\n  { \"open\": 1\n";
    generate(&directory, repeated, &["--limit", "1"]).expect_exit(2).says(&["schema.json: line 2"]);
    let unknown = "{ \"a\": \"{{nothing()}}\" }";
    let warned = generate(&directory, unknown, &["--limit", "1"]).expect_success();
    let warned = warned.says(&["line 1", "nothing()", "left as it is"]);
    assert_eq!(warned.stdout, format!("{unknown}\n"));
    generate(&directory, TEMPLATE, &["--to", "kafka"]).expect_exit(2).says(&["--brokers"]);
    let nobody = ["--to", "kafka", "--brokers", "127.0.0.1:1", "--topic", "t"];
    generate(&directory, TEMPLATE, &nobody).expect_exit(1).says(&["topic t"]);
}

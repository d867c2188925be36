//! The original, json-data-generator 1.16, and this crate write the same templates.
//!
//! What a template decides must be equal byte by byte ([`exact`]); what is random must match one
//! description, of both ([`grammar`]); and where the two differ on purpose, both are written down
//! ([`differences`]). One process of Java serves all of it.

mod differences;
mod exact;
mod grammar;

use std::io::Write as _;
use std::process::{Command, Stdio};

use millstream_generate::{Generator, Template};
use millstream_testkit::cache;
use serde_json::{Value, json};

/// 22 November 2026, 10:36:03.564.
const NOW_MS: i64 = 1_795_343_763_564;

/// Messages of one generator, or that it failed.
type Messages = Result<Vec<String>, String>;

/// Each template, written `messages` times by the original.
fn original(templates: &[&str], messages: usize) -> Vec<Messages> {
    let pom = include_str!("../../../../tests/json_data_generator/pom.xml");
    let jars = cache::jars("json-data-generator-1.16", pom).unwrap();
    let driver = cache::repository().join("tests/json_data_generator/driver.js");
    let mut java = Command::new("java");
    java.args(["-Duser.timezone=UTC", "-Duser.language=en", "-Duser.country=US", "-cp"]);
    java.arg(format!("{}/*", jars.display())).arg("org.mozilla.javascript.tools.shell.Main");
    java.arg(driver).stdin(Stdio::piped()).stdout(Stdio::piped());
    let install = "Java runs: apt-get install openjdk-17-jre-headless";
    let mut child = java.spawn().expect(install);
    let mut input = child.stdin.take().expect("standard input is a pipe");
    let jobs: Vec<String> = templates
        .iter()
        .map(|template| json!({"template": template, "messages": messages}).to_string() + "\n")
        .collect();
    let output = std::thread::scope(|scope| {
        scope.spawn(move || input.write_all(jobs.concat().as_bytes()));
        child.wait_with_output().expect("Java can be waited for")
    });
    assert!(output.status.success(), "the original's driver failed: {}", output.status);
    let lines = String::from_utf8(output.stdout).expect("the driver writes UTF-8");
    let answers: Vec<Messages> = lines.lines().map(answer).collect();
    assert_eq!(answers.len(), templates.len(), "the driver answers each template");
    answers
}

fn answer(line: &str) -> Messages {
    let answer: Value = serde_json::from_str(line).expect("the driver writes JSON");
    if let Some(error) = answer["error"].as_str() {
        return Err(error.to_owned());
    }
    let outputs = answer["outputs"].as_array().expect("the driver answers with outputs");
    Ok(outputs.iter().map(|text| text.as_str().expect("outputs are texts").to_owned()).collect())
}

/// The template, written `messages` times by this crate.
fn ours(template: &str, messages: usize) -> Messages {
    let template = Template::parse(template).map_err(|error| error.to_string())?;
    let mut generator = Generator::new(&template, 11, NOW_MS);
    generator.set_property("millstream.three", "3");
    let mut written = Vec::new();
    for _ in 0..messages {
        let mut out = Vec::new();
        generator.write_message(&mut out).map_err(|error| error.to_string())?;
        written.push(String::from_utf8(out).expect("messages are UTF-8"));
    }
    Ok(written)
}

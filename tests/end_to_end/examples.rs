//! The pipelines in `examples/`, each run in a copy of its directory.

use std::fs;
use std::path::Path;

use millstream_testkit::redis::Redis;
use serde_json::Value;

use crate::cache::repository;
use crate::email::MailServer;
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
    let is_told = |place: &&str| guards.iter().any(|body| body.contains(&text(place)));
    assert!(wanted.iter().all(is_told), "{guards:?}");
    let [list] = &*bodies("/supervisor") else { panic!("one list: {received:?}") };
    assert_eq!(list.matches("emergency").count(), 3, "{list}");
    assert_eq!(list.matches("overload").count(), 1, "{list}");
}

/// Runs `notify.sql` of an example twice, the second time with nothing left to send.
fn run_notify(name: &str, settings: &[String]) {
    let pipeline = Pipeline::new("");
    copy(&repository().join("examples").join(name), &pipeline.path(""));
    let settings = settings.iter().flat_map(|setting| ["--set", setting]);
    let arguments: Vec<&str> = ["run", "notify.sql"].into_iter().chain(settings).collect();
    for _ in 0..2 {
        pipeline.spawn(pipeline.bare_command(&arguments)).wait(wait::SOON).expect_success();
    }
}

/// The texts that a webhook of `notify.sql` gets, sorted: several are under way at once.
fn texts_sent(name: &str, table: &str) -> Vec<String> {
    let receiver = Receiver::start(|_, _| Answer::accept());
    run_notify(name, &[format!("{table}.url={}/", receiver.address())]);
    let text = |body: &str| {
        let body: Value = serde_json::from_str(body).expect("it is JSON");
        body["text"].as_str().expect("it has a text").to_owned()
    };
    let mut texts: Vec<String> =
        receiver.received().iter().map(|request| text(&request.body)).collect();
    texts.sort_unstable();
    texts
}

#[test]
fn the_security_department_is_notified() {
    let wanted = [
        "Traffic spike: backup from 10.3.0.88, GET /export/customers",
        "Unauthorised access: admin from 203.0.113.44, POST /login",
        "Unauthorised access: guest from 110.3.0.17, DELETE /invoices/2026-02",
        "Unauthorised access: lea from 198.51.100.7, GET /admin/users",
        "Unauthorised access: root from 203.0.113.44, POST /login",
    ];
    assert_eq!(texts_sent("security", "department"), wanted);
}

#[test]
fn whoever_is_on_call_is_notified_of_a_generator() {
    let wanted = ["Generator south has 110.0 degrees", "Generator south has 123.125 degrees"];
    assert_eq!(texts_sent("generator-temperature", "on_call"), wanted);
}

#[test]
fn the_owner_of_a_service_gets_a_mail_about_its_leak() {
    let server = MailServer::start(&[]);
    run_notify("pii-leak", &[format!("mails.port={}", server.port())]);
    let part = |mail: &Value, key: &str| mail[key].as_str().unwrap_or_default().to_owned();
    let mut mails = server.mails();
    // Several are under way at once.
    mails.sort_by_key(|mail| part(mail, "subject"));
    let subjects: Vec<String> = mails.iter().map(|mail| part(mail, "subject")).collect();
    let wanted = [
        "A card number in the log of billing",
        "A card number in the log of gateway",
        "A social security number in the log of signup",
    ];
    assert_eq!(subjects, wanted, "{mails:?}");
    for (mail, to) in mails.iter().zip(["ann@", "security@", "bo@"]) {
        assert!(mail["to"].to_string().contains(to), "{mail}");
        assert!(!part(mail, "text").contains("4111") && part(mail, "text").contains("###"));
    }
}

#[test]
fn validate_says_what_an_example_needs_outside() {
    let pipeline = Pipeline::new("");
    copy(&repository().join("examples/security"), &pipeline.path(""));
    let validate = pipeline.bare_command(&["validate", "notify.sql"]);
    let shown = pipeline.spawn(validate).wait(wait::SOON).expect_success().stdout;
    let input = format!("reads {}: its files", pipeline.path("input").display());
    let secret = "department.signingSecret=${file:not-there}";
    let arguments = ["validate", "notify.sql", "--set", secret];
    let signed = pipeline.spawn(pipeline.bare_command(&arguments)).wait(wait::SOON);
    let signed = signed.expect_success().stdout;
    assert!(signed.contains("the signature on POST requests to 127.0.0.1:8080"), "{signed}");
    for line in ["outside     access (json)", &input, "server 127.0.0.1:8080: the receiver"] {
        assert!(shown.contains(line), "no '{line}' in:\n{shown}");
    }
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

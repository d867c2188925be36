//! Subscriptions of Pub/Sub as a source, against Google's fake behind a front that refuses stale
//! acknowledgements: every message once, whatever is killed, and acknowledged only when it is safe.
//!
//! `MILLSTREAM_KILLS` says how often a process is ended at each step, and ten times as often at
//! random moments.

use std::cell::Cell;
use std::process::Command;
use std::time::Duration;

use millstream_testkit::passage::Passage;
use millstream_testkit::pubsub::Pubsub;

use crate::files_and_static::sorted_lines;
use crate::live::{crashing_at, kills, some_time};
use crate::millstream::{Pipeline, Running, table};
use crate::wait;

/// The steps from the service to the end of a micro-batch that goes to files.
pub const STEPS: [&str; 12] = [
    "before-journal",
    "after-journal",
    "after-acknowledge",
    "after-take",
    "after-run",
    "before-intent",
    "after-intent",
    "files-named",
    "files-listed",
    "before-commit-entry",
    "after-commit-entry",
    "journal-superseded",
];
/// More than a lease takes to end, in seconds.
const LEASE: u32 = 70;

/// A flow from a subscription into a directory.
struct Filed {
    server: Pubsub,
    pipeline: Pipeline,
    published: Cell<u64>,
}

impl Filed {
    fn new(subscription: &str, more: &[(&str, &str)]) -> Self {
        let server = Pubsub::start();
        server.create("t", subscription);
        let endpoint = format!("http://{}", server.address());
        let source = [
            ("subscriptionId", "t"),
            ("projectId", "p"),
            ("endpoint", &*endpoint),
            ("maxFetchPeriod", "2s"),
            ("journalSize", "1mb"),
        ];
        let sink = [("path", "output"), ("commitInterval", "50ms")];
        let pipeline = Pipeline::new(&format!(
            "{}{}CREATE FLOW filed AS INSERT INTO target\n\
             SELECT CAST(payload AS STRING) AS text, orderingKey AS key FROM STREAM source;\n",
            table("source", "", "pubsub", &[&source, more].concat()),
            table("target", "", "json", &sink),
        ));
        Self { server, pipeline, published: Cell::new(0) }
    }

    /// Publishes the next `count` numbers.
    fn publish(&self, count: u64, more: &str) {
        let from = self.published.get();
        self.published.set(from + count);
        let lines: Vec<String> =
            (from..from + count).map(|number| format!("{number:06}")).collect();
        self.server.publish("t", &lines, more);
    }

    fn lines(&self) -> Vec<String> {
        sorted_lines(&self.pipeline.path("output"))
    }

    fn wait_for_all(&self, running: &mut Running) {
        let wanted = self.published.get() as usize;
        running.wait_while_running("all rows", || {
            let output = self.pipeline.path("output");
            output.is_dir() && self.lines().len() >= wanted
        });
    }

    /// Runs what is left, and compares what came out with what was published.
    fn assert_exactly_once(&self) {
        if self.server.count("unacked") > 0 {
            self.server.advance(LEASE);
            // The server's clock is ahead, so that a run which ends with what was published by now
            // would end early.
            let mut running = self.pipeline.start(&[]);
            self.wait_for_all(&mut running);
            let is_acknowledged = || self.server.count("unacked") == 0;
            running.wait_while_running("all acknowledgements", is_acknowledged);
            running.stop().expect_success();
        }
        self.pipeline.run_available();
        let expected: Vec<String> = (0..self.published.get())
            .map(|number| format!(r#"{{"text":"{number:06}"}}"#))
            .collect();
        let found = self.lines();
        assert!(found == expected, "{} rows of {}", found.len(), expected.len());
    }
}

#[test]
fn a_crash_at_any_step_loses_and_doubles_nothing() {
    let filed = Filed::new("", &[]);
    for step in STEPS {
        for _ in 0..kills(1) {
            filed.publish(20, "");
            crashing_at(&filed.pipeline, step, 1).wait(wait::SOON).expect_crash(step);
        }
    }
    filed.assert_exactly_once();
}

#[test]
fn kills_at_random_moments_lose_and_double_nothing() {
    let filed = Filed::new("", &[]);
    for round in 0..10 * kills(0).max(1) {
        let running = filed.pipeline.start(&[]);
        // The fake gives about a hundred messages a second.
        for _ in 0..5 {
            filed.publish(8, "");
            some_time(round, 60);
        }
        running.kill();
    }
    filed.assert_exactly_once();
}

#[test]
fn messages_that_come_again_are_known() {
    let filed = Filed::new("", &[]);
    filed.server.fail("twice", 30);
    filed.server.fail("ack-lost", 3);
    filed.server.fail("ack-done-and-unavailable", 2);
    filed.publish(100, "");
    let mut running = filed.pipeline.start(&[]);
    filed.wait_for_all(&mut running);
    filed.server.advance(LEASE);
    filed.publish(20, "");
    filed.wait_for_all(&mut running);
    running.stop().expect_success();
    // What no acknowledgement has reached comes again after a restart, too.
    filed.assert_exactly_once();
    let counts = filed.server.counts();
    assert!(counts["delivered"] > counts["published"], "{counts:?}");
}

#[test]
fn a_subscription_with_exactly_once_delivery_is_acknowledged_until_it_says_so() {
    let filed = Filed::new("&exactlyOnce=1", &[]);
    filed.server.fail("ack-temporary", 3);
    filed.server.fail("ack-unavailable", 2);
    filed.server.fail("ack-done-and-unavailable", 1);
    for _ in 0..3 {
        filed.publish(50, "");
        let running = crashing_at(&filed.pipeline, "after-journal", 2);
        some_time(1, 400);
        running.kill();
    }
    // A process that was killed may not have met them all: one that goes on meets each.
    filed.server.fail("ack-temporary", 1);
    filed.server.fail("ack-done-and-unavailable", 1);
    filed.publish(50, "");
    let mut running = filed.pipeline.start(&[]);
    running.wait_while_running("refused acknowledgements", || {
        let counts = filed.server.counts();
        ["invalidAckIds", "ack-temporary"].iter().all(|fault| counts.get(*fault) > Some(&0))
    });
    filed.wait_for_all(&mut running);
    running.stop().expect_success();
    filed.assert_exactly_once();
}

#[test]
fn messages_of_a_key_stay_in_order() {
    let filed = Filed::new("&ordering=1", &[]);
    for round in 0..3 {
        let running = filed.pipeline.start(&[]);
        filed.publish(15, "&key=a");
        filed.publish(15, "&key=b");
        some_time(round, 300);
        running.kill();
    }
    filed.pipeline.run_available();
    let files = crate::files_and_static::data_files(&filed.pipeline.path("output"));
    let mut files: Vec<_> = files
        .into_iter()
        .map(|path| (std::fs::metadata(&path).unwrap().modified().unwrap(), path))
        .collect();
    files.sort();
    let text: String =
        files.iter().map(|(_, path)| std::fs::read_to_string(path).unwrap()).collect();
    for key in ["a", "b"] {
        let end = format!("\"key\":\"{key}\"}}");
        let of_key: Vec<&str> = text.lines().filter(|line| line.ends_with(&end)).collect();
        assert_eq!(of_key.len(), 45, "each message of {key} once");
        assert!(of_key.is_sorted(), "{key}: {of_key:?}");
    }
}

#[test]
fn an_attribute_may_be_the_id() {
    let filed = Filed::new("", &[("idAttribute", "id")]);
    // A publisher that repeats itself: other messages, the same attribute.
    for _ in 0..3 {
        filed.published.set(0);
        filed.publish(20, "&attribute=id");
    }
    filed.assert_exactly_once();
}

#[test]
fn a_server_that_stands_still_or_fails_is_read_on_from() {
    let filed = Filed::new("", &[]);
    filed.publish(10, "");
    let mut running = filed.pipeline.start(&[]);
    filed.wait_for_all(&mut running);
    filed.server.pause();
    wait::pause(Duration::from_secs(3));
    filed.server.go_on();
    filed.publish(10, "");
    filed.wait_for_all(&mut running);
    filed.server.fail("cut", 2);
    filed.server.fail("unavailable", 3);
    filed.server.fail("unauthenticated", 1);
    filed.server.fail("ack-unavailable", 3);
    filed.publish(10, "");
    wait::pause(Duration::from_secs(1));
    // What was on its way when the stream was cut comes again when its lease has passed.
    filed.server.advance(LEASE);
    filed.wait_for_all(&mut running);
    running.stop().expect_success();
    filed.assert_exactly_once();
}

#[test]
fn a_connection_that_has_gone_silent_is_replaced() {
    let filed = Filed::new("", &[]);
    let passage = Passage::start(filed.server.address());
    let endpoint = format!("source.endpoint=http://{}", passage.address());
    let mut running = filed.pipeline.start(&["--set", &endpoint]);
    filed.publish(10, "");
    filed.wait_for_all(&mut running);
    // An acknowledgement is on its way, and messages are.
    filed.server.fail("ack-held", 1);
    filed.publish(10, "");
    running.wait_while_running("a call", || filed.server.count("ack-held") == 1);
    filed.publish(10, "");
    assert_ne!(passage.fall_silent(), 0, "there was a connection");
    filed.publish(10, "");
    let before = filed.server.count("streams");
    running.wait_while_running("another stream", || filed.server.count("streams") > before);
    filed.server.advance(LEASE);
    filed.wait_for_all(&mut running);
    running.stop().expect_success();
    filed.assert_exactly_once();
}

#[test]
fn answers_that_are_late_lose_and_double_nothing() {
    let filed = Filed::new("", &[]);
    let passage = Passage::start(filed.server.address());
    let endpoint = format!("source.endpoint=http://{}", passage.address());
    let mut running = filed.pipeline.start(&["--set", &endpoint]);
    for late_by in [300, 3000, 0] {
        filed.publish(100, "");
        filed.wait_for_all(&mut running);
        passage.answer_late(Duration::from_millis(late_by));
    }
    filed.publish(100, "");
    filed.wait_for_all(&mut running);
    running.stop().expect_success();
    filed.assert_exactly_once();
}

#[test]
fn a_run_that_ends_does_not_take_silence_for_the_end() {
    let filed = Filed::new("", &[]);
    filed.publish(10, "");
    filed.server.pause();
    let refused = filed.pipeline.run(&["--trigger", "availableNow", "--restart", "never"]);
    assert!(!refused.says(&["Pub/Sub has not answered for"]).status.success());
    filed.server.go_on();
    filed.server.advance(LEASE);
    filed.assert_exactly_once();
}

#[test]
fn a_backlog_that_is_larger_than_the_journal_is_read() {
    let filed = Filed::new("", &[("maxRecordsPerTrigger", "7")]);
    // Some are as large as a segment, and one is larger than the journal.
    let line = |number: usize| format!("{number:06}{}", "x".repeat(50_000));
    let mut lines: Vec<String> = (0..100).map(line).collect();
    lines.push("y".repeat(2_000_000));
    filed.server.publish("t", &lines, "");
    filed.pipeline.run_available();
    lines.sort_unstable();
    let wanted: Vec<String> =
        lines.into_iter().map(|text| format!(r#"{{"text":"{text}"}}"#)).collect();
    let found = filed.lines();
    assert!(found == wanted, "{} rows of {}", found.len(), wanted.len());
    assert_eq!(filed.server.count("unacked"), 0);
}

#[test]
fn what_cannot_be_read_is_said() {
    let filed = Filed::new("", &[]);
    let run = |more: &[&str]| filed.pipeline.run(&[&["--restart", "never"], more].concat());
    let other = run(&["--set", "source.subscriptionId=other"]);
    assert!(
        !other
            .says(&["no subscription projects/p/subscriptions/other", "'topicId'"])
            .status
            .success()
    );
    filed.server.fail("permission", 100);
    assert!(!run(&[]).says(&["roles/pubsub.subscriber"]).status.success());
    filed.server.fail("permission", 0);
    filed.server.fail("unauthenticated", 100);
    assert!(!run(&[]).says(&["does not take the credentials"]).status.success());
    filed.server.fail("unauthenticated", 0);
    // With a topic the subscription is created, and gets what is published from then on.
    let created = ["--trigger", "availableNow", "--set", "source.subscriptionId=new"];
    let created = [&created[..], &["--set", "source.topicId=t"]].concat();
    run(&created).expect_success();
    filed.publish(5, "");
    run(&created).expect_success();
    assert_eq!(filed.lines().len(), 5);
    // It is not replaced by one that lacks what was published before.
    filed.server.delete("new");
    let gone = ["no subscription projects/p/subscriptions/new", "'topicId'"];
    assert!(!run(&created).says(&gone).status.success());
    let other = Filed::new("", &[("topicId", "none")]);
    let other = |flags: &[&str]| other.pipeline.run(&[&["--restart", "never"], flags].concat());
    let no_topic = other(&["--set", "source.subscriptionId=new"]);
    assert!(!no_topic.says(&["there is no topic projects/p/topics/none"]).status.success());
}

#[test]
fn a_journal_that_is_damaged_is_an_error() {
    let filed = Filed::new("", &[]);
    filed.publish(50, "");
    filed.pipeline.run_available();
    filed.publish(50, "");
    filed.pipeline.run_available();
    let directory = filed.pipeline.path("checkpoint/sources/0");
    let segments = std::fs::read_dir(&directory).expect("it is there");
    let segments = segments.map(|entry| entry.expect("it is there").path());
    let newest = segments.max_by_key(|path| path.metadata().unwrap().modified().unwrap());
    let newest = newest.expect("there is one");
    let bytes = std::fs::read(&newest).expect("it can be read");
    let mut damaged = bytes.clone();
    damaged[30] ^= 1;
    std::fs::write(&newest, damaged).expect("it can be written");
    let refused = filed.pipeline.run(&["--trigger", "availableNow", "--restart", "never"]);
    assert!(!refused.says(&["journal"]).status.success());
    std::fs::write(&newest, bytes).expect("it can be written");
    filed.assert_exactly_once();
}

#[test]
fn the_emulators_variable_is_known_and_options_are_checked() {
    let filed = Filed::new("", &[]);
    let validate = |options: &[(&str, &str)]| {
        let sql = format!(
            "{}CREATE TABLE o USING noop; INSERT INTO o SELECT * FROM STREAM source;",
            table("source", "", "pubsub", options)
        );
        filed.pipeline.rewrite(&sql);
        let mut command: Command = filed.pipeline.bare_command(&["validate", "pipeline.sql"]);
        command.env("PUBSUB_EMULATOR_HOST", filed.server.address());
        filed.pipeline.spawn(command).wait(wait::SOON)
    };
    for (options, said) in [
        (&[][..], "'subscriptionId' is missing"),
        (&[("subscriptionId", "t")], "'projectId' is missing"),
        (&[("subscriptionId", "a/b"), ("projectId", "p")], "projects/PROJECT/subscriptions/ID"),
        (&[("subscriptionId", "t"), ("subscription", "p")], "subscriptionId"),
        (&[("subscriptionId", "t"), ("projectId", "p"), ("journalSize", "1k")], "1mb or more"),
    ] {
        assert!(!validate(options).says(&[said]).status.success(), "{said}");
    }
    validate(&[("subscriptionId", "t"), ("projectId", "p")]).expect_success();
}

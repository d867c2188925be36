//! `millstream demo`: no broker, no set-up, ends by itself.

use std::time::Duration;

use crate::http_receiver::{Answer, Receiver};
use crate::millstream::Pipeline;
use crate::wait;

#[test]
fn the_demo_ends_by_itself_and_shows_alerts_and_latency() {
    let pipeline = Pipeline::new("");
    let running = pipeline.spawn(pipeline.bare_command(&["demo"]));
    let (finished, took) = wait::timed(|| running.wait(Duration::from_secs(40)));
    let finished = finished.expect_success().without_internals();
    assert!(took > Duration::from_secs(5), "it shows something live, it took {took:?}");

    let text = [finished.stdout, finished.stderr].concat().to_lowercase();
    for word in ["alert", "p50", "p99", "ms", "next"] {
        assert!(text.contains(word), "no '{word}' in:\n{text}");
    }
    // Each of the two pipelines raised alerts: a leaked number, a generator that is too hot.
    let leaks = text.lines().filter(|line| has_social_security_number(line)).count();
    assert!(leaks >= 3, "{leaks} leaks in:\n{text}");
    assert!(text.contains("temperature"), "{text}");
    // They were shown when they were raised, not collected for seconds: most have a file each.
    let files = text.lines().find(|line| line.trim_start().starts_with("leaks ")).expect("a line");
    let count = files.split_once('(').and_then(|(_, rest)| rest.split_once(" files"));
    let count: usize = count.expect("it has a count").0.parse().expect("a number");
    assert!(count * 2 >= leaks, "{leaks} leaks in {count} files:\n{text}");
}

#[test]
fn the_demo_sends_alerts_to_a_webhook() {
    let receiver = Receiver::start(|_, _| Answer::accept());
    let pipeline = Pipeline::new("");
    let url = format!("{}/pl4nted", receiver.address());
    let arguments = ["demo", "--for", "6s", "--dir", "demo", "--webhook", &url];
    let running = pipeline.spawn(pipeline.bare_command(&arguments));
    let finished = running.wait(Duration::from_secs(60)).expect_success().without_internals();
    let received = receiver.received();
    assert!(received.len() >= 3, "{received:?}");
    for request in &received {
        assert!(request.body.contains("\"text\":\"Personal data in the log of "), "{request:?}");
        assert!(!has_social_security_number(&request.body), "{request:?}");
    }
    let text = [finished.stdout, finished.stderr].concat();
    assert!(text.contains("CREATE FLOW notify") && !text.contains("pl4nted"), "{text}");
    let written = std::fs::read_to_string(pipeline.path("demo/notify.sql")).expect("it is there");
    assert!(!written.contains("pl4nted"), "{written}");
}

/// Three digits, two, four, with hyphens between.
fn has_social_security_number(line: &str) -> bool {
    let shape: Vec<_> = line.bytes().map(|b| if b.is_ascii_digit() { b'9' } else { b }).collect();
    shape.windows(11).any(|window| window == b"999-99-9999")
}

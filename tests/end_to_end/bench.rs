//! `millstream bench`: the check of a machine and of the user's own brokers.

use serde_json::Value;

use crate::kafka;
use crate::millstream::Pipeline;
use crate::wait;

/// The line that a check prints.
fn check(arguments: &[&str]) -> Value {
    // The directory is all that is needed of it: no pipeline is run.
    let place = Pipeline::new("");
    let command = place.bare_command(&[&["bench"], arguments].concat());
    let finished = place.spawn(command).wait(wait::SOON).expect_success();
    serde_json::from_str(&finished.stdout).expect("it is one JSON object")
}

#[test]
fn generated_rows_are_measured_without_anything_else() {
    let line = check(&["rate-to-stats", "--rate", "1000", "--seconds", "1"]);
    assert_eq!((&line["rate"], &line["kept_up"]), (&1_000.into(), &true.into()), "{line}");
    assert!(line["p50_ms"].as_f64().is_some_and(|p50| p50 > 0.0), "{line}");
}

#[test]
fn topics_of_a_check_are_removed_after_it() {
    let broker = kafka::shared();
    let address = broker.address();
    let brokers = ["kafka-to-kafka", "--brokers", &address, "--rate", "100", "--seconds", "1"];
    let line = check(&[&brokers[..], &["--exactly-once", "--client", "client.id=x"]].concat());
    assert_eq!(line["missing"], 0, "{line}");
    assert!(line["p50_ms"].as_f64().is_some_and(|p50| p50 > 0.0), "{line}");
    let left = || broker.topics().names().into_iter().any(|name| name.starts_with("millstream-b"));
    assert!(!left());
}

#[test]
fn topics_that_the_user_names_stay() {
    let broker = kafka::shared();
    let topics = broker.topics();
    topics.create("bench_in", 2);
    topics.create("bench_out", 3);
    topics.produce_values("bench_in", ["the user's own"]);
    let address = broker.address();
    let line = check(
        &[
            &["kafka-to-kafka", "--brokers", &address, "--rate", "50", "--seconds", "1"][..],
            &["--from", "bench_in", "--to", "bench_out"],
        ]
        .concat(),
    );
    assert_eq!(line["missing"], 0, "{line}");
    assert_eq!(topics.written("bench_out"), 6 * 50, "the record that was there is not read");
}

#[test]
fn a_topic_that_is_not_there_is_named() {
    let address = kafka::shared().address();
    let place = Pipeline::new("");
    let flags = ["--from", "bench_nowhere", "--to", "bench_nowhere"];
    let command = [&["bench", "kafka-to-kafka", "--brokers", &address][..], &flags].concat();
    let finished = place.spawn(place.bare_command(&command)).wait(wait::SOON);
    finished.expect_exit(2).says(&["there is no topic bench_nowhere"]).without_internals();
}

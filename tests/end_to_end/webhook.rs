//! Rows as HTTP requests, against a real server: it fails, stands still, restarts and refuses as a
//! test tells it, and counts what it gets. Whatever happens to the process, each row comes at least
//! once, and always under the same key.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::files_and_static::put;
use crate::http_receiver::{Answer, Received, Receiver};
use crate::kafka;
use crate::live::{ASYNC, Numbers, kills, occurrences, some_time};
use crate::millstream::{Finished, Pipeline, Running, table};
use crate::{certificates, wait};

/// The steps of a micro-batch that goes to a webhook.
pub const STEPS: [&str; 8] = [
    "after-take",
    "after-run",
    "after-produce",
    "after-commit",
    "before-intent",
    "after-intent",
    "before-commit-entry",
    "after-commit-entry",
];
const LATE: u64 = 30;
const ROWS: usize = 10;
/// Of the numbers produced each so many is sent: a request for each of a thousand in a second is
/// more than a build without optimization makes.
const EACH: u64 = 5;

/// A pipeline from files of ten rows, one to a micro-batch.
fn of_files(url: &str, options: &[(&str, &str)], files: usize) -> Pipeline {
    let source = [("path", "input"), ("maxFilesPerTrigger", "1")];
    // Nothing of the machine's own settings is between the test and its server.
    let fixed = [("url", url), ("proxy", "none"), ("retryBackoff", "20ms")];
    let pipeline = Pipeline::new(&format!(
        "{}{}CREATE FLOW told AS INSERT INTO target SELECT n, text FROM STREAM source;\n",
        table("source", "(n BIGINT, text STRING)", "json", &source),
        table("target", "", "webhook", &[&fixed, options].concat()),
    ));
    put_rows(&pipeline, 0..files);
    pipeline
}

fn put_rows(pipeline: &Pipeline, files: std::ops::Range<usize>) {
    for file in files {
        let row = |n: usize| format!("{{\"n\":{n},\"text\":\"row {n}\"}}\n");
        let rows: String = (file * ROWS..(file + 1) * ROWS).map(row).collect();
        put(pipeline, &format!("input/{file:03}.json"), &rows);
    }
}

fn run(pipeline: &Pipeline) -> Finished {
    pipeline.run(&["--trigger", "availableNow", "--restart", "never"]).without_internals()
}

/// The column `n` of all rows that were accepted, in the order in which they came.
fn accepted(receiver: &Receiver) -> Vec<u64> {
    let accepted = receiver.received().into_iter().filter(|request| request.is_accepted);
    accepted.flat_map(|request| rows_of(&request)).map(|row| number(&row)).collect()
}

fn number(row: &Value) -> u64 {
    row["n"].as_u64().expect("it has a number")
}

fn rows_of(request: &Received) -> Vec<Value> {
    match serde_json::from_str(&request.body).expect("it is JSON") {
        Value::Array(rows) => rows,
        row => vec![row],
    }
}

fn key(request: &Received) -> &str {
    request.header("idempotency-key").expect("it has a key")
}

#[test]
fn each_row_is_a_request_with_a_signature_and_a_key_of_its_own() {
    let receiver = Receiver::start(|_, _| Answer::accept());
    let url = format!("{}/hooks/a?b=c", receiver.address());
    let options = [
        ("header.X-Team", "guards"),
        ("bearerToken", "t0p-secret-token"),
        ("signingSecret", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
    ];
    run(&of_files(&url, &options, 2)).expect_success().says_not(&["t0p-secret", "MfKQ9"]);
    assert_eq!(accepted(&receiver), (0..20).collect::<Vec<u64>>(), "in order");
    let received = receiver.received();
    let keys: BTreeSet<&str> = received.iter().map(key).collect();
    assert_eq!(keys.len(), 20);
    for request in &received {
        let header = |name| request.header(name).unwrap_or_default();
        assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/hooks/a?b=c"));
        assert_eq!(header("content-type"), "application/json");
        assert_eq!(header("x-team"), "guards");
        assert_eq!(header("authorization"), "Bearer t0p-secret-token");
        assert_eq!(header("webhook-id"), key(request));
        assert!(header("webhook-timestamp").parse::<i64>().is_ok());
        assert!(header("webhook-signature").starts_with("v1,"));
    }
}

#[test]
fn rows_can_come_in_arrays() {
    let receiver = Receiver::start(|_, _| Answer::status(200));
    let options = [("body", "array"), ("maxRowsPerRequest", "4"), ("method", "put")];
    run(&of_files(&receiver.address(), &options, 2)).expect_success();
    let received = receiver.received();
    let sizes: Vec<usize> = received.iter().map(|request| rows_of(request).len()).collect();
    assert_eq!(sizes, [4, 4, 2, 4, 4, 2]);
    let mut numbers = accepted(&receiver);
    numbers.sort_unstable();
    assert_eq!(numbers, (0..20).collect::<Vec<u64>>());
    assert_eq!(received[0].method, "PUT");
}

#[test]
fn what_may_work_later_is_tried_again_in_order_and_under_the_same_key() {
    let answers = |request: &Received, before: usize| match before % 4 {
        0 => Answer::status(503),
        1 => Answer::Cut,
        2 if request.body.contains(":5") => Answer::status(429).with_header("retry-after", "1"),
        2 => Answer::status(408),
        _ => Answer::accept(),
    };
    let receiver = Receiver::start(answers);
    let (finished, took) = wait::timed(|| run(&of_files(&receiver.address(), &[], 1)));
    finished.expect_success();
    assert!(took >= Duration::from_secs(1), "Retry-After counts: {took:?}");
    assert_eq!(accepted(&receiver), (0..10).collect::<Vec<u64>>());
    assert_one_key_each(&receiver.received());
}

#[test]
fn rows_with_the_same_value_stay_in_order_while_many_are_under_way() {
    let slow = |_: &Received, before: usize| {
        let answer = if before.is_multiple_of(3) { Answer::status(500) } else { Answer::accept() };
        answer.after(Duration::from_millis(5 * (before as u64 % 4)))
    };
    let receiver = Receiver::start(slow);
    let pipeline =
        of_files(&receiver.address(), &[("maxRequestsInFlight", "8"), ("orderBy", "lane")], 0);
    let text = std::fs::read_to_string(pipeline.path("pipeline.sql")).expect("it is there");
    pipeline.rewrite(&text.replace("SELECT n, text", "SELECT n, n % 3 AS lane"));
    put_rows(&pipeline, 0..6);
    run(&pipeline).expect_success();
    let numbers = accepted(&receiver);
    assert_eq!(numbers.len(), 60);
    for lane in 0..3 {
        let of_lane: Vec<u64> = numbers.iter().copied().filter(|n| n % 3 == lane).collect();
        assert!(of_lane.is_sorted(), "{of_lane:?}");
    }
}

#[test]
fn a_request_that_is_refused_names_the_record() {
    let receiver = Receiver::start(|request, _| match request.body.contains("row 13") {
        true => Answer::Status(422, Vec::new(), "no such guard".into(), Duration::ZERO),
        false => Answer::accept(),
    });
    for options in [&[][..], &[("body", "array"), ("maxRowsPerRequest", "1")]] {
        run(&of_files(&receiver.address(), options, 3)).expect_exit(1).says(&[
            "/input/001.json:4 cannot be written",
            "422 Unprocessable Entity: no such guard",
            &receiver.address(),
        ]);
    }
}

#[test]
fn refused_requests_go_to_a_file() {
    let receiver = Receiver::start(|request, _| match request.body.contains("row 1") {
        true if request.body.contains("row 13") => Answer::status(503),
        true => Answer::status(400),
        false => Answer::accept(),
    });
    let options = [("refusedPath", "refused.jsonl"), ("maxRetries", "2")];
    let pipeline = of_files(&receiver.address(), &options, 3);
    run(&pipeline).expect_success();
    assert_eq!(accepted(&receiver).len(), 19);
    let text = std::fs::read_to_string(pipeline.path("refused.jsonl")).expect("it is there");
    let refused: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let mut numbers: Vec<u64> = refused.iter().map(|line| number(&line["content"])).collect();
    assert_eq!(numbers.len(), 11);
    numbers.retain(|n| *n != 1 && !(10..20).contains(n));
    assert!(numbers.is_empty(), "{text}");
    let of_13 = refused.iter().find(|line| number(&line["content"]) == 13).expect("it is there");
    assert!(of_13["answer"].as_str().is_some_and(|text| text.contains("503")), "{of_13}");
    let attempts = receiver.received();
    let attempts = attempts.iter().filter(|request| request.body.contains("row 13"));
    assert_eq!(attempts.count(), 3);
}

#[test]
fn refused_credentials_are_an_error_and_new_ones_are_looked_up() {
    let receiver = Receiver::start(|request, _| match request.header("authorization") {
        Some("Bearer new-token-1") => Answer::accept(),
        Some("Bearer old-token-1") if request.body.contains("row 0") => Answer::accept(),
        _ => Answer::status(401),
    });
    let options = [("bearerToken", "${file:token}")];
    let pipeline = of_files(&receiver.address(), &options, 1);
    put(&pipeline, "token", "old-token-1");
    let failed = run(&pipeline).expect_exit(1);
    failed.says(&["refused the credentials", "401"]).says_not(&["old-token"]);
    let mut running = pipeline.start(&[]);
    running.wait_while_running("the refusal", || receiver.received().len() > 4);
    put(&pipeline, "token", "new-token-1");
    running.wait_while_running("the rows", || {
        accepted(&receiver).into_iter().collect::<BTreeSet<u64>>().len() == ROWS
    });
    running.stop().expect_success();
}

#[test]
fn redirects_are_an_error_or_followed_on_the_same_host() {
    let receiver = Receiver::start(|request, _| match request.path.as_str() {
        "/old" => Answer::status(308).with_header("location", "/new"),
        "/get" => Answer::status(302).with_header("location", "/new"),
        "/away" => Answer::status(307).with_header("location", "http://localhost:1/new"),
        _ => Answer::accept(),
    });
    let url = |path: &str| format!("{}{path}", receiver.address());
    run(&of_files(&url("/old"), &[], 1)).expect_exit(1).says(&["308", "redirect", "'url'"]);
    let follow = [("followRedirects", "true")];
    for path in ["/get", "/away"] {
        run(&of_files(&url(path), &follow, 1)).expect_exit(1).says(&["redirect"]);
    }
    assert!(accepted(&receiver).is_empty());
    run(&of_files(&url("/old"), &follow, 1)).expect_success();
    let received = receiver.received();
    let arrived = received.iter().filter(|request| request.path == "/new");
    assert!(arrived.clone().all(|request| request.method == "POST" && !request.body.is_empty()));
    assert_eq!(arrived.count(), ROWS);
}

#[test]
fn an_authority_of_ones_own_is_trusted_where_the_options_say_so() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let authority = certificates::Authority::new(directory.path()).expect("OpenSSL works");
    let files = authority.issue("IP:127.0.0.1").expect("OpenSSL works");
    let receiver = Receiver::start_tls(&files, |_, _| Answer::accept());
    let ca = files.ca.to_str().expect("a path");
    run(&of_files(&receiver.address(), &[("tls.caFile", ca)], 1)).expect_success();
    assert_eq!(receiver.accepted(), ROWS);
    receiver.forget();
    let failed = run(&of_files(&receiver.address(), &[("maxRetries", "1")], 1)).expect_exit(1);
    failed.says(&["certificate"]);
    assert!(receiver.received().is_empty());
}

#[test]
fn a_server_that_stands_still_and_restarts_gets_every_row() {
    let is_frozen = Arc::new(AtomicBool::new(false));
    let frozen = Arc::clone(&is_frozen);
    let receiver = Receiver::start(move |_, _| match frozen.swap(false, Ordering::Relaxed) {
        true => Answer::accept().after(Duration::from_secs(20)),
        false => Answer::accept(),
    });
    let pipeline = of_files(&receiver.address(), &[], 1);
    let mut running = pipeline.start(&[]);
    let count = |wanted: usize| accepted(&receiver).len() >= wanted;
    running.wait_while_running("the first rows", || count(ROWS));
    is_frozen.store(true, Ordering::Relaxed);
    put_rows(&pipeline, 1..2);
    running.wait_while_running("the report", || {
        running_says(&pipeline, "no answer from the receiver")
    });
    running.wait_while_running("the rows after it", || count(2 * ROWS));
    receiver.stop();
    put_rows(&pipeline, 2..3);
    wait::pause(Duration::from_secs(2));
    receiver.start_again();
    running.wait_while_running("the rows after the restart", || count(3 * ROWS));
    running.stop().expect_success();
    assert_eq!(accepted(&receiver), (0..30).collect::<Vec<u64>>());
}

fn running_says(pipeline: &Pipeline, words: &str) -> bool {
    let said = std::fs::read_to_string(pipeline.path("stderr.0")).unwrap_or_default();
    said.contains(words)
}

/// A key has always the same body, and a row always the same key.
fn assert_one_key_each(received: &[Received]) {
    let (mut bodies, mut keys) = (BTreeMap::new(), BTreeMap::new());
    for request in received {
        let body = bodies.entry(key(request)).or_insert(&request.body);
        assert_eq!(*body, &request.body, "another body under {}", key(request));
        for row in rows_of(request) {
            let first = keys.entry(row.to_string()).or_insert(key(request));
            assert_eq!(*first, key(request), "another key of {row}");
        }
    }
}

/// A flow from a topic of numbers to a server that fails now and then.
struct Told<'a> {
    numbers: Numbers<'a>,
    pipeline: Pipeline,
    receiver: Receiver,
}

impl Told<'_> {
    fn new(name: &str, options: &[(&str, &str)]) -> Self {
        let flow = "INSERT INTO target SELECT * FROM numbers WHERE n % EACH = 0";
        Self::with_flow(name, options, &format!("CREATE FLOW told AS {flow}"))
    }

    /// The same beside a table that collects micro-batches for its commits.
    fn beside_a_table(name: &str) -> Self {
        let to = [("path", "lake"), ("commitInterval", "300ms")];
        let flow = "CREATE FLOW told AS FROM numbers\n\
                    INSERT INTO target SELECT * WHERE n % EACH = 0 INSERT INTO lake SELECT *";
        Self::with_flow(name, &[IN_FLIGHT], &format!("{}{flow}", table("lake", "", "delta", &to)))
    }

    fn with_flow(name: &str, options: &[(&str, &str)], flow: &str) -> Self {
        let broker = kafka::shared();
        let numbers = Numbers::new(broker.topics(), format!("{name}_in"));
        let receiver = Receiver::start(|_, before| match before % 50 {
            7 => Answer::status(503),
            19 => Answer::Cut,
            31 => Answer::accept().after(Duration::from_millis(20)),
            _ => Answer::accept(),
        });
        let url = receiver.address();
        let sink = [("url", url.as_str()), ("proxy", "none"), ("retryBackoff", "5ms")];
        let pipeline = Pipeline::new(&format!(
            "{}{}{};\n",
            numbers.source_table(&broker.address()),
            table("target", "", "webhook", &[&sink, options].concat()),
            flow.replace("numbers", NUMBERS).replace("EACH", &EACH.to_string()),
        ));
        Self { numbers, pipeline, receiver }
    }

    /// Waits until `running` has sent more.
    fn wait_for_more(&self, running: &mut Running) {
        let before = self.receiver.accepted();
        running.wait_while_running("more requests", || self.receiver.accepted() > before);
    }

    /// Runs what is left, and compares what the server has with what was produced.
    fn assert_complete(&self) {
        self.numbers.run_the_rest(&self.pipeline, "target");
        let received = self.receiver.received();
        assert_one_key_each(&received);
        let accepted = received.iter().filter(|request| request.is_accepted);
        let rows: Vec<Value> = accepted.flat_map(rows_of).collect();
        let distinct: BTreeSet<(u64, u64)> = rows
            .iter()
            .map(|row| (row["partition"].as_u64().expect("a number"), number(row)))
            .collect();
        let produced = self.numbers.produced();
        let numbers = || (0..produced).filter(|n| n % EACH == 0);
        let expected = (0..2).flat_map(|partition| numbers().map(move |n| (partition, n)));
        assert!(distinct.iter().copied().eq(expected), "{} rows are there", distinct.len());
        eprintln!("{} rows, {} accepted", distinct.len(), rows.len());
        self.numbers.assert_logged(&self.pipeline);
    }

    fn kill_at_random(&self) {
        self.numbers.while_producing(|| {
            for round in 0..kills(2) * 5 {
                let mut running = self.pipeline.start(&[]);
                self.wait_for_more(&mut running);
                some_time(round, 300);
                running.kill();
            }
        });
        self.assert_complete();
    }
}

const NUMBERS: &str =
    "(SELECT CAST(CAST(value AS STRING) AS BIGINT) AS n, partition FROM STREAM source) AS numbers";
const IN_FLIGHT: (&str, &str) = ("maxRequestsInFlight", "8");

#[test]
fn kills_at_random_moments_lose_no_row_and_change_no_key() {
    Told::new("webhook_killed", &[IN_FLIGHT]).kill_at_random();
}

#[test]
fn kills_at_random_moments_lose_no_row_of_an_array_and_change_no_key() {
    Told::new("webhook_killed_arrays", &[("body", "array")]).kill_at_random();
}

#[test]
fn kills_at_random_moments_lose_no_row_and_change_no_key_with_asynchronous_tracking() {
    let told = Told::new("webhook_killed_async", &[&ASYNC[..], &[IN_FLIGHT]].concat());
    told.kill_at_random();
}

#[test]
fn kills_beside_a_table_that_collects_lose_no_row_and_change_no_key() {
    Told::beside_a_table("webhook_killed_beside").kill_at_random();
}

#[test]
fn a_crash_at_any_step_loses_no_row_and_changes_no_key() {
    let told = Told::new("webhook_steps", &[IN_FLIGHT]);
    told.numbers.crash_at_steps(&told.pipeline, &STEPS, &occurrences(LATE));
    told.assert_complete();
}

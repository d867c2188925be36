//! Exactly once into Pulsar and out of it, counted by Pulsar's own client.
//!
//! Into it the source is `rate`, whose rows are numbered from 0 on: a topic has to hold just these
//! numbers, in order. `MILLSTREAM_KILLS` says how often a process is ended at each step, and ten
//! times as often at random moments.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use millstream_testkit::certificates::Authority;
use millstream_testkit::pulsar::{self, Pulsar};
use millstream_testkit::pulsar_pair::PulsarPair;

use crate::live::{crashing_at, kills, occurrences, some_time};
use crate::millstream::{self, Pipeline, Running, table};
use crate::wait;

/// Steps of a micro-batch that is one transaction.
const STEPS: [&str; 11] = [
    "after-take",
    "after-run",
    "before-begin",
    "after-produce",
    "after-offsets",
    "before-commit",
    "after-commit",
    "before-intent",
    "after-intent",
    "before-commit-entry",
    "after-commit-entry",
];
/// Columns of `rate`, of which a message has no second one.
const NOT_THERE: &str = "CAST(value AS STRING) AS value, timestamp";
/// What a start may have to wait for after a broker was gone.
const LONG: Duration = Duration::from_secs(120);

/// Reads what is there.
const AVAILABLE: [&str; 2] = ["--trigger", "availableNow"];

/// A name that no other topic of this server has.
fn new_name(what: &str) -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    format!("{what}-{}", NUMBER.fetch_add(1, Ordering::Relaxed))
}

/// A flow into a topic without partitions.
struct Written<'a> {
    server: &'a Pulsar,
    topic: String,
    pipeline: Pipeline,
}

impl<'a> Written<'a> {
    /// So many numbers a second.
    fn numbers(server: &'a Pulsar, rows: &str, more: &[(&str, &str)]) -> Self {
        let source = table("source", "", "rate", &[("rowsPerSecond", rows)]);
        Self::new(server, &source, "CAST(value AS STRING) AS value", more)
    }

    fn new(server: &'a Pulsar, source: &str, columns: &str, more: &[(&str, &str)]) -> Self {
        let (topic, url) = (new_name("out"), server.url());
        server.create(&topic, 0);
        let own: [(&str, &str); 3] =
            [("service.url", &url), ("topic", &topic), ("trigger", "20 milliseconds")];
        let options = own.into_iter().filter(|(key, _)| more.iter().all(|(other, _)| other != key));
        let options: Vec<_> = options.chain(more.iter().copied()).collect();
        let pipeline = Pipeline::new(&format!(
            "{source}{}CREATE FLOW written AS INSERT INTO target SELECT {columns} \
             FROM STREAM source;\n",
            table("target", "", "pulsar", &options),
        ));
        Self { server, topic, pipeline }
    }

    fn wait_for_more(&self, running: &mut Running) {
        let before = self.server.received(&self.topic);
        running.wait_while_running("more rows", || self.server.received(&self.topic) > before);
    }

    fn run_briefly(&self) {
        let mut running = self.pipeline.start(&[]);
        self.wait_for_more(&mut running);
        running.stop().expect_success();
    }

    fn crash_at_steps(&self, steps: &[&str], occurrences: &[u64]) {
        for step in steps {
            for nth in occurrences {
                crashing_at(&self.pipeline, step, *nth).wait(LONG).expect_crash(step);
            }
        }
    }

    fn kill_at_random(&self, rounds: u64) {
        for round in 0..rounds {
            let mut running = self.pipeline.start(&[]);
            self.wait_for_more(&mut running);
            some_time(round, 300);
            running.kill();
        }
    }

    fn values(&self) -> Vec<String> {
        self.server.client(&["read", &self.topic])
    }

    /// The topic holds the numbers from 0 on, in order.
    fn assert_numbers(&self) -> usize {
        let found = self.values();
        assert!(!found.is_empty(), "the topic is empty");
        for (at, number) in found.iter().enumerate() {
            assert_eq!(number.parse::<usize>(), Ok(at), "the topic goes wrong at {at}");
        }
        found.len()
    }

    fn assert_exactly_once(&self) {
        self.run_briefly();
        let numbers = self.assert_numbers();
        let checkpoint = self.pipeline.checkpoint();
        checkpoint.assert_entries_well_formed(1);
        let last = checkpoint.latest("commits");
        let ended = format!("{{\"rows\":{numbers}}}");
        let entry = self.pipeline.path(&format!("checkpoint/offsets/{last}"));
        let entry = std::fs::read_to_string(entry).expect("it is there");
        assert!(entry.contains(&ended), "{ended} is not in {entry}");
    }
}

#[test]
fn a_crash_at_any_step_loses_and_doubles_nothing() {
    let written = Written::numbers(pulsar::shared(), "1000", &[]);
    written.crash_at_steps(&STEPS, &occurrences(9));
    written.assert_exactly_once();
}

#[test]
fn kills_at_random_moments_lose_and_double_nothing() {
    let compressed = [("pulsar.producer.compressionType", "ZSTD")];
    let written = Written::numbers(pulsar::shared(), "20000", &compressed);
    written.kill_at_random(10 * kills(1));
    written.assert_exactly_once();
}

#[test]
fn a_broker_that_stands_still_is_waited_for() {
    let server = Pulsar::start();
    let written =
        Written::numbers(&server, "1000", &[("pulsar.client.operationTimeoutMs", "5000")]);
    let mut running = written.pipeline.start(&[]);
    written.wait_for_more(&mut running);
    server.pause();
    wait::pause(Duration::from_secs(20));
    assert!(running.is_running());
    server.go_on();
    written.wait_for_more(&mut running);
    running.stop().expect_success();
    written.assert_numbers();
}

#[test]
fn a_broker_that_restarts_is_waited_for() {
    let server = Pulsar::start();
    let written = Written::numbers(&server, "1000", &[]);
    let mut running = written.pipeline.start(&[]);
    for _ in 0..kills(1).min(5) {
        written.wait_for_more(&mut running);
        server.kill();
        server.restart();
        // Counters begin anew with the broker.
        written.wait_for_more(&mut running);
    }
    running.stop().expect_success();
    written.assert_numbers();
}

#[test]
fn topics_of_two_brokers_are_found_when_one_is_gone() {
    let pair = PulsarPair::start();
    let [first, second] = &pair.brokers;
    let topic = new_name("in");
    first.create(&topic, 8);
    let url = format!("{},{}", second.url(), first.url().replace("pulsar://", ""));
    let copied = copied(first, &[("topic", &topic)], &[("service.url", &url)]);
    let mut running = copied.pipeline.start(&["--progress", "json"]);
    let mut written = 0_u64;
    for round in 0..3 {
        match round {
            0 => {}
            1 => second.kill(),
            _ => second.restart(),
        }
        first.client(&["write", &topic, &written.to_string(), "800", "key=1"]);
        written += 800;
        wait::until_true("all rows", LONG, || {
            assert!(running.is_running(), "{}", running.stderr());
            let told = millstream::progress(&running.stdout());
            told.iter().filter_map(|it| it["numInputRows"].as_u64()).sum::<u64>() >= written
        });
    }
    running.stop().expect_success();
    copied.pipeline.run_available().expect_success();
    assert_eq!(sorted(copied.values()), (0..written).collect::<Vec<_>>());
}

#[test]
fn a_second_instance_takes_over_and_the_first_says_so() {
    let written = Written::numbers(pulsar::shared(), "1000", &[]);
    written.run_briefly();
    let mut first = written.pipeline.start(&[]);
    written.wait_for_more(&mut first);
    // Another machine with a copy of the checkpoint: here, without the lock.
    let copy = written.pipeline.path("copy");
    first.pause();
    let mut copied = std::process::Command::new("cp");
    copied.arg("-r").arg(written.pipeline.path("checkpoint")).arg(&copy);
    assert!(copied.status().expect("cp is there").success());
    let mut command = written.pipeline.bare_command(&["run", "pipeline.sql"]);
    command.args(["--checkpoint", "copy"]);
    // The subscription is free only when the first lets go of it.
    first.go_on();
    let mut second = written.pipeline.spawn(command);
    first.wait(LONG).says(&["another instance of this query"]);
    written.wait_for_more(&mut second);
    second.stop().expect_success();
    written.assert_numbers();
}

#[test]
fn what_is_wrong_is_said() {
    let server = pulsar::shared();
    let nowhere = new_name("nowhere");
    let url = server.url();
    let source = table("source", "", "pulsar", &[("service.url", &url), ("topic", &nowhere)]);
    let refused = Written::new(server, &source, "value", &[]).pipeline.run(&[]);
    assert!(!refused.says(&["there is no topic", &nowhere]).status.success());
    for (columns, said) in [("value", "STRING or BINARY"), (NOT_THERE, "no 'timestamp'")] {
        let pipeline = Pipeline::new(&format!(
            "{}{}CREATE FLOW f AS INSERT INTO target SELECT {columns} FROM STREAM source;\n",
            table("source", "", "rate", &[]),
            table("target", "", "pulsar", &[("service.url", &url), ("topic", "x")]),
        ));
        assert!(!pipeline.run(&[]).says(&[said]).status.success());
    }
}

#[test]
fn a_row_that_is_too_large_is_named() {
    let server = pulsar::shared();
    let source = table("source", "", "rate", &[("rowsPerSecond", "10")]);
    let columns = "repeat('x', 6000000) AS value";
    let refused = Written::new(server, &source, columns, &[]).pipeline.run(&[]);
    assert!(!refused.says(&["maxMessageSize"]).status.success());
}

/// Copies a topic into another.
fn copied<'a>(server: &'a Pulsar, topics: &[(&str, &str)], more: &[(&str, &str)]) -> Written<'a> {
    let url = server.url();
    let options = [&[("service.url", &*url), ("startingOffsets", "earliest")], topics].concat();
    let source = table("source", "", "pulsar", &options);
    Written::new(server, &source, "value", more)
}

fn sorted(mut values: Vec<String>) -> Vec<u64> {
    let mut numbers: Vec<u64> = values.drain(..).map(|it| it.parse().expect("a number")).collect();
    numbers.sort_unstable();
    numbers
}

#[test]
fn what_is_read_is_read_again_after_a_crash() {
    let server = pulsar::shared();
    let topic = new_name("in");
    server.create(&topic, 3);
    let more = [("topic", &*topic), ("maxBytesPerTrigger", "4k")];
    let copied = copied(server, &more, &[]);
    let mut written = 0_u64;
    for step in STEPS {
        for nth in occurrences(4) {
            let (first, count) = (written.to_string(), 300.to_string());
            server.client(&["write", &topic, &first, &count, "batch=10"]);
            written += 300;
            crashing_at(&copied.pipeline, step, nth.min(4)).wait(LONG).expect_crash(step);
        }
    }
    copied.pipeline.run_available().expect_success();
    assert_eq!(sorted(copied.values()), (0..written).collect::<Vec<_>>());
}

#[test]
fn a_sink_that_keeps_an_intent_gets_the_same_messages_again() {
    let server = pulsar::shared();
    let topic = new_name("in");
    server.create(&topic, 2);
    let url = server.url();
    let options = [
        ("service.url", &*url),
        ("topic", &*topic),
        ("startingOffsets", "earliest"),
        ("maxBytesPerTrigger", "4k"),
    ];
    let pipeline = Pipeline::new(&format!(
        "{}{}CREATE FLOW f AS INSERT INTO target SELECT CAST(value AS STRING) AS value \
         FROM STREAM source;\n",
        table("source", "", "pulsar", &options),
        table("target", "", "json", &[("path", "out"), ("trigger", "20 milliseconds")]),
    ));
    let mut written = 0_u64;
    let steps = ["after-take", "after-run", "after-intent", "files-named", "files-listed"];
    for step in steps.iter().chain(["before-commit-entry", "after-commit-entry"].iter()) {
        for _ in 0..2 {
            let first = written.to_string();
            server.client(&["write", &topic, &first, "300", "batch=7", "compression=LZ4"]);
            written += 300;
            crashing_at(&pipeline, step, 1).wait(LONG).expect_crash(step);
        }
    }
    pipeline.run_available().expect_success();
    let files = std::fs::read_dir(pipeline.path("out")).expect("it is there").flatten();
    let files = files.map(|file| file.path()).filter(|path| path.extension().is_some());
    let mut found: Vec<u64> = files
        .flat_map(|path| {
            let text = std::fs::read_to_string(path).expect("it is text");
            let digits = |line: &str| line.chars().filter(char::is_ascii_digit).collect::<String>();
            text.lines().map(|line| digits(line).parse().expect("a number")).collect::<Vec<u64>>()
        })
        .collect();
    found.sort_unstable();
    assert_eq!(found, (0..written).collect::<Vec<_>>());
}

#[test]
fn messages_of_all_kinds_are_read() {
    let server = pulsar::shared();
    let topic = new_name("in");
    server.create(&topic, 0);
    let kinds = [
        "batch=5",
        "batch=5 compression=LZ4",
        "compression=ZLib",
        "batch=3 compression=ZSTD",
        "batch=9 compression=SNAPPY",
        "key=1",
    ];
    for (at, kind) in kinds.iter().enumerate() {
        let first = (at * 20).to_string();
        let options: Vec<&str> = kind.split(' ').collect();
        server.client(&[&["write", &topic, &first, "20"], &options[..]].concat());
    }
    let url = server.url();
    let columns = "(n BIGINT, __key STRING, __eventTime TIMESTAMP, \
                   __messageProperties MAP<STRING, STRING>)";
    let options = [
        ("service.url", &*url),
        ("topic", &*topic),
        ("value.format", "csv"),
        ("startingOffsets", "earliest"),
    ];
    let source = table("source", columns, "pulsar", &options);
    let columns = "concat_ws('|', n, __key, unix_millis(__eventTime), \
                   __messageProperties['number']) AS value";
    let written = Written::new(server, &source, columns, &[]);
    written.pipeline.run_available().expect_success();
    let expected: Vec<String> = (0..120_u64)
        .map(|number| {
            let key = if number < 100 { String::new() } else { format!("|k{}", number % 7) };
            format!("{number}{key}|{}|{number}", 1_700_000_000_000 + number)
        })
        .collect();
    assert_eq!(written.values(), expected);
    // And once more as a table at rest.
    let count = Pipeline::new(&format!(
        "{source}{}CREATE FLOW f AS INSERT INTO out SELECT count(*) AS c, sum(n) AS s \
         FROM source;\n",
        table("out", "", "console", &[]),
    ));
    let finished = count.run(&[]).expect_success();
    assert!(
        finished.stdout.contains("120") && finished.stdout.contains("7140"),
        "{}",
        finished.stdout
    );
}

#[test]
fn topics_and_partitions_that_appear_are_read() {
    let server = pulsar::shared();
    let prefix = new_name("pattern");
    let [first, second] = ["a", "b"].map(|end| format!("{prefix}-{end}"));
    server.create(&first, 1);
    server.client(&["write", &first, "0", "10", "batch=5"]);
    let pattern = format!("{prefix}-.*");
    let copied = copied(server, &[("topicsPattern", &pattern)], &[]);
    let mut running = copied.pipeline.start(&[]);
    let has = |count: u64| copied.server.received(&copied.topic) >= count;
    running.wait_while_running("the first topic", || has(10));
    server.create(&second, 0);
    server.client(&["write", &second, "10", "10", "batch=5"]);
    server.admin("POST", &format!("persistent/public/default/{first}/partitions"), "3").unwrap();
    server.client(&["write", &first, "20", "30", "key=1"]);
    running.wait_while_running("the others", || has(50));
    running.stop().expect_success();
    copied.pipeline.run_available().expect_success();
    assert_eq!(sorted(copied.values()), (0..50).collect::<Vec<_>>());
}

#[test]
fn messages_that_are_lost_are_missed() {
    let server = pulsar::shared();
    let topic = new_name("in");
    server.create(&topic, 0);
    server.client(&["write", &topic, "0", "50", "batch=5"]);
    let copied = copied(server, &[("topic", &topic)], &[]);
    copied.pipeline.run_available().expect_success();
    // The topic is another one of the same name.
    let path = format!("persistent/public/default/{topic}");
    server.admin("DELETE", &format!("{path}?force=true"), "").unwrap();
    server.create(&topic, 0);
    server.client(&["write", &topic, "50", "50", "batch=5"]);
    let refused = copied.pipeline.run(&AVAILABLE);
    assert!(!refused.says(&["are gone", "failOnDataLoss"]).status.success());
    let set = ["--set", "source.failOnDataLoss=false"];
    let go_on = copied.pipeline.run(&[AVAILABLE, set].concat());
    go_on.expect_success().says(&["going on with what is left"]);
    assert_eq!(sorted(copied.values()), (0..100).collect::<Vec<_>>());
}

/// Ten chunks a message, and four of them a micro-batch, so that most micro-batches end between the
/// chunks of several messages.
#[test]
fn messages_in_chunks_are_read_and_read_again_after_a_crash() {
    let server = pulsar::shared();
    let topic = new_name("in");
    server.create(&topic, 0);
    let url = server.url();
    let options = [
        ("service.url", &*url),
        ("topic", &*topic),
        ("startingOffsets", "earliest"),
        ("maxBytesPerTrigger", "4k"),
    ];
    let source = table("source", "(line STRING)", "pulsar", &[&options[..], &[RAW]].concat());
    let columns = "concat(substring_index(line, 'x', 1), ':', length(line)) AS value";
    let copied = Written::new(server, &source, columns, &[]);
    let mut written = 0_u64;
    for round in 0..occurrences(0).len() as u64 {
        server.java_client(&["chunks", &topic, &written.to_string(), "30", "10"]);
        written += 30;
        for (at, step) in STEPS.iter().enumerate() {
            let nth = 1 + (at as u64 + 7 * round) % 6;
            crashing_at(&copied.pipeline, step, nth).wait(LONG).expect_crash(step);
        }
    }
    copied.pipeline.run_available().expect_success();
    let mut found = copied.values();
    found.sort_by_key(|value| value.split(':').next().and_then(|it| it.parse::<u64>().ok()));
    let expected = (0..written).map(|number| format!("{number}:{}", 9_500 + digits(number)));
    assert_eq!(found, expected.collect::<Vec<_>>());
}

const RAW: (&str, &str) = ("value.format", "raw");

fn digits(number: u64) -> usize {
    number.to_string().len()
}

#[test]
fn a_message_that_is_larger_than_an_entry_is_read() {
    let server = pulsar::shared();
    let topic = new_name("in");
    server.create(&topic, 0);
    server.client(&["write", &topic, "0", "2", "chunked=1", "bytes=6000000"]);
    let lz4 = ["chunked=1", "bytes=6000000", "compression=LZ4"];
    server.client(&[&["write", &topic, "2", "2"], &lz4[..]].concat());
    let url = server.url();
    let options = [("service.url", &*url), ("topic", &topic), ("startingOffsets", "earliest"), RAW];
    let source = table("source", "(line STRING)", "pulsar", &options);
    let columns = "concat(substring(line, 1, 2), length(line)) AS value";
    let written = Written::new(server, &source, columns, &[]);
    written.pipeline.run_available().expect_success();
    assert_eq!(written.values(), ["0x6000001", "1x6000001", "2x6000001", "3x6000001"]);
}

#[test]
fn a_topic_that_is_full_is_waited_for() {
    let server = pulsar::shared();
    let namespace = new_name("full");
    server.admin("PUT", &format!("namespaces/public/{namespace}"), "{}").unwrap();
    let path = format!("public/{namespace}/out");
    let topic = format!("persistent://{path}");
    server.admin("PUT", &format!("persistent/{path}"), "").unwrap();
    server.client(&["subscribe", &topic, "reader"]);
    let quota = format!("namespaces/public/{namespace}/backlogQuota");
    let few = r#"{"limitSize":20000,"policy":"producer_exception"}"#;
    server.admin("POST", &quota, few).unwrap();
    let url = server.url();
    let options = [("service.url", &*url), ("topic", &*topic), ("trigger", "20 milliseconds")];
    let pipeline = Pipeline::new(&format!(
        "{}{}CREATE FLOW written AS INSERT INTO target SELECT CAST(value AS STRING) AS value \
         FROM STREAM source;\n",
        table("source", "", "rate", &[("rowsPerSecond", "1000")]),
        table("target", "", "pulsar", &options),
    ));
    let received = || server.received(&path);
    let mut running = pipeline.start(&[]);
    running.wait_while_running("the first rows", || received() > 0);
    // Full is where nothing more comes for longer than a look of the broker takes.
    let mut before = 0;
    running.wait_while_running("the topic is full", || {
        let last = std::mem::replace(&mut before, received());
        wait::pause(Duration::from_secs(3));
        last == before && last == received()
    });
    server.admin("DELETE", &quota, "").unwrap();
    running.wait_while_running("more rows", || received() > before);
    running.stop().expect_success();
    let found = server.client(&["read", &topic]);
    assert!(found.iter().enumerate().all(|(at, number)| number.parse::<usize>() == Ok(at)));
}

#[test]
fn brokers_with_tls_and_clients_with_certificates_know_each_other() {
    let directory = tempfile::tempdir().expect("a directory");
    let authority = Authority::new(directory.path()).expect("OpenSSL works");
    let files = authority.issue("IP:127.0.0.1").expect("OpenSSL works");
    let other = directory.path().join("other");
    let other = Authority::new(&other).expect("OpenSSL works");
    let stranger = other.issue("IP:127.0.0.1").expect("OpenSSL works");
    let server = Pulsar::start_with_tls(&files, &who_may_enter(), TOKEN);
    let url = server.tls_url();
    let text = |path: &std::path::Path| path.to_str().expect("it is UTF-8").to_owned();
    let (ca, cert, key) = (text(&files.ca), text(&files.cert), text(&files.key));
    let (other_cert, other_key) = (text(&stranger.cert), text(&stranger.key));
    let address = ("service.url", &*url);
    let trusted = ("pulsar.client.tlsTrustCertsFilePath", &*ca);
    let own = |cert, key| {
        [("pulsar.client.tlsCertificateFilePath", cert), ("pulsar.client.tlsKeyFilePath", key)]
    };
    let plugin = ("pulsar.client.authPluginClassName", "AuthenticationTls");
    let with = |more: &[(&str, &str)]| Written::numbers(&server, "1000", more);
    let shown = [&[address, trusted], &own(&*cert, &*key)[..]].concat();
    let written = with(&[&shown[..], &[plugin]].concat());
    written.run_briefly();
    written.assert_numbers();
    let refused = |options: &[(&str, &str)], said: &str| {
        let finished = with(options).pipeline.run(&["--restart", "never"]);
        assert!(!finished.says(&[said]).status.success());
    };
    refused(&[address, plugin], "tlsCertificateFilePath");
    refused(&[address], "tlsTrustCertsFilePath");
    refused(&[address, trusted], "tlsCertificateFilePath");
    let foreign = own(&*other_cert, &*other_key);
    refused(&[&[address, trusted], &foreign[..]].concat(), "tlsCertificateFilePath");
    // The certificate is good, and nothing says that it is to let the client in.
    refused(&shown, "authPluginClassName");
}

#[test]
fn a_broker_without_transactions_and_a_wrong_token_are_told() {
    let settings = "transactionCoordinatorEnabled=false\nbrokerDeduplicationEnabled=false\n";
    let settings = settings.to_owned() + &who_may_enter();
    let server = Pulsar::start_with_token(&settings, TOKEN);
    let plugin = ("pulsar.client.authPluginClassName", "AuthenticationToken");
    let with = |token: &'static str, delivery: &'static str| {
        let more = [plugin, ("pulsar.client.authParams", token), ("delivery", delivery)];
        Written::numbers(&server, "1000", &more)
    };
    let wrong = "token:eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ4In0.pl4nted";
    let refused = with(wrong, "at-least-once").pipeline.run(&[]);
    assert!(!refused.says(&["authParams"]).says_not(&["pl4nted"]).status.success());
    let refused = with(TOKEN, "exactly-once").pipeline.run(&[]);
    assert!(!refused.says(&["no transactions", "at-least-once"]).status.success());
    with(TOKEN, "at-least-once").run_briefly();
}

/// Settings of a broker that wants to be shown a token or a certificate.
fn who_may_enter() -> String {
    let secret = "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldC0xMg==";
    let broker = "org.apache.pulsar.broker";
    format!(
        "authenticationEnabled=true\n\
         authenticationProviders={broker}.authentication.AuthenticationProviderToken,\
         {broker}.authentication.AuthenticationProviderTls\n\
         tokenSecretKey=data:;base64,{secret}\n\
         brokerClientAuthenticationPlugin=org.apache.pulsar.client.impl.auth.AuthenticationToken\n\
         brokerClientAuthenticationParameters=token:{TOKEN}\n"
    )
}

/// Of the user `admin`, signed by the key above.
const TOKEN: &str =
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhZG1pbiJ9.5Rok-wvint2zowMROXY5JJFBOBPnFSSU7ztPrbGZ6zs";

//! Kafka with TLS, users and compressed records, against a real broker: nothing of it changes what
//! a reader sees, or who writes the transactions.
//!
//! The broker lets a login count for four seconds, so that clients have to repeat
//! it while a test runs.

use std::path::Path;
use std::time::Duration;

use millstream_testkit::certificates::{Authority, Files};
use millstream_testkit::kafka::{PASSWORD, SecurePorts, USER};

use crate::kafka::Broker;
use crate::live::{Numbers, PARTITIONS, kills, some_time};
use crate::millstream::{Pipeline, Running, table};
use crate::wait;

type Options = Vec<(&'static str, String)>;

/// A broker, and the files of a client of it.
struct Secure {
    broker: Broker,
    ports: SecurePorts,
    files: Files,
    /// Holds the files.
    directory: tempfile::TempDir,
}

impl Secure {
    fn start() -> Self {
        let directory = tempfile::tempdir().expect("it can be made");
        let authority = Authority::new(directory.path()).unwrap();
        let (broker, ports) = Broker::start_with_tls(&authority);
        let files = authority.issue("DNS:client").unwrap();
        Self { broker, ports, files, directory }
    }

    fn authority(&self) -> (&'static str, String) {
        ("kafka.ssl.ca.location", shown(&self.files.ca))
    }

    fn by_password(&self, mechanism: &str) -> Options {
        vec![
            ("kafka.bootstrap.servers", format!("127.0.0.1:{}", self.ports.password)),
            ("kafka.security.protocol", "SASL_SSL".to_owned()),
            ("kafka.sasl.mechanism", mechanism.to_owned()),
            ("kafka.sasl.username", USER.to_owned()),
            ("kafka.sasl.password", PASSWORD.to_owned()),
            self.authority(),
        ]
    }

    fn by_certificate(&self) -> Options {
        vec![
            ("kafka.bootstrap.servers", format!("127.0.0.1:{}", self.ports.certificate)),
            ("kafka.security.protocol", "SSL".to_owned()),
            ("kafka.ssl.certificate.location", shown(&self.files.cert)),
            ("kafka.ssl.key.location", shown(&self.files.key)),
            self.authority(),
        ]
    }

    fn copied(&self, name: &str, client: &Options, sink: &[(&str, &str)]) -> Copied<'_> {
        let topics = self.broker.topics();
        let output = format!("{name}_out");
        let numbers = Numbers::new(topics, format!("{name}_in"));
        topics.create(&output, PARTITIONS as usize);
        let client: Vec<(&str, &str)> =
            client.iter().map(|(key, value)| (*key, value.as_str())).collect();
        let source = [("subscribe", numbers.topic.as_str()), ("startingOffsets", "earliest")];
        let to = [("topic", output.as_str()), ("delivery", "exactly-once")];
        let pipeline = Pipeline::new(&format!(
            "{}{}CREATE FLOW copied AS INSERT INTO target BY NAME\n\
             SELECT value, partition FROM STREAM source;\n",
            table("source", "", "kafka", &[&client[..], &source].concat()),
            table("target", "", "kafka", &[&client[..], &to, sink].concat()),
        ));
        Copied { secure: self, numbers, output, pipeline }
    }
}

/// A flow that copies each partition of one topic to the same partition of another.
struct Copied<'a> {
    secure: &'a Secure,
    numbers: Numbers<'a>,
    output: String,
    pipeline: Pipeline,
}

impl Copied<'_> {
    fn wait_for_more(&self, running: &mut Running) {
        let written = || self.secure.broker.topics().written(&self.output);
        let before = written();
        running.wait_while_running("more output", || written() > before);
    }

    fn assert_exactly_once(&self) {
        // The brokers are there now, and nothing keeps the protocol client from writing.
        self.pipeline.run(&["--trigger", "availableNow"]).expect_success().says_not(&[SLOW]);
        self.numbers.run_the_rest(&self.pipeline, "target");
        self.numbers.assert_in(&self.output, |_| true);
        self.numbers.assert_logged(&self.pipeline);
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// What says that transactions take several times as long.
const SLOW: &str = "librdkafka writes transactions";

#[test]
fn users_certificates_and_compression_change_nothing() {
    let secure = Secure::start();
    for (name, client, compression) in [
        ("scram_512", secure.by_password("SCRAM-SHA-512"), "zstd"),
        ("scram_256", secure.by_password("SCRAM-SHA-256"), "lz4"),
        ("plain", secure.by_password("PLAIN"), "gzip"),
        ("certificate", secure.by_certificate(), "snappy"),
    ] {
        let compressed = ("kafka.compression.type", compression);
        let copied = secure.copied(name, &client, &[compressed, ("kafka.linger.ms", "5")]);
        let mut running = copied.pipeline.start(&[]);
        // Longer than a login counts.
        copied.numbers.while_producing(|| {
            for _ in 0..6 {
                copied.wait_for_more(&mut running);
                wait::pause(Duration::from_secs(1));
            }
        });
        let finished = running.stop().expect_success();
        finished.says_not(&[SLOW, "starts again in", PASSWORD]);
        copied.assert_exactly_once();
    }
}

#[test]
fn kills_lose_and_double_nothing_with_tls() {
    let secure = Secure::start();
    let client = secure.by_password("SCRAM-SHA-512");
    let copied = secure.copied("killed", &client, &[("kafka.compression.type", "zstd")]);
    copied.numbers.while_producing(|| {
        for round in 0..10 * kills(1) {
            let mut running = copied.pipeline.start(&[]);
            copied.wait_for_more(&mut running);
            some_time(round, 300);
            running.kill();
        }
    });
    copied.assert_exactly_once();
}

#[test]
fn javas_names_are_translated() {
    let secure = Secure::start();
    let scram = format!(
        "org.apache.kafka.common.security.scram.ScramLoginModule required \
         username=\"{USER}\" password=\"{PASSWORD}\";"
    );
    let client = vec![
        ("kafka.bootstrap.servers", format!("localhost:{}", secure.ports.password)),
        ("kafka.security.protocol", "SASL_SSL".to_owned()),
        ("kafka.sasl.mechanism", "SCRAM-SHA-512".to_owned()),
        ("kafka.sasl.jaas.config", scram),
        ("kafka.ssl.truststore.type", "PEM".to_owned()),
        ("kafka.ssl.truststore.location", shown(&secure.files.ca)),
    ];
    let copied = secure.copied("java", &client, &[]);
    copied.numbers.produce(100);
    copied.assert_exactly_once();
    // A key and its certificate in one file.
    let both = secure.directory.path().join("both.pem");
    let read = |path: &Path| std::fs::read_to_string(path).expect("it is there");
    std::fs::write(&both, read(&secure.files.key) + &read(&secure.files.cert)).unwrap();
    let client = vec![
        ("kafka.bootstrap.servers", format!("localhost:{}", secure.ports.certificate)),
        ("kafka.security.protocol", "SSL".to_owned()),
        ("kafka.ssl.keystore.type", "PEM".to_owned()),
        ("kafka.ssl.keystore.location", shown(&both)),
        ("kafka.ssl.truststore.type", "PEM".to_owned()),
        ("kafka.ssl.truststore.location", shown(&secure.files.ca)),
    ];
    let copied = secure.copied("java_mutual", &client, &[]);
    copied.numbers.produce(100);
    copied.assert_exactly_once();
}

#[test]
fn what_is_wrong_is_said_with_its_remedy() {
    let secure = Secure::start();
    let other = tempfile::tempdir().expect("it can be made");
    let stranger = Authority::new(other.path()).unwrap().issue("DNS:client").unwrap();
    let changed = |options: Options, key: &str, value: String| -> Options {
        let replace = |(name, old)| (name, if name == key { value.clone() } else { old });
        options.into_iter().map(replace).collect()
    };
    let scram = || secure.by_password("SCRAM-SHA-512");
    let servers = "kafka.bootstrap.servers";
    let plain_port = secure.broker.address();
    let without = |options: Options, prefix: &str| -> Options {
        options.into_iter().filter(|(key, _)| !key.starts_with(prefix)).collect()
    };
    for (name, client, wanted) in [
        (
            "password",
            changed(scram(), "kafka.sasl.password", "pl4nted-two".to_owned()),
            &["refuse this client", "kafka.sasl.password"][..],
        ),
        (
            "authority",
            changed(scram(), "kafka.ssl.ca.location", shown(&stranger.ca)),
            &["certificate", "kafka.ssl.ca.location"],
        ),
        ("to_plain", changed(scram(), servers, plain_port), &["TLS", "kafka.security.protocol"]),
        (
            "to_tls",
            vec![(servers, format!("127.0.0.1:{}", secure.ports.password))],
            &["TLS", "kafka.security.protocol"],
        ),
        (
            "no_certificate",
            without(without(secure.by_certificate(), "kafka.ssl.cert"), "kafka.ssl.key"),
            &["kafka.ssl.certificate.location"],
        ),
        (
            "mechanism",
            changed(scram(), "kafka.sasl.mechanism", "GSSAPI".to_owned()),
            &["kafka.sasl.mechanism"],
        ),
    ] {
        let copied = secure.copied(&format!("wrong_{name}"), &client, &[]);
        copied.numbers.produce(1);
        let refused = copied.pipeline.run(&["--restart", "never"]);
        let refused = refused.says(wanted).says_not(&["pl4nted"]);
        assert!(!refused.status.success(), "{name}");
    }
}

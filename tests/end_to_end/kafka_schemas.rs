//! Avro, Protobuf and JSON Schema from Kafka, with a schema registry, against records that
//! Confluent's own serializers write.

use std::process::Command;

use millstream_testkit::cache;
use millstream_testkit::registry::{Guards, Registry};

use crate::kafka::{self, Broker};
use crate::live::some_time;
use crate::millstream::{Pipeline, table};
use crate::topics::Record;

const FORMATS: [&str; 3] = ["avro", "protobuf", "json-schema"];
const COLUMNS: &str = "(id BIGINT NOT NULL, name STRING, amount BIGINT, note STRING)";

/// Writes the orders `from` to `to` by a version of their schema.
fn produce(broker: &Broker, registry: &str, topic: &str, format: &str, version: u8, of: [u32; 2]) {
    let requirements = include_str!("../kafka/requirements.txt");
    let python = cache::python("kafka-registry", requirements).unwrap();
    let mut command = Command::new(python.join("bin/python"));
    command.arg(cache::repository().join("tests/kafka/registry_clients.py"));
    command.args([&broker.address(), registry, topic, format, &version.to_string()]);
    command.args(of.map(|number| number.to_string()));
    let output = command.output().expect("Python can start");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "the producer failed: {said}");
}

/// What comes out of an order, as JSON.
fn expected(number: u32, version: u8) -> String {
    let (amount, note) = match version {
        1 => (u64::from(number), String::new()),
        _ => (u64::from(number) * 10_000_000_000, format!(",\"note\":\"note-{number}\"")),
    };
    format!("{{\"id\":{number},\"name\":\"order-{number}\",\"amount\":{amount}{note}}}")
}

/// A flow from a topic of orders to one of JSON.
fn copying(name: &str, columns: &str, options: &[(&str, &str)], more: &str) -> Pipeline {
    let servers = kafka::shared().address();
    let servers = ("kafka.bootstrap.servers", servers.as_str());
    let (input, output) = (format!("{name}_in"), format!("{name}_out"));
    let source = [servers, ("subscribe", &input), ("startingOffsets", "earliest")];
    let sink = [servers, ("topic", &output), ("delivery", "exactly-once")];
    Pipeline::new(&format!(
        "{}{}{more}CREATE FLOW copied AS INSERT INTO target BY NAME\n\
         SELECT to_json(struct(id, name, amount, note)) AS value FROM STREAM source;\n",
        table("source", columns, "kafka", &[&source[..], options].concat()),
        table("target", "", "kafka", &sink),
    ))
}

fn values(topic: &str) -> Vec<String> {
    let records = kafka::shared().topics().read(topic);
    records.iter().map(|record| record.value().to_owned()).collect()
}

#[test]
fn producers_go_from_one_version_to_the_next_while_a_query_is_killed() {
    let (broker, registry) = (kafka::shared(), Registry::start());
    let topics = broker.topics();
    for format in FORMATS {
        let name = format!("evolves_{}", format.replace('-', "_"));
        let (input, output) = (format!("{name}_in"), format!("{name}_out"));
        topics.create(&input, 1);
        topics.create(&output, 1);
        let options = [("value.format", format), ("schema.registry.url", registry.url())];
        let pipeline = copying(&name, COLUMNS, &options, "");
        let mut running = pipeline.start(&[]);
        produce(broker, registry.url(), &input, format, 1, [0, 50]);
        running.wait_while_running("the first version", || topics.written(&output) >= 50);
        produce(broker, registry.url(), &input, format, 2, [50, 100]);
        // Old and new records alternate, as while producers are replaced one by one.
        some_time(7, 200);
        running.kill();
        produce(broker, registry.url(), &input, format, 1, [100, 120]);
        produce(broker, registry.url(), &input, format, 2, [120, 140]);
        pipeline.run_available().expect_success().says_not(&["starts again"]);
        let version = |number| if (50..100).contains(&number) || number >= 120 { 2 } else { 1 };
        let wanted: Vec<String> =
            (0..140).map(|number| expected(number, version(number))).collect();
        assert_eq!(values(&output), wanted, "{format}");
    }
}

#[test]
fn columns_come_from_the_registry_and_a_password_is_asked_for() {
    let (broker, topics) = (kafka::shared(), kafka::shared().topics());
    let registry =
        Registry::guarded(Guards { login: Some(("ann", "pl4nted")), ..Guards::default() });
    let with_user = registry.url().replace("://", "://ann:pl4nted@");
    for format in ["avro", "protobuf"] {
        let name = format!("derived_{format}");
        let input = format!("{name}_in");
        topics.create(&input, 1);
        topics.create(&format!("{name}_out"), 1);
        produce(broker, &with_user, &input, format, 1, [0, 10]);
        produce(broker, &with_user, &input, format, 2, [10, 20]);
        let url = ("schema.registry.url", registry.url());
        let user = ("schema.registry.basic.auth.user.info", "ann:pl4nted");
        let message = ("value.message", "Order");
        let options = [("value.format", format), url, user, message];
        let options = if format == "avro" { &options[..3] } else { &options[..] };
        let pipeline = copying(&name, "", options, "");
        pipeline.run_available().expect_success();
        let wanted: Vec<String> =
            (0..20).map(|number| expected(number, if number < 10 { 1 } else { 2 })).collect();
        assert_eq!(values(&format!("{name}_out")), wanted, "{format}");

        let wrong = [("schema.registry.basic.auth.user.info", "ann:pl4nted-two")];
        let wrong = [&options[..2], &wrong[..], &options[3..]].concat();
        let refused = copying(&name, "", &wrong, "").run(&["--restart", "never"]);
        let refused = refused.says(&["schema registry", "401", "ann"]).says_not(&["pl4nted"]);
        assert!(!refused.status.success());
    }
}

#[test]
fn records_that_nobody_can_read_are_dead_letters_and_a_registry_that_is_away_is_waited_for() {
    let (broker, topics) = (kafka::shared(), kafka::shared().topics());
    let registry = Registry::start();
    for topic in ["unreadable_in", "unreadable_out", "unreadable_letters"] {
        topics.create(topic, 1);
    }
    produce(broker, registry.url(), "unreadable_in", "avro", 1, [0, 5]);
    // Without a frame, of a schema that nobody registered, and too short for its schema.
    let frame = |id: u8, rest: &[u8]| [&[0, 0, 0, 0, id], rest].concat();
    let bad = [b"{\"id\": 1}".to_vec(), frame(77, &[2, 2]), frame(1, &[2, 8, b'a'])];
    topics.produce("unreadable_in", bad.into_iter().map(Record::of));
    produce(broker, registry.url(), "unreadable_in", "avro", 2, [5, 10]);
    registry.fail(503, 2);
    registry.drop_connections(1);
    let servers = broker.address();
    let letters = [("kafka.bootstrap.servers", servers.as_str()), ("topic", "unreadable_letters")];
    let letters = table("letters", "", "kafka", &letters);
    let options = [
        ("value.format", "avro"),
        ("schema.registry.url", registry.url()),
        ("deadLetter", "letters"),
    ];
    let pipeline = copying("unreadable", COLUMNS, &options, &letters);
    pipeline.run_available().expect_success().says_not(&["starts again"]);
    let wanted: Vec<String> =
        (0..10).map(|number| expected(number, if number < 5 { 1 } else { 2 })).collect();
    assert_eq!(values("unreadable_out"), wanted);
    let errors: Vec<String> = topics
        .read("unreadable_letters")
        .iter()
        .flat_map(|letter| letter.headers.clone())
        .filter(|(name, _)| name.contains("error"))
        .map(|(_, value)| String::from_utf8_lossy(&value.unwrap_or_default()).into_owned())
        .collect();
    for wanted in ["begins with byte 123", "no schema of the id 77", "malformed Avro record"] {
        assert!(errors.iter().any(|error| error.contains(wanted)), "{wanted}: {errors:?}");
    }
    assert_eq!(errors.len(), 3, "{errors:?}");
}

#[test]
fn a_schema_that_does_not_fit_ends_the_query_with_a_remedy() {
    let (broker, topics) = (kafka::shared(), kafka::shared().topics());
    let registry = Registry::start();
    topics.create("misfit_in", 1);
    topics.create("misfit_out", 1);
    produce(broker, registry.url(), "misfit_in", "avro", 1, [0, 5]);
    let columns = "(id BIGINT, name INT, amount BIGINT, note STRING)";
    let options = [("value.format", "avro"), ("schema.registry.url", registry.url())];
    let pipeline = copying("misfit", columns, &options, "");
    let finished = pipeline.run(&["--restart", "never", "--trigger", "availableNow"]);
    let finished = finished.says(&["schema 1 of the schema registry", "name", "deadLetter"]);
    assert!(!finished.status.success());
    assert!(values("misfit_out").is_empty());
}

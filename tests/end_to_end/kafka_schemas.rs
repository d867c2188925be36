//! Avro, Protobuf and JSON Schema from and to Kafka, with a schema registry, against Confluent's
//! own serializers and deserializers.

use std::process::Command;

use millstream_testkit::cache;
use millstream_testkit::registry::{Guards, Registry};
use serde_json::{Value, json};

use crate::kafka::{self, Broker};
use crate::live::some_time;
use crate::millstream::{Pipeline, table};
use crate::topics::Record;

const FORMATS: [&str; 3] = ["avro", "protobuf", "json-schema"];
const COLUMNS: &str = "(id BIGINT NOT NULL, name STRING, amount BIGINT, note STRING)";

/// Runs a program with Confluent's client; gives what it prints.
fn python(program: &str, arguments: &[&str]) -> String {
    let requirements = include_str!("../kafka/requirements.txt");
    let python = cache::python("kafka-registry", requirements).unwrap();
    let mut command = Command::new(python.join("bin/python"));
    command.arg(cache::repository().join("tests/kafka").join(program)).args(arguments);
    let output = command.output().expect("Python can start");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} failed: {said}");
    String::from_utf8(output.stdout).expect("it prints text")
}

/// Writes the orders `from` to `to` by a version of their schema.
fn produce(broker: &Broker, registry: &str, topic: &str, format: &str, version: u8, of: [u32; 2]) {
    let (servers, version) = (broker.address(), version.to_string());
    let [from, to] = of.map(|number| number.to_string());
    let arguments = [&servers, registry, topic, format, &version, &from, &to];
    python("registry_clients.py", &arguments);
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

/// The columns of what is written here.
const WRITTEN: &str = "(id BIGINT, name STRING, price DOUBLE, at TIMESTAMP, tags ARRAY<STRING>, \
                       place STRUCT<x: INT>)";
const SELECTED: &str = "SELECT CAST(id AS STRING) AS key, id, name, price, at, tags, place \
                        FROM STREAM source";

/// An order as the source has it.
fn order(number: u32) -> String {
    let name =
        if number.is_multiple_of(3) { Value::Null } else { json!(format!("order-{number}")) };
    let order = json!({
        "id": number, "name": name, "price": f64::from(number) / 4.0, "place": {"x": number},
        "at": format!("2026-01-01T00:00:{:02}.250Z", number % 60),
        "tags": ["a", format!("b{number}")],
    });
    order.to_string()
}

/// The same as Confluent's deserializers have it.
fn read_order(number: u32, key: &Value) -> Value {
    let order: Value = serde_json::from_str(&order(number)).unwrap();
    let at = 1_767_225_600_250_u64 + u64::from(number % 60) * 1000;
    json!({"key": key, "value": {
        "id": order["id"], "name": order["name"], "price": order["price"], "at": at,
        "tags": order["tags"], "x": number,
    }})
}

/// A flow from a topic of orders in JSON to one of a format.
fn writing(name: &str, query: &str, sink: &[(&str, &str)]) -> Pipeline {
    let servers = kafka::shared().address();
    let servers = ("kafka.bootstrap.servers", servers.as_str());
    let (input, output) = (format!("{name}_in"), format!("{name}_out"));
    let source = [servers, ("subscribe", &input), ("startingOffsets", "earliest")];
    let target = [servers, ("topic", &output)];
    Pipeline::new(&format!(
        "{}{}CREATE FLOW written AS INSERT INTO target BY NAME\n{query};\n",
        table("source", WRITTEN, "kafka", &source),
        table("target", "", "kafka", &[&target[..], sink].concat()),
    ))
}

fn topics_of(name: &str) -> (String, String) {
    let (input, output) = (format!("{name}_in"), format!("{name}_out"));
    kafka::shared().topics().create(&input, 1);
    kafka::shared().topics().create(&output, 1);
    (input, output)
}

fn put(input: &str, orders: std::ops::Range<u32>) {
    kafka::shared().topics().produce(input, orders.map(|number| Record::of(order(number))));
}

/// What Confluent's deserializers make of a topic.
fn read(registry: &Registry, topic: &str, format: &str) -> Vec<Value> {
    read_as(registry, topic, [format, "raw", topic])
}

/// The same for a format of values, one of keys, and a subject without `-value`.
fn read_as(registry: &Registry, topic: &str, [format, key, subject]: [&str; 3]) -> Vec<Value> {
    let servers = kafka::shared().address();
    let arguments = [&servers, registry.url(), topic, format, key, subject];
    let printed = python("registry_reader.py", &arguments);
    printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn what_is_written_is_read_by_confluent_s_deserializers_once_each_whatever_is_killed() {
    let (topics, registry) = (kafka::shared().topics(), Registry::start());
    for format in FORMATS {
        let name = format!("writes_{}", format.replace('-', "_"));
        let (input, output) = topics_of(&name);
        let url = ("schema.registry.url", registry.url());
        let sink = [("value.format", format), url, ("delivery", "exactly-once")];
        let pipeline = writing(&name, SELECTED, &sink);
        for round in 0..4 {
            put(&input, round * 50..(round + 1) * 50);
            let (mut running, least) = (pipeline.start(&[]), u64::from(round) * 40);
            running.wait_while_running("some orders", || topics.written(&output) > least);
            some_time(u64::from(round), 100);
            running.kill();
        }
        pipeline.run_available().expect_success().says_not(&["starts again"]);
        let wanted: Vec<Value> =
            (0..200).map(|number| read_order(number, &json!(number.to_string()))).collect();
        assert_eq!(read(&registry, &output, format), wanted, "{format}");
    }
    assert!(registry.count("POST /subjects/{subject}/versions") >= 3);
}

#[test]
fn keys_have_schemas_too_and_a_registry_that_is_away_is_waited_for() {
    let registry = Registry::start();
    let (input, output) = topics_of("keyed");
    put(&input, 0..20);
    let sink = [
        ("value.format", "json-schema"),
        ("key.format", "avro"),
        ("key.fields", "id, name"),
        ("value.subject", "orders of others-value"),
        ("schema.registry.url", registry.url()),
        ("delivery", "at-least-once"),
    ];
    let pipeline =
        writing("keyed", "SELECT id, name, price, at, tags, place FROM STREAM source", &sink);
    registry.fail(503, 3);
    registry.drop_connections(1);
    pipeline.run_available().expect_success().says_not(&["starts again"]);
    let wanted = (0..20).map(|number| {
        let order: Value = serde_json::from_str(&order(number)).unwrap();
        let mut read = read_order(number, &json!({"id": number, "name": order["name"]}));
        // They are the key's alone.
        (read["value"]["id"], read["value"]["name"]) = (Value::Null, Value::Null);
        read
    });
    let found = read_as(&registry, &output, ["json-schema", "avro", "orders of others"]);
    assert_eq!(found, wanted.collect::<Vec<_>>());
}

#[test]
fn a_schema_that_the_registry_does_not_take_is_explained_and_the_one_that_is_there_used() {
    let registry = Registry::start();
    for format in FORMATS {
        let name = format!("refused_{}", format.replace('-', "_"));
        let (input, output) = topics_of(&name);
        let subject = format!("{output}-value");
        let url = ("schema.registry.url", registry.url());
        let fails = |select: &str, more: &[(&str, &str)], says: &[&str]| {
            let sink = [&[("value.format", format), url][..], more].concat();
            let finished = writing(&name, select, &sink).run(&[
                "--restart",
                "never",
                "--trigger",
                "availableNow",
            ]);
            assert!(!finished.says(says).without_internals().status.success(), "{format}");
        };
        let never = ("auto.register.schemas", "false");
        fails(SELECTED, &[never], &[&subject, "register the schema first"]);

        put(&input, 0..3);
        let sink = [("value.format", format), url];
        writing(&name, SELECTED, &sink).run_available().expect_success();
        let written = || read(&registry, &output, format);
        assert_eq!(written().len(), 3, "{format}");
        registry.refuse(&subject, true);
        let other = "SELECT id, name, id AS added FROM STREAM source";
        let words = [&*subject, "READER_FIELD_MISSING_DEFAULT_VALUE", "use.latest.version"];
        fails(other, &[], &words);
        fails(other, &[("use.latest.version", "true")], &[&subject, "added"]);
        let wrong = "SELECT id, true AS name FROM STREAM source";
        fails(wrong, &[("use.latest.version", "true")], &[&subject, "name", "BOOLEAN"]);
        assert_eq!(written().len(), 3, "{format}");

        // Fewer columns, where all that are left out may be null.
        // At least once, since the topic has rows of another query.
        let more = [("use.latest.version", "true"), ("delivery", "at-least-once")];
        let latest = [&sink[..], &more].concat();
        writing(&name, "SELECT name, id FROM STREAM source", &latest)
            .run_available()
            .expect_success();
        let found = written();
        let named = |order: &Value| (order["value"]["id"].clone(), order["value"]["name"].clone());
        assert_eq!(
            found[3..].iter().map(named).collect::<Vec<_>>(),
            [(json!(0), Value::Null), (json!(1), json!("order-1")), (json!(2), json!("order-2")),]
        );
    }
}

const REQUIRED: [(&str, &str); 2] = [
    (
        "avro",
        r#"{"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"},
            {"name": "name", "type": "string"}]}"#,
    ),
    ("protobuf", "syntax = 'proto3'; message R { int64 id = 1; string name = 2; }"),
];

#[test]
fn a_null_in_a_field_that_has_none_names_the_record() {
    let (topics, servers) = (kafka::shared().topics(), kafka::shared().address());
    for (format, schema) in REQUIRED {
        for delivery in ["at-least-once", "exactly-once"] {
            let name = format!("null_{format}_{}", delivery.replace('-', "_"));
            let (input, output) = topics_of(&name);
            put(&input, 1..5);
            let sink = [("value.format", format), ("value.schema", schema), ("delivery", delivery)];
            let all = "SELECT id, name FROM STREAM source";
            let pipeline = writing(&name, all, &sink);
            let finished = pipeline.run(&["--restart", "never", "--trigger", "availableNow"]);
            let record = format!("{input}[0]@2 cannot be written");
            let words = [record.as_str(), "name", "null", "constraint"];
            assert!(!finished.says(&words).without_internals().status.success());
            assert_eq!(topics.written(&output), 0);

            let named = format!("{all} WHERE name IS NOT NULL");
            writing(&name, &named, &sink).run_available().expect_success();

            // What is left is read by the same schema.
            let read = [("value.format", format), ("value.schema", schema)];
            let servers = ("kafka.bootstrap.servers", servers.as_str());
            let copy = format!("{output}_copy");
            topics.create(&copy, 1);
            let source = [servers, ("subscribe", &output), ("startingOffsets", "earliest")];
            let pipeline = Pipeline::new(&format!(
                "{}{}CREATE FLOW copied AS INSERT INTO copy\n\
                 SELECT to_json(struct(id, name)) AS value FROM STREAM source;\n",
                table("source", "", "kafka", &[&source[..], &read].concat()),
                table("copy", "", "kafka", &[servers, ("topic", &copy)]),
            ));
            pipeline.run_available().expect_success();
            let order = |number| format!("{{\"id\":{number},\"name\":\"order-{number}\"}}");
            assert_eq!(values(&copy), [1, 2, 4].map(order));
        }
    }
}

//! What tables of each connector say that they need outside.

use std::path::Path;

use arrow::datatypes::DataType;
use millstream_engine::api::connector::ReadMode;
use millstream_engine::api::needs::{Role, Usage};

use crate::support::{columns, connector, table};

const BASE: &str = "/base";

fn lines(name: &str, options: &[(&str, &str)], role: Role<'_>) -> Vec<String> {
    let declared = columns(&[("id", DataType::Utf8), ("value", DataType::Utf8)]);
    let usage = Usage { flow: "pii", role, base_dir: Path::new(BASE), is_stream: true };
    let needs = connector(name, Path::new(BASE)).needs(&table(declared, options), &usage);
    needs.expect("the table is right").iter().map(ToString::to_string).collect()
}

fn read(name: &str, options: &[(&str, &str)]) -> Vec<String> {
    lines(name, options, Role::Read(ReadMode::Stream))
}

fn looked_up(name: &str, options: &[(&str, &str)]) -> Vec<String> {
    lines(name, options, Role::Read(ReadMode::Batch))
}

fn written(name: &str, options: &[(&str, &str)]) -> Vec<String> {
    let schema = columns(&[("id", DataType::Utf8), ("value", DataType::Utf8)]).unwrap();
    lines(name, options, Role::Written(&schema))
}

/// The needs, in order, begin with these words.
#[track_caller]
fn begin(found: &[String], wanted: &[&str]) {
    let fits = |(found, wanted): (&String, &&str)| found.starts_with(wanted);
    let all = found.len() == wanted.len() && found.iter().zip(wanted).all(fits);
    assert!(all, "{found:#?}\n{wanted:#?}");
}

const BROKERS: (&str, &str) = ("kafka.bootstrap.servers", "b1:9092, b2:9092");

#[test]
fn kafka_needs_its_brokers_and_rights_by_the_names_that_it_really_uses() {
    let source = read("kafka", &[BROKERS, ("subscribe", "logs,more")]);
    begin(
        &source,
        &[
            "server b1:9092: ",
            "server b2:9092: ",
            "Read on topic 'logs': ",
            "Read on topic 'more': ",
            "Read on consumer groups that begin with 'millstream-pii-': ",
        ],
    );
    let schema = columns(&[("value", DataType::Utf8)]).unwrap();
    let sink = |more: &[(&str, &str)]| {
        let options = [&[BROKERS, ("topic", "alerts")], more].concat();
        let needs = lines("kafka", &options, Role::Written(&schema));
        needs.into_iter().filter(|need| !need.starts_with("server")).collect::<Vec<_>>()
    };
    begin(
        &sink(&[]),
        &[
            "Write on topic 'alerts': ",
            "Create on topic 'alerts': ",
            "Write on transactional ids that begin with 'millstream-pii-': ",
            "Create, Read, Write on topics that begin with 'millstream-pii-': ",
            "Read on consumer groups that begin with 'millstream-pii-': ",
            "Read on topic 'alerts': ",
        ],
    );
    begin(
        &sink(&[("delivery", "at-least-once"), ("kafka.sasl.kerberos.keytab", "/k")]),
        &[
            "reads /k: ",
            "Write on topic 'alerts': ",
            "Create on topic 'alerts': ",
            "IdempotentWrite on the cluster: ",
        ],
    );
}

#[test]
fn redis_needs_the_commands_of_what_is_done() {
    let host = ("host", "cache");
    let sink = written("redis", &[host, ("key.column", "id"), ("ttl", "60")]);
    begin(
        &sink,
        &[
            "server cache:6379: ",
            "EVALSHA, SCRIPT|LOAD, INFO, HGET, ",
            "TYPE, HSET, HDEL, EXPIRE on keys 't:*': ",
            "CLUSTER|SLOTS, PING on each server: ",
        ],
    );
    let channel = written("redis", &[host, ("model", "publish")]);
    assert!(channel[2].starts_with("PUBLISH on channel 't': "), "{channel:?}");
    let lookup = looked_up("redis", &[host, ("key.column", "id"), ("dbNum", "2")]);
    begin(
        &lookup,
        &[
            "server cache:6379: ",
            "SELECT on database 2: ",
            "HMGET, HGETALL, HLEN, TYPE on keys 't:*': ",
            "INFO on the server: ",
            "CLUSTER|SLOTS, PING on each server: ",
        ],
    );
    let source = read("redis", &[host, ("stream.keys", "orders")]);
    assert!(source[1].starts_with("TYPE, XREAD, XRANGE, XREVRANGE, XINFO|STREAM on key 'orders'"));
}

#[test]
fn notifications_need_their_receiver_and_show_no_secret() {
    let webhook = written(
        "webhook",
        &[
            ("url", "https://hooks.example.com/pl4nted/path"),
            ("bearerToken", "pl4nted"),
            ("signingSecret", "whsec_cGw0bnRlZHBsNG50ZWRwbDRudGVkcGw0bnRlZA=="),
            ("proxy", "none"),
            ("refusedPath", "refused.jsonl"),
        ],
    );
    begin(
        &webhook,
        &[
            "server hooks.example.com:443: ",
            "the bearer token on POST requests to hooks.example.com:443: ",
            "the signature on POST requests to hooks.example.com:443: ",
            "writes /base/refused.jsonl: ",
        ],
    );
    let email = written(
        "email",
        &[
            ("host", "mail.example.com"),
            ("user", "alerts"),
            ("password", "pl4nted"),
            ("from", "Alerts <alerts@example.com>"),
            ("to", "guards@example.com"),
            ("subject", "x"),
        ],
    );
    begin(&email, &["server mail.example.com:465: ", "sending on mails from alerts@example.com: "]);
    for need in webhook.iter().chain(&email) {
        assert!(!need.contains("pl4nted") && !need.contains("whsec"), "{need}");
    }
}

#[test]
fn files_and_tables_need_their_directory() {
    begin(&read("json", &[("path", "in")]), &["reads /base/in: "]);
    begin(&written("json", &[("path", "out")]), &["writes /base/out: "]);
    begin(&written("delta", &[("path", "lake/t")]), &["writes /base/lake/t: "]);
    begin(
        &written("delta", &[("path", "s3://lake/t")]),
        &[
            "s3:ListBucket on bucket lake: ",
            "s3:GetObject, s3:PutObject, s3:DeleteObject on objects below s3://lake/t: ",
            "variable AWS_*: ",
        ],
    );
    for name in ["console", "noop", "stats"] {
        begin(&written(name, &[]), &[]);
    }
}

#[cfg(feature = "gcp")]
#[test]
fn google_cloud_is_asked_for_single_permissions() {
    let account = ("credentialsFile", "key.json");
    let pubsub = read(
        "pubsub",
        &[account, ("projectId", "p"), ("subscriptionId", "orders"), ("topicId", "all")],
    );
    begin(
        &pubsub,
        &[
            "server pubsub.googleapis.com:443: ",
            "reads /base/key.json: ",
            "server oauth2.googleapis.com:443: ",
            "pubsub.subscriptions.consume on subscription projects/p/subscriptions/orders: ",
            "pubsub.topics.attachSubscription on topic projects/p/topics/all: ",
            "pubsub.subscriptions.create on the project: ",
        ],
    );
    let bigquery = written(
        "bigquery",
        &[account, ("table", "p.d.t"), ("createDisposition", "CREATE_IF_NEEDED")],
    );
    begin(
        &bigquery,
        &[
            "server bigquerystorage.googleapis.com:443: ",
            "reads /base/key.json: ",
            "server oauth2.googleapis.com:443: ",
            "server bigquery.googleapis.com:443: ",
            "bigquery.tables.get, bigquery.tables.updateData on table p.d.t: ",
            "bigquery.tables.create on dataset d: ",
        ],
    );
}

#[cfg(feature = "cassandra")]
#[test]
fn cassandra_needs_its_nodes_and_the_table() {
    let options = [("spark.cassandra.connection.host", "c1, c2:9043"), ("keyspace", "ops")];
    begin(
        &written("cassandra", &options),
        &["server c1:9042: ", "server c2:9043: ", "MODIFY on table ops.t: "],
    );
}

#[cfg(feature = "pulsar")]
#[test]
fn pulsar_needs_topics_and_subscriptions() {
    let service = ("service.url", "pulsar://p1");
    begin(
        &read("pulsar", &[service, ("topic", "logs")]),
        &[
            "server p1:6650: ",
            "consume on topic persistent://public/default/logs, with subscriptions that begin \
             with 'millstream-pii-': ",
        ],
    );
    let schema = columns(&[("value", DataType::Utf8)]).unwrap();
    begin(
        &lines("pulsar", &[service, ("topic", "out")], Role::Written(&schema)),
        &[
            "server p1:6650: ",
            "produce on topic persistent://public/default/out: ",
            "produce, consume on topics that begin with \
             persistent://public/default/millstream-progress-: ",
            "transactions on the service: ",
        ],
    );
}

//! Kafka's quotas, against a real broker: a sink that is throttled is slow, and says why.

use crate::kafka::Broker;
use crate::millstream::{Pipeline, table};
use crate::topics::Record;

/// Bytes of a record.
const RECORD: usize = 1_000;
const RECORDS: usize = 1_000;
/// A third of all bytes at once is far more than the quota, so that the broker reads nothing for
/// longer than an answer is waited for otherwise.
const BATCH_BYTES: &str = "350000";
const BYTES_A_SECOND: f64 = 16_000.0;

#[test]
fn a_quota_slows_a_sink_down_and_is_named() {
    let broker = Broker::start();
    let topics = broker.topics();
    topics.create("all", 1);
    topics.create("limited", 1);
    topics.produce("all", (0..RECORDS).map(|at| Record::of(format!("{at:0RECORD$}"))));
    broker.limit_writing("slow", BYTES_A_SECOND);
    let servers = broker.address();
    let servers = ("kafka.bootstrap.servers", servers.as_str());
    let source = [servers, ("subscribe", "all"), ("startingOffsets", "earliest")];
    let sink = [
        servers,
        ("topic", "limited"),
        ("delivery", "exactly-once"),
        ("kafka.client.id", "slow"),
        ("kafka.batch.size", BATCH_BYTES),
        ("kafka.transaction.timeout.ms", "180000"),
    ];
    let pipeline = Pipeline::new(&format!(
        "{}{}CREATE FLOW copied AS INSERT INTO target BY NAME SELECT value FROM STREAM source;\n",
        table("source", "", "kafka", &source),
        table("target", "", "kafka", &sink),
    ));
    let finished = pipeline.run_available().expect_success();
    finished.says(&["throttles this client", "kafka.client.id"]).says_not(&["starts again"]);
    let numbers: Vec<usize> = topics
        .read("limited")
        .iter()
        .map(|record| record.value().parse().expect("a number"))
        .collect();
    assert_eq!(numbers, (0..RECORDS).collect::<Vec<_>>());
}

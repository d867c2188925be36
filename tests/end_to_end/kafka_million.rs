//! A million records through a filter and a projection, stopped and killed on the way.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;

use crate::kafka;
use crate::millstream::{Pipeline, table};
use crate::topics::{Record, Topics};

const LANES: i32 = 4;
const RECORDS_PER_LANE: i64 = 250_000;
/// Every fourth record passes the filter.
const KEPT_EVERY: i64 = 4;
const KEPT: u64 = (LANES as i64 * RECORDS_PER_LANE / KEPT_EVERY) as u64;
const INTERRUPTIONS: u32 = 6;
/// With micro-batches this small, some twenty are left to do at the last interruption.
const OFFSETS_PER_TRIGGER: i64 = 20_000;
/// More than one micro-batch gives, so that each run gets somewhere before it is interrupted.
const GROWTH: u64 = 12_000;
const RUN_LIMIT: Duration = Duration::from_secs(600);

#[test]
fn a_million_records_survive_kills_and_stops() {
    let broker = kafka::shared();
    let topics = broker.topics();
    topics.create("million_in", LANES as usize);
    topics.create("million_out", LANES as usize);
    topics.produce("million_in", (0..RECORDS_PER_LANE).flat_map(records));
    let pipeline = Pipeline::new(&sql(&broker.address()));

    for interruption in 0..INTERRUPTIONS {
        let enough = topics.written("million_out") + GROWTH;
        let mut running = pipeline.start(&["--trigger", "availableNow"]);
        running.wait_while_running("more output", || topics.written("million_out") >= enough);
        if interruption % 2 == 0 {
            running.kill();
        } else {
            running.stop().expect_success();
        }
    }
    let interrupted_at = topics.written("million_out");
    pipeline.start(&["--trigger", "availableNow"]).wait(RUN_LIMIT).expect_success();
    assert!(topics.written("million_out") > interrupted_at, "the last run had nothing to do");

    assert_complete(topics, INTERRUPTIONS.div_ceil(2));
    let checkpoint = pipeline.checkpoint();
    checkpoint.assert_well_formed(1);
    let last = checkpoint.latest("commits");
    assert_eq!(checkpoint.latest("offsets"), last);
    assert_eq!(checkpoint.kafka_end(last, "million_in"), topics.ends("million_in"));
    let sizes = checkpoint.kafka_batch_sizes("million_in");
    assert!(sizes.iter().all(|size| (1..=OFFSETS_PER_TRIGGER).contains(size)), "{sizes:?}");

    let written = topics.written("million_out");
    pipeline.run_available();
    assert_eq!(topics.written("million_out"), written, "there was nothing left to do");
}

fn sql(servers: &str) -> String {
    let limit = OFFSETS_PER_TRIGGER.to_string();
    let source = table(
        "events",
        "(lane INT, sequence BIGINT, level STRING, service STRING, message STRING)",
        "kafka",
        &[
            ("kafka.bootstrap.servers", servers),
            ("subscribe", "million_in"),
            ("startingOffsets", "earliest"),
            ("maxOffsetsPerTrigger", &limit),
            ("value.format", "json"),
        ],
    );
    let servers = ("kafka.bootstrap.servers", servers);
    let sink = table(
        "errors",
        "",
        "kafka",
        &[servers, ("topic", "million_out"), ("delivery", "at-least-once")],
    );
    format!(
        "{source}{sink}\
         CREATE FLOW million AS INSERT INTO errors BY NAME\n\
         SELECT CAST(lane AS STRING) AS key,\n\
                to_json(struct(lane, sequence, upper(service) AS service)) AS value\n\
         FROM STREAM events WHERE level = 'ERROR';\n"
    )
}

fn records(sequence: i64) -> impl Iterator<Item = Record> {
    let level = if sequence % KEPT_EVERY == 0 { "ERROR" } else { "INFO" };
    let service = service(sequence);
    (0..LANES).map(move |lane| {
        let value = format!(
            r#"{{"lane":{lane},"sequence":{sequence},"level":"{level}","service":"{service}","message":"request took {sequence} us"}}"#
        );
        Record::of(value).to(lane)
    })
}

fn service(sequence: i64) -> &'static str {
    ["billing", "search", "login"][usize::try_from(sequence % 3).expect("it is small")]
}

/// Every expected record at least once and no other; the records of a lane, which all went to one
/// partition, in order, apart from going back to repeat at most once per kill.
fn assert_complete(topics: &Topics, kills: u32) {
    let mut lanes: BTreeMap<String, Lane> = BTreeMap::new();
    topics.for_each("million_out", |record| {
        let key = record.key.clone().expect("the flow sets a key");
        lanes.entry(key).or_default().see(&record.value.expect("the flow sets a value"));
    });
    assert_eq!(lanes.keys().collect::<Vec<_>>(), ["0", "1", "2", "3"]);
    let mut kept = 0;
    for (key, lane) in lanes {
        assert_eq!(lane.next, RECORDS_PER_LANE, "lane {key} is complete");
        assert!(lane.went_back <= kills, "lane {key} repeated {} times", lane.went_back);
        kept += u64::try_from(RECORDS_PER_LANE / KEPT_EVERY).expect("it is a count");
    }
    assert_eq!(kept, KEPT);
}

#[derive(Default)]
struct Lane {
    /// The first sequence number that was not seen yet.
    next: i64,
    /// The one before this record.
    previous: Option<i64>,
    went_back: u32,
}

impl Lane {
    fn see(&mut self, value: &str) {
        let parsed: serde_json::Value = serde_json::from_str(value).expect("values are JSON");
        let sequence = parsed["sequence"].as_i64().expect("there is a sequence number");
        let service = service(sequence).to_uppercase();
        let expected =
            json!({ "lane": parsed["lane"], "sequence": sequence, "service": service }).to_string();
        assert_eq!(value, expected, "byte for byte what Spark's to_json writes");
        assert_eq!(sequence % KEPT_EVERY, 0, "{value} should not have passed the filter");
        assert!(sequence <= self.next, "{} is missing before {sequence}", self.next);
        self.next = self.next.max(sequence + KEPT_EVERY);
        if self.previous.is_some_and(|previous| sequence <= previous) {
            self.went_back += 1;
        }
        self.previous = Some(sequence);
    }
}

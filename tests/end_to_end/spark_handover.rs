//! One query, one checkpoint, two engines: Apache Spark and Millstream take turns.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::checkpoint::Checkpoint;
use crate::kafka;
use crate::millstream::{Pipeline, table};
use crate::spark::{Relay, Spark};
use crate::topics::{Record, Topics};
use crate::wait;

const PARTITIONS: i32 = 3;
const OFFSETS_PER_TRIGGER: u32 = 40;
const RECORDS_PER_TURN: i32 = 100;

/// A topic pair on the shared broker, a pipeline and a Spark session on the pipeline's checkpoint.
struct Relayed {
    topics: &'static Topics,
    input: String,
    output: String,
    pipeline: Pipeline,
    spark: Spark,
    produced: i32,
    /// Who must have written each record.
    expected: BTreeMap<String, &'static str>,
}

impl Relayed {
    fn new(name: &str) -> Self {
        let broker = kafka::shared();
        let [input, output] = ["in", "out"].map(|side| format!("{name}_{side}"));
        broker.topics().create(&input, PARTITIONS as usize);
        broker.topics().create(&output, 2);
        let pipeline = Pipeline::new(&sql(&broker.address(), &input, &output));
        let spark = Spark::start(&Relay {
            servers: &broker.address(),
            topic_in: &input,
            topic_out: &output,
            checkpoint: pipeline.checkpoint().directory(),
            offsets_per_trigger: OFFSETS_PER_TRIGGER,
        });
        let (produced, expected) = (0, BTreeMap::new());
        Self { topics: broker.topics(), input, output, pipeline, spark, produced, expected }
    }

    /// Writes the next records, which `engine` is to relay.
    fn produce_for(&mut self, engine: &'static str) {
        let turn: Range<i32> = self.produced..self.produced + RECORDS_PER_TURN;
        self.produced = turn.end;
        self.expected.extend(turn.clone().map(|n| (format!("{n:05}"), engine)));
        // Partitions grow at different speeds, so that an offset in the wrong place shows.
        let partition = |n: i32| if n % 5 == 0 { 2 } else { n % 2 };
        let records = turn.map(|n| Record::of(format!("{n:05}")).key("k").to(partition(n)));
        self.topics.produce(&self.input, records);
    }

    fn relayed(&self) -> u64 {
        self.topics.written(&self.output)
    }

    /// Everything produced so far was relayed once, by the engine whose turn it was.
    fn assert_exactly_once(&self) {
        let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for record in self.topics.read(&self.output) {
            let (number, engine) = record.value().split_once('|').expect("engines sign");
            found.entry(number.to_owned()).or_default().push(engine.to_owned());
        }
        let expected = self.expected.iter().map(|(n, engine)| (n.clone(), vec![(*engine).into()]));
        assert_eq!(found, expected.collect());
    }

    fn checkpoint(&self) -> Checkpoint {
        self.pipeline.checkpoint()
    }

    /// Both logs are in Spark's form and end where the topic does.
    fn assert_all_logged(&self) {
        let checkpoint = self.checkpoint();
        checkpoint.assert_well_formed(1);
        let last = checkpoint.latest("commits");
        assert_eq!(checkpoint.latest("offsets"), last, "every micro-batch is committed");
        assert_eq!(checkpoint.kafka_end(last, &self.input), self.topics.ends(&self.input));
        let sizes = checkpoint.kafka_batch_sizes(&self.input);
        let limit = i64::from(OFFSETS_PER_TRIGGER);
        assert!(sizes.iter().all(|size| (1..=limit).contains(size)), "{sizes:?}");
    }
}

fn sql(servers: &str, input: &str, output: &str) -> String {
    let limit = OFFSETS_PER_TRIGGER.to_string();
    let servers = ("kafka.bootstrap.servers", servers);
    let earliest = ("startingOffsets", "earliest");
    let source = [servers, ("subscribe", input), earliest, ("maxOffsetsPerTrigger", &limit)];
    format!(
        "{}{}CREATE FLOW relay AS INSERT INTO target BY NAME\n\
         SELECT key, concat(CAST(value AS STRING), '|millstream') AS value FROM STREAM source;\n",
        table("source", "", "kafka", &source),
        table("target", "", "kafka", &[servers, ("topic", output), ("delivery", "at-least-once")]),
    )
}

#[test]
fn spark_and_millstream_take_turns_on_one_checkpoint() {
    let mut relay = Relayed::new("turns");

    relay.produce_for("spark");
    relay.spark.run_available();
    relay.assert_exactly_once();

    relay.produce_for("millstream");
    relay.pipeline.run_available();
    relay.assert_exactly_once();
    relay.assert_all_logged();

    relay.spark.start_query();
    relay.produce_for("spark");
    let enough = u64::try_from(relay.produced).expect("it is a count");
    relay.topics.wait_for(&relay.output, enough, wait::SOON);
    relay.spark.stop_query();
    relay.assert_exactly_once();

    let mut running = relay.pipeline.start(&[]);
    relay.produce_for("millstream");
    let enough = u64::try_from(relay.produced).expect("it is a count");
    running.wait_while_running("its turn's records", || relay.relayed() >= enough);
    running.stop().expect_success();
    relay.assert_exactly_once();
    relay.assert_all_logged();

    relay.produce_for("spark");
    relay.spark.run_available();
    relay.assert_exactly_once();
    relay.assert_all_logged();
}

#[test]
fn spark_continues_what_millstream_began_and_repeats_what_was_not_committed() {
    let mut relay = Relayed::new("began");
    relay.produce_for("millstream");
    relay.pipeline.run_available();
    relay.assert_all_logged();
    let last = relay.checkpoint().latest("commits");
    let repeated =
        *relay.checkpoint().kafka_batch_sizes(&relay.input).last().expect("there is one");

    // As after a crash between the sink's acknowledgement and the commit entry.
    let commit = relay.checkpoint().path(&format!("commits/{last}"));
    std::fs::remove_file(commit).expect("there is an entry");
    relay.spark.run_available();
    let repeats = relay.relayed() - u64::try_from(RECORDS_PER_TURN).expect("it is a count");
    assert_eq!(i64::try_from(repeats), Ok(repeated), "Spark ran the same range again");
    relay.assert_all_logged();

    // The other way round: Spark leaves a micro-batch without a commit entry.
    let last = relay.checkpoint().latest("commits");
    for name in [format!("commits/{last}"), format!("commits/.{last}.crc")] {
        std::fs::remove_file(relay.checkpoint().path(&name)).expect("Spark wrote it");
    }
    let before = relay.relayed();
    relay.pipeline.run_available();
    assert_eq!(i64::try_from(relay.relayed() - before), Ok(repeated), "the same range again");
    relay.assert_all_logged();
}

/// The value without the signature of each record in the output, in any order.
fn relayed_numbers(relay: &Relayed) -> Vec<String> {
    let mut numbers = Vec::new();
    for record in relay.topics.read(&relay.output) {
        let (number, _) = record.value().split_once('|').expect("engines sign");
        numbers.push(number.to_owned());
    }
    numbers
}

const SPARSELY: [&str; 4] = [
    "--set",
    "asyncProgressTrackingEnabled=true",
    "--set",
    "asyncProgressTrackingCheckpointIntervalMs=3600000",
];

#[test]
fn asynchronous_tracking_is_handed_over_both_ways() {
    let mut relay = Relayed::new("async");
    let all_of = |relay: &Relayed| u64::try_from(relay.produced).expect("it is a count");

    // Spark relays three micro-batches and more, and logs the first.
    relay.spark.start_async_query();
    relay.produce_for("spark");
    relay.topics.wait_for(&relay.output, all_of(&relay), wait::SOON);
    relay.spark.stop_query();
    let logged = relay.checkpoint().ids("offsets");
    let end = *logged.last().expect("the first micro-batch has an entry");
    let read: i64 = relay.checkpoint().kafka_end(end, &relay.input).values().sum();
    assert!(read < i64::from(relay.produced), "Spark logged all of it: {logged:?}");

    // What it did not log is relayed again, and nothing else; then we log sparsely, too.
    let mut running = relay.pipeline.start(&SPARSELY);
    let repeated = u64::try_from(i64::from(relay.produced) - read).expect("it is positive");
    let enough = all_of(&relay) + repeated;
    running.wait_while_running("what Spark did not log", || relay.relayed() >= enough);
    relay.produce_for("millstream");
    let enough = all_of(&relay) + repeated;
    running.wait_while_running("its turn's records", || relay.relayed() >= enough);
    running.stop().expect_success();
    assert_eq!(relay.relayed(), enough, "nothing more was repeated");
    let last = relay.checkpoint().latest("commits");
    assert_eq!(relay.checkpoint().kafka_end(last, &relay.input), relay.topics.ends(&relay.input));

    // Spark goes on where we stopped; then we, with an entry for each micro-batch again.
    relay.spark.start_async_query();
    relay.produce_for("spark");
    relay.topics.wait_for(&relay.output, all_of(&relay) + repeated, wait::SOON);
    relay.spark.stop_query();
    assert_eq!(relay.relayed(), all_of(&relay) + repeated, "Spark repeated nothing");
    relay.produce_for("millstream");
    relay.pipeline.run_available();

    let mut numbers = relayed_numbers(&relay);
    numbers.sort_unstable();
    numbers.dedup();
    let expected: Vec<String> = relay.expected.keys().cloned().collect();
    assert_eq!(numbers, expected, "nothing is missing");
}

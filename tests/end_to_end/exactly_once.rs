//! Kafka written exactly once, against a real broker: whatever happens to the process or to the
//! broker, a reader of committed records sees each record once, and each partition in order.
//!
//! A process is ended at the first, the second and a late occurrence of each step of a micro-batch,
//! and twenty times at random moments, with an entry in the logs for each micro-batch and with
//! asynchronous progress tracking. `MILLSTREAM_KILLS` is another number of times for a step, and
//! ten times as many random moments.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::kafka::{self, Broker};
use crate::live::{ASYNC, Numbers, PARTITIONS, STEPS, crashing_at, kills, occurrences, some_time};
use crate::millstream::{CRASH_AT, Pipeline, Running, table};
use crate::proxy::{self, Cut};
use crate::topics::Topics;
use crate::{process, wait};

const LIBRDKAFKA: (&str, &str) = ("kafka.millstream.transactions", "librdkafka");

/// Each of the transactional ids has been used more than once by then.
const LATE: u64 = 30;

/// A flow that copies each partition of one topic to the same partition of another.
struct Copied<'a> {
    topics: &'a Topics,
    numbers: Numbers<'a>,
    pipeline: Pipeline,
    output: String,
}

impl<'a> Copied<'a> {
    fn new(broker: &'a Broker, name: &str, sink: &[(&str, &str)]) -> Self {
        let (topics, output) = (broker.topics(), format!("{name}_out"));
        let numbers = Numbers::new(topics, format!("{name}_in"));
        topics.create(&output, PARTITIONS as usize);
        let servers = broker.address();
        let servers = ("kafka.bootstrap.servers", servers.as_str());
        let source = [servers, ("subscribe", &numbers.topic), ("startingOffsets", "earliest")];
        let to = [servers, ("topic", &output), ("delivery", "exactly-once")];
        let pipeline = Pipeline::new(&format!(
            "{}{}CREATE FLOW copied AS INSERT INTO target BY NAME\n\
             SELECT value, partition FROM STREAM source;\n",
            table("source", "", "kafka", &source),
            table("target", "", "kafka", &[&to, sink].concat()),
        ));
        Self { topics, numbers, pipeline, output }
    }

    /// The values that a reader of committed records sees now, by partition.
    fn seen(&self) -> Vec<Vec<String>> {
        self.numbers.seen_in(&self.output)
    }

    /// True once a reader of committed records sees everything that was produced.
    fn is_complete(&self) -> bool {
        let produced = self.numbers.produced();
        self.seen().iter().all(|values| values.len() as u64 >= produced)
    }

    /// True if partition 0 has records of a transaction that is not ended, and keeps them.
    fn has_open_transaction(&self) -> bool {
        let is_open = || self.topics.filled(&self.output) > self.topics.ends(&self.output)[&0];
        let begun = is_open();
        // Its commit may be on the way.
        wait::pause(Duration::from_millis(200));
        begun && is_open()
    }

    /// Waits until `running` has written more.
    fn wait_for_more(&self, running: &mut Running) {
        let before = self.topics.written(&self.output);
        running.wait_while_running("more output", || self.topics.written(&self.output) > before);
    }

    /// Runs what is left, and holds output and logs against what was produced.
    fn assert_exactly_once(&self) {
        self.numbers.run_the_rest(&self.pipeline, "target");
        self.assert_output();
        self.numbers.assert_logged(&self.pipeline);
    }

    fn assert_output(&self) {
        self.numbers.assert_in(&self.output, |_| true);
    }

    /// Runs for a while, and expects micro-batches without entries. (After a crash they get
    /// theirs, so kills leave no gaps.)
    fn assert_tracks_sparsely(&self) {
        let mut running = self.pipeline.start(&[]);
        self.numbers.while_producing(|| {
            self.wait_for_more(&mut running);
            wait::pause(Duration::from_secs(2));
        });
        running.stop().expect_success();
        let checkpoint = self.pipeline.checkpoint();
        let ids = checkpoint.ids("offsets");
        assert!(checkpoint.has_gaps("offsets"), "every one has its entry: {ids:?}");
        self.assert_exactly_once();
    }

    /// What `checkpoint show` says.
    fn assert_shows(&self) {
        let show = self.pipeline.bare_command(&["checkpoint", "show", "checkpoint"]);
        self.pipeline.spawn(show).wait(wait::SOON).expect_success();
    }
}

#[test]
fn each_record_is_there_once_and_in_order() {
    let copied = Copied::new(kafka::shared(), "once_plain", &[]);
    copied.numbers.produce(500);
    copied.assert_exactly_once();
    copied.numbers.produce(500);
    copied.assert_exactly_once();
    // Nothing new: nothing is written.
    let written = copied.topics.written(&copied.output);
    copied.assert_exactly_once();
    assert_eq!(copied.topics.written(&copied.output), written);

    let mut running = copied.pipeline.start(&[]);
    copied.numbers.produce(200);
    running.wait_while_running("the rest", || copied.is_complete());
    running.stop().expect_success();
    copied.assert_exactly_once();
}

#[test]
fn librdkafka_writes_each_record_once_and_in_order_too() {
    let copied = Copied::new(kafka::shared(), "once_librdkafka", &[LIBRDKAFKA]);
    copied.numbers.while_producing(|| {
        for step in STEPS {
            crashing_at(&copied.pipeline, step, 3).wait(wait::SOON).expect_crash(step);
        }
    });
    copied.assert_exactly_once();
}

#[test]
fn both_ways_of_writing_go_on_where_the_other_stopped() {
    let copied = Copied::new(kafka::shared(), "once_both", &[]);
    copied.numbers.while_producing(|| {
        for round in 0..3 {
            for (way, step) in [("librdkafka", "before-commit"), ("own", "after-commit")] {
                let setting = format!("target.kafka.millstream.transactions={way}");
                let mut command = copied.pipeline.command(&["--set", &setting]);
                command.env(CRASH_AT, format!("{step}:{}", 1 + round * 3));
                copied.pipeline.spawn(command).wait(wait::SOON).expect_crash(step);
            }
        }
    });
    copied.assert_exactly_once();
}

#[test]
fn a_micro_batch_larger_than_a_request_is_there_once() {
    let copied = Copied::new(kafka::shared(), "once_large", &[("kafka.batch.size", "2000")]);
    copied.numbers.produce(30_000);
    copied.assert_exactly_once();
}

#[test]
fn kills_at_random_moments_lose_and_double_nothing() {
    kill_at_random_moments(&Copied::new(kafka::shared(), "once_killed", &[]));
}

#[test]
fn kills_at_random_moments_lose_and_double_nothing_with_asynchronous_tracking() {
    let copied = Copied::new(kafka::shared(), "once_killed_async", &ASYNC);
    kill_at_random_moments(&copied);
    copied.assert_tracks_sparsely();
}

fn kill_at_random_moments(copied: &Copied<'_>) {
    let wait_for_more = |running: &mut Running| copied.wait_for_more(running);
    copied.numbers.kill_at_random(&copied.pipeline, kills(2) * 10, wait_for_more);
    copied.assert_exactly_once();
    copied.assert_shows();
}

#[test]
fn a_crash_at_any_step_loses_and_doubles_nothing() {
    crash_at_each_step(&Copied::new(kafka::shared(), "once_steps", &[]));
}

#[test]
fn a_crash_at_any_step_loses_and_doubles_nothing_with_asynchronous_tracking() {
    let copied = Copied::new(kafka::shared(), "once_steps_async", &ASYNC);
    crash_at_each_step(&copied);
    copied.assert_tracks_sparsely();
}

fn crash_at_each_step(copied: &Copied<'_>) {
    copied.numbers.while_producing(|| {
        for step in STEPS {
            for nth in occurrences(LATE) {
                crashing_at(&copied.pipeline, step, nth).wait(wait::SOON).expect_crash(step);
                copied.assert_shows();
            }
        }
    });
    copied.assert_exactly_once();
}

#[test]
fn a_transaction_left_open_is_ended_by_a_restart() {
    let copied = Copied::new(kafka::shared(), "once_open", &[]);
    copied.numbers.produce(100);
    copied.assert_exactly_once();
    copied.numbers.produce(100);
    let step = "before-commit";
    crashing_at(&copied.pipeline, step, 1).wait(wait::SOON).expect_crash(step);
    let filled = copied.topics.filled(&copied.output);
    assert!(filled > 200, "the transaction was filled: {filled}");
    assert_eq!(copied.seen()[0].len(), 100, "and is not visible");

    let mut running = copied.pipeline.start(&[]);
    let wait = || running.wait_while_running("what was left", || copied.is_complete());
    let ((), took) = wait::timed(wait);
    // Half of the default of kafka.transaction.timeout.ms.
    assert!(took < Duration::from_secs(15), "readers were blocked for {took:?}");
    running.stop().expect_success();
    copied.assert_exactly_once();
}

#[test]
fn the_later_of_two_instances_goes_on_and_the_other_says_why_it_stops() {
    start_twice(&Copied::new(kafka::shared(), "once_two", &[]));
}

#[test]
fn the_later_of_two_instances_goes_on_with_asynchronous_tracking_too() {
    start_twice(&Copied::new(kafka::shared(), "once_two_async", &ASYNC));
}

fn start_twice(copied: &Copied<'_>) {
    let mut first = copied.pipeline.start(&[]);
    copied.numbers.produce(50);
    first.wait_while_running("the first records", || copied.is_complete());
    copy_directory(copied.pipeline.checkpoint().directory(), &copied.pipeline.path("copy"));
    copied.numbers.produce(50);
    first.wait_while_running("more records", || copied.is_complete());

    // Its checkpoint is behind what is published.
    let mut command: Command = copied.pipeline.bare_command(&["run", "pipeline.sql"]);
    command.args(["--checkpoint", "copy"]);
    let mut second = copied.pipeline.spawn(command);
    copied.numbers.while_producing(|| {
        first.wait(wait::SOON).without_internals().expect_exit(1).says(&[
            "another instance of this flow has taken over",
            "Run a flow in one process only",
        ]);
        let before = copied.topics.written(&copied.output);
        second.wait_while_running("the second", || copied.topics.written(&copied.output) > before);
    });
    second.wait_while_running("the rest", || copied.is_complete());
    second.stop().expect_success();
    copied.assert_output();
    // The first one's own checkpoint can be carried on, too.
    copied.numbers.produce(50);
    copied.assert_exactly_once();
}

#[test]
fn a_process_that_stood_still_comes_back_without_harm() {
    let copied =
        Copied::new(kafka::shared(), "once_still", &[("kafka.transaction.timeout.ms", "2000")]);
    let mut running = copied.pipeline.start(&[]);
    copied.numbers.while_producing(|| {
        copied.wait_for_more(&mut running);
        running.pause();
        // Until it stands between the beginning and the end of a transaction.
        while !copied.has_open_transaction() {
            running.go_on();
            copied.wait_for_more(&mut running);
            running.pause();
        }
        // Brokers look for transactions that are too old every ten seconds.
        let aborted = || !copied.has_open_transaction();
        wait::until_true("the brokers to give the transaction up", wait::SOON, aborted);
        running.go_on();
        // It starts again by itself.
        running.wait_while_running("another start", || running_says(&copied, "starts again in"));
        copied.wait_for_more(&mut running);
        let words = ["kafka.transaction.timeout.ms", "starts again in", "(1 of 60)"];
        running.stop().without_internals().expect_success().says(&words);
    });
    copied.assert_exactly_once();
}

#[test]
fn a_process_that_stood_still_stops_where_it_is_not_to_start_again() {
    let copied =
        Copied::new(kafka::shared(), "once_never", &[("kafka.transaction.timeout.ms", "2000")]);
    let mut running = copied.pipeline.start(&["--restart", "never"]);
    copied.numbers.while_producing(|| {
        copied.wait_for_more(&mut running);
        running.pause();
        while !copied.has_open_transaction() {
            running.go_on();
            copied.wait_for_more(&mut running);
            running.pause();
        }
        let aborted = || !copied.has_open_transaction();
        wait::until_true("the brokers to give the transaction up", wait::SOON, aborted);
        running.go_on();
        let words = ["kafka.transaction.timeout.ms", "a restart publishes it"];
        running.wait(wait::SOON).without_internals().expect_exit(1).says(&words);
    });
    copied.assert_exactly_once();
}

#[test]
fn brokers_that_were_away_for_longer_than_a_transaction_are_come_back_to() {
    let broker = Broker::start();
    let topics = broker.topics();
    topics.create("once_away_out", 1);
    let servers = broker.address();
    let sink = [
        ("kafka.bootstrap.servers", servers.as_str()),
        ("topic", "once_away_out"),
        ("kafka.transaction.timeout.ms", "2000"),
    ];
    let pipeline = Pipeline::new(&format!(
        "{}{}CREATE FLOW ticking AS INSERT INTO target BY NAME\n\
         SELECT CAST(value AS STRING) AS value FROM STREAM ticks;\n",
        table("ticks", "", "rate", &[("rowsPerSecond", "200")]),
        table("target", "", "kafka", &sink),
    ));
    let mut running = pipeline.start(&["--progress", "json"]);
    let restarts = || {
        let said = std::fs::read_to_string(pipeline.path("stderr.0")).unwrap_or_default();
        said.matches(" of 60)").count()
    };
    running.wait_while_running("output", || topics.written("once_away_out") > 0);
    // A starved machine may lose a transaction, and start again, while the broker is there.
    let earlier = restarts();
    broker.kill();
    running.wait_while_running("another start", || restarts() > earlier);
    // Nobody is there yet.
    running.wait_while_running("one more", || restarts() > earlier + 1);
    broker.restart();
    let before = topics.written("once_away_out");
    running.wait_while_running("more", || topics.written("once_away_out") > before + 400);
    let finished = running.stop().expect_success();
    let events = finished.progress().into_iter().filter(|line| line["event"] == "restart");
    let counts: Vec<u64> = events.map(|event| event["count"].as_u64().unwrap()).collect();
    assert_eq!(counts.first(), Some(&1), "{counts:?}");
    assert_eq!(counts[earlier + 1], counts[earlier] + 1, "{earlier} were earlier: {counts:?}");
    let values = topics.read("once_away_out");
    let values: Vec<i64> = values.iter().map(|tick| tick.value().parse().expect("it is")).collect();
    let expected: Vec<i64> = (0..values.len() as i64).collect();
    assert!(values == expected, "ticks are missing, doubled or out of order");
}

/// Whether the last run has said `words` so far.
fn running_says(copied: &Copied<'_>, words: &str) -> bool {
    let said = std::fs::read_to_string(copied.pipeline.path("stderr.0")).unwrap_or_default();
    said.contains(words)
}

#[test]
fn a_broker_that_is_down_at_the_start_does_not_slow_the_run() {
    let first = Broker::start();
    let copied = Copied::new(&first, "once_one_down", &[]);
    copied.numbers.produce(100);
    copied.assert_exactly_once();
    // It stays in the cluster's metadata for some seconds.
    let second = first.start_beside();
    second.kill();
    let mut running = copied.pipeline.start(&["-vv"]);
    copied.numbers.produce(100);
    // Our reader would not do without the second one.
    running.wait_while_running("a transaction", || {
        std::fs::read_to_string(copied.pipeline.path("stderr.1"))
            .is_ok_and(|said| said.contains("committed a transaction"))
    });
    let words = ["a broker of the cluster does not answer", "written without librdkafka"];
    running.stop().expect_success().says(&words);
    second.restart();
    copied.assert_exactly_once();
}

#[test]
fn librdkafka_writes_only_until_there_are_enough_brokers() {
    let first = Broker::start_with("default.replication.factor=2\n");
    let copied = Copied::new(&first, "once_too_few", &[]);
    let mut running = copied.pipeline.start(&[]);
    copied.numbers.produce(100);
    running.wait_while_running("all records", || copied.is_complete());
    assert!(running.stderr().contains("librdkafka writes transactions for now"));
    let _second = first.start_beside();
    copied.numbers.while_producing(|| {
        running.wait_while_running("the way back", || {
            running_says(&copied, "transactions are written without librdkafka again")
        });
        copied.wait_for_more(&mut running);
    });
    running.wait_while_running("all records", || copied.is_complete());
    running.stop().expect_success();
    copied.assert_exactly_once();
}

#[test]
fn brokers_that_are_not_there_are_an_error_soon() {
    let nobody = format!("127.0.0.1:{}", kafka::free_port());
    let sink = [("kafka.bootstrap.servers", nobody.as_str()), ("topic", "any")];
    let pipeline = Pipeline::new(&format!(
        "{}{}INSERT INTO target SELECT CAST(value AS STRING) AS value FROM STREAM ticks;\n",
        table("ticks", "", "rate", &[]),
        table("target", "", "kafka", &sink),
    ));
    let finished = pipeline.start(&[]).wait(wait::SOON).without_internals().expect_exit(1);
    finished.says(&[&nobody, "kafka.bootstrap.servers", "Connection refused"]);
}

#[test]
fn a_broker_that_restarts_is_waited_for() {
    let broker = Broker::start();
    let copied = Copied::new(&broker, "once_broker", &[]);
    let mut running = copied.pipeline.start(&[]);
    copied.numbers.produce(500);
    running.wait_while_running("records before", || copied.is_complete());
    for round in 0..2 {
        std::thread::scope(|scope| {
            let restarting = scope.spawn(|| {
                some_time(round, 200);
                broker.kill();
                wait::pause(Duration::from_secs(2));
                broker.restart();
            });
            copied.numbers.produce(3_000);
            restarting.join().expect("the broker restarts");
        });
        running.wait_while_running("records after", || copied.is_complete());
    }
    running.stop().expect_success();
    copied.assert_exactly_once();
}

#[test]
fn connections_cut_in_mid_transaction_lose_and_double_nothing() {
    let (broker, proxy) = Broker::start_behind_a_proxy();
    let (rows, end) = (proxy::PRODUCE, proxy::END_TXN);
    let ways = [
        ("once_cut_own", &[][..], &[rows, end][..]),
        ("once_cut_librdkafka", &[LIBRDKAFKA], &[rows, proxy::TXN_OFFSET_COMMIT, end]),
    ];
    for (name, sink, apis) in ways {
        let copied = Copied::new(&broker, name, sink);
        let mut running = copied.pipeline.start(&[]);
        copied.numbers.while_producing(|| {
            copied.wait_for_more(&mut running);
            for &api in apis {
                // Requests of this test's own producer are left alone.
                let naming = if api == rows { copied.output.as_str() } else { "" };
                for cut in [Cut::Request, Cut::Answer] {
                    let cuts = proxy.cuts();
                    proxy.cut_at(api, naming, cut);
                    running.wait_while_running("the cut", || proxy.cuts() > cuts);
                    copied.wait_for_more(&mut running);
                }
            }
        });
        running.wait_while_running("the rest", || copied.is_complete());
        running.stop().expect_success();
        copied.assert_exactly_once();
    }
}

#[test]
fn a_source_that_is_not_kafka_is_copied_exactly_once_too() {
    let broker = kafka::shared();
    let topics = broker.topics();
    topics.create("once_rate_out", 1);
    let servers = broker.address();
    let sink = [("kafka.bootstrap.servers", servers.as_str()), ("topic", "once_rate_out")];
    // No `delivery`: exactly-once is the default of a broker that has transactions.
    let pipeline = Pipeline::new(&format!(
        "{}{}CREATE FLOW ticking AS INSERT INTO target BY NAME\n\
         SELECT CAST(value AS STRING) AS value FROM STREAM ticks;\n",
        table("ticks", "", "rate", &[("rowsPerSecond", "500")]),
        table("target", "", "kafka", &sink),
    ));
    for round in 0..kills(2) * 3 {
        let before = topics.written("once_rate_out");
        let mut running = pipeline.start(&[]);
        running.wait_while_running("output", || topics.written("once_rate_out") > before);
        some_time(round, 300);
        running.kill();
    }
    let running = pipeline.start(&[]);
    wait::pause(Duration::from_secs(1));
    running.stop().expect_success();
    let values = topics.read("once_rate_out");
    let values: Vec<i64> = values.iter().map(|tick| tick.value().parse().expect("it is")).collect();
    let expected: Vec<i64> = (0..values.len() as i64).collect();
    assert!(values == expected, "ticks are missing, doubled or out of order");
    pipeline.checkpoint().assert_well_formed(1);
}

#[test]
fn rows_that_name_their_topic_are_there_once_too() {
    let broker = kafka::shared();
    let topics = broker.topics();
    let [even, odd] = ["once_even", "once_odd"];
    for topic in [even, odd, "once_topics_in"] {
        topics.create(topic, 1);
    }
    let servers = broker.address();
    let servers = ("kafka.bootstrap.servers", servers.as_str());
    let source = [servers, ("subscribe", "once_topics_in"), ("startingOffsets", "earliest")];
    let pipeline = Pipeline::new(&format!(
        "{}{}CREATE FLOW sorted AS INSERT INTO target BY NAME\n\
         SELECT value, CASE WHEN CAST(CAST(value AS STRING) AS INT) % 2 = 0\n\
         THEN 'once_even' ELSE 'once_odd' END AS topic FROM STREAM source;\n",
        table("source", "", "kafka", &source),
        table("target", "", "kafka", &[servers, ("delivery", "exactly-once")]),
    ));
    for (round, step) in (0_u32..).zip(["after-offsets", "after-commit", "before-commit"]) {
        let crashing = crashing_at(&pipeline, step, 1);
        let numbers = round * 100..(round + 1) * 100;
        topics.produce_values("once_topics_in", numbers.map(|number| number.to_string()));
        crashing.wait(wait::SOON).expect_crash(step);
    }
    pipeline.run_available();
    for (topic, first) in [(even, 0), (odd, 1)] {
        let values: Vec<String> =
            topics.read(topic).iter().map(|record| record.value().to_owned()).collect();
        let expected: Vec<String> =
            (first..300).step_by(2).map(|number: u32| number.to_string()).collect();
        assert_eq!(values, expected, "{topic}");
    }
}

fn copy_directory(from: &Path, to: &Path) {
    let mut copy = Command::new("cp");
    copy.arg("-r").args([from, to]);
    let mut child = process::spawn(copy).expect("cp can start");
    assert!(child.wait().expect("it is ours").success());
}

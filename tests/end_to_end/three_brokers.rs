//! Exactly once where partitions have replicas: brokers die, stand still and come back, leaders
//! move, and a reader of committed records sees each record once, and each partition in order.
//!
//! Four flows read one topic side by side, so each fault is a fault for all of them: one writes to
//! a topic without librdkafka, one does so by TLS, as a user and compressed, one writes with
//! librdkafka, and one to a Delta table.
//! `MILLSTREAM_KILLS` says how often each kind of fault happens, in turns (default 2).

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::cluster::{self, Alone, BROKERS, Cluster};
use crate::delta::{assert_numbers, versions};
use crate::live::{Numbers, PARTITIONS, kills, mixed};
use crate::millstream::{Finished, Pipeline, Running, table};
use crate::topics::Topics;
use crate::wait;

/// How long a flow may take to end after brokers were away.
const STOP_LIMIT: Duration = Duration::from_secs(240);

/// Where a flow writes to.
enum Output {
    Topic(String),
    Table,
}

struct Flow {
    output: Output,
    pipeline: Pipeline,
}

impl Flow {
    fn is_librdkafkas(&self) -> bool {
        matches!(&self.output, Output::Topic(topic) if topic.ends_with("librdkafka"))
    }
}

/// Flows that copy the numbers of one topic.
struct Copies<'a> {
    cluster: &'a Cluster,
    topics: &'a Topics,
    numbers: Numbers<'a>,
    flows: Vec<Flow>,
}

impl<'a> Copies<'a> {
    fn new(cluster: &'a Cluster, name: &str) -> Self {
        let (topics, servers) = (cluster.topics(), cluster.address());
        let numbers = Numbers::new(topics, format!("{name}_in"));
        let source = numbers.source_table(&servers);
        let to_topic = |way: &str, client: &[(&str, &str)], sink: &[(&str, &str)]| {
            let output = format!("{name}_{way}");
            topics.create(&output, PARTITIONS as usize);
            let from = [("subscribe", numbers.topic.as_str()), ("startingOffsets", "earliest")];
            let to = [("topic", output.as_str()), ("delivery", "exactly-once")];
            let pipeline = Pipeline::new(&format!(
                "{}{}CREATE FLOW copied AS INSERT INTO target BY NAME\n\
                 SELECT value, partition FROM STREAM source;\n",
                table("source", "", "kafka", &[client, &from].concat()),
                table("target", "", "kafka", &[client, &to, sink].concat()),
            ));
            Flow { output: Output::Topic(output), pipeline }
        };
        let plain = [("kafka.bootstrap.servers", servers.as_str())];
        let secure = cluster.by_tls();
        let secure: Vec<(&str, &str)> =
            secure.iter().map(|(key, value)| (*key, value.as_str())).collect();
        let way = |way| [("kafka.millstream.transactions", way)];
        let to = [("path", "table"), ("commitInterval", "100ms")];
        let pipeline = Pipeline::new(&format!(
            "{source}{}CREATE FLOW landed AS INSERT INTO target\n\
             SELECT CAST(CAST(value AS STRING) AS BIGINT) AS id, partition FROM STREAM source;\n",
            table("target", "", "delta", &to),
        ));
        let table = Flow { output: Output::Table, pipeline };
        let flows = vec![
            to_topic("own", &plain, &way("protocol")),
            to_topic("tls", &secure, &[("kafka.compression.type", "zstd")]),
            to_topic("librdkafka", &plain, &way("librdkafka")),
            table,
        ];
        Self { cluster, topics, numbers, flows }
    }

    /// Grows with what `flow` has published.
    fn published(&self, flow: &Flow) -> u64 {
        match &flow.output {
            Output::Topic(topic) => self.topics.written(topic),
            Output::Table => versions(&flow.pipeline.path("table")) as u64,
        }
    }

    /// Waits until `running` has published more.
    fn wait_for_more(&self, flow: &Flow, running: &mut Running) {
        let before = self.published(flow);
        running.wait_while_running("more output", || self.published(flow) > before);
    }

    fn start_all(&self) -> Vec<Running> {
        self.flows.iter().map(|flow| flow.pipeline.start(&[])).collect()
    }

    /// Waits until each flow has published more.
    fn wait_for_more_of_all(&self, running: &mut [Running]) {
        for (flow, running) in self.flows.iter().zip(running) {
            self.wait_for_more(flow, running);
        }
    }

    /// Kills `flow` some time after it has published more, again and again until `is_over`.
    fn kill_at_random(&self, flow: &Flow, seed: u64, is_over: &AtomicBool) {
        let is_over = || is_over.load(Ordering::Relaxed);
        for round in 0.. {
            if is_over() {
                return;
            }
            let mut running = flow.pipeline.start(&[]);
            let before = self.published(flow);
            let has_more = || self.published(flow) > before || is_over();
            running.wait_while_running("more output", has_more);
            // Long enough to meet a fault or two.
            let left = wait::Deadline::after(Duration::from_millis(mixed(seed + round) % 12_000));
            running.wait_while_running("its end", || left.is_over() || is_over());
            running.kill();
        }
    }

    /// A broker dies or stands still for a while, or leaders move.
    fn disturb(&self, alone: &Alone<'_>, fault: u64) {
        let chance = mixed(fault);
        // A broker that dies has seldom a request of that moment; one that stood still before has
        // some that it never reads, and whose answers are lost.
        let has_requests = fault.is_multiple_of(6);
        let topic = if has_requests { self.first_topic() } else { self.a_topic(chance) };
        let lead = || self.cluster.leader(&topic, 0);
        // Now and then it is back before the others have noticed.
        let away = Duration::from_millis(500 + (chance >> 4) % 5_000);
        let leader = wait::until("a leader", wait::SOON, lead);
        match fault % 3 {
            0 => {
                if has_requests {
                    let before = self.topics.written(&topic);
                    let writes = || self.topics.written(&topic) > before;
                    wait::until_true("a flow that writes", wait::SOON, writes);
                    alone.freeze(leader);
                    wait::pause(Duration::from_millis(300));
                }
                alone.kill(leader);
            }
            1 => alone.freeze(leader),
            _ => {
                for next in 0..6 {
                    let partition = if next % 2 == 0 { 0 } else { PARTITIONS - 1 };
                    self.cluster.move_leader(&self.a_topic(chance + next), partition);
                }
                return;
            }
        }
        wait::pause(away);
        alone.restore();
    }

    /// Those that the flows write to.
    fn outputs(&self) -> impl Iterator<Item = String> {
        self.flows.iter().filter_map(|flow| match &flow.output {
            Output::Topic(topic) => Some(topic.clone()),
            Output::Table => None,
        })
    }

    /// The one that is written to without librdkafka.
    fn first_topic(&self) -> String {
        self.outputs().next().expect("a flow writes to a topic")
    }

    /// One of those that the flows need.
    fn a_topic(&self, chance: u64) -> String {
        let mut topics: Vec<String> = self.outputs().collect();
        topics.extend([self.numbers.topic.clone(), "__transaction_state".to_owned()]);
        topics.swap_remove(chance as usize % topics.len())
    }

    /// Runs what is left, and holds outputs and logs against what was produced.
    fn assert_exactly_once(&self) {
        std::thread::scope(|scope| {
            for flow in &self.flows {
                scope.spawn(|| self.numbers.run_the_rest(&flow.pipeline, "target"));
            }
        });
        for flow in &self.flows {
            match &flow.output {
                Output::Topic(topic) => self.numbers.assert_in(topic, |_| true),
                Output::Table => {
                    assert_numbers(&flow.pipeline.path("table"), self.numbers.produced());
                }
            }
            self.numbers.assert_logged(&flow.pipeline);
        }
    }
}

/// Checks the end of a flow that librdkafka writes and the test has stopped. Such a flow may have
/// given a transaction up and started again. A flow that is stopping has no time to start again: it
/// ends with an error, and the next run goes on.
fn expect_end_of_librdkafka(finished: Finished) -> Finished {
    if finished.status.success() {
        return finished;
    }
    let given_up = ["librdkafka does not come back from a call", "it continues where"];
    finished.expect_exit(1).says(&given_up)
}

/// Sets the flag at the end, a failed test's too.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn lost_and_moved_leaders_and_kills_lose_and_double_nothing() {
    let cluster = cluster::shared();
    let alone = cluster.alone();
    let copies = Copies::new(cluster, "three_faults");
    let is_over = AtomicBool::new(false);
    copies.numbers.while_producing(|| {
        // A first run in peace: what the flows need besides is created.
        let mut running = copies.start_all();
        copies.wait_for_more_of_all(&mut running);
        running.into_iter().for_each(Running::kill);
        std::thread::scope(|scope| {
            let over = Over(&is_over);
            for (seed, flow) in (0..).zip(&copies.flows) {
                let (copies, is_over) = (&copies, &is_over);
                scope.spawn(move || copies.kill_at_random(flow, seed * 1_000, is_over));
            }
            (0..kills(2) * 3).for_each(|fault| copies.disturb(&alone, fault));
            drop(over);
        });
    });
    copies.assert_exactly_once();
}

#[test]
fn a_broker_that_dies_is_done_without_and_used_again_when_it_is_back() {
    let cluster = cluster::shared();
    let alone = cluster.alone();
    let copies = Copies::new(cluster, "three_one_dies");
    let mut running = copies.start_all();
    copies.numbers.while_producing(|| {
        copies.wait_for_more_of_all(&mut running);
        let input = &copies.numbers.topic;
        let first = wait::until("a leader", wait::SOON, || cluster.leader(input, 0));
        alone.kill(first);
        let leader = || cluster.leader(input, 0).filter(|id| *id > 0 && *id != first);
        let second = wait::until("another leader", wait::SOON, leader);
        copies.wait_for_more_of_all(&mut running);
        alone.restore();
        // Without the one that is back nothing could be written.
        alone.kill(second);
        let leader = || cluster.leader(input, 0).filter(|id| *id > 0 && *id != second);
        wait::until("one more leader", wait::SOON, leader);
        copies.wait_for_more_of_all(&mut running);
        alone.restore();
    });
    for running in &running {
        running.interrupt();
    }
    for (flow, running) in copies.flows.iter().zip(running) {
        // A coordinator that has just come back takes its time for librdkafka's last transactions.
        let finished = running.wait(STOP_LIMIT);
        if flow.is_librdkafkas() {
            expect_end_of_librdkafka(finished);
        } else {
            let unwanted = ["starts again in", "librdkafka writes transactions"];
            finished.expect_success().says_not(&unwanted);
        }
    }
    copies.assert_exactly_once();
}

#[test]
fn two_lost_brokers_of_three_are_reported_and_waited_for() {
    let cluster = cluster::shared();
    let alone = cluster.alone();
    let copies = Copies::new(cluster, "three_two_die");
    let mut running = copies.start_all();
    copies.numbers.while_producing(|| {
        copies.wait_for_more_of_all(&mut running);
        let input = &copies.numbers.topic;
        let first = wait::until("a leader", wait::SOON, || cluster.leader(input, 0));
        let second = first % 3 + 1;
        alone.kill(first);
        alone.kill(second);
        for running in &mut running {
            wait::until_true("the silence to be reported", wait::SOON, || {
                assert!(running.is_running(), "it gave up");
                running.stderr().contains("no answer from the ")
            });
        }
        alone.restore();
        copies.wait_for_more_of_all(&mut running);
    });
    for running in &running {
        running.interrupt();
    }
    for (flow, running) in copies.flows.iter().zip(running) {
        let finished = running.wait(STOP_LIMIT);
        let finished = match flow.is_librdkafkas() {
            true => expect_end_of_librdkafka(finished),
            false => finished.expect_success(),
        };
        finished.says(&["answered again after"]);
    }
    copies.assert_exactly_once();
}

/// A coordinator that stood still answers from what it remembers, until it learns that another one
/// leads: it knows of no transaction that was begun meanwhile.
#[test]
fn a_coordinator_that_stood_still_is_not_believed() {
    const STILL: i32 = BROKERS;
    const COORDINATORS: &str = "__transaction_state";
    let cluster = cluster::shared();
    let (alone, topics) = (cluster.alone(), cluster.topics());
    let (numbers, output) = (Numbers::new(topics, "three_still_in".to_owned()), "three_still_out");
    topics.create(output, PARTITIONS as usize);
    let servers = cluster.address();
    let sink = [
        ("kafka.bootstrap.servers", servers.as_str()),
        ("topic", output),
        ("delivery", "exactly-once"),
        ("kafka.millstream.transactions", "protocol"),
    ];
    let pipeline = Pipeline::new(&format!(
        "{}{}CREATE FLOW copied AS INSERT INTO target BY NAME\n\
         SELECT value, partition FROM STREAM source;\n",
        numbers.source_table(&servers),
        table("target", "", "kafka", &sink),
    ));
    // What the flow needs besides is created in peace.
    numbers.produce(10);
    numbers.run_the_rest(&pipeline, "target");
    let leader = |topic: &str, partition| {
        let leader = || cluster.leader(topic, partition).filter(|id| *id > 0);
        wait::until("a leader", wait::SOON, leader)
    };
    let stays = |topic: &str, partition| leader(topic, partition) != STILL;
    // What the rows and the record of progress are written to does not stand still.
    let mut written = topics.names();
    written.retain(|name| name.starts_with("millstream-copied-"));
    written.extend([numbers.topic.clone(), output.to_owned()]);
    for topic in &written {
        for partition in 0..topics.ends(topic).len() as i32 {
            while !stays(topic, partition) {
                cluster.move_leader(topic, partition);
            }
        }
    }
    let coordinators = 0..topics.ends(COORDINATORS).len() as i32;
    for partition in coordinators.clone() {
        while stays(COORDINATORS, partition) {
            cluster.move_leader(COORDINATORS, partition);
        }
    }
    let mut running = pipeline.start(&[]);
    let before = topics.written(output);
    numbers.produce(10);
    running.wait_while_running("the first numbers", || topics.written(output) > before);
    alone.freeze(STILL);
    let have_moved = || coordinators.clone().all(|partition| stays(COORDINATORS, partition));
    wait::until_true("other coordinators", wait::SOON, have_moved);
    numbers.produce(10);
    // By then the flow has asked the former coordinator to commit them, which reads that now.
    wait::pause(Duration::from_secs(3));
    alone.restore();
    let before = topics.written(output);
    numbers.produce(10);
    running.wait_while_running("more numbers", || topics.written(output) > before);
    running.stop().expect_success().says_not(&["starts again in"]);
    numbers.run_the_rest(&pipeline, "target");
    numbers.assert_in(output, |_| true);
    numbers.assert_logged(&pipeline);
}

/// A flow that copies one topic to another, as fast as it can.
fn copy(cluster: &Cluster, input: &str, output: &str, options: &[(&str, &str)]) -> Pipeline {
    let servers = cluster.address();
    let servers = ("kafka.bootstrap.servers", servers.as_str());
    let from = [servers, ("subscribe", input), ("startingOffsets", "earliest")];
    let to = [servers, ("topic", output), ("delivery", "at-least-once")];
    cluster.topics().create(output, 1);
    Pipeline::new(&format!(
        "{}{}CREATE FLOW copied AS INSERT INTO target SELECT value FROM STREAM source;\n",
        table("source", "", "kafka", &[&from, options].concat()),
        table("target", "", "kafka", &to),
    ))
}

/// A leader that lacks records is elected once nobody is left who has them. The log has other
/// records then at offsets that were read, and ends behind them again.
#[test]
fn a_log_that_an_unclean_election_cuts_back_is_noticed() {
    let cluster = cluster::shared();
    let (alone, topics) = (cluster.alone(), cluster.topics());
    let input = "three_unclean_in";
    let unclean = [("unclean.leader.election.enable", "true"), ("min.insync.replicas", "1")];
    topics.create_with(input, 1, &unclean);
    // Two of three brokers have it, so that the third one is left to decide with.
    let (first, second) = (1, 2);
    cluster.set_replicas(input, 0, &[first, second]);
    let outputs = ["three_unclean_strict", "three_unclean_lax"];
    let strict = copy(cluster, input, outputs[0], &[]);
    let lax = copy(cluster, input, outputs[1], &[("failOnDataLoss", "false")]);
    let (mut strict, mut lax) = (strict.start(&[]), lax.start(&[]));
    let mut wait_for = |count: u64| {
        for (output, running) in outputs.iter().zip([&mut strict, &mut lax]) {
            running.wait_while_running("the records", || topics.written(output) == count);
        }
    };
    let values = |name: &str, count: usize| -> Vec<String> {
        (0..count).map(|number| format!("{name} {number}")).collect()
    };
    topics.produce_values(input, values("common", 5));
    wait_for(5);
    alone.kill(second);
    // Acknowledged once the brokers know that there is one replica only.
    topics.produce_values(input, values("lost", 3));
    wait_for(8);
    alone.kill(first);
    alone.start(second);
    let leads = || cluster.leader(input, 0) == Some(second);
    wait::until_true("a leader that lacks records", STOP_LIMIT, leads);
    topics.produce_values(input, values("new", 5));

    let refused = strict.wait(STOP_LIMIT).without_internals().expect_exit(1);
    let words = ["three_unclean_in-0", "offset 8", "offset 5 only", "startingOffsets"];
    refused.says(&words);
    lax.wait_while_running("what has come since", || topics.written(outputs[1]) >= 13);
    alone.restore();
    let finished = lax.stop().expect_success();
    finished.says(&["three_unclean_in-0", "continuing from offset 5"]);
    let copied = |output| -> Vec<String> {
        topics.read(output).iter().map(|record| record.value().to_owned()).collect()
    };
    let before = [values("common", 5), values("lost", 3)].concat();
    assert_eq!(copied(outputs[0]), before);
    assert_eq!(copied(outputs[1]), [before, values("new", 5)].concat());
}

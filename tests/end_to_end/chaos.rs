//! Faults of all kinds at random, on three brokers with TLS, passwords and compression, while a
//! flow copies 5,000 records/s exactly once: brokers die and stand still, leaders and replicas
//! move, connections are cut, and the flow itself is killed and stands still. A reader of committed
//! records sees each record once, each partition in order, and tells for how long nothing came.
//!
//! Brokers and the flow have their faults side by side; never is more than one broker away.
//! `MILLSTREAM_CHAOS_SECONDS` says for how long there are faults (40; `tests/nightly` has half an
//! hour), `MILLSTREAM_CHAOS_SEED` which: the seed of a run is printed. What a fault meets differs
//! from run to run.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::cluster::{self, Alone, BROKERS, Cluster};
use crate::live::{Numbers, StopAtEnd};
use crate::millstream::{Pipeline, Running, table};
use crate::topics::{OpenReader, Received, Topics};
use crate::wait::{self, Deadline};

const PARTITIONS: i32 = 12;
const RECORDS_PER_SECOND: u64 = 5_000;
const INPUT: &str = "chaos_in";
const OUTPUT: &str = "chaos_out";
/// How often the reader looks whether it is done.
const LOOK: Duration = Duration::from_millis(200);
/// How long the reader waits for what has been committed.
const LAST_LIMIT: Duration = Duration::from_secs(30);
/// How long the flow may take to stop.
const STOP_LIMIT: Duration = Duration::from_secs(240);
/// What a flow says that gives a transaction up after its time, as it has to.
const OPEN_FOR_TOO_LONG: &str = "kafka.transaction.timeout.ms";

/// What happens to brokers.
#[derive(Clone, Copy)]
enum BrokerFault {
    Killed,
    Frozen,
    LeadersMove,
    ReplicaIsRemade,
}

const OF_BROKERS: [(&str, BrokerFault); 4] = [
    ("a broker is killed", BrokerFault::Killed),
    ("a broker stands still", BrokerFault::Frozen),
    ("leaders move", BrokerFault::LeadersMove),
    ("a replica is remade", BrokerFault::ReplicaIsRemade),
];

/// What happens to the flow.
#[derive(Clone, Copy)]
enum FlowFault {
    Killed,
    Frozen,
    ConnectionsCut,
}

const OF_THE_FLOW: [(&str, FlowFault); 3] = [
    ("the flow is killed", FlowFault::Killed),
    ("the flow stands still", FlowFault::Frozen),
    ("connections are cut", FlowFault::ConnectionsCut),
];

/// Numbers without order that follow from a seed (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn milliseconds(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.below(to - from))
    }
}

/// Faults in an order of chance, each of them before one comes again.
struct Turns<F: 'static> {
    all: &'static [(&'static str, F)],
    left: Vec<usize>,
}

impl<F: Copy + 'static> Turns<F> {
    fn of(all: &'static [(&'static str, F)]) -> Self {
        Self { all, left: Vec::new() }
    }

    fn next(&mut self, random: &mut Random) -> (&'static str, F) {
        if self.left.is_empty() {
            self.left = (0..self.all.len()).collect();
        }
        let at = random.below(self.left.len() as u64) as usize;
        self.all[self.left.swap_remove(at)]
    }
}

/// What a reader of the output has seen.
#[derive(Default)]
struct Figures {
    /// Faults, how often each was, and for how long nothing came at most until the next of them.
    faults: BTreeMap<&'static str, (u64, Duration)>,
    last: Option<&'static str>,
    longest: Duration,
}

impl Figures {
    fn begins(&mut self, fault: &'static str) {
        self.faults.entry(fault).or_default().0 += 1;
        self.last = Some(fault);
    }

    /// A record has come, after so long.
    fn came_after(&mut self, silence: Duration) {
        self.longest = self.longest.max(silence);
        if let Some((_, longest)) = self.last.and_then(|fault| self.faults.get_mut(fault)) {
            *longest = silence.max(*longest);
        }
    }
}

/// A flow among faults.
struct Chaos<'a> {
    cluster: &'a Cluster,
    topics: &'a Topics,
    numbers: Numbers<'a>,
    pipeline: Pipeline,
    figures: Mutex<Figures>,
    /// Starts of the flow within a process, in its own words.
    restarts: Mutex<Vec<String>>,
    /// Committed records that were read.
    read: AtomicU64,
    /// No more faults.
    is_over: AtomicBool,
    /// Nothing comes any more to the output.
    is_complete: AtomicBool,
}

impl<'a> Chaos<'a> {
    fn new(cluster: &'a Cluster) -> Self {
        let topics = cluster.topics();
        let numbers = Numbers::across(topics, INPUT.to_owned(), PARTITIONS);
        topics.create(OUTPUT, PARTITIONS as usize);
        let client = cluster.by_tls();
        let client: Vec<(&str, &str)> =
            client.iter().map(|(key, value)| (*key, value.as_str())).collect();
        let from = [("subscribe", INPUT), ("startingOffsets", "earliest")];
        let to =
            [("topic", OUTPUT), ("delivery", "exactly-once"), ("kafka.compression.type", "zstd")];
        let pipeline = Pipeline::new(&format!(
            "{}{}CREATE FLOW chaos AS INSERT INTO target BY NAME\n\
             SELECT value, partition FROM STREAM source;\n",
            table("source", "", "kafka", &[&client[..], &from].concat()),
            table("target", "", "kafka", &[&client[..], &to].concat()),
        ));
        let (figures, restarts, read, is_over, is_complete) = Default::default();
        Self { cluster, topics, numbers, pipeline, figures, restarts, read, is_over, is_complete }
    }

    /// Checks each record that comes to the output, until there are all.
    fn read_all(&self, reader: &OpenReader) {
        let (mut next, mut silence) = (vec![0_u64; PARTITIONS as usize], Duration::ZERO);
        loop {
            let (record, took) = wait::timed(|| reader.poll(LOOK));
            silence += took;
            let Some(record) = record else {
                if self.is_complete.load(Ordering::Relaxed) {
                    let all = self.numbers.produced() * PARTITIONS as u64;
                    let read = self.read.load(Ordering::Relaxed);
                    if read == all {
                        return;
                    }
                    assert!(silence < LAST_LIMIT, "only {read} of {all} records came");
                }
                continue;
            };
            follows(&mut next, &record);
            if self.read.fetch_add(1, Ordering::Relaxed) > 0 && !self.is_over() {
                self.figures.lock().came_after(silence);
            }
            silence = Duration::ZERO;
        }
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Lets time pass between two faults. False if there are to be no more.
    fn rests(&self, pause: Duration, deadline: Deadline) -> bool {
        let rest = Deadline::after(pause);
        while !rest.is_over() {
            if self.is_over() || deadline.is_over() {
                return false;
            }
            wait::pause(Duration::from_millis(20));
        }
        true
    }

    fn begins(&self, fault: &'static str) {
        self.figures.lock().begins(fault);
    }

    fn start(&self) -> Running {
        self.pipeline.start(&[])
    }

    fn wait_for_more(&self, running: &mut Running) {
        let read = || self.read.load(Ordering::Relaxed);
        let before = read();
        running.wait_while_running("more output", || read() > before || self.is_over());
    }

    /// Notes where the flow has failed and started again in this process, which it does only where
    /// a transaction was open for too long.
    fn note_restarts(&self, said: &str) {
        let restarts = said.lines().filter(|line| line.contains("starts again in"));
        for line in restarts {
            self.restarts.lock().push(line.to_owned());
            assert!(line.contains(OPEN_FOR_TOO_LONG), "it could have gone on: {line}");
        }
    }

    fn trouble_the_flow(&self, mut running: Running, mut random: Random, deadline: Deadline) {
        let mut turns = Turns::of(&OF_THE_FLOW);
        while self.rests(random.milliseconds(1_500, 5_000), deadline) {
            assert!(running.is_running(), "the flow has ended by itself");
            let (name, fault) = turns.next(&mut random);
            self.begins(name);
            match fault {
                FlowFault::Killed => {
                    self.note_restarts(&running.stderr());
                    running.kill();
                    wait::pause(random.milliseconds(0, 1_500));
                    running = self.start();
                    self.wait_for_more(&mut running);
                }
                FlowFault::Frozen => {
                    running.pause();
                    wait::pause(random.milliseconds(200, 6_000));
                    running.go_on();
                }
                FlowFault::ConnectionsCut => _ = self.cluster.cut_connections(),
            }
        }
        running.interrupt();
        let finished = running.wait(STOP_LIMIT).expect_success();
        self.note_restarts(&finished.stderr);
    }

    fn trouble_the_brokers(&self, alone: &Alone<'_>, mut random: Random, deadline: Deadline) {
        let mut turns = Turns::of(&OF_BROKERS);
        while self.rests(random.milliseconds(500, 4_000), deadline) {
            let (name, fault) = turns.next(&mut random);
            self.begins(name);
            let broker = 1 + random.below(BROKERS as u64) as i32;
            match fault {
                BrokerFault::Killed => alone.kill(broker),
                BrokerFault::Frozen => alone.freeze(broker),
                BrokerFault::LeadersMove => {
                    for _ in 0..4 {
                        let (topic, partition) = self.a_partition(&mut random);
                        self.cluster.move_leader(&topic, partition);
                    }
                    continue;
                }
                BrokerFault::ReplicaIsRemade => {
                    let (topic, partition) = self.a_partition(&mut random);
                    self.cluster.remake_replica(&topic, partition);
                    continue;
                }
            }
            // Now and then it is back before the others have noticed.
            wait::pause(random.milliseconds(500, 7_000));
            alone.restore();
        }
    }

    /// A partition of a topic that the flow needs.
    fn a_partition(&self, random: &mut Random) -> (String, i32) {
        let of_flow = |name: &String| name.starts_with("millstream-chaos-");
        let record = self.topics.names().into_iter().find(of_flow);
        let mut topics =
            vec![INPUT.to_owned(), OUTPUT.to_owned(), "__transaction_state".to_owned()];
        topics.extend(record);
        let topic = topics.swap_remove(random.below(topics.len() as u64) as usize);
        let partitions = self.topics.ends(&topic).len() as u64;
        (topic, random.below(partitions) as i32)
    }

    /// Gives the longest time that the brokers took to acknowledge what was produced.
    fn run(&self, alone: &Alone<'_>, length: Duration, seed: u64) -> Duration {
        self.numbers.while_producing_at(RECORDS_PER_SECOND, || {
            // What the flow needs besides is created in peace.
            let mut running = self.start();
            self.wait_for_more(&mut running);
            let deadline = Deadline::after(length);
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    let _over = StopAtEnd(&self.is_over);
                    self.trouble_the_flow(running, Random(seed), deadline);
                });
                let _over = StopAtEnd(&self.is_over);
                self.trouble_the_brokers(alone, Random(!seed), deadline);
            });
        })
    }

    fn assert_exactly_once(&self) {
        let (mut next, produced) = (vec![0_u64; PARTITIONS as usize], self.numbers.produced());
        self.topics.for_each(OUTPUT, |record| follows(&mut next, &record));
        assert_eq!(next, vec![produced; PARTITIONS as usize], "records of each partition");
        self.numbers.assert_logged(&self.pipeline);
    }

    fn tell(&self, longest_of_input: Duration) {
        let (figures, restarts) = (self.figures.lock(), self.restarts.lock());
        let records = self.numbers.produced() * PARTITIONS as u64;
        println!("{records} records, each of them once and in order");
        println!("longest standstill of the output: {} ms", figures.longest.as_millis());
        println!("longest wait of the producer: {} ms", longest_of_input.as_millis());
        for (fault, (times, longest)) in &figures.faults {
            println!("{fault}: {times} times, up to {} ms without output", longest.as_millis());
        }
        println!("the flow started again by itself {} times", restarts.len());
        restarts.iter().for_each(|line| println!("  {line}"));
    }
}

/// Expects the next number of the record's partition.
fn follows(next: &mut [u64], record: &Received) {
    let partition = usize::try_from(record.partition).expect("it is not negative");
    let number: u64 = record.value().parse().expect("a number");
    assert_eq!(number, next[partition], "partition {partition}, offset {}", record.offset);
    next[partition] += 1;
}

/// A number from the environment.
fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text}")))
}

#[test]
fn faults_at_random_lose_and_double_nothing() {
    let seconds = variable("MILLSTREAM_CHAOS_SECONDS").unwrap_or(40);
    let seed = variable("MILLSTREAM_CHAOS_SEED");
    // Another one each time.
    let seed = seed.unwrap_or_else(|| RandomState::new().build_hasher().finish());
    println!("faults for {seconds} s, MILLSTREAM_CHAOS_SEED={seed}");
    let cluster = cluster::shared();
    let alone = cluster.alone();
    let chaos = Chaos::new(cluster);
    let reader = cluster.topics().open_reader(OUTPUT);
    let longest_of_input = std::thread::scope(|scope| {
        let complete = StopAtEnd(&chaos.is_complete);
        scope.spawn(|| {
            // Nobody waits for output that is wrong.
            let _over = StopAtEnd(&chaos.is_over);
            chaos.read_all(&reader);
        });
        let longest_of_input = chaos.run(&alone, Duration::from_secs(seconds), seed);
        chaos.numbers.run_the_rest(&chaos.pipeline, "target");
        drop(complete);
        longest_of_input
    });
    chaos.assert_exactly_once();
    chaos.tell(longest_of_input);
}

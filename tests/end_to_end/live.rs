//! A topic that numbers are written to all the time, and the ways to end a process meanwhile.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::millstream::{CRASH_AT, Pipeline, Running, table};
use crate::topics::{OpenProducer, Record, Topics};
use crate::wait;

/// Partitions of the topic.
pub const PARTITIONS: i32 = 2;
/// Asynchronous progress tracking with entries for some of the micro-batches.
pub const ASYNC: [(&str, &str); 2] = [
    ("asyncProgressTrackingEnabled", "true"),
    ("asyncProgressTrackingCheckpointIntervalMs", "250"),
];
/// The steps of a micro-batch that goes to a topic, each of which a process can be ended at.
pub const STEPS: [&str; 11] = [
    "after-take",
    "after-run",
    "before-begin",
    "after-produce",
    "after-offsets",
    "before-commit",
    "after-commit",
    "before-intent",
    "after-intent",
    "before-commit-entry",
    "after-commit-entry",
];
/// The steps that a query with state has besides.
pub const STATE_STEPS: [&str; 2] = ["before-state", "after-state"];
/// Records of one round of the live producer, to each partition.
const RECORDS_PER_ROUND: u64 = 10;
const ROUND: Duration = Duration::from_millis(20);

/// How often a process is ended at each step: `MILLSTREAM_KILLS`.
pub fn kills(default: u64) -> u64 {
    let kills = std::env::var("MILLSTREAM_KILLS").ok();
    kills.map_or(default, |kills| kills.parse().expect("MILLSTREAM_KILLS is a number"))
}

/// The times of a step at which a process is ended, one after the other: the first, the second and
/// the one that is `late`, when everything has been in use for a while. With `MILLSTREAM_KILLS`
/// there are as many, spread over the first thirty.
pub fn occurrences(late: u64) -> Vec<u64> {
    let more = (0..kills(0).saturating_sub(3)).map(|kill| 3 + kill * 7 % 28);
    [1, 2, late].into_iter().chain(more).collect()
}

/// A topic of numbers from 0 on, the same ones in each partition.
pub struct Numbers<'a> {
    topics: &'a Topics,
    /// The topic.
    pub topic: String,
    partitions: i32,
    /// A number as a record's value.
    text: fn(u64) -> String,
    /// So many of the numbers before are written again with each round.
    repeated: u64,
    produced: AtomicU64,
    stop: AtomicBool,
}

impl<'a> Numbers<'a> {
    /// Makes the topic.
    pub fn new(topics: &'a Topics, topic: String) -> Self {
        Self::across(topics, topic, PARTITIONS)
    }

    /// Makes the topic with so many partitions.
    pub fn across(topics: &'a Topics, topic: String, partitions: i32) -> Self {
        Self::made(topics, topic, partitions, |number| format!("{number:06}"))
    }

    /// The same, with records as `text` writes them.
    pub fn written(topics: &'a Topics, topic: String, text: fn(u64) -> String) -> Self {
        Self::made(topics, topic, PARTITIONS, text)
    }

    fn made(topics: &'a Topics, topic: String, partitions: i32, text: fn(u64) -> String) -> Self {
        topics.create(&topic, partitions as usize);
        let (produced, stop) = (AtomicU64::new(0), AtomicBool::new(false));
        Self { topics, topic, partitions, text, repeated: 0, produced, stop }
    }

    /// The same, but each round begins with the last `repeated` numbers of those before it.
    pub fn repeating(self, repeated: u64) -> Self {
        Self { repeated, ..self }
    }

    /// The declaration of a table `source` that reads the topic from its beginning.
    pub fn source_table(&self, servers: &str) -> String {
        let options = [
            ("kafka.bootstrap.servers", servers),
            ("subscribe", self.topic.as_str()),
            ("startingOffsets", "earliest"),
        ];
        table("source", "", "kafka", &options)
    }

    /// Numbers in each partition.
    pub fn produced(&self) -> u64 {
        self.produced.load(Ordering::Relaxed)
    }

    /// Writes the next `count` numbers to each partition.
    pub fn produce(&self, count: u64) {
        self.produce_with(&self.topics.open_producer(), count);
    }

    fn produce_with(&self, producer: &OpenProducer, count: u64) {
        let from = self.produced.fetch_add(count, Ordering::Relaxed);
        let numbers = from.saturating_sub(self.repeated)..from + count;
        let record = |number: u64| {
            (0..self.partitions).map(move |to| Record::of((self.text)(number)).to(to))
        };
        producer.produce(&self.topic, numbers.flat_map(record));
    }

    /// Produces all the time while `work` goes on.
    pub fn while_producing(&self, work: impl FnOnce()) {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let producer = self.topics.open_producer();
                while !self.stop.load(Ordering::Relaxed) {
                    self.produce_with(&producer, RECORDS_PER_ROUND);
                    wait::pause(ROUND);
                }
            });
            let stop = StopAtEnd(&self.stop);
            work();
            drop(stop);
        });
        self.stop.store(false, Ordering::Relaxed);
    }

    /// Produces so many records a second, of all partitions together, while `work` goes on. What
    /// the brokers do not take in time comes at once when they do. Gives the longest time that they
    /// took.
    pub fn while_producing_at(&self, per_second: u64, work: impl FnOnce()) -> Duration {
        let longest = std::thread::scope(|scope| {
            let producing = scope.spawn(|| self.produce_at(per_second));
            let stop = StopAtEnd(&self.stop);
            work();
            drop(stop);
            producing.join().expect("it produces")
        });
        self.stop.store(false, Ordering::Relaxed);
        longest
    }

    fn produce_at(&self, per_second: u64) -> Duration {
        let producer = self.topics.open_producer();
        let (before, begun) = (self.produced(), wait::Deadline::after(Duration::MAX));
        let mut longest = Duration::ZERO;
        while !self.stop.load(Ordering::Relaxed) {
            let passed_ms = u64::try_from(begun.passed().as_millis()).expect("not so long");
            let due = per_second * passed_ms / 1_000 / self.partitions as u64;
            let count = before + due - self.produced();
            if count > 0 {
                let ((), took) = wait::timed(|| self.produce_with(&producer, count));
                longest = longest.max(took);
            }
            wait::pause(ROUND);
        }
        longest
    }
}

impl Numbers<'_> {
    /// Produces, and kills `rounds` runs of `pipeline`, each some time after it has written more.
    pub fn kill_at_random(
        &self,
        pipeline: &Pipeline,
        rounds: u64,
        wait_for_more: impl Fn(&mut Running),
    ) {
        self.while_producing(|| {
            for round in 0..rounds {
                let mut running = pipeline.start(&[]);
                wait_for_more(&mut running);
                some_time(round, 300);
                running.kill();
            }
        });
    }

    /// Produces, and ends `pipeline` at each of `steps`, at each of its `occurrences`.
    pub fn crash_at_steps(&self, pipeline: &Pipeline, steps: &[&str], occurrences: &[u64]) {
        self.while_producing(|| {
            for step in steps {
                for nth in occurrences {
                    crashing_at(pipeline, step, *nth).wait(wait::SOON).expect_crash(step);
                }
            }
        });
    }

    /// Runs what is left of `pipeline`, whose table `sink` may ask for asynchronous tracking.
    pub fn run_the_rest(&self, pipeline: &Pipeline, sink: &str) {
        // availableNow is refused with asynchronous tracking; switching it off needs no ceremony.
        let synchronous = format!("{sink}.asyncProgressTrackingEnabled=false");
        pipeline.run(&["--trigger", "availableNow", "--set", &synchronous]).expect_success();
    }

    /// Holds the logs of `pipeline` against what was produced: all of it is committed.
    pub fn assert_logged(&self, pipeline: &Pipeline) {
        let checkpoint = pipeline.checkpoint();
        checkpoint.assert_entries_well_formed(1);
        let last = checkpoint.latest("commits");
        assert_eq!(checkpoint.latest("offsets"), last, "every micro-batch is committed");
        assert_eq!(checkpoint.kafka_end(last, &self.topic), self.topics.ends(&self.topic));
    }

    /// The values that a reader of committed records sees in the topic `output`, by partition.
    pub fn seen_in(&self, output: &str) -> Vec<Vec<String>> {
        let mut seen = vec![Vec::new(); self.partitions as usize];
        for record in self.topics.read(output) {
            let partition = usize::try_from(record.partition).expect("it is not negative");
            seen[partition].push(record.value().to_owned());
        }
        seen
    }

    /// Expects those of the numbers produced that are `wanted` in each partition of the topic
    /// `output`, in order.
    pub fn assert_in(&self, output: &str, wanted: impl Fn(&u64) -> bool) {
        let numbers = (0..self.produced()).filter(wanted);
        let expected: Vec<String> = numbers.map(|number| format!("{number:06}")).collect();
        for (partition, values) in self.seen_in(output).iter().enumerate() {
            let differs = values.iter().zip(&expected).position(|(found, wanted)| found != wanted);
            if let Some(at) = differs {
                let around = &values[at.saturating_sub(3)..values.len().min(at + 5)];
                panic!("partition {partition} goes wrong at {at}: {around:?}");
            }
            assert_eq!(values.len(), expected.len(), "in partition {partition}");
        }
    }
}

/// A number as JSON, with an event time ten milliseconds after that of the number before.
pub fn event_of(number: u64) -> String {
    event_at(number * 10, number)
}

/// A number as JSON, with an event time so many milliseconds after the beginning of 2026.
pub fn event_at(after_ms: u64, number: u64) -> String {
    let (seconds, ms) = (after_ms / 1_000, after_ms % 1_000);
    let (minutes, seconds) = (seconds / 60, seconds % 60);
    let (hours, minutes) = (minutes / 60, minutes % 60);
    let ts = format!("2026-01-01T{hours:02}:{minutes:02}:{seconds:02}.{ms:03}Z");
    format!("{{\"ts\":\"{ts}\",\"n\":{number}}}")
}

/// Sets a flag when it is dropped, so that what looks at it ends when a test fails, too.
pub struct StopAtEnd<'a>(pub &'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A pause of up to `max_ms`, different from round to round and the same in every run.
pub fn some_time(round: u64, max_ms: u64) {
    wait::pause(Duration::from_millis(mixed(round) % max_ms));
}

/// A number without any order, the same in every run.
pub fn mixed(round: u64) -> u64 {
    (round + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33
}

/// Starts a run that ends itself when it comes to `step` for the `nth` time.
pub fn crashing_at(pipeline: &Pipeline, step: &str, nth: u64) -> Running {
    let mut command = pipeline.command(&[]);
    command.env(CRASH_AT, format!("{step}:{nth}"));
    pipeline.spawn(command)
}

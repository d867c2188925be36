//! Windowed counts over a topic, into a topic and into a table: whatever happens to the process,
//! each window is published once, with all its rows.
//!
//! The numbers of a live producer have event times ten milliseconds apart, so a window of a second
//! has a hundred of each partition. `MILLSTREAM_KILLS` says how often a process is ended at each
//! step, and ten times as often at random moments.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use crate::delta::versions;
use crate::kafka::{self, Broker};
use crate::live::{ASYNC, Numbers, PARTITIONS, STATE_STEPS, STEPS, event_of, kills, occurrences};
use crate::millstream::{Pipeline, Running, table};
use crate::topics::Topics;
use crate::{oracle, wait};

/// Numbers of a partition in a window.
const IN_WINDOW: u64 = 100;
const INTO_A_TABLE: [&str; 9] = [
    "after-take",
    "after-run",
    "before-begin",
    "after-produce",
    "before-commit",
    "after-commit",
    "after-intent",
    "before-commit-entry",
    "after-commit-entry",
];

/// Where the counts go.
#[derive(Clone, Copy, PartialEq)]
enum Target {
    Topic,
    Table,
}

/// A flow that counts numbers by windows of a second.
struct Counted<'a> {
    topics: &'a Topics,
    numbers: Numbers<'a>,
    pipeline: Pipeline,
    output: String,
    target: Target,
}

/// What was published of a window: how many numbers, and their sum.
type Counts = BTreeMap<u64, Vec<(u64, u64)>>;

impl<'a> Counted<'a> {
    fn new(broker: &'a Broker, name: &str, target: Target, sink: &[(&str, &str)]) -> Self {
        let input = "STREAM source WATERMARK ts DELAY OF INTERVAL 500 MILLISECONDS";
        Self::of(broker, name, target, sink, input)
    }

    /// With the windows of `ts` of `input`.
    fn of(
        broker: &'a Broker,
        name: &str,
        target: Target,
        sink: &[(&str, &str)],
        input: &str,
    ) -> Self {
        let (topics, output) = (broker.topics(), format!("{name}_out"));
        let numbers = Numbers::written(topics, format!("{name}_in"), event_of);
        let servers = broker.address();
        let servers = ("kafka.bootstrap.servers", servers.as_str());
        let source = [servers, ("subscribe", &numbers.topic), ("startingOffsets", "earliest")];
        let (to, select) = match target {
            Target::Topic => {
                topics.create(&output, 1);
                let to = vec![servers, ("topic", &output), ("delivery", "exactly-once")];
                let value = "to_json(struct(unix_seconds(window.start) AS second, \
                             count(*) AS rows, sum(n) AS total)) AS value";
                (table("target", "", "kafka", &[&to, sink].concat()), value)
            }
            Target::Table => {
                let to = [("path", "table"), ("commitInterval", "30ms")];
                let columns = "unix_seconds(window.start) AS second, count(*) AS rows, \
                               sum(n) AS total";
                (table("target", "", "delta", &[&to, sink].concat()), columns)
            }
        };
        let pipeline = Pipeline::new(&format!(
            "{}{to}CREATE FLOW counted AS INSERT INTO target\nSELECT {select}\n\
             FROM {input}\nGROUP BY window(ts, '1 second');\n",
            table("source", "(ts TIMESTAMP, n BIGINT)", "kafka", &source),
        ));
        Self { topics, numbers, pipeline, output, target }
    }

    /// Grows with what is published.
    fn published(&self) -> usize {
        match self.target {
            Target::Topic => usize::try_from(self.topics.written(&self.output)).unwrap_or(0),
            Target::Table => versions(&self.pipeline.path("table")),
        }
    }

    fn wait_for_more(&self, running: &mut Running) {
        let before = self.published();
        running.wait_while_running("another window", || self.published() > before);
    }

    fn counts(&self) -> Counts {
        let mut counts = Counts::new();
        let number = |value: &Value| value.as_u64().expect("a number");
        let mut add = |row: &Value| {
            let [at, rows, total] = ["second", "rows", "total"].map(|name| number(&row[name]));
            counts.entry(at).or_default().push((rows, total));
        };
        match self.target {
            Target::Topic => {
                for record in self.topics.read(&self.output) {
                    add(&serde_json::from_str(record.value()).expect("JSON"));
                }
            }
            Target::Table => {
                let mut oracle = oracle::light();
                let table = self.pipeline.path("table");
                let all = "SELECT list(second ORDER BY second) AS seconds, \
                           list(rows ORDER BY second) AS rows, \
                           list(CAST(total AS BIGINT) ORDER BY second) AS total FROM TABLE";
                let lists = oracle.query(&table, all);
                let of = |name: &str| lists[name].as_array().cloned().unwrap_or_default();
                for ((at, rows), total) in of("seconds").iter().zip(of("rows")).zip(of("total")) {
                    add(&serde_json::json!({"second": at, "rows": rows, "total": total}));
                }
            }
        }
        counts
    }

    /// Runs what is left, and holds what was published against what was produced.
    fn assert_exactly_once(&self) {
        self.numbers.run_the_rest(&self.pipeline, "target");
        let counts = self.counts();
        let produced = self.numbers.produced();
        // The watermark is half a second behind the last number.
        let whole = produced.saturating_sub(1 + 50) / IN_WINDOW;
        let first = 1_767_225_600;
        let expected: Counts = (0..whole)
            .map(|window| {
                let sum: u64 = (window * IN_WINDOW..(window + 1) * IN_WINDOW).sum();
                let partitions = PARTITIONS as u64;
                (first + window, vec![(IN_WINDOW * partitions, sum * partitions)])
            })
            .collect();
        for (window, found) in &counts {
            assert_eq!(Some(found), expected.get(window), "the window at {window}");
        }
        assert_eq!(counts.len(), expected.len(), "windows, of {produced} numbers a partition");
        self.numbers.assert_logged(&self.pipeline);
    }
}

#[test]
fn each_window_is_published_once_with_all_its_rows() {
    for target in [Target::Topic, Target::Table] {
        let name = if target == Target::Topic { "windows_plain" } else { "windows_table" };
        let counted = Counted::new(kafka::shared(), name, target, &[]);
        counted.numbers.produce(550);
        counted.assert_exactly_once();
        counted.numbers.produce(550);
        counted.assert_exactly_once();
        let published = counted.published();
        counted.assert_exactly_once();
        assert_eq!(counted.published(), published, "nothing new: nothing is published");
    }
}

#[test]
fn kills_at_random_moments_lose_and_double_no_window() {
    kill_at_random_moments(&Counted::new(kafka::shared(), "windows_killed", Target::Topic, &[]));
}

#[test]
fn kills_at_random_moments_lose_and_double_no_window_with_asynchronous_tracking() {
    let name = "windows_killed_async";
    kill_at_random_moments(&Counted::new(kafka::shared(), name, Target::Topic, &ASYNC));
}

#[test]
fn kills_at_random_moments_lose_and_double_no_window_of_a_table() {
    let name = "windows_killed_table";
    kill_at_random_moments(&Counted::new(kafka::shared(), name, Target::Table, &[]));
    let name = "windows_killed_table_async";
    kill_at_random_moments(&Counted::new(kafka::shared(), name, Target::Table, &ASYNC));
}

fn kill_at_random_moments(counted: &Counted<'_>) {
    let wait_for_more = |running: &mut Running| counted.wait_for_more(running);
    counted.numbers.kill_at_random(&counted.pipeline, kills(1) * 10, wait_for_more);
    counted.assert_exactly_once();
}

#[test]
fn a_crash_at_any_step_loses_and_doubles_no_window() {
    let (all, first) = (occurrences(12), vec![1]);
    for (name, sink, times) in
        [("windows_steps", &[][..], all), ("windows_steps_async", &ASYNC[..], first)]
    {
        let counted = Counted::new(kafka::shared(), name, Target::Topic, sink);
        crash_at(&counted, &[&STEPS[..], &STATE_STEPS[..]].concat(), &times);
    }
}

#[test]
fn a_crash_at_any_step_loses_and_doubles_no_window_of_a_table() {
    let (all, first) = (occurrences(12), vec![1]);
    for (name, sink, times) in
        [("windows_lands", &[][..], all), ("windows_lands_async", &ASYNC[..], first)]
    {
        let counted = Counted::new(kafka::shared(), name, Target::Table, sink);
        crash_at(&counted, &[&INTO_A_TABLE[..], &STATE_STEPS[..]].concat(), &times);
    }
}

fn crash_at(counted: &Counted<'_>, steps: &[&str], occurrences: &[u64]) {
    counted.numbers.crash_at_steps(&counted.pipeline, steps, occurrences);
    counted.assert_exactly_once();
}

#[test]
fn a_window_is_published_soon_after_the_watermark_has_passed_it() {
    let counted = Counted::new(kafka::shared(), "windows_soon", Target::Topic, &[]);
    let mut running = counted.pipeline.start(&[]);
    counted.numbers.produce(140);
    running.wait_while_running("input to be read", || {
        !counted.pipeline.checkpoint().ids("commits").is_empty()
    });
    assert_eq!(counted.counts().len(), 0, "its end is 0.4 s away from the watermark");
    counted.numbers.produce(11);
    running.wait_while_running("the window", || !counted.counts().is_empty());
    wait::pause(Duration::from_millis(200));
    assert_eq!(counted.counts().len(), 1);
    running.stop().expect_success();
    counted.assert_exactly_once();
}

#[test]
fn windows_are_those_of_the_clock_where_it_is_the_event_time() {
    let input = "(SELECT current_timestamp() AS ts, n FROM STREAM source) \
                 WATERMARK ts DELAY OF INTERVAL 0 SECONDS";
    let broker = kafka::shared();
    let counted = Counted::of(broker, "windows_clock", Target::Topic, &[], input);
    let mut running = counted.pipeline.start(&[]);
    for round in 1..=3 {
        counted.numbers.produce(50);
        let of_rounds = counted.numbers.produced();
        // Later rows move the watermark. They do not stand in for those of the round.
        running.wait_while_running(&format!("the windows of round {round}"), || {
            wait::pause(Duration::from_millis(300));
            counted.numbers.produce(1);
            first_numbers(&counted.counts()).is_some_and(|first| first[0] >= of_rounds)
        });
    }
    running.stop().expect_success();
    let (counts, produced) = (counted.counts(), counted.numbers.produced());
    assert!(counts.len() >= 3 && counts.values().all(|found| found.len() == 1), "{counts:?}");
    let first = first_numbers(&counts).expect("no number is missing before another");
    assert!(first[0] >= 150 && first[1] <= produced, "{first:?} of {produced} are published");
}

/// How many numbers each of the two partitions has in `counts`, the fewer first, where these are
/// the first numbers of the partition; `None` if the sum says that others are among them.
fn first_numbers(counts: &Counts) -> Option<[u64; 2]> {
    let windows = || counts.values().flatten();
    let rows: u64 = windows().map(|(rows, _)| rows).sum();
    let total: u64 = windows().map(|(_, total)| total).sum();
    let sum_of_first = |count: u64| count * count.saturating_sub(1) / 2;
    let pairs = (0..=rows / 2).map(|fewer| [fewer, rows - fewer]);
    pairs
        .into_iter()
        .find(|pair| pair.iter().map(|count| sum_of_first(*count)).sum::<u64>() == total)
}

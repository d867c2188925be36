//! First rows and joins of streams, from a topic into a topic: whatever happens to the process,
//! what is published is what follows from all rows together, each once.
//!
//! The numbers of a live producer are the same in each partition, ten milliseconds of event time
//! apart. `MILLSTREAM_KILLS` says how often a process is ended at each step, and ten times as often
//! at random moments.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::kafka::{self, Broker};
use crate::live::{ASYNC, Numbers, PARTITIONS, STATE_STEPS, STEPS, event_of, kills, occurrences};
use crate::millstream::{Pipeline, Running, table};
use crate::topics::Topics;

/// How often each pair of numbers was published; 0 stands for no partner.
type Pairs = BTreeMap<(u64, Option<u64>), u64>;

/// The partner of a number in the join.
const PARTNER_AFTER: u64 = 7;

struct Flow<'a> {
    topics: &'a Topics,
    numbers: Numbers<'a>,
    pipeline: Pipeline,
    output: String,
    sources: usize,
    expected: fn(u64) -> Pairs,
}

/// Each number once, though every partition has it.
const FIRST_ONES: &str = "SELECT DISTINCT ON (n) WITHIN WATERMARK to_json(struct(n)) AS value \
     FROM STREAM source WATERMARK ts DELAY OF INTERVAL 500 MILLISECONDS";

fn first_ones(produced: u64) -> Pairs {
    (0..produced).map(|number| ((number, None), 1)).collect()
}

/// Each number with the one that comes seven after it, unless three divides that; then alone, once
/// the watermark says that nobody comes.
const PAIRS: &str = "SELECT to_json(struct(a.n AS n, b.n AS m)) AS value \
     FROM STREAM source WATERMARK ts DELAY OF INTERVAL 500 MILLISECONDS AS a \
     LEFT JOIN STREAM source WATERMARK ts DELAY OF INTERVAL 500 MILLISECONDS AS b \
     ON b.n = a.n + 7 AND b.n % 3 <> 0 AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 300 MILLISECONDS";

fn pairs(produced: u64) -> Pairs {
    let partitions = PARTITIONS as u64;
    // The watermark, and the bound behind it, are so many numbers behind the last one; what is at
    // the bound itself goes a millisecond later.
    let passed = produced.saturating_sub(1 + 50 + 30);
    let of = |number: u64| {
        let partner = number + PARTNER_AFTER;
        if partner.is_multiple_of(3) {
            (number < passed).then_some(((number, None), partitions))
        } else {
            let pair = (number, Some(partner));
            (partner < produced).then_some((pair, partitions * partitions))
        }
    };
    (0..produced).filter_map(of).collect()
}

/// Makes one as often as there is time for it.
const SNAPSHOTS: (&str, &str) = ("stateSnapshotInterval", "1 millisecond");

impl<'a> Flow<'a> {
    fn new(broker: &'a Broker, name: &str, select: &str, sink: &[(&str, &str)]) -> Self {
        let (topics, output) = (broker.topics(), format!("{name}_out"));
        let numbers = Numbers::written(topics, format!("{name}_in"), event_of);
        topics.create(&output, 1);
        let servers = broker.address();
        let servers = ("kafka.bootstrap.servers", servers.as_str());
        let source = [servers, ("subscribe", &numbers.topic), ("startingOffsets", "earliest")];
        let to = [servers, ("topic", &output), ("delivery", "exactly-once")];
        let pipeline = Pipeline::new(&format!(
            "{}{}CREATE FLOW kept AS INSERT INTO target\n{select};\n",
            table("source", "(ts TIMESTAMP, n BIGINT)", "kafka", &source),
            table("target", "", "kafka", &[&to, sink].concat()),
        ));
        let (sources, expected): (_, fn(u64) -> Pairs) =
            if select == PAIRS { (2, pairs) } else { (1, first_ones) };
        Self { topics, numbers, pipeline, output, sources, expected }
    }

    fn found(&self) -> Pairs {
        let mut found = Pairs::new();
        for record in self.topics.read(&self.output) {
            let row: Value = serde_json::from_str(record.value()).expect("JSON");
            let number = row["n"].as_u64().expect("a number");
            *found.entry((number, row["m"].as_u64())).or_default() += 1;
        }
        found
    }

    fn wait_for_more(&self, running: &mut Running) {
        let before = self.topics.written(&self.output);
        running.wait_while_running("more", || self.topics.written(&self.output) > before);
    }

    /// Runs what is left, and holds what was published against what was produced.
    fn assert_exactly_once(&self) {
        self.numbers.run_the_rest(&self.pipeline, "target");
        let (found, expected) = (self.found(), (self.expected)(self.numbers.produced()));
        for (pair, times) in &found {
            assert_eq!(Some(times), expected.get(pair), "{pair:?}");
        }
        let missing: Vec<_> = expected.keys().filter(|pair| !found.contains_key(pair)).collect();
        assert!(missing.is_empty(), "missing: {missing:?} of {}", self.numbers.produced());
        self.pipeline.checkpoint().assert_entries_well_formed(self.sources);
    }

    /// Whether the state has a file whose name begins like this.
    fn has_in_state(&self, prefix: &str) -> bool {
        let state = self.pipeline.checkpoint().path("state");
        let mut files = std::fs::read_dir(state).expect("there is state").flatten();
        files.any(|file| file.file_name().to_string_lossy().starts_with(prefix))
    }

    fn kill_at_random_moments(&self) {
        let wait_for_more = |running: &mut Running| self.wait_for_more(running);
        self.numbers.kill_at_random(&self.pipeline, kills(1) * 5, wait_for_more);
        self.assert_exactly_once();
    }
}

#[test]
fn first_rows_and_pairs_are_those_of_all_runs_together() {
    for (name, select) in [("first_plain", FIRST_ONES), ("pairs_plain", PAIRS)] {
        let flow = Flow::new(kafka::shared(), name, select, &[]);
        flow.numbers.produce(300);
        flow.assert_exactly_once();
        flow.numbers.produce(300);
        flow.assert_exactly_once();
    }
}

#[test]
fn kills_at_random_moments_lose_and_double_no_first_row() {
    Flow::new(kafka::shared(), "first_killed", FIRST_ONES, &[]).kill_at_random_moments();
    Flow::new(kafka::shared(), "first_killed_async", FIRST_ONES, &ASYNC).kill_at_random_moments();
}

#[test]
fn kills_at_random_moments_lose_and_double_no_pair() {
    Flow::new(kafka::shared(), "pairs_killed", PAIRS, &[]).kill_at_random_moments();
    Flow::new(kafka::shared(), "pairs_killed_async", PAIRS, &ASYNC).kill_at_random_moments();
}

#[test]
fn kills_lose_and_double_nothing_of_state_in_files() {
    let little = [("memoryLimit", "20k"), SNAPSHOTS];
    let flow = Flow::new(kafka::shared(), "pairs_killed_files", PAIRS, &little);
    flow.kill_at_random_moments();
    let mut running = flow.pipeline.start(&[]);
    flow.numbers.while_producing(|| {
        flow.wait_for_more(&mut running);
        running.wait_while_running("a snapshot in pieces", || flow.has_in_state("piece-"));
    });
    running.stop().expect_success();
    flow.assert_exactly_once();
}

#[test]
fn kills_lose_and_double_nothing_where_snapshots_are_made() {
    for (name, select) in [("first_snapshots", FIRST_ONES), ("pairs_snapshots", PAIRS)] {
        let flow = Flow::new(kafka::shared(), name, select, &[SNAPSHOTS]);
        flow.kill_at_random_moments();
        // On a busy machine the runs may have been too short for one.
        let mut running = flow.pipeline.start(&[]);
        flow.numbers.while_producing(|| {
            running.wait_while_running("a snapshot", || flow.has_in_state("snapshot-"));
        });
        running.kill();
        flow.assert_exactly_once();
    }
}

#[test]
fn a_crash_at_any_step_loses_and_doubles_no_pair() {
    let flow = Flow::new(kafka::shared(), "pairs_steps", PAIRS, &[]);
    flow.numbers.crash_at_steps(
        &flow.pipeline,
        &[&STEPS[..], &STATE_STEPS[..]].concat(),
        &occurrences(12),
    );
    flow.assert_exactly_once();
}

#[test]
fn what_streams_cannot_tell_is_refused_with_a_remedy() {
    const WATERMARK: &str = "WATERMARK ts DELAY OF INTERVAL 1 SECOND";
    let refused = |query: &str, words: &[&str]| {
        let pipeline = Pipeline::new(&format!(
            "CREATE TABLE t (ts TIMESTAMP, n BIGINT) USING json OPTIONS ('path' = 'in');\n\
             CREATE TABLE o USING json OPTIONS ('path' = 'out');\n\
             INSERT INTO o\n{query};\n"
        ));
        pipeline.run(&[]).expect_exit(2).says(words);
    };
    refused(
        "SELECT a.n FROM STREAM t AS a JOIN STREAM t AS b ON a.n < b.n",
        &["needs an equality", "JOIN ... ON a.id = b.id"],
    );
    refused(
        "SELECT a.n FROM STREAM t AS a LEFT JOIN STREAM t AS b ON a.n = b.n",
        &["a row of the left stream without a partner", "b.ts BETWEEN a.ts AND"],
    );
    refused(
        "SELECT DISTINCT ON (n) WITHIN WATERMARK n FROM STREAM t",
        &["needs an event time with a watermark", "WATERMARK ts DELAY OF"],
    );
    let of_subquery = |select: &str| {
        format!(
            "SELECT count(*) AS c FROM ({select}) {WATERMARK} AS x GROUP BY window(at, '1 hour')"
        )
    };
    let other = of_subquery("SELECT ts AS at FROM STREAM t");
    refused(&other, &["`ts` is no column", "--> ", "WATERMARK ts"]);
    let number = of_subquery("SELECT n AS ts, ts AS at FROM STREAM t");
    refused(&number, &["`ts` is no TIMESTAMP", "cast it"]);
    let of_two = "SELECT a.ts, a.ts AS at FROM STREAM t AS a JOIN STREAM t AS b ON a.n = b.n";
    refused(&of_subquery(of_two), &["`ts` is no column"]);
    let twice = of_subquery(&format!("SELECT ts, ts AS at FROM STREAM t {WATERMARK}"));
    refused(&twice, &["has a watermark already"]);
}

#[test]
fn sets_limits_and_joins_that_streams_cannot_have_are_refused_with_a_remedy() {
    const READ: &str = "FROM STREAM t WATERMARK ts DELAY OF INTERVAL 1 SECOND";
    let refused = |mode: &str, query: &str, words: &[&str]| {
        let pipeline = Pipeline::new(&format!(
            "CREATE TABLE t (ts TIMESTAMP, k STRING, n BIGINT) USING json \
             OPTIONS ('path' = 'in');\n\
             CREATE TABLE o USING console OPTIONS ('outputMode' = '{mode}');\n\
             INSERT INTO o\n{query};\n"
        ));
        pipeline.run(&[]).expect_exit(2).says(words);
    };
    let sets = |time: &str| format!("SELECT k, count(*) AS c {READ} GROUP BY ROLLUP({time}, k)");
    for mode in ["append", "update"] {
        let remedy = "GROUP BY window(...), ROLLUP(k)";
        refused(mode, &sets("window(ts, '1 minute')"), &["window that some", "--> ", remedy]);
    }
    for mode in ["append", "update", "complete"] {
        let remedy = "GROUP BY session_window(...), ROLLUP(k)";
        let words = ["session_window that some grouping sets leave out", "--> ", remedy];
        refused(mode, &sets("session_window(ts, '1 minute')"), &words);
    }
    refused(
        "complete",
        "SELECT k, count(*) AS n FROM STREAM t GROUP BY k \
         UNION ALL (SELECT k, n FROM STREAM t LIMIT 1)",
        &["are for the rows of an aggregation", "--> ", "take them out of the query"],
    );
    refused(
        "append",
        "SELECT a.n FROM STREAM t AS a JOIN t AS b EXACT NEAREST 1 BY DISTANCE abs(a.n - b.n)",
        &["NEAREST BY over a stream is not supported", "--> ", "without STREAM"],
    );
}

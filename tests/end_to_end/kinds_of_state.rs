//! Every kind of state into both sinks that are exactly-once: a query is killed at random moments,
//! and when its sink is ahead of the commit log, and what is published is what follows from all
//! rows together, computed here from their numbers.
//!
//! Windows are in [`windows`](crate::windows), and more of first rows and joins in
//! [`stateful_flows`](crate::stateful_flows). A table takes append mode only.
//! `MILLSTREAM_KILLS` says how often a process is killed at random, times five.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::delta::versions;
use crate::kafka;
use crate::live::{Numbers, PARTITIONS, event_at, kills};
use crate::millstream::{Pipeline, Running, table};
use crate::oracle;
use crate::topics::Topics;

/// A column of a row; `None` is NULL.
type Cell = Option<u64>;

/// So many numbers come ten milliseconds after each other, then there is a pause of a second.
const BLOCK: u64 = 50;
const SESSION_GAP_MS: u64 = 500;
/// More than a pause, so that no row is late.
const DELAY_MS: u64 = 2_000;
const FIRST_MS: u64 = 1_767_225_600_000;
const SESSIONS_OF_A_BLOCK: u64 = 3;
const GROUPS: u64 = 8;
/// The partner of a number in a join, some micro-batches later, and how much later it may be.
const PARTNER_AFTER: u64 = 25;
const PARTNER_WITHIN_MS: u64 = 300;
/// Numbers that come again where they are to be dropped: in later micro-batches, so that it takes
/// the state to know them, and so soon that none is late.
const REPEATED: u64 = 40;

/// A query with state.
struct Kind {
    name: &'static str,
    /// Between SELECT and the columns.
    distinct: &'static str,
    /// Expressions and their names.
    columns: &'static [(&'static str, &'static str)],
    /// Everything from FROM on.
    rest: &'static str,
    sources: usize,
    /// So many numbers come again after each round.
    repeated: u64,
    output: Output,
}

/// What is published of a query, and where it can go.
#[derive(Clone, Copy)]
enum Output {
    /// Each row of the result once: append.
    Once(fn(Produced) -> Vec<Vec<Cell>>),
    /// Groups whenever they change: update, into topics only.
    Changes,
    /// All groups, whenever there are rows: complete, into topics only.
    Everything,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Sink {
    Topic,
    Table,
}

/// How many numbers each partition has.
#[derive(Clone, Copy)]
struct Produced(u64);

impl Produced {
    fn numbers(self) -> std::ops::Range<u64> {
        0..self.0
    }

    /// Milliseconds since the epoch, at the end of all.
    fn watermark_ms(self) -> u64 {
        self.0.checked_sub(1).map_or(0, |last| at_ms(last) - DELAY_MS)
    }
}

/// The event time of a number.
fn at_ms(number: u64) -> u64 {
    FIRST_MS + number * 10 + number / BLOCK * 1_000
}

const STREAM: &str = "STREAM source WATERMARK ts DELAY OF INTERVAL 2 SECONDS";

const SESSIONS: Kind = Kind {
    name: "sessions",
    distinct: "",
    columns: &[
        ("unix_millis(session_window.start)", "start"),
        ("unix_millis(session_window.end)", "end_ms"),
        ("n % 3", "k"),
        ("count(*)", "rows"),
        ("sum(n)", "total"),
    ],
    rest: "FROM {STREAM} GROUP BY session_window(ts, '500 milliseconds'), n % 3",
    sources: 1,
    repeated: 0,
    output: Output::Once(sessions),
};

fn sessions(produced: Produced) -> Vec<Vec<Cell>> {
    let mut sessions: BTreeMap<(u64, u64), Vec<u64>> = BTreeMap::new();
    for number in produced.numbers() {
        let of = (number / BLOCK, number % SESSIONS_OF_A_BLOCK);
        sessions.entry(of).or_default().push(number);
    }
    let row = |((_, k), numbers): ((u64, u64), Vec<u64>)| {
        let (first, last) = (numbers[0], numbers[numbers.len() - 1]);
        let end_ms = at_ms(last) + SESSION_GAP_MS;
        let partitions = PARTITIONS as u64;
        let (rows, total) = (numbers.len() as u64, numbers.iter().sum::<u64>());
        let row = [at_ms(first), end_ms, k, rows * partitions, total * partitions];
        (end_ms <= produced.watermark_ms()).then(|| row.map(Some).to_vec())
    };
    sessions.into_iter().filter_map(row).collect()
}

const FIRST_ROWS: Kind = Kind {
    name: "first",
    distinct: "DISTINCT ON (n) WITHIN WATERMARK",
    columns: &[("n", "n")],
    rest: "FROM {STREAM}",
    sources: 1,
    repeated: REPEATED,
    output: Output::Once(each_number),
};

const DUPLICATES: Kind = Kind {
    name: "duplicates",
    distinct: "DISTINCT ON (n, ts)",
    columns: &[("n", "n"), ("unix_millis(ts)", "at_ms")],
    rest: "FROM {STREAM}",
    sources: 1,
    repeated: REPEATED,
    output: Output::Once(each_number_and_its_time),
};

fn each_number(produced: Produced) -> Vec<Vec<Cell>> {
    produced.numbers().map(|number| vec![Some(number)]).collect()
}

fn each_number_and_its_time(produced: Produced) -> Vec<Vec<Cell>> {
    produced.numbers().map(|number| vec![Some(number), Some(at_ms(number))]).collect()
}

const INNER_JOIN: Kind = Kind {
    name: "inner",
    distinct: "",
    columns: &[("a.n", "a"), ("b.n", "b")],
    rest: "FROM {STREAM} AS a JOIN {STREAM} AS b \
           ON b.n = a.n + 25 AND b.n % 3 <> 0 \
           AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 300 MILLISECONDS",
    sources: 2,
    repeated: 0,
    output: Output::Once(pairs),
};

const FULL_JOIN: Kind = Kind {
    name: "full",
    rest: "FROM {STREAM} AS a FULL OUTER JOIN {STREAM} AS b \
           ON b.n = a.n + 25 AND b.n % 3 <> 0 \
           AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 300 MILLISECONDS",
    output: Output::Once(pairs_and_singles),
    ..INNER_JOIN
};

fn are_partners(a: u64, b: u64) -> bool {
    b == a + PARTNER_AFTER && !b.is_multiple_of(3) && at_ms(b) <= at_ms(a) + PARTNER_WITHIN_MS
}

/// Each partition has the numbers, so each pair is there for each two of them.
fn pairs(produced: Produced) -> Vec<Vec<Cell>> {
    let partner = |a: u64| Some(a + PARTNER_AFTER).filter(|b| are_partners(a, *b));
    let pair = |a: u64| Some((a, partner(a).filter(|b| *b < produced.0)?));
    let times = (PARTITIONS * PARTITIONS) as usize;
    let pairs = produced.numbers().filter_map(pair);
    pairs.flat_map(|(a, b)| vec![vec![Some(a), Some(b)]; times]).collect()
}

/// And each number without a partner, once no row that may come is one.
fn pairs_and_singles(produced: Produced) -> Vec<Vec<Cell>> {
    let (mut rows, watermark_ms) = (pairs(produced), produced.watermark_ms());
    for number in produced.numbers() {
        let is_left_alone = !are_partners(number, number + PARTNER_AFTER);
        if is_left_alone && at_ms(number) + PARTNER_WITHIN_MS < watermark_ms {
            rows.extend(vec![vec![Some(number), None]; PARTITIONS as usize]);
        }
        let before = number.checked_sub(PARTNER_AFTER);
        let is_right_alone = !before.is_some_and(|before| are_partners(before, number));
        if is_right_alone && at_ms(number) < watermark_ms {
            rows.extend(vec![vec![None, Some(number)]; PARTITIONS as usize]);
        }
    }
    rows
}

const UPDATE: Kind = Kind {
    name: "update",
    distinct: "",
    columns: &[("unix_seconds(window.start)", "k"), ("count(*)", "rows"), ("sum(n)", "total")],
    rest: "FROM {STREAM} GROUP BY window(ts, '1 second')",
    sources: 1,
    repeated: 0,
    output: Output::Changes,
};

const COMPLETE: Kind = Kind {
    name: "complete",
    columns: &[("n % 8", "k"), ("count(*)", "rows"), ("sum(n)", "total")],
    rest: "FROM STREAM source GROUP BY n % 8",
    output: Output::Everything,
    ..UPDATE
};

impl Kind {
    fn sql(&self, sink: Sink) -> String {
        let Self { distinct, columns, rest, .. } = self;
        let named = columns.iter().map(|(expression, name)| format!("{expression} AS {name}"));
        let named = named.collect::<Vec<_>>().join(", ");
        let columns = match sink {
            Sink::Topic => format!("to_json(struct({named})) AS value"),
            Sink::Table => named,
        };
        format!("SELECT {distinct} {columns} {}", rest.replace("{STREAM}", STREAM))
    }
}

/// A query that runs into one of the sinks.
struct Flow<'a> {
    kind: &'a Kind,
    sink: Sink,
    topics: &'a Topics,
    numbers: Numbers<'a>,
    pipeline: Pipeline,
    output: String,
}

impl<'a> Flow<'a> {
    fn new(kind: &'a Kind, sink: Sink) -> Self {
        let broker = kafka::shared();
        let (topics, name) = (broker.topics(), format!("kind_{}_{sink:?}", kind.name));
        let text = |number| event_at(at_ms(number) - FIRST_MS, number);
        let numbers = Numbers::written(topics, format!("{name}_in"), text).repeating(kind.repeated);
        let (servers, output) = (broker.address(), format!("{name}_out"));
        let servers = ("kafka.bootstrap.servers", servers.as_str());
        let mode = match kind.output {
            Output::Once(_) => "append",
            Output::Changes => "update",
            Output::Everything => "complete",
        };
        let target = match sink {
            Sink::Topic => {
                topics.create(&output, 1);
                let to = [("topic", output.as_str()), ("delivery", "exactly-once")];
                table("target", "", "kafka", &[&[servers, ("outputMode", mode)], &to[..]].concat())
            }
            Sink::Table => {
                table("target", "", "delta", &[("path", "table"), ("commitInterval", "30ms")])
            }
        };
        let source = [servers, ("subscribe", &numbers.topic), ("startingOffsets", "earliest")];
        let pipeline = Pipeline::new(&format!(
            "{}{target}CREATE FLOW kept AS INSERT INTO target\n{};\n",
            table("source", "(ts TIMESTAMP, n BIGINT)", "kafka", &source),
            kind.sql(sink),
        ));
        Self { kind, sink, topics, numbers, pipeline, output }
    }

    fn wait_for_more(&self, running: &mut Running) {
        let published = || match self.sink {
            Sink::Topic => self.topics.written(&self.output),
            Sink::Table => versions(&self.pipeline.path("table")) as u64,
        };
        let before = published();
        running.wait_while_running("more output", || published() > before);
    }

    /// What was published; in a topic in this order.
    fn rows(&self) -> Vec<Vec<Cell>> {
        let names = self.kind.columns.iter().map(|(_, name)| *name);
        if self.sink == Sink::Table {
            let names = names.collect::<Vec<_>>().join(", ");
            let all = format!("SELECT list([{names}]) AS rows FROM TABLE");
            let found = oracle::light().query(&self.pipeline.path("table"), &all);
            let rows = found["rows"].as_array().cloned().unwrap_or_default();
            let cells = |row: &Value| row.as_array().expect("a list").iter().map(cell).collect();
            return rows.iter().map(cells).collect();
        }
        let parse = |text: &str| {
            let row: Value = serde_json::from_str(text).expect("JSON");
            names.clone().map(|name| cell(&row[name])).collect()
        };
        self.topics.read(&self.output).iter().map(|record| parse(record.value())).collect()
    }

    /// Runs what is left, and compares what was published with what was produced.
    fn assert_exactly_once(&self) {
        self.numbers.run_the_rest(&self.pipeline, "target");
        let (rows, produced) = (self.rows(), Produced(self.numbers.produced()));
        match self.kind.output {
            Output::Once(expected) => assert_same(&rows, &expected(produced)),
            Output::Changes => assert_changes(&rows, produced),
            Output::Everything => assert_everything(&rows, produced),
        }
        self.pipeline.checkpoint().assert_entries_well_formed(self.kind.sources);
    }
}

fn cell(value: &Value) -> Cell {
    // DuckDB's sums are wide numbers, and such as text.
    let of_text = || value.as_str().map(|text| text.parse().expect("a number"));
    let number = value.as_u64().or_else(of_text);
    assert!(number.is_some() || value.is_null(), "{value}");
    number
}

fn assert_same(rows: &[Vec<Cell>], expected: &[Vec<Cell>]) {
    assert!(!expected.is_empty(), "nothing is expected");
    let mut times: BTreeMap<&Vec<Cell>, (u64, u64)> = BTreeMap::new();
    for row in rows {
        times.entry(row).or_default().0 += 1;
    }
    for row in expected {
        times.entry(row).or_default().1 += 1;
    }
    let differs = |(_, (found, expected)): &(&Vec<Cell>, (u64, u64))| found != expected;
    let wrong: Vec<_> = times.into_iter().filter(differs).take(5).collect();
    assert!(wrong.is_empty(), "rows, and how often they are found and expected: {wrong:?}");
}

/// Key, rows and sum of a group as it was published.
fn group(row: &[Cell]) -> [u64; 3] {
    [0, 1, 2].map(|at| row[at].expect("a group has no NULL"))
}

/// How many of a group's `numbers` have come from each partition, one of them perhaps further than
/// the other: the only thing that a group's rows and sum can follow from.
fn positions(numbers: &[u64], rows: u64, total: u64) -> Option<[u64; 2]> {
    let sum = |count: u64| numbers.iter().take(count as usize).sum::<u64>();
    let all = numbers.len() as u64;
    let mut lesser = rows.saturating_sub(all)..=rows / 2;
    let lesser = lesser.find(|lesser| sum(*lesser) + sum(rows - lesser) == total);
    lesser.map(|lesser| [lesser, rows - lesser])
}

/// Each value of a group follows from some of its first numbers, and from more of them than the
/// value before; the last one from all.
fn assert_changes(rows: &[Vec<Cell>], produced: Produced) {
    let mut windows: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for number in produced.numbers() {
        windows.entry(at_ms(number) / 1_000).or_default().push(number);
    }
    let mut latest: BTreeMap<u64, [u64; 2]> = BTreeMap::new();
    for row in rows {
        let [key, count, total] = group(row);
        let numbers = windows.get(&key).unwrap_or_else(|| panic!("no such window: {row:?}"));
        let now = positions(numbers, count, total);
        let now = now.unwrap_or_else(|| panic!("not of the first numbers of {key}: {row:?}"));
        let before = latest.insert(key, now).unwrap_or_default();
        let grows = now != before && now[0] >= before[0] && now[1] >= before[1];
        assert!(grows, "the window {key} at {before:?} is followed by {now:?}");
    }
    let all = |numbers: &Vec<u64>| [numbers.len() as u64; 2];
    let expected: BTreeMap<_, _> = windows.iter().map(|(key, of)| (*key, all(of))).collect();
    assert_eq!(latest, expected, "the last values");
}

/// Each block of all groups follows from the first numbers of both partitions, and from more of
/// them than the block before; the last one from all.
fn assert_everything(rows: &[Vec<Cell>], produced: Produced) {
    let mut before = [0; 2];
    for block in rows.chunks(GROUPS as usize) {
        let mut block: Vec<[u64; 3]> = block.iter().map(|row| group(row)).collect();
        block.sort_unstable();
        let [count, total] = [1, 2].map(|at| block.iter().map(|group| group[at]).sum::<u64>());
        let now = positions_of_all(count, total);
        let now = now.unwrap_or_else(|| panic!("not of the first numbers: {block:?}"));
        let grows = now != before && now[0] >= before[0] && now[1] >= before[1];
        assert!(grows, "{before:?} is followed by {now:?}");
        assert_eq!(block, groups_of(now), "of the first {now:?}");
        before = now;
    }
    assert_eq!(before, [produced.0; 2], "the last block");
}

/// The same as [`positions`] for numbers from 0 on.
fn positions_of_all(rows: u64, total: u64) -> Option<[u64; 2]> {
    let sum = |count: u64| count * count.saturating_sub(1) / 2;
    let lesser = (0..=rows / 2).find(|lesser| sum(*lesser) + sum(rows - lesser) == total);
    lesser.map(|lesser| [lesser, rows - lesser])
}

fn groups_of(positions: [u64; 2]) -> Vec<[u64; 3]> {
    let mut groups: BTreeMap<u64, [u64; 3]> = BTreeMap::new();
    for number in positions.into_iter().flat_map(|end| 0..end) {
        let group = groups.entry(number % GROUPS).or_insert([number % GROUPS, 0, 0]);
        group[1] += 1;
        group[2] += number;
    }
    groups.into_values().collect()
}

fn kill_at_random_moments(kind: &Kind) {
    let sinks: &[Sink] = match kind.output {
        Output::Once(_) => &[Sink::Topic, Sink::Table],
        Output::Changes | Output::Everything => &[Sink::Topic],
    };
    for sink in sinks {
        let flow = Flow::new(kind, *sink);
        // The first micro-batch has numbers of all groups already.
        flow.numbers.produce(100);
        let wait_for_more = |running: &mut Running| flow.wait_for_more(running);
        flow.numbers.kill_at_random(&flow.pipeline, kills(1) * 5, wait_for_more);
        // Chance seldom ends it when the sink has what the commit log does not say yet.
        flow.numbers.crash_at_steps(&flow.pipeline, &["after-commit"], &[1, 3]);
        flow.assert_exactly_once();
        // And once more, from a state that is read back as a whole.
        flow.numbers.produce(400);
        flow.assert_exactly_once();
    }
}

#[test]
fn kills_lose_and_double_no_session() {
    kill_at_random_moments(&SESSIONS);
}

#[test]
fn kills_lose_and_double_no_first_row_in_a_table() {
    kill_at_random_moments(&FIRST_ROWS);
}

#[test]
fn kills_bring_no_duplicate_back() {
    kill_at_random_moments(&DUPLICATES);
}

#[test]
fn kills_lose_and_double_no_pair_of_an_inner_join() {
    kill_at_random_moments(&INNER_JOIN);
}

#[test]
fn kills_lose_and_double_no_row_of_an_outer_join() {
    kill_at_random_moments(&FULL_JOIN);
}

#[test]
fn kills_leave_the_values_of_changed_groups_right() {
    kill_at_random_moments(&UPDATE);
}

#[test]
fn kills_leave_the_values_of_all_groups_right() {
    kill_at_random_moments(&COMPLETE);
}

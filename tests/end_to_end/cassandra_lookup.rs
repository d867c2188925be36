//! Streams joined with rows of Cassandra: the right rows, whatever becomes of the server.

use std::time::Duration;

use millstream_testkit::cassandra::{Cassandra, shared};

use crate::cassandra::{keyspace, sink};
use crate::files_and_static::{json_table, put, sorted_lines};
use crate::live::{crashing_at, kills, some_time};
use crate::millstream::{Pipeline, Running, table};
use crate::wait;

const COLUMNS: &str = "(building STRING, floor INT, address STRING, rooms INT)";
const TABLE: &str = "(building text, floor int, address text, rooms int, colour text, \
                     PRIMARY KEY (building, floor))";
const LEFT_JOIN: &str = "SELECT e.n, f.building, f.floor, f.address, f.rooms \
                         FROM STREAM events AS e LEFT JOIN floors AS f \
                         ON e.building = f.building AND e.floor = f.floor";
const KEY: (&str, &str) = ("key.column", "building, floor");

/// A flow from files into files, joined with a table of Cassandra.
struct Joined<'a> {
    server: &'a Cassandra,
    keyspace: String,
    pipeline: Pipeline,
}

impl<'a> Joined<'a> {
    fn new(server: &'a Cassandra, options: &[(&str, &str)]) -> Self {
        Self::with(server, TABLE, COLUMNS, &[&[KEY], options].concat(), LEFT_JOIN)
    }

    fn with(
        server: &'a Cassandra,
        own: &str,
        columns: &str,
        options: &[(&str, &str)],
        query: &str,
    ) -> Self {
        let keyspace = keyspace(server);
        server.ask(&format!("CREATE TABLE {keyspace}.floors {own}"));
        let events = [("path", "input"), ("maxFilesPerTrigger", "1")];
        let output = [("path", "output"), ("commitInterval", "0")];
        let lookup = sink(server, &keyspace, "floors", options);
        let pipeline = Pipeline::new(&format!(
            "{}{}{}CREATE FLOW joined AS INSERT INTO target {query};\n",
            table("events", "(n BIGINT, building STRING, floor INT)", "json", &events),
            lookup.replacen("floors", &format!("floors {columns}"), 1),
            table("target", "", "json", &output),
        ));
        Self { server, keyspace, pipeline }
    }

    fn set(&self, building: &str, floor: usize, address: &str) {
        self.server.ask(&format!(
            "INSERT INTO {}.floors (building, floor, address, rooms) \
             VALUES ('{building}', {floor}, '{address}', {})",
            self.keyspace,
            floor * 10,
        ));
    }

    /// Adds a file of events, numbered from `first` on.
    fn add(&self, name: &str, first: usize, floors: &[(&str, usize)]) {
        let line = |(at, (building, floor)): (usize, &(&str, usize))| {
            format!("{{\"n\":{},\"building\":\"{building}\",\"floor\":{floor}}}\n", first + at)
        };
        let lines: String = floors.iter().enumerate().map(line).collect();
        put(&self.pipeline, &format!("input/{name}.json"), &lines);
    }

    fn lines(&self) -> Vec<String> {
        sorted_lines(&self.pipeline.path("output"))
    }

    fn wait_for(&self, running: &mut Running, lines: usize) {
        running.wait_while_running("all rows", || self.lines().len() >= lines);
    }
}

fn found(n: usize, building: &str, floor: usize, address: &str) -> String {
    format!(
        r#"{{"n":{n},"building":"{building}","floor":{floor},"address":"{address}","rooms":{}}}"#,
        floor * 10
    )
}

fn missing(n: usize) -> String {
    format!("{{\"n\":{n}}}")
}

#[test]
fn rows_are_found_by_the_whole_key_as_they_are_now() {
    let joined = Joined::new(shared(), &[]);
    joined.set("B1", 7, "Main St 1");
    joined.set("B1", 8, "Main St 1a");
    // An empty text cannot be a key, so it has no row.
    joined.add("a", 0, &[("B1", 7), ("B1", 8), ("B2", 7), ("", 2), ("B1", 7)]);
    let mut running = joined.pipeline.start(&[]);
    joined.wait_for(&mut running, 5);
    joined.set("B1", 7, "High St 1");
    joined.server.ask(&format!(
        "DELETE FROM {}.floors WHERE building = 'B1' AND floor = 8",
        joined.keyspace
    ));
    joined.add("b", 5, &[("B1", 7), ("B1", 8)]);
    joined.wait_for(&mut running, 7);
    running.stop().expect_success();
    let expected = [
        found(0, "B1", 7, "Main St 1"),
        found(1, "B1", 8, "Main St 1a"),
        missing(2),
        missing(3),
        found(4, "B1", 7, "Main St 1"),
        found(5, "B1", 7, "High St 1"),
        missing(6),
    ];
    assert_eq!(joined.lines(), expected);
}

/// The flow's result, and that of the same query over a file with the same rows.
#[test]
fn thousands_of_keys_of_one_micro_batch_give_the_rows_of_a_static_join() {
    let server = shared();
    let joined = Joined::new(server, &[("spark.cassandra.concurrent.reads", "64")]);
    // What the flow's own sink writes.
    let row = |n: usize| {
        let (building, floor) = (n / 10, n % 10);
        format!(
            "{{\"building\":\"k{building}\",\"floor\":{floor},\"address\":\"a{n}\",\"rooms\":{n}}}\n"
        )
    };
    let rows: String = (0..4_000).map(row).collect();
    let filling = Pipeline::new(&format!(
        "{}{}INSERT INTO floors SELECT * FROM rows;\n",
        json_table("rows", COLUMNS, "rows"),
        sink(server, &joined.keyspace, "floors", &[]),
    ));
    put(&filling, "rows/a.json", &rows);
    filling.run(&[]).expect_success();
    let keys: Vec<(String, usize)> =
        (0..6_000).map(|n| (format!("k{}", (n * 7) % 5_000 / 10), n * 7 % 10)).collect();
    let keys: Vec<(&str, usize)> =
        keys.iter().map(|(building, floor)| (&**building, *floor)).collect();
    joined.add("a", 0, &keys);
    joined.pipeline.run_available();
    let looked_up = joined.lines();
    assert_eq!(looked_up.len(), 6_000);

    let sql = std::fs::read_to_string(joined.pipeline.path("pipeline.sql")).expect("it is there");
    let (before, rest) = sql.split_once("CREATE TABLE floors").expect("it has one");
    let (_, after) = rest.split_once(";\n").expect("it ends");
    let sql = format!("{before}{}{after}", json_table("floors", COLUMNS, "rows"));
    let at_rest = Pipeline::new(&sql);
    put(&at_rest, "rows/a.json", &rows);
    put(
        &at_rest,
        "input/a.json",
        &std::fs::read_to_string(joined.pipeline.path("input/a.json")).expect("it is there"),
    );
    at_rest.run_available();
    assert_eq!(looked_up, sorted_lines(&at_rest.path("output")));
    assert!(looked_up.iter().filter(|line| line.contains("address")).count() > 4_000);
}

#[test]
fn what_the_sink_writes_is_looked_up_again() {
    let server = shared();
    let keyspace = keyspace(server);
    server.ask(&format!("CREATE TYPE {keyspace}.point (x double, y double)"));
    server.ask(&format!(
        "CREATE TABLE {keyspace}.kept (id uuid, part date, t text, d double, f float, b boolean, \
         n decimal, v varint, day date, at timestamp, raw blob, small smallint, ip inet, \
         l frozen<list<int>>, s set<text>, m map<text, bigint>, p frozen<point>, \
         u frozen<tuple<int, text>>, PRIMARY KEY ((id), part))"
    ));
    let columns = "(id STRING, part DATE, t STRING, d DOUBLE, f FLOAT, b BOOLEAN, \
                   n DECIMAL(10, 2), v DECIMAL(38, 0), day DATE, at TIMESTAMP, raw BINARY, \
                   small SMALLINT, ip STRING, l ARRAY<INT>, s ARRAY<STRING>, m MAP<STRING, BIGINT>, \
                   p STRUCT<x: DOUBLE, y: DOUBLE>, u STRUCT<a: INT, b: STRING>)";
    let raw = [
        r#"{"id":"00000000-0000-4000-8000-00000000000a","part":"2026-01-02","t":"ä: \\ \"x\"","d":-0.1,"f":1.5,"b":true,"n":-1.50,"v":-12345678901234567890123456789012345678,"day":"0001-12-31","at":"2026-01-01T10:15:00.123Z","raw":"AP8=","small":-3,"ip":"10.0.0.1","l":[1,2],"s":["a","b"],"m":{"k":7},"p":{"x":1.0,"y":2.0},"u":{"a":1,"b":"z"}}"#,
        r#"{"id":"00000000-0000-4000-8000-00000000000b","part":"2026-01-03","t":"","d":1.0E300,"f":0.25,"b":false,"n":12345678.90,"v":0,"day":"9999-12-31","at":"1969-12-31T23:59:59.999Z","raw":"","small":0,"ip":"::1","l":[],"u":{"a":2}}"#,
        r#"{"id":"00000000-0000-4000-8000-00000000000b","part":"2026-01-04","t":"only this"}"#,
    ];
    let read = sink(server, &keyspace, "kept", &[("key.column", "id, part")]);
    let pipeline = Pipeline::new(&format!(
        "{}{}{}CREATE FLOW stores AS INSERT INTO kept SELECT * FROM STREAM source;\n",
        json_table("source", columns, "input"),
        json_table("again", columns, "again"),
        sink(server, &keyspace, "kept", &[]),
    ));
    let lines = raw.map(|row| format!("{row}\n")).concat();
    put(&pipeline, "input/a.json", &lines);
    // A UUID in other letters is another text, and in no row.
    let other = raw[0].replace("00000000a", "00000000A");
    put(&pipeline, "again/a.json", &format!("{lines}{other}\n"));
    let stores = ["run", "pipeline.sql", "--checkpoint", "c1", "--trigger", "availableNow"];
    pipeline.spawn(pipeline.bare_command(&stores)).wait(wait::SOON).expect_success();
    pipeline.rewrite(&format!(
        "{}{}{}CREATE FLOW looks_up AS INSERT INTO target SELECT k.* FROM STREAM again AS a \
         JOIN kept AS k ON k.part = a.part AND a.id = k.id;\n",
        json_table("again", columns, "again"),
        read.replacen("kept", &format!("kept {columns}"), 1),
        json_table("target", "", "output"),
    ));
    pipeline.run_available();
    let mut expected = raw.map(str::to_owned).to_vec();
    // An empty list that is frozen is kept; what was left out is NULL.
    expected.sort_unstable();
    assert_eq!(sorted_lines(&pipeline.path("output")), expected);
}

#[test]
fn a_server_that_stands_still_or_is_killed_is_waited_for() {
    let server = Cassandra::start();
    let joined = Joined::new(&server, &[("spark.cassandra.read.timeoutMS", "1000")]);
    joined.set("B1", 7, "Main St 1");
    joined.add("a", 0, &[("B1", 7)]);
    let mut running = joined.pipeline.start(&[]);
    joined.wait_for(&mut running, 1);
    server.pause();
    joined.add("b", 1, &[("B1", 7), ("B9", 1)]);
    wait::pause(Duration::from_secs(4));
    assert_eq!(joined.lines().len(), 1, "nothing is made up");
    server.go_on();
    joined.wait_for(&mut running, 3);
    server.kill();
    joined.add("c", 3, &[("B1", 7)]);
    wait::pause(Duration::from_secs(2));
    assert_eq!(joined.lines().len(), 3, "nothing is made up");
    server.restart();
    joined.wait_for(&mut running, 4);
    running.stop().expect_success();
    let row = |n: usize| found(n, "B1", 7, "Main St 1");
    assert_eq!(joined.lines(), [row(0), row(1), missing(2), row(3)]);
}

#[test]
fn kills_lose_and_double_nothing() {
    let joined = Joined::new(shared(), &[]);
    for floor in 0..30 {
        joined.set("B1", floor, &format!("a{floor}"));
    }
    let mut next = 0;
    let mut add = |files: usize| {
        for _ in 0..files {
            let keys: Vec<(&str, usize)> = (next..next + 10).map(|n| ("B1", n % 40)).collect();
            joined.add(&format!("{next:06}"), next, &keys);
            next += 10;
        }
        next
    };
    for step in ["after-take", "after-run", "before-commit-entry"] {
        add(4);
        crashing_at(&joined.pipeline, step, 2).wait(wait::SOON).expect_crash(step);
    }
    for round in 0..kills(3) {
        add(4);
        let running = joined.pipeline.start(&[]);
        some_time(round, 300);
        running.kill();
    }
    let count = add(1);
    joined.pipeline.run_available();
    let mut expected: Vec<String> = (0..count)
        .map(|n| match n % 40 {
            floor @ 0..30 => found(n, "B1", floor, &format!("a{floor}")),
            _ => missing(n),
        })
        .collect();
    expected.sort();
    assert_eq!(joined.lines(), expected);
}

#[test]
fn what_does_not_fit_is_refused_at_the_start() {
    let refused = |own: &str, columns: &str, key: &str, says: &[&str]| {
        let joined = Joined::with(shared(), own, columns, &[("key.column", key)], LEFT_JOIN);
        joined.add("a", 0, &[("B1", 7)]);
        assert!(!joined.pipeline.run(&["--restart", "never"]).says(says).status.success());
    };
    let key = "building, floor";
    let wider = TABLE.replace("rooms int", "rooms bigint");
    refused(
        &wider,
        COLUMNS,
        key,
        &["column rooms", "declared INT and bigint", "declare it BIGINT"],
    );
    let other = TABLE.replace("address", "street");
    refused(&other, COLUMNS, key, &["column address", "has no such column"]);
    let short = TABLE.replace("(building, floor)", "(building)");
    refused(&short, COLUMNS, key, &["the table's key is (building)", "'key.column' = 'building'"]);
    let long = TABLE.replace("(building, floor)", "(building, floor, colour)");
    let all = ["column colour", "the table's key is (building, floor, colour)"];
    refused(&long, COLUMNS, key, &all);
}

#[test]
fn other_uses_are_refused_before_anything_runs() {
    let refused = |columns: &str, options: &[(&str, &str)], query: &str, says: &[&str]| {
        let lookup = table("floors", columns, "cassandra", options);
        let pipeline = Pipeline::new(&format!(
            "{}{lookup}CREATE FLOW f AS INSERT INTO target {query};\n{}",
            json_table("events", "(n BIGINT, building STRING, floor INT)", "input"),
            json_table("target", "", "output"),
        ));
        let validate = pipeline.bare_command(&["validate", "pipeline.sql"]);
        let finished = pipeline.spawn(validate).wait(wait::SOON);
        assert!(!finished.says(says).status.success());
    };
    let keyspace = ("keyspace", "k");
    let read = "SELECT n FROM STREAM floors";
    refused(COLUMNS, &[keyspace, KEY], read, &["read by their key only"]);
    refused(COLUMNS, &[keyspace], LEFT_JOIN, &["name the key's columns"]);
    refused("", &[keyspace, KEY], LEFT_JOIN, &["must be declared"]);
    refused(COLUMNS, &[keyspace, ("key.column", "street")], LEFT_JOIN, &["no column 'street'"]);
    let doubles = COLUMNS.replace("floor INT", "floor DOUBLE");
    refused(&doubles, &[keyspace, KEY], LEFT_JOIN, &["equal values may be different keys"]);
    let level = ("spark.cassandra.input.consistency.level", "EACH_QUORUM");
    refused(COLUMNS, &[keyspace, KEY, level], LEFT_JOIN, &["one of ONE, TWO"]);
}

//! Streams joined with keys of Redis: the right rows, whatever becomes of the server.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use millstream_testkit::redis::{Cluster, Kind, Redis};

use crate::files_and_static::{json_table, put, sorted_lines};
use crate::live::{crashing_at, kills, some_time};
use crate::millstream::{Pipeline, Running, table};
use crate::wait;

const COLUMNS: &str = "(id STRING, address STRING, floors INT)";
const LEFT_JOIN: &str = "SELECT e.n, e.building, b.id, b.address, b.floors FROM STREAM events AS e \
                         LEFT JOIN buildings AS b ON e.building = b.id";

/// A flow from files into files, joined with the hashes `buildings:*`.
struct Joined {
    pipeline: Pipeline,
}

impl Joined {
    fn new(port: u16, options: &[(&str, &str)], columns: &str, query: &str) -> Self {
        let port = port.to_string();
        let lookup = [&[("port", &*port), ("key.column", "id")][..], options].concat();
        let events = [("path", "input"), ("maxFilesPerTrigger", "1")];
        let sink = [("path", "output"), ("commitInterval", "0")];
        let pipeline = Pipeline::new(&format!(
            "{}{}{}CREATE FLOW joined AS INSERT INTO target {query};\n",
            table("events", "(n BIGINT, building STRING)", "json", &events),
            table("buildings", columns, "redis", &lookup),
            table("target", "", "json", &sink),
        ));
        Self { pipeline }
    }

    /// Adds a file of events, numbered from `first` on.
    fn add(&self, name: &str, first: usize, buildings: &[Option<&str>]) {
        let line = |(at, building): (usize, &Option<&str>)| match building {
            Some(building) => format!("{{\"n\":{},\"building\":\"{building}\"}}\n", first + at),
            None => format!("{{\"n\":{}}}\n", first + at),
        };
        let lines: String = buildings.iter().enumerate().map(line).collect();
        put(&self.pipeline, &format!("input/{name}.json"), &lines);
    }

    fn output(&self) -> PathBuf {
        self.pipeline.path("output")
    }

    fn lines(&self) -> Vec<String> {
        sorted_lines(&self.output())
    }

    fn wait_for(&self, running: &mut Running, lines: usize) {
        running.wait_while_running("all rows", || self.lines().len() >= lines);
    }
}

fn set(redis: &Redis, building: &str, address: &str, floors: &str) {
    let key = format!("buildings:{building}");
    redis.ask(&["HSET", &key, "address", address, "floors", floors]);
}

#[test]
fn rows_are_found_by_key_as_they_are_now() {
    for kind in [Kind::Redis, Kind::Redis6, Kind::Valkey] {
        let redis = Redis::start_with(kind, &[]);
        set(&redis, "B1", "Main St 1", "7");
        // A field that is no number, and a hash without the fields that are asked for.
        set(&redis, "B2", "Main St 2", "many");
        redis.ask(&["HSET", "buildings:B3", "colour", "red"]);
        let joined = Joined::new(redis.port(), &[], COLUMNS, LEFT_JOIN);
        let buildings = ["B1", "B2", "B3", "B4", "B1"].map(Some);
        joined.add("a", 0, &[&buildings[..], &[None]].concat());
        let mut running = joined.pipeline.start(&[]);
        joined.wait_for(&mut running, 6);
        set(&redis, "B1", "High St 1", "8");
        redis.ask(&["DEL", "buildings:B2"]);
        joined.add("b", 6, &buildings[..2]);
        joined.wait_for(&mut running, 8);
        running.stop().expect_success();
        let expected = [
            r#"{"n":0,"building":"B1","id":"B1","address":"Main St 1","floors":7}"#,
            r#"{"n":1,"building":"B2","id":"B2","address":"Main St 2"}"#,
            r#"{"n":2,"building":"B3","id":"B3"}"#,
            r#"{"n":3,"building":"B4"}"#,
            r#"{"n":4,"building":"B1","id":"B1","address":"Main St 1","floors":7}"#,
            r#"{"n":5}"#,
            r#"{"n":6,"building":"B1","id":"B1","address":"High St 1","floors":8}"#,
            r#"{"n":7,"building":"B2"}"#,
        ];
        assert_eq!(joined.lines(), expected, "{kind:?}");
    }
}

#[test]
fn what_the_sink_writes_is_looked_up_again() {
    let redis = Redis::start();
    let port = redis.port().to_string();
    let columns = "(id BIGINT, part DATE, t STRING, d DOUBLE, f FLOAT, b BOOLEAN, n DECIMAL(10, 2), \
                   day DATE, at TIMESTAMP, raw BINARY, small SMALLINT)";
    let raw = [
        r#"{"id":-7,"part":"2026-01-02","t":"ä: \\ \"x\"","d":-0.1,"f":1.5,"b":true,"n":-1.50,"day":"1999-12-31","at":"2026-01-01T10:15:00.123Z","raw":"AP8=","small":-3}"#,
        r#"{"id":8,"part":"2026-01-03","t":"","d":1.0E300,"f":0.25,"b":false,"n":12345678.90,"day":"2026-02-28","at":"1969-12-31T23:59:59.999Z","raw":"","small":0}"#,
        r#"{"id":9,"part":"2026-01-03","t":"only this"}"#,
    ];
    for model in ["hash", "json"] {
        let options =
            [("port", &*port), ("table", model), ("model", model), ("key.column", "id, part")];
        let pipeline = Pipeline::new(&format!(
            "{}{}{}{}CREATE FLOW stores AS INSERT INTO kept SELECT * FROM STREAM source;\n",
            json_table("source", columns, "input"),
            json_table("again", columns, "again"),
            table("kept", columns, "redis", &options),
            json_table("target", "", "output"),
        ));
        let lines = raw.map(|row| format!("{row}\n")).concat();
        put(&pipeline, "input/a.json", &lines);
        put(&pipeline, "again/a.json", &lines);
        let stores = ["run", "pipeline.sql", "--checkpoint", "c1", "--trigger", "availableNow"];
        pipeline.spawn(pipeline.bare_command(&stores)).wait(wait::SOON).expect_success();
        let sql = std::fs::read_to_string(pipeline.path("pipeline.sql")).expect("it is there");
        let (tables, _) = sql.split_once("CREATE FLOW").expect("it has a flow");
        pipeline.rewrite(&format!(
            "{tables}CREATE FLOW looks_up AS INSERT INTO target SELECT k.* FROM STREAM again AS a \
             JOIN kept AS k ON k.part = a.part AND a.id = k.id;\n"
        ));
        pipeline.run_available();
        let mut expected = raw.to_vec();
        expected.sort_unstable();
        assert_eq!(sorted_lines(&pipeline.path("output")), expected, "{model}");
    }
}

#[test]
fn a_text_under_each_key_is_looked_up() {
    let redis = Redis::start();
    redis.ask(&["SET", "prices:a", "1.25"]);
    redis.ask(&["SET", "prices:b", "none"]);
    let lookup = [("table", "prices"), ("model", "string")];
    let query = "SELECT e.n, p.price FROM STREAM events AS e JOIN buildings AS p \
                 ON e.building = p.id";
    let joined = Joined::new(redis.port(), &lookup, "(id STRING, price DOUBLE)", query);
    joined.add("a", 0, &[Some("a"), Some("b"), Some("c")]);
    joined.pipeline.run_available();
    assert_eq!(joined.lines(), [r#"{"n":0,"price":1.25}"#, r#"{"n":1}"#]);
    joined.add("b", 3, &[Some("b")]);
    let strict = ["--trigger", "availableNow", "--set", "buildings.mode=FAILFAST"];
    let refused = joined.pipeline.run(&strict).expect_exit(1);
    refused.says(&["'buildings'", "'prices:b'", "price is not DOUBLE", "PERMISSIVE"]);
}

#[test]
fn a_key_that_holds_something_else_stops_the_flow() {
    let redis = Redis::start();
    set(&redis, "B1", "Main St 1", "7");
    redis.ask(&["SET", "buildings:B2", "a text"]);
    let joined = Joined::new(redis.port(), &[], COLUMNS, LEFT_JOIN);
    joined.add("a", 0, &[Some("B1"), Some("B2")]);
    let refused = joined.pipeline.run(&["--trigger", "availableNow"]).expect_exit(1);
    refused.says(&["'buildings:B2' holds a string", "looks up a hash", "'model'"]);
    redis.ask(&["DEL", "buildings:B2"]);
    joined.pipeline.run_available();
    assert_eq!(joined.lines().len(), 2);
}

/// Puts so many hashes into the server, every third left out.
fn fill(port: u16, count: usize) {
    let client = ["-h", "127.0.0.1", "-p", &port.to_string(), "--pipe"].map(str::to_owned);
    let mut client = Command::new("redis-cli")
        .args(client)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("redis-cli is installed: apt-get install redis-tools");
    let mut commands = String::new();
    for number in (0..count).filter(|number| number % 3 != 0) {
        let command = format!("HSET buildings:k{number} address a{number} floors {number}\r\n");
        commands.push_str(&command);
    }
    let mut input = client.stdin.take().expect("it is piped");
    input.write_all(commands.as_bytes()).expect("redis-cli reads it");
    drop(input);
    assert!(client.wait().expect("it is ours").success());
}

#[test]
fn fifty_thousand_keys_of_one_micro_batch_give_the_rows_of_a_static_join() {
    const KEYS: usize = 50_000;
    let redis = Redis::start();
    fill(redis.port(), KEYS);
    let joined = Joined::new(redis.port(), &[], COLUMNS, LEFT_JOIN);
    let texts: Vec<String> = (0..KEYS + 1_000).map(|n| format!("k{}", n % KEYS)).collect();
    let buildings: Vec<Option<&str>> = texts.iter().map(|text| Some(text.as_str())).collect();
    joined.add("a", 0, &buildings);
    joined.pipeline.run_available();
    let found = joined.lines();
    // The same with a file of the same rows.
    let rows = (0..KEYS).filter(|number| number % 3 != 0);
    let rows: String = rows.map(|n| format!("k{n},a{n},{n}\n")).collect();
    std::fs::write(joined.pipeline.path("buildings.csv"), rows).expect("it is writable");
    joined.pipeline.rewrite(&format!(
        "{}{}{}CREATE FLOW joined AS INSERT INTO target {LEFT_JOIN};\n",
        json_table("events", "(n BIGINT, building STRING)", "input"),
        table("buildings", COLUMNS, "csv", &[("path", "buildings.csv")]),
        json_table("target", "", "static"),
    ));
    let arguments = ["run", "pipeline.sql", "--checkpoint", "c2", "--trigger", "availableNow"];
    let run = joined.pipeline.spawn(joined.pipeline.bare_command(&arguments));
    run.wait(wait::SOON).expect_success();
    let of_file = sorted_lines(&joined.pipeline.path("static"));
    assert_eq!(found.len(), KEYS + 1_000);
    assert!(found == of_file, "other rows than those of the static join");
    let calls = redis.ask(&["INFO", "commandstats"]);
    let hmget = calls.lines().find(|line| line.starts_with("cmdstat_hmget:calls="));
    let hmget = hmget.and_then(|line| line.split(['=', ',']).nth(1)).expect("they were asked for");
    assert_eq!(hmget.parse(), Ok(KEYS), "each key once");
}

#[test]
fn the_cache_answers_until_it_expires() {
    let redis = Redis::start();
    set(&redis, "B1", "old", "1");
    let cache = [
        ("lookup.cache", "PARTIAL"),
        ("lookup.partial-cache.expire-after-write", "8s"),
        ("lookup.partial-cache.max-rows", "100"),
    ];
    let query = "SELECT e.n, b.address FROM STREAM events AS e LEFT JOIN buildings AS b \
                 ON e.building = b.id";
    let joined = Joined::new(redis.port(), &cache, COLUMNS, query);
    joined.add("a", 0, &[Some("B1"), Some("B2")]);
    let mut running = joined.pipeline.start(&[]);
    joined.wait_for(&mut running, 2);
    set(&redis, "B1", "new", "1");
    set(&redis, "B2", "new", "1");
    let mut next = 2;
    // Until the new rows are seen; the first events after the change see the old ones.
    wait::until_true("the new rows", Duration::from_secs(60), || {
        joined.add(&format!("b{next:04}"), next, &[Some("B1"), Some("B2")]);
        next += 2;
        joined.wait_for(&mut running, next);
        let lines = joined.lines();
        lines.contains(&format!(r#"{{"n":{},"address":"new"}}"#, next - 2))
            && lines.contains(&format!(r#"{{"n":{},"address":"new"}}"#, next - 1))
    });
    running.stop().expect_success();
    let lines = joined.lines();
    assert!(lines.contains(&r#"{"n":2,"address":"old"}"#.to_owned()), "{lines:?}");
    assert!(lines.contains(&r#"{"n":3}"#.to_owned()), "{lines:?}");
}

#[test]
fn a_server_that_stands_still_or_restarts_is_waited_for() {
    let redis = Redis::start_with(Kind::Redis, &["--appendonly", "yes"]);
    set(&redis, "B1", "Main St 1", "7");
    let joined = Joined::new(redis.port(), &[("timeout", "1000")], COLUMNS, LEFT_JOIN);
    joined.add("a", 0, &[Some("B1")]);
    let mut running = joined.pipeline.start(&[]);
    joined.wait_for(&mut running, 1);
    redis.pause();
    joined.add("b", 1, &[Some("B1"), Some("B9")]);
    wait::pause(Duration::from_secs(4));
    assert_eq!(joined.lines().len(), 1, "nothing is made up");
    redis.go_on();
    joined.wait_for(&mut running, 3);
    redis.kill();
    joined.add("c", 3, &[Some("B1")]);
    wait::pause(Duration::from_secs(2));
    redis.restart();
    joined.wait_for(&mut running, 4);
    running.stop().expect_success();
    let row = |n: usize| {
        format!(r#"{{"n":{n},"building":"B1","id":"B1","address":"Main St 1","floors":7}}"#)
    };
    let expected = [row(0), row(1), r#"{"n":2,"building":"B9"}"#.to_owned(), row(3)];
    assert_eq!(joined.lines(), expected);
}

#[test]
fn kills_lose_and_double_nothing() {
    let redis = Redis::start();
    fill(redis.port(), 300);
    let joined = Joined::new(redis.port(), &[], COLUMNS, LEFT_JOIN);
    let mut next = 0;
    let mut add = |files: usize| {
        for _ in 0..files {
            let texts: Vec<String> = (next..next + 10).map(|n| format!("k{}", n % 300)).collect();
            let buildings: Vec<Option<&str>> = texts.iter().map(|text| Some(&**text)).collect();
            joined.add(&format!("{next:06}"), next, &buildings);
            next += 10;
        }
        next
    };
    for step in ["after-take", "after-run", "before-commit-entry", "after-commit-entry"] {
        add(5);
        crashing_at(&joined.pipeline, step, 2).wait(wait::SOON).expect_crash(step);
    }
    for round in 0..kills(5) {
        add(5);
        let running = joined.pipeline.start(&[]);
        some_time(round, 300);
        running.kill();
    }
    let rows = add(5);
    joined.pipeline.run_available();
    let expected = (0..rows).map(|n| {
        let k = n % 300;
        let found = format!(r#","id":"k{k}","address":"a{k}","floors":{k}"#);
        let found = if k % 3 == 0 { String::new() } else { found };
        format!(r#"{{"n":{n},"building":"k{k}"{found}}}"#)
    });
    let mut expected: Vec<String> = expected.collect();
    expected.sort();
    assert!(joined.lines() == expected, "other rows than those that came in");
}

#[test]
fn keys_of_all_servers_of_a_cluster_are_looked_up() {
    let cluster = Cluster::start();
    for number in 0..50 {
        let key = format!("buildings:k{number}");
        cluster.ask(&["HSET", &key, "address", &format!("a{number}"), "floors", "1"]);
    }
    let query = "SELECT e.n, b.address FROM STREAM events AS e JOIN buildings AS b \
                 ON e.building = b.id";
    let joined = Joined::new(cluster.port(), &[], COLUMNS, query);
    let texts: Vec<String> = (0..60).map(|number| format!("k{number}")).collect();
    let buildings: Vec<Option<&str>> = texts.iter().map(|text| Some(&**text)).collect();
    joined.add("a", 0, &buildings);
    joined.pipeline.run_available();
    let mut expected: Vec<String> =
        (0..50).map(|number| format!(r#"{{"n":{number},"address":"a{number}"}}"#)).collect();
    expected.sort();
    assert_eq!(joined.lines(), expected);
}

#[test]
fn state_is_kept_below_and_above_a_look_up() {
    let redis = Redis::start();
    set(&redis, "B1", "north", "7");
    set(&redis, "B2", "north", "3");
    let query = "SELECT x.address, x.events, b.floors FROM \
                 (SELECT d.address, max(e.building) AS last, count(*) AS events \
                  FROM STREAM events AS e JOIN buildings AS d ON e.building = d.id \
                  GROUP BY d.address) AS x \
                 JOIN buildings AS b ON x.last = b.id";
    let joined = Joined::new(redis.port(), &[], COLUMNS, query);
    let sql = std::fs::read_to_string(joined.pipeline.path("pipeline.sql")).expect("it is there");
    let console = table("target", "", "console", &[("outputMode", "update")]);
    let (tables, flow) = sql.split_once("CREATE TABLE target").expect("it has one");
    let (_, flow) = flow.split_once(";\n").expect("it ends");
    joined.pipeline.rewrite(&format!("{tables}{console}{flow}"));
    joined.add("a", 0, &[Some("B1"), Some("B1"), Some("B3")]);
    let shows = |values: [&str; 3]| {
        let shown = joined.pipeline.run_available().stdout;
        let is_row = |line: &str| values.iter().all(|value| line.contains(value));
        assert!(shown.lines().any(is_row), "no {values:?} in:\n{shown}");
    };
    shows(["north", "2", "7"]);
    joined.add("b", 3, &[Some("B2")]);
    shows(["north", "3", "3"]);
}

#[test]
fn other_uses_are_refused_before_anything_runs() {
    let refused = |query: &str, says: &[&str]| {
        let joined = Joined::new(1, &[], COLUMNS, query);
        let validate = joined.pipeline.bare_command(&["validate", "pipeline.sql"]);
        let finished = joined.pipeline.spawn(validate).wait(wait::SOON);
        assert!(!finished.says(says).status.success());
    };
    let stream = "FROM STREAM events AS e";
    refused("SELECT id FROM buildings", &["only a stream can be joined with it"]);
    refused(&format!("SELECT n {stream} CROSS JOIN buildings"), &["never read whole", "ON s.id"]);
    refused(
        &format!("SELECT n {stream} JOIN buildings AS b ON e.building = b.address"),
        &["no equality on all of it", "s.id = buildings.id"],
    );
    refused(
        &format!("SELECT n {stream} FULL JOIN buildings AS b ON e.building = b.id"),
        &["would keep rows of the batch table"],
    );
    let floats = Joined::new(1, &[], "(id DOUBLE, v STRING)", LEFT_JOIN);
    let validate = floats.pipeline.bare_command(&["validate", "pipeline.sql"]);
    let finished = floats.pipeline.spawn(validate).wait(wait::SOON);
    assert!(!finished.says(&["'id' is DOUBLE", "declare it as STRING"]).status.success());
    let lists = Joined::new(1, &[("model", "list")], COLUMNS, LEFT_JOIN);
    let validate = lists.pipeline.bare_command(&["validate", "pipeline.sql"]);
    let finished = lists.pipeline.spawn(validate).wait(wait::SOON);
    assert!(!finished.says(&["a list has no row for each key", "'hash'"]).status.success());
}

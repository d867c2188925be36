//! Exactly once in effect into Cassandra, counted by the client that its users have.
//!
//! The source is `rate`, whose rows are numbered from 0 on. One flow writes them to two tables:
//! `numbers` has a row for each, so a lost one shows; `latest` has a row for each of some keys,
//! with the last number of it in several columns, so a row shows that an older one has overwritten
//! or that is mixed from two. `MILLSTREAM_KILLS` says how often a process is ended at each step,
//! and ten times as often at random moments.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millstream_testkit::cassandra::{Cassandra, shared};
use millstream_testkit::certificates::Authority;
use millstream_testkit::passage::Passage;
use serde_json::{Value, json};

use crate::live::{crashing_at, kills, occurrences, some_time};
use crate::millstream::{Finished, Pipeline, Running, table};
use crate::wait;

/// Steps of a micro-batch that may be repeated.
const STEPS: [&str; 10] = [
    "after-take",
    "after-run",
    "before-intent",
    "after-intent",
    "before-begin",
    "after-produce",
    "rows-half-applied",
    "after-commit",
    "before-commit-entry",
    "after-commit-entry",
];
/// Keys of the table `latest`.
const KEYS: i64 = 40;

/// A keyspace that no other test uses.
pub fn keyspace(server: &Cassandra) -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let name = format!("k{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    server.create_keyspace(&name);
    name
}

pub fn sink(server: &Cassandra, keyspace: &str, name: &str, more: &[(&str, &str)]) -> String {
    let port = server.port().to_string();
    let options = [
        ("spark.cassandra.connection.host", "127.0.0.1"),
        ("spark.cassandra.connection.port", &*port),
        ("keyspace", keyspace),
    ];
    table(name, "", "cassandra", &[&options[..], more].concat())
}

/// A flow of numbers into both tables.
struct Upserted<'a> {
    server: &'a Cassandra,
    keyspace: String,
    pipeline: Pipeline,
}

impl<'a> Upserted<'a> {
    /// So many rows a second, micro-batches so far apart.
    fn new(server: &'a Cassandra, rows: &str, trigger: &str, more: &[(&str, &str)]) -> Self {
        let keyspace = keyspace(server);
        server.ask(&format!(
            "CREATE TABLE {keyspace}.numbers (part int, n bigint, words text, \
                             PRIMARY KEY (part, n))"
        ));
        server.ask(&format!(
            "CREATE TABLE {keyspace}.latest (key bigint PRIMARY KEY, n bigint, \
                             negative bigint, words text)"
        ));
        let options = [&[("trigger", trigger)], more].concat();
        let pipeline = Pipeline::new(&format!(
            "{}{}{}CREATE FLOW upserted AS FROM STREAM source \
             INSERT INTO numbers SELECT CAST(value % 7 AS INT) AS part, value AS n, \
             CAST(value AS STRING) AS words \
             INSERT INTO latest SELECT value % {KEYS} AS key, value AS n, -value AS negative, \
             CAST(value % 1000 AS STRING) AS words;\n",
            table("source", "", "rate", &[("rowsPerSecond", rows)]),
            sink(server, &keyspace, "numbers", &options),
            sink(server, &keyspace, "latest", &[]),
        ));
        Self { server, keyspace, pipeline }
    }

    fn ask(&self, cql: &str) -> Vec<Value> {
        self.server.ask(&cql.replace("IN_KEYSPACE", &self.keyspace))
    }

    /// The newest number of one partition.
    fn newest(&self) -> i64 {
        let rows =
            self.ask("SELECT n FROM IN_KEYSPACE.numbers WHERE part = 3 ORDER BY n DESC LIMIT 1");
        rows.first().map_or(-1, |row| row[0].as_i64().expect("a number"))
    }

    fn wait_for_more(&self, running: &mut Running) {
        let before = self.newest();
        running.wait_while_running("more rows", || self.newest() > before);
    }

    /// Waits until everything is committed that has been read by now: a server that takes longer
    /// than a minute to come back makes the flow start again, and a stop before that has worked
    /// would be one with an error.
    fn wait_for_commits(&self, running: &mut Running) {
        let taken = self.pipeline.checkpoint().ids("offsets").last().copied();
        running.wait_while_running("commits", || {
            self.pipeline.checkpoint().ids("commits").last().copied() > taken
        });
    }

    fn run_briefly(&self) {
        // What a killed process has sent may arrive late: then more rows would not say that this
        // one has begun.
        let mut before = self.newest();
        loop {
            wait::pause(Duration::from_secs(1));
            let now = self.newest();
            if std::mem::replace(&mut before, now) == now {
                break;
            }
        }
        let mut running = self.pipeline.start(&[]);
        self.wait_for_more(&mut running);
        running.stop().expect_success();
    }

    fn kill_at_random(&self, rounds: u64) {
        for round in 0..rounds {
            let mut running = self.pipeline.start(&[]);
            self.wait_for_more(&mut running);
            some_time(round, 100);
            running.kill();
        }
    }

    /// The write time of each number.
    fn write_times(&self) -> BTreeMap<i64, i64> {
        let rows = self.ask("SELECT n, WRITETIME(words) FROM IN_KEYSPACE.numbers");
        let number = |value: &Value| value.as_i64().expect("a number");
        rows.iter().map(|row| (number(&row[0]), number(&row[1]))).collect()
    }

    /// Runs what is left, and compares both tables with the numbers that were read.
    fn assert_exactly_once(&self) {
        self.run_briefly();
        let checkpoint = self.pipeline.checkpoint();
        checkpoint.assert_entries_well_formed(1);
        let last = checkpoint.latest("commits");
        assert_eq!(checkpoint.latest("offsets"), last, "every micro-batch is committed");
        let entry = self.pipeline.path(&format!("checkpoint/offsets/{last}"));
        let entry = std::fs::read_to_string(entry).expect("it is there");
        let rows = self.assert_tables();
        assert!(entry.contains(&format!("{{\"rows\":{rows}}}")), "{rows} rows, and {entry}");
    }

    /// Gives how many rows there are.
    fn assert_tables(&self) -> i64 {
        let mut numbers: Vec<i64> = Vec::new();
        for row in self.ask("SELECT n FROM IN_KEYSPACE.numbers") {
            numbers.push(row[0].as_i64().expect("a number"));
        }
        numbers.sort_unstable();
        let differs = (0..).zip(&numbers).find(|(at, number)| at != *number);
        assert!(differs.is_none() && !numbers.is_empty(), "{differs:?}");
        let count = i64::try_from(numbers.len()).expect("not so many");
        for row in self.ask("SELECT key, n, negative, words FROM IN_KEYSPACE.latest") {
            let key = row[0].as_i64().expect("a number");
            let newest = (count - 1 - key) / KEYS * KEYS + key;
            let wanted = json!([key, newest, -newest, (newest % 1000).to_string()]);
            assert_eq!(row, wanted, "of {count} rows");
        }
        count
    }
}

#[test]
fn a_crash_at_any_step_loses_and_mixes_nothing() {
    let upserted = Upserted::new(shared(), "2000", "1 millisecond", &[]);
    for step in STEPS {
        for nth in occurrences(12) {
            crashing_at(&upserted.pipeline, step, nth).wait(wait::SOON).expect_crash(step);
        }
    }
    upserted.assert_exactly_once();
}

#[test]
fn kills_at_random_moments_lose_and_mix_nothing() {
    for (rows, trigger) in [("2000", "1 millisecond"), ("5000", "400 milliseconds")] {
        let upserted = Upserted::new(shared(), rows, trigger, &[]);
        upserted.kill_at_random(10 * kills(1) / 2);
        upserted.assert_exactly_once();
    }
}

#[test]
fn kills_with_asynchronous_tracking_lose_and_mix_nothing() {
    let upserted = Upserted::new(shared(), "2000", "1 millisecond", &crate::live::ASYNC);
    upserted.kill_at_random(10 * kills(1) / 2);
    upserted.run_briefly();
    upserted.assert_tables();
}

#[test]
fn a_micro_batch_that_is_repeated_keeps_its_write_time() {
    let upserted = Upserted::new(shared(), "2000", "1 millisecond", &[]);
    for nth in [1, 5, 200] {
        // What was written, and perhaps more, is written again by the next run.
        for step in ["after-commit", "rows-half-applied"] {
            crashing_at(&upserted.pipeline, step, nth).wait(wait::SOON).expect_crash(step);
            let before = upserted.write_times();
            upserted.run_briefly();
            let after = upserted.write_times();
            for (number, time) in &before {
                assert_eq!(after.get(number), Some(time), "of {number}, after {step}:{nth}");
            }
            let ordered: Vec<i64> = after.values().copied().collect();
            assert!(ordered.is_sorted(), "later numbers have later times: {after:?}");
        }
    }
    upserted.assert_exactly_once();
}

#[test]
fn a_server_that_stands_still_or_is_killed_is_waited_for() {
    let server = Cassandra::start_that_keeps_all();
    let timeout = ("spark.cassandra.read.timeoutMS", "2000");
    let upserted = Upserted::new(&server, "2000", "1 millisecond", &[timeout]);
    let mut running = upserted.pipeline.start(&[]);
    upserted.wait_for_more(&mut running);
    server.pause();
    wait::pause(Duration::from_secs(20));
    assert!(running.is_running());
    server.go_on();
    upserted.wait_for_commits(&mut running);
    for _ in 0..kills(2) {
        server.kill();
        wait::pause(Duration::from_millis(500));
        assert!(running.is_running());
        server.restart();
        upserted.wait_for_more(&mut running);
        upserted.wait_for_commits(&mut running);
    }
    running.stop().expect_success();
    upserted.assert_exactly_once();
    // A run without a server ends and says so.
    server.kill();
    let refused = upserted.pipeline.run(&["--restart", "never"]);
    assert!(!refused.says(&["cannot be connected to"]).status.success());
}

#[test]
fn answers_that_are_late_lose_and_mix_nothing() {
    let server = shared();
    let passage = Passage::start(&format!("127.0.0.1:{}", server.port()));
    let timeout = ("spark.cassandra.read.timeoutMS", "1000");
    let upserted = Upserted::new(server, "2000", "1 millisecond", &[timeout]);
    let through = |table| format!("{table}.spark.cassandra.connection.port={}", passage.port());
    let (numbers, latest) = (through("numbers"), through("latest"));
    let mut running = upserted.pipeline.start(&["--set", &numbers, "--set", &latest]);
    for _ in 0..kills(3) {
        upserted.wait_for_more(&mut running);
        passage.answer_late(Duration::from_millis(300));
        upserted.wait_for_more(&mut running);
        // Later than it is waited for: what was done is asked for again.
        passage.answer_late(Duration::from_millis(1500));
        wait::pause(Duration::from_secs(5));
        passage.answer_late(Duration::ZERO);
    }
    upserted.wait_for_more(&mut running);
    running.stop().expect_success();
    upserted.assert_exactly_once();
}

#[test]
fn a_connection_may_have_tls() {
    let directory = tempfile::tempdir().expect("it can be made");
    let authority = Authority::new(directory.path()).unwrap();
    let server = Cassandra::start_with_tls(&authority);
    let ca = authority.certificate().display().to_string();
    let tls =
        [("spark.cassandra.connection.ssl.enabled", "true"), ("ssl.ca.location", ca.as_str())];
    let upserted = Upserted::new(&server, "2000", "1 millisecond", &tls);
    // Both tables are of one server, and each says how to reach it.
    let mut latest = Vec::new();
    for (key, value) in tls {
        latest.extend(["--set".to_owned(), format!("latest.{key}={value}")]);
    }
    let latest: Vec<&str> = latest.iter().map(String::as_str).collect();
    let mut running = upserted.pipeline.start(&latest);
    upserted.wait_for_more(&mut running);
    upserted.wait_for_commits(&mut running);
    running.stop().expect_success();
    upserted.assert_tables();
    // Without the authority, and without TLS.
    let refused = |more: &[&str]| {
        let refused = upserted.pipeline.run(&[&["--restart", "never"], more].concat());
        assert!(!refused.status.success());
        refused
    };
    let other = directory.path().join("other");
    let stranger = Authority::new(&other).unwrap().certificate();
    let stranger = format!("numbers.ssl.ca.location={}", stranger.display());
    refused(&[&latest[..], &["--set", &stranger]].concat()).says(&["certificate"]);
    refused(&[]).says(&["cannot be connected to"]);
}

#[test]
fn passwords_are_checked_and_not_shown() {
    let server = Cassandra::start_with_passwords();
    server.ask("CREATE ROLE writer WITH PASSWORD = 'pl4nted-one' AND LOGIN = true");
    let login = |password: &'static str| {
        [("spark.cassandra.auth.username", "writer"), ("spark.cassandra.auth.password", password)]
    };
    let keyspace = keyspace(&server);
    server.ask(&format!("CREATE TABLE {keyspace}.target (id bigint PRIMARY KEY)"));
    let pipeline = |more: &[(&str, &str)]| {
        Pipeline::new(&format!(
            "{}{}CREATE FLOW f AS INSERT INTO target SELECT value AS id FROM STREAM source;\n",
            table("source", "", "rate", &[("rowsPerSecond", "1000")]),
            sink(&server, &keyspace, "target", more),
        ))
    };
    let refused = pipeline(&login("pl4nted-two")).run(&[]);
    let refused = refused.says(&["refuses the user", "spark.cassandra.auth.password"]);
    assert!(!refused.says_not(&["pl4nted"]).status.success());
    assert!(!pipeline(&[]).run(&[]).says(&["asks for a user"]).status.success());
    // The user may not write to the table yet.
    let right = pipeline(&login("pl4nted-one"));
    let refused = right.run(&[]).says(&["refuses to", "no MODIFY permission"]);
    assert!(!refused.says_not(&["pl4nted"]).status.success());
    server.ask(&format!("GRANT MODIFY ON {keyspace}.target TO writer"));
    let mut running = right.start(&[]);
    running.wait_while_running("rows", || {
        !server.ask(&format!("SELECT id FROM {keyspace}.target LIMIT 1")).is_empty()
    });
    running.stop().expect_success();
}

/// A batch query over rows of JSON with these columns, into the table `target`.
fn written(
    server: &Cassandra,
    keyspace: &str,
    (columns, rows): (&str, &str),
    select: &str,
    more: &[(&str, &str)],
) -> Finished {
    let pipeline = Pipeline::new(&format!(
        "{}{}INSERT INTO target SELECT {select} FROM source;\n",
        table("source", columns, "json", &[("path", "in")]),
        sink(server, keyspace, "target", more),
    ));
    std::fs::create_dir(pipeline.path("in")).expect("it can be made");
    std::fs::write(pipeline.path("in/rows.json"), rows).expect("it is writable");
    pipeline.run(&[])
}

#[test]
fn each_type_has_its_form() {
    let server = shared();
    let keyspace = keyspace(server);
    server.ask(&format!("CREATE TYPE {keyspace}.place (city text, numbers frozen<list<int>>)"));
    server.ask(&format!(
        "CREATE TABLE {keyspace}.target (\"Id\" uuid, at timestamp, tiny tinyint, small smallint, \
         i int, big varint, price decimal, f float, d double, flag boolean, raw blob, day date, \
         address inet, words set<text>, sizes map<text, int>, home frozen<place>, \
         pair tuple<int, text>, v vector<float, 2>, of_day time, code ascii, \
         PRIMARY KEY (\"Id\", at))"
    ));
    let columns = "(id STRING, at TIMESTAMP, n INT, price DECIMAL(10,2), x DOUBLE, flag BOOLEAN, \
                   raw BINARY, day DATE, address STRING, words ARRAY<STRING>, \
                   sizes MAP<STRING, INT>, home STRUCT<City: STRING, numbers: ARRAY<INT>>, \
                   pair STRUCT<a: INT, b: STRING>)";
    let row = "{\"id\":\"f47ac10b-58cc-4372-a567-0e02b2c3d479\",\
               \"at\":\"2026-01-01T10:15:00.123456Z\",\"n\":-7,\"price\":12.34,\"x\":0.5,\
               \"flag\":true,\"raw\":\"AP8=\",\"day\":\"1969-12-31\",\
               \"address\":\"10.0.0.1\",\"words\":[\"b\",\"a\",\"b\"],\"sizes\":{\"k\":1},\
               \"home\":{\"City\":\"Bern\",\"numbers\":[1,2]},\"pair\":{\"a\":1}}\n";
    let select = "id, at, CAST(n AS TINYINT) AS tiny, CAST(n AS SMALLINT) AS small, n AS i, \
                  n AS big, price, CAST(x AS FLOAT) AS f, x AS d, flag, raw, day, address, words, \
                  sizes, home, pair, array(CAST(x AS FLOAT), CAST(1 AS FLOAT)) AS v, \
                  1000000000 * 60 AS of_day, 'x' AS code";
    let select = &select.replace("1000000000 * 60", "CAST(60000000000 AS BIGINT)");
    written(server, &keyspace, (columns, row), select, &[]).expect_success();
    let found = server.ask(&format!(
        "SELECT \"Id\", at, tiny, small, i, big, price, f, d, flag, raw, day, address, words, \
         sizes, home, pair, v, of_day, code FROM {keyspace}.target"
    ));
    let wanted = json!([
        "f47ac10b-58cc-4372-a567-0e02b2c3d479",
        "2026-01-01 10:15:00.123000",
        -7,
        -7,
        -7,
        -7,
        "12.34",
        0.5,
        0.5,
        true,
        "00ff",
        "1969-12-31",
        "10.0.0.1",
        ["a", "b"],
        [["k", 1]],
        ["Bern", [1, 2]],
        [1, null],
        [0.5, 1.0],
        "00:01:00",
        "x"
    ]);
    let columns: Vec<String> = found[0].as_array().expect("a row").iter().map(plain).collect();
    let wanted: Vec<String> = wanted.as_array().expect("a row").iter().map(plain).collect();
    assert_eq!(columns, wanted);
}

/// Times are shown with more or fewer zeros.
fn plain(value: &Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    match text.contains(':') && text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[test]
fn rows_are_deleted_expire_and_keep_what_is_not_written() {
    let server = shared();
    let keyspace = keyspace(server);
    server.ask(&format!(
        "CREATE TABLE {keyspace}.target (part int, id int, a text, b text, other text, \
         PRIMARY KEY (part, id))"
    ));
    let reset = || {
        server.ask(&format!("TRUNCATE {keyspace}.target"));
        for id in 1..=3 {
            server.ask(&format!(
                "INSERT INTO {keyspace}.target (part, id, a, b, other) \
                 VALUES (1, {id}, 'a', 'b', 'kept')"
            ));
        }
    };
    let write = |rows: &str, more: &[(&str, &str)]| {
        let columns = "(part INT, id INT, a STRING, b STRING, op STRING)";
        let select = match more.iter().any(|(key, _)| *key == "delete.column") {
            true => "part, id, a, b, op = 'd' AS gone",
            false => "part, id, a, b",
        };
        written(server, &keyspace, (columns, rows), select, more).expect_success();
        server.ask(&format!("SELECT id, a, b, other FROM {keyspace}.target"))
    };
    let line = |id, rest: &str| format!("{{\"part\":1,\"id\":{id}{rest}}}\n");
    reset();
    let found = write(&line(1, ",\"a\":\"x\""), &[]);
    assert_eq!(found[0], json!([1, "x", null, "kept"]), "a NULL removes its column only");
    reset();
    let ignoring = [("spark.cassandra.output.ignoreNulls", "true")];
    let both = line(1, ",\"a\":\"x\"") + &line(1, ",\"b\":\"y\"") + &line(2, ",\"a\":\"z\"");
    let found = write(&both, &ignoring);
    assert_eq!(found[..2], [json!([1, "x", "y", "kept"]), json!([2, "z", "b", "kept"])]);
    reset();
    let deleting = [("delete.column", "gone")];
    let rows = line(1, ",\"op\":\"d\"")
        + &line(2, ",\"op\":\"d\"")
        + &line(2, ",\"a\":\"new\",\"op\":\"u\"")
        + &line(3, ",\"a\":\"w\"")
        + &line(4, ",\"a\":\"v\",\"op\":\"u\"")
        + &line(4, ",\"op\":\"d\"");
    let found = write(&rows, &deleting);
    assert_eq!(found, [json!([2, "new", null, null]), json!([3, "w", null, "kept"])]);
    reset();
    write(&line(1, ",\"a\":\"x\""), &[("spark.cassandra.output.ttl", "1000")]);
    let left =
        server.ask(&format!("SELECT TTL(a) FROM {keyspace}.target WHERE part = 1 AND id = 1"));
    assert!(
        left[0][0].as_i64().is_some_and(|seconds| (900..=1_000).contains(&seconds)),
        "{left:?}"
    );
    // Many rows of one partition, in batches and one by one.
    for grouping in ["partition", "none"] {
        server.ask(&format!("TRUNCATE {keyspace}.target"));
        let rows: String = (0..3_000).map(|id| line(id, ",\"a\":\"x\"")).collect();
        let key = "spark.cassandra.output.batch.grouping.key";
        assert_eq!(write(&rows, &[(key, grouping)]).len(), 3_000);
    }
}

#[test]
fn tables_that_do_not_fit_are_refused_with_the_column() {
    let server = shared();
    let keyspace = keyspace(server);
    for (name, columns) in [
        ("counted", "id int PRIMARY KEY, n counter"),
        ("listed", "id int PRIMARY KEY, n list<int>"),
        ("shared", "id int, ck int, n int static, PRIMARY KEY (id, ck)"),
        ("keyed", "id int, ck int, n int, PRIMARY KEY (id, ck)"),
        ("short", "id int PRIMARY KEY, n smallint"),
        ("plain", "id int PRIMARY KEY, m int"),
    ] {
        server.ask(&format!("CREATE TABLE {keyspace}.{name} ({columns})"));
    }
    server.ask(&format!(
        "CREATE MATERIALIZED VIEW {keyspace}.viewed AS SELECT * FROM {keyspace}.plain \
         WHERE id IS NOT NULL AND m IS NOT NULL PRIMARY KEY (m, id)"
    ));
    let check = |name: &str, select: &str, words: &[&str]| {
        let rows = ("(id INT, n INT, l ARRAY<INT>)", "{\"id\":1,\"n\":2,\"l\":[3]}\n");
        let refused = written(server, &keyspace, rows, select, &[("table", name)]).says(words);
        assert!(!refused.without_internals().status.success());
    };
    check("counted", "id, CAST(n AS BIGINT) AS n", &["column n", "is a counter", "GROUP BY"]);
    check("listed", "id, l AS n", &["column n", "write them twice", "frozen<list<int>>"]);
    check("shared", "id, 1 AS ck, n", &["column n", "is static"]);
    check("keyed", "id, n", &["column ck", "part of the table's key (id, ck)"]);
    check("short", "id, n", &["column n", "INT in the query and smallint", "AS SMALLINT"]);
    check("plain", "id, n", &["column n", "no such column", "id, m"]);
    check("viewed", "id, n AS m", &["is a materialized view", "use plain"]);
    check("Plain", "id, n AS m", &["has no table 'Plain'", "counted, keyed, listed, plain"]);
    let missing = ("(id INT)", "{\"id\":1}\n");
    written(server, "nowhere", missing, "id", &[]).says(&["has no keyspace 'nowhere'"]);
    let no_key = ("(id INT, m INT)", "{\"m\":1}\n");
    written(server, &keyspace, no_key, "id, m", &[("table", "plain")])
        .says(&["id is NULL", "IS NOT NULL"]);
    let dc = [("table", "plain"), ("spark.cassandra.connection.localDC", "dc9")];
    written(server, &keyspace, no_key, "id, m", &dc).says(&["'dc9'", "datacenter1"]);
}

#[test]
fn what_is_refused_would_have_been_wrong() {
    // Cassandra itself: the reasons for two refusals, and for one row to a key.
    let server = shared();
    let keyspace = keyspace(server);
    server
        .ask(&format!("CREATE TABLE {keyspace}.t (id int PRIMARY KEY, l list<int>, a int, b int)"));
    for _ in 0..2 {
        server
            .ask(&format!("INSERT INTO {keyspace}.t (id, l) VALUES (1, [7]) USING TIMESTAMP 1000"));
    }
    let found = server.ask(&format!("SELECT l FROM {keyspace}.t"));
    assert_eq!(found, [json!([[7, 7]])], "a list is doubled by a repeated write");
    for (a, b) in [(1, 9), (2, 8)] {
        let values = format!("VALUES (2, {a}, {b}) USING TIMESTAMP 1000");
        server.ask(&format!("INSERT INTO {keyspace}.t (id, a, b) {values}"));
    }
    let found = server.ask(&format!("SELECT a, b FROM {keyspace}.t WHERE id = 2"));
    assert_eq!(found, [json!([2, 9])], "rows with one time are mixed");
}

#[test]
fn what_is_wrong_is_found_before_anything_is_touched() {
    let check = |options: &[(&str, &str)], words: &[&str]| {
        let pipeline = Pipeline::new(&format!(
            "{}{}INSERT INTO target SELECT * FROM STREAM source;\n",
            table("source", "", "rate", &[]),
            table("target", "", "cassandra", options),
        ));
        let validated = pipeline.bare_command(&["validate", "pipeline.sql"]);
        let refused = pipeline.spawn(validated).wait(wait::SOON).says(words);
        assert!(!refused.status.success());
    };
    let keyspace = ("keyspace", "k");
    check(&[], &["'keyspace' is missing"]);
    check(&[keyspace, ("spark.cassandra.output.ifNotExists", "true")], &["repeated micro-batch"]);
    check(&[keyspace, ("spark.cassandra.output.consistency.level", "X")], &["LOCAL_QUORUM"]);
    check(&[keyspace, ("delete.column", "value")], &["'value' is not BOOLEAN"]);
    check(&[keyspace, ("spark.cassandra.connection.host", "u:pl4nted@x")], &["names or addresses"]);
    check(&[keyspace, ("spark.cassandra.connection.hosts", "x")], &["hosts"]);
}

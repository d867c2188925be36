//! Exactly once into Redis and Valkey, counted by `redis-cli`.
//!
//! The source is `rate`, whose rows are numbered from 0 on: a list in Redis has to hold just these
//! numbers, in order. `MILLSTREAM_KILLS` says how often a process is ended at each step, and ten
//! times as often at random moments.

use std::time::Duration;

use millstream_testkit::certificates::Authority;
use millstream_testkit::passage::Passage;
use millstream_testkit::redis::{Cluster, Kind, Redis};

use crate::live::{crashing_at, kills, occurrences, some_time};
use crate::millstream::{Finished, Pipeline, Running, table};
use crate::wait;

/// Steps of a micro-batch that is one script.
const STEPS: [&str; 9] = [
    "after-take",
    "after-run",
    "before-begin",
    "before-commit",
    "after-commit",
    "before-intent",
    "after-intent",
    "before-commit-entry",
    "after-commit-entry",
];
/// Steps that a micro-batch of several pieces has besides.
pub const STAGED_STEPS: [&str; 3] = ["after-produce", "rows-staged", "rows-half-applied"];

/// A flow of numbers into a list.
struct Listed<'a> {
    redis: &'a Redis,
    pipeline: Pipeline,
}

impl<'a> Listed<'a> {
    /// So many rows a second, micro-batches so far apart.
    fn new(redis: &'a Redis, rows: &str, trigger: &str, more: &[(&str, &str)]) -> Self {
        Self::through(&redis.port().to_string(), redis, (rows, trigger), more)
    }

    /// The same, with the server behind another port.
    fn through(
        port: &str,
        redis: &'a Redis,
        (rows, trigger): (&str, &str),
        more: &[(&str, &str)],
    ) -> Self {
        let options: [(&str, &str); 4] =
            [("port", port), ("model", "list"), ("table", "numbers"), ("trigger", trigger)];
        let pipeline = Pipeline::new(&format!(
            "{}{}CREATE FLOW listed AS INSERT INTO target SELECT value FROM STREAM source;\n",
            table("source", "", "rate", &[("rowsPerSecond", rows)]),
            table("target", "", "redis", &[&options, more].concat()),
        ));
        Self { redis, pipeline }
    }

    fn small(redis: &'a Redis) -> Self {
        Self::new(redis, "2000", "1 millisecond", &[])
    }

    fn length(&self) -> u64 {
        self.redis.ask(&["LLEN", "numbers"]).parse().unwrap_or(0)
    }

    fn wait_for_more(&self, running: &mut Running) {
        let before = self.length();
        running.wait_while_running("more rows", || self.length() > before);
    }

    fn kill_at_random(&self, rounds: u64) {
        for round in 0..rounds {
            let mut running = self.pipeline.start(&[]);
            self.wait_for_more(&mut running);
            some_time(round, 100);
            running.kill();
        }
    }

    fn crash_at_steps(&self, steps: &[&str], occurrences: &[u64]) {
        for step in steps {
            for nth in occurrences {
                crashing_at(&self.pipeline, step, *nth).wait(wait::SOON).expect_crash(step);
            }
        }
    }

    /// Runs what is left, and compares the list with the numbers that were read.
    fn assert_exactly_once(&self) {
        let running = self.pipeline.start(&[]);
        let mut running = running;
        self.wait_for_more(&mut running);
        running.stop().expect_success();
        self.assert_numbers();
        let checkpoint = self.pipeline.checkpoint();
        checkpoint.assert_entries_well_formed(1);
        let last = checkpoint.latest("commits");
        assert_eq!(checkpoint.latest("offsets"), last, "every micro-batch is committed");
        let ended = format!("{{\"rows\":{}}}", self.length());
        let entry = self.pipeline.path(&format!("checkpoint/offsets/{last}"));
        let entry = std::fs::read_to_string(entry).expect("it is there");
        assert!(entry.contains(&ended), "{ended} is not in {entry}");
        assert_eq!(self.redis.ask(&["KEYS", "millstream:staged:*"]), "", "pieces are left");
    }

    fn assert_numbers(&self) {
        let found = self.redis.lines(&["LRANGE", "numbers", "0", "-1"]);
        assert!(!found.is_empty(), "the list is empty");
        for (at, number) in found.iter().enumerate() {
            assert_eq!(number.parse::<usize>(), Ok(at), "the list goes wrong at {at}");
        }
    }
}

fn run_briefly(listed: &Listed<'_>) {
    let mut running = listed.pipeline.start(&[]);
    listed.wait_for_more(&mut running);
    running.stop().expect_success();
}

#[test]
fn a_crash_at_any_step_loses_and_doubles_nothing() {
    let redis = Redis::start();
    let listed = Listed::small(&redis);
    listed.crash_at_steps(&STEPS, &occurrences(12));
    listed.assert_exactly_once();
}

#[test]
fn a_crash_at_any_step_of_a_large_micro_batch_loses_and_doubles_nothing() {
    let redis = Redis::start();
    let listed = Listed::new(&redis, "50000", "100 milliseconds", &[]);
    listed.crash_at_steps(&[&STEPS[..], &STAGED_STEPS].concat(), &occurrences(3));
    listed.assert_exactly_once();
}

#[test]
fn kills_at_random_moments_lose_and_double_nothing() {
    for kind in [Kind::Redis, Kind::Redis6, Kind::Valkey] {
        let redis = Redis::start_with(kind, &[]);
        let small = Listed::small(&redis);
        small.kill_at_random(10 * kills(1) / 3);
        small.assert_exactly_once();
        redis.ask(&["FLUSHALL"]);
        let large = Listed::new(&redis, "50000", "100 milliseconds", &[]);
        large.kill_at_random(10 * kills(1) / 3);
        large.assert_exactly_once();
    }
}

#[test]
fn kills_with_asynchronous_tracking_lose_and_double_nothing() {
    let redis = Redis::start();
    let listed = Listed::new(&redis, "2000", "1 millisecond", &crate::live::ASYNC);
    listed.kill_at_random(10 * kills(1) / 2);
    let mut running = listed.pipeline.start(&[]);
    listed.wait_for_more(&mut running);
    running.stop().expect_success();
    listed.assert_numbers();
}

#[test]
fn a_server_that_stands_still_is_waited_for() {
    let redis = Redis::start();
    let listed = Listed::new(&redis, "2000", "1 millisecond", &[("timeout", "1000")]);
    let mut running = listed.pipeline.start(&[]);
    listed.wait_for_more(&mut running);
    redis.pause();
    wait::pause(Duration::from_secs(20));
    assert!(running.is_running());
    redis.go_on();
    listed.wait_for_more(&mut running);
    running.stop().expect_success();
    listed.assert_numbers();
}

#[test]
fn answers_that_are_late_lose_and_double_nothing() {
    let redis = Redis::start();
    let passage = Passage::start(&format!("127.0.0.1:{}", redis.port()));
    let port = passage.port().to_string();
    let flow = ("2000", "1 millisecond");
    let listed = Listed::through(&port, &redis, flow, &[("timeout", "1000")]);
    let mut running = listed.pipeline.start(&[]);
    for _ in 0..kills(3) {
        listed.wait_for_more(&mut running);
        passage.answer_late(Duration::from_millis(300));
        listed.wait_for_more(&mut running);
        // Later than it is waited for: what was done is asked for again.
        passage.answer_late(Duration::from_millis(1500));
        wait::pause(Duration::from_secs(5));
        passage.answer_late(Duration::ZERO);
    }
    listed.wait_for_more(&mut running);
    running.stop().expect_success();
    listed.assert_numbers();
}

#[test]
fn a_server_that_restarts_with_its_data_is_waited_for() {
    let redis = Redis::start_with(Kind::Redis, &["--appendonly", "yes", "--appendfsync", "always"]);
    let listed = Listed::new(&redis, "5000", "1 millisecond", &[]);
    let mut running = listed.pipeline.start(&[]);
    for _ in 0..kills(5) {
        listed.wait_for_more(&mut running);
        redis.kill();
        wait::pause(Duration::from_millis(200));
        redis.restart();
    }
    listed.wait_for_more(&mut running);
    running.stop().expect_success();
    listed.assert_numbers();
}

#[test]
fn a_server_that_restarts_empty_is_reported() {
    let redis = Redis::start();
    let listed = Listed::small(&redis);
    let mut running = listed.pipeline.start(&[]);
    listed.wait_for_more(&mut running);
    redis.kill();
    redis.restart();
    let words = ["had acknowledged micro-batch", "failOnDataLoss"];
    let failed = |finished: Finished| assert!(!finished.says(&words).status.success());
    failed(running.wait(wait::SOON));
    // So is one that is found empty by a later run.
    failed(listed.pipeline.run(&[]));
    let go_on = listed.pipeline.start(&["--set", "target.failOnDataLoss=false"]);
    let mut go_on = go_on;
    go_on.wait_while_running("rows", || listed.length() > 0);
    go_on.stop().expect_success().says(&["going on"]);
    let found = redis.lines(&["LRANGE", "numbers", "0", "-1"]);
    let numbers: Vec<u64> = found.iter().map(|number| number.parse().expect("one")).collect();
    assert!(numbers[0] > 0, "rows that were acknowledged are not read again");
    assert!(numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]), "the rest is whole");
}

#[test]
fn a_full_server_is_waited_for() {
    for kind in [Kind::Redis, Kind::Redis6, Kind::Valkey] {
        let redis = Redis::start_with(kind, &[]);
        let listed = Listed::new(&redis, "20000", "50 milliseconds", &[]);
        let mut running = listed.pipeline.start(&[]);
        listed.wait_for_more(&mut running);
        assert_eq!(redis.ask(&["CONFIG", "SET", "maxmemory", "1"]), "OK");
        wait::pause(Duration::from_secs(2));
        let length = listed.length();
        wait::pause(Duration::from_secs(1));
        assert_eq!(listed.length(), length, "a full server takes nothing");
        assert_eq!(redis.ask(&["CONFIG", "SET", "maxmemory", "0"]), "OK");
        listed.wait_for_more(&mut running);
        running.stop().expect_success();
        listed.assert_numbers();
    }
}

#[test]
fn a_replica_that_takes_over_is_written_to() {
    let redis = Redis::start();
    let other = Redis::start();
    let (port, other_port) = (redis.port().to_string(), other.port().to_string());
    let is_replica = |of: &Redis| of.ask(&["INFO", "replication"]).contains("link_status:up");
    let become_replica = |of: &Redis, port: &str| {
        assert_eq!(of.ask(&["REPLICAOF", "127.0.0.1", port]), "OK");
        wait::until_true("the replica", wait::SOON, || is_replica(of));
    };
    let listed = Listed::new(&redis, "2000", "1 millisecond", &[("wait.replicas", "1")]);
    become_replica(&other, &port);
    let mut running = listed.pipeline.start(&[]);
    for _ in 0..3 {
        listed.wait_for_more(&mut running);
        // The replica takes over, and the server that is written to becomes its replica.
        other.ask(&["REPLICAOF", "NO", "ONE"]);
        become_replica(&redis, &other_port);
        wait::pause(Duration::from_millis(500));
        redis.ask(&["REPLICAOF", "NO", "ONE"]);
        become_replica(&other, &port);
    }
    listed.wait_for_more(&mut running);
    running.stop().expect_success();
    listed.assert_numbers();
    // A replica that is the only server is reported.
    redis.ask(&["REPLICAOF", "127.0.0.1", &other_port]);
    let refused = listed.pipeline.run(&[]);
    assert!(!refused.says(&["read only replica"]).status.success());
}

#[test]
fn a_second_instance_takes_over_and_the_first_says_so() {
    let redis = Redis::start();
    let listed = Listed::small(&redis);
    run_briefly(&listed);
    let mut first = listed.pipeline.start(&[]);
    listed.wait_for_more(&mut first);
    // Another machine with a copy of the checkpoint: here, without the lock.
    let copy = listed.pipeline.path("copy");
    // Files are not copied at one moment, so that a copy of what changes may be damaged.
    first.pause();
    copy_directory(&listed.pipeline.path("checkpoint"), &copy);
    first.go_on();
    let mut command = listed.pipeline.bare_command(&["run", "pipeline.sql"]);
    command.args(["--checkpoint", "copy"]);
    let mut second = listed.pipeline.spawn(command);
    first.wait(wait::SOON).says(&["another instance of this query"]);
    listed.wait_for_more(&mut second);
    second.stop().expect_success();
    listed.assert_numbers();
}

fn copy_directory(from: &std::path::Path, to: &std::path::Path) {
    let copied = std::process::Command::new("cp").arg("-r").arg(from).arg(to).status();
    assert!(copied.expect("cp is there").success());
}

#[test]
fn passwords_are_checked_and_not_shown() {
    let redis = Redis::start();
    for command in [
        &["ACL", "SETUSER", "writer", "on", ">pl4nted-one", "~*", "&*", "+@all"][..],
        &["CONFIG", "SET", "requirepass", "admin"],
    ] {
        assert_eq!(redis.ask(command), "OK");
    }
    redis.log_in(&["-a", "admin", "--no-auth-warning"]);
    let login = |user: &'static str, password: &'static str| [("user", user), ("auth", password)];
    let wrong = Listed::new(&redis, "2000", "1 millisecond", &login("writer", "pl4nted-two"));
    let refused = wrong.pipeline.run(&[]);
    assert!(!refused.says(&["authentication failed"]).says_not(&["pl4nted"]).status.success());
    let nobody = Listed::new(&redis, "2000", "1 millisecond", &[]);
    assert!(!nobody.pipeline.run(&[]).says(&["NOAUTH"]).status.success());
    let right = Listed::new(&redis, "2000", "1 millisecond", &login("writer", "pl4nted-one"));
    run_briefly(&right);
    right.assert_numbers();
    // A user that may not write these keys.
    redis.ask(&["ACL", "SETUSER", "writer", "resetkeys", "~millstream:*"]);
    let refused = right.pipeline.run(&[]);
    assert!(!refused.says(&["refuses"]).says_not(&["pl4nted"]).status.success());
}

#[test]
fn a_connection_may_have_tls() {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let files = Authority::new(directory.path()).unwrap().issue("IP:127.0.0.1").unwrap();
    let [cert, key, ca] =
        [&files.cert, &files.key, &files.ca].map(|path| path.to_str().expect("plain").to_owned());
    let settings = [
        "--tls-port",
        "PORT",
        "--tls-cert-file",
        &cert,
        "--tls-key-file",
        &key,
        "--tls-ca-cert-file",
        &ca,
        "--user",
        "default",
        "off",
        "--user",
        "app",
        "on",
        ">pl4nted",
        "~*",
        "&*",
        "+@all",
    ];
    let login = ["--tls", "--cacert", &ca, "--cert", &cert, "--key", &key, "--user", "app"];
    let login = [&login[..], &["-a", "pl4nted", "--no-auth-warning"]].concat();
    let redis = Redis::start_with_login(Kind::Redis, &settings, &login);
    let url = format!("rediss://app:pl4nted@127.0.0.1:{}/0", redis.port());
    let sql = |ca: &str| {
        let options = [
            ("url", &*url),
            ("model", "list"),
            ("ssl.ca.location", ca),
            ("ssl.certificate.location", &cert),
            ("ssl.key.location", &key),
        ];
        format!(
            "{}{}INSERT INTO numbers SELECT value FROM STREAM source;\n",
            table("source", "", "rate", &[("rowsPerSecond", "1000")]),
            table("numbers", "", "redis", &options),
        )
    };
    let listed = Listed { redis: &redis, pipeline: Pipeline::new(&sql(&ca)) };
    run_briefly(&listed);
    listed.assert_numbers();
    let other = Authority::new(&directory.path().join("other")).unwrap();
    let other = other.issue("IP:127.0.0.1").unwrap();
    let stranger = Pipeline::new(&sql(other.ca.to_str().expect("plain")));
    let refused = stranger.run(&[]).says_not(&["pl4nted"]);
    assert!(!refused.says(&["certificate"]).status.success());
}

/// Runs a query over two rows into a table with these options.
fn written(redis: &Redis, options: &[(&str, &str)]) -> Finished {
    let port = redis.port().to_string();
    let options = [&[("port", &*port)], options].concat();
    let pipeline = Pipeline::new(&format!(
        "{}{}INSERT INTO target SELECT id, name, size, raw FROM source;\n",
        table(
            "source",
            "(id INT, name STRING, size DOUBLE, raw BINARY)",
            "json",
            &[("path", "in")]
        ),
        table("target", "", "redis", &options),
    ));
    std::fs::create_dir(pipeline.path("in")).expect("it can be made");
    let rows = "{\"id\":1,\"name\":\"a:b\",\"size\":0.5,\"raw\":\"AP8=\"}\n{\"id\":2,\"size\":1}\n";
    std::fs::write(pipeline.path("in/rows.json"), rows).expect("it is writable");
    pipeline.run(&[])
}

#[test]
fn each_model_has_its_form() {
    let redis = Redis::start();
    redis.ask(&["HSET", "target:2", "name", "old", "other", "kept"]);
    written(&redis, &[("key.column", "id"), ("ttl", "100")]).expect_success();
    let hash = redis.lines(&["HGETALL", "target:1"]);
    assert_eq!(hash[..4], ["name", "a:b", "size", "0.5"]);
    let hash = redis.lines(&["HGETALL", "target:2"]);
    assert_eq!(hash, ["other", "kept", "size", "1.0"], "a NULL removes its field only");
    assert_eq!(redis.ask(&["HSTRLEN", "target:1", "raw"]), "2", "BINARY is bytes");
    assert!(redis.ask(&["TTL", "target:1"]).parse::<i64>().expect("a number") > 90);

    written(&redis, &[("model", "json"), ("key.column", "id,name"), ("table", "doc")])
        .says(&["no key: name is NULL"]);
    written(&redis, &[("model", "json"), ("key.column", "id"), ("table", "doc")]).expect_success();
    let json = "{\"name\":\"a:b\",\"size\":0.5,\"raw\":\"AP8=\"}";
    assert_eq!(redis.ask(&["GET", "doc:1"]), json);
    let one = [("model", "set"), ("table", "all")];
    written(&redis, &one).expect_success();
    assert_eq!(redis.ask(&["SCARD", "all"]), "2");
    written(&redis, &one).expect_success();
    assert_eq!(redis.ask(&["SCARD", "all"]), "2");
    written(&redis, &[("model", "stream"), ("key.column", "id"), ("table", "log")])
        .expect_success();
    assert_eq!(redis.ask(&["XLEN", "log:1"]), "1");
    assert_eq!(redis.lines(&["XRANGE", "log:2", "-", "+"])[1..], ["size", "1.0"]);
    written(&redis, &[("model", "publish"), ("table", "channel")]).expect_success();

    // A key of another type is found before anything is written.
    let refused = written(&redis, &[("model", "list"), ("table", "all")]);
    refused.says(&["the key 'all' holds a set, and 'target' writes a list"]);
    assert_eq!(redis.ask(&["KEYS", "millstream:*"]), "", "a query that ran once leaves nothing");
}

#[test]
fn what_is_wrong_is_found_before_anything_is_touched() {
    let check = |options: &[(&str, &str)], words: &[&str]| {
        let pipeline = Pipeline::new(&format!(
            "{}{}INSERT INTO target SELECT * FROM STREAM source;\n",
            table("source", "", "rate", &[]),
            table("target", "", "redis", options),
        ));
        let validated = pipeline.bare_command(&["validate", "pipeline.sql"]);
        let refused = pipeline.spawn(validated).wait(wait::SOON).says(words);
        assert!(!refused.status.success());
    };
    check(&[], &["'key.column' is missing"]);
    check(&[("key.column", "id")], &["no column 'id'", "timestamp, value"]);
    check(&[("key.column", "value"), ("model", "binary")], &["only the JVM reads"]);
    check(&[("key.column", "value,timestamp")], &["all columns belong to the key"]);
    check(&[("model", "list"), ("url", "http://pl4nted@x")], &["'url' should be redis://"]);
    check(&[("model", "list"), ("url", "redis://x"), ("port", "1")], &["both given"]);
    check(&[("model", "list"), ("host", "u:pl4nted@x")], &["'host' should be the name"]);
    check(&[("model", "list"), ("table", "millstream")], &["another name"]);
    check(&[("model", "list"), ("ttl", "0")], &["1 or more"]);
    check(&[("model", "list"), ("ssl.ca.location", "x")], &["without TLS"]);
    check(&[("model", "list"), ("user", "x")], &["without 'auth'"]);
}

const CLAIM: &str = include_str!("../../crates/millstream-connectors/src/redis/scripts/claim.lua");
const COMMIT: &str =
    include_str!("../../crates/millstream-connectors/src/redis/scripts/commit.lua");
const NEXT: &str = include_str!("../../crates/millstream-connectors/src/redis/scripts/next.lua");
const ROWS: &str = include_str!("../../crates/millstream-connectors/src/redis/scripts/rows.lua");

#[test]
fn a_claim_that_comes_late_changes_nothing() {
    let redis = Redis::start();
    let claim =
        |token, found| redis.lines(&["EVAL", CLAIM, "2", "progress", "staged", "q", token, found]);
    assert_eq!(claim("a", "")[..2], ["ok", "1-a"]);
    redis.ask(&["RPUSH", "staged", "1-a 7"]);
    assert_eq!(claim("a", "")[..2], ["ok", "1-a"]);
    assert_eq!(redis.ask(&["LLEN", "staged"]), "1", "its pieces stay");
    assert_eq!(claim("b", "1-a")[..2], ["ok", "2-b"]);
    assert_eq!(redis.ask(&["EXISTS", "staged"]), "0", "those of another run go");
    redis.ask(&["RPUSH", "staged", "2-b 8"]);
    assert_eq!(claim("a", ""), ["claim", "2-b"], "a later run has the query");
    assert_eq!(claim("b", "1-a")[..2], ["ok", "2-b"]);
    assert_eq!(redis.ask(&["LLEN", "staged"]), "1", "nor do its pieces go");
    assert_eq!(claim("c", "2-b")[..2], ["ok", "3-c"]);
}

#[test]
fn a_micro_batch_counts_as_published_once_all_of_it_is_applied() {
    let redis = Redis::start();
    let script = format!("{ROWS}\n{COMMIT}");
    let commit = || {
        let arguments = ["q", "1-a", "7", "8", "1-a 8", "1", "record"];
        redis.lines(&[&["EVAL", &script, "2", "progress", "staged"], &arguments[..]].concat())
    };
    // What a replica that took over may have: all pieces, and not the decision.
    redis.ask(&["HSET", "progress", "q:claim", "1-a", "q:batch", "7"]);
    redis.ask(&["RPUSH", "staged", "1-a 8", "piece"]);
    assert_eq!(commit(), ["ok"]);
    assert_eq!(commit(), ["unapplied"], "it is decided, and a piece waits");
    redis.ask(&["HDEL", "progress", "q:staged"]);
    assert_eq!(commit(), ["done"]);
}

#[test]
fn a_piece_that_is_done_is_named_with_its_micro_batch() {
    let redis = Redis::start();
    redis.ask(&["HSET", "progress", "q:claim", "1-a", "q:staged", "8"]);
    redis.ask(&["RPUSH", "staged", "first", "second"]);
    let next = |done| redis.lines(&["EVAL", NEXT, "2", "progress", "staged", "q", "1-a", done]);
    assert_eq!(next(""), ["piece", "8", "0", "first"]);
    assert_eq!(next("7:0"), ["piece", "8", "0", "first"], "a late call removes nothing");
    assert_eq!(next("8:0"), ["piece", "8", "1", "second"]);
    assert_eq!(next("8:0"), ["piece", "8", "1", "second"], "nor does a repeated one");
    assert_eq!(next("8:1"), ["done"]);
    assert_eq!(redis.ask(&["EXISTS", "staged"]), "0");
}

/// Lists of a cluster that numbers are dealt to by turns.
const LISTS: u64 = 50;
/// Rows a second and a trigger, so that a micro-batch has 3,000 rows, enough to be staged. Rows go
/// on to come due while a flow is killed and starts again: a busy machine has to be able to write
/// many more of them in a second, or each start has more to write than the one before.
const STAGED: (&str, &str) = ("10000", "300 milliseconds");

/// A flow of numbers into lists in all slots of a cluster.
struct Dealt {
    cluster: Cluster,
    pipeline: Pipeline,
}

impl Dealt {
    fn new(rows: &str, trigger: &str) -> Self {
        let cluster = Cluster::start();
        let url = format!("redis://127.0.0.1:{}", cluster.port());
        let options = [
            ("url", &*url),
            ("model", "list"),
            ("key.column", "list"),
            ("table", "numbers"),
            ("trigger", trigger),
            ("timeout", "3000"),
        ];
        let pipeline = Pipeline::new(&format!(
            "{}{}CREATE FLOW dealt AS INSERT INTO target \
             SELECT value % {LISTS} AS list, value FROM STREAM source;\n",
            table("source", "", "rate", &[("rowsPerSecond", rows)]),
            table("target", "", "redis", &options),
        ));
        Self { cluster, pipeline }
    }

    fn length(&self, list: u64) -> u64 {
        self.cluster.ask(&["LLEN", &format!("numbers:{list}")]).parse().unwrap_or(0)
    }

    fn wait_for_more(&self, running: &mut Running) {
        let before = self.length(7);
        running.wait_while_running("more rows", || self.length(7) > before);
    }

    fn assert_exactly_once(&self) {
        let mut running = self.pipeline.start(&[]);
        self.wait_for_more(&mut running);
        running.stop().expect_success();
        let mut rows = 0;
        for list in 0..LISTS {
            let key = format!("numbers:{list}");
            let found = self.cluster.ask(&["LRANGE", &key, "0", "-1"]);
            for (at, number) in found.lines().enumerate() {
                let expected = at as u64 * LISTS + list;
                assert_eq!(number.parse(), Ok(expected), "list {list} goes wrong at {at}");
                rows += 1;
            }
        }
        let last = self.pipeline.checkpoint().latest("commits");
        let entry = self.pipeline.path(&format!("checkpoint/offsets/{last}"));
        let entry = std::fs::read_to_string(entry).expect("it is there");
        assert!(entry.contains(&format!("{{\"rows\":{rows}}}")), "{rows} rows, and {entry}");
    }
}

#[test]
fn kills_at_random_moments_lose_and_double_nothing_in_a_cluster() {
    for (rows, trigger) in [("2000", "1 millisecond"), STAGED] {
        let dealt = Dealt::new(rows, trigger);
        for round in 0..10 * kills(1) / 2 {
            let mut running = dealt.pipeline.start(&[]);
            dealt.wait_for_more(&mut running);
            some_time(round, 100);
            running.kill();
        }
        dealt.assert_exactly_once();
    }
}

#[test]
fn a_crash_at_any_step_loses_and_doubles_nothing_in_a_cluster() {
    let dealt = Dealt::new(STAGED.0, STAGED.1);
    for step in [&STEPS[..], &STAGED_STEPS].concat() {
        for nth in occurrences(3) {
            crashing_at(&dealt.pipeline, step, nth).wait(wait::SOON).expect_crash(step);
        }
    }
    dealt.assert_exactly_once();
}

#[test]
fn slots_that_move_and_replicas_that_take_over_lose_and_double_nothing() {
    let dealt = Dealt::new("2000", "1 millisecond");
    let mut running = dealt.pipeline.start(&[]);
    for _ in 0..2 {
        dealt.wait_for_more(&mut running);
        dealt.cluster.move_slots(2_000);
        dealt.wait_for_more(&mut running);
        dealt.cluster.fail_over();
    }
    dealt.wait_for_more(&mut running);
    running.stop().expect_success();
    dealt.assert_exactly_once();
}

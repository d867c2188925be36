//! Streams of Redis as a source: every entry once, whatever is killed, and trimming is noticed.

use std::time::Duration;

use millstream_testkit::redis::{Kind, Redis};

use crate::live::{crashing_at, kills, some_time};
use crate::millstream::{Pipeline, Running, table};
use crate::wait;

/// A flow from two streams into a list.
struct Copied {
    redis: Redis,
    pipeline: Pipeline,
    next: std::cell::Cell<u64>,
}

impl Copied {
    fn new(kind: Kind, more: &[(&str, &str)]) -> Self {
        let redis = Redis::start_with(kind, &[]);
        let port = redis.port().to_string();
        let source = [("port", &*port), ("stream.keys", "a, b"), ("startingOffsets", "earliest")];
        let sink = [("port", &*port), ("model", "list"), ("key.column", "stream")];
        let pipeline = Pipeline::new(&format!(
            "{}{}CREATE FLOW copied AS INSERT INTO target \
             SELECT _key AS stream, n * 1 AS n FROM STREAM source;\n",
            table(
                "source",
                "(_id STRING, _key STRING, n BIGINT)",
                "redis",
                &[&source, more].concat()
            ),
            table("target", "", "redis", &sink),
        ));
        Self { redis, pipeline, next: std::cell::Cell::new(0) }
    }

    /// Adds so many numbers to each stream, with `more` before the id.
    fn add(&self, count: u64, more: &[&str]) {
        let from = self.next.get();
        self.next.set(from + count);
        for number in from..from + count {
            let number = number.to_string();
            for stream in ["a", "b"] {
                let command = [&["XADD", stream], more, &["*", "n", &number, "text", "x"]].concat();
                assert!(self.redis.ask(&command).contains('-'));
            }
        }
    }

    fn length(&self, stream: &str) -> u64 {
        self.redis.ask(&["LLEN", &format!("target:{stream}")]).parse().unwrap_or(0)
    }

    fn wait_for_all(&self, running: &mut Running) {
        let wanted = self.next.get();
        let is_there = || self.length("a") >= wanted && self.length("b") >= wanted;
        running.wait_while_running("all rows", is_there);
    }

    fn assert_exactly_once(&self) {
        for stream in ["a", "b"] {
            let found = self.redis.lines(&["LRANGE", &format!("target:{stream}"), "0", "-1"]);
            assert_eq!(found.len() as u64, self.next.get(), "in {stream}");
            for (at, number) in found.iter().enumerate() {
                assert_eq!(number.parse::<usize>(), Ok(at), "{stream} goes wrong at {at}");
            }
        }
    }
}

#[test]
fn each_entry_is_read_once_wherever_the_process_is_killed() {
    for kind in [Kind::Redis, Kind::Redis6, Kind::Valkey] {
        let copied = Copied::new(kind, &[("stream.read.batch.size", "7")]);
        copied.add(20, &[]);
        for step in ["after-take", "after-commit", "before-commit-entry", "after-intent"] {
            copied.add(20, &[]);
            crashing_at(&copied.pipeline, step, 1).wait(wait::SOON).expect_crash(step);
        }
        for round in 0..kills(3) {
            let running = copied.pipeline.start(&[]);
            copied.add(20, &[]);
            some_time(round, 100);
            running.kill();
        }
        copied.add(20, &[]);
        let mut running = copied.pipeline.start(&[]);
        copied.wait_for_all(&mut running);
        copied.add(20, &[]);
        copied.wait_for_all(&mut running);
        running.stop().expect_success();
        copied.assert_exactly_once();
    }
}

#[test]
fn a_run_that_ends_reads_what_is_there() {
    let copied = Copied::new(Kind::Redis, &[("maxOffsetsPerTrigger", "9")]);
    copied.pipeline.run_available();
    copied.add(50, &[]);
    copied.pipeline.run_available();
    copied.assert_exactly_once();
    let offset =
        std::fs::read_dir(copied.pipeline.path("checkpoint/offsets")).expect("it is there");
    assert!(offset.count() > 3, "micro-batches are bounded");
}

#[test]
fn entries_that_are_trimmed_before_they_are_read_are_reported() {
    for kind in [Kind::Redis, Kind::Valkey] {
        let copied = Copied::new(kind, &[]);
        copied.add(30, &[]);
        copied.pipeline.run_available();
        // What was read may go.
        copied.redis.ask(&["XTRIM", "a", "MAXLEN", "3"]);
        copied.redis.ask(&["XTRIM", "b", "MAXLEN", "0"]);
        copied.add(5, &["MAXLEN", "5"]);
        copied.pipeline.run_available();
        copied.assert_exactly_once();
        copied.add(8, &["MAXLEN", "5"]);
        let refused = copied.pipeline.run(&["--trigger", "availableNow"]);
        assert!(!refused.says(&["'a'", "are gone (3 entries)", "failOnDataLoss"]).status.success());
        let lax = ["--trigger", "availableNow", "--set", "source.failOnDataLoss=false"];
        copied.pipeline.run(&lax).expect_success().says(&["going on"]);
        assert_eq!(copied.length("a"), 40);
        copied.pipeline.run_available();
    }
}

#[test]
fn a_server_that_stands_still_is_read_on_from() {
    let copied = Copied::new(Kind::Redis, &[("timeout", "1000")]);
    copied.add(10, &[]);
    let mut running = copied.pipeline.start(&[]);
    copied.wait_for_all(&mut running);
    copied.redis.pause();
    wait::pause(Duration::from_secs(4));
    copied.redis.go_on();
    copied.add(10, &[]);
    copied.wait_for_all(&mut running);
    running.stop().expect_success();
    copied.assert_exactly_once();
}

#[test]
fn fields_have_the_declared_types() {
    let redis = Redis::start();
    let port = redis.port().to_string();
    let columns = "(_id STRING, n INT, d DOUBLE, t TIMESTAMP, b BOOLEAN, raw BINARY)";
    let source = |mode| {
        let options = [("port", &*port), ("stream.keys", "s"), ("mode", mode)];
        table(
            "source",
            columns,
            "redis",
            &[&options[..], &[("startingOffsets", "earliest")]].concat(),
        )
    };
    let sql = |mode| {
        format!(
            "{}{}INSERT INTO target SELECT * FROM STREAM source;\n",
            source(mode),
            table("target", "", "console", &[]),
        )
    };
    let fields = ["n", "7", "d", "0.5", "t", "2026-01-01T10:15:00Z", "b", "true", "raw", "xyz"];
    redis.ask(&[&["XADD", "s", "1-1"], &fields[..]].concat());
    redis.ask(&["XADD", "s", "2-0", "n", "seven"]);
    let pipeline = Pipeline::new(&sql("PERMISSIVE"));
    let shown = pipeline.run_available().stdout;
    for word in ["1-1", "2-0", "0.5", "2026-01-01 10:15:00", "true"] {
        assert!(shown.contains(word), "no {word} in {shown}");
    }
    let strict = Pipeline::new(&sql("FAILFAST"));
    let words = ["entry 2-0 of the stream 's'", "'n' is not a INT"];
    assert!(!strict.run(&["--trigger", "availableNow"]).says(&words).status.success());
    let options = [("port", &*port), ("stream.keys", "s"), ("startingOffsets", "earliest")];
    let failing = Pipeline::new(&format!(
        "{}{}INSERT INTO target SELECT CAST(n AS INT) AS n FROM STREAM source;\n",
        table("source", "(n STRING)", "redis", &options),
        table("target", "", "console", &[]),
    ));
    let refused = failing.run(&["--trigger", "availableNow"]);
    assert!(!refused.says(&["redis stream s#2-0"]).status.success(), "the place has the id");
    redis.ask(&["SET", "s", "text"]);
    let other = Pipeline::new(&sql("PERMISSIVE"));
    assert!(!other.run(&[]).says(&["holds a string"]).status.success());
}

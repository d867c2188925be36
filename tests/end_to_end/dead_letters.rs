//! Records that cannot be decoded, and rows that break a constraint: each is once among the dead
//! letters, and each good row once in the output, whatever happens to the process.
//!
//! `MILLSTREAM_KILLS` says how often the process is ended at each step, and ten times as often at
//! random moments.

use std::collections::BTreeSet;
use std::path::Path;

use crate::delta::versions;
use crate::files_and_static::{json_table, put, sorted_lines};
use crate::kafka::{self, Broker};
use crate::live::{Numbers, PARTITIONS, STEPS, crashing_at, kills};
use crate::millstream::{CRASH_AT, Pipeline, Running, table};
use crate::oracle;
use crate::topics::{Received, Record, Topics};
use crate::wait;

/// One record in a hundred cannot be decoded: it ends too soon, or has a text for a number.
fn is_bad(number: &u64) -> bool {
    number % 100 == 37
}

fn record(number: u64) -> String {
    match number {
        bad if is_bad(&bad) && bad % 200 == 37 => format!("{{\"n\":{bad}"),
        bad if is_bad(&bad) => format!("{{\"n\":\"x{bad}\"}}"),
        good => format!("{{\"n\":{good}}}"),
    }
}

/// The same as plain texts, of which the query makes numbers.
fn text(number: u64) -> String {
    if is_bad(&number) { format!("x{number}") } else { number.to_string() }
}

const COMMIT_SOON: (&str, &str) = ("commitInterval", "100ms");

/// Writes a number as a record.
type Written = fn(u64) -> String;

/// A flow of JSON numbers from a topic, with a table for those that are none.
struct Sorted<'a> {
    topics: &'a Topics,
    numbers: Numbers<'a>,
    pipeline: Pipeline,
    /// The topic that is written to: the good ones', or the bad ones'.
    out: String,
    kind: Kind,
    record: Written,
}

/// Where the good and the bad records go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    TopicAndTable,
    TableAndTopic,
    Topics,
}

impl<'a> Sorted<'a> {
    fn new(broker: &'a Broker, name: &str, kind: Kind) -> Self {
        let source = ("(n BIGINT)", "deadLetter", "bad");
        Self::of(broker, name, kind, (record, source, "n"), &[])
    }

    /// Of texts, with those that are no numbers put aside by the query.
    fn computed(broker: &'a Broker, name: &str, kind: Kind) -> Self {
        let source = ("(s STRING)", "value.format", "raw");
        let aside = [("onError", "dead letter"), ("deadLetter", "bad")];
        Self::of(broker, name, kind, (text, source, "CAST(s AS BIGINT)"), &aside)
    }

    fn of(
        broker: &'a Broker,
        name: &str,
        kind: Kind,
        (record, (columns_in, option, value), n): (Written, (&str, &str, &str), &str),
        of_sink: &[(&str, &str)],
    ) -> Self {
        let (topics, out) = (broker.topics(), format!("{name}_out"));
        let numbers = Numbers::written(topics, format!("{name}_in"), record);
        topics.create(&out, PARTITIONS as usize);
        topics.create(&format!("{out}_bad"), PARTITIONS as usize);
        let servers = broker.address();
        let servers = ("kafka.bootstrap.servers", servers.as_str());
        let source = [
            servers,
            ("subscribe", &numbers.topic),
            ("startingOffsets", "earliest"),
            (option, value),
        ];
        let bad_topic = format!("{out}_bad");
        let topic = |name: &str, topic: &str, more: &[(&str, &str)]| {
            let options = [servers, ("topic", topic), ("delivery", "exactly-once")];
            table(name, "", "kafka", &[&options[..], more].concat())
        };
        let delta = |name: &str, more: &[(&str, &str)]| {
            table(name, "", "delta", &[&[("path", name), COMMIT_SOON][..], more].concat())
        };
        let as_value = format!("lpad(CAST({n} AS STRING), 6, '0') AS value");
        let as_id = format!("{n} AS id");
        let good = topic("good", &out, of_sink);
        let (good, bad, columns) = match kind {
            Kind::TopicAndTable => (good, delta("bad", &[]), as_value),
            Kind::TableAndTopic => (delta("good", of_sink), topic("bad", &bad_topic, &[]), as_id),
            Kind::Topics => (good, topic("bad", &bad_topic, &[]), as_value),
        };
        let pipeline = Pipeline::new(&format!(
            "{}{good}{bad}CREATE FLOW sorted AS INSERT INTO good SELECT {columns}\n\
             FROM STREAM source;\n",
            table("source", columns_in, "kafka", &source),
        ));
        Self { topics, numbers, pipeline, out, kind, record }
    }

    fn wait_for_more(&self, running: &mut Running) {
        let written = || match self.kind {
            Kind::TableAndTopic => versions(&self.pipeline.path("good")) as u64,
            Kind::TopicAndTable | Kind::Topics => self.topics.written(&self.out),
        };
        let before = written();
        running.wait_while_running("more good rows", || written() > before);
    }

    /// Runs what is left, and holds both outputs and the logs against what was produced.
    fn assert_exactly_once(&self) {
        self.numbers.run_the_rest(&self.pipeline, "good");
        let produced = self.numbers.produced();
        match self.kind {
            Kind::TableAndTopic => self.assert_good_in_table(produced),
            Kind::TopicAndTable | Kind::Topics => self.assert_good_in_topic(produced),
        }
        let bad = match self.kind {
            Kind::TopicAndTable => letters_in_table(&self.pipeline.path("bad")),
            _ => letters_in_topic(&self.topics.read(&format!("{}_bad", self.out))),
        };
        let expected: Vec<String> = (0..produced).filter(is_bad).map(self.record).collect();
        let mut all: Vec<String> = expected.iter().chain(&expected).cloned().collect();
        all.sort();
        assert_eq!(PARTITIONS, 2, "each record was produced so often");
        assert_eq!(bad.payloads, all, "the dead letters");
        assert_eq!(bad.positions.len(), all.len(), "{:?}", bad.positions);
        self.numbers.assert_logged(&self.pipeline);
    }

    fn assert_good_in_topic(&self, produced: u64) {
        let mut seen: Vec<String> = self.numbers.seen_in(&self.out).concat();
        seen.sort();
        let good = (0..produced).filter(|number| !is_bad(number));
        let expected: Vec<String> =
            good.flat_map(|number| [format!("{number:06}"), format!("{number:06}")]).collect();
        let differs = seen.iter().zip(&expected).position(|(found, wanted)| found != wanted);
        assert_eq!(differs.map(|at| &seen[at.saturating_sub(2)..at + 1]), None);
        assert_eq!(seen.len(), expected.len());
    }

    fn assert_good_in_table(&self, produced: u64) {
        let sql = "SELECT count(*) AS rows, count(DISTINCT id) AS different, \
                   CAST(sum(id) AS BIGINT) AS sum FROM TABLE";
        let found = oracle::light().query(&self.pipeline.path("good"), sql);
        let good = || (0..produced).filter(|number| !is_bad(number));
        let (count, sum) = (good().count() as u64, good().sum::<u64>());
        let facts = ["rows", "different", "sum"].map(|fact| found[fact].as_u64().unwrap());
        assert_eq!(facts, [2 * count, count, 2 * sum]);
    }
}

/// What stands in a table of dead letters.
struct Found {
    /// Sorted.
    payloads: Vec<String>,
    positions: BTreeSet<String>,
}

fn letters_in_table(table: &Path) -> Found {
    let sql = "SELECT string_agg(decode(payload), '\n' ORDER BY decode(payload)) AS payloads, \
               string_agg(position, '\n') AS positions FROM TABLE \
               WHERE source_table = 'source' AND flow_name = 'sorted' AND error <> '' \
               AND constraint_name IS NULL AND topic || '[' || \"partition\" || ']@' || \
               \"offset\" = position";
    let found = oracle::light().query(table, sql);
    let lines = |column: &str| -> Vec<String> {
        found[column].as_str().unwrap_or_default().lines().map(str::to_owned).collect()
    };
    let mut payloads = lines("payloads");
    payloads.sort();
    Found { payloads, positions: lines("positions").into_iter().collect() }
}

fn letters_in_topic(records: &[Received]) -> Found {
    let header = |record: &Received, name: &str| {
        let found = record.headers.iter().find(|(known, _)| known == name);
        let value = found.and_then(|(_, value)| value.clone());
        String::from_utf8(value.unwrap_or_default()).expect("our headers are text")
    };
    assert!(records.iter().all(|record| !header(record, "millstream.error").is_empty()));
    let mut payloads: Vec<_> = records.iter().map(|record| record.value().to_owned()).collect();
    payloads.sort();
    let positions = records.iter().map(|record| header(record, "millstream.position"));
    Found { payloads, positions: positions.collect() }
}

fn kill_at_random_moments(sorted: &Sorted<'_>) {
    let wait_for_more = |running: &mut Running| sorted.wait_for_more(running);
    sorted.numbers.kill_at_random(&sorted.pipeline, kills(1) * 10, wait_for_more);
    sorted.assert_exactly_once();
}

fn crash_at_each_step(sorted: &Sorted<'_>, steps: &[&str]) {
    sorted.numbers.while_producing(|| {
        for step in steps {
            for kill in 0..kills(1) * 2 {
                let nth = 1 + kill * 3 % 10;
                crashing_at(&sorted.pipeline, step, nth).wait(wait::SOON).expect_crash(step);
            }
        }
    });
    sorted.assert_exactly_once();
}

#[test]
fn each_record_is_a_row_or_a_letter() {
    for (name, kind) in [
        ("sorted_plain", Kind::TopicAndTable),
        ("sorted_plain_table", Kind::TableAndTopic),
        ("sorted_plain_topics", Kind::Topics),
    ] {
        let sorted = Sorted::new(kafka::shared(), name, kind);
        sorted.numbers.produce(500);
        sorted.assert_exactly_once();
        sorted.numbers.produce(500);
        sorted.assert_exactly_once();
    }
}

#[test]
fn each_record_is_computed_or_a_letter() {
    for (name, kind) in
        [("computed_plain", Kind::TopicAndTable), ("computed_plain_table", Kind::TableAndTopic)]
    {
        let sorted = Sorted::computed(kafka::shared(), name, kind);
        sorted.numbers.produce(500);
        sorted.assert_exactly_once();
        sorted.numbers.produce(500);
        sorted.assert_exactly_once();
    }
}

#[test]
fn kills_at_random_moments_lose_and_double_nothing_that_is_computed_or_put_aside() {
    let (broker, kind) = (kafka::shared(), Kind::TopicAndTable);
    kill_at_random_moments(&Sorted::computed(broker, "computed_killed", kind));
}

#[test]
fn a_crash_at_any_step_loses_and_doubles_nothing_that_is_computed_or_put_aside() {
    let (broker, kind) = (kafka::shared(), Kind::TableAndTopic);
    crash_at_each_step(&Sorted::computed(broker, "computed_steps", kind), &STEPS);
}

#[test]
fn kills_at_random_moments_lose_and_double_no_letter_in_a_table() {
    let (broker, kind) = (kafka::shared(), Kind::TopicAndTable);
    kill_at_random_moments(&Sorted::new(broker, "sorted_killed", kind));
}

#[test]
fn kills_at_random_moments_lose_and_double_no_letter_in_a_topic() {
    let (broker, kind) = (kafka::shared(), Kind::TableAndTopic);
    kill_at_random_moments(&Sorted::new(broker, "sorted_killed_table", kind));
}

#[test]
fn kills_at_random_moments_lose_and_double_no_letter_where_both_are_topics() {
    let (broker, kind) = (kafka::shared(), Kind::Topics);
    kill_at_random_moments(&Sorted::new(broker, "sorted_killed_topics", kind));
}

#[test]
fn a_crash_at_any_step_loses_and_doubles_no_letter_in_a_table() {
    let (broker, kind) = (kafka::shared(), Kind::TopicAndTable);
    crash_at_each_step(&Sorted::new(broker, "sorted_steps", kind), &STEPS);
}

#[test]
fn a_crash_at_any_step_loses_and_doubles_no_letter_in_a_topic() {
    let (broker, kind) = (kafka::shared(), Kind::TableAndTopic);
    crash_at_each_step(&Sorted::new(broker, "sorted_steps_table", kind), &STEPS);
}

#[test]
fn a_letter_keeps_key_headers_and_time() {
    let broker = kafka::shared();
    let (topics, servers) = (broker.topics(), broker.address());
    topics.create("letters_kept", 1);
    let bad = Record::of("{").key("k").at_ms(1_700_000_000_000).header("h", b"v");
    topics.produce("letters_kept", [bad, Record::of("{\"n\":1}")]);
    let source = [
        ("kafka.bootstrap.servers", servers.as_str()),
        ("subscribe", "letters_kept"),
        ("startingOffsets", "earliest"),
        ("deadLetter", "bad"),
        ("mode", "FAILFAST"),
    ];
    let pipeline = Pipeline::new(&format!(
        "{}{}{}CREATE FLOW kept AS INSERT INTO good SELECT n FROM STREAM source;\n",
        table("source", "(n BIGINT)", "kafka", &source),
        json_table("good", "", "good"),
        table("bad", "", "delta", &[("path", "bad")]),
    ));
    pipeline.run_available().expect_success();
    assert_eq!(sorted_lines(&pipeline.path("good")), [r#"{"n":1}"#]);
    let sql = "SELECT decode(payload) AS payload, decode(key) AS key, attributes['h'] AS h, \
               epoch_ms(record_time) AS at, error FROM TABLE";
    let letter = oracle::light().query(&pipeline.path("bad"), sql);
    assert_eq!((&letter["payload"], &letter["key"]), (&"{".into(), &"k".into()), "{letter}");
    assert!(letter["h"].to_string().contains('v'), "{letter}");
    assert_eq!(letter["at"], 1_700_000_000_000_u64);
    assert!(letter["error"].as_str().unwrap().starts_with("at byte 1"), "{letter}");
}

/// A flow that reads files of `connector` and writes letters to files.
fn files(connector: &str, letters: &str) -> Pipeline {
    let source = [("path", "input"), ("deadLetter", "bad")];
    Pipeline::new(&format!(
        "{}{}{}CREATE FLOW fed AS INSERT INTO good SELECT n, s FROM STREAM source;\n",
        table("source", "(n BIGINT, s STRING)", connector, &source),
        json_table("good", "", "good"),
        json_table("bad", letters, "bad"),
    ))
}

#[test]
fn lines_of_files_are_letters_too() {
    let letters = "(payload STRING, error STRING, position STRING, topic STRING)";
    for (connector, input) in [
        ("json", "{\"n\":1,\"s\":\"a\"}\n{\"n\":1.5}\n\nno json\n{\"n\":2}\n"),
        ("csv", "1,a\nx,b\n\n3\n2,\n"),
    ] {
        let pipeline = files(connector, letters);
        put(&pipeline, "input/first", input);
        pipeline.run_available().expect_success();
        put(&pipeline, "input/second", input);
        pipeline.run_available().expect_success();
        assert_eq!(sorted_lines(&pipeline.path("good")).len(), 4, "{connector}");
        let bad = sorted_lines(&pipeline.path("bad"));
        let at = |place: &str| bad.iter().filter(|line| line.contains(place)).count();
        assert_eq!((bad.len(), at("/input/first:2"), at("/input/second:4")), (4, 1, 1), "{bad:?}");
        assert!(bad.iter().all(|line| line.contains("\"error\"")), "{bad:?}");
        let again = pipeline.run_available();
        assert_eq!(sorted_lines(&pipeline.path("bad")), bad, "{again:?}");
    }
}

#[test]
fn what_is_not_read_is_checked_as_well() {
    let pipeline = Pipeline::new(&format!(
        "{}{}{}CREATE FLOW fed AS INSERT INTO good SELECT s FROM STREAM source;\n",
        table(
            "source",
            "(n BIGINT NOT NULL, s STRING)",
            "json",
            &[("path", "input"), ("deadLetter", "bad")]
        ),
        json_table("good", "", "good"),
        json_table("bad", "(payload STRING)", "bad"),
    ));
    put(
        &pipeline,
        "input/rows",
        "{\"n\":\"no\",\"s\":\"a\"}\n{\"s\":\"b\"}\n{\"n\":1,\"s\":\"c\"}\n",
    );
    pipeline.run_available().expect_success();
    assert_eq!(sorted_lines(&pipeline.path("good")), [r#"{"s":"c"}"#]);
    assert_eq!(sorted_lines(&pipeline.path("bad")).len(), 2);
}

#[test]
fn a_value_that_is_missing_in_a_column_declared_not_null_makes_a_letter_of_csv_too() {
    let source = [("path", "input"), ("deadLetter", "bad")];
    let pipeline = Pipeline::new(&format!(
        "{}{}{}CREATE FLOW fed AS INSERT INTO good SELECT s FROM STREAM source;\n",
        table("source", "(n BIGINT NOT NULL, s STRING)", "csv", &source),
        json_table("good", "", "good"),
        json_table("bad", "(payload STRING, error STRING)", "bad"),
    ));
    put(&pipeline, "input/rows", "1,a\n,b\nx,c\n2,\n");
    pipeline.run_available().expect_success();
    assert_eq!(sorted_lines(&pipeline.path("good")), [r#"{"s":"a"}"#, "{}"]);
    let bad = sorted_lines(&pipeline.path("bad"));
    let says = |words: &[&str]| bad.iter().any(|line| words.iter().all(|word| line.contains(word)));
    assert!(bad.len() == 2 && says(&["\",b\"", "column n, which is NOT NULL"]), "{bad:?}");
}

#[test]
fn progress_tells_of_letters() {
    let pipeline = files("json", "(payload STRING)");
    put(&pipeline, "input/rows", "{\"n\":1}\nbad\n{\"n\":2}\n");
    let finished = pipeline.run(&["--trigger", "availableNow", "--progress", "json"]);
    let progress = finished.expect_success().progress();
    let line = progress.last().expect("there was a micro-batch");
    let rows = |sink: usize| line["sinks"][sink]["numOutputRows"].as_u64();
    assert_eq!((rows(0), rows(1)), (Some(2), Some(1)), "{line}");
    assert_eq!(line["sources"][0]["metrics"]["rowsMalformed"], "1", "{line}");
}

/// A flow over files, with constraints; `bad` is a table for dead letters.
fn constrained(constraints: &str) -> Pipeline {
    let pipeline = Pipeline::new("");
    constrain(&pipeline, constraints, "STREAM");
    put(&pipeline, "input/rows", "{\"n\":1,\"s\":\"a\"}\n{\"n\":2}\n{\"s\":\"c\"}\n");
    pipeline
}

fn constrain(pipeline: &Pipeline, constraints: &str, stream: &str) {
    pipeline.rewrite(&format!(
        "{}{}{}CREATE FLOW checked ({constraints}) AS\n\
         INSERT INTO good SELECT n, upper(s) AS word FROM {stream} source;\n",
        json_table("source", "(n BIGINT, s STRING)", "input"),
        json_table("good", "", "good"),
        json_table("bad", "(payload STRING, error STRING, constraint_name STRING)", "bad"),
    ));
}

#[test]
fn rows_that_break_a_constraint_are_kept_or_dropped_and_counted() {
    let pipeline = constrained(
        "CONSTRAINT named EXPECT (Word IS NOT NULL) ON VIOLATION DROP ROW,\n\
         CONSTRAINT small EXPECT (`N` < 2)",
    );
    let finished = pipeline.run(&["--trigger", "availableNow", "--progress", "json"]);
    let finished = finished.expect_success();
    let good = sorted_lines(&pipeline.path("good"));
    assert_eq!(good, [r#"{"n":1,"word":"A"}"#, r#"{"word":"C"}"#]);
    let line = finished.progress().pop().expect("there was a micro-batch");
    let counts = |index: usize| {
        let counts = &line["constraints"][index];
        (counts["name"].clone(), counts["passed"].clone(), counts["failed"].clone())
    };
    assert_eq!(counts(0), ("named".into(), 2.into(), 1.into()), "{line}");
    // A condition that is null does not hold.
    assert_eq!(counts(1), ("small".into(), 1.into(), 2.into()), "{line}");
    let said = "checked: constraint small: 1 row passed, 2 rows failed";
    assert!(finished.stderr.contains(said), "{}", finished.stderr);
}

#[test]
fn rows_that_break_a_constraint_are_dead_letters_with_the_row_as_json() {
    let pipeline = constrained(
        "CONSTRAINT named EXPECT (word IS NOT NULL) ON VIOLATION DEAD LETTER INTO bad,\n\
         CONSTRAINT small EXPECT (n < 2) ON VIOLATION DEAD LETTER INTO bad",
    );
    for stream in ["STREAM", ""] {
        constrain_again(&pipeline, stream);
        pipeline.run_available().expect_success();
        assert_eq!(sorted_lines(&pipeline.path("good")), [r#"{"n":1,"word":"A"}"#]);
        let bad = sorted_lines(&pipeline.path("bad"));
        assert_eq!(bad.len(), 2, "{bad:?}");
        let has = |words: [&str; 2]| {
            let has_all = |line: &String| words.iter().all(|word| line.contains(word));
            assert!(bad.iter().any(has_all), "{words:?} in {bad:?}");
        };
        has([r#"{\"n\":2}"#, r#""constraint_name":"named""#]);
        has([r#"{\"word\":\"C\"}"#, "constraint small does not hold: n < 2"]);
    }
}

/// The same pipeline from the start, over a stream or over what is there.
fn constrain_again(pipeline: &Pipeline, stream: &str) {
    let text = std::fs::read_to_string(pipeline.path("pipeline.sql")).expect("it is there");
    let text = text.replace("FROM STREAM source", &format!("FROM {stream} source"));
    pipeline.rewrite(&text);
    for directory in ["good", "bad"] {
        let path = pipeline.path(directory);
        if path.exists() {
            std::fs::remove_dir_all(path).expect("it can be removed");
        }
    }
}

#[test]
fn a_row_that_breaks_a_constraint_fails_the_query_before_anything_is_written() {
    let pipeline =
        constrained("CONSTRAINT named EXPECT (word IS NOT NULL) ON VIOLATION FAIL UPDATE");
    let finished = pipeline.run(&["--trigger", "availableNow"]).without_internals();
    finished.expect_exit(1).says(&["constraint named", "word IS NOT NULL", "{\"n\":2}"]);
    assert_eq!(sorted_lines(&pipeline.path("good")), [""; 0]);
    constrain(
        &pipeline,
        "CONSTRAINT named EXPECT (word IS NOT NULL) ON VIOLATION DROP ROW",
        "STREAM",
    );
    pipeline.run_available().expect_success();
    assert_eq!(sorted_lines(&pipeline.path("good")).len(), 2);
}

/// A flow from files to a table whose letters stand in a table; `n` is declared as `n_type`.
fn repaired(pipeline: &Pipeline, n_type: &str) {
    let source = [("path", "input"), ("deadLetter", "bad")];
    pipeline.rewrite(&format!(
        "{}{}{}CREATE FLOW fed AS INSERT INTO good SELECT CAST(n AS STRING) AS n\n\
         FROM STREAM source;\n",
        table("source", &format!("(n {n_type})"), "json", &source),
        table("good", "", "delta", &[("path", "good"), COMMIT_SOON]),
        table("bad", "", "delta", &[("path", "bad"), COMMIT_SOON]),
    ));
}

fn replay(pipeline: &Pipeline, flags: &[&str]) -> Running {
    let arguments = [&["replay", "pipeline.sql", "--from", "bad"], flags].concat();
    pipeline.spawn(pipeline.bare_command(&arguments))
}

fn numbers_in(table: &Path) -> String {
    let sql = "SELECT string_agg(n, ' ' ORDER BY n) AS n FROM TABLE";
    let found = oracle::light().query(table, sql);
    found["n"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn letters_are_replayed_once_when_their_cause_is_repaired() {
    let pipeline = Pipeline::new("");
    repaired(&pipeline, "BIGINT");
    let rows = "{\"n\":1}\n{\"n\":\"two\"}\nno json\n{\"n\":\"four\"}\n{\"n\":5}\n";
    put(&pipeline, "input/rows", rows);
    pipeline.run_available();
    assert_eq!(numbers_in(&pipeline.path("good")), "1 5");
    let replayed = |flags: &[&str], says: &str| {
        let finished = replay(&pipeline, flags).wait(wait::SOON).expect_success();
        assert!(finished.stderr.contains(says), "{}", finished.stderr);
    };
    // Nothing is repaired yet.
    replayed(&[], "fed: 0 letters replayed, 0 replayed before, 3 still malformed");
    repaired(&pipeline, "STRING");
    replayed(&["--dry-run"], "fed: 2 letters to replay, 0 replayed before, 1 still malformed");
    assert_eq!(numbers_in(&pipeline.path("good")), "1 5");
    let second = "position LIKE '%rows:2'";
    replayed(&["--where", second], "fed: 1 letter replayed, 0 replayed before, 0 still");
    assert_eq!(numbers_in(&pipeline.path("good")), "1 5 two");
    replayed(&[], "fed: 1 letter replayed, 1 replayed before, 1 still malformed");
    replayed(&[], "fed: 0 letters replayed, 2 replayed before, 1 still malformed");
    assert_eq!(numbers_in(&pipeline.path("good")), "1 5 four two");
    // The flow itself goes on where it was.
    put(&pipeline, "input/more", "{\"n\":6}\nagain no json\n");
    pipeline.run_available();
    assert_eq!(numbers_in(&pipeline.path("good")), "1 5 6 four two");
    replayed(&[], "fed: 0 letters replayed, 2 replayed before, 2 still malformed");
}

#[test]
fn a_crash_at_any_step_of_a_replay_feeds_each_letter_once() {
    // Once letters are published there is nothing left to crash at.
    for last in ["after-commit", "before-commit-entry"] {
        let pipeline = Pipeline::new("");
        repaired(&pipeline, "BIGINT");
        let text = |number: u64| format!("{{\"n\":\"x{number}\"}}\n");
        put(&pipeline, "input/rows", &(10..20).map(text).collect::<String>());
        pipeline.run_available();
        repaired(&pipeline, "STRING");
        for step in ["after-take", "before-commit", last] {
            let arguments = ["replay", "pipeline.sql", "--from", "bad"];
            let mut command = pipeline.bare_command(&arguments);
            command.env(CRASH_AT, step);
            pipeline.spawn(command).wait(wait::SOON).expect_crash(step);
        }
        replay(&pipeline, &[]).wait(wait::SOON).expect_success();
        let expected: Vec<String> = (10..20).map(|number| format!("x{number}")).collect();
        assert_eq!(numbers_in(&pipeline.path("good")), expected.join(" "), "after {last}");
    }
}

#[test]
fn letters_in_a_topic_are_replayed_into_a_topic() {
    let sorted = Sorted::new(kafka::shared(), "sorted_replayed", Kind::Topics);
    sorted.numbers.produce(400);
    sorted.assert_exactly_once();
    // Half of the letters have a text for a number: that is what the column is from now on.
    let path = sorted.pipeline.path("pipeline.sql");
    let text = std::fs::read_to_string(path).expect("it is there");
    let text = text.replace("(n BIGINT)", "(n STRING)");
    sorted.pipeline.rewrite(&text);
    for (replayed, before) in [("4 letters", 0), ("0 letters", 4)] {
        let finished = replay(&sorted.pipeline, &[]).wait(wait::SOON).expect_success();
        let says = format!("{replayed} replayed, {before} replayed before, 4 still malformed");
        assert!(finished.stderr.contains(&says), "{}", finished.stderr);
    }
    let all: Vec<String> = sorted.numbers.seen_in(&sorted.out).concat();
    let mut replayed: Vec<&String> = all.iter().filter(|value| value.contains('x')).collect();
    replayed.sort();
    assert_eq!(replayed, ["00x137", "00x137", "00x337", "00x337"]);
    assert_eq!(all.len(), 2 * 396 + 4);
}

#[test]
fn what_cannot_be_replayed_is_said() {
    let pipeline = Pipeline::new("");
    repaired(&pipeline, "BIGINT");
    put(&pipeline, "input/rows", "no json\n");
    pipeline.run_available();
    let arguments = |from| ["replay", "pipeline.sql", "--from", from];
    let other = pipeline.spawn(pipeline.bare_command(&arguments("good"))).wait(wait::SOON);
    other.without_internals().expect_exit(2).says(&["'good'", "deadLetter"]);
    let finished = replay(&pipeline, &["--where", "positon = ''"]).wait(wait::SOON);
    finished.without_internals().expect_exit(1).says(&["--where", "positon", "position STRING"]);
}

/// As [`repaired`], with letters in files, and a constraint on the numbers.
fn repaired_from_files(pipeline: &Pipeline, n_type: &str, letters: &str, constraint: &str) {
    let source = [("path", "input"), ("deadLetter", "bad")];
    pipeline.rewrite(&format!(
        "{}{}{}CREATE FLOW fed {constraint} AS INSERT INTO good SELECT CAST(n AS STRING) AS n\n\
         FROM STREAM source;\n",
        table("source", &format!("(n {n_type})"), "json", &source),
        table("good", "", "delta", &[("path", "good"), COMMIT_SOON]),
        json_table("bad", letters, "bad"),
    ));
}

#[test]
fn letters_in_files_are_replayed() {
    for letters in ["", "(Payload STRING, Position STRING)"] {
        let pipeline = Pipeline::new("");
        repaired_from_files(&pipeline, "BIGINT", letters, "");
        put(&pipeline, "input/rows", "{\"n\":1}\n{\"n\":\"two\"}\nno json\n");
        pipeline.run_available();
        repaired_from_files(&pipeline, "STRING", letters, "");
        for says in [
            "1 letter replayed, 0 replayed before, 1 still malformed",
            "0 letters replayed, 1 replayed before, 1 still malformed",
        ] {
            let finished = replay(&pipeline, &[]).wait(wait::SOON).expect_success();
            assert!(finished.stderr.contains(says), "{}", finished.stderr);
        }
        assert_eq!(numbers_in(&pipeline.path("good")), "1 two");
        put(&pipeline, "input/more", "{\"n\":3}\nno json\n");
        pipeline.run_available();
        assert_eq!(sorted_lines(&pipeline.path("bad")).len(), 3, "the flow goes on with them");
    }
}

#[test]
fn a_payload_that_is_not_the_record_is_not_replayed() {
    for (letters, says) in [
        ("(payload STRING, position STRING)", "0 still malformed, 1 left out"),
        ("(payload BINARY, position STRING)", "1 still malformed"),
    ] {
        let pipeline = Pipeline::new("");
        repaired_from_files(&pipeline, "BIGINT", letters, "");
        let rows = b"{\"n\":\"t\xff\"}\n";
        std::fs::create_dir(pipeline.path("input")).expect("the directory is writable");
        std::fs::write(pipeline.path("input/rows"), rows).expect("the directory is writable");
        pipeline.run_available();
        repaired_from_files(&pipeline, "STRING", letters, "");
        let finished = replay(&pipeline, &[]).wait(wait::SOON).expect_success();
        assert!(finished.stderr.contains(says), "{letters}: {}", finished.stderr);
        assert_eq!(numbers_in_or_none(&pipeline.path("good")), "");
    }
}

/// As [`numbers_in`], of a table that may not be there.
fn numbers_in_or_none(table: &Path) -> String {
    if table.exists() && versions(table) > 1 { numbers_in(table) } else { String::new() }
}

#[test]
fn a_letter_that_breaks_a_constraint_is_named_before_any_is_recorded() {
    let pipeline = Pipeline::new("");
    repaired(&pipeline, "BIGINT");
    let rows = "{\"n\":\"one\"}\n{\"n\":\"two\"}\n{\"n\":\"three\"}\n";
    put(&pipeline, "input/rows", rows);
    pipeline.run_available();
    repaired(&pipeline, "STRING");
    let text = std::fs::read_to_string(pipeline.path("pipeline.sql")).expect("it is there");
    let constraint = "(CONSTRAINT known EXPECT (n <> 'two') ON VIOLATION FAIL UPDATE)";
    pipeline.rewrite(&text.replace("FLOW fed", &format!("FLOW fed {constraint}")));
    let refused = replay(&pipeline, &[]).wait(wait::SOON).without_internals().expect_exit(1);
    refused.says(&["input/rows:2", "constraint known", "\"n\":\"two\"", "--where"]);
    let others = ["--where", "position NOT LIKE '%:2'"];
    let finished = replay(&pipeline, &others).wait(wait::SOON).expect_success();
    assert!(finished.stderr.contains("2 letters replayed"), "{}", finished.stderr);
    assert_eq!(numbers_in(&pipeline.path("good")), "one three");
}

/// A flow that counts by seconds, with letters and a constraint.
fn counted(pipeline: &Pipeline, on_violation: &str) {
    let source = [("path", "input"), ("deadLetter", "bad")];
    pipeline.rewrite(&format!(
        "{}{}{}CREATE FLOW counted (CONSTRAINT few EXPECT (rows < 2) ON VIOLATION {on_violation})\n\
         AS INSERT INTO good SELECT unix_seconds(window.start) AS second, count(*) AS rows\n\
         FROM STREAM source WATERMARK ts DELAY OF INTERVAL 0 SECONDS\n\
         GROUP BY window(ts, '1 second');\n",
        table("source", "(ts TIMESTAMP)", "json", &source),
        json_table("good", "", "good"),
        json_table("bad", "", "bad"),
    ));
}

#[test]
fn a_flow_with_state_says_what_helps_after_a_broken_constraint_and_refuses_a_replay() {
    let pipeline = Pipeline::new("");
    counted(&pipeline, "FAIL UPDATE");
    let at = |second: u32| format!("{{\"ts\":\"2026-01-01T00:00:{second:02}Z\"}}\n");
    let rows = [at(1), at(2), at(2), at(9), "no json\n".to_owned()].concat();
    put(&pipeline, "input/rows", &rows);
    for _ in 0..2 {
        let failed = pipeline.run(&["--trigger", "availableNow"]).without_internals();
        failed.expect_exit(1).says(&["constraint few", "state", "to DROP ROW or DEAD LETTER"]);
    }
    counted(&pipeline, "DROP ROW");
    pipeline.run_available().expect_success();
    let good = sorted_lines(&pipeline.path("good"));
    assert_eq!(good.len(), 1, "{good:?}");
    assert_eq!(sorted_lines(&pipeline.path("bad")).len(), 1, "told once");
    let refused = replay(&pipeline, &[]).wait(wait::SOON).without_internals().expect_exit(1);
    refused.says(&["'counted'", "depend on earlier rows", "has no state"]);
}

#[test]
fn a_record_too_large_for_the_topic_of_letters_is_cut_and_stops_nothing() {
    let broker = kafka::shared();
    let (topics, servers) = (broker.topics(), broker.address());
    for topic in ["letters_large", "letters_large_bad", "letters_large_out"] {
        topics.create(topic, 1);
    }
    let large = format!("{{\"n\":\"{}\"}}", "x".repeat(60_000));
    topics.produce("letters_large", [Record::of(large), Record::of("{\"n\":1}")]);
    let servers = ("kafka.bootstrap.servers", servers.as_str());
    let source = [
        servers,
        ("subscribe", "letters_large"),
        ("startingOffsets", "earliest"),
        ("deadLetter", "bad"),
    ];
    let declared = |n_type: &str| {
        format!(
            "{}{}{}CREATE FLOW kept AS INSERT INTO good SELECT CAST(n AS STRING) AS value\n\
             FROM STREAM source;\n",
            table("source", &format!("(n {n_type})"), "kafka", &source),
            table("good", "", "kafka", &[servers, ("topic", "letters_large_out")]),
            table(
                "bad",
                "",
                "kafka",
                &[servers, ("topic", "letters_large_bad"), ("kafka.max.request.size", "50000")],
            ),
        )
    };
    let pipeline = Pipeline::new(&declared("BIGINT"));
    pipeline.run_available().expect_success();
    let bad = topics.read("letters_large_bad");
    let [letter] = &bad[..] else { panic!("{} letters", bad.len()) };
    assert!((40_000..50_000).contains(&letter.value().len()), "{}", letter.value().len());
    let header = |name: &str| {
        let found = letter.headers.iter().find(|(known, _)| known == name);
        String::from_utf8(found.and_then(|(_, value)| value.clone()).unwrap_or_default())
    };
    assert_eq!(header("millstream.payload_bytes").as_deref(), Ok("60008"));
    assert!(header("millstream.error").is_ok_and(|error| error.contains("of 60008 bytes")));
    assert_eq!(topics.read("letters_large_out").len(), 1);
    pipeline.rewrite(&declared("STRING"));
    let finished = replay(&pipeline, &[]).wait(wait::SOON).expect_success();
    let says = "0 letters replayed, 0 replayed before, 0 still malformed, 1 left out";
    assert!(finished.stderr.contains(says), "{}", finished.stderr);
}

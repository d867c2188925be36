//! Rows that a sink refuses: the error says which record they were made of.

use crate::files_and_static::put;
use crate::kafka;
use crate::millstream::{Finished, Pipeline, table};
use crate::topics::Record;

/// The first entry of a table's log, as other engines write it: `n` may not be null.
const NOT_NULL: &str = concat!(
    r#"{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}"#,
    "\n",
    r#"{"metaData":{"id":"6f9fc9a4-8a5b-4d9e-9f0e-52b9a2a2b9f1","#,
    r#""format":{"provider":"parquet","options":{}},"schemaString":"{\"type\":\"struct\","#,
    r#"\"fields\":[{\"name\":\"s\",\"type\":\"string\",\"nullable\":true,\"metadata\":{}},"#,
    r#"{\"name\":\"n\",\"type\":\"long\",\"nullable\":false,\"metadata\":{}}]}","#,
    r#""partitionColumns":[],"configuration":{},"createdTime":1767225600000}}"#,
    "\n",
);

fn line(s: &str, n: &str) -> String {
    format!("{{\"s\":\"{s}\",\"n\":{n}}}\n")
}

fn lines(rows: std::ops::Range<u64>) -> String {
    rows.map(|n| line("a", &n.to_string())).collect()
}

/// A pipeline of JSON files, one to a micro-batch, with these tables and flow besides. The Delta
/// table `target` is there.
fn of_files(rest: &str) -> Pipeline {
    let options = [("path", "input"), ("maxFilesPerTrigger", "1")];
    let source = table("source", "(s STRING, n BIGINT, ts TIMESTAMP)", "json", &options);
    let pipeline = Pipeline::new(&format!("{source}{rest}"));
    put(&pipeline, "target/_delta_log/00000000000000000000.json", NOT_NULL);
    pipeline
}

fn delta(name: &str, interval: &str) -> String {
    table(name, "", "delta", &[("path", name), ("commitInterval", interval)])
}

fn run(pipeline: &Pipeline) -> Finished {
    pipeline.run(&["--trigger", "availableNow"]).expect_exit(1).without_internals()
}

#[test]
fn a_null_that_a_table_does_not_take_is_named_with_its_record() {
    for interval in ["0s", "1s"] {
        let flow = "CREATE FLOW f AS INSERT INTO target SELECT s, n FROM STREAM source WHERE n <> 7 OR n IS NULL;\n";
        let pipeline = of_files(&format!("{}{flow}", delta("target", interval)));
        put(&pipeline, "input/1.json", &lines(0..20));
        put(&pipeline, "input/2.json", &(lines(0..10) + &line("b", "null") + &lines(10..13)));
        put(&pipeline, "input/3.json", &lines(0..5));
        run(&pipeline).says(&[
            "/input/2.json:11 cannot be written",
            "n is null",
            "NOT NULL",
            "/target",
        ]);
    }
}

#[test]
fn the_second_sink_s_refusal_and_that_of_a_flow_with_constraints_name_the_record() {
    let tables = delta("first", "0s") + &delta("target", "0s");
    let several = "CREATE FLOW f AS FROM STREAM source INSERT INTO first SELECT s, n \
                   INSERT INTO target SELECT s, n WHERE s <> 'c';\n";
    let constrained = "CREATE FLOW f (CONSTRAINT known EXPECT (s <> 'c') ON VIOLATION DROP ROW) \
                       AS INSERT INTO target SELECT s, n FROM STREAM source;\n";
    for flow in [several, constrained] {
        let pipeline = of_files(&format!("{tables}{flow}"));
        put(&pipeline, "input/1.json", &lines(0..3));
        let rows = lines(0..5) + &line("c", "null") + &line("b", "null") + &lines(5..9);
        put(&pipeline, "input/2.json", &rows);
        run(&pipeline).says(&["/input/2.json:7 cannot be written", "n is null"]);
    }
}

#[test]
fn a_record_that_is_too_large_for_a_topic_is_named_with_the_one_it_was_made_of() {
    let (broker, large) = (kafka::shared(), 2_000_000);
    let (topics, servers) = (broker.topics(), broker.address());
    topics.create("refused_in", 2);
    let to = |text: &str, partition| Record::of(text.to_owned()).to(partition);
    let records = [to("1", 0), to("2", 1), to("3", 1), to("no", 1), to("4", 0), to("5", 1)];
    topics.produce("refused_in", records);
    let servers = ("kafka.bootstrap.servers", servers.as_str());
    let source = [servers, ("subscribe", "refused_in"), ("startingOffsets", "earliest")];
    for delivery in ["at-least-once", "exactly-once"] {
        let target = format!("refused_{}", delivery.replace('-', "_"));
        topics.create(&target, 1);
        let sink = [servers, ("topic", &target), ("delivery", delivery)];
        let pipeline = Pipeline::new(&format!(
            "{}{}CREATE FLOW f AS INSERT INTO target SELECT key,\n\
             CASE WHEN text = 'no' THEN repeat(text, {large}) ELSE text END AS value\n\
             FROM (SELECT key, CAST(value AS STRING) AS text FROM STREAM source);\n",
            table("source", "", "kafka", &source),
            table("target", "", "kafka", &sink),
        ));
        run(&pipeline).says(&["refused_in[1]@2 cannot be written", "is too large", &target]);
    }
    // Where the query names each record's topic. The broker is shared with other tests; the name of
    // a table without a topic must differ from those in other tests.
    let pipeline = of_files(&format!(
        "{}CREATE FLOW f AS INSERT INTO refused_rows SELECT s AS value, \
         CASE WHEN n < 3 THEN 'refused_by_column' END AS topic FROM STREAM source;\n",
        table("refused_rows", "", "kafka", &[servers]),
    ));
    topics.create("refused_by_column", 1);
    put(&pipeline, "input/1.json", &lines(0..4));
    run(&pipeline).says(&["/input/1.json:4 cannot be written", "null topic"]);
}

#[test]
fn a_row_that_follows_from_several_records_is_named_with_what_was_read() {
    let flow = "CREATE FLOW f AS INSERT INTO target SELECT s, sum(n) AS n\n\
                FROM STREAM source WATERMARK ts DELAY OF INTERVAL 0 SECONDS\n\
                GROUP BY window(ts, '1 minute'), s;\n";
    let pipeline = of_files(&format!("{}{flow}", delta("target", "0s")));
    let row = |n: &str, minute| {
        format!("{{\"s\":\"a\",\"n\":{n},\"ts\":\"2026-01-01T00:{minute}:00Z\"}}\n")
    };
    put(&pipeline, "input/1.json", &(row("null", "01") + &row("null", "01")));
    put(&pipeline, "input/2.json", &row("2", "05"));
    run(&pipeline).says(&[
        "a row that was computed of records of FileStreamSource",
        "up to {\"logOffset\":1}",
        "cannot be written",
        "n is null",
    ]);
}

#[test]
fn a_row_of_a_query_over_tables_at_rest_is_told_with_the_rule() {
    let flow = "INSERT INTO target SELECT s, n FROM source;\n";
    let pipeline = of_files(&format!("{}{flow}", delta("target", "0s")));
    put(&pipeline, "input/1.json", &(lines(0..3) + &line("b", "null")));
    pipeline.run(&[]).expect_exit(1).without_internals().says(&["n is null", "NOT NULL"]);
}

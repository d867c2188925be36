//! A pipeline file or a flow that gets another name: its checkpoint is new, and its tables know
//! what it wrote under the former one.

use serde_json::Value;

use crate::kafka;
use crate::millstream::{CRASH_AT, Finished, Pipeline, table};
use crate::oracle;
use crate::topics::sorted_values;
use crate::wait;

const ROWS: usize = 20;

/// A pipeline file of one flow from `topic`, whose checkpoint is where it is by default.
fn file(flow: &str, topic: &str, start: &str, sink: &str) -> String {
    let servers = kafka::shared().address();
    let source = [
        ("kafka.bootstrap.servers", servers.as_str()),
        ("subscribe", topic),
        ("startingOffsets", start),
    ];
    format!(
        "{}{sink}CREATE FLOW {flow} AS INSERT INTO target\n\
         SELECT CAST(value AS STRING) AS value FROM STREAM source;\n",
        table("source", "", "kafka", &source),
    )
}

fn delta(options: &[(&str, &str)]) -> String {
    table(
        "target",
        "",
        "delta",
        &[&[("path", "table"), ("commitInterval", "0s")], options].concat(),
    )
}

fn topic(name: &str, options: &[(&str, &str)]) -> String {
    let servers = kafka::shared().address();
    let servers = ("kafka.bootstrap.servers", servers.as_str());
    let to = [servers, ("topic", name), ("delivery", "exactly-once")];
    table("target", "", "kafka", &[&to, options].concat())
}

/// Makes the topic `name` with rows from `first` on.
fn produce(name: &str, first: usize) {
    let rows = (first..first + ROWS).map(|row| format!("{row:04}"));
    kafka::shared().topics().produce_values(name, rows);
}

fn run(pipeline: &Pipeline, name: &str, sql: &str, flags: &[&str]) -> Finished {
    std::fs::write(pipeline.path(name), sql).expect("the directory is writable");
    let mut command = pipeline.bare_command(&["run", name, "--trigger", "availableNow"]);
    command.args(flags);
    pipeline.spawn(command).wait(wait::SOON * 2).without_internals()
}

fn query_id(pipeline: &Pipeline, checkpoint: &str) -> String {
    let file = pipeline.path(".millstream").join(checkpoint).join("metadata");
    let text = std::fs::read_to_string(file).expect("the checkpoint has an id");
    let metadata: Value = serde_json::from_str(&text).expect("it is JSON");
    metadata["id"].as_str().expect("it is a text").to_owned()
}

fn expected(rows: usize) -> Vec<String> {
    (0..rows).map(|row| format!("{row:04}")).collect()
}

/// How many rows the table has, and how many different ones.
fn in_table(pipeline: &Pipeline) -> (usize, usize) {
    let sql = "SELECT count(*) AS rows, count(DISTINCT value) AS different FROM TABLE";
    let found = oracle::light().query(&pipeline.path("table"), sql);
    let number = |name: &str| found[name].as_u64().expect("a number") as usize;
    (number("rows"), number("different"))
}

#[test]
fn a_renamed_file_does_not_write_its_rows_to_a_table_again() {
    let topics = kafka::shared().topics();
    topics.create("renamed_delta_in", 1);
    produce("renamed_delta_in", 0);
    let pipeline = Pipeline::new("");
    let sql = file("landed", "renamed_delta_in", "earliest", &delta(&[]));
    run(&pipeline, "old.sql", &sql, &[]).expect_success().says(&[
        "landed: begins anew",
        r#"{"renamed_delta_in":{"0":0}}"#,
        "'earliest'",
    ]);
    let id = query_id(&pipeline, "old/landed");
    let adopt = format!("--adopt {id}");
    for _ in 0..2 {
        run(&pipeline, "new.sql", &sql, &[]).expect_exit(1).says(&[
            &id,
            "flow 'landed'",
            "write the same rows again ('startingOffsets' = 'earliest')",
            &adopt,
            "--checkpoint",
            "'otherQueries' = 'allowed'",
        ]);
    }
    produce("renamed_delta_in", ROWS);
    for _ in 0..2 {
        run(&pipeline, "new.sql", &sql, &["--adopt", &id]).expect_success();
    }
    assert_eq!(in_table(&pipeline), (2 * ROWS, 2 * ROWS));
    run(&pipeline, "new.sql", &sql, &[]).expect_success();
    assert_eq!(in_table(&pipeline), (2 * ROWS, 2 * ROWS));
    assert_eq!(query_id(&pipeline, "new/landed"), id);

    // Where both are meant, the option says so; and of the latest offsets what they leave out.
    let beside =
        file("beside", "renamed_delta_in", "latest", &delta(&[("otherQueries", "allowed")]));
    run(&pipeline, "beside.sql", &beside, &[])
        .expect_success()
        .says(&["what came since the other's last micro-batch is not read", &id]);
    let plain = file("beside", "renamed_delta_in", "latest", &delta(&[]));
    run(&pipeline, "third.sql", &plain, &[])
        .expect_exit(1)
        .says(&["leave out what came since ('startingOffsets' = 'latest')"]);
}

#[test]
fn a_renamed_flow_does_not_write_its_rows_to_a_topic_again() {
    for (name, transactions) in [("renamed_own", "own"), ("renamed_lib", "librdkafka")] {
        let topics = kafka::shared().topics();
        let (input, output) = (format!("{name}_in"), format!("{name}_out"));
        topics.create(&input, 1);
        topics.create(&output, 2);
        produce(&input, 0);
        let pipeline = Pipeline::new("");
        let sink = topic(&output, &[("kafka.millstream.transactions", transactions)]);
        let sql = |flow: &str| file(flow, &input, "earliest", &sink);
        run(&pipeline, "a.sql", &sql("copied"), &[]).expect_success();
        let id = query_id(&pipeline, "a/copied");
        run(&pipeline, "a.sql", &sql("kopie"), &[]).expect_exit(1).says(&[
            &id,
            "flow 'copied'",
            &format!("--adopt {id}"),
            "'otherQueries' = 'allowed'",
        ]);
        produce(&input, ROWS);
        run(&pipeline, "a.sql", &sql("kopie"), &["--adopt", &id]).expect_success();
        let read = || sorted_values(&topics.read(&output));
        assert_eq!(read(), expected(2 * ROWS), "{name}");
        // What it wrote last stands under the new name now.
        produce(&input, 2 * ROWS);
        run(&pipeline, "a.sql", &sql("kopie"), &[]).expect_success();
        assert_eq!(read(), expected(3 * ROWS), "{name}");
    }
}

#[test]
fn a_flow_that_keeps_its_checkpoint_finds_its_record_under_another_name() {
    let topics = kafka::shared().topics();
    topics.create("kept_in", 1);
    topics.create("kept_out", 1);
    produce("kept_in", 0);
    let pipeline = Pipeline::new("");
    let sql = |flow: &str| file(flow, "kept_in", "earliest", &topic("kept_out", &[]));
    let flags = ["--checkpoint", "kept"];
    // It ends between the commit of its transaction and the entry in the log.
    std::fs::write(pipeline.path("a.sql"), sql("before")).expect("the directory is writable");
    let mut command = pipeline.bare_command(&["run", "a.sql", "--trigger", "availableNow"]);
    command.args(flags).env(CRASH_AT, "after-commit:1");
    pipeline.spawn(command).wait(wait::SOON * 2).expect_crash("after-commit:1");
    run(&pipeline, "a.sql", &sql("after"), &flags).expect_success();
    assert_eq!(sorted_values(&topics.read("kept_out")), expected(ROWS));
}

#[test]
fn flows_of_one_file_write_to_one_table_and_know_each_other() {
    let topics = kafka::shared().topics();
    for name in ["family_a", "family_b", "family_c"] {
        topics.create(name, 1);
        produce(name, 0);
    }
    let servers = kafka::shared().address();
    let flow = |name: &str| {
        let source = [
            ("kafka.bootstrap.servers", servers.as_str()),
            ("subscribe", name),
            ("startingOffsets", "earliest"),
        ];
        format!(
            "{}CREATE FLOW {name} AS INSERT INTO target\n\
             SELECT CAST(value AS STRING) AS value FROM STREAM of_{name};\n",
            table(&format!("of_{name}"), "", "kafka", &source)
        )
    };
    let pipeline = Pipeline::new("");
    let two = delta(&[]) + &flow("family_a") + &flow("family_b");
    // One after the other, then both, then with a third that is new.
    run(&pipeline, "p.sql", &two, &["--flow", "family_a"]).expect_success();
    run(&pipeline, "p.sql", &two, &["--flow", "family_b"]).expect_success();
    run(&pipeline, "p.sql", &two, &[]).expect_success();
    let three = two + &flow("family_c");
    run(&pipeline, "p.sql", &three, &[]).expect_success();
    assert_eq!(in_table(&pipeline), (3 * ROWS, ROWS));
    // The file with another name has three flows, none of which says whose rows it knows.
    let ids =
        ["family_a", "family_b", "family_c"].map(|flow| query_id(&pipeline, &format!("p/{flow}")));
    run(&pipeline, "q.sql", &three, &[]).expect_exit(1).says(&["--adopt"]);
    run(&pipeline, "q.sql", &three, &["--adopt", &ids[0]]).expect_exit(2).says(&["family_a="]);
    let adopt =
        |flow: usize| format!("{}={}", ["family_a", "family_b", "family_c"][flow], ids[flow]);
    let flags = [adopt(0), adopt(1), adopt(2)];
    let flags: Vec<&str> = flags.iter().flat_map(|flag| ["--adopt", flag.as_str()]).collect();
    run(&pipeline, "q.sql", &three, &flags).expect_success();
    assert_eq!(in_table(&pipeline), (3 * ROWS, ROWS));
}

#[test]
fn a_renamed_flow_does_not_write_to_the_directory_of_another() {
    let topics = kafka::shared().topics();
    topics.create("renamed_files_in", 1);
    produce("renamed_files_in", 0);
    let pipeline = Pipeline::new("");
    let sink = table("target", "", "json", &[("path", "out")]);
    let sql = |flow: &str| file(flow, "renamed_files_in", "earliest", &sink);
    run(&pipeline, "a.sql", &sql("one"), &[]).expect_success();
    run(&pipeline, "a.sql", &sql("two"), &[]).expect_exit(1).says(&[
        &query_id(&pipeline, "a/one"),
        "--checkpoint",
        "another directory",
    ]);
}

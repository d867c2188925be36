//! Files in and out, static tables, unions, batch queries: no broker.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::millstream::{Pipeline, table};
use crate::wait;

/// The content of all files of a sink's directory, in the order of their names. Files whose names
/// begin with a dot or an underscore are not data.
pub fn read_directory(directory: &Path) -> String {
    data_files(directory).iter().map(|path| read(path)).collect()
}

/// The lines of all files of a sink's directory, sorted.
pub fn sorted_lines(directory: &Path) -> Vec<String> {
    let mut lines: Vec<_> = read_directory(directory).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// The data files below a sink's directory, sorted.
pub fn data_files(directory: &Path) -> Vec<std::path::PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let paths = entries.map(|entry| entry.expect("it can be listed").path());
    let is_data = |path: &std::path::PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).expect("names are text");
        !name.starts_with(['.', '_'])
    };
    let mut paths: Vec<_> = paths.filter(is_data).collect();
    paths.sort();
    paths
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Puts a file into a directory as a careful producer does: whole, by renaming.
pub fn put(pipeline: &Pipeline, name: &str, content: &str) {
    let path = pipeline.path(name);
    let directory = path.parent().expect("it is in the pipeline's directory");
    fs::create_dir_all(directory).expect("the directory is writable");
    let hidden = directory.join(".incoming");
    fs::write(&hidden, content).expect("the directory is writable");
    fs::rename(hidden, path).expect("the directory is writable");
}

pub fn json_table(name: &str, columns: &str, path: &str) -> String {
    table(name, columns, "json", &[("path", path)])
}

#[test]
fn every_format_is_written_and_read_back() {
    let columns = "(id BIGINT, name STRING, price DOUBLE, sold DATE, at TIMESTAMP)";
    let hop = |from: &str, to: &str| {
        format!("INSERT INTO {to} SELECT id, name, price, sold, at FROM STREAM {from};\n")
    };
    let tables = [
        json_table("raw", columns, "raw"),
        table("as_parquet", columns, "parquet", &[("path", "parquet")]),
        table("as_csv", columns, "csv", &[("path", "csv"), ("header", "true")]),
        table("as_json", columns, "json", &[("path", "json")]),
        table("as_text", "", "text", &[("path", "text")]),
    ]
    .concat();
    let pipeline = Pipeline::new("");
    let rows = [
        r#"{"id":1,"name":"Ada, \"the first\"","price":1.5,"sold":"2026-01-02","at":"2026-01-02T03:04:05.678Z"}"#,
        r#"{"id":2,"name":"Grace","price":-0.25,"sold":"1999-12-31","at":"1999-12-31T23:59:59.000Z"}"#,
    ];
    put(&pipeline, "raw/one.json", &rows.map(|row| format!("{row}\n")).concat());
    let hops = [("raw", "as_parquet"), ("as_parquet", "as_csv"), ("as_csv", "as_json")];
    let flows = hops.iter().map(|(from, to)| hop(from, to)).chain([
        "INSERT INTO as_text SELECT concat(name, ' ', CAST(price AS STRING)) AS value \
         FROM STREAM as_json;\n"
            .into(),
    ]);
    for (step, flow) in flows.enumerate() {
        pipeline.rewrite(&format!("{tables}{flow}"));
        let checkpoint = format!("checkpoint{step}");
        let arguments =
            ["run", "pipeline.sql", "--checkpoint", &checkpoint, "--trigger", "availableNow"];
        pipeline.spawn(pipeline.bare_command(&arguments)).wait(wait::SOON).expect_success();
    }
    assert_eq!(sorted_lines(&pipeline.path("json")), rows);
    assert_eq!(sorted_lines(&pipeline.path("text")), ["Ada, \"the first\" 1.5", "Grace -0.25"]);
    assert_eq!(parquet_rows(&pipeline.path("parquet")), 2);
    let csv = read_directory(&pipeline.path("csv"));
    assert!(csv.starts_with("id,name,price,sold,at\n"), "{csv}");
}

/// Rows in the Parquet files of a directory, counted by a reader that is not the engine's.
fn parquet_rows(directory: &Path) -> i64 {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    let count = |path: &std::path::PathBuf| {
        let file = fs::File::open(path).expect("it can be opened");
        let reader = SerializedFileReader::new(file).expect("it is a Parquet file");
        reader.metadata().file_metadata().num_rows()
    };
    data_files(directory).iter().map(count).sum()
}

#[test]
fn an_expression_of_a_thousand_terms_is_planned_and_run() {
    let terms: Vec<String> = (0..1_000).map(|n| format!("n = {}", 3 * n)).collect();
    let pipeline = Pipeline::new(&format!(
        "{}{}INSERT INTO target SELECT n FROM STREAM source WHERE {};\n",
        json_table("source", "(n BIGINT)", "input"),
        json_table("target", "", "output"),
        terms.join(" OR "),
    ));
    put(&pipeline, "input/a.json", "{\"n\":2997}\n{\"n\":2998}\n");
    pipeline.run_available();
    assert_eq!(sorted_lines(&pipeline.path("output")), [r#"{"n":2997}"#]);
}

#[test]
fn state_of_two_streams_is_not_taken_for_that_of_the_same_two_in_each_others_place() {
    let pipeline = Pipeline::new("");
    let joined = |one: &str, other: &str| {
        [
            json_table("orders", "(n BIGINT)", "orders"),
            json_table("payments", "(n BIGINT)", "payments"),
            json_table("target", "", "output"),
            format!("INSERT INTO target SELECT a.n FROM STREAM {one} a "),
            format!("JOIN STREAM {other} b ON a.n = b.n;\n"),
        ]
        .concat()
    };
    put(&pipeline, "orders/a.json", "{\"n\":1}\n");
    put(&pipeline, "payments/a.json", "{\"n\":1}\n");
    pipeline.rewrite(&joined("orders", "payments"));
    pipeline.run_available();
    pipeline.rewrite(&joined("payments", "orders"));
    let refused = pipeline.run(&["--trigger", "availableNow"]).expect_exit(1);
    refused.says(&["another query", "reading orders and payments", "reading payments and orders"]);
    assert_eq!(sorted_lines(&pipeline.path("output")), [r#"{"n":1}"#]);
}

#[test]
fn each_file_is_read_once_and_new_ones_while_running() {
    let pipeline = Pipeline::new(&format!(
        "{}{}INSERT INTO target SELECT n FROM STREAM source;\n",
        json_table("source", "(n BIGINT)", "input"),
        json_table("target", "", "output"),
    ));
    put(&pipeline, "input/a.json", "{\"n\":1}\n");
    pipeline.run_available();
    put(&pipeline, "input/b.json", "{\"n\":2}\n");
    // Not for reading: hidden, and Spark's mark of a finished job.
    put(&pipeline, "input/_SUCCESS", "");
    put(&pipeline, "input/.hidden.json", "{\"n\":99}\n");

    let mut running = pipeline.start(&[]);
    let output = pipeline.path("output");
    running.wait_while_running("the second file", || sorted_lines(&output).len() == 2);
    put(&pipeline, "input/c.json", "{\"n\":3}\n");
    running.wait_while_running("the third file", || sorted_lines(&output).len() == 3);
    running.stop().expect_success();
    pipeline.run_available();
    assert_eq!(sorted_lines(&output), [r#"{"n":1}"#, r#"{"n":2}"#, r#"{"n":3}"#]);
    pipeline.checkpoint().assert_well_formed(1);
}

#[test]
fn a_kill_doubles_nothing_in_files() {
    let source = [("path", "input"), ("maxFilesPerTrigger", "1")];
    let pipeline = Pipeline::new(&format!(
        "{}{}INSERT INTO target SELECT n FROM STREAM source;\n",
        table("source", "(n BIGINT)", "json", &source),
        table("target", "", "json", &[("path", "output"), ("commitInterval", "0")]),
    ));
    let files = 60;
    for file in 0..files {
        let rows: String = (0..10).map(|n| format!("{{\"n\":{}}}\n", file * 10 + n)).collect();
        put(&pipeline, &format!("input/{file:03}.json"), &rows);
    }
    let output = pipeline.path("output");
    for kill in 1..=4 {
        let mut running = pipeline.start(&["--trigger", "availableNow"]);
        running.wait_while_running("more files", || data_files(&output).len() >= kill * 8);
        running.kill();
    }
    pipeline.run_available();
    let mut expected: Vec<_> = (0..files * 10).map(|n| format!("{{\"n\":{n}}}")).collect();
    expected.sort();
    assert_eq!(sorted_lines(&output), expected, "every row exactly once");
}

#[test]
fn a_static_table_is_read_again_when_it_changes() {
    let sql = [
        json_table("orders", "(item STRING, amount BIGINT)", "orders"),
        table("prices", "(item STRING, price BIGINT)", "csv", &[("path", "prices.csv")]),
        json_table("totals", "", "totals"),
        "INSERT INTO totals SELECT o.item, o.amount * p.price AS total \
         FROM STREAM orders AS o LEFT JOIN prices AS p ON o.item = p.item;\n"
            .into(),
    ];
    let pipeline = Pipeline::new(&sql.concat());
    put(&pipeline, "prices.csv", "tea,3\ncoffee,5\n");
    put(&pipeline, "orders/1.json", "{\"item\":\"tea\",\"amount\":2}\n");
    let totals = pipeline.path("totals");
    let mut running = pipeline.start(&[]);
    running.wait_while_running("the first order", || sorted_lines(&totals).len() == 1);

    put(&pipeline, "prices.csv", "tea,4\ncoffee,5\nwater,1\n");
    // The table is looked at about every second.
    wait::pause(Duration::from_secs(3));
    put(
        &pipeline,
        "orders/2.json",
        "{\"item\":\"tea\",\"amount\":2}\n{\"item\":\"water\",\"amount\":7}\n{\"item\":\"milk\",\"amount\":1}\n",
    );
    running.wait_while_running("the second orders", || sorted_lines(&totals).len() >= 4);
    running.stop().expect_success();
    let expected = [
        r#"{"item":"milk"}"#,
        r#"{"item":"tea","total":6}"#,
        r#"{"item":"tea","total":8}"#,
        r#"{"item":"water","total":7}"#,
    ];
    assert_eq!(sorted_lines(&totals), expected);
}

#[test]
fn a_union_reads_two_streams() {
    let sql = [
        json_table("east", "(n BIGINT)", "east"),
        json_table("west", "(n BIGINT, extra STRING)", "west"),
        json_table("both", "", "both"),
        "INSERT INTO both SELECT 'east' AS side, n FROM STREAM east \
         UNION ALL SELECT 'west' AS side, n FROM STREAM west WHERE n > 10;\n"
            .into(),
    ];
    let pipeline = Pipeline::new(&sql.concat());
    put(&pipeline, "east/1.json", "{\"n\":1}\n{\"n\":2}\n");
    put(&pipeline, "west/1.json", "{\"n\":9}\n{\"n\":11}\n");
    pipeline.run_available();
    put(&pipeline, "west/2.json", "{\"n\":12}\n");
    pipeline.run_available();
    let expected = [
        r#"{"side":"east","n":1}"#,
        r#"{"side":"east","n":2}"#,
        r#"{"side":"west","n":11}"#,
        r#"{"side":"west","n":12}"#,
    ];
    assert_eq!(sorted_lines(&pipeline.path("both")), expected);
    pipeline.checkpoint().assert_well_formed(2);
    assert_eq!(
        pipeline.checkpoint().lines("offsets", 1)[2..],
        [r#"{"logOffset":0}"#, r#"{"logOffset":1}"#]
    );
}

#[test]
fn without_stream_a_query_runs_once_over_all_there_is() {
    let sql = [
        json_table("source", "(n BIGINT)", "input"),
        json_table("target", "", "output"),
        "INSERT INTO target SELECT count(*) AS rows, sum(n) AS total FROM source;\n".into(),
    ];
    let pipeline = Pipeline::new(&sql.concat());
    put(&pipeline, "input/1.json", "{\"n\":1}\n{\"n\":2}\n");
    put(&pipeline, "input/2.json", "{\"n\":4}\n");
    pipeline.run(&[]).expect_success();
    assert_eq!(sorted_lines(&pipeline.path("output")), [r#"{"rows":3,"total":7}"#]);
}

#[test]
fn validate_shows_the_plan_and_touches_nothing() {
    let pipeline = Pipeline::new(&format!(
        "{}{}CREATE FLOW copy AS INSERT INTO target SELECT n + 1 AS m FROM STREAM source;\n",
        json_table("source", "(n BIGINT)", "input"),
        json_table("target", "", "output"),
    ));
    let running = pipeline.spawn(pipeline.bare_command(&["validate", "pipeline.sql"]));
    let finished = running.wait(wait::SOON).expect_success();
    for word in ["copy", "source", "target", "m", "BIGINT"] {
        let shown = finished.stdout.to_lowercase();
        assert!(shown.contains(&word.to_lowercase()), "no {word} in:\n{}", finished.stdout);
    }
    for untouched in ["checkpoint", ".millstream", "output", "input"] {
        assert!(!pipeline.path(untouched).exists(), "{untouched} was made");
    }
}

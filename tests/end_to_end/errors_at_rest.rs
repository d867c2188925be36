//! Values that a query over tables at rest cannot compute: the error names the record and the place
//! in the SQL, as over a stream.

use crate::files_and_static::{json_table, put};
use crate::kafka;
use crate::millstream::{Finished, Pipeline, table};
use crate::topics::Record;

/// Tables `source` and `other` of JSON files; then `rest`.
fn of_files(rest: &str) -> Pipeline {
    let pipeline = Pipeline::new(&format!(
        "{}{}{rest}",
        json_table("source", "(s STRING, n BIGINT)", "input"),
        json_table("other", "(n BIGINT, v STRING)", "others"),
    ));
    let line = |s: &str, n: i64| format!("{{\"s\":\"{s}\",\"n\":{n}}}\n");
    let lines =
        |rows: std::ops::Range<i64>| -> String { rows.map(|n| line(&n.to_string(), n)).collect() };
    put(&pipeline, "input/1.json", &lines(1..30));
    put(&pipeline, "input/2.json", &(lines(30..33) + &line("x7", 0) + &lines(34..60)));
    put(&pipeline, "input/3.json", &lines(61..70));
    put(&pipeline, "others/1.json", "{\"n\":1,\"v\":\"1\"}\n{\"n\":2,\"v\":\"two\"}\n");
    pipeline
}

fn fails(pipeline: &Pipeline) -> Finished {
    pipeline.run(&[]).expect_exit(1).without_internals().says_not(&["onError"])
}

#[test]
fn a_record_of_a_file_is_named_with_the_place_in_the_sql() {
    let good = json_table("good", "", "good");
    let insert =
        format!("{good}INSERT INTO good\nSELECT n, CAST(trim(s) AS INT) AS i FROM source;");
    let cast = ["in the SQL at 11:11: CAST(trim(s) AS INT)", "s = 'x7'"];
    let grouped = "SELECT n % 3 AS third,\n  sum(100 / n) AS total FROM source GROUP BY n % 3 \
                   ORDER BY third;";
    let divided = ["in the SQL at 8:7: 100 / n", "n = 0"];
    for (query, says) in [(insert.as_str(), cast), (grouped, divided)] {
        fails(&of_files(query)).says(&["/input/2.json:4 cannot be computed"]).says(&says);
    }
}

#[test]
fn a_query_that_fails_leaves_nothing_in_a_directory_or_a_table() {
    let tables = [json_table("good", "", "good"), table("target", "", "delta", &[("path", "t")])];
    for (at, sink) in ["good", "target"].into_iter().enumerate() {
        let insert = format!("INSERT INTO {sink} SELECT n, CAST(trim(s) AS INT) AS i FROM source;");
        let pipeline = of_files(&format!("{}{insert}", tables[at]));
        fails(&pipeline);
        let left = |path: &std::path::Path| {
            let name = path.file_name().and_then(|name| name.to_str()).expect("names are text");
            !name.starts_with('_')
        };
        for directory in ["good", "t"] {
            let Ok(entries) = std::fs::read_dir(pipeline.path(directory)) else { continue };
            let entries = entries.map(|entry| entry.expect("it can be listed").path());
            let found: Vec<_> = entries.filter(|path| left(path)).collect();
            assert!(found.is_empty(), "{found:?}");
        }
    }
}

#[test]
fn of_joined_tables_that_one_is_named_which_has_the_value() {
    let query = "SELECT s.n, CAST(o.v AS INT) AS i FROM source AS s JOIN other AS o ON s.n = o.n;";
    fails(&of_files(query)).says(&["/others/1.json:2 cannot be computed", "CAST(o.v AS INT)"]);
}

#[test]
fn an_error_of_many_rows_names_none() {
    let query = "SELECT sum(n + 9223372036854775000) AS total FROM source;";
    fails(&of_files(query)).says(&["a sum is too large"]).says_not(&["the record"]);
}

#[test]
fn a_row_of_a_delta_table_is_shown() {
    let target = table("target", "", "delta", &[("path", "table")]);
    let pipeline = of_files(&format!("{target}INSERT INTO target SELECT n FROM source;"));
    pipeline.run(&[]).expect_success();
    pipeline.rewrite(&format!("{target}SELECT 7 / n AS x FROM target;"));
    fails(&pipeline).says(&[r#"the row {"n":0} cannot be computed"#, "7 / n", "n = 0"]);
}

#[test]
fn a_record_of_a_topic_is_named() {
    let (topics, servers) = (kafka::shared().topics(), kafka::shared().address());
    topics.create("at_rest_named", 2);
    let to = |text: &str, partition| Record::of(text.to_owned()).to(partition);
    topics.produce("at_rest_named", [to("1", 0), to("2", 1), to("no", 1), to("4", 0)]);
    let source = [("kafka.bootstrap.servers", servers.as_str()), ("subscribe", "at_rest_named")];
    let pipeline = Pipeline::new(&format!(
        "{}SELECT CAST(CAST(value AS STRING) AS INT) AS n FROM source;",
        table("source", "", "kafka", &source),
    ));
    fails(&pipeline)
        .says(&["at_rest_named[1]@1 cannot be computed", "CAST(CAST(value AS STRING) AS INT)"]);
}

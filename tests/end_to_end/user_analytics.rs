//! Functions of user analytics beside ClickHouse and DuckDB, the examples of their page, and tables
//! that are clustered by user.

use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::millstream::{Finished, Pipeline, table};
use crate::queries::Cluster;
use crate::{cache, oracle, program};

/// A query in a build that is not optimised, on a machine that does other things.
const QUERY_LIMIT: Duration = Duration::from_secs(120);

fn query(pipeline: &Pipeline, arguments: &[&str]) -> Finished {
    let command = pipeline.bare_command(&[&["query"], arguments].concat());
    pipeline.spawn(command).wait(QUERY_LIMIT)
}

#[test]
fn the_examples_of_the_page_have_the_answers_that_it_shows() {
    let pipeline = Pipeline::new("");
    let path = cache::repository().join("docs/user-analytics.md");
    let page = std::fs::read_to_string(&path).expect("the page is there");
    let mut blocks = page.split("\n```").skip(1).step_by(2).peekable();
    let setup = blocks.next().and_then(|block| block.strip_prefix("sql\n"));
    let setup = setup.expect("the first block makes the events");
    let mut answers = Vec::new();
    while let Some(block) = blocks.next() {
        let Some(sql) = block.strip_prefix("sql\n") else { panic!("no query: {block}") };
        std::fs::write(pipeline.path("example.sql"), format!("{setup}\n{sql}")).expect("written");
        let found = query(&pipeline, &["--format", "table", "example.sql"]).expect_success().stdout;
        let expected = blocks.next().and_then(|block| block.strip_prefix("text\n"));
        let expected = expected.unwrap_or_else(|| panic!("no answer after {sql}"));
        answers.push((sql, expected.trim_end().to_owned(), found.trim_end().to_owned()));
    }
    if std::env::var_os("MILLSTREAM_EXAMPLES_REWRITE").is_some() {
        let mut page = page.clone();
        for (sql, expected, found) in &answers {
            let end = page.find(sql).expect("it is from there") + sql.len();
            let old = format!("```text\n{expected}");
            page = page[..end].to_owned()
                + &page[end..].replacen(&old, &format!("```text\n{found}"), 1);
        }
        std::fs::write(path, page).expect("the page can be written");
    }
    assert!(answers.len() > 5, "the page is not read rightly");
    for (sql, expected, found) in answers {
        assert_eq!(found, expected, "{sql}");
    }
}

#[test]
fn functions_have_the_answers_of_clickhouse_and_duckdb() {
    let requirements = include_str!("../user_analytics/requirements.txt");
    let environment = cache::python("user-analytics", requirements).unwrap();
    let pipeline = Pipeline::new("");
    let mut compare = Command::new(environment.join("bin/python"));
    compare.arg("-B").arg(cache::repository().join("tests/user_analytics/compare.py"));
    compare.arg(env!("CARGO_BIN_EXE_millstream")).arg(pipeline.path(""));
    program::run("comparing answers with ClickHouse's and DuckDB's", compare, "").unwrap();
}

/// Events in the file `in/NAME.json`: 997 users with some events each.
fn write_events(pipeline: &Pipeline, name: &str, ids: std::ops::Range<u64>) {
    let event = |id: u64| {
        let (user, amount) = (id * 7 % 997, id * 31 % 113);
        format!("{{\"id\": {id}, \"user_id\": \"u{user}\", \"amount\": {amount}}}\n")
    };
    let lines: String = ids.map(event).collect();
    std::fs::create_dir_all(pipeline.path("in")).expect("it can be made");
    std::fs::write(pipeline.path(&format!("in/{name}.json")), lines).expect("written");
}

fn flow(options: &[(&str, &str)]) -> String {
    format!(
        "{}{}INSERT INTO target SELECT * FROM STREAM events;\n",
        table("events", "(id BIGINT, user_id STRING, amount BIGINT)", "json", &[("path", "in")]),
        table("target", "", "delta", &[&[("path", "lake")], options].concat()),
    )
}

/// The rows of a query in the order of their text.
fn rows(pipeline: &Pipeline, text: &str) -> Vec<Value> {
    let arguments = ["--cores", "3", "--format", "json", text];
    sorted(&query(pipeline, &arguments).expect_success().stdout)
}

/// Rows of JSON in the order of their text.
fn sorted(found: &str) -> Vec<Value> {
    let mut lines: Vec<&str> = found.lines().collect();
    lines.sort_unstable();
    lines.into_iter().map(|line| serde_json::from_str(line).expect("it is JSON")).collect()
}

fn plan(pipeline: &Pipeline, text: &str) -> String {
    let text = format!("EXPLAIN {text}");
    query(pipeline, &["--cores", "3", &text]).expect_success().stdout
}

const BY_USER: &str = "SELECT user_id, count(*) AS n, sum(amount) AS total, \
                       window_funnel(50, id, amount < 40, amount < 80) AS reached \
                       FROM delta.`lake` GROUP BY user_id";

#[test]
fn a_table_clustered_by_user_is_grouped_without_a_shuffle() {
    let clustered = [("clusterBy", "User_ID"), ("buckets", "6")];
    let pipeline = Pipeline::new(&flow(&clustered));
    write_events(&pipeline, "a", 0..20_000);
    pipeline.run_available().expect_success();
    write_events(&pipeline, "b", 20_000..30_000);
    pipeline.run_available().expect_success();
    let plain = Pipeline::new(&flow(&[]));
    write_events(&plain, "a", 0..20_000);
    write_events(&plain, "b", 20_000..30_000);
    plain.run_available().expect_success();

    let expected = rows(&plain, BY_USER);
    assert_eq!(expected.len(), 997);
    assert_eq!(rows(&pipeline, BY_USER), expected);
    let without = plan(&pipeline, BY_USER);
    assert!(!without.contains("RepartitionExec"), "{without}");
    assert!(without.contains("output_partitioning=Hash([user_id@"), "{without}");
    let with = plan(&plain, BY_USER);
    assert!(with.contains("RepartitionExec: partitioning=Hash([user_id@"), "{with}");
    // Further columns in the key change nothing, another key does.
    let finer = "SELECT user_id, amount, count(*) AS n FROM delta.`lake` GROUP BY user_id, amount";
    assert_eq!(rows(&pipeline, finer), rows(&plain, finer));
    let other = "SELECT amount, count(*) AS n FROM delta.`lake` GROUP BY amount";
    assert_eq!(rows(&pipeline, other), rows(&plain, other));
    assert!(plan(&pipeline, other).contains("RepartitionExec"));
    // Nothing that brings buckets together with rows that are divided otherwise.
    for text in [
        "SELECT a.user_id, count(*) AS n, sum(b.total) AS t FROM delta.`lake` a JOIN \
         (SELECT concat('u', id) AS u, sum(amount) AS total FROM delta.`lake` GROUP BY 1) b \
         ON a.user_id = b.u GROUP BY a.user_id",
        "SELECT user_id, sum(n) AS n FROM (SELECT user_id, count(*) AS n FROM delta.`lake` GROUP BY \
         user_id UNION ALL SELECT concat('u', id) AS user_id, 1 AS n FROM delta.`lake`) \
         GROUP BY user_id",
        "SELECT user_id, amount, count(*) AS n FROM delta.`lake` GROUP BY ROLLUP (user_id, amount)",
        "SELECT user_id, n, rank() OVER (PARTITION BY user_id ORDER BY n) AS place FROM (SELECT \
         user_id, amount, count(*) AS n FROM delta.`lake` GROUP BY user_id, amount)",
        "SELECT count(*) AS n FROM (SELECT DISTINCT upper(user_id) AS user_id FROM delta.`lake`)",
        "SELECT user_id, n FROM (SELECT substring(user_id, 1, 2) AS user_id, count(*) AS n FROM \
         delta.`lake` GROUP BY 1) WHERE n > (SELECT avg(amount) FROM delta.`lake`)",
    ] {
        assert_eq!(rows(&pipeline, text), rows(&plain, text), "{text}");
    }
    // On a cluster, where the stage that scans gives the groups.
    let cluster = Cluster::start(&pipeline);
    let on = ["query", "--on", &cluster.coordinator.1, "--cores", "3", "--format", "json"];
    let text = format!("SET millstream.remote.stages = 'scan'; {BY_USER}");
    let mut command = pipeline.bare_command(&[&on[..], &[&text]].concat());
    command.env("MILLSTREAM_TOKEN", "secret");
    let found = pipeline.spawn(command).wait(QUERY_LIMIT).expect_success().stdout;
    assert_eq!(sorted(&found), expected);
    drop(cluster);
    // As others read it.
    let sql =
        "SELECT count(*) AS n, count(DISTINCT user_id) AS users, sum(amount) AS total FROM TABLE";
    let theirs = |pipeline: &Pipeline| oracle::light().query(&pipeline.path("lake"), sql);
    assert_eq!(theirs(&pipeline), theirs(&plain));

    // A file without a bucket, as another writer's, brings the shuffle back.
    write_events(&pipeline, "c", 30_000..31_000);
    pipeline.rewrite(&flow(&[]));
    pipeline.run_available().expect_success();
    write_events(&plain, "c", 30_000..31_000);
    plain.run_available().expect_success();
    assert!(plan(&pipeline, BY_USER).contains("RepartitionExec"));
    assert_eq!(rows(&pipeline, BY_USER), rows(&plain, BY_USER));
}

#[test]
fn what_a_table_cannot_be_clustered_by_is_refused() {
    for (options, words) in [
        (vec![("clusterBy", "nobody")], "the query has no column nobody to cluster by"),
        (vec![("buckets", "4")], "'buckets' is given without 'clusterBy'"),
        (vec![("clusterBy", "id"), ("buckets", "0")], "a number from 1 to 1024"),
        (vec![("clusterBy", "id"), ("partitionBy", "ID")], "is partitioned by id already"),
    ] {
        let pipeline = Pipeline::new(&flow(&options));
        write_events(&pipeline, "a", 0..1);
        pipeline.run(&[]).expect_exit(2).says(&[words]);
    }
}

#[test]
fn a_flow_has_the_answers_of_a_query_also_after_it_was_started_again() {
    let select = |input: &str, window: &str| {
        format!(
            "SELECT user_id, {window}.start AS day, \
             window_funnel('2 hours', at, event = 'a', event = 'b', event = 'c') AS reached, \
             retention(event = 'a', event = 'c') AS retained, \
             sequence_count('(?1).*(?2)', at, event = 'a', event = 'c') AS sequences, \
             sessions(at, '10 minutes') AS sessions, \
             last_touch(event, at, event = 'c', '1 hour') AS touch, \
             size(filter(collect_list(event), e -> e = 'a')) AS heads \
             FROM {input} GROUP BY user_id, window(at, '1 day')"
        )
    };
    let columns = "(user_id BIGINT, at TIMESTAMP, event STRING)";
    let input = "STREAM events WATERMARK at DELAY OF INTERVAL 2 DAYS";
    let pipeline = Pipeline::new(&format!(
        "{}{}CREATE FLOW analysed AS INSERT INTO target {};\n",
        table("events", columns, "json", &[("path", "in")]),
        table("target", "", "delta", &[("path", "lake")]),
        select(input, "window"),
    ));
    std::fs::create_dir(pipeline.path("in")).expect("it is new");
    // The rows of a user are spread over all runs; the last row closes all windows but its own.
    for run in 0..3_u64 {
        let event = |id: u64| {
            let (user, minute) = (id % 50, id * 7_919 % 1_440);
            let event = ["a", "b", "c", "d"][(id * 31 % 97 % 4) as usize];
            let at = format!("2026-03-01T{:02}:{:02}:00Z", minute / 60, minute % 60);
            format!("{{\"user_id\": {user}, \"at\": \"{at}\", \"event\": \"{event}\"}}\n")
        };
        let mut lines: String = (run * 700..(run + 1) * 700).map(event).collect();
        if run == 2 {
            lines += "{\"user_id\": 999, \"at\": \"2026-04-01T00:00:00Z\", \"event\": \"d\"}\n";
        }
        let name = format!("in/{run}.json");
        std::fs::write(pipeline.path(&name), lines).expect("written");
        pipeline.run_available().expect_success();
    }
    let files = table("events", columns, "json", &[("path", "in")]);
    let at_rest = select("events", "window");
    let at_rest = at_rest.replace(" GROUP BY", " WHERE user_id < 999 GROUP BY");
    std::fs::write(pipeline.path("at_rest.sql"), format!("{files}{at_rest};")).expect("written");
    let lines = |arguments: &[&str]| {
        let found = query(&pipeline, &[&["--format", "json"], arguments].concat()).expect_success();
        let mut lines: Vec<String> = found.stdout.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    };
    let expected = lines(&["at_rest.sql"]);
    assert_eq!(expected.len(), 50);
    assert!(expected.iter().any(|line| line.contains("\"reached\":3")), "{expected:?}");
    assert_eq!(lines(&["SELECT * FROM delta.`lake`"]), expected);
}

//! Nexmark's queries give the rows that DuckDB gives for the same events.
//!
//! `tests/nexmark` has them: `events.py` writes the events, `streams.sql` reads them as streams,
//! eight files one after the other, `clock.sql` too, and `tables.sql` reads what a stream has
//! written. `answers.sql` has the same queries for DuckDB, and `compare.py` compares the rows.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::files_and_static::sorted_lines;
use crate::millstream::Pipeline;
use crate::{cache, oracle, program};

/// Twenty flows plan and run at the same time in a build that is not optimised.
const RUN_LIMIT: Duration = Duration::from_secs(240);

fn text_of(name: &str) -> String {
    fs::read_to_string(scripts().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn scripts() -> PathBuf {
    cache::repository().join("tests/nexmark")
}

fn python(script: &str) -> Command {
    let mut python = Command::new(oracle::installed().join("bin/python"));
    python.arg("-B").arg(scripts().join(script));
    python
}

/// A directory with the events and the pipeline files.
fn prepared() -> Pipeline {
    let pipeline = Pipeline::new(&text_of("streams.sql"));
    for file in ["tables.sql", "clock.sql"] {
        fs::write(pipeline.path(file), text_of(file)).expect("the directory is writable");
    }
    let mut generate = python("events.py");
    generate.arg(pipeline.path(""));
    program::run("writing the events of Nexmark", generate, "").unwrap();
    pipeline
}

/// Bids in the lines of a directory of JSON.
fn bids_counted(pipeline: &Pipeline, directory: &str) -> u64 {
    let count = |line: &String| {
        let row: Value = serde_json::from_str(line).expect("it is JSON");
        row["bid_count"].as_u64().expect("a count")
    };
    sorted_lines(&pipeline.path(directory)).iter().map(count).sum()
}

fn bids_of_events(pipeline: &Pipeline) -> u64 {
    let lines = sorted_lines(&pipeline.path("events"));
    lines.iter().filter(|line| line.contains(r#""event_type": 2"#)).count() as u64
}

#[test]
fn queries_of_nexmark_give_what_duckdb_gives() {
    let pipeline = prepared();
    let mut clock = pipeline.spawn(pipeline.bare_command(&["run", "clock.sql"]));
    pipeline.start(&["--trigger", "availableNow"]).wait(RUN_LIMIT).expect_success();
    pipeline.spawn(pipeline.bare_command(&["run", "tables.sql"])).wait(RUN_LIMIT).expect_success();
    let bids = bids_of_events(&pipeline);
    clock.wait_while_running("windows of the clock with all bids", || {
        bids_counted(&pipeline, "q12") >= bids
    });
    clock.stop().expect_success();
    let mut compare = python("compare.py");
    compare.arg(pipeline.path(""));
    program::run("comparing the rows of Nexmark with those of DuckDB", compare, "").unwrap();
}

/// Texts of the suite that no stream can run in Spark either: the query, its text, and what the
/// refusal says.
const REFUSED: &[(&str, &str, &[&str])] = &[
    (
        "q4",
        "SELECT category, avg(final) AS final FROM (
           SELECT max(b.price) AS final, a.category FROM auction AS a JOIN bid AS b
           ON a.id = b.auction AND b.dateTime BETWEEN a.dateTime AND a.expires
           GROUP BY a.id, a.category)
         GROUP BY category",
        &[
            "with outputMode 'append' a group is published when it is complete, but no GROUP BY \
             expression is an event time with a watermark",
            "group by window(ts, '1 minute')",
        ],
    ),
    (
        "q6",
        "SELECT seller, avg(price) OVER (PARTITION BY seller ORDER BY dateTime
           ROWS BETWEEN 10 PRECEDING AND CURRENT ROW) AS avg_price
         FROM (SELECT a.seller, b.price, b.dateTime,
             row_number() OVER (PARTITION BY a.id, a.seller ORDER BY b.price DESC) AS rownum
           FROM auction AS a JOIN bid AS b
           ON a.id = b.auction AND b.dateTime BETWEEN a.dateTime AND a.expires)
         WHERE rownum <= 1",
        &[
            "`avg` OVER a window over a stream is not supported",
            "`row_number` OVER a window over a stream is not supported",
            "without STREAM the same query runs as a batch query",
        ],
    ),
    (
        "q9",
        "SELECT id, price FROM (
           SELECT a.id, b.price,
             row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.dateTime) AS rownum
           FROM auction AS a JOIN bid AS b
           ON a.id = b.auction AND b.dateTime BETWEEN a.dateTime AND a.expires)
         WHERE rownum <= 1",
        &[
            "`row_number` OVER a window over a stream is not supported",
            "without STREAM the same query runs as a batch query",
        ],
    ),
    (
        "q15",
        "SELECT date_format(window.start, 'yyyy-MM-dd') AS day,
           count(DISTINCT bidder) AS total_bidders
         FROM bid GROUP BY window(dateTime, '1 day')",
        &["count(DISTINCT ...) over a stream is not supported", "write approx_count_distinct(...)"],
    ),
    (
        "q17",
        "SELECT auction, date_format(dateTime, 'yyyy-MM-dd') AS day, count(*) AS total_bids
         FROM bid GROUP BY auction, date_format(dateTime, 'yyyy-MM-dd')",
        &[
            "with outputMode 'append' a group is published when it is complete, but no GROUP BY \
             expression is an event time with a watermark",
            "group by window(ts, '1 minute'), or set outputMode to 'update'",
        ],
    ),
    (
        "q18",
        "SELECT auction, bidder, price FROM (
           SELECT *, row_number() OVER (PARTITION BY bidder, auction ORDER BY dateTime DESC)
             AS rank_number
           FROM bid)
         WHERE rank_number <= 1",
        &[
            "`row_number` OVER a window over a stream is not supported",
            "without STREAM the same query runs as a batch query",
        ],
    ),
    (
        "q19",
        "SELECT auction, price FROM (
           SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC) AS rank_number
           FROM bid)
         WHERE rank_number <= 10",
        &[
            "`row_number` OVER a window over a stream is not supported",
            "without STREAM the same query runs as a batch query",
        ],
    ),
];

#[test]
fn what_no_stream_can_do_is_refused_with_what_to_write_instead() {
    let streams = text_of("streams.sql");
    let (tables, _) = streams.split_once("-- Pass through.").expect("it is the first query");
    for (query, select, says) in REFUSED {
        let pipeline = Pipeline::new(&format!(
            "{tables}CREATE TABLE {query} USING parquet LOCATION '{query}';\n\
             CREATE FLOW {query} AS INSERT INTO {query}\n{select};\n"
        ));
        let validate = pipeline.bare_command(&["validate", "pipeline.sql"]);
        let finished = pipeline.spawn(validate).wait(RUN_LIMIT).without_internals();
        finished.expect_exit(2).says(says);
    }
}

//! Pipeline files put together of pieces of others: each is accepted or refused.

use std::path::Path;

use millstream_fuzz::{Limits, Target, outcome};
use millstream_store::env::STACK_BYTES;

use super::hostile_pipelines::{NESTING, TABLES, examples, load_here};

const WORDS: &[&str] = &[
    "CREATE TABLE ",
    "CREATE FLOW ",
    "CREATE TEMPORARY VIEW ",
    "CREATE FUNCTION f(x INT DEFAULT 1) RETURNS INT RETURN ",
    "f(x => ",
    "INSERT INTO ",
    "INSERT OVERWRITE ",
    "USING ",
    "OPTIONS (",
    "TBLPROPERTIES (",
    "PARTITIONED BY (",
    "CONSTRAINT ",
    "EXPECT (",
    " ON VIOLATION ",
    "DROP ROW",
    "FAIL UPDATE",
    "CHECKPOINT ",
    "FROM STREAM ",
    " WATERMARK ",
    " DELAY OF INTERVAL ",
    "SET ",
    "COMMENT ",
    "AS ",
    ";",
    "'trigger' = ",
    "'availableNow'",
    "'path' = ",
    "'mode' = ",
    "'deadLetter' = ",
    "'=' = ",
    "json",
    "csv",
    "kafka",
    "delta",
    "rate",
    "memory",
    "console",
    "noop",
    "stats",
    "files",
    "parquet",
    "text",
    "(",
    ")",
    "((",
    "CASE WHEN ",
    "CAST(",
    "'",
    "`",
    "/*",
    "--",
    ",",
    "[",
    "<",
    ">",
    " NOT ",
    " - ",
    "(SELECT ",
    " UNION ALL ",
    " FROM ",
    " JOIN ",
    " IN (",
    "ARRAY<",
    "STRUCT<",
    "trim(",
    "position(",
    "struct(",
    " INTERVAL ",
    "window(",
    "session_window(",
    "\u{0}",
    "\u{fffd}",
    "1e",
    "::",
    "->",
    " OVER (",
    "{",
    "${",
    "}",
    "'10 seconds'",
    "dropDuplicatesWithinWatermark",
];

/// Forms that others stand in, two within each other.
fn nested() -> Vec<String> {
    let pairs = NESTING.iter().zip(NESTING.iter().cycle().skip(5));
    let query = |((open, close), (inner, end)): (&(&str, &str), &(&str, &str))| {
        format!("{TABLES}INSERT INTO k SELECT {open}{inner}n{end}{close} FROM STREAM s;\n")
    };
    pairs.map(query).collect()
}

#[test]
fn fuzz_pipeline_files() {
    let examples = examples();
    let (first, _) = examples.first().expect("there are examples");
    let base_dir = first.parent().map(Path::to_owned).expect("a file is in a directory");
    let seeds = examples.into_iter().map(|(_, text)| text).chain(nested());
    let limits = Limits { stack_bytes: STACK_BYTES, ..Limits::default() };
    Target::text("pipelines")
        .limits(limits)
        .seeds(seeds)
        .words(WORDS)
        .run(move |input| outcome(&load_here("p.sql", &String::from_utf8_lossy(input), &base_dir)));
}

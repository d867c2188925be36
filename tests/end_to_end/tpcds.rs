//! TPC-DS in Spark's words, beside DuckDB: the 99 queries, their variants, and those of a later
//! version of the specification, with joins, subqueries, sets, groupings and windows of every kind.
//!
//! The texts are Spark's own, since its SQL is promised ([`spark_inputs`]); the tables are made by
//! DuckDB, and so are the answers. `tests/olap/tpcds.py` says where DuckDB has to be asked in other
//! words, and `tests/olap/ties.py` when rows in another order are the same answer. What is known
//! not to be equal is in `tests/olap/tpcds.known`, with a reason for each query.
//!
//! At this scale a quarter of the answers has no rows: there is one shop, and few items. The same
//! comparison at larger scales is in `bench/README.md`.

use crate::millstream::Pipeline;
use crate::queries::{self, python};
use crate::{cache, program, spark_inputs};

/// Of all tables; 1 is about a gigabyte.
const SCALE: &str = "0.01";
/// Queries at a time, each a process, and the seconds that one may take.
const JOBS: &str = "2";
const LIMIT: &str = "300";

#[test]
fn tpcds_has_the_answers_of_duckdb() {
    let pipeline = Pipeline::new("");
    let data = pipeline.path("tpcds");
    let mut generate = python("tpcds.py");
    generate.arg(&data).args(["--scale", SCALE]);
    program::run("writing the tables of TPC-DS", generate, "").unwrap();
    let texts = spark_inputs::directory().expect("the queries of TPC-DS can be downloaded");
    let known = cache::repository().join("tests/olap/tpcds.known");
    let (texts, known) = (texts.display().to_string(), known.display().to_string());
    let flags = ["--suite", "tpcds", "--texts", &texts, "--known", &known];
    queries::compare(&data, &[&flags[..], &["--jobs", JOBS, "--limit", LIMIT]].concat());
}

#[test]
fn the_comparison_with_duckdb_sees_each_difference() {
    program::run("checking tests/olap", python("selftest.py"), "").unwrap();
}

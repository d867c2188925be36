//! The answers that `tests/slt` expects are Spark's: Spark itself runs the queries.

use std::path::PathBuf;
use std::process::Command;

use crate::{cache, program, spark};

/// Files whose every answer is Spark's, but for records that say `onlyif millstream`.
const FILES: &[&str] = &[
    "aggregates",
    "arrays_maps",
    "binary",
    "case_null",
    "dates",
    "decimals",
    "edges",
    "generators",
    "numbers",
    "regex",
    "session_windows",
    "windows",
];

#[test]
fn spark_gives_the_answers_that_are_expected_here() {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let tests = cache::repository().join("tests");
    let file = |name: &&str| -> PathBuf { tests.join("slt").join(name).with_extension("slt") };
    let mut python = Command::new(spark::python());
    python.arg(tests.join("spark/slt.py")).args(FILES.iter().map(file));
    python.env("SPARK_LOCAL_IP", "127.0.0.1").env_remove("SPARK_HOME");
    python.current_dir(directory.path());
    program::run("running the queries of tests/slt on Spark", python, "").unwrap();
}

//! The answers that `tests/slt` expects are Spark's: Spark itself runs the queries.

use std::path::PathBuf;
use std::process::Command;

use crate::{cache, program, spark};

#[test]
fn spark_gives_the_answers_that_are_expected_here() {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let tests = cache::repository().join("tests");
    // Every file, so that none is left out by mistake. Where an answer is another one on purpose,
    // the file has a record for each engine.
    let entries = std::fs::read_dir(tests.join("slt")).expect("there are files");
    let paths = entries.map(|entry| entry.expect("the directory can be read").path());
    let mut files: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|end| end == "slt")).collect();
    files.sort();
    let mut python = Command::new(spark::python());
    python.arg(tests.join("spark/slt.py")).args(files);
    python.env("SPARK_LOCAL_IP", "127.0.0.1").env_remove("SPARK_HOME");
    python.current_dir(directory.path());
    program::run("running the queries of tests/slt on Spark", python, "").unwrap();
}

//! The answers that `tests/slt` and the examples expect are Spark's: Spark itself runs the queries.
//! So is the list of functions from which the reference is made.

use std::path::PathBuf;
use std::process::Command;

use crate::{cache, program, spark};

#[test]
fn spark_gives_the_answers_that_are_expected_here() {
    let tests = cache::repository().join("tests");
    // Every file, so that none is left out by mistake. Where an answer is another one on purpose,
    // the file has a record for each engine.
    let entries = std::fs::read_dir(tests.join("slt")).expect("there are files");
    let paths = entries.map(|entry| entry.expect("the directory can be read").path());
    let mut files: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|end| end == "slt")).collect();
    files.sort();
    // `from_avro` and its like are in a jar of their own.
    let jars = cache::jars("spark-avro-4.2.0", include_str!("../spark/avro.xml"));
    files.insert(0, jars.expect("the jar can be downloaded"));
    run_on_spark("running the queries of tests/slt on Spark", "slt.py", &files);
}

#[test]
fn spark_has_the_functions_that_are_listed() {
    let list = cache::repository().join("tests/spark/functions.txt");
    run_on_spark("comparing the list of Spark's functions", "functions.py", &[list]);
}

#[test]
fn spark_writes_what_the_examples_expect() {
    // Spark has no words for several sinks and for dead letters.
    let names = ["elevator", "generator-temperature", "pii-leak", "security"];
    let examples = names.map(|name| cache::repository().join("examples").join(name));
    run_on_spark("running the queries of examples on Spark", "examples.py", &examples);
}

fn run_on_spark(what: &'static str, script: &str, paths: &[PathBuf]) {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let mut python = Command::new(spark::python());
    python.arg("-B").arg(cache::repository().join("tests/spark").join(script)).args(paths);
    python.env("SPARK_LOCAL_IP", "127.0.0.1").env_remove("SPARK_HOME");
    python.current_dir(directory.path());
    program::run(what, python, "").unwrap();
}

//! Our SQL against Spark's own test inputs: its answers to its `sql-tests/inputs`, and ours.
//!
//! Spark's jar of tests has some 250 files of statements. What Spark answers to them was asked once
//! (`answers.py`) and is in `expected`: numbers of statements, their places and checksums, columns
//! and rows. The texts stay in the jar, which is downloaded ([`spark_inputs`]). So the test needs
//! no Spark; another one has Spark answer a few files again.
//!
//! A statement goes the way of `millstream query` ([`engine`]): tables are Parquet files with the
//! rows that Spark found in them when it was asked ([`tables`]), since it is queries that are
//! compared and not what makes tables; a view that cannot be one is its own text ([`views`]). Each
//! query has an outcome ([`compare`]), and what is not equal stands in `state.txt`, which has to be
//! what the test finds ([`state`]): a query that was equal stays so, and one that becomes equal is
//! written down.
//!
//! The session's time zone is UTC on both sides (Spark's suite has another one, and ours knows no
//! other), and ANSI mode is on, as is Spark's default.
//!
//! | variable | effect |
//! |---|---|
//! | `MILLSTREAM_GOLDEN_REWRITE=1` | writes `state.txt` |
//! | `MILLSTREAM_GOLDEN_FILES=text` | only files with the text in their names |
//! | `MILLSTREAM_GOLDEN_DETAILS=path` | writes what is not equal, with both answers, to a file |
//! | `MILLSTREAM_GOLDEN_ASK=1` | asks Spark about files that have no answers yet: half an hour |

mod answers;
mod cells;
mod columns;
mod compare;
mod details;
mod engine;
mod functions;
mod inputs;
mod outcomes;
mod report;
mod run;
mod state;
mod tables;
mod views;

use std::path::{Path, PathBuf};
use std::process::Command;

use millstream_testkit::{cache, program, spark_inputs};

use run::Run;

/// Files that Spark is asked about again each time: few and quick ones, of several kinds.
const ASKED_AGAIN: [&str; 3] = ["having.sql", "natural-join.sql", "predicate-functions.sql"];

fn here() -> PathBuf {
    cache::repository().join("tests/spark/golden")
}

/// Where the texts are.
fn unpacked() -> PathBuf {
    spark_inputs::directory().expect("Spark's test inputs can be downloaded")
}

/// Where Spark's answers are.
fn expected() -> PathBuf {
    here().join("expected")
}

#[test]
fn queries_of_spark_have_the_outcomes_that_are_known() {
    let inputs = unpacked();
    let wanted = std::env::var("MILLSTREAM_GOLDEN_FILES").ok();
    if std::env::var_os("MILLSTREAM_GOLDEN_ASK").is_some() {
        ask(&expected(), &[]);
    }
    let files = answers::files(&expected(), wanted.as_deref());
    let found = Run::new(inputs, files).outcomes();
    if let Some(path) = std::env::var_os("MILLSTREAM_GOLDEN_DETAILS") {
        details::write(&found, path.as_ref());
    }
    println!("{}", report::table(&found));
    let path = here().join("state.txt");
    if std::env::var_os("MILLSTREAM_GOLDEN_REWRITE").is_some() && wanted.is_none() {
        std::fs::write(&path, state::text(&found)).expect("the state can be written");
    }
    let known = std::fs::read_to_string(&path).expect("there is a state");
    let reasons = std::fs::read_to_string(here().join("reasons.txt")).expect("there are reasons");
    let mut complaints = state::changes(&known, &found);
    complaints.extend(state::needless_reasons(&reasons, &found));
    if wanted.is_none() {
        complaints.extend(state::reasons_of_nothing(&reasons, &found));
    }
    let unexplained = state::without_reason(&reasons, &found);
    complaints.extend(unexplained.iter().map(|at| format!("{at}: differs, without a reason")));
    assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), complaints.join("\n"));
}

#[test]
fn spark_still_answers_what_is_written_down() {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    ask(directory.path(), &ASKED_AGAIN);
    for name in ASKED_AGAIN {
        let file = format!("{name}.jsonl.gz");
        let text = |place: &Path| answers::text(&place.join(&file));
        let (now, then) = (text(directory.path()), text(&expected()));
        assert!(now == then, "{name}: Spark answers\n{now}\nand not\n{then}");
    }
}

/// Has Spark answer files, all of them if none is named, below the priority of all else.
fn ask(out: &Path, files: &[&str]) {
    let requirements = include_str!("../requirements.txt");
    let python = cache::python("pyspark-4.2.0", requirements).expect("Spark can be installed");
    let jars = cache::jars("spark-avro-4.2.0", include_str!("../avro.xml"));
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let mut nice = Command::new("nice");
    nice.args(["-n", "19"]).arg(python.join("bin/python")).arg("-B");
    nice.arg(here().join("answers.py")).arg(unpacked());
    nice.arg(jars.expect("the jar can be downloaded")).arg(out).args(files);
    nice.env("SPARK_LOCAL_IP", "127.0.0.1").env_remove("SPARK_HOME");
    nice.current_dir(directory.path());
    program::run("asking Spark", nice, "").expect("Spark answers");
}

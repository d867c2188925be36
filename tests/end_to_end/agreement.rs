//! Queries with state give what Spark gives for the same files, micro-batch by micro-batch: rows,
//! watermarks, and how many rows were late. `tests/spark/stateful.py` has the queries.
//!
//! What Spark gives is stored; with `MILLSTREAM_AGREEMENT_ASK=1` it is asked again, which takes
//! minutes.
//!
//! Tests start in the order of their names. This one takes a minute, so its name is an early one:
//! otherwise it would run alone at the end.

use std::env;
use std::process::Command;

use crate::{cache, program, spark};

#[test]
fn queries_with_state_give_what_spark_gives() {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let mut python = Command::new(spark::python());
    python.arg(cache::repository().join("tests/spark/stateful.py"));
    python.args(["--binary", env!("CARGO_BIN_EXE_millstream")]);
    let asks = env::var_os("MILLSTREAM_AGREEMENT_ASK").is_some();
    python.arg(if asks { "--ask-spark" } else { "--stored" });
    python.arg("--work").arg(directory.path().join("cases"));
    python.env("SPARK_LOCAL_IP", "127.0.0.1").env_remove("SPARK_HOME");
    python.current_dir(directory.path());
    program::run("comparing queries with state with Spark", python, "").unwrap();
}

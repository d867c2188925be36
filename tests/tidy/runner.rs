//! The program that runs the benchmarks is Python, and so are its tests.

use std::process::Command;

use crate::root;

#[test]
fn the_runner_of_the_benchmarks_passes_its_tests() {
    let mut python = Command::new("python3");
    python.args(["-B", "-m", "unittest", "discover"]);
    python.args(["--start-directory", "runner/tests", "--top-level-directory", "."]);
    let done = python.current_dir(root().join("bench")).output();
    let done = done.expect("python3 does not start: apt-get install python3");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    // Before 3.12 it is content with no test at all.
    assert!(!said.contains("Ran 0 tests"), "no test of the runner was found");
}

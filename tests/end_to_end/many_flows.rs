//! A thousand flows in one process.

use std::fs;
use std::time::Duration;

use crate::millstream::{Pipeline, table};
use crate::{process, wait};

const FLOWS: usize = 1_000;
/// Planning a thousand flows takes its time in a build that is not optimised.
const PATIENCE: Duration = Duration::from_secs(240);

fn many() -> Pipeline {
    let mut sql = table("source", "", "rate", &[("rowsPerSecond", "1")]);
    sql.push_str(&table("target", "", "noop", &[("trigger", "2 seconds")]));
    for flow in 0..FLOWS {
        sql.push_str(&format!(
            "CREATE FLOW f{flow} AS INSERT INTO target SELECT value FROM STREAM source;\n"
        ));
    }
    Pipeline::new(&sql)
}

#[test]
fn a_thousand_flows_raise_their_limit_and_share_their_threads() {
    let pipeline = many();
    let mut command = pipeline.command(&[]);
    process::limit_descriptors(&mut command, 256, 4_096);
    let mut running = pipeline.spawn(command);
    let checkpoints = pipeline.checkpoint();
    let committed = |flow: usize| {
        let commits = checkpoints.path(&format!("f{flow}/commits"));
        fs::read_dir(commits).map_or(0, Iterator::count)
    };
    let mut next = 0;
    let mut threads_max = 0;
    wait::until_true("micro-batches of all flows", PATIENCE, || {
        assert!(running.is_running(), "it ended: {}", running.stderr());
        threads_max = threads_max.max(running.threads());
        while next < FLOWS && committed(next) > 0 {
            next += 1;
        }
        next == FLOWS
    });
    // The eight threads that the flows share are among them: fewer were not counted.
    assert!((9..200).contains(&threads_max), "{threads_max} threads");
    running.interrupt();
    let finished = running.wait(PATIENCE).without_internals().expect_success();
    assert_eq!(finished.stderr.matches(": stopped after").count(), FLOWS);
}

#[test]
fn a_limit_that_cannot_be_raised_is_named_before_anything_runs() {
    let pipeline = many();
    let mut command = pipeline.command(&[]);
    process::limit_descriptors(&mut command, 1_024, 1_024);
    let finished = pipeline.spawn(command).wait(PATIENCE).without_internals().expect_exit(1);
    finished.says(&["1,000 flows need", "1,024", "ulimit -n", "LimitNOFILE"]);
    assert!(!pipeline.checkpoint().directory().exists());
}

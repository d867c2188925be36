//! What a crash does to the output, sink by sink, with an entry in the logs for each micro-batch
//! and with asynchronous progress tracking. (Kafka exactly once: [`crate::exactly_once`].)
//!
//! A micro-batch is a file of ten rows. A process is ended at one step of it, and a second one
//! does what is left; how many rows each of them writes is known exactly.

use std::cell::Cell;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::files_and_static::{put, sorted_lines};
use crate::kafka;
use crate::millstream::{CRASH_AT, Finished, Pipeline, Running, progress, table};
use crate::topics::sorted_values;

const ROWS: usize = 10;
/// Starting, a micro-batch and an abort.
const CRASH_LIMIT: Duration = Duration::from_secs(120);

/// Which micro-batches get entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Every,
    /// The first of a run and no other.
    Asynchronous,
}

impl Mode {
    const ALL: [Self; 2] = [Self::Every, Self::Asynchronous];

    fn options(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Every => &[],
            Self::Asynchronous => &[
                ("asyncProgressTrackingEnabled", "true"),
                ("asyncProgressTrackingCheckpointIntervalMs", "3600000"),
            ],
        }
    }
}

#[derive(Clone, Debug)]
enum Target {
    /// At least once, to this topic.
    Kafka(String),
    Files,
    Console,
    Stats,
    Noop,
}

/// A flow from files of ten numbers each.
struct Flow {
    pipeline: Pipeline,
    target: Target,
    files: Cell<usize>,
}

/// One process that is ended at a step, and one that does what is left.
#[derive(Debug, PartialEq, Eq)]
struct Crash {
    step: &'static str,
    /// Rows that the first has written; `None` where a killed process does not tell.
    before: Option<usize>,
    /// Rows that the second writes.
    after: usize,
}

fn crash(step: &'static str, before: usize, after: usize) -> Crash {
    Crash { step, before: Some(before), after }
}

impl Flow {
    fn new(target: Target, mode: Mode) -> Self {
        let servers = match &target {
            Target::Kafka(topic) => {
                kafka::shared().topics().create(topic, 1);
                kafka::shared().address()
            }
            _ => String::new(),
        };
        let servers = ("kafka.bootstrap.servers", servers.as_str());
        let (connector, options, columns) = match &target {
            Target::Kafka(topic) => {
                let options = vec![servers, ("topic", topic), ("delivery", "at-least-once")];
                ("kafka", options, "CAST(n AS STRING) AS value")
            }
            Target::Files => {
                let options = vec![("path", "output"), ("commitInterval", "0")];
                ("json", options, "n")
            }
            Target::Console => ("console", vec![("numRows", "100")], "n"),
            Target::Stats => ("stats", vec![], "n, current_timestamp() AS at"),
            Target::Noop => ("noop", vec![], "n"),
        };
        let source = [("path", "input"), ("maxFilesPerTrigger", "1")];
        let pipeline = Pipeline::new(&format!(
            "{}{}INSERT INTO target SELECT {columns} FROM STREAM source;\n",
            table("source", "(n BIGINT)", "json", &source),
            table("target", "", connector, &[&options, mode.options()].concat()),
        ));
        let flow = Self { pipeline, target, files: Cell::new(0) };
        flow.put_rows();
        flow
    }

    /// Gives it the rows of the next micro-batch.
    fn put_rows(&self) {
        let file = self.files.replace(self.files.get() + 1);
        let rows = file * ROWS..(file + 1) * ROWS;
        let rows: String = rows.map(|n| format!("{{\"n\":{n}}}\n")).collect();
        put(&self.pipeline, &format!("input/{file:03}.json"), &rows);
    }

    fn flags(&self) -> &'static [&'static str] {
        match self.target {
            Target::Noop => &["--progress", "json"],
            _ => &[],
        }
    }

    fn start(&self) -> Running {
        self.pipeline.start(self.flags())
    }

    /// The same flow with another checkpoint.
    fn on_checkpoint(&self, checkpoint: &str) -> Command {
        let mut command = self.pipeline.bare_command(&["run", "pipeline.sql"]);
        command.args(["--checkpoint", checkpoint]).args(self.flags());
        command
    }

    /// Does everything that is left.
    fn finish(&self) -> Finished {
        // availableNow is refused with asynchronous tracking; switching it off needs no ceremony.
        let synchronous = "target.asyncProgressTrackingEnabled=false";
        let flags = ["--trigger", "availableNow", "--set", synchronous];
        self.pipeline.run(&[self.flags(), &flags].concat()).expect_success()
    }

    /// The rows that anyone can see outside of the process, sorted as text.
    fn output(&self) -> Vec<String> {
        match &self.target {
            Target::Kafka(topic) => sorted_values(&kafka::shared().topics().read(topic)),
            Target::Files => sorted_lines(&self.pipeline.path("output")),
            Target::Console | Target::Stats | Target::Noop => Vec::new(),
        }
    }

    /// What `run` writes: outside, or what it says itself.
    fn written_by(&self, run: impl FnOnce() -> Finished) -> usize {
        let before = self.output().len();
        let finished = run();
        match self.target {
            Target::Kafka(_) | Target::Files => self.output().len() - before,
            _ => self.told(&finished),
        }
    }

    /// How many rows a process says that its sink has got.
    fn told(&self, finished: &Finished) -> usize {
        let count = |value: &Value| usize::try_from(value.as_u64().expect("a count")).expect("few");
        match self.target {
            Target::Console => {
                let cells = finished.stdout.lines().map(|line| line.trim_matches(['|', ' ']));
                cells.filter(|cell| cell.parse::<usize>().is_ok()).count()
            }
            // Without rows there is no line.
            Target::Stats => {
                progress(&finished.stdout).iter().map(|line| count(&line["count"])).sum()
            }
            Target::Noop => {
                let lines = progress(&finished.stdout);
                lines.iter().map(|line| count(&line["sink"]["numOutputRows"])).sum()
            }
            Target::Kafka(_) | Target::Files => panic!("the output tells"),
        }
    }

    /// Ends a process at each step of a micro-batch of its own.
    fn assert_crashes(&self, crashes: &[Crash]) {
        self.finish();
        for expected in crashes {
            self.put_rows();
            let mut command = self.pipeline.command(self.flags());
            command.env(CRASH_AT, expected.step);
            let before = self.written_by(|| {
                self.pipeline.spawn(command).wait(CRASH_LIMIT).expect_crash(expected.step)
            });
            let before = expected.before.map(|_| before);
            let after = self.written_by(|| self.finish());
            let found = Crash { step: expected.step, before, after };
            assert_eq!(found, *expected, "{:?}", self.target);
        }
        assert_eq!(self.written_by(|| self.finish()), 0, "everything is logged");
        self.assert_complete();
    }

    /// No row is missing from the output.
    fn assert_complete(&self) {
        if let Target::Kafka(_) | Target::Files = self.target {
            let mut output = self.output();
            output.dedup();
            assert_eq!(output.len(), self.files.get() * ROWS, "rows are missing: {output:?}");
        }
    }
}

#[test]
fn kafka_at_least_once_repeats_what_is_not_logged() {
    let (every, asynchronous) = (Mode::Every, Mode::Asynchronous);
    for (topic, mode) in [("delivery_every", every), ("delivery_async", asynchronous)] {
        let mut crashes = vec![
            crash("after-take", 0, ROWS),
            crash("after-run", 0, ROWS),
            crash("before-commit-entry", ROWS, ROWS),
            crash("after-commit-entry", ROWS, 0),
        ];
        // Only then does the intent wait for the brokers, too.
        if mode == Mode::Asynchronous {
            crashes.push(crash("before-intent", ROWS, ROWS));
            crashes.push(crash("after-intent", ROWS, ROWS));
        }
        Flow::new(Target::Kafka(topic.into()), mode).assert_crashes(&crashes);
    }
}

#[test]
fn asynchronous_tracking_repeats_all_since_the_last_entry() {
    let flow = Flow::new(Target::Kafka("delivery_since".into()), Mode::Asynchronous);
    let topics = kafka::shared().topics();
    let mut running = flow.start();
    for files in 1..=4 {
        let all = (files * ROWS) as u64;
        running.wait_while_running("its rows", || topics.written("delivery_since") == all);
        if files < 4 {
            flow.put_rows();
        }
    }
    let logged = || flow.pipeline.checkpoint().ids("commits") == [0];
    running.wait_while_running("the first entry", logged);
    running.kill();
    assert_eq!(flow.written_by(|| flow.finish()), 3 * ROWS, "all but the first micro-batch");
    flow.assert_complete();
}

#[test]
fn files_have_each_row_once_wherever_it_crashes() {
    for mode in Mode::ALL {
        let crashes = [
            crash("after-take", 0, ROWS),
            crash("after-run", 0, ROWS),
            crash("before-begin", 0, ROWS),
            crash("after-produce", 0, ROWS),
            crash("before-commit", 0, ROWS),
            // It is published: the restart gives its file the name that readers look for.
            crash("after-commit", 0, ROWS),
            crash("files-named", ROWS, 0),
            crash("files-listed", ROWS, 0),
            crash("before-intent", ROWS, 0),
            crash("after-intent", ROWS, 0),
            crash("before-commit-entry", ROWS, 0),
            crash("after-commit-entry", ROWS, 0),
        ];
        let flow = Flow::new(Target::Files, mode);
        flow.assert_crashes(&crashes);
        assert_eq!(flow.output().len(), flow.files.get() * ROWS, "rows are doubled: {mode:?}");
    }
}

#[test]
fn files_have_each_row_once_though_many_micro_batches_have_no_commit_entry() {
    let flow = Flow::new(Target::Files, Mode::Asynchronous);
    let mut running = flow.start();
    for files in 1..=4 {
        running.wait_while_running("its rows", || flow.output().len() == files * ROWS);
        if files < 4 {
            flow.put_rows();
        }
    }
    running.kill();
    assert_eq!(flow.pipeline.checkpoint().ids("commits"), [0]);
    assert_eq!(flow.written_by(|| flow.finish()), 0, "all was published");
    flow.assert_complete();
}

#[test]
fn console_stats_and_noop_get_rows_again() {
    for mode in Mode::ALL {
        for target in [Target::Console, Target::Stats, Target::Noop] {
            // A killed process has printed no totals.
            let shown = matches!(target, Target::Console);
            let crashes = [
                crash("after-run", 0, ROWS),
                crash("before-intent", ROWS, ROWS),
                crash("after-intent", ROWS, ROWS),
                crash("before-commit-entry", ROWS, ROWS),
                crash("after-commit-entry", ROWS, 0),
            ]
            .map(|crash| Crash { before: crash.before.filter(|_| shown), ..crash });
            Flow::new(target, mode).assert_crashes(&crashes);
        }
    }
}

#[test]
fn two_instances_at_least_once_both_write() {
    for (topic, mode) in [("delivery_two", Mode::Every), ("delivery_two_async", Mode::Asynchronous)]
    {
        for target in [Target::Kafka(topic.into()), Target::Console, Target::Stats, Target::Noop] {
            let flow = Flow::new(target, mode);
            let first = flow.start();
            let second = flow.pipeline.spawn(flow.on_checkpoint("other"));
            let mut instances = [(first, "checkpoint"), (second, "other")];
            for (instance, checkpoint) in &mut instances {
                let entry = flow.pipeline.path(&format!("{checkpoint}/commits/0"));
                instance.wait_while_running("its micro-batch", || entry.exists());
            }
            let told = instances.map(|(instance, _)| {
                let finished = instance.stop().expect_success();
                if matches!(flow.target, Target::Kafka(_)) { ROWS } else { flow.told(&finished) }
            });
            assert_eq!(told, [ROWS, ROWS], "{:?}", flow.target);
            if matches!(flow.target, Target::Kafka(_)) {
                assert_eq!(flow.output().len(), 2 * ROWS);
                flow.assert_complete();
            }
        }
    }
}

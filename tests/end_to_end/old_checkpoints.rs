//! Checkpoints of earlier versions, left in mid-stream: this version continues them, and loses and
//! doubles nothing.
//!
//! `fixtures/checkpoints` has a directory for each kind; its README says what is in it, how it was
//! made and at which version. A test copies the directory, adds the input of `more`, runs the
//! pipeline once, and compares all rows with `expected`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use millstream_store::env::Env;

use crate::files_and_static::{data_files, sorted_lines};
use crate::millstream::{CRASH_AT, Finished, Pipeline};
use crate::{old_kafka_checkpoints, oracle, wait};

/// Stands in the text files of a fixture for the directory of its pipeline file.
const PLACE: &str = "/FIXTURE";
/// Directories of input that was there before; the log of files has their times of change.
const INPUTS: [&str; 3] = ["input", "others", "names"];
/// That time: 2026-01-01T00:00:00Z.
const CHANGED: Duration = Duration::from_secs(1_767_225_600);
/// What is not made: the rest of a fixture is written by hand.
const BY_HAND: [&str; 8] =
    ["pipeline.sql", "input", "others", "names", "more", "expected", "topics", "more_topics"];

/// How the run ended that left the checkpoint.
#[derive(Clone, Copy)]
enum Ended {
    /// All that was there was read.
    Cleanly,
    /// It crashed at this step.
    At(&'static str),
    /// It watched its source, and crashed at this step.
    Watching(&'static str),
    /// It watched its source until there was a snapshot of the state, and was interrupted.
    WithSnapshot,
}

pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(FROM_CRATE)
}

/// From the crate that the tests belong to.
const FROM_CRATE: &str = "../../tests/end_to_end/fixtures/checkpoints";

macro_rules! kinds {
    ($($name:ident: $ended:expr,)*) => {
        const KINDS: &[(&str, Ended)] = &[$((stringify!($name), $ended)),*];

        $(#[test]
        fn $name() {
            continue_from(stringify!($name));
        })*
    };
}

kinds! {
    aggregates: Ended::At("after-commit:1"),
    asynchronous: Ended::Watching("after-commit:3"),
    dead_letters: Ended::At("after-commit:4"),
    deduplication: Ended::At("after-commit:3"),
    delta: Ended::At("after-commit:2"),
    files: Ended::At("after-intent:3"),
    first_rows: Ended::At("after-commit:2"),
    join: Ended::At("after-commit:2"),
    on_error: Ended::At("before-intent:2"),
    outer_join: Ended::At("after-commit:1"),
    sessions: Ended::At("after-commit:1"),
    several_sinks: Ended::At("after-intent:2"),
    snapshot: Ended::WithSnapshot,
    snapshot_in_pieces: Ended::WithSnapshot,
    static_join: Ended::At("files-named:2"),
    window_append: Ended::At("after-commit:1"),
    window_complete: Ended::Cleanly,
    window_update: Ended::Cleanly,
}

/// The generator's rows follow from the clock: [`rows_of_a_clock_go_on`].
const RATE: (&str, Ended) = ("rate", Ended::Watching("after-intent:5"));

/// The fixture `kind` with its further input, in a directory of its own.
pub fn copied(kind: &str) -> Pipeline {
    let fixture = fixtures().join(kind);
    let pipeline = Pipeline::new("");
    let to = pipeline.path("");
    assert!(fixture.join("checkpoint").is_dir(), "{kind} was not made, see the README");
    copy(&fixture, &to, &|bytes| replaced(bytes, PLACE, &directory(&pipeline)));
    INPUTS.iter().for_each(|input| set_changed(&to.join(input)));
    copy(&fixture.join("more"), &to, &<[u8]>::to_vec);
    pipeline
}

fn continue_from(kind: &str) {
    let pipeline = copied(kind);
    let finished = run_the_rest(&pipeline);
    for name in names(&fixtures().join(kind).join("expected")) {
        let found = rows(&pipeline, &finished, &name);
        let expected = fs::read_to_string(fixtures().join(kind).join("expected").join(&name));
        let expected = expected.expect("it can be read");
        assert_eq!(found, expected.lines().collect::<Vec<_>>(), "{kind}: {name}");
    }
    let again = run_the_rest(&pipeline);
    assert!(!again.stdout.contains('|'), "{kind}: nothing new, and {}", again.stdout);
}

#[test]
fn rows_of_a_clock_go_on() {
    let pipeline = copied(RATE.0);
    // As if the query had begun three seconds ago: else all rows since it was made would follow.
    let begun_ms = Env::real().now_ms() - 3_000;
    let file = pipeline.checkpoint().path("sources/0/0");
    fs::write(file, format!("v1\n{begun_ms}")).expect("it is ours");
    run_the_rest(&pipeline);
    let mut values: Vec<u64> =
        sorted_lines(&pipeline.path("output")).iter().map(|line| number(line)).collect();
    values.sort_unstable();
    assert!(values.len() >= 30, "{values:?}");
    assert!(values.iter().copied().eq(0..values.len() as u64), "{values:?}");
}

/// N of `{"value":N}`.
fn number(line: &str) -> u64 {
    let row: serde_json::Value = serde_json::from_str(line).expect("a row is JSON");
    row["value"].as_u64().expect("a number")
}

fn run_the_rest(pipeline: &Pipeline) -> Finished {
    // availableNow is refused with asynchronous tracking; switching it off needs no ceremony.
    let synchronous = "target.asyncProgressTrackingEnabled=false";
    let finished = pipeline.run(&["--trigger", "availableNow", "--set", synchronous]);
    finished.expect_success().says_not(&["begins anew", "cannot be read"])
}

/// The rows of an output, sorted: what was printed, a Delta table, or a directory of JSON files.
fn rows(pipeline: &Pipeline, finished: &Finished, output: &str) -> Vec<String> {
    let path = pipeline.path(output);
    let mut rows = match output {
        "printed" => printed(&finished.stdout),
        _ if path.join("_delta_log").is_dir() => {
            let sql = "SELECT list(CAST(to_json(t) AS VARCHAR)) AS rows FROM TABLE AS t";
            let rows = oracle::light().query(&path, sql)["rows"].take();
            let text = |row: &serde_json::Value| row.as_str().expect("a text").to_owned();
            rows.as_array().expect("a list").iter().map(text).collect()
        }
        _ => sorted_lines(&path),
    };
    // Letters name files.
    let place = directory(pipeline);
    rows.iter_mut().for_each(|row| *row = row.replace(&place, PLACE));
    rows.sort();
    rows
}

/// The rows of the tables on standard output, without blanks.
fn printed(stdout: &str) -> Vec<String> {
    let rows = stdout.lines().filter(|line| line.starts_with('|'));
    rows.map(|row| row.replace(' ', "")).collect()
}

pub fn directory(pipeline: &Pipeline) -> String {
    let path = pipeline.path("").canonicalize().expect("it is there");
    path.to_str().expect("temporary directories have plain names").to_owned()
}

pub fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory);
    let entries = entries.unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let name = |entry: std::io::Result<fs::DirEntry>| {
        entry.expect("it can be listed").file_name().into_string().expect("names are text")
    };
    let mut names: Vec<String> = entries.map(name).collect();
    names.sort();
    names
}

/// Copies all files below `from`, each changed by `change`.
pub fn copy(from: &Path, to: &Path, change: &dyn Fn(&[u8]) -> Vec<u8>) {
    if !from.is_dir() {
        return;
    }
    fs::create_dir_all(to).expect("the directory is writable");
    for name in names(from) {
        let (from, to) = (from.join(&name), to.join(&name));
        if from.is_dir() {
            copy(&from, &to, change);
        } else {
            fs::write(&to, change(&fs::read(&from).expect("it can be read"))).expect("it is ours");
        }
    }
}

/// `bytes` with `new` in the place of `old`, where they are text.
pub fn replaced(bytes: &[u8], old: &str, new: &str) -> Vec<u8> {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.replace(old, new).into_bytes(),
        Err(_) => {
            let is_there = bytes.windows(old.len()).any(|part| part == old.as_bytes());
            assert!(!is_there, "{old} stands in a file that is not text");
            bytes.to_vec()
        }
    }
}

fn set_changed(input: &Path) {
    for path in data_files(input) {
        let file = File::options().append(true).open(&path).expect("it is ours");
        file.set_modified(UNIX_EPOCH + CHANGED).expect("it is ours");
    }
}

/// With `MILLSTREAM_FIXTURES=make` what is missing of the fixtures is made with this version's
/// binary, after `pipeline.sql`, the input and `more` were written by hand; `expected` is what a
/// run over all input gives that nothing stopped, to be read before it is kept.
#[test]
fn each_fixture_is_there_and_has_a_test() {
    if std::env::var("MILLSTREAM_FIXTURES").is_ok_and(|order| order == "make") {
        make_what_is_missing();
        old_kafka_checkpoints::make_what_is_missing();
    }
    let of_topics = old_kafka_checkpoints::KINDS.map(|(kind, _)| kind);
    let tested = KINDS.iter().chain(&[RATE]).map(|(kind, _)| *kind).chain(of_topics);
    let mut tested: Vec<String> = tested.map(str::to_owned).collect();
    tested.sort();
    let is_made = |kind: &String| fixtures().join(kind).join("checkpoint").is_dir();
    let made: Vec<String> = names(&fixtures()).into_iter().filter(is_made).collect();
    assert_eq!(made, tested);
}

fn make_what_is_missing() {
    for (kind, ended) in KINDS.iter().chain(&[RATE]) {
        let fixture = fixtures().join(kind);
        if fixture.join("checkpoint").exists() {
            continue;
        }
        let pipeline = Pipeline::new("");
        let to = pipeline.path("");
        copy(&fixture, &to, &<[u8]>::to_vec);
        INPUTS.iter().for_each(|input| set_changed(&to.join(input)));
        let finished = leave(&pipeline, *ended);
        fs::write(to.join("printed"), &finished.stdout).expect("the directory is writable");
        for name in made(&pipeline) {
            let (from, to) = (to.join(&name), fixture.join(&name));
            let change = |bytes: &[u8]| replaced(bytes, &directory(&pipeline), PLACE);
            match from.is_dir() {
                true => copy(&from, &to, &change),
                false if fs::metadata(&from).is_ok_and(|file| file.len() == 0) => {}
                false => fs::write(to, change(&fs::read(from).unwrap())).unwrap(),
            }
        }
        if *kind != RATE.0 {
            expect_what_an_undisturbed_run_gives(&fixture);
        }
    }
}

/// What a run has made in the pipeline's directory.
pub fn made(pipeline: &Pipeline) -> Vec<String> {
    let is_made = |name: &String| {
        let is_of_test = name.starts_with("stdout.") || name.starts_with("stderr.");
        !is_of_test && !BY_HAND.contains(&name.as_str())
    };
    names(&pipeline.path("")).into_iter().filter(is_made).collect()
}

/// Runs the pipeline over the first input, to the end that the checkpoint is to have.
fn leave(pipeline: &Pipeline, ended: Ended) -> Finished {
    let mut command = match ended {
        Ended::Cleanly | Ended::At(_) => pipeline.command(&["--trigger", "availableNow"]),
        Ended::Watching(_) | Ended::WithSnapshot => pipeline.command(&[]),
    };
    if let Ended::At(step) | Ended::Watching(step) = ended {
        command.env(CRASH_AT, step);
        return pipeline.spawn(command).wait(wait::SOON).expect_crash(step);
    }
    let (last, hidden) = (pipeline.path("input/4.json"), pipeline.path("input/.4.json"));
    let has_snapshot = matches!(ended, Ended::WithSnapshot);
    if has_snapshot {
        fs::rename(&last, &hidden).expect("it is ours");
    }
    let mut running = pipeline.spawn(command);
    if has_snapshot {
        // A snapshot is begun by a micro-batch, and another has come when it is finished.
        let state = pipeline.checkpoint().path("state");
        let micro_batches = || pipeline.checkpoint().ids("commits").len();
        running.wait_while_running("the first files", || micro_batches() >= 3);
        fs::rename(&hidden, &last).expect("it is ours");
        let is_snapshot = |name: &String| name.starts_with("snapshot-");
        running.wait_while_running("a snapshot", || names(&state).iter().any(is_snapshot));
        running.interrupt();
    }
    running.wait(wait::SOON).expect_success()
}

/// Writes `expected`: all rows of a run that nothing stopped, or what a second run prints.
fn expect_what_an_undisturbed_run_gives(fixture: &Path) {
    let pipeline = Pipeline::new("");
    let to = pipeline.path("");
    for part in BY_HAND.into_iter().filter(|part| fixture.join(part).is_dir()) {
        copy(&fixture.join(part), &to.join(part), &<[u8]>::to_vec);
    }
    pipeline.rewrite(&fs::read_to_string(fixture.join("pipeline.sql")).expect("it is there"));
    INPUTS.iter().for_each(|input| set_changed(&to.join(input)));
    let prints = fixture.join("printed").exists();
    if prints {
        pipeline.run_available();
    }
    copy(&to.join("more"), &to, &<[u8]>::to_vec);
    let synchronous = ["--set", "target.asyncProgressTrackingEnabled=false"];
    let flags = [&["--trigger", "availableNow"][..], &synchronous].concat();
    let finished = pipeline.run(&flags).expect_success();
    fs::create_dir_all(fixture.join("expected")).expect("it is ours");
    let outputs = ["output", "table", "letters"].into_iter().filter(|name| to.join(name).is_dir());
    for output in outputs.chain(prints.then_some("printed")) {
        let rows = rows(&pipeline, &finished, output);
        let text: String = rows.iter().map(|row| format!("{row}\n")).collect();
        fs::write(fixture.join("expected").join(output), text).expect("it is ours");
    }
}

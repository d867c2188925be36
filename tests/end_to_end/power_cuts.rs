//! A power cut at any moment, for sinks that write to local directories.
//!
//! A run is recorded: each write, flush and rename. Then the directory is made again as a power cut
//! after some of these steps would leave it, and a query that is started there must come to its
//! end, with each row once, whoever reads, and so must one after another power cut in that run.
//! `MILLSTREAM_POWER_CUTS` says how many of the different power cuts are tried, or `all`, as
//! `tests/nightly` has it.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use millstream_testkit::disk_record::{Record, Recorder, Survives, Tree};
use serde_json::Value;

use crate::files_and_static::{data_files, sorted_lines};
use crate::files_exactly_once::{listed, sorted};
use crate::live::mixed;
use crate::millstream::{Pipeline, table};
use crate::oracle;

const RUN_LIMIT: Duration = Duration::from_secs(60);
const FILES: u64 = 12;
const ROWS_OF_A_FILE: u64 = 5;

/// A flow from files into a directory, with all that it writes below `world`.
struct Recorded {
    pipeline: Pipeline,
    sink: Sink,
    query: &'static str,
    recorder: Recorder,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sink {
    Table,
    Files,
}

const MODES: [Survives; 5] =
    [Survives::Flushed, Survives::Names, Survives::Some(1), Survives::Some(2), Survives::All];

/// A power cut after so many steps.
struct Cut {
    steps: usize,
    survives: Survives,
}

/// The power cuts that leave different files, in order; some of them, unless all are asked for.
fn cuts(record: &Record) -> Vec<Cut> {
    let (mut seen, mut cuts) = (HashSet::new(), Vec::new());
    for survives in MODES {
        for (steps, tree) in record.left_after_each(survives).enumerate() {
            let mut hasher = DefaultHasher::new();
            tree.hash(&mut hasher);
            if seen.insert(hasher.finish()) {
                cuts.push(Cut { steps, survives });
            }
        }
    }
    cuts.sort_by_key(|cut| cut.steps);
    let wanted = match std::env::var("MILLSTREAM_POWER_CUTS") {
        Ok(text) if text == "all" => cuts.len(),
        Ok(text) => text.parse().expect("MILLSTREAM_POWER_CUTS is a number, or all"),
        Err(_) => 8,
    };
    let all = cuts.len();
    let is_chosen = |at: usize| at * wanted / all != (at + 1) * wanted / all;
    let chosen = cuts.into_iter().enumerate().filter(|(at, _)| is_chosen(*at));
    chosen.map(|(_, cut)| cut).collect()
}

impl Recorded {
    fn new(sink: Sink, query: &'static str) -> Self {
        let pipeline = Pipeline::new("");
        let input = pipeline.path("input");
        fs::create_dir_all(&input).expect("made");
        // The checkpoint's parent is there, so that nothing but the output may be lost as a whole.
        fs::create_dir_all(pipeline.path("world/check")).expect("made");
        for file in 0..FILES {
            let rows = (file * ROWS_OF_A_FILE..).take(ROWS_OF_A_FILE as usize);
            let lines: String = rows.map(|v| format!("{{\"v\":{v}}}\n")).collect();
            let path = input.join(format!("{file:02}.json"));
            fs::write(&path, lines).expect("written");
            // The oldest file is read first.
            let time = UNIX_EPOCH + Duration::from_secs(1_700_000_000 + file);
            let opened = fs::File::options().write(true).open(&path).expect("opened");
            opened.set_modified(time).expect("it has a time");
        }
        let input = input.display().to_string();
        let output = pipeline.path("world/out/put").display().to_string();
        let source = [("path", input.as_str()), ("maxFilesPerTrigger", "1")];
        let mut target = vec![("path", output.as_str()), ("commitInterval", "1ms")];
        let format = match sink {
            Sink::Table => "delta",
            // The manifest is compacted often, and what is superseded is deleted at once.
            Sink::Files => {
                target.push(("fileSink.log.compactInterval", "3"));
                target.push(("fileSink.log.cleanupDelay", "1ms"));
                "json"
            }
        };
        let sql = format!(
            "{}{}CREATE FLOW recorded AS INSERT INTO target {query};\n",
            table("source", "(v BIGINT)", "json", &source),
            table("target", "", format, &target),
        );
        pipeline.rewrite(&sql);
        let recorder = Recorder::new(&pipeline.path("world"), &pipeline.path(""));
        Self { pipeline, sink, query, recorder }
    }

    fn output(&self) -> PathBuf {
        self.pipeline.path("world/out/put")
    }

    fn command(&self) -> std::process::Command {
        let run = ["run", "pipeline.sql", "--checkpoint", "world/check/point"];
        let mut command = self.pipeline.bare_command(&run);
        command.args(["--trigger", "availableNow"]);
        command
    }

    /// What a run does to its end, which comes `after` something.
    fn record(&mut self, after: &str) -> Record {
        let mut command = self.command();
        self.recorder.watch(&mut command);
        let run = self.pipeline.spawn(command).wait(RUN_LIMIT);
        assert!(run.status.success(), "{}: {after}\n{}", self.query, run.stderr);
        self.recorder.record()
    }

    /// The numbers in the output, on which its readers agree.
    fn values(&self) -> Vec<u64> {
        let output = self.output();
        if self.sink == Sink::Table {
            let mut oracle = oracle::light();
            oracle.agreed(&["deltalake", "duckdb"], &output);
            let found = oracle.query(&output, "SELECT list(v ORDER BY v) AS v FROM TABLE");
            let values = found["v"].as_array().expect("a list");
            return values.iter().map(|value| value.as_u64().expect("a number")).collect();
        }
        let listed = listed(&output).expect("nobody writes any more");
        assert_eq!(data_files(&output), sorted(listed), "by names, and by the manifest");
        let value = |line: &String| -> Value { serde_json::from_str(line).expect("JSON") };
        let lines = sorted_lines(&output);
        let values = lines.iter().map(|line| value(line)["v"].as_u64().expect("a number"));
        let mut values: Vec<u64> = values.collect();
        values.sort_unstable();
        values
    }

    /// Cuts the power at some moments, and of the run that follows at one more; in the end a query
    /// that is started again has `expected`. `is_sound` checks every record.
    fn assert_exactly_once(&mut self, expected: &[u64], is_sound: impl Fn(&Self, &Record)) {
        let record = self.record("without a power cut");
        assert_eq!(self.values(), expected, "{}: without a power cut", self.query);
        is_sound(self, &record);
        for (nth, cut) in (0..).zip(cuts(&record)) {
            let after = cut.made(&record);
            let repair = self.record(&after);
            assert_eq!(self.values(), expected, "{}: {after}", self.query);
            is_sound(self, &repair);
            let steps = mixed(nth) as usize % (repair.len() + 1);
            let survives = MODES[mixed(nth + 1) as usize % MODES.len()];
            let after = format!("{after}; then {}", Cut { steps, survives }.made(&repair));
            self.record(&after);
            assert_eq!(self.values(), expected, "{}: {after}", self.query);
        }
    }

    /// What a commit entry says is published survives a power cut at once.
    fn assert_flushed_when_committed(&self, record: &Record) {
        let written = record.left_after_each(Survives::All);
        let flushed = record.left_after_each(Survives::Flushed);
        for (steps, (written, flushed)) in written.zip(flushed).enumerate() {
            let commits = self.pipeline.path("world/check/point/commits");
            let committed = numbered(&written, &commits).map(|(number, _)| number).max();
            let published = match self.sink {
                Sink::Table => {
                    let entries = log_actions(&flushed, "txn");
                    entries.iter().filter_map(|txn| txn["version"].as_u64()).max()
                }
                Sink::Files => {
                    let records = self.output().join("_millstream/commits");
                    let parsed = numbered(&flushed, &records).map(|(_, text)| parsed(text));
                    parsed.filter_map(|record| record["batchId"].as_u64()).max()
                }
            };
            let query = self.query;
            assert!(
                published >= committed,
                "{query}: after {steps} steps {committed:?} is committed, {published:?} flushed"
            );
        }
    }
}

impl Cut {
    /// Leaves what the power cut leaves of `record`, and says so.
    fn made(&self, record: &Record) -> String {
        let Self { steps, survives } = *self;
        record.restore(&record.left(steps, survives));
        let next = record.step(steps).map_or("nothing more".to_owned(), ToString::to_string);
        format!("power cut after {steps} steps ({next} is next), {survives:?} survives")
    }
}

/// The files of `directory` whose names are numbers, and their content.
fn numbered<'a>(tree: &'a Tree, directory: &Path) -> impl Iterator<Item = (u64, &'a [u8])> {
    tree.iter().filter_map(move |(path, content)| {
        let name = path.strip_prefix(directory).ok()?.to_str()?;
        Some((name.parse().ok()?, content.as_deref()?))
    })
}

fn parsed(text: &[u8]) -> Value {
    serde_json::from_slice(text).expect("a record is whole")
}

/// What the entries of a Delta table's log say under `name`.
fn log_actions(tree: &Tree, name: &str) -> Vec<Value> {
    let is_entry = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        path.parent().is_some_and(|above| above.ends_with("_delta_log"))
            && name.strip_suffix(".json").is_some_and(|number| number.parse::<u64>().is_ok())
    };
    let entries = tree.iter().filter(|(path, _)| is_entry(path));
    let texts = entries.filter_map(|(_, content)| content.as_deref());
    let lines = texts.flat_map(|text| std::str::from_utf8(text).expect("text").lines());
    let actions = lines.map(|line| serde_json::from_str::<Value>(line).expect("a whole line"));
    actions.filter_map(|mut action| action.get_mut(name).map(Value::take)).collect()
}

/// What is wrong with a directory of files: records and manifest name files that are not there.
fn missing_files(tree: &Tree, output: &Path) -> Vec<String> {
    let mut sizes = BTreeMap::new();
    for (path, content) in tree {
        let name = path.strip_prefix(output).ok().and_then(Path::to_str);
        sizes.extend(name.zip(content.as_ref().map(Vec::len)));
    }
    let has = |name: &Value, size: &Value| {
        let name = name.as_str().expect("text");
        let name = name.rsplit('/').next().expect("there is always a last");
        sizes.get(name).is_some_and(|found| Some(*found as u64) == size.as_u64())
    };
    let mut missing = Vec::new();
    for (path, content) in tree {
        let (Ok(name), Some(content)) = (path.strip_prefix(output), content) else { continue };
        let is_hidden = |name: &str| name.starts_with('.');
        if name.file_name().and_then(|name| name.to_str()).is_none_or(is_hidden) {
            continue;
        }
        let text = String::from_utf8_lossy(content);
        if name.starts_with("_millstream/commits") {
            let record = parsed(content);
            let files = record["files"].as_array().expect("a list");
            let there = |file: &&Value| {
                has(&file["written"], &file["size"]) || has(&file["name"], &file["size"])
            };
            missing.extend(files.iter().filter(|file| !there(file)).map(|file| file.to_string()));
        } else if name.starts_with("_spark_metadata") {
            for line in text.lines().skip(1) {
                let file: Value = serde_json::from_str(line).expect("an entry is whole");
                if !has(&file["path"], &file["size"]) {
                    missing.push(line.to_owned());
                }
            }
        }
    }
    missing
}

fn all_rows() -> Vec<u64> {
    (0..FILES * ROWS_OF_A_FILE).collect()
}

const COPY: &str = "SELECT v FROM STREAM source";

#[test]
fn a_directory_of_files_names_only_what_survives_a_power_cut() {
    let mut recorded = Recorded::new(Sink::Files, COPY);
    recorded.assert_exactly_once(&all_rows(), |recorded, record| {
        for (steps, tree) in record.left_after_each(Survives::Flushed).enumerate() {
            let missing = missing_files(&tree, &recorded.output());
            assert!(missing.is_empty(), "after {steps} steps these are not flushed: {missing:?}");
        }
        recorded.assert_flushed_when_committed(record);
    });
}

#[test]
fn a_delta_table_names_only_what_survives_a_power_cut() {
    let mut recorded = Recorded::new(Sink::Table, COPY);
    recorded.assert_exactly_once(&all_rows(), |recorded, record| {
        for (steps, tree) in record.left_after_each(Survives::Flushed).enumerate() {
            for add in log_actions(&tree, "add") {
                let path = recorded.output().join(add["path"].as_str().expect("text"));
                let size = tree.get(&path).and_then(|content| content.as_ref()).map(Vec::len);
                let expected = add["size"].as_u64().map(|size| size as usize);
                assert_eq!(size, expected, "after {steps} steps {} is not flushed", path.display());
            }
        }
        recorded.assert_flushed_when_committed(record);
    });
}

#[test]
fn a_query_with_state_survives_a_power_cut() {
    // The second half of the files has nothing that is new, unless the state is lost.
    let mut recorded = Recorded::new(Sink::Table, "SELECT DISTINCT v % 30 AS v FROM STREAM source");
    let half: Vec<u64> = (0..FILES / 2 * ROWS_OF_A_FILE).collect();
    recorded.assert_exactly_once(&half, |_, _| {});
}

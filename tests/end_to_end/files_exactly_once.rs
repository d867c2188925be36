//! Exactly once into directories of files, for readers that go by names and for Spark, which goes
//! by the manifest.
//!
//! `MILLSTREAM_KILLS` says how often a process is ended at each step of a commit, and ten times as
//! often at random moments.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::files_and_static::{data_files, sorted_lines};
use crate::kafka::{self, Broker};
use crate::live::{ASYNC, Numbers, PARTITIONS, STEPS, kills, occurrences};
use crate::millstream::{Pipeline, Running, table};
use crate::{cache, program, spark, wait};

/// So many commits that the manifest is compacted, and what is superseded deleted, all the time.
const OFTEN: [(&str, &str); 2] = [("commitInterval", "100ms"), ("fileSink.log.cleanupDelay", "1s")];

/// The steps of a commit of a directory.
pub const FILES_STEPS: [&str; 2] = ["files-named", "files-listed"];

/// A flow from a topic into a directory.
struct Filed<'a> {
    numbers: Numbers<'a>,
    pipeline: Pipeline,
}

impl<'a> Filed<'a> {
    fn new(broker: &'a Broker, name: &str, sink: &[(&str, &str)]) -> Self {
        let numbers = Numbers::new(broker.topics(), format!("{name}_in"));
        let pipeline = Pipeline::new(&format!(
            "{}{}CREATE FLOW filed AS INSERT INTO target\n\
             SELECT CAST(value AS STRING) AS text, partition FROM STREAM source;\n",
            numbers.source_table(&broker.address()),
            table("target", "", "json", &[&[("path", "output")], sink].concat()),
        ));
        Self { numbers, pipeline }
    }

    fn output(&self) -> PathBuf {
        self.pipeline.path("output")
    }

    fn wait_for_more(&self, running: &mut Running) {
        let before = data_files(&self.output()).len();
        let is_more = || data_files(&self.output()).len() > before;
        running.wait_while_running("more files", is_more);
    }

    fn rows(&self) -> u64 {
        self.numbers.produced() * PARTITIONS as u64
    }

    /// Runs what is left, and holds output, manifest and logs against what was produced.
    fn assert_exactly_once(&self) {
        self.numbers.run_the_rest(&self.pipeline, "target");
        let mut expected: Vec<String> = (0..self.numbers.produced())
            .flat_map(|number| {
                let row = move |at| format!(r#"{{"text":"{number:06}","partition":{at}}}"#);
                (0..PARTITIONS).map(row)
            })
            .collect();
        expected.sort();
        assert!(sorted_lines(&self.output()) == expected, "by names: other rows than produced");
        let listed = listed(&self.output()).expect("nobody writes any more");
        let (named, listed) = (data_files(&self.output()), sorted(listed));
        assert_eq!(named, listed, "the manifest lists other files than there are");
        self.numbers.assert_logged(&self.pipeline);
    }
}

/// The paths in order.
pub fn sorted(mut paths: Vec<PathBuf>) -> Vec<PathBuf> {
    paths.sort();
    paths
}

/// The files that the manifest of `directory` lists, found as Spark finds them; what is missing, if
/// a reader would stop there.
pub fn listed(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let manifest = directory.join("_spark_metadata");
    let names = fs::read_dir(&manifest).map_err(|error| error.to_string())?;
    let names = names.map(|entry| entry.expect("it can be listed").file_name());
    let mut entries = BTreeMap::new();
    for name in names.map(|name| name.into_string().expect("names are text")) {
        let number = name.strip_suffix(".compact").unwrap_or(&name).parse::<u64>();
        if let Ok(number) = number {
            entries.insert(number, name);
        }
    }
    let compact: Vec<u64> = entries
        .iter()
        .rev()
        .filter(|(_, name)| name.ends_with(".compact"))
        .map(|(number, _)| *number)
        .collect();
    let interval = match compact[..] {
        [] => 10,
        [only] => only + 1,
        [latest, previous, ..] => latest - previous,
    };
    let latest = *entries.keys().last().ok_or("there are no entries")?;
    let first = ((latest + 1) / interval * interval).saturating_sub(1);
    let mut paths = Vec::new();
    for number in first..=latest {
        let suffix = if (number + 1) % interval == 0 { ".compact" } else { "" };
        let name = format!("{number}{suffix}");
        let text = fs::read_to_string(manifest.join(&name));
        let text = text.map_err(|error| format!("{name} of {latest} by {interval}: {error}"))?;
        for line in text.lines().skip(1) {
            let line: Value = serde_json::from_str(line).map_err(|error| error.to_string())?;
            let path = line["path"].as_str().and_then(|path| path.strip_prefix("file://"));
            paths.push(PathBuf::from(path.expect("it is a local path")));
        }
    }
    Ok(paths)
}

/// Looks at `directory` as Spark does, again and again until `done`: all files that are listed are
/// there, and none that was is not any more.
fn watch(directory: &Path, done: &AtomicBool) -> usize {
    let (mut looks, mut before) = (0, 0);
    while !done.load(Ordering::Relaxed) {
        wait::pause(Duration::from_millis(5));
        // While an entry goes, a reader may have to look again.
        let Some(paths) = (0..5).find_map(|_| listed(directory).ok()) else { continue };
        for path in &paths {
            assert!(path.exists(), "{} is listed and not there", path.display());
        }
        assert!(paths.len() >= before, "{before} files were listed, and {} are", paths.len());
        (looks, before) = (looks + 1, paths.len());
    }
    looks
}

#[test]
fn kills_at_random_moments_lose_and_double_no_row_of_a_directory() {
    kill_at_random_moments("filed", &OFTEN);
}

#[test]
fn kills_lose_and_double_no_row_of_a_directory_with_asynchronous_tracking() {
    kill_at_random_moments("filed_async", &[&OFTEN[..], &ASYNC].concat());
}

#[test]
fn kills_lose_and_double_no_row_with_a_commit_for_each_micro_batch() {
    kill_at_random_moments("filed_each", &[("commitInterval", "0"), OFTEN[1]]);
}

fn kill_at_random_moments(name: &str, sink: &[(&str, &str)]) {
    let filed = Filed::new(kafka::shared(), name, sink);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| watch(&filed.output(), &done));
        let wait_for_more = |running: &mut Running| filed.wait_for_more(running);
        filed.numbers.kill_at_random(&filed.pipeline, kills(1) * 10, wait_for_more);
        done.store(true, Ordering::Relaxed);
        assert!(watcher.join().expect("every look was right") > 0, "nobody has looked");
    });
    filed.assert_exactly_once();
}

#[test]
fn a_crash_at_any_step_loses_and_doubles_no_row_of_a_directory() {
    let filed = Filed::new(kafka::shared(), "filed_steps", &OFTEN);
    let steps = STEPS.iter().filter(|step| **step != "after-offsets").copied();
    let steps: Vec<&str> = steps.chain(FILES_STEPS).collect();
    filed.numbers.crash_at_steps(&filed.pipeline, &steps, &occurrences(12));
    filed.assert_exactly_once();
}

#[test]
fn spark_reads_a_directory_after_kills_compaction_and_deletion() {
    let often = Filed::new(kafka::shared(), "filed_spark", &OFTEN);
    let each =
        Filed::new(kafka::shared(), "filed_spark_each", &[("commitInterval", "0"), OFTEN[1]]);
    for filed in [&often, &each] {
        let wait_for_more = |running: &mut Running| {
            filed.wait_for_more(running);
            wait::pause(Duration::from_secs(4));
        };
        filed.numbers.kill_at_random(&filed.pipeline, 3, wait_for_more);
        filed.assert_exactly_once();
        let manifest = filed.output().join("_spark_metadata");
        assert!(!manifest.join("0").exists(), "nothing was deleted");
        let names = fs::read_dir(&manifest).expect("it is there");
        let names = names.map(|entry| entry.expect("it can be listed").file_name());
        let compact = names.filter(|name| name.to_string_lossy().ends_with(".compact"));
        assert!(compact.count() >= 2, "nothing was compacted");
    }
    let mut python = Command::new(spark::python());
    python.arg(cache::repository().join("tests/spark/files.py"));
    python.arg(often.output()).arg(each.output());
    python.env("SPARK_LOCAL_IP", "127.0.0.1").env_remove("SPARK_HOME");
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    python.current_dir(directory.path());
    let read = program::output("reading directories with Spark", python, "").unwrap();
    let expected = [&often, &each]
        .map(|filed| format!("{{\"rows\": {0}, \"distinct\": {0}}}\n", filed.rows()));
    assert_eq!(read, expected.concat());
}

//! The engine itself, as a user runs it: `millstream run` with the table as its sink.
//!
//! Rows come from the source `rate`, and a micro-batch begins with each pause: a job that writes
//! each minute, with its minutes made shorter. A commit is the whole micro-batch here, from its
//! trigger until the table has it and both logs know.

use std::fs;
use std::path::Path;
use std::time::Duration;

use millstream_store::env::Env;
use millstream_testkit::program::Usage;

use super::peers::PeerFacts;
use super::step::{StepOutcome, WARM_UP_COMMITS};
use super::synthetic::{LOG, ROWS_PER_COMMIT};
use crate::clock::Clock;
use crate::engine::{self, EngineOptions, Telling, sql_options};
use crate::error::Error;
use crate::report::rounded;
use crate::system;

const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// How long a commit may take beyond its pause.
const OVERDUE_MAX: Duration = Duration::from_secs(120);

/// So many commits into `table`, a micro-batch every `pause_ms` milliseconds.
pub fn commits(
    env: &Env,
    (commits, pause_ms, part_size): (u64, u64, u64),
    table: &Path,
) -> Result<StepOutcome<PeerFacts>, Error> {
    let directory = table.parent().unwrap_or(table);
    let pipeline = pipeline(table, pause_ms, part_size);
    let options = EngineOptions::default();
    let clock = Clock::new(env);
    let telling = engine::start_telling(env, &clock, &pipeline, &options, directory)?;
    let mut job = Job { env, table, telling, pause: Duration::from_millis(pause_ms) };
    job.wait_for(WARM_UP_COMMITS)?;
    let (begun, before) = (env.monotonic(), job.telling.process.usage());
    let with_checkpoint = job.wait_for(WARM_UP_COMMITS + commits)?;
    let (wall, used) = (env.monotonic() - begun, job.telling.process.usage());
    let Telling { mut process, progress } = job.telling;
    system::stop(&mut process)?;
    drop(process);
    let told = progress.finish()?;
    let told = told.iter().skip(count(WARM_UP_COMMITS)).take(count(commits));
    let facts = PeerFacts {
        commit_ms: told.map(|it| (it.published_us - it.fired_us) as f64 / 1_000.0).collect(),
        commits_with_checkpoint: with_checkpoint,
        checkpoint_ms: None,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    Ok(outcome(facts, wall, &before, &used))
}

fn outcome(
    facts: PeerFacts,
    wall: Duration,
    before: &Usage,
    used: &Usage,
) -> StepOutcome<PeerFacts> {
    StepOutcome {
        facts,
        wall_ms: rounded(wall.as_secs_f64() * 1_000.0, 3),
        cpu_ms: rounded((used.cpu_seconds - before.cpu_seconds) * 1_000.0, 1),
        peak_rss_mb: rounded(used.peak_rss_mb, 1),
    }
}

fn pipeline(table: &Path, pause_ms: u64, part_size: u64) -> String {
    let per_second = u64::try_from(ROWS_PER_COMMIT).expect("it is positive") * 1_000;
    let rate = (per_second / pause_ms.max(1)).max(1).to_string();
    let (path, part_size) = (table.display().to_string(), part_size.to_string());
    let trigger = format!("{pause_ms} milliseconds");
    let sink = [
        ("path", path.as_str()),
        ("commitInterval", "0"),
        ("partSize", &part_size),
        ("trigger", &trigger),
    ];
    format!(
        "CREATE TABLE ticks USING rate OPTIONS ({});\n\
         CREATE TABLE lake USING delta OPTIONS ({});\n\
         CREATE FLOW job AS INSERT INTO lake BY NAME\n\
         SELECT value AS id, value / 7 AS price, concat('user-', CAST(value AS STRING)) AS user,\n\
         timestamp AS at, 'a note' AS note FROM STREAM ticks;\n",
        sql_options(&[("rowsPerSecond", &rate)], &[]),
        sql_options(&sink, &[]),
    )
}

struct Job<'a> {
    env: &'a Env,
    table: &'a Path,
    telling: Telling,
    pause: Duration,
}

impl Job<'_> {
    /// Waits until so many micro-batches have been told of; gives those that came back with a new
    /// checkpoint in the log, counted from the first that it waited for.
    fn wait_for(&mut self, micro_batches: u64) -> Result<Vec<u64>, Error> {
        let told = |telling: &Telling| telling.progress.look(|told| told.len());
        let (from, wanted) = (told(&self.telling), count(micro_batches));
        let (mut known, mut last) = (checkpoints(self.table)?, (from, self.env.monotonic()));
        let mut with_checkpoint = Vec::new();
        while last.0 < wanted {
            self.telling.process.check()?;
            if self.env.monotonic() - last.1 > self.pause + OVERDUE_MAX {
                let problem = "no commit has come".to_owned();
                return Err(Error::Result { path: self.table.to_owned(), problem });
            }
            std::thread::sleep(LOOK_AGAIN);
            let now = told(&self.telling);
            if now > last.0 {
                let found = checkpoints(self.table)?;
                if found > known {
                    with_checkpoint.push((now - 1 - from) as u64);
                }
                (known, last) = (found, (now, self.env.monotonic()));
            }
        }
        Ok(with_checkpoint)
    }
}

fn count(number: u64) -> usize {
    usize::try_from(number).expect("commits are few")
}

/// The version of the newest checkpoint of a table, as its files are called; empty without one.
fn checkpoints(table: &Path) -> Result<String, Error> {
    let log = table.join(LOG);
    let names = fs::read_dir(&log).map_err(Error::file("list", &log))?;
    let names = names.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let versions = names
        .filter_map(|name| name.split_once(".checkpoint.").map(|(version, _)| version.to_owned()));
    Ok(versions.max().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minutes_are_made_shorter_and_rows_of_a_commit_stay_as_many() {
        let told = pipeline(Path::new("/lake"), 500, 7);
        assert!(told.contains("'rowsPerSecond' = '20'"), "{told}");
        assert!(told.contains("'partSize' = '7', 'trigger' = '500 milliseconds'"), "{told}");
        let hourly = pipeline(Path::new("/lake"), 3_600_000, 7);
        assert!(hourly.contains("'rowsPerSecond' = '1'"), "{hourly}");
    }

    #[test]
    fn the_newest_checkpoint_is_found_among_all_files_of_a_log() {
        let directory = tempfile::tempdir().expect("a directory");
        let log = directory.path().join(LOG);
        fs::create_dir(&log).expect("a log");
        assert_eq!(checkpoints(directory.path()).expect("it is there"), "");
        for name in ["09.checkpoint.parquet", "10.checkpoint.1.2.parquet", "11.json", "_last"] {
            fs::write(log.join(name), "").expect("a file");
        }
        assert_eq!(checkpoints(directory.path()).expect("it is there"), "10");
    }
}

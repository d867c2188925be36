//! One step of a measurement, in a process of its own: its peak memory and processor time are then
//! those of the step, and nothing is in memory that the step did not put there.
//!
//! The program starts itself with a request as JSON, and the child prints one JSON object.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use millstream_lake::checkpoint::{Checkpointer, PartFileNames, Written};
use millstream_lake::file_writer::{FileSettings, FileWriter, WritePlan};
use millstream_lake::maintenance::LiveTable;
use millstream_lake::store::TableStore;
use millstream_lake::table::{Append, Table};
use millstream_store::env::Env;
use millstream_testkit::program;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::configuration::Configuration;
use super::delay::Delayed;
use super::synthetic::{self, APPLICATION, CHECKPOINT_INTERVAL};
use crate::error::Error;
use crate::report::{median, rounded};
use crate::system;

/// Files that are added before a full checkpoint: one of the same version would be taken over.
const FILES_BEFORE_FULL: u64 = 3;
/// Before time counts, of other engines, too.
pub const WARM_UP_COMMITS: u64 = 2;
/// Checkpoints in the steady state, at most, and how long they may take together.
const STEADY_CHECKPOINTS_MAX: u64 = 10;
const STEADY_TIME_MAX: Duration = Duration::from_secs(60);

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A checkpoint from commits alone, or from the one that is there.
    Checkpoint,
    /// A checkpoint of all rows in other parts than before.
    Full,
    /// Commits, and checkpoints as they come due.
    Commits,
    /// Checkpoints, each after the commits of one interval, with nothing beside them.
    Steady,
    /// A table is opened and its files are listed.
    Open,
}

/// A step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    pub kind: Kind,
    pub table: PathBuf,
    pub configuration: Configuration,
    pub part_rows: u64,
    /// Each request to the store takes so much longer.
    pub latency_ms: u64,
    pub commits: u64,
    pub pause_ms: u64,
}

/// What a step took.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepOutcome<T> {
    #[serde(flatten)]
    pub facts: T,
    pub wall_ms: f64,
    pub cpu_ms: f64,
    /// Of the step's process, all of it.
    pub peak_rss_mb: f64,
}

/// A checkpoint that was written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CheckpointFacts {
    pub bytes: u64,
    pub rows: u64,
    pub parts: usize,
    pub parts_rewritten: usize,
}

/// Commits, in milliseconds each.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CommitFacts {
    /// The data file is written and published.
    pub commit_ms: Vec<f64>,
    /// It is published.
    pub append_ms: Vec<f64>,
    /// Checkpoints that were written beside them.
    pub checkpoints: u64,
    pub checkpoints_failed: u64,
    /// How long one took, at low priority and beside the commits; zero without any.
    pub checkpoint_ms_mean: f64,
    pub checkpoint_ms_max: f64,
    pub parts_rewritten: u64,
    /// What was still to be done after the last commit.
    pub settle_ms: f64,
}

/// Checkpoints in the steady state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SteadyFacts {
    pub checkpoints: usize,
    pub checkpoint_ms_median: f64,
    pub checkpoint_ms_max: f64,
    /// The mean over all.
    pub checkpoint_cpu_ms: f64,
    pub parts: usize,
    /// Of the last one.
    pub parts_rewritten: usize,
}

/// A table that was opened.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OpenFacts {
    /// Until it can be appended to, and it is known what the query published last.
    pub open_ms: f64,
    /// From there until every live file has been listed.
    pub list_ms: f64,
    pub files: u64,
}

impl Request {
    /// Has it done by a child.
    pub fn run<T: DeserializeOwned>(&self) -> Result<StepOutcome<T>, Error> {
        let request = serde_json::to_string(self).expect("a request is plain values");
        let mut program = system::this_program()?;
        program.args(["delta", "--step", &request]);
        let said = program::output("a step of the benchmark", program, "build it again")?;
        serde_json::from_str(&said).map_err(|error| Error::Result {
            path: self.table.clone(),
            problem: format!("the step {:?} gave no result ({error}): {said}", self.kind),
        })
    }

    fn store(&self, env: &Env) -> Result<TableStore, Error> {
        let store = TableStore::parse(&self.table.display().to_string(), env);
        let store = store.map_err(Error::table("finding the table"))?;
        let latency = Duration::from_millis(self.latency_ms);
        if latency.is_zero() {
            return Ok(store);
        }
        let env = env.clone();
        Ok(store.wrapped(|inner| Arc::new(Delayed { inner, latency, env })))
    }
}

/// Does what the child was started for, and prints what it took.
pub fn execute(env: &Env, request: &str) -> Result<(), Error> {
    let request: Request = serde_json::from_str(request).map_err(|error| Error::Flags {
        problem: format!("--step is for the benchmark itself: {error}"),
    })?;
    let step = Step { env, store: request.store(env)?, request: &request };
    let line = match request.kind {
        Kind::Checkpoint => to_json(&step.checkpoint()?),
        Kind::Full => to_json(&step.full()?),
        Kind::Commits => to_json(&step.commits()?),
        Kind::Steady => to_json(&step.steady()?),
        Kind::Open => to_json(&step.open()?),
    };
    println!("{line}");
    Ok(())
}

fn to_json(outcome: &impl Serialize) -> String {
    serde_json::to_string(outcome).expect("results are plain values")
}

struct Step<'a> {
    env: &'a Env,
    store: TableStore,
    request: &'a Request,
}

/// Since when.
struct Since {
    at: Duration,
    cpu_seconds: f64,
}

impl Step<'_> {
    fn checkpoint(&self) -> Result<StepOutcome<CheckpointFacts>, Error> {
        let version = synthetic::newest_version(&self.store)?;
        self.write_checkpoint(version)
    }

    fn full(&self) -> Result<StepOutcome<CheckpointFacts>, Error> {
        let version = synthetic::newest_version(&self.store)? + 1;
        synthetic::append(&self.store, version, FILES_BEFORE_FULL, &PartFileNames::default())?;
        self.write_checkpoint(version)
    }

    fn write_checkpoint(&self, version: u64) -> Result<StepOutcome<CheckpointFacts>, Error> {
        let since = self.now();
        let written = self.checkpointer()?.write(version);
        let written = written.map_err(Error::table("writing a checkpoint"))?;
        Ok(self.outcome(&since, facts(&written)))
    }

    fn commits(&self) -> Result<StepOutcome<CommitFacts>, Error> {
        let Request { configuration, commits, .. } = *self.request;
        let live = self.live()?;
        let plan = WritePlan::new(live.table(), &synthetic::schema(), FileSettings::default());
        let plan = plan.map_err(Error::table("preparing to write"))?;
        let mut writer = FileWriter::new(plan, &self.store);
        if configuration.is_steered() {
            writer.name_with(live.part_file_names());
        }
        for number in 0..WARM_UP_COMMITS {
            self.commit(&live, &mut writer, number)?;
        }
        let (mut facts, since) = (CommitFacts::default(), self.now());
        for number in (0..commits).map(|number| number + WARM_UP_COMMITS) {
            let (commit, append) = self.commit(&live, &mut writer, number)?;
            facts.commit_ms.push(ms(commit));
            facts.append_ms.push(ms(append));
            std::thread::sleep(Duration::from_millis(self.request.pause_ms));
        }
        let last = self.env.monotonic();
        live.settle();
        facts.settle_ms = ms(self.env.monotonic() - last);
        let done = live.checkpoints();
        facts.checkpoints = done.written;
        facts.checkpoints_failed = done.failed;
        facts.checkpoint_ms_mean = rounded(ms(done.took) / done.written.max(1) as f64, 3);
        facts.checkpoint_ms_max = ms(done.took_max);
        facts.parts_rewritten = done.parts_rewritten;
        Ok(self.outcome(&since, facts))
    }

    /// How long a commit took with its data file, and without.
    fn commit(
        &self,
        live: &LiveTable,
        writer: &mut FileWriter,
        number: u64,
    ) -> Result<(Duration, Duration), Error> {
        let rows = synthetic::rows(number);
        let begun = self.env.monotonic();
        writer.write(&rows).map_err(Error::table("writing rows"))?;
        let files = writer.finish().map_err(Error::table("writing a file"))?;
        let written = self.env.monotonic();
        let version = i64::try_from(number).expect("commits are few");
        let prepared_by = live.table().version();
        let append =
            Append { application: APPLICATION, version, files: &files, prepared_by, note: "{}" };
        let appended = live.append(&append).map_err(Error::table("appending"))?;
        let done = self.env.monotonic();
        assert!(appended.is_some(), "the table has no commit {number} of the benchmark yet");
        Ok((done - begun, done - written))
    }

    fn steady(&self) -> Result<StepOutcome<SteadyFacts>, Error> {
        let mut version = synthetic::newest_version(&self.store)?;
        let mut checkpointer = self.checkpointer()?;
        let steered = checkpointer.part_file_names();
        let is_steered = self.request.configuration.is_steered();
        let names = if is_steered { steered } else { PartFileNames::default() };
        let mut next = || -> Result<StepOutcome<CheckpointFacts>, Error> {
            for _ in 0..CHECKPOINT_INTERVAL {
                version += 1;
                synthetic::append(&self.store, version, 1, &names)?;
            }
            let since = self.now();
            let written = checkpointer.write(version);
            let written = written.map_err(Error::table("writing a checkpoint"))?;
            Ok(self.outcome(&since, facts(&written)))
        };
        // It reads the one that another process wrote, and tells which names are good.
        next()?;
        let (mut done, since) = (Vec::new(), self.now());
        while done.is_empty() || self.has_time(&since, done.len() as u64) {
            done.push(next()?);
        }
        Ok(self.outcome(&since, steady_facts(&done)))
    }

    fn has_time(&self, since: &Since, done: u64) -> bool {
        done < STEADY_CHECKPOINTS_MAX && self.env.monotonic() - since.at < STEADY_TIME_MAX
    }

    fn open(&self) -> Result<StepOutcome<OpenFacts>, Error> {
        let since = self.now();
        let live = self.live()?;
        let open_ms = ms(self.env.monotonic() - since.at);
        let files = live.table().count_files().map_err(Error::table("listing files"))?;
        let list_ms = ms(self.env.monotonic() - since.at) - open_ms;
        Ok(self.outcome(&since, OpenFacts { open_ms, list_ms: rounded(list_ms, 3), files }))
    }

    /// As a sink does it when it starts.
    fn live(&self) -> Result<LiveTable, Error> {
        let Request { configuration, part_rows, .. } = *self.request;
        let live = LiveTable::start(self.open_table()?, configuration.care(part_rows));
        let live = live.map_err(Error::table("opening the table"))?;
        let published = live.table().last_published(APPLICATION);
        published.map_err(Error::table("asking what was published"))?;
        Ok(live)
    }

    fn open_table(&self) -> Result<Table, Error> {
        Table::open(&self.store).map_err(Error::table("opening the table"))
    }

    fn checkpointer(&self) -> Result<Checkpointer, Error> {
        let Request { configuration, part_rows, .. } = *self.request;
        let checkpointer =
            Checkpointer::open(self.store.clone(), configuration.settings(part_rows));
        checkpointer.map_err(Error::table("putting the table's log in order"))
    }

    fn now(&self) -> Since {
        let cpu_seconds = program::own_usage().cpu_seconds;
        Since { at: self.env.monotonic(), cpu_seconds }
    }

    fn outcome<T>(&self, since: &Since, facts: T) -> StepOutcome<T> {
        let (at, usage) = (self.env.monotonic(), program::own_usage());
        StepOutcome {
            facts,
            wall_ms: ms(at - since.at),
            cpu_ms: rounded((usage.cpu_seconds - since.cpu_seconds) * 1_000.0, 1),
            peak_rss_mb: rounded(usage.peak_rss_mb, 1),
        }
    }
}

fn facts(written: &Written) -> CheckpointFacts {
    let Written { bytes, rows, parts, parts_rewritten, .. } = *written;
    CheckpointFacts { bytes, rows, parts, parts_rewritten }
}

fn steady_facts(done: &[StepOutcome<CheckpointFacts>]) -> SteadyFacts {
    let last = &done.last().expect("there is a checkpoint").facts;
    let cpu_ms: f64 = done.iter().map(|one| one.cpu_ms).sum();
    SteadyFacts {
        checkpoints: done.len(),
        checkpoint_ms_median: rounded(median(done.iter().map(|one| one.wall_ms)), 3),
        checkpoint_ms_max: done.iter().map(|one| one.wall_ms).fold(0.0, f64::max),
        checkpoint_cpu_ms: rounded(cpu_ms / done.len() as f64, 1),
        parts: last.parts,
        parts_rewritten: last.parts_rewritten,
    }
}

/// Milliseconds, to the microsecond.
fn ms(time: Duration) -> f64 {
    rounded(time.as_secs_f64() * 1_000.0, 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_and_its_outcome_go_there_and_back() {
        let request = Request {
            kind: Kind::Commits,
            table: "a \"table\"".into(),
            configuration: Configuration::MultiPart,
            part_rows: 7,
            latency_ms: 30,
            commits: 5,
            pause_ms: 50,
        };
        let text = to_json(&request);
        assert_eq!(serde_json::from_str::<Request>(&text).expect("the same"), request);
        let facts = OpenFacts { open_ms: 1.5, list_ms: 2.0, files: 3 };
        let outcome = StepOutcome { facts, wall_ms: 3.5, cpu_ms: 4.0, peak_rss_mb: 5.0 };
        let text = to_json(&outcome);
        assert!(text.starts_with(r#"{"open_ms":1.5,"#), "{text}");
        assert_eq!(serde_json::from_str::<StepOutcome<OpenFacts>>(&text).expect("it"), outcome);
    }

    #[test]
    fn the_steady_state_is_the_median_of_its_checkpoints() {
        let one = |wall_ms, parts_rewritten| StepOutcome {
            facts: CheckpointFacts { parts: 16, parts_rewritten, ..CheckpointFacts::default() },
            wall_ms,
            cpu_ms: 2.0 * wall_ms,
            peak_rss_mb: 1.0,
        };
        let facts = steady_facts(&[one(9.0, 16), one(1.0, 2), one(2.0, 3)]);
        assert_eq!((facts.checkpoint_ms_median, facts.checkpoint_ms_max), (2.0, 9.0));
        assert_eq!((facts.checkpoints, facts.parts, facts.parts_rewritten), (3, 16, 3));
        assert_eq!(facts.checkpoint_cpu_ms, 8.0);
    }
}

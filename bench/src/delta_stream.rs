//! `millstream-bench delta-stream`: a Delta table that is read as a stream.
//!
//! - `catch-up`: a table of many small commits is read from its first version to its last, into a
//!   sink that drops all rows. The time is that of the whole process.
//! - `latency`: one process writes rows of the `rate` source to a table, a commit for each
//!   micro-batch; another reads it, and its `stats` sink tells how old each row was when it was
//!   published: so both the commit and its being noticed are in it.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use millstream_lake::file_writer::{FileSettings, FileWriter, WritePlan};
use millstream_lake::store::TableStore;
use millstream_lake::table::{Append, NewTable, Table};
use millstream_store::env::Env;
use serde::Serialize;

use crate::engine::{self, EngineOptions, sql_options};
use crate::error::Error;
use crate::quantiles::Quantiles;
use crate::rate_to_stats::intervals;
use crate::report::{self, Report};
use crate::work_directory::WorkDirectory;

/// How long a process may take beyond what is measured.
const OVERDUE_MAX: Duration = Duration::from_secs(600);
const LOOK_AGAIN: Duration = Duration::from_millis(20);
const APPLICATION: &str = "bench";

/// Flags of `millstream-bench delta-stream`.
#[derive(Debug, clap::Args)]
pub struct Flags {
    /// Commits of the table that is caught up with
    #[arg(long, default_value_t = 2_000)]
    commits: u64,
    /// Rows of each of them
    #[arg(long, default_value_t = 1_000)]
    rows: u64,
    /// Rows a second while latency is measured; 0: it is not
    #[arg(long, default_value_t = 10_000)]
    rate: u64,
    /// Seconds of that, after as many of warm-up
    #[arg(long, default_value_t = 15)]
    seconds: u64,
    /// Rounds of each
    #[arg(long, default_value_t = 3)]
    repeat: u32,
    /// Option of the engine: `source.NAME=V` stands in the OPTIONS of the table that is read
    #[arg(long, value_name = "K=V")]
    engine_option: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
struct CatchUp {
    configuration: &'static str,
    round: u32,
    commits: u64,
    rows: u64,
    /// Million bytes of the data files.
    table_mb: f64,
    seconds: f64,
    rows_per_s: f64,
    mb_per_s: f64,
    commits_per_s: f64,
    cpu_seconds: f64,
    peak_rss_mb: f64,
}

#[derive(Clone, Debug, Serialize)]
struct Latency {
    configuration: &'static str,
    round: u32,
    rate: u64,
    seconds: u64,
    records: u64,
    micro_batches: u64,
    #[serde(flatten)]
    latency: Quantiles,
    throughput_rows_per_s: f64,
    cpu_seconds: f64,
}

/// Runs the whole benchmark. Always true: nothing is counted as lost here.
pub fn run(env: &Env, flags: &Flags) -> Result<bool, Error> {
    if flags.commits == 0 || flags.rows == 0 || flags.seconds == 0 || flags.repeat == 0 {
        let problem = "--commits, --rows, --seconds and --repeat must be at least 1".to_owned();
        return Err(Error::Flags { problem });
    }
    let options = EngineOptions::parse(&flags.engine_option)?;
    let bench = Bench { env, flags, options, work: WorkDirectory::create()? };
    let report = Report::new("delta-stream", None);
    eprintln!("making a table of {} commits of {} rows", flags.commits, flags.rows);
    let bytes = bench.make_table()?;
    for round in 1..=flags.repeat {
        let line = bench.catch_up(round, bytes)?;
        eprintln!(
            "catch-up {round}: {:.1} s, {:.0} rows/s, {:.1} MB/s, {:.0} commits/s, {:.1} s of CPU",
            line.seconds, line.rows_per_s, line.mb_per_s, line.commits_per_s, line.cpu_seconds
        );
        report.line("round", &line)?;
    }
    for round in (1..=flags.repeat).filter(|_| flags.rate > 0) {
        let line = bench.latency(round)?;
        let Quantiles { p50_ms, p99_ms, max_ms, .. } = line.latency;
        eprintln!(
            "latency {round}: p50 {p50_ms:.1} ms, p99 {p99_ms:.1} ms, max {max_ms:.1} ms, {} \
             micro-batches",
            line.micro_batches
        );
        report.line("round", &line)?;
    }
    Ok(true)
}

struct Bench<'a> {
    env: &'a Env,
    flags: &'a Flags,
    options: EngineOptions,
    work: WorkDirectory,
}

impl Bench<'_> {
    fn table(&self) -> Result<String, Error> {
        Ok(self.work.subdirectory("table")?.display().to_string())
    }

    /// Gives the bytes of its files.
    fn make_table(&self) -> Result<u64, Error> {
        let failed = "making a table";
        let store = TableStore::parse(&self.table()?, self.env).map_err(Error::table(failed))?;
        let schema = rows(0, 1).schema();
        let new = NewTable { schema: &schema, partition_by: &[], properties: &[] };
        let table = Table::create(&store, &new).map_err(Error::table(failed))?;
        let mut bytes = 0;
        for commit in 0..self.flags.commits {
            let plan = WritePlan::new(&table, &schema, FileSettings::default());
            let mut writer = FileWriter::new(plan.map_err(Error::table(failed))?, table.store());
            let written = writer.write(&rows(commit * self.flags.rows, self.flags.rows));
            written.map_err(Error::table(failed))?;
            let files = writer.finish().map_err(Error::table(failed))?;
            bytes += files.iter().map(|file| file.size).sum::<u64>();
            let append = Append {
                application: APPLICATION,
                version: i64::try_from(commit).unwrap_or(i64::MAX),
                files: &files,
                prepared_by: table.version(),
                note: "{}",
            };
            table.append(&append).map_err(Error::table(failed))?;
        }
        Ok(bytes)
    }

    fn catch_up(&self, round: u32, bytes: u64) -> Result<CatchUp, Error> {
        let directory = self.work.subdirectory(&format!("catch-up-{round}"))?;
        let table = self.table()?;
        let own = [("path", table.as_str()), ("startingVersion", "0")];
        let pipeline = format!(
            "CREATE TABLE lake USING delta OPTIONS ({});\n\
             CREATE TABLE output USING noop OPTIONS ('trigger' = 'availableNow');\n\
             CREATE FLOW catch_up AS INSERT INTO output SELECT * FROM STREAM lake;\n",
            sql_options(&own, &self.options.source),
        );
        let began = self.env.monotonic();
        let usage = engine::start(&pipeline, &self.options, &directory)?.wait(OVERDUE_MAX)?;
        let seconds = (self.env.monotonic() - began).as_secs_f64();
        let (commits, rows) = (self.flags.commits, self.flags.commits * self.flags.rows);
        let table_mb = bytes as f64 / 1e6;
        Ok(CatchUp {
            configuration: "catch-up",
            round,
            commits,
            rows,
            table_mb: report::rounded(table_mb, 1),
            seconds: report::rounded(seconds, 3),
            rows_per_s: report::rounded(rows as f64 / seconds, 0),
            mb_per_s: report::rounded(table_mb / seconds, 1),
            commits_per_s: report::rounded(commits as f64 / seconds, 0),
            cpu_seconds: report::rounded(usage.cpu_seconds, 2),
            peak_rss_mb: report::rounded(usage.peak_rss_mb, 1),
        })
    }

    fn latency(&self, round: u32) -> Result<Latency, Error> {
        let Flags { rate, seconds, .. } = *self.flags;
        let directory = self.work.subdirectory(&format!("latency-{round}"))?;
        let lake = directory.join("lake").display().to_string();
        let writer = format!(
            "CREATE TABLE input USING rate OPTIONS ('rowsPerSecond' = '{rate}');\n\
             CREATE TABLE lake USING delta OPTIONS ({});\n\
             CREATE FLOW write AS INSERT INTO lake SELECT timestamp, value FROM STREAM input;\n",
            sql_options(&[("path", &lake), ("commitInterval", "0")], &[]),
        );
        let own = self.work.subdirectory(&format!("latency-{round}/writer"))?;
        let mut writing = engine::start(&writer, &EngineOptions::default(), &own)?;
        let first = directory.join(format!("lake/_delta_log/{:020}.json", 1));
        let began = self.env.monotonic();
        while !first.exists() {
            writing.check()?;
            if self.env.monotonic() - began > OVERDUE_MAX {
                let problem = "no commit has come".to_owned();
                return Err(Error::Result { path: first, problem });
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        let told = directory.join("stats.jsonl");
        let (path, interval) = (told.display().to_string(), format!("{seconds} seconds"));
        let source = [("path", lake.as_str()), ("startingVersion", "latest")];
        let reader = format!(
            "CREATE TABLE lake USING delta OPTIONS ({});\n\
             CREATE TABLE latency USING stats OPTIONS ({});\n\
             CREATE FLOW measure AS INSERT INTO latency\n\
             SELECT timestamp, value FROM STREAM lake;\n",
            sql_options(&source, &self.options.source),
            sql_options(&[("path", &path), ("reportInterval", &interval)], &[]),
        );
        let mut reading = engine::start(&reader, &self.options, &directory)?;
        let limit = Duration::from_secs(seconds * 2) + OVERDUE_MAX;
        intervals(self.env, &told, 1, limit, &mut reading)?;
        let before = reading.usage();
        let lines = intervals(self.env, &told, 2, limit, &mut reading)?;
        let cpu_seconds = reading.usage().cpu_seconds - before.cpu_seconds;
        reading.stop()?;
        writing.stop()?;
        let stats = &lines[1];
        Ok(Latency {
            configuration: "latency",
            round,
            rate,
            seconds,
            records: stats.count,
            micro_batches: stats.micro_batches,
            latency: stats.latency,
            throughput_rows_per_s: report::rounded(stats.rows_per_second, 1),
            cpu_seconds: report::rounded(cpu_seconds, 2),
        })
    }
}

/// Rows `first..first + count`, of some 40 bytes each in a file.
fn rows(first: u64, count: u64) -> RecordBatch {
    let ids = || (first..first + count).map(|id| i64::try_from(id).unwrap_or(i64::MAX));
    let user = |id: i64| format!("user-{:016x}", id.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64));
    let columns: [(&str, ArrayRef); 3] = [
        ("id", Arc::new(Int64Array::from_iter_values(ids()))),
        ("price", Arc::new(Float64Array::from_iter_values(ids().map(|id| id as f64 / 7.0)))),
        ("user", Arc::new(StringArray::from_iter_values(ids().map(user)))),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true)))
        .expect("columns of one length")
}

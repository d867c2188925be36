//! `millstream-bench compaction`: what a stream of small commits pays for compaction beside it, and
//! what readers get for it.
//!
//! In each round two tables get the same rows, a commit every few milliseconds: one as it is, the
//! other with compaction in the background. Which comes first changes from round to round. Then
//! each is read as a whole, and the first is compacted on request and read again. It calls what
//! the sink calls, and starts no engine.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{Float64Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use millstream_lake::compact::background::AutoCompact;
use millstream_lake::compact::optimize::{OptimizeOptions, optimize};
use millstream_lake::file_writer::{FileSettings, FileWriter, WritePlan};
use millstream_lake::maintenance::{Care, LiveTable};
use millstream_lake::read::TableReader;
use millstream_lake::store::TableStore;
use millstream_lake::table::{Append, NewTable, Table};
use millstream_store::env::Env;
use serde::Serialize;

use crate::error::Error;
use crate::quantiles::{Latencies, Quantiles};
use crate::report::{Report, median, rounded};
use crate::work_directory::WorkDirectory;

const APPLICATION: &str = "millstream-bench";
/// Before time counts.
const WARM_UP_COMMITS: u64 = 20;
/// How often a table is read; the median counts.
const READS: usize = 5;

/// Flags of `millstream-bench compaction`.
#[derive(Clone, Debug, clap::Args)]
pub struct Flags {
    /// Commits that are measured
    #[arg(long, default_value_t = 6_000, value_parser = clap::value_parser!(u64).range(1..))]
    commits: u64,
    /// Milliseconds from one commit to the next
    #[arg(long, value_name = "MS", default_value_t = 10)]
    pause: u64,
    /// Rows of a commit
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    rows: u32,
    /// Rounds
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// Where tables are made while it runs; the system's place for temporary files if not given
    #[arg(long)]
    directory: Option<PathBuf>,
}

/// A table of a round.
#[derive(Clone, Debug, Serialize)]
struct Line {
    round: u32,
    /// Whether it was compacted beside the stream.
    compaction: bool,
    commits: u64,
    pause_ms: u64,
    /// From the moment a commit is due until it is done, with its data file.
    commit_time: Quantiles,
    /// The append alone: one entry of the log.
    append: Quantiles,
    /// At the end of the stream.
    files: u64,
    /// All rows read, at the end of the stream.
    query_ms: f64,
    /// Commits of the compaction, and the bytes it has written.
    compactions: u64,
    compacted_bytes: u64,
    /// Of the table that was not compacted beside the stream, after it was on request.
    files_optimized: Option<u64>,
    query_ms_optimized: Option<f64>,
    optimize_ms: Option<f64>,
}

/// Over all rounds: with compaction, divided by without.
#[derive(Clone, Debug, Serialize)]
struct Summary {
    rounds: u32,
    ratio_commit_p50: f64,
    ratio_commit_p99: f64,
    ratio_append_p99: f64,
    files_without: f64,
    files_with: f64,
    query_ms_without: f64,
    query_ms_with: f64,
}

/// Runs the benchmark. False if a row is missing or is there twice.
pub fn run(env: &Env, flags: &Flags) -> Result<bool, Error> {
    let work = match &flags.directory {
        Some(directory) => WorkDirectory::create_in(directory)?,
        None => WorkDirectory::create()?,
    };
    let (report, mut lines) = (Report::new("compaction", None), Vec::new());
    let bench = Bench { env, flags };
    for round in 1..=flags.repeat {
        for turn in [false, true] {
            let compaction = turn == (round % 2 == 1);
            let table = work.subdirectory(&format!("{round}-{compaction}"))?;
            let Some(line) = bench.measure(round, compaction, &table)? else { return Ok(false) };
            eprintln!(
                "round {round} compaction {compaction:<5}  commit p50 {:.2} p99 {:.2} ms  append \
                 p99 {:.2} ms  {} files  read in {:.1} ms",
                line.commit_time.p50_ms,
                line.commit_time.p99_ms,
                line.append.p99_ms,
                line.files,
                line.query_ms
            );
            report.line("round", &line)?;
            lines.push(line);
        }
    }
    let summary = summary(&lines, flags.repeat);
    eprintln!(
        "with compaction / without: commit p50 {:.3}, p99 {:.3}; append p99 {:.3}; files {} / {}; \
         read in {:.1} / {:.1} ms",
        summary.ratio_commit_p50,
        summary.ratio_commit_p99,
        summary.ratio_append_p99,
        summary.files_with,
        summary.files_without,
        summary.query_ms_with,
        summary.query_ms_without
    );
    report.line("summary", &summary)?;
    Ok(true)
}

fn summary(lines: &[Line], rounds: u32) -> Summary {
    let of = |compaction: bool, value: fn(&Line) -> f64| {
        let lines = lines.iter().filter(move |line| line.compaction == compaction);
        median(lines.map(value))
    };
    let ratio = |value: fn(&Line) -> f64| rounded(of(true, value) / of(false, value), 3);
    Summary {
        rounds,
        ratio_commit_p50: ratio(|line| line.commit_time.p50_ms),
        ratio_commit_p99: ratio(|line| line.commit_time.p99_ms),
        ratio_append_p99: ratio(|line| line.append.p99_ms),
        files_without: of(false, |line| line.files as f64),
        files_with: of(true, |line| line.files as f64),
        query_ms_without: of(false, |line| line.query_ms),
        query_ms_with: of(true, |line| line.query_ms),
    }
}

struct Bench<'a> {
    env: &'a Env,
    flags: &'a Flags,
}

impl Bench<'_> {
    fn measure(&self, round: u32, compaction: bool, table: &Path) -> Result<Option<Line>, Error> {
        let store = TableStore::parse(&table.display().to_string(), self.env);
        let store = store.map_err(Error::table("making the table"))?;
        let stream = self.stream(&store, compaction)?;
        let (files, rows, query_ms) = self.read(&store)?;
        let Flags { commits, pause, .. } = *self.flags;
        let mut line = Line {
            round,
            compaction,
            commits,
            pause_ms: pause,
            commit_time: stream.commit.quantiles(),
            append: stream.append.quantiles(),
            files,
            query_ms,
            compactions: stream.compactions,
            compacted_bytes: stream.compacted_bytes,
            files_optimized: None,
            query_ms_optimized: None,
            optimize_ms: None,
        };
        let mut is_whole = rows == self.rows();
        if !compaction {
            let begun = self.env.monotonic();
            let options = OptimizeOptions {
                target_bytes: 128 << 20,
                partitions: None,
                condition: None,
                is_dry_run: false,
            };
            optimize(&store, &options).map_err(Error::table("compacting the table"))?;
            line.optimize_ms = Some(ms(self.env.monotonic() - begun));
            let (files, rows, query_ms) = self.read(&store)?;
            is_whole &= rows == self.rows();
            (line.files_optimized, line.query_ms_optimized) = (Some(files), Some(query_ms));
        }
        std::fs::remove_dir_all(table).map_err(Error::file("remove", table))?;
        Ok(is_whole.then_some(line))
    }

    /// Rows that are written to a table.
    fn rows(&self) -> u64 {
        (self.flags.commits + WARM_UP_COMMITS) * u64::from(self.flags.rows)
    }

    fn stream(&self, store: &TableStore, compaction: bool) -> Result<Stream, Error> {
        let new = NewTable { schema: &schema(), partition_by: &[], properties: &[] };
        let table = Table::create(store, &new).map_err(Error::table("making the table"))?;
        let application = APPLICATION.to_owned();
        let auto = || AutoCompact { application, ..AutoCompact::default() };
        let care = Care { compaction: compaction.then(auto), ..Care::default() };
        let live = LiveTable::start(table, care).map_err(Error::table("opening the table"))?;
        let published = live.table().last_published(APPLICATION);
        published.map_err(Error::table("asking what was published"))?;
        let plan = WritePlan::new(live.table(), &schema(), FileSettings::default());
        let plan = plan.map_err(Error::table("preparing to write"))?;
        let mut writer = FileWriter::new(plan, store);
        writer.name_with(live.part_file_names());
        let mut stream = Stream {
            commit: Latencies::new(),
            append: Latencies::new(),
            compactions: 0,
            compacted_bytes: 0,
        };
        let pause = Duration::from_millis(self.flags.pause);
        let begun = self.env.monotonic();
        for number in 0..self.flags.commits + WARM_UP_COMMITS {
            let due = begun + pause * u32::try_from(number).expect("commits are few");
            std::thread::sleep(due.saturating_sub(self.env.monotonic()));
            writer.write(&rows(number, self.flags.rows)).map_err(Error::table("writing"))?;
            let files = writer.finish().map_err(Error::table("writing a file"))?;
            let written = self.env.monotonic();
            let version = i64::try_from(number).expect("commits are few");
            let prepared_by = live.table().version();
            let append = Append {
                application: APPLICATION,
                version,
                files: &files,
                prepared_by,
                note: "{}",
            };
            live.append(&append).map_err(Error::table("appending"))?;
            let done = self.env.monotonic();
            if number >= WARM_UP_COMMITS {
                stream.commit.add(us(done.saturating_sub(due)));
                stream.append.add(us(done - written));
            }
        }
        let compacted = live.compactions();
        (stream.compactions, stream.compacted_bytes) = (compacted.commits, compacted.bytes_added);
        Ok(stream)
    }

    /// The number of files and of rows, and how long it takes to read all of them.
    fn read(&self, store: &TableStore) -> Result<(u64, u64, f64), Error> {
        let (mut times, mut facts) = (Vec::new(), (0, 0));
        for _ in 0..READS {
            let begun = self.env.monotonic();
            let reader = TableReader::open(store).map_err(Error::table("opening the table"))?;
            let mut read = reader.read(None, None).map_err(Error::table("reading"))?;
            for rows in read.by_ref() {
                rows.map_err(Error::table("reading"))?;
            }
            times.push(ms(self.env.monotonic() - begun));
            facts = (read.facts().files, read.facts().rows);
        }
        Ok((facts.0, facts.1, median(times)))
    }
}

struct Stream {
    commit: Latencies,
    append: Latencies,
    compactions: u64,
    compacted_bytes: u64,
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, true),
        Field::new("device", DataType::Utf8, true),
        Field::new("value", DataType::Float64, true),
    ]))
}

/// The rows of a commit.
fn rows(number: u64, count: u32) -> RecordBatch {
    let first = i64::try_from(number).expect("commits are few") * i64::from(count);
    let ids = first..first + i64::from(count);
    let devices = ids.clone().map(|id| format!("device {}", id % 1_000));
    let values = ids.clone().map(|id| (id % 977) as f64 / 7.0);
    let columns = vec![
        Arc::new(Int64Array::from_iter_values(ids.clone())) as _,
        Arc::new(StringArray::from_iter_values(devices)) as _,
        Arc::new(Float64Array::from_iter_values(values)) as _,
    ];
    RecordBatch::try_new(schema(), columns).expect("three columns")
}

fn us(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

/// Milliseconds, to the microsecond.
fn ms(time: Duration) -> f64 {
    rounded(time.as_secs_f64() * 1_000.0, 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_tables_have_all_rows() {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let env = {
            let _inside = runtime.enter();
            Env::real()
        };
        let directory = tempfile::tempdir().expect("a directory");
        let flags = Flags {
            commits: 60,
            pause: 0,
            rows: 3,
            repeat: 1,
            directory: Some(directory.path().to_owned()),
        };
        assert!(run(&env, &flags).expect("it runs"));
    }
}

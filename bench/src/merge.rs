//! `millstream-bench merge`: commit times of rows that are merged into a Delta table by key.
//!
//! A table gets its keys, and then commits of rows with keys that are drawn among them. Each commit
//! leaves a file more, and what it replaces is in many files: the first fifty commits beside the
//! last fifty tell whether they stay as fast. It calls what the sink calls, and starts no engine.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{Float64Array, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use millstream_lake::compact::background::AutoCompact;
use millstream_lake::file_writer::FileSettings;
use millstream_lake::maintenance::{Care, LiveTable};
use millstream_lake::merge::{MergeSettings, MergeWriter, Merger};
use millstream_lake::read::TableReader;
use millstream_lake::store::TableStore;
use millstream_lake::table::{Append, NewTable, Table};
use millstream_store::env::Env;
use serde::Serialize;

use crate::error::Error;
use crate::quantiles::{Latencies, Quantiles};
use crate::report::Report;
use crate::work_directory::WorkDirectory;

const APPLICATION: &str = "millstream-bench";
/// Rows of a commit while the table gets its keys.
const LOADED_ROWS: i64 = 250_000;
/// Commits at the beginning and at the end that are compared with each other.
const EDGE: u64 = 50;
const INDEX_BYTES: usize = 256 << 20;

/// Flags of `millstream-bench merge`.
#[derive(Clone, Debug, clap::Args)]
pub struct Flags {
    /// Keys that the table has
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..))]
    keys: u32,
    /// Commits that are measured, for each rate
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..))]
    commits: u64,
    /// Milliseconds from one commit to the next
    #[arg(long, value_name = "MS", default_value_t = 1_000)]
    pause: u64,
    /// Rows of a commit, one after the other
    #[arg(long, value_delimiter = ',', default_values_t = [1_000, 10_000])]
    rows: Vec<u32>,
    /// Without compaction in the background
    #[arg(long)]
    no_compaction: bool,
    /// Where tables are made while it runs; the system's place for temporary files if not given
    #[arg(long)]
    directory: Option<PathBuf>,
}

/// A table.
#[derive(Clone, Debug, Serialize)]
struct Line {
    keys: u32,
    rows: u32,
    commits: u64,
    pause_ms: u64,
    compaction: bool,
    /// The commit alone: which rows are replaced, deletion vectors, one entry of the log.
    commit_time: Quantiles,
    commit_first: Quantiles,
    commit_last: Quantiles,
    /// From the moment a commit is due until it is done, with its data file.
    due: Quantiles,
    files_first: u64,
    files_last: u64,
    compactions: u64,
}

/// Runs the benchmark. False if a key is missing or is there twice.
pub fn run(env: &Env, flags: &Flags) -> Result<bool, Error> {
    let work = match &flags.directory {
        Some(directory) => WorkDirectory::create_in(directory)?,
        None => WorkDirectory::create()?,
    };
    let report = Report::new("merge", None);
    for rows in &flags.rows {
        let table = work.subdirectory(&format!("rows-{rows}"))?;
        let Some(line) = measure(env, flags, *rows, &table)? else { return Ok(false) };
        eprintln!(
            "{rows} rows a commit  commit p50 {:.2} p99 {:.2} ms  first p50 {:.2} p99 {:.2}  last \
             p50 {:.2} p99 {:.2}  files {} to {}",
            line.commit_time.p50_ms,
            line.commit_time.p99_ms,
            line.commit_first.p50_ms,
            line.commit_first.p99_ms,
            line.commit_last.p50_ms,
            line.commit_last.p99_ms,
            line.files_first,
            line.files_last
        );
        report.line("table", &line)?;
    }
    Ok(true)
}

fn measure(env: &Env, flags: &Flags, rows: u32, table: &Path) -> Result<Option<Line>, Error> {
    let store = TableStore::parse(&table.display().to_string(), env);
    let store = store.map_err(Error::table("making the table"))?;
    let mut stream = Stream::open(&store, !flags.no_compaction)?;
    let keys = i64::from(flags.keys);
    for first in (0..keys).step_by(usize::try_from(LOADED_ROWS).expect("it is small")) {
        stream.commit((first..keys.min(first + LOADED_ROWS)).collect())?;
    }
    let files = |stream: &Stream| {
        stream.live.table().count_files().map_err(|error| Error::table("counting files")(error))
    };
    let files_first = files(&stream)?;
    let [mut commit, mut first, mut last, mut due_to_done] = [(); 4].map(|()| Latencies::new());
    let (pause, begun) = (Duration::from_millis(flags.pause), env.monotonic());
    for number in 0..flags.commits {
        let due = begun + pause * u32::try_from(number).expect("commits are few");
        std::thread::sleep(due.saturating_sub(env.monotonic()));
        let drawn = (0..rows).map(|_| (env.random_u64() % u64::from(flags.keys)) as i64);
        let took = stream.commit(drawn.collect())?;
        due_to_done.add(us(env.monotonic().saturating_sub(due)));
        commit.add(us(took));
        if number < EDGE {
            first.add(us(took));
        }
        if number + EDGE >= flags.commits {
            last.add(us(took));
        }
    }
    let line = Line {
        keys: flags.keys,
        rows,
        commits: flags.commits,
        pause_ms: flags.pause,
        compaction: !flags.no_compaction,
        commit_time: commit.quantiles(),
        commit_first: first.quantiles(),
        commit_last: last.quantiles(),
        due: due_to_done.quantiles(),
        files_first,
        files_last: files(&stream)?,
        compactions: stream.live.compactions().commits,
    };
    drop(stream);
    let is_whole = rows_in(&store)? == u64::from(flags.keys);
    std::fs::remove_dir_all(table).map_err(Error::file("remove", table))?;
    Ok(is_whole.then_some(line))
}

/// A query that merges.
struct Stream {
    live: Arc<LiveTable>,
    merger: Merger,
    writer: MergeWriter,
    version: i64,
    env: Env,
}

impl Stream {
    fn open(store: &TableStore, compaction: bool) -> Result<Self, Error> {
        let properties = [("delta.enableDeletionVectors".to_owned(), "true".to_owned())];
        let new = NewTable { schema: &schema(), partition_by: &[], properties: &properties };
        let table = Table::create(store, &new).map_err(Error::table("making the table"))?;
        let application = APPLICATION.to_owned();
        let auto = || AutoCompact { application, ..AutoCompact::default() };
        let care = Care { compaction: compaction.then(auto), ..Care::default() };
        let live = LiveTable::start(table, care).map_err(Error::table("opening the table"))?;
        let published = live.table().last_published(APPLICATION);
        published.map_err(Error::table("asking what was published"))?;
        let settings = MergeSettings {
            keys: vec!["id".to_owned()],
            delete_column: None,
            index_bytes: INDEX_BYTES,
            refuses_repeated: false,
            files: FileSettings::default(),
        };
        let live = Arc::new(live);
        let merger = Merger::open(&live, &schema(), &settings);
        let merger = merger.map_err(Error::table("preparing to merge"))?;
        let writer = MergeWriter::new(merger.plan().clone(), store, live.part_file_names());
        Ok(Self { live, merger, writer, version: 0, env: store.env().clone() })
    }

    /// Merges rows with the keys `ids`; gives how long the commit took, without its data file.
    fn commit(&mut self, ids: Vec<i64>) -> Result<Duration, Error> {
        self.writer.write(&rows(ids)).map_err(Error::table("writing"))?;
        let rows = self.writer.finish().map_err(Error::table("writing a file"))?;
        let append = Append {
            application: APPLICATION,
            version: self.version,
            files: &[],
            prepared_by: self.merger.plan().version(),
            note: "{}",
        };
        let begun = self.env.monotonic();
        self.merger.commit(&append, &rows).map_err(Error::table("merging"))?;
        self.version += 1;
        Ok(self.env.monotonic() - begun)
    }
}

fn rows_in(store: &TableStore) -> Result<u64, Error> {
    let reader = TableReader::open(store).map_err(Error::table("opening the table"))?;
    let mut read = reader.read(None, None).map_err(Error::table("reading"))?;
    for rows in read.by_ref() {
        rows.map_err(Error::table("reading"))?;
    }
    Ok(read.facts().rows)
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, true),
        Field::new("value", DataType::Float64, true),
    ]))
}

fn rows(ids: Vec<i64>) -> RecordBatch {
    let values = Float64Array::from_iter_values(ids.iter().map(|id| (id % 977) as f64 / 7.0));
    let columns = vec![Arc::new(Int64Array::from(ids)) as _, Arc::new(values) as _];
    RecordBatch::try_new(schema(), columns).expect("two columns")
}

fn us(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_one_row() {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let env = {
            let _inside = runtime.enter();
            Env::real()
        };
        let directory = tempfile::tempdir().expect("a directory");
        let flags = Flags {
            keys: 500,
            commits: 20,
            pause: 0,
            rows: vec![30],
            no_compaction: false,
            directory: Some(directory.path().to_owned()),
        };
        assert!(run(&env, &flags).expect("it runs"));
    }
}

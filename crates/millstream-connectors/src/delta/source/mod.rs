//! A Delta table as a stream: its rows, then those that are added.
//!
//! 1. A task reads the log ahead and queues the files that it names ([`tail`]).
//! 2. A micro-batch takes files up to the table's limits; an [offset](offsets) says behind which
//!    file it ends, as it does for Spark.
//! 3. Files are read while the query runs ([`split`]).
//!
//! A file of a table is never written again and the log says which file is which number, so the
//! same two offsets give the same rows as long as the log and the files are kept.

mod offsets;
mod options;
mod split;
mod tail;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use millstream_engine::api::connector::{FlowContext, Memory, Table};
use millstream_engine::api::options::OptionError;
use millstream_engine::api::source::{
    Beginning, Failure, InputBatch, ReadLimit, Source, SourceLog, SourceOffset,
};
use millstream_lake::stream::{Follower, Position, StreamError, StreamFile, StreamTable};
use millstream_store::env::{Env, Task};
use tokio::sync::watch;

use super::error::DeltaError;
pub(super) use options::{KNOWN, StreamOptions};
use split::{Group, Scans};
use tail::{Buffer, Tail};

/// The file of the source log with the position that the query began at.
const INITIAL: &str = "0";
/// Files that are read ahead of the one that a query is at.
const FILES_AHEAD: usize = 3;
/// How often the next version is looked for on a local disk.
const POLL_LOCAL: Duration = Duration::from_millis(20);
/// The same on an object store, where each look is a request: 86,400 a day.
const POLL_REMOTE: Duration = Duration::from_secs(1);

/// Reads the log of one table.
pub(super) struct DeltaSource {
    table: Arc<StreamTable>,
    options: Arc<StreamOptions>,
    scans: Arc<Scans>,
    context: FlowContext,
    /// Where the query began, if that is known.
    initial: Option<Position>,
    /// Up to where files were taken.
    taken: Position,
    /// The last version, of a query that ends.
    last_version: Option<u64>,
    buffer: Arc<Buffer>,
    commits: watch::Receiver<u64>,
    reading: Option<Task<()>>,
}

/// The columns of a table that is read as a stream; declared ones must be among them.
pub(super) fn columns(
    options: &StreamOptions,
    table: &Table,
    base_dir: &std::path::Path,
) -> Result<SchemaRef, OptionError> {
    let failed = |error: &dyn std::fmt::Display| {
        OptionError::table(format!("the table '{}' cannot be read: {error}", table.name), None)
    };
    let store =
        super::store(&options.path, base_dir, &Env::real()).map_err(|error| failed(&error))?;
    let opened = store.env().blocking(|| StreamTable::open(&store, options.gives_changes));
    let schema = Arc::clone(opened.map_err(|error| failed(&error))?.schema());
    super::static_table::check_declared(table, &schema)?;
    Ok(schema)
}

impl DeltaSource {
    /// Opens the table, whose columns must be those that the query was `planned` with. Blocks for
    /// some requests.
    pub(super) fn new(
        options: StreamOptions,
        planned: Option<&SchemaRef>,
        commits: watch::Receiver<u64>,
        context: &FlowContext,
    ) -> Result<Self, Failure> {
        let store = super::store(&options.path, &context.base_dir, &context.env)?;
        let opened = store.env().blocking(|| StreamTable::open(&store, options.gives_changes));
        let table = Arc::new(opened?);
        if planned.is_some_and(|planned| planned != table.schema()) {
            return Err(DeltaError::Columns { table: store.shown() }.into());
        }
        let scans = Scans::new(Arc::clone(&table), options.rules.fail_on_data_loss, &context.env);
        let taken = Position::snapshot(table.version());
        Ok(Self {
            table,
            options: Arc::new(options),
            scans: Arc::new(scans),
            context: context.clone(),
            initial: None,
            taken,
            last_version: None,
            buffer: Arc::new(Buffer::new(taken)),
            commits,
            reading: None,
        })
    }

    /// Does `work` with the table on a thread that may block.
    async fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(Arc<StreamTable>, &StreamOptions) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let (table, options) = (Arc::clone(&self.table), Arc::clone(&self.options));
        let asking = move || work(table, &options);
        self.context.env.spawn_blocking("delta-ask", asking).join().await
    }

    fn offset(&self, position: Position) -> SourceOffset {
        offsets::encode(self.table.id(), position)
    }

    fn position(&self, offset: &SourceOffset) -> Result<Position, Failure> {
        let (wanted, position) = offsets::decode(offset)?;
        if wanted == self.table.id() {
            return Ok(position);
        }
        let (table, found) = (self.table.store().shown(), self.table.id().to_owned());
        Err(StreamError::OtherTable { table, wanted, found }.into())
    }

    fn batch(
        &self,
        end: SourceOffset,
        files: Vec<StreamFile>,
        oldest_arrival_us: i64,
    ) -> InputBatch {
        let rows = files.iter().filter_map(|file| file.rows).sum();
        // Where memory is counted, one file is read at a time.
        let files_ahead = if self.context.memory.is_some() { 0 } else { FILES_AHEAD };
        let splits = Group::splits(&self.scans, files, files_ahead);
        InputBatch { end, rows, splits, oldest_arrival_us }
    }

    fn poll_interval(&self) -> Duration {
        let is_local = self.table.store().url().scheme() == "file";
        self.options.poll_interval.unwrap_or(if is_local { POLL_LOCAL } else { POLL_REMOTE })
    }
}

/// Where a micro-batch began that has no offset before it and whose beginning nobody has noted:
/// it is Spark's. Origin: `DeltaSource.extractStartingState`.
fn beginning_of(
    table: &StreamTable,
    options: &StreamOptions,
    end: Position,
) -> Result<Position, Failure> {
    use millstream_lake::stream::Start;
    Ok(match options.start {
        Start::Snapshot if end.is_in_snapshot => Position::snapshot(end.version),
        Start::Snapshot => Position::snapshot(end.version.saturating_sub(1)),
        // Spark looks for the newest version again, which may be behind the end by now; it would
        // lose the rows, and any guess here might give others twice.
        Start::Latest => {
            let table = table.store().shown();
            let last = end.version.saturating_sub(u64::from(end.index.is_none()));
            return Err(DeltaError::UnknownBeginning { table, last }.into());
        }
        start => table.start(start)?,
    })
}

/// All files between two positions.
fn files_between(
    table: Arc<StreamTable>,
    options: &StreamOptions,
    (start, end): (Position, Position),
) -> Result<Vec<StreamFile>, Failure> {
    let (shown, counter) = (table.store().shown(), table.scan(&[])?);
    let mut follower = Follower::new(table, start, options.rules)?;
    let mut files = Vec::new();
    while follower.position().order() < end.order() {
        match follower.next_step()? {
            Some(step) => files.extend(tail::prepared(step, options, &counter)?.file),
            // Either the version is missing, or the log ends here.
            None => {
                let before = follower.position();
                follower.look_around()?;
                if follower.position() == before {
                    break;
                }
                // Lost versions were passed over, as the options allow, and the end is among them.
                if follower.position().order() > end.order() {
                    return Ok(files);
                }
            }
        }
    }
    if follower.position() != end {
        let end = format!("version {}, file {:?}", end.version, end.index);
        return Err(DeltaError::OtherFiles { table: shown, end }.into());
    }
    Ok(files)
}

#[async_trait]
impl Source for DeltaSource {
    fn description(&self) -> String {
        let url = self.table.store().url();
        let shown = match url.scheme() {
            "file" => format!("file:{}", url.path()),
            _ => self.table.store().shown(),
        };
        format!("DeltaSource[{}]", shown.trim_end_matches('/'))
    }

    fn schema(&self) -> SchemaRef {
        Arc::clone(self.table.schema())
    }

    async fn open(
        &mut self,
        position: Option<&SourceOffset>,
        log: SourceLog,
    ) -> Result<SourceOffset, Failure> {
        let initial = match log.get(INITIAL).await? {
            Some(bytes) => Some(self.initial_of(&bytes)?),
            None => None,
        };
        self.initial = initial;
        let position = match (position, initial) {
            (Some(offset), _) => self.position(offset)?,
            // The query crashed before its first micro-batch; it starts there again.
            (None, Some(initial)) => initial,
            (None, None) => {
                let start = self.options.start;
                let initial = self.ask(move |table, _| Ok(table.start(start)?)).await?;
                let text = format!("v1\n{}", self.offset(initial));
                log.put_if_absent(INITIAL, text.into_bytes()).await?;
                self.initial = Some(initial);
                initial
            }
        };
        Ok(self.offset(position))
    }

    async fn replay(
        &mut self,
        start: Option<&SourceOffset>,
        end: &SourceOffset,
    ) -> Result<InputBatch, Failure> {
        let until = self.position(end)?;
        let start = start.map(|start| self.position(start)).transpose()?;
        let start = start.or(self.initial);
        let reading = move |table: Arc<StreamTable>, options: &StreamOptions| {
            let start = match start {
                Some(start) => start,
                None => beginning_of(&table, options, until)?,
            };
            files_between(table, options, (start, until))
        };
        let files = self.ask(reading).await?;
        Ok(self.batch(end.clone(), files, self.context.env.now_us()))
    }

    fn beginning(&self) -> Option<Beginning> {
        let (option, may_skip) = self.options.beginning();
        Some(Beginning { option, may_skip })
    }

    fn offsets_stand_alone(&self) -> bool {
        true
    }

    async fn start(&mut self, position: &SourceOffset) -> Result<(), Failure> {
        let position = self.position(position)?;
        let opening = move |table: Arc<StreamTable>, options: &StreamOptions| {
            let counter = table.scan(&[])?;
            Ok((Follower::new(table, position, options.rules)?, counter))
        };
        let (follower, counter) = self.ask(opening).await?;
        (self.taken, self.buffer) = (position, Arc::new(Buffer::new(position)));
        if follower.position() != position {
            self.buffer.push_passed_over(follower.position(), self.context.env.now_us());
        }
        let tail = Tail {
            follower,
            counter,
            buffer: Arc::clone(&self.buffer),
            options: Arc::clone(&self.options),
            env: self.context.env.clone(),
            poll_interval: self.poll_interval(),
            commits: self.commits.clone(),
        };
        self.reading = Some(self.context.env.spawn("delta-tail", tail.run()));
        Ok(())
    }

    async fn fix_end(&mut self) -> Result<(), Failure> {
        let newest = self.ask(|table, _| Ok(table.newest()?)).await?;
        self.last_version = Some(newest);
        self.buffer.fix_end(newest);
        Ok(())
    }

    fn at_end(&self) -> bool {
        self.last_version.is_some_and(|last| self.taken.version > last) || self.buffer.is_at_end()
    }

    fn poll(&mut self, limit: ReadLimit) -> Result<Option<InputBatch>, Failure> {
        let held_max =
            self.context.memory.map_or(u64::MAX, |memory| Memory::read_ahead(memory) as u64);
        let Some(taken) = self.buffer.take(limit, &self.options, held_max)? else {
            return Ok(None);
        };
        self.taken = taken.end;
        Ok(Some(self.batch(self.offset(taken.end), taken.files, taken.oldest_arrival_us)))
    }

    async fn data_available(&mut self) {
        if !self.at_end() {
            self.buffer.filled().await;
        }
    }

    fn committed(&mut self, _end: &SourceOffset) {}

    fn latest(&self) -> Option<SourceOffset> {
        self.reading.as_ref().map(|_| self.offset(self.buffer.read()))
    }

    async fn close(&mut self) {
        if let Some(reading) = self.reading.take() {
            reading.stop().await;
        }
    }
}

impl DeltaSource {
    /// Reads the file [`INITIAL`].
    fn initial_of(&self, bytes: &[u8]) -> Result<Position, Failure> {
        let text = String::from_utf8_lossy(bytes);
        let offset = text.strip_prefix("v1\n").unwrap_or(&text);
        self.position(&SourceOffset::new(offset.to_owned()))
    }
}

//! Hands out the files that the scanner has logged. The offset is the last log entry,
//! `{"logOffset":3}`; -1 stands before the first.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use millstream_engine::api::connector::FlowContext;
use millstream_engine::api::dead_letter::Letter;
use millstream_engine::api::source::{
    Failure, InputBatch, ReadLimit, RecordBatches, Records, Source, SourceLog, SourceOffset, Split,
};
use millstream_store::env::{Env, Task};
use tokio::sync::Mutex;

use super::error::FileError;
use super::file_records::FileRecords;
use super::listing::Place;
use super::options::{Format, ReadOptions};
use super::read::FileReader;
use super::scanner::{self, Counted, Entry, Queue, Scanner};
use super::source_log::FileLog;

/// A directory of files, each read once.
pub struct FilesSource {
    reader: FileReader,
    base_dir: PathBuf,
    env: Env,
    opened: Option<Opened>,
    watcher: Option<Task<()>>,
    is_end_fixed: bool,
}

/// What there is once the log was read.
struct Opened {
    queue: Arc<Queue>,
    scanner: Arc<Mutex<Scanner>>,
}

fn offset(entry: i64) -> SourceOffset {
    SourceOffset::new(format!("{{\"logOffset\":{entry}}}"))
}

/// The log entry that `offset` names; Spark once wrote the bare number.
fn entry_of(offset: &SourceOffset) -> Result<i64, FileError> {
    let parsed: Result<serde_json::Value, _> = serde_json::from_str(offset.as_str());
    let entry = parsed.ok().and_then(|value| match value {
        serde_json::Value::Object(fields) => fields.get("logOffset")?.as_i64(),
        other => other.as_i64(),
    });
    entry
        .filter(|entry| *entry >= -1)
        .ok_or_else(|| FileError::ForeignOffset { offset: offset.to_string() })
}

impl FilesSource {
    /// A source of the files that `options` name, which have the columns `schema`.
    pub fn new(mut options: ReadOptions, schema: SchemaRef, context: &FlowContext) -> Self {
        options.bytes_max = context.memory.map(|memory| memory.read_ahead() as u64);
        Self {
            reader: FileReader::new(Arc::new(options), schema),
            base_dir: context.base_dir.clone(),
            env: context.env.clone(),
            opened: None,
            watcher: None,
            is_end_fixed: false,
        }
    }

    fn opened(&self) -> &Opened {
        self.opened.as_ref().expect("a source is opened before it is used")
    }

    fn taken(&self, end: SourceOffset, entries: Vec<Entry>) -> InputBatch {
        let found_at_us = entries.iter().map(|entry| entry.found_at_us).min();
        let files: Vec<Counted> = entries.into_iter().flat_map(|entry| entry.files).collect();
        let rows = files.iter().map(|counted| counted.rows).sum();
        let splits = files.into_iter().filter(|counted| counted.rows > 0).map(|counted| {
            Box::new(FileSplit { reader: self.reader.clone(), counted }) as Box<dyn Split>
        });
        let oldest_arrival_us = found_at_us.unwrap_or_else(|| self.env.now_us());
        InputBatch { end, rows, splits: splits.collect(), oldest_arrival_us }
    }
}

#[async_trait]
impl Source for FilesSource {
    fn description(&self) -> String {
        let path = crate::paths::resolve(&self.base_dir, &self.reader.options.path);
        format!("FileStreamSource[{}]", super::uri::encode(&path))
    }

    fn schema(&self) -> SchemaRef {
        self.reader.schema.clone()
    }

    async fn open(
        &mut self,
        position: Option<&SourceOffset>,
        log: SourceLog,
    ) -> Result<SourceOffset, Failure> {
        let position = position.map_or(Ok(-1), entry_of)?;
        let options = &self.reader.options;
        let place = Place::new(&self.base_dir, &options.path, options.recursive)?;
        let log = FileLog::open(log, options.log.clone()).await?;
        let last = log.last();
        if position > last {
            let problem = format!("it is missing, but the query has read up to it (last: {last})");
            return Err(FileError::Log { name: position.to_string(), problem }.into());
        }
        let queue = Arc::new(Queue::new(last));
        let (env, reader) = (self.env.clone(), self.reader.clone());
        let scanner = Scanner::new(env, reader, place, log, queue.clone());
        self.opened = Some(Opened { queue, scanner: Arc::new(Mutex::new(scanner)) });
        Ok(offset(position))
    }

    async fn replay(
        &mut self,
        start: Option<&SourceOffset>,
        end: &SourceOffset,
    ) -> Result<InputBatch, Failure> {
        let (first, last) = (start.map_or(Ok(-1), entry_of)?, entry_of(end)?);
        let files = self.opened().scanner.lock().await.logged_between(first, last);
        let entries = scanner::count_logged(&self.env, &self.reader, files).await?;
        Ok(self.taken(end.clone(), entries))
    }

    async fn start(&mut self, position: &SourceOffset) -> Result<(), Failure> {
        let position = entry_of(position)?;
        let opened = self.opened();
        let (queue, scanner) = (opened.queue.clone(), opened.scanner.clone());
        // What was found before the last stop, but did not come into a micro-batch any more.
        let left = scanner.lock().await.logged_between(position, i64::MAX);
        for entry in scanner::count_logged(&self.env, &self.reader, left).await? {
            queue.push(entry);
        }
        let interval = self.reader.options.poll_interval;
        let watch = scanner::watch(self.env.clone(), scanner, queue, interval);
        self.watcher = Some(self.env.spawn("files-watch", watch));
        Ok(())
    }

    async fn fix_end(&mut self) -> Result<(), Failure> {
        let mut scanner = self.opened().scanner.lock().await;
        if !scanner.is_closed {
            scanner.scan().await?;
            scanner.is_closed = true;
        }
        drop(scanner);
        self.is_end_fixed = true;
        Ok(())
    }

    fn at_end(&self) -> bool {
        self.is_end_fixed && self.opened().queue.is_empty()
    }

    fn poll(&mut self, limit: ReadLimit) -> Result<Option<InputBatch>, Failure> {
        let options = &self.reader.options;
        let is_limited = options.files_max.is_some() || options.bytes_max.is_some();
        let entries_max = match limit {
            // The scanner has put no more files into an entry than a micro-batch may have.
            ReadLimit::Configured if is_limited => 1,
            ReadLimit::Configured | ReadLimit::AllAvailable => usize::MAX,
        };
        let entries = self.opened().queue.take(entries_max)?;
        let Some(last) = entries.last() else { return Ok(None) };
        Ok(Some(self.taken(offset(last.number), entries)))
    }

    async fn data_available(&mut self) {
        if !self.at_end() {
            self.opened().queue.filled().await;
        }
    }

    fn committed(&mut self, _end: &SourceOffset) {}

    fn latest(&self) -> Option<SourceOffset> {
        self.opened.as_ref().map(|opened| offset(opened.queue.last_number()))
    }

    fn metrics(&self) -> BTreeMap<String, u64> {
        let counters = &self.reader.counters;
        let mut metrics = BTreeMap::new();
        if matches!(self.reader.options.format, Format::Json | Format::Csv) {
            let malformed = counters.rows_malformed.load(Ordering::Relaxed);
            metrics.insert("rowsMalformed".to_owned(), malformed);
        }
        let skipped = counters.files_skipped.load(Ordering::Relaxed);
        metrics.insert("filesSkipped".to_owned(), skipped);
        metrics
    }

    async fn close(&mut self) {
        let Some(opened) = self.opened.take() else { return };
        // Waits for a look in progress: an entry is logged whole or not at all.
        opened.scanner.lock().await.is_closed = true;
        if let Some(watcher) = self.watcher.take() {
            watcher.abort();
        }
    }
}

impl Drop for FilesSource {
    fn drop(&mut self) {
        if let Some(watcher) = self.watcher.take() {
            watcher.abort();
        }
    }
}

struct FileSplit {
    reader: FileReader,
    counted: Counted,
}

impl Split for FileSplit {
    fn rows(&self) -> u64 {
        self.counted.rows
    }

    fn read(self: Box<Self>, projection: &[usize]) -> RecordBatches {
        self.reader.read(self.counted.file, projection)
    }

    fn read_with_letters(
        self: Box<Self>,
        projection: &[usize],
        letters: &mut Vec<Letter>,
    ) -> Result<Vec<RecordBatch>, Failure> {
        let (reader, rejected) = self.reader.apart();
        let rows: Result<Vec<_>, _> = reader.read(self.counted.file, projection).collect();
        letters.append(&mut rejected.lock());
        rows
    }

    fn records(&self) -> Vec<Arc<dyn Records>> {
        let (reader, file) = (self.reader.clone(), self.counted.file.clone());
        vec![Arc::new(FileRecords { reader, file })]
    }
}

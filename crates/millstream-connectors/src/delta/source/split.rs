//! A file of a micro-batch, read while the query runs.
//!
//! Reading blocks, and a query must not; so each file is read by a thread, a record batch ahead of
//! whoever takes them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

use arrow::array::RecordBatch;
use millstream_engine::api::dead_letter::{Letter, Place};
use millstream_engine::api::source::{Failure, RecordBatches, Records, Split, Traced};
use millstream_lake::error::TableError;
use millstream_lake::stream::{StreamError, StreamFile, StreamScan, StreamTable};
use millstream_store::env::{Env, Thread};
use parking_lot::Mutex;

/// Record batches that wait to be taken.
const AHEAD: usize = 1;

/// What reads files, by the columns that are wanted.
pub(super) struct Scans {
    table: Arc<StreamTable>,
    fails_on_loss: bool,
    env: Env,
    scans: Mutex<HashMap<Vec<usize>, StreamScan>>,
}

impl Scans {
    pub(super) fn new(table: Arc<StreamTable>, fails_on_loss: bool, env: &Env) -> Self {
        Self { table, fails_on_loss, env: env.clone(), scans: Mutex::default() }
    }

    pub(super) fn of(&self, columns: &[usize]) -> Result<StreamScan, StreamError> {
        let mut scans = self.scans.lock();
        if let Some(scan) = scans.get(columns) {
            return Ok(scan.clone());
        }
        let scan = self.table.scan(columns)?;
        scans.insert(columns.to_vec(), scan.clone());
        Ok(scan)
    }
}

/// The files of a micro-batch. While one is read, the next ones are, too: each begins with a round
/// trip to the store.
pub(super) struct Group {
    scans: Arc<Scans>,
    files: Vec<Arc<StreamFile>>,
    /// By file, what was begun before it was asked for.
    begun: Mutex<Vec<Begun>>,
    files_ahead: usize,
}

enum Begun {
    No,
    /// The columns `projection` are read.
    Ahead {
        projection: Vec<usize>,
        reading: Reading,
    },
    Given,
}

impl Group {
    /// A split for each of `files`, so many of which are read ahead of the one that is asked for.
    pub(super) fn splits(
        scans: &Arc<Scans>,
        files: Vec<StreamFile>,
        files_ahead: usize,
    ) -> Vec<Box<dyn Split>> {
        let begun = Mutex::new(files.iter().map(|_| Begun::No).collect());
        let files: Vec<_> = files.into_iter().map(Arc::new).collect();
        let count = files.len();
        let group = Arc::new(Self { scans: Arc::clone(scans), files, begun, files_ahead });
        let split = |number| -> Box<dyn Split> {
            Box::new(FileSplit { group: Arc::clone(&group), number })
        };
        (0..count).map(split).collect()
    }

    fn read(&self, number: usize, projection: &[usize]) -> Result<Reading, StreamError> {
        let mut begun = self.begun.lock();
        let reading = match std::mem::replace(&mut begun[number], Begun::Given) {
            Begun::Ahead { projection: same, reading } if same == projection => reading,
            _ => self.begin(number, projection)?,
        };
        let ahead = number + 1..(number + 1 + self.files_ahead).min(self.files.len());
        for number in ahead {
            if matches!(begun[number], Begun::No) {
                let reading = self.begin(number, projection)?;
                begun[number] = Begun::Ahead { projection: projection.to_vec(), reading };
            }
        }
        Ok(reading)
    }

    fn begin(&self, number: usize, projection: &[usize]) -> Result<Reading, StreamError> {
        self.scans.begin(&self.files[number], projection)
    }
}

impl Scans {
    /// Reads `file` on a thread of its own.
    fn begin(&self, file: &Arc<StreamFile>, projection: &[usize]) -> Result<Reading, StreamError> {
        let (scan, file) = (self.of(projection)?, Arc::clone(file));
        let (sender, receiver) = sync_channel(AHEAD);
        let fails_on_loss = self.fails_on_loss;
        let thread = self.env.thread("delta-read", move || {
            for rows in scan.rows(&file) {
                let read = match rows {
                    Err(missing @ TableError::FileMissing { .. }) if !fails_on_loss => {
                        tracing::warn!(%missing, "going on without its rows");
                        break;
                    }
                    Err(missing @ TableError::FileMissing { .. }) => {
                        Read::Rows(Err(StreamError::FileGone { missing }.into()))
                    }
                    rows => Read::Rows(rows.map_err(Failure::from)),
                };
                // Nobody wants them any more.
                if sender.send(read).is_err() {
                    return;
                }
            }
            let _ = sender.send(Read::End);
        });
        Ok(Reading { receiver: Some(receiver), _thread: thread })
    }
}

/// A file of a micro-batch.
struct FileSplit {
    group: Arc<Group>,
    number: usize,
}

impl FileSplit {
    fn file(&self) -> &Arc<StreamFile> {
        &self.group.files[self.number]
    }
}

impl Split for FileSplit {
    fn rows(&self) -> u64 {
        self.file().rows.unwrap_or(0)
    }

    fn read(self: Box<Self>, projection: &[usize]) -> RecordBatches {
        boxed(self.group.read(self.number, projection))
    }

    fn records(&self) -> Vec<Arc<dyn Records>> {
        let (scans, file) = (Arc::clone(&self.group.scans), Arc::clone(self.file()));
        vec![Arc::new(FileRecords { scans, file })]
    }
}

fn boxed(reading: Result<Reading, StreamError>) -> RecordBatches {
    match reading {
        Ok(reading) => Box::new(reading),
        Err(error) => Box::new(std::iter::once(Err(error.into()))),
    }
}

/// The rows of a file once more. Their numbers count those that are given of it.
struct FileRecords {
    scans: Arc<Scans>,
    file: Arc<StreamFile>,
}

impl Records for FileRecords {
    fn read(&self, projection: &[usize], _apart: bool) -> Result<Vec<Traced>, Failure> {
        Traced::all_in_order(boxed(self.scans.begin(&self.file, projection)), 0)
    }

    fn letter(&self, number: u64) -> Result<Letter, Failure> {
        let file = self.scans.table.store().shown_file(&self.file.path);
        let place = Place::Row { of: file.into(), row: number };
        Ok(Letter { place: Some(place), ..Letter::default() })
    }
}

enum Read {
    Rows(Result<RecordBatch, Failure>),
    /// All rows were sent. Without it, the thread has panicked.
    End,
}

/// The receiving end of a thread that reads.
struct Reading {
    // Before the thread, which ends when nobody takes what it sends.
    receiver: Option<Receiver<Read>>,
    _thread: Thread,
}

impl Iterator for Reading {
    type Item = Result<RecordBatch, Failure>;

    fn next(&mut self) -> Option<Self::Item> {
        let read = self.receiver.as_ref()?.recv().expect("a thread that reads a file has panicked");
        match read {
            Read::Rows(Ok(rows)) => Some(Ok(rows)),
            Read::Rows(Err(failure)) => {
                self.receiver = None;
                Some(Err(failure))
            }
            Read::End => {
                self.receiver = None;
                None
            }
        }
    }
}

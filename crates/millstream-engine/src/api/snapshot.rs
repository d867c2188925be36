//! Tables at rest that are read piece by piece: the input of a batch query.
//!
//! A [`Snapshot`] is a table as it was at one moment. It has parts, files mostly, and each gives
//! its rows as a stream that decodes only as fast as rows are taken: no table is ever in memory
//! as a whole.

use std::sync::Arc;

use arrow::array::RecordBatch;
use async_trait::async_trait;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use millstream_store::env::{Env, Thread};
use millstream_store::error::Failure;
use tokio::sync::mpsc;

use super::error::ArrowBug;
use super::filter::Filter;

/// Record batches that a thread has decoded before somebody takes them.
const RECORD_BATCHES_AHEAD: usize = 1;

/// Rows of one part of a table, in order, as record batches of some thousand rows. After an error
/// nothing more comes. Dropping it ends the reading.
pub type RowStream = BoxStream<'static, Result<RecordBatch, Failure>>;

/// A table as it was at one moment.
#[async_trait]
pub trait Snapshot: Send + Sync {
    /// The parts that may have rows for which all `filters` hold, in the order of the table. A
    /// part may also have rows for which they do not hold.
    async fn parts(&self, filters: &[Filter]) -> Result<Vec<Arc<dyn SnapshotPart>>, Failure>;

    /// The files of these parts, where they are Parquet files that can be read without the
    /// connector; `None` where they are not, or not all of them.
    async fn data_files(&self, _filters: &[Filter]) -> Result<Option<DataFiles>, Failure> {
        Ok(None)
    }

    /// Whether each reading gives the same rows. A table that is read to an end that moves is not
    /// repeatable.
    fn is_repeatable(&self) -> bool {
        true
    }

    /// About how many rows the table has, where that is known without reading them.
    fn rows_estimate(&self) -> Option<u64> {
        None
    }
}

/// Parquet files whose rows are the rows of a table, so that whoever can read Parquet can read the
/// table: no row in them is deleted, and their columns have the table's names. A column may have a
/// narrower type than in the table, and one that a file lacks is null.
#[derive(Clone, Debug, Default)]
pub struct DataFiles {
    /// The files that may have the rows asked for.
    pub files: Vec<DataFile>,
    /// The columns that are not in the files, as each file has one value of them.
    pub partition_columns: Vec<String>,
}

/// One of [`DataFiles`].
#[derive(Clone, Debug)]
pub struct DataFile {
    /// Where it is: an absolute URL.
    pub url: String,
    /// Its size.
    pub bytes: u64,
    /// When it was written, milliseconds since the epoch.
    pub modified_ms: i64,
    /// What its store calls this version of it, if it says so.
    pub e_tag: Option<String>,
    /// How many rows it has, where that is known exactly.
    pub rows: Option<u64>,
    /// By partition column its value, in the text that the table's log has; `None` for NULL.
    pub partition_values: Vec<Option<String>>,
    /// The bucket that all its rows are in, if its writer has put them in buckets.
    pub bucket: Option<FileBucket>,
}

/// One of the buckets that a table's rows are divided among by a hash of a column. The hash is the
/// same in all files, and the number is its remainder: of files with the same number of buckets,
/// only those of one bucket have a value of the column in common. Where N divides the numbers of
/// buckets of two files, that holds for the remainders of their bucket's numbers by N.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileBucket {
    /// From 0.
    pub number: u32,
    /// How many buckets there are.
    pub of: u32,
    /// The column.
    pub column: String,
}

/// A part of a table, which can be read any number of times.
pub trait SnapshotPart: Send + Sync {
    /// The columns `projection`, as indices into the table's schema, of all rows of the part.
    /// Nothing is read before the stream is polled.
    fn read(&self, projection: &[usize]) -> RowStream;
}

/// All rows of `snapshot`, which has `columns` columns.
pub async fn read_all(
    snapshot: &dyn Snapshot,
    columns: usize,
) -> Result<Vec<RecordBatch>, Failure> {
    let all: Vec<usize> = (0..columns).collect();
    let parts = snapshot.parts(&[]).await?;
    stream::iter(parts).flat_map(|part| part.read(&all)).try_collect().await
}

/// Rows in memory as a snapshot of one part.
pub struct HeldRows(Arc<Held>);

struct Held(Vec<RecordBatch>);

impl HeldRows {
    /// A snapshot of `rows`, which have all columns of the table.
    pub fn new(rows: Vec<RecordBatch>) -> Self {
        Self(Arc::new(Held(rows)))
    }
}

#[async_trait]
impl Snapshot for HeldRows {
    async fn parts(&self, _filters: &[Filter]) -> Result<Vec<Arc<dyn SnapshotPart>>, Failure> {
        Ok(vec![Arc::clone(&self.0) as Arc<dyn SnapshotPart>])
    }

    fn rows_estimate(&self) -> Option<u64> {
        Some(self.0.0.iter().map(|rows| rows.num_rows() as u64).sum())
    }
}

impl SnapshotPart for Held {
    fn read(&self, projection: &[usize]) -> RowStream {
        let projection = projection.to_vec();
        let rows = self.0.clone().into_iter();
        let projected = move |rows: RecordBatch| Ok(rows.project(&projection).map_err(ArrowBug)?);
        stream::iter(rows.map(projected)).boxed()
    }
}

/// What a thread that decodes has to say.
enum Decoded {
    Rows(Result<RecordBatch, Failure>),
    /// All rows were sent. Without it, the thread has panicked.
    End,
}

/// The receiving end of a thread that decodes.
struct Reading {
    // Before the thread, which ends when nobody takes what it sends.
    receiver: mpsc::Receiver<Decoded>,
    _thread: Thread,
}

/// The rows that `open` gives, read on a thread of its own since that may block. The thread starts
/// when the stream is first polled, and is only some record batches ahead of whoever takes them.
///
/// The stream panics if the thread has panicked: what was read so far would look like all rows.
pub fn read_on_a_thread<I>(
    env: &Env,
    name: &'static str,
    open: impl FnOnce() -> Result<I, Failure> + Send + 'static,
) -> RowStream
where
    I: Iterator<Item = Result<RecordBatch, Failure>>,
{
    let env = env.clone();
    let start = async move {
        let (sender, receiver) = mpsc::channel(RECORD_BATCHES_AHEAD);
        let thread = env.thread(name, move || send_all(open(), &sender));
        stream::unfold(Some(Reading { receiver, _thread: thread }), next)
    };
    stream::once(start).flatten().boxed()
}

async fn next(reading: Option<Reading>) -> Option<(Result<RecordBatch, Failure>, Option<Reading>)> {
    let mut reading = reading?;
    match reading.receiver.recv().await.expect("a thread that reads a table has panicked") {
        Decoded::Rows(Ok(rows)) => Some((Ok(rows), Some(reading))),
        Decoded::Rows(Err(failure)) => Some((Err(failure), None)),
        Decoded::End => None,
    }
}

fn send_all<I>(opened: Result<I, Failure>, sender: &mpsc::Sender<Decoded>)
where
    I: Iterator<Item = Result<RecordBatch, Failure>>,
{
    let rows = match opened {
        Ok(rows) => rows,
        Err(failure) => {
            // Nobody asks any more if it is not taken.
            let _ = sender.blocking_send(Decoded::Rows(Err(failure)));
            return;
        }
    };
    for rows in rows {
        let is_last = rows.is_err();
        if sender.blocking_send(Decoded::Rows(rows)).is_err() || is_last {
            return;
        }
    }
    let _ = sender.blocking_send(Decoded::End);
}

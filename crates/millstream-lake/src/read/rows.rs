//! Files to rows, on a few threads.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use arrow::array::{BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::compute::filter_record_batch;
use arrow::datatypes::SchemaRef;
use delta_kernel::engine::arrow_data::ArrowEngineData;
use delta_kernel::scan::Scan;
use delta_kernel::scan::state::{ScanFile, transform_to_logical};
use delta_kernel::{Engine, FileMeta, KernelError, KernelResult};
use millstream_store::env::Thread;
use parking_lot::Mutex;

use super::TableReader;
use super::files::Plan;
use crate::columns::retyped;
use crate::error::TableError;
use crate::kernel::KernelEngine;
use crate::store::TableStore;

/// Files decoded at once.
const THREADS_MAX: usize = 4;
/// Record batches that wait for the caller, per thread.
const WAITING_PER_THREAD: usize = 1;

/// How much of a table a read looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadFacts {
    /// Files that the table has.
    pub files: u64,
    /// Files that are read; the others cannot have rows that were asked for.
    pub files_read: u64,
    /// Rows given so far.
    pub rows: u64,
}

/// The rows of one read, as record batches in no particular order. After an error nothing more
/// comes. Dropping it ends the read.
pub struct Rows {
    // Before the threads, which end when nobody takes what they send.
    receiver: Option<Receiver<Result<RecordBatch, TableError>>>,
    schema: SchemaRef,
    facts: ReadFacts,
    _threads: Vec<Thread>,
}

impl Rows {
    /// The columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// What has been read.
    pub fn facts(&self) -> ReadFacts {
        self.facts
    }
}

impl Iterator for Rows {
    type Item = Result<RecordBatch, TableError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.receiver.as_ref()?.recv().ok();
        match &next {
            Some(Ok(rows)) => self.facts.rows += rows.num_rows() as u64,
            // Half of a table is not to be mistaken for it.
            Some(Err(_)) | None => self.receiver = None,
        }
        next
    }
}

pub(super) fn start(reader: &TableReader, plan: Plan, schema: SchemaRef) -> Rows {
    let Plan { scan, files, files_all } = plan;
    let facts = ReadFacts { files: files_all, files_read: files.len() as u64, rows: 0 };
    let threads = files.len().min(THREADS_MAX);
    let (sender, receiver) = sync_channel(threads * WAITING_PER_THREAD);
    let work = Arc::new(Work {
        store: reader.store().clone(),
        engine: Arc::clone(reader.engine()),
        version: scan.snapshot().version(),
        scan,
        files: Mutex::new(files.into()),
        schema: Arc::clone(&schema),
    });
    let threads = (0..threads).map(|_| {
        let (work, sender) = (Arc::clone(&work), sender.clone());
        reader.store().env().thread("lake-read", move || work.run(&sender))
    });
    let _threads = threads.collect();
    Rows { receiver: Some(receiver), schema, facts, _threads }
}

/// What the threads share.
struct Work {
    store: TableStore,
    engine: Arc<KernelEngine>,
    scan: Scan,
    version: u64,
    files: Mutex<VecDeque<ScanFile>>,
    schema: SchemaRef,
}

/// Nobody takes rows any more.
struct Over;

type Sender = SyncSender<Result<RecordBatch, TableError>>;

impl Work {
    fn run(&self, sender: &Sender) {
        loop {
            let file = self.files.lock().pop_front();
            let Some(file) = file else { return };
            // Decoders are known to panic at bytes that make no sense. Were that to end the thread
            // and no more, the rows so far would look like all there are.
            let read = catch_unwind(AssertUnwindSafe(|| self.read(&file, sender)));
            let error = match read {
                Ok(Ok(Ok(()))) => continue,
                Ok(Ok(Err(Over))) => return self.files.lock().clear(),
                Ok(Err(error)) => self.explained(&file, error),
                Err(_) => self.explained(&file, KernelError::generic("its decoder panicked")),
            };
            self.files.lock().clear();
            // If nobody listens, nobody wants to know either.
            let _ = sender.send(Err(error));
            return;
        }
    }

    fn read(&self, file: &ScanFile, sender: &Sender) -> KernelResult<Result<(), Over>> {
        let root = self.scan.table_root();
        let size = file.size.try_into();
        let meta = FileMeta {
            last_modified: file.modification_time,
            size: size.map_err(|_| KernelError::generic("the log gives it a negative size"))?,
            location: root.join(&file.path)?,
        };
        let kept = file.dv_info.get_selection_vector(self.engine.as_ref(), root)?;
        let mut kept = kept.as_deref();
        let physical = self.scan.physical_schema();
        let parquet = self.engine.parquet_handler();
        for rows in parquet.read_parquet_files(&[meta], Arc::clone(physical), None)? {
            let rows = transform_to_logical(
                self.engine.as_ref(),
                rows?,
                physical,
                self.scan.logical_schema(),
                file.transform.clone(),
            )?;
            let rows = ArrowEngineData::try_from_engine_data(rows)?;
            let rows = without_deleted(rows.record_batch().clone(), &mut kept)?;
            if rows.num_rows() > 0 && sender.send(Ok(self.shaped(&rows)?)).is_err() {
                return Ok(Err(Over));
            }
        }
        Ok(Ok(()))
    }

    /// The rows under the names and types that the caller was promised.
    fn shaped(&self, rows: &RecordBatch) -> KernelResult<RecordBatch> {
        let columns = self.schema.fields().iter().zip(rows.columns());
        let columns = columns.map(|(field, column)| retyped(column, field.data_type()));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?)
    }

    fn explained(&self, file: &ScanFile, error: KernelError) -> TableError {
        explained(&self.store, &self.scan, &file.path, self.version, error)
    }
}

/// Why the file at `path`, as the log of `version` has it, cannot be read.
pub(crate) fn explained(
    store: &TableStore,
    scan: &Scan,
    path: &str,
    version: u64,
    error: KernelError,
) -> TableError {
    let table = store.shown();
    let named = scan.table_root().join(path).ok();
    let named = named.and_then(|url| store.name_of(&url));
    let name = named.unwrap_or_else(|| path.to_owned());
    match error {
        KernelError::Backtraced { source, .. } => explained(store, scan, path, version, *source),
        KernelError::FileNotFound(missing) => {
            // It may be the deletion vector's.
            let missing = missing.parse().ok().and_then(|url| store.name_of(&url));
            let file = missing.unwrap_or(name);
            TableError::FileMissing { table, file, version }
        }
        error @ (KernelError::ObjectStore(_)
        | KernelError::IOError(_)
        | KernelError::Unsupported(_)) => {
            TableError::kernel("read", &store.shown_file(&name), error)
        }
        KernelError::Generic(problem) => {
            let problem = problem.strip_prefix(&format!("{name}: ")).unwrap_or(&problem);
            TableError::FileDamaged { table, file: name, problem: problem.to_owned() }
        }
        error => TableError::FileDamaged { table, file: name, problem: error.to_string() },
    }
}

/// The rows that `kept` says, a flag each; those it does not reach are kept. Moves `kept` on.
pub(crate) fn without_deleted(
    rows: RecordBatch,
    kept: &mut Option<&[bool]>,
) -> KernelResult<RecordBatch> {
    let Some(flags) = *kept else { return Ok(rows) };
    let (these, rest) = flags.split_at(flags.len().min(rows.num_rows()));
    *kept = Some(rest);
    if these.iter().all(|flag| *flag) {
        return Ok(rows);
    }
    let beyond = std::iter::repeat_n(true, rows.num_rows() - these.len());
    let flags: Vec<bool> = these.iter().copied().chain(beyond).collect();
    Ok(filter_record_batch(&rows, &BooleanArray::from(flags))?)
}

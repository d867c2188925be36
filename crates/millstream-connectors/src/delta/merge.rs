//! `'mode' = 'merge'`: a table as a destination of rows that replace those with their key.
//!
//! Of what is gathered for one commit the last row of each key counts; which rows of the table it
//! replaces is found out with the commit ([`millstream_lake::merge`]).

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use millstream_engine::api::connector::Memory;
use millstream_engine::api::sink::{BatchId, EndOffsets, Failure};
use millstream_lake::error::TableError;
use millstream_lake::maintenance::LiveTable;
use millstream_lake::merge::{MergePlan, MergeRows, MergeSettings, MergeWriter, Merger};
use millstream_lake::table::Append;
use millstream_store::crash_points::{self, Step};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::error::{DeltaError, not_written};
use super::merge_options::MergeOptions;
use super::note::note;
use super::options::WriteOptions;
use crate::gather::{Destination, RowWriter};

/// Memory of the index where nothing says how much there is.
const INDEX_BYTES: u64 = 256 << 20;

/// The property that a table which rows are merged into is made with.
pub(super) const DELETION_VECTORS: &str = "delta.enableDeletionVectors";

/// Opens the table for merges of rows of `schema`. Blocks.
pub(super) fn open(
    live: &Arc<LiveTable>,
    schema: &SchemaRef,
    (options, merge): (&WriteOptions, &MergeOptions),
    (memory, is_batch): (Option<Memory>, bool),
) -> Result<Merger, TableError> {
    let is_it = |name: &String, wanted: &str| name.eq_ignore_ascii_case(wanted);
    let delete_column = merge.delete_column.as_deref().map(|wanted| {
        let found = schema.fields().iter().find(|field| is_it(field.name(), wanted));
        found.map_or_else(|| wanted.to_owned(), |field| field.name().clone())
    });
    let limited = memory.map_or(INDEX_BYTES, |memory| memory.index().min(INDEX_BYTES));
    let index_bytes = merge.index_bytes.unwrap_or(limited);
    let settings = MergeSettings {
        keys: merge.keys.clone(),
        delete_column,
        index_bytes: usize::try_from(index_bytes).unwrap_or(usize::MAX),
        refuses_repeated: is_batch,
        files: options.files.clone(),
    };
    let merger = Merger::open(live, schema, &settings)?;
    let (indexed, files) = merger.files_indexed();
    if indexed < files {
        let table = live.table().store().shown();
        tracing::warn!(
            table,
            indexed,
            files,
            "'merge.indexMemory' is not enough for the keys of all files; those of the others are \
             read with each commit"
        );
    }
    Ok(merger)
}

/// The table as a destination of commits.
pub(super) struct Merges {
    pub(super) table: Arc<LiveTable>,
    pub(super) plan: MergePlan,
    /// Used by one thread, the committer.
    pub(super) merger: Mutex<Merger>,
    /// The query's id.
    pub(super) application: String,
    /// The flow's name, which commits tell.
    pub(super) flow: String,
    /// Wakes flows of this process that read the table.
    pub(super) commits: watch::Sender<u64>,
}

impl Destination for Merges {
    type File = MergeRows;
    type Writer = Rows;

    const THREADS: [&'static str; 3] = ["delta-gather", "delta-write", "delta-commit"];
    const IS_ORDERED: bool = true;

    fn writer(&self) -> Rows {
        let store = self.table.table().store();
        Rows(MergeWriter::new(self.plan.clone(), store, self.table.part_file_names()))
    }

    fn publish(
        &self,
        rows: Vec<MergeRows>,
        batch_id: BatchId,
        end_offsets: &EndOffsets,
    ) -> Result<(), Failure> {
        let rows = rows.into_iter().next().unwrap_or_default();
        let append = Append {
            application: &self.application,
            version: i64::try_from(batch_id.0).expect("batch ids are counted from 0"),
            files: &[],
            prepared_by: self.plan.version(),
            note: &note(&self.flow, batch_id, end_offsets),
        };
        crash_points::reached(Step::BeforeCommit);
        let merged = self.merger.lock().commit(&append, &rows)?;
        crash_points::reached(Step::AfterCommit);
        let Some(merged) = merged else { return Err(DeltaError::Taken { batch_id }.into()) };
        let (version, conflicts) = (merged.version, merged.conflicts);
        self.commits.send_replace(version);
        tracing::debug!(version, conflicts, files = rows.files(), "merged");
        Ok(())
    }
}

/// Encodes rows into files of the table.
pub(super) struct Rows(MergeWriter);

impl RowWriter for Rows {
    type File = MergeRows;

    fn write(&mut self, rows: &RecordBatch) -> Result<(), Failure> {
        self.0.write(rows).map_err(|error| {
            let plan = self.0.plan().clone();
            not_written(error, move |rows| plan.refuses(rows))
        })
    }

    /// Not counted: a table's commits do not wait for more.
    fn bytes(&self) -> u64 {
        0
    }

    fn finish(&mut self) -> Result<Vec<MergeRows>, Failure> {
        Ok(vec![self.0.finish()?])
    }

    fn abandon(&mut self) {
        self.0.abandon();
    }
}

//! A commit that adds rows and takes the place of rows that are there, for a query.
//!
//! Files are added, others get a deletion vector or are removed, and the query's progress (`txn`)
//! moves on, all in one entry of the log. Which rows of the table are replaced follows from the
//! version before the entry alone: where somebody else was first, it is found out again.

use std::collections::HashMap;
use std::io::Cursor;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use arrow_json::ReaderBuilder;
use delta_kernel::actions::deletion_vector::DeletionVectorDescriptor;
use delta_kernel::committer::FileSystemCommitter;
use delta_kernel::engine::arrow_conversion::TryFromKernel;
use delta_kernel::engine::arrow_data::ArrowEngineData;
use delta_kernel::engine_data::FilteredEngineData;
use delta_kernel::scan::scan_row_schema;
use delta_kernel::transaction::{CommitResult, UpdateTableOperation};
use delta_kernel::{KernelError, KernelResult, SnapshotRef};
use serde_json::Value;

use super::{Append, Appended, ENGINE, Table, commit_info};
use crate::data_file::{self, DataFile};
use crate::error::TableError;

/// What a commit changes in a table's files. Files that are there are rows of a scan of the log, in
/// JSON.
#[derive(Debug, Default)]
pub(crate) struct FileChanges {
    /// New files.
    pub(crate) added: Vec<DataFile>,
    /// Files that get a deletion vector, in place of the one that they may have.
    pub(crate) vectors: Vec<(Value, DeletionVectorDescriptor)>,
    /// Files of which no row is left where it was.
    pub(crate) removed: Vec<Value>,
    /// What is replaced by what, in words of Spark's `MERGE`.
    pub(crate) metrics: Vec<(&'static str, u64)>,
}

/// A file that got another deletion vector here.
#[derive(Clone, Debug)]
pub(crate) struct ChangedFile {
    /// As a scan of the log gives it now.
    pub(crate) row: Arc<Value>,
    /// What it got.
    pub(crate) vector: DeletionVectorDescriptor,
}

/// Files that a merge has made what they are.
#[derive(Debug, Default)]
pub(crate) struct MergedFiles {
    pub(crate) added: Vec<DataFile>,
    pub(crate) changed: Vec<ChangedFile>,
}

impl FileChanges {
    /// The paths of files that are not as they were, as the log has them.
    fn touched(&self) -> impl Iterator<Item = &str> {
        let changed = self.vectors.iter().map(|(row, _)| row).chain(&self.removed);
        changed.filter_map(|row| row["path"].as_str())
    }
}

impl Table {
    /// Publishes the micro-batch of `append`, whose files are not looked at: `changes` says what
    /// becomes of the table's files at the version that it is given, and is asked again after each
    /// commit by others. `parameters` is what was asked for, as the commit tells it. Gives `None`
    /// if the application has published this version, or a later one, before.
    pub(crate) fn merge(
        &self,
        append: &Append<'_>,
        parameters: &[(&'static str, String)],
        mut changes: impl FnMut(&SnapshotRef) -> Result<FileChanges, TableError>,
    ) -> Result<Option<(Appended, SnapshotRef)>, TableError> {
        self.publish(append, |snapshot, note| {
            let changes = changes(snapshot)?;
            let touched = changes.touched().map(|path| self.file_name(path)).collect();
            let said = (note, parameters);
            Ok((self.attempt_to_merge(snapshot, append, said, changes), touched))
        })
    }

    fn attempt_to_merge(
        &self,
        snapshot: &SnapshotRef,
        append: &Append<'_>,
        (note, parameters): (&str, &[(&'static str, String)]),
        changes: FileChanges,
    ) -> KernelResult<CommitResult> {
        let operation = UpdateTableOperation::Merge;
        let builder = Arc::clone(snapshot).update_table(operation, ENGINE, true);
        let parameters = parameters.iter().map(|(key, value)| (*key, Some(value.clone())));
        let builder = builder.with_operation_parameters(parameters);
        let mut transaction = builder.build(&self.engine, Box::new(FileSystemCommitter::new()))?;
        if !changes.added.is_empty() {
            let statistics_schema = transaction.stats_schema()?;
            let files = data_file::add_actions(&changes.added, statistics_schema.as_ref())?;
            transaction.add_files(Box::new(ArrowEngineData::new(files)));
        }
        if let Some(rows) = scan_rows(&changes.removed)? {
            transaction.remove_files(selected(rows));
        }
        let (rows, vectors): (Vec<Value>, Vec<_>) = changes.vectors.into_iter().unzip();
        if let Some(data) = scan_rows(&rows)? {
            let paths = rows.iter().map(|row| row["path"].as_str().unwrap_or_default().to_owned());
            let vectors: HashMap<_, _> = paths.zip(vectors).collect();
            transaction.update_deletion_vectors(vectors, std::iter::once(Ok(selected(data))))?;
        }
        let metrics = changes.metrics.into_iter();
        let metrics = metrics.map(|(name, value)| (name, Some(value.to_string())));
        let (info, schema) = commit_info(note)?;
        transaction
            .with_transaction_id(append.application.to_owned(), append.version)
            .with_commit_info(info, schema)
            .with_operation_metrics(metrics)
            .commit(&self.engine)
    }
}

fn selected(rows: RecordBatch) -> FilteredEngineData {
    FilteredEngineData::with_all_rows_selected(Box::new(ArrowEngineData::new(rows)))
}

/// Rows of a scan of the log, as the protocol library takes them. `None` for none.
pub(crate) fn scan_rows(rows: &[Value]) -> KernelResult<Option<RecordBatch>> {
    if rows.is_empty() {
        return Ok(None);
    }
    let mut lines = Vec::new();
    for row in rows {
        serde_json::to_writer(&mut lines, row).map_err(|error| {
            KernelError::generic(format!("a file's facts are no JSON: {error}"))
        })?;
        lines.push(b'\n');
    }
    let schema = Arc::new(Schema::try_from_kernel(scan_row_schema().as_ref())?);
    let mut reader =
        ReaderBuilder::new(schema).with_batch_size(rows.len()).build(Cursor::new(lines))?;
    Ok(reader.next().transpose()?)
}

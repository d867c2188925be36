//! A commit that puts files in place of others with the same rows.
//!
//! It conflicts with whoever has removed one of the files: by `DELETE`, `MERGE`, another
//! compaction, or by giving the file another deletion vector. The rows that were read are not
//! those of the table any more then, and the swap that has the file is left out. Everything that
//! is only added is no conflict, so appends go on beside it.
//!
//! What others remove is known without reading anything: each entry by others is looked at before
//! one of ours follows it, and leaves the names of the files it removed
//! ([`Table::watch_removals`]).

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch, StringArray};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, Schema};
use delta_kernel::committer::FileSystemCommitter;
use delta_kernel::engine::arrow_conversion::TryIntoKernel;
use delta_kernel::engine::arrow_data::ArrowEngineData;
use delta_kernel::engine_data::FilteredEngineData;
use delta_kernel::schema::StructType;
use delta_kernel::transaction::{CommitResult, UpdateTableOperation};
use delta_kernel::{KernelResult, SnapshotRef};
use serde_json::{Value, json};

use super::merge::scan_rows;
use super::{ENGINE, State, Table};
use crate::data_file::{self, DataFile};
use crate::entry;
use crate::error::TableError;

/// A file that leaves the table.
#[derive(Clone, Debug)]
pub(crate) struct RemovedFile {
    /// As the log has it.
    pub(crate) path: String,
    /// Bytes.
    pub(crate) size: u64,
    /// Whether it has a deletion vector.
    pub(crate) has_vector: bool,
    /// A version at which it was there, with this deletion vector.
    pub(crate) since: u64,
    /// What the log says of it.
    pub(crate) facts: FileFacts,
}

/// What the log says of a file.
#[derive(Clone, Debug)]
pub(crate) enum FileFacts {
    /// As the protocol library has read it: a row.
    Read(RecordBatch),
    /// As this process has written it.
    Written(Arc<DataFile>),
    /// As this process has changed it: a row of a scan, in JSON.
    Changed(Arc<Value>),
}

/// Files that take the place of others, all or nothing.
#[derive(Clone, Debug)]
pub(crate) struct Swap {
    pub(crate) removed: Vec<RemovedFile>,
    /// Empty if no row is left.
    pub(crate) added: Vec<DataFile>,
}

/// Swaps to be published in one commit.
pub(crate) struct Replacement {
    pub(crate) swaps: Vec<Swap>,
    /// The version that files were prepared by.
    pub(crate) prepared_by: u64,
    /// What was asked for, as the commit tells it.
    pub(crate) parameters: Vec<(&'static str, String)>,
    /// By which the commit is found again.
    pub(crate) mark: String,
    /// Later than this, milliseconds since the epoch, nothing is published: who finds the files
    /// may take them for left behind.
    pub(crate) until_ms: i64,
}

/// Swaps that were published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Replaced {
    /// The table's version.
    pub(crate) version: u64,
    /// Which of them; the others met what somebody else has removed.
    pub(crate) swaps: Vec<usize>,
}

impl Table {
    /// From now on, what others remove is remembered, and what merges here replace.
    pub(crate) fn watch_removals(&self) {
        self.removals.lock().get_or_insert_with(HashMap::new);
    }

    /// What was removed since this was called last, each with the last version that has.
    pub(crate) fn take_removals(&self) -> HashMap<String, u64> {
        self.removals.lock().as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Remembers that `version` has removed the files `names`, if somebody wants to know.
    pub(super) fn note_removals(&self, names: impl IntoIterator<Item = String>, version: u64) {
        if let Some(removals) = &mut *self.removals.lock() {
            removals.extend(names.into_iter().map(|name| (name, version)));
        }
    }

    /// The name of the file that the log calls `path`, by which removals are compared: writers
    /// encode one name in different ways.
    pub(crate) fn file_name(&self, path: &str) -> String {
        let url = self.store.url().join(path).ok();
        url.and_then(|url| self.store.name_of(&url)).unwrap_or_else(|| path.to_owned())
    }

    /// Publishes what can be published of `replacement`, in one commit. `None` if that is nothing.
    pub(crate) fn replace(
        &self,
        replacement: &Replacement,
    ) -> Result<Option<Replaced>, TableError> {
        let names: Vec<Vec<(String, u64)>> =
            replacement.swaps.iter().map(|swap| self.names(swap)).collect();
        let mut state = self.state.lock();
        let _turn = self.store.in_foreground();
        let mut chosen = Vec::new();
        let committed = self.commit(&mut state, &replacement.mark, |state| {
            self.check_may_replace(state, replacement)?;
            self.check_is_there(state)?;
            chosen = self.unremoved(&names);
            if chosen.is_empty() || self.store.env().now_ms() > replacement.until_ms {
                return Ok(None);
            }
            let swaps: Vec<_> = chosen.iter().map(|index| &replacement.swaps[*index]).collect();
            Ok(Some(self.attempt_to_replace(&state.snapshot, replacement, &swaps)))
        })?;
        Ok(committed.map(|committed| Replaced { version: committed.version, swaps: chosen }))
    }

    fn names(&self, swap: &Swap) -> Vec<(String, u64)> {
        swap.removed.iter().map(|file| (self.file_name(&file.path), file.since)).collect()
    }

    /// The swaps of which nobody has removed a file.
    fn unremoved(&self, names: &[Vec<(String, u64)>]) -> Vec<usize> {
        let removals = self.removals.lock();
        let removed = |name: &String| removals.as_ref()?.get(name).copied();
        let is_there =
            |(name, since): &(String, u64)| removed(name).is_none_or(|removed| removed <= *since);
        (0..names.len()).filter(|index| names[*index].iter().all(is_there)).collect()
    }

    /// Refuses what others' commits have made void. A process that runs a checkpoint of ours in
    /// our place may have taken our files for left behind.
    fn check_may_replace(
        &self,
        state: &State,
        replacement: &Replacement,
    ) -> Result<(), TableError> {
        let table = || self.store.shown();
        if let Some((application, theirs)) = state.overtaken.iter().next() {
            let ours = state.published.get(application).copied().flatten().unwrap_or(*theirs);
            return Err(TableError::Fenced { table: table(), theirs: *theirs, ours });
        }
        match state.changed {
            Some((version, what)) if version > replacement.prepared_by => {
                Err(TableError::Changed { table: table(), what, version })
            }
            _ => Ok(()),
        }
    }

    fn attempt_to_replace(
        &self,
        snapshot: &SnapshotRef,
        replacement: &Replacement,
        swaps: &[&Swap],
    ) -> KernelResult<CommitResult> {
        let parameters = replacement.parameters.iter();
        let parameters = parameters.map(|(key, value)| (*key, Some(value.clone())));
        let builder =
            Arc::clone(snapshot).update_table(UpdateTableOperation::Optimize, ENGINE, false);
        let builder = builder.with_operation_parameters(parameters);
        let mut transaction = builder.build(&self.engine, Box::new(FileSystemCommitter::new()))?;
        let added: Vec<DataFile> = swaps.iter().flat_map(|swap| swap.added.clone()).collect();
        if !added.is_empty() {
            let files = data_file::add_actions(&added, transaction.stats_schema()?.as_ref())?;
            transaction.add_files(Box::new(ArrowEngineData::new(files)));
        }
        for rows in removed_rows(swaps)? {
            let rows = Box::new(ArrowEngineData::new(rows));
            transaction.remove_files(FilteredEngineData::with_all_rows_selected(rows));
        }
        let note = entry::marked("{}", &replacement.mark);
        let (info, schema) = commit_info(&note, snapshot.version())?;
        let transaction = transaction.with_commit_info(info, schema);
        transaction.with_operation_metrics(metrics(swaps)).commit(&self.engine)
    }
}

/// The removed files as the protocol library takes them.
fn removed_rows(swaps: &[&Swap]) -> KernelResult<Vec<RecordBatch>> {
    let (mut read, mut written) = (Vec::new(), Vec::new());
    for file in swaps.iter().flat_map(|swap| &swap.removed) {
        match &file.facts {
            FileFacts::Read(row) => read.push(row),
            FileFacts::Written(file) => written.push(scan_row(file)),
            FileFacts::Changed(row) => written.push(row.as_ref().clone()),
        }
    }
    let mut rows = Vec::new();
    if let Some(first) = read.first() {
        rows.push(concat_batches(&first.schema(), read)?);
    }
    rows.extend(scan_rows(&written)?);
    Ok(rows)
}

/// A file of ours as a scan of the log gives it.
pub(crate) fn scan_row(file: &DataFile) -> Value {
    let values = file.partition_values.iter();
    let values = values.map(|(column, value)| (column.clone(), Value::from(value.clone())));
    json!({
        "path": file.path,
        "size": file.size,
        "modificationTime": file.modified_ms,
        "stats": file.statistics.to_string(),
        "fileConstantValues": { "partitionValues": values.collect::<serde_json::Map<_, _>>() },
    })
}

/// What Spark's `OPTIMIZE` says of itself.
fn metrics(swaps: &[&Swap]) -> Vec<(&'static str, Option<String>)> {
    let removed = || swaps.iter().flat_map(|swap| &swap.removed);
    let mut sizes: Vec<u64> =
        swaps.iter().flat_map(|swap| swap.added.iter().map(|file| file.size)).collect();
    sizes.sort_unstable();
    let quantile = |parts: usize| sizes.get(sizes.len().saturating_sub(1) * parts / 4).copied();
    let metric = |name, value: u64| (name, Some(value.to_string()));
    let mut metrics = vec![
        metric("numRemovedFiles", removed().count() as u64),
        metric("numRemovedBytes", removed().map(|file| file.size).sum()),
        metric(
            "numDeletionVectorsRemoved",
            removed().filter(|file| file.has_vector).count() as u64,
        ),
        metric("numAddedFiles", sizes.len() as u64),
        metric("numAddedBytes", sizes.iter().sum()),
    ];
    let names = ["minFileSize", "p25FileSize", "p50FileSize", "p75FileSize", "maxFileSize"];
    for (parts, name) in names.into_iter().enumerate() {
        metrics.push(metric(name, quantile(parts).unwrap_or(0)));
    }
    metrics
}

fn commit_info(
    note: &str,
    read_version: u64,
) -> KernelResult<(Box<dyn delta_kernel::EngineData>, delta_kernel::schema::SchemaRef)> {
    let schema = Schema::new(vec![
        Field::new("userMetadata", DataType::Utf8, true),
        Field::new("readVersion", DataType::Int64, true),
    ]);
    let kernel_schema: StructType = (&schema).try_into_kernel()?;
    let version = i64::try_from(read_version).unwrap_or(i64::MAX);
    let row = RecordBatch::try_new(
        Arc::new(schema),
        vec![Arc::new(StringArray::from(vec![note])), Arc::new(Int64Array::from(vec![version]))],
    )?;
    Ok((Box::new(ArrowEngineData::new(row)), Arc::new(kernel_schema)))
}

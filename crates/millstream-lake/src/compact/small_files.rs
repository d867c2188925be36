//! Which files are worth to be rewritten.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::UInt64Array;
use arrow::compute::take_record_batch;
use delta_kernel::scan::ScanMetadata;
use delta_kernel::scan::state::{DvInfo, ScanFile};
use delta_kernel::{KernelError, KernelResult, SnapshotRef};
use serde_json::Value;

use crate::bucket::Bucket;
use crate::data_file::DataFile;
use crate::error::TableError;
use crate::kernel::KernelEngine;
use crate::kernel::scanned::{is_file, scanned_rows};
use crate::table::merge::ChangedFile;
use crate::table::replace::{FileFacts, RemovedFile};

/// Of a file with a larger share of deleted rows a new one is written, whatever its size; Spark's
/// `spark.databricks.delta.optimize.maxDeletedRowsRatio`.
const DELETED_ROWS_MAX: f64 = 0.05;

/// A file that may be rewritten.
#[derive(Clone, Debug)]
pub(super) struct SmallFile {
    pub(super) file: RemovedFile,
    /// Milliseconds since the epoch.
    pub(super) modified_ms: i64,
    pub(super) vector: DvInfo,
    pub(super) place: Place,
}

/// Files of one place may become one file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Place {
    /// The values of partition columns, by their names in the log; null is left out.
    pub(super) values: BTreeMap<String, String>,
    /// The bucket: the column, how many there are, and which of them.
    pub(super) bucket: Option<(String, u32, u32)>,
}

impl Place {
    fn new(values: BTreeMap<String, String>, path: &str) -> Self {
        let bucket = Bucket::of_path(path).map(|found| (found.column, found.of, found.number));
        Self { values, bucket }
    }
}

impl SmallFile {
    /// A file that this process has added with version `since`.
    pub(super) fn written(file: &DataFile, since: u64) -> Self {
        let values = file.partition_values.iter();
        let values = values.filter_map(|(name, value)| Some((name.clone(), value.clone()?)));
        let removed = RemovedFile {
            path: file.path.clone(),
            size: file.size,
            has_vector: false,
            since,
            facts: FileFacts::Written(Arc::new(file.clone())),
        };
        Self {
            place: Place::new(values.collect(), &file.path),
            file: removed,
            modified_ms: file.modified_ms,
            vector: DvInfo::default(),
        }
    }

    /// A file that got another deletion vector here, with version `since`.
    pub(super) fn changed(file: &ChangedFile, since: u64) -> Option<Self> {
        let ChangedFile { row, vector } = file;
        let path = row["path"].as_str()?.to_owned();
        let values = row["fileConstantValues"]["partitionValues"].as_object();
        let value = |(name, value): (&String, &Value)| {
            Some((name.clone(), value.as_str().filter(|text| !text.is_empty())?.to_owned()))
        };
        let values = values.map(|values| values.iter().filter_map(value).collect());
        let removed = RemovedFile {
            size: row["size"].as_u64()?,
            has_vector: true,
            since,
            facts: FileFacts::Changed(Arc::clone(row)),
            path,
        };
        Some(Self {
            place: Place::new(values.unwrap_or_default(), &removed.path),
            file: removed,
            modified_ms: row["modificationTime"].as_i64().unwrap_or_default(),
            vector: DvInfo::from(vector.clone()),
        })
    }

    /// A file that a scan of the log at version `since` has found, with its row. `None` for a
    /// negative size.
    fn found(file: ScanFile, facts: FileFacts, since: u64) -> Option<Self> {
        let place = Place::new(stated(&file), &file.path);
        let (size, has_vector) = (u64::try_from(file.size).ok()?, file.dv_info.has_vector());
        let removed = RemovedFile { path: file.path, size, has_vector, since, facts };
        let modified_ms = file.modification_time;
        Some(Self { place, file: removed, modified_ms, vector: file.dv_info })
    }
}

/// What is looked for.
pub(super) struct Wanted<'a> {
    /// Files below this size are small.
    pub(super) bytes: u64,
    /// As many files are looked for at most, so that memory stays bounded.
    pub(super) files_max: usize,
    /// Whether files of a partition are looked at, by its values.
    pub(super) partition: &'a dyn Fn(&BTreeMap<String, String>) -> bool,
}

/// The live files of `snapshot` that are wanted: small ones, and those with many deleted rows.
pub(super) fn find(
    engine: &KernelEngine,
    snapshot: &SnapshotRef,
    wanted: &Wanted<'_>,
) -> Result<Vec<SmallFile>, TableError> {
    let mut snapshot = Arc::clone(snapshot);
    loop {
        match scan(engine, &snapshot, wanted) {
            Ok(found) => return Ok(found),
            Err(error) => {
                let version = Some(snapshot.version());
                engine.pass_over(version, error)?;
                snapshot = engine.snapshot(version)?;
            }
        }
    }
}

fn scan(
    engine: &KernelEngine,
    snapshot: &SnapshotRef,
    wanted: &Wanted<'_>,
) -> KernelResult<Vec<SmallFile>> {
    let scan = Arc::clone(snapshot).scan_builder().build()?;
    let mut found = Vec::new();
    for metadata in scan.scan_metadata(engine)? {
        found.extend(wanted.of(&metadata?, snapshot.version())?);
        if found.len() >= wanted.files_max {
            found.truncate(wanted.files_max);
            break;
        }
    }
    Ok(found)
}

impl Wanted<'_> {
    /// The wanted files of some rows of a scan. The others' rows are let go.
    fn of(&self, metadata: &ScanMetadata, version: u64) -> KernelResult<Vec<SmallFile>> {
        let files = metadata.visit_scan_files(Vec::new(), |files, file| files.push(file))?;
        let (rows, paths) = scanned_rows(metadata)?;
        let is_file = |row: &usize| is_file(metadata, paths, *row);
        let (mut chosen, mut indices) = (Vec::new(), Vec::new());
        for (file, row) in files.into_iter().zip((0..rows.num_rows()).filter(is_file)) {
            if file.path != paths.value(row) {
                let problem = "a scan gives files in another order than their rows";
                return Err(KernelError::generic(problem));
            }
            if self.wants(&file)? {
                chosen.push(file);
                indices.push(u64::try_from(row).expect("a row's number"));
            }
        }
        let rows = take_record_batch(rows, &UInt64Array::from(indices))?;
        let numbered = chosen.into_iter().enumerate();
        let facts = |row| FileFacts::Read(rows.slice(row, 1));
        Ok(numbered.filter_map(|(row, file)| SmallFile::found(file, facts(row), version)).collect())
    }

    fn wants(&self, file: &ScanFile) -> KernelResult<bool> {
        let is_small = u64::try_from(file.size).is_ok_and(|size| size < self.bytes);
        Ok((is_small || has_many_deleted(file)?) && (self.partition)(&stated(file)))
    }
}

fn has_many_deleted(file: &ScanFile) -> KernelResult<bool> {
    let Some(deleted) = file.dv_info.cardinality()? else { return Ok(false) };
    let rows = file.stats.as_ref().map(|stats| stats.num_records);
    Ok(rows.is_none_or(|rows| deleted as f64 > rows as f64 * DELETED_ROWS_MAX))
}

/// The partition values of a file. The log may state an empty text, which stands for null.
fn stated(file: &ScanFile) -> BTreeMap<String, String> {
    let values = file.partition_values.iter().filter(|(_, value)| !value.is_empty());
    values.map(|(name, value)| (name.clone(), value.clone())).collect()
}

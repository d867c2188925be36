//! Files without some of their rows, written anew: where a table has no deletion vectors, and for
//! files that are in no table yet.

use std::collections::BTreeMap;
use std::sync::Arc;

use delta_kernel::engine::arrow_data::ArrowEngineData;
use delta_kernel::scan::Scan;
use delta_kernel::{Engine, FileMeta, KernelError, KernelResult, SnapshotRef};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use roaring::RoaringTreemap;
use serde_json::Value;

use crate::bucket::{Bucket, ClusterBy};
use crate::checkpoint::PartFileNames;
use crate::data_file::DataFile;
use crate::error::TableError;
use crate::file_writer::{FileCompression, FileKey, FileSettings, FileWriter, WritePlan};
use crate::kernel::KernelEngine;
use crate::parquet_file::RemoteFile;
use crate::read::{explained, without_deleted};
use crate::store::TableStore;
use crate::table::Table;

/// Writes the rows of `file`, of this process and in no table yet, for which `kept` has true.
pub(super) fn copy_of_ours(
    store: &TableStore,
    file: &DataFile,
    kept: &[bool],
    (files, place): (&mut FileWriter, &FileKey),
) -> Result<(), TableError> {
    let damaged = |problem: String| TableError::FileDamaged {
        table: store.shown(),
        file: file.name.clone(),
        problem,
    };
    let remote = RemoteFile::open(store, &file.name, file.size)
        .map_err(|error| TableError::store("cannot read", &store.shown_file(&file.name), &error))?;
    let reader = ParquetRecordBatchReaderBuilder::try_new(remote)
        .and_then(ParquetRecordBatchReaderBuilder::build)
        .map_err(|error| damaged(error.to_string()))?;
    let mut kept = Some(kept);
    for rows in reader {
        let rows = rows.map_err(|error| damaged(error.to_string()))?;
        let rows = without_deleted(rows, &mut kept)
            .and_then(|rows| files.plan().physical_of(&rows))
            .map_err(|error| damaged(error.to_string()))?;
        if rows.num_rows() > 0 {
            files.write_physical(place.clone(), &rows)?;
        }
    }
    Ok(())
}

/// Rewrites files of a table as it is at one version.
pub(super) struct Rewriter<'a> {
    table: &'a Table,
    engine: &'a KernelEngine,
    snapshot: &'a SnapshotRef,
    scan: Scan,
    names: &'a PartFileNames,
}

impl<'a> Rewriter<'a> {
    pub(super) fn new(
        table: &'a Table,
        engine: &'a KernelEngine,
        snapshot: &'a SnapshotRef,
        names: &'a PartFileNames,
    ) -> Result<Self, TableError> {
        let scan = Arc::clone(snapshot).scan_builder().build();
        let scan = scan.map_err(|error| table.kernel_error("read", error))?;
        Ok(Self { table, engine, snapshot, scan, names })
    }

    /// Writes the rows of a file, given as a row of a scan of the log, that are not `deleted`.
    pub(super) fn without(
        &self,
        row: &Value,
        deleted: &RoaringTreemap,
    ) -> Result<Vec<DataFile>, TableError> {
        let path = row["path"].as_str().unwrap_or_default();
        let (mut files, place) = self.writer(row, path)?;
        let copied = self.copy(row, deleted, (&mut files, &place));
        copied.map_err(|error| match error {
            Trouble::Reading(error) => {
                let version = self.snapshot.version();
                explained(self.table.store(), &self.scan, path, version, error)
            }
            Trouble::Writing(error) => error,
        })?;
        files.finish()
    }

    fn writer(&self, row: &Value, path: &str) -> Result<(FileWriter, FileKey), TableError> {
        let bucket = Bucket::of_path(path);
        let compression = FileCompression::of_path(path).unwrap_or_default();
        let plan = |cluster_by| {
            let settings = FileSettings { target_bytes: u64::MAX, compression, cluster_by };
            WritePlan::of_files(self.table, self.snapshot, settings)
        };
        let cluster_by = bucket
            .as_ref()
            .map(|found| ClusterBy { column: found.column.clone(), buckets: found.of });
        let (plan, number) = match plan(cluster_by) {
            Ok(plan) => (plan, bucket.map(|found| found.number)),
            // The column is gone. Without a bucket in its name a file is right in any case.
            Err(TableError::Mismatch { .. }) => (plan(None)?, None),
            Err(error) => return Err(error),
        };
        let values = row["fileConstantValues"]["partitionValues"].as_object();
        let value = |(name, value): (&String, &Value)| {
            let value = value.as_str().filter(|text| !text.is_empty())?;
            Some((name.clone(), value.to_owned()))
        };
        let values: BTreeMap<String, String> =
            values.map(|values| values.iter().filter_map(value).collect()).unwrap_or_default();
        let place = plan.key(&values, number);
        let mut files = FileWriter::new(plan, self.table.store());
        files.name_with(self.names);
        Ok((files, place))
    }

    fn copy(
        &self,
        row: &Value,
        deleted: &RoaringTreemap,
        (files, place): (&mut FileWriter, &FileKey),
    ) -> Result<(), Trouble> {
        let mut first: u64 = 0;
        for rows in self.open(row)? {
            let rows = ArrowEngineData::try_from_engine_data(rows?)?;
            let rows = rows.record_batch().clone();
            let after = first + rows.num_rows() as u64;
            let kept: Vec<bool> = (first..after).map(|row| !deleted.contains(row)).collect();
            first = after;
            let rows = without_deleted(rows, &mut Some(&kept))?;
            let rows = files.plan().physical_of(&rows)?;
            if rows.num_rows() > 0 {
                files.write_physical(place.clone(), &rows).map_err(Trouble::Writing)?;
            }
        }
        Ok(())
    }

    fn open(&self, row: &Value) -> KernelResult<delta_kernel::FileDataReadResultIterator> {
        let path = row["path"].as_str().unwrap_or_default();
        let size = row["size"].as_u64();
        let meta = FileMeta {
            last_modified: row["modificationTime"].as_i64().unwrap_or_default(),
            size: size.ok_or_else(|| KernelError::generic("the log gives it no size"))?,
            location: self.scan.table_root().join(path)?,
        };
        let schema = Arc::clone(self.scan.physical_schema());
        self.engine.parquet_handler().read_parquet_files(&[meta], schema, None)
    }
}

/// Which side of a copy went wrong.
enum Trouble {
    Reading(KernelError),
    Writing(TableError),
}

impl From<KernelError> for Trouble {
    fn from(error: KernelError) -> Self {
        Self::Reading(error)
    }
}

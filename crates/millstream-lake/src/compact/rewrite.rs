//! Bins of files to files.
//!
//! Files of one bin are read one after the other and their columns written to one new file, as
//! they are in files: under their physical names, without partition columns. Memory holds the new
//! file and one row group, whatever the number of files.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use delta_kernel::engine::arrow_data::ArrowEngineData;
use delta_kernel::scan::Scan;
use delta_kernel::table_features::TableFeature;
use delta_kernel::{Engine, FileMeta, KernelResult, SnapshotRef};
use millstream_store::crash_points::{self, Step};

use super::bins::Bin;
use super::left_behind::{PUBLISHED_WITHIN_MS, Record};
use super::small_files::SmallFile;
use crate::bucket::ClusterBy;
use crate::checkpoint::PartFileNames;
use crate::data_file::DataFile;
use crate::error::TableError;
use crate::file_writer::{FileCompression, FileKey, FileSettings, FileWriter, WritePlan};
use crate::kernel::KernelEngine;
use crate::read::{explained, without_deleted};
use crate::store::TableStore;
use crate::table::Table;
use crate::table::replace::{Replaced, Replacement, Swap};

/// Rewrites files of a table as it is at one version.
pub(super) struct Rewriter<'a> {
    table: &'a Table,
    store: &'a TableStore,
    engine: &'a KernelEngine,
    snapshot: SnapshotRef,
    scan: Scan,
    names: Option<&'a PartFileNames>,
}

/// Bins that are written, each as a new file, and not in the table yet.
pub(super) struct Rewritten {
    replacement: Arc<Replacement>,
    record: Record,
}

impl<'a> Rewriter<'a> {
    /// Errors: [`TableError::Unsupported`] if the table has a feature that would be lost.
    pub(super) fn new(
        table: &'a Table,
        store: &'a TableStore,
        engine: &'a KernelEngine,
        names: Option<&'a PartFileNames>,
    ) -> Result<Self, TableError> {
        let snapshot = table.snapshot();
        check_features(table, &snapshot)?;
        let scan = Arc::clone(&snapshot).scan_builder().build();
        let scan = scan.map_err(|error| table.kernel_error("read", error))?;
        let rewriter = Self { table, store, engine, snapshot, scan, names };
        // Asked for its checks.
        rewriter.plan(None, FileCompression::default())?;
        Ok(rewriter)
    }

    /// The version that is rewritten.
    pub(super) fn snapshot(&self) -> &SnapshotRef {
        &self.snapshot
    }

    /// Writes a file for each of `bins`. One that cannot be read because others have removed its
    /// files meanwhile is left out.
    pub(super) fn rewrite(
        &self,
        bins: &[Bin],
        owner: &str,
        parameters: Vec<(&'static str, String)>,
    ) -> Result<Rewritten, TableError> {
        let mut prepared = Vec::with_capacity(bins.len());
        for bin in bins {
            prepared.push(self.prepare(bin)?);
        }
        let env = self.store.env();
        let record = Record {
            owner: owner.to_owned(),
            mark: env.random_uuid().to_string(),
            read_version: self.snapshot.version(),
            began_ms: env.now_ms(),
            files: prepared.iter().map(|prepared| prepared.name.clone()).collect(),
        };
        record.put(self.store)?;
        let mut swaps = Vec::with_capacity(bins.len());
        for (bin, prepared) in bins.iter().zip(prepared) {
            match self.rewrite_bin(bin, prepared) {
                Ok(swap) => swaps.push(swap),
                Err(TableError::FileMissing { file, .. }) => {
                    let table = self.store.shown();
                    tracing::info!(table, file, "a file that was to be compacted is gone");
                }
                Err(error) => {
                    record.undo(self.store);
                    return Err(error);
                }
            }
        }
        crash_points::reached(Step::FilesRewritten);
        let replacement = Replacement {
            swaps,
            prepared_by: self.snapshot.version(),
            parameters,
            mark: record.mark.clone(),
            until_ms: record.began_ms.saturating_add(PUBLISHED_WITHIN_MS),
        };
        Ok(Rewritten { replacement: Arc::new(replacement), record })
    }

    fn plan(
        &self,
        cluster_by: Option<ClusterBy>,
        compression: FileCompression,
    ) -> Result<WritePlan, TableError> {
        // A bin is a file: what it is to be at most was decided when it was filled.
        let settings = FileSettings { target_bytes: u64::MAX, compression, cluster_by };
        WritePlan::of_files(self.table, &self.snapshot, settings)
    }

    fn prepare(&self, bin: &Bin) -> Result<Prepared, TableError> {
        let codec = bin.files.first().and_then(|file| FileCompression::of_path(&file.file.path));
        let codec = codec.unwrap_or_default();
        let bucket = bin.place.bucket.clone();
        let cluster_by = |(column, buckets, _)| ClusterBy { column, buckets };
        let (plan, number) = match self.plan(bucket.clone().map(cluster_by), codec) {
            Ok(plan) => (plan, bucket.map(|(_, _, number)| number)),
            // The column is gone. Without a bucket in its name a file is right in any case.
            Err(TableError::Mismatch { .. }) => (self.plan(None, codec)?, None),
            Err(error) => return Err(error),
        };
        let key = plan.key(&bin.place.values, number);
        let mut writer = FileWriter::new(plan, self.store);
        if let Some(names) = self.names {
            writer.name_with(names);
        }
        let name = writer.reserve(&key);
        Ok(Prepared { writer, key, name })
    }

    fn rewrite_bin(&self, bin: &Bin, prepared: Prepared) -> Result<Swap, TableError> {
        let Prepared { mut writer, key, .. } = prepared;
        let mut rows = 0;
        for file in &bin.files {
            rows += self.copy(file, &mut writer, &key)?;
        }
        let added = writer.finish()?;
        let written: u64 = added.iter().map(|file| file.rows).sum();
        if written != rows {
            let cause = format!("{rows} rows were read, and {written} are in the new file");
            return Err(TableError::Encoding { table: self.store.shown(), cause });
        }
        Ok(Swap { removed: bin.files.iter().map(|file| file.file.clone()).collect(), added })
    }

    /// Gives the number of rows.
    fn copy(
        &self,
        file: &SmallFile,
        writer: &mut FileWriter,
        key: &FileKey,
    ) -> Result<u64, TableError> {
        let version = self.snapshot.version();
        let explain = |error| explained(self.store, &self.scan, &file.file.path, version, error);
        let (rows, vector) = self.open(file).map_err(explain)?;
        let mut kept = vector.as_deref();
        let mut count = 0;
        for rows in rows {
            let rows = self.physical(rows, writer.plan(), &mut kept).map_err(explain)?;
            if rows.num_rows() > 0 {
                count += rows.num_rows() as u64;
                writer.write_physical(key.clone(), &rows)?;
            }
        }
        Ok(count)
    }

    /// The rows of a file, and a flag for each that says whether it is kept.
    fn open(
        &self,
        file: &SmallFile,
    ) -> KernelResult<(delta_kernel::FileDataReadResultIterator, Option<Vec<bool>>)> {
        let root = self.scan.table_root();
        let meta = FileMeta {
            last_modified: file.modified_ms,
            size: file.file.size,
            location: root.join(&file.file.path)?,
        };
        let kept = file.vector.get_selection_vector(self.engine, root)?;
        let schema = Arc::clone(self.scan.physical_schema());
        Ok((self.engine.parquet_handler().read_parquet_files(&[meta], schema, None)?, kept))
    }

    fn physical(
        &self,
        rows: KernelResult<Box<dyn delta_kernel::EngineData>>,
        plan: &WritePlan,
        kept: &mut Option<&[bool]>,
    ) -> KernelResult<RecordBatch> {
        let rows = ArrowEngineData::try_from_engine_data(rows?)?;
        let rows = without_deleted(rows.record_batch().clone(), kept)?;
        plan.physical_of(&rows)
    }
}

/// A bin's file, before it is written.
struct Prepared {
    writer: FileWriter,
    key: FileKey,
    name: String,
}

impl Rewritten {
    /// To be published.
    pub(super) fn replacement(&self) -> &Arc<Replacement> {
        &self.replacement
    }

    /// What becomes of the new files after their commit. If its outcome is not known they stay, and
    /// so does the record of them.
    pub(super) fn settle(
        self,
        store: &TableStore,
        published: &Result<Option<Replaced>, TableError>,
    ) {
        crash_points::reached(Step::FilesSwapped);
        let chosen = match published {
            Ok(Some(replaced)) => replaced.swaps.as_slice(),
            Ok(None) | Err(TableError::Changed { .. }) => &[],
            Err(_) => return,
        };
        let swaps = self.replacement.swaps.iter().enumerate();
        let left_out = swaps.filter(|(index, _)| !chosen.contains(index));
        let files = left_out.flat_map(|(_, swap)| &swap.added);
        let names: Vec<String> = files.map(|file: &DataFile| file.name.clone()).collect();
        if store.delete_many(&names).is_ok() {
            self.record.forget(store);
        }
    }
}

fn check_features(table: &Table, snapshot: &SnapshotRef) -> Result<(), TableError> {
    let configuration = snapshot.table_configuration();
    let losses: BTreeMap<&str, (TableFeature, &str)> = BTreeMap::from([
        (
            "rowTracking",
            (TableFeature::RowTracking, "its rows have identities, which new files would not have"),
        ),
        (
            "clustering",
            (
                TableFeature::ClusteredTable,
                "its files are in an order (CLUSTER BY), which would be lost",
            ),
        ),
    ]);
    for (name, (feature, loss)) in losses {
        if configuration.is_feature_supported(&feature) {
            return Err(TableError::Unsupported {
                table: table.store().shown(),
                action: "compacted",
                problem: format!("it has the feature {name}: {loss}; use Spark's OPTIMIZE"),
            });
        }
    }
    Ok(())
}

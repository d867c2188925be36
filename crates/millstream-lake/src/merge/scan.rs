//! Key columns of data files.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use delta_kernel::engine::arrow_data::ArrowEngineData;
use delta_kernel::scan::Scan;
use delta_kernel::scan::state::{ScanFile, transform_to_logical};
use delta_kernel::{Engine, FileMeta, KernelError, KernelResult, PredicateRef, SnapshotRef};
use serde_json::Value;

use super::keys::{Key, KeyColumns};
use crate::error::TableError;
use crate::kernel::KernelEngine;
use crate::read::explained;
use crate::store::TableStore;
use crate::table::merge::scan_rows;

/// Reads keys of files of a table as it is at one version.
pub(super) struct KeyScan<'a> {
    store: &'a TableStore,
    engine: &'a KernelEngine,
    keys: &'a KeyColumns,
    scan: Scan,
    version: u64,
}

impl<'a> KeyScan<'a> {
    /// Of files that `predicate` does not rule out.
    pub(super) fn new(
        store: &'a TableStore,
        engine: &'a KernelEngine,
        keys: &'a KeyColumns,
        (snapshot, predicate): (&SnapshotRef, Option<PredicateRef>),
    ) -> KernelResult<Self> {
        let (schema, configuration) = (snapshot.schema(), snapshot.table_configuration());
        let partitions = configuration.logical_partition_columns();
        let mut names: Vec<String> = keys.names().map(str::to_owned).collect();
        if names.iter().all(|name| partitions.contains(name)) {
            // Without a column that is in files, a file does not tell how many rows it has.
            let in_files = schema.fields().find(|field| !partitions.contains(field.name()));
            names.extend(in_files.map(|field| field.name().clone()));
        }
        let columns = schema.project(&names)?;
        let builder = Arc::clone(snapshot).scan_builder().with_schema(columns);
        let scan = builder.with_predicate(predicate).build()?;
        Ok(Self { store, engine, keys, scan, version: snapshot.version() })
    }

    /// Those of the files that may have rows that are looked for.
    pub(super) fn files(&self, rows: &[Value]) -> KernelResult<Vec<ScanFile>> {
        let Some(rows) = scan_rows(rows)? else { return Ok(Vec::new()) };
        let rows: Box<dyn delta_kernel::EngineData> = Box::new(ArrowEngineData::new(rows));
        let mut files = Vec::new();
        let scanned = self.scan.scan_metadata_from(self.engine, self.version, [rows], None)?;
        for metadata in scanned {
            files = metadata?.visit_scan_files(files, |files, file| files.push(file))?;
        }
        Ok(files)
    }

    /// Gives each key of `file` with its row to `found`; rows that a deletion vector names are
    /// among them, those with a NULL in the key are not. Gives how many rows the file has.
    pub(super) fn read(
        &self,
        file: &ScanFile,
        mut found: impl FnMut(u32, Key),
    ) -> Result<u64, TableError> {
        self.read_file(file, &mut found)
            .map_err(|error| explained(self.store, &self.scan, &file.path, self.version, error))
    }

    fn read_file(&self, file: &ScanFile, found: &mut impl FnMut(u32, Key)) -> KernelResult<u64> {
        let size = u64::try_from(file.size);
        let meta = FileMeta {
            last_modified: file.modification_time,
            size: size.map_err(|_| KernelError::generic("the log gives it a negative size"))?,
            location: self.scan.table_root().join(&file.path)?,
        };
        let physical = Arc::clone(self.scan.physical_schema());
        let mut row: u32 = 0;
        for rows in self.engine.parquet_handler().read_parquet_files(&[meta], physical, None)? {
            let rows = transform_to_logical(
                self.engine,
                rows?,
                self.scan.physical_schema(),
                self.scan.logical_schema(),
                file.transform.clone(),
            )?;
            let rows = ArrowEngineData::try_from_engine_data(rows)?;
            for key in self.keys.of_columns(&self.columns(rows.record_batch())?)? {
                if let Some(key) = key {
                    found(row, key);
                }
                row = row.checked_add(1).ok_or_else(|| {
                    KernelError::generic("it has more rows than can be numbered here")
                })?;
            }
        }
        Ok(u64::from(row))
    }

    fn columns(&self, rows: &RecordBatch) -> KernelResult<Vec<ArrayRef>> {
        let column = |name: &str| {
            let column = rows.column_by_name(name);
            column.cloned().ok_or_else(|| KernelError::missing_column(name))
        };
        self.keys.names().map(column).collect()
    }
}

//! Reading a table, as rows in Arrow.
//!
//! A [`TableReader`] stands at one version. One read, from the log to rows:
//! 1. the log is replayed up to that version: which files are live ([`files`]);
//! 2. files whose partition values or statistics rule the predicate out are left out
//!    ([`predicate`]);
//! 3. a few threads take file after file, decode it, leave out rows that its deletion vector names,
//!    and bring columns to the table's names and types ([`rows`]);
//! 4. the caller takes record batches from a short queue, so that memory stays bounded.
//!
//! Whoever reads Parquet without this crate gets the files themselves ([`plain`]), where that gives
//! the same rows.
//!
//! It deliberately does not filter rows: a predicate only saves files, and whoever asked has to
//! look at each row again. Rows come in no particular order.
//!
//! The protocol library says which files there are and what becomes of their columns; so column
//! mapping, type widening and partition columns are its work.

mod files;
mod plain;
mod predicate;
mod rows;
mod versions;

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use delta_kernel::SnapshotRef;
use delta_kernel::engine::arrow_conversion::TryFromKernel;
use delta_kernel::schema::{
    DataType as KernelType, PrimitiveType, SchemaRef as KernelSchemaRef, StructField,
};
use parking_lot::Mutex;

use crate::error::TableError;
use crate::kernel::KernelEngine;
use crate::store::TableStore;

pub(crate) use files::all as live_files;
pub use plain::PlainFile;
pub use predicate::{Comparison, Predicate, Value};
pub use rows::{ReadFacts, Rows};
pub(crate) use rows::{explained, without_deleted};
pub use versions::Fingerprint;

/// A table at one version, open for reading. Its methods block.
pub struct TableReader {
    store: TableStore,
    engine: Arc<KernelEngine>,
    /// Made again at the same version if a checkpoint that it stands on turns out to be damaged.
    snapshot: Mutex<SnapshotRef>,
}

impl TableReader {
    /// The table at its newest version. Errors: [`TableError::Missing`] if there is none.
    pub fn open(store: &TableStore) -> Result<Self, TableError> {
        if !store.may_exist() {
            return Err(TableError::Missing { table: store.shown() });
        }
        let engine = Arc::new(KernelEngine::new(store));
        let snapshot = Mutex::new(engine.snapshot(None)?);
        Ok(Self { store: store.clone(), engine, snapshot })
    }

    /// The same table at its newest version; reads only what came since. Not for a table that was
    /// deleted and made anew, which [`Self::fingerprint`] tells.
    pub fn at_newest(&self) -> Result<Self, TableError> {
        Ok(self.at(self.engine.newer(&self.snapshot())?))
    }

    /// The same table at `version`. Errors: [`TableError::NotReadable`] if there was none, or if
    /// the log has been cleaned up since.
    pub fn at_version(&self, version: u64) -> Result<Self, TableError> {
        match self.engine.snapshot(Some(version)) {
            Ok(snapshot) => Ok(self.at(snapshot)),
            // Whether the version is there is asked only now: a listing would cost more than most
            // reads.
            Err(error) => Err(versions::refusal(&self.store, version)?.unwrap_or(error)),
        }
    }

    /// The same table at the newest version that was there at the moment `ms`, milliseconds since
    /// the epoch. A version's time is what its commit states, if the table has in-commit
    /// timestamps, else that of its file. Errors: [`TableError::NotReadable`] for a moment before
    /// the oldest version that can be read.
    pub fn at_timestamp(&self, ms: i64) -> Result<Self, TableError> {
        self.at_version(versions::at_timestamp(&self.store, ms)?)
    }

    fn at(&self, snapshot: SnapshotRef) -> Self {
        let (store, engine) = (self.store.clone(), Arc::clone(&self.engine));
        Self { store, engine, snapshot: Mutex::new(snapshot) }
    }

    /// Where the table's files are.
    pub fn store(&self) -> &TableStore {
        &self.store
    }

    /// The version that is read.
    pub fn version(&self) -> u64 {
        self.snapshot().version()
    }

    /// The table's columns, partition columns among them, in Arrow's types.
    pub fn schema(&self) -> Result<SchemaRef, TableError> {
        self.arrow_schema(&self.snapshot().schema())
    }

    /// About how many rows the table has: a guess from the size of its data files.
    pub fn rows_estimate(&self) -> Result<u64, TableError> {
        /// About how many bytes a row has in a data file.
        const BYTES_PER_ROW: u64 = 32;
        let known = self.snapshot().get_file_stats_if_present();
        let bytes = match known.and_then(|stats| u64::try_from(stats.table_size_bytes()).ok()) {
            Some(bytes) => bytes,
            None => {
                let files = live_files(self)?;
                files.iter().filter_map(|file| u64::try_from(file.size).ok()).sum()
            }
        };
        Ok(bytes / BYTES_PER_ROW)
    }

    /// The columns whose values all rows of a file share.
    pub fn partition_columns(&self) -> Vec<String> {
        self.snapshot().table_configuration().logical_partition_columns().to_vec()
    }

    /// Which state of the table is the newest, to be compared with an earlier answer. Costs two
    /// small requests while nothing changes, and never a listing unless the log was cleaned up
    /// beyond this reader's version.
    pub fn fingerprint(&self) -> Result<Fingerprint, TableError> {
        versions::fingerprint(&self.store, &self.engine, self.version())
    }

    /// The newest version, which may have no commit any more. As cheap as [`Self::fingerprint`].
    pub(crate) fn newest_version(&self) -> Result<u64, TableError> {
        versions::newest(&self.store, &self.engine, self.version())
    }

    pub(crate) fn snapshot(&self) -> SnapshotRef {
        Arc::clone(&self.snapshot.lock())
    }

    pub(crate) fn engine(&self) -> &Arc<KernelEngine> {
        &self.engine
    }

    /// Does `work` on the snapshot, and again on another one if a damaged checkpoint is in its way.
    pub(crate) fn replay<T>(
        &self,
        work: impl Fn(&SnapshotRef) -> delta_kernel::KernelResult<T>,
    ) -> Result<T, TableError> {
        loop {
            let snapshot = self.snapshot();
            match work(&snapshot) {
                Ok(done) => return Ok(done),
                Err(error) => {
                    let version = Some(snapshot.version());
                    self.engine.pass_over(version, error)?;
                    *self.snapshot.lock() = self.engine.snapshot(version)?;
                }
            }
        }
    }

    /// Reads rows: `columns` by their names, in that order (`None`: all), of all files that may
    /// have rows for which `predicate` holds. The other rows of these files come too.
    ///
    /// Errors: [`TableError::NoColumn`]. What is wrong with a file is reported by [`Rows`] when its
    /// turn comes.
    pub fn read(
        &self,
        columns: Option<&[String]>,
        predicate: Option<&Predicate>,
    ) -> Result<Rows, TableError> {
        let table_schema = self.snapshot().schema();
        let logical = match columns {
            None => Arc::clone(&table_schema),
            Some(columns) => self.projected(&table_schema, columns)?,
        };
        let wanted = self.arrow_schema(&logical)?;
        let logical = self.with_a_column_in_files(&table_schema, logical)?;
        let predicate = predicate.and_then(|predicate| predicate.to_kernel(&table_schema));
        let plan = files::plan(self, &logical, predicate)?;
        Ok(rows::start(self, plan, wanted))
    }

    fn projected(
        &self,
        schema: &KernelSchemaRef,
        columns: &[String],
    ) -> Result<KernelSchemaRef, TableError> {
        if let Some(column) = columns.iter().find(|column| schema.field(column).is_none()) {
            let (table, column) = (self.store.shown(), column.clone());
            return Err(TableError::NoColumn { table, column });
        }
        let projected = schema.project(columns);
        projected.map_err(|error| TableError::kernel("read", &self.store.shown(), error))
    }

    /// Adds a column behind the others if none of them is in files: without any, a file does not
    /// tell how many rows it has.
    fn with_a_column_in_files(
        &self,
        table: &KernelSchemaRef,
        wanted: KernelSchemaRef,
    ) -> Result<KernelSchemaRef, TableError> {
        let partitions = self.partition_columns();
        let is_in_files = |field: &&StructField| !partitions.contains(field.name());
        if wanted.fields().any(|field| is_in_files(&field)) {
            return Ok(wanted);
        }
        let chosen = self.narrow_column_in_files();
        let columns = wanted.fields().chain(&chosen).map(|field| field.name().clone());
        self.projected(table, &columns.collect::<Vec<_>>())
    }

    /// A column that is in files, and cheap to read.
    pub(crate) fn narrow_column_in_files(&self) -> Option<StructField> {
        let (table, partitions) = (self.snapshot().schema(), self.partition_columns());
        let in_files = || table.fields().filter(|field| !partitions.contains(field.name()));
        in_files().find(|field| is_narrow(field)).or_else(|| in_files().next()).cloned()
    }

    fn arrow_schema(&self, schema: &KernelSchemaRef) -> Result<SchemaRef, TableError> {
        let schema = Schema::try_from_kernel(schema.as_ref());
        let schema = schema
            .map_err(|error| TableError::kernel("read", &self.store.shown(), error.into()))?;
        Ok(Arc::new(Schema::new(schema.fields().iter().map(plain).collect::<Fields>())))
    }
}

fn is_narrow(field: &StructField) -> bool {
    let wide = [PrimitiveType::String, PrimitiveType::Binary];
    matches!(field.data_type(), KernelType::Primitive(kind) if !wide.contains(kind))
}

/// The field without what only the log needs to know.
fn plain(field: &FieldRef) -> FieldRef {
    let kind = match field.data_type() {
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(plain).collect()),
        DataType::List(element) => DataType::List(plain(element)),
        DataType::Map(entries, is_sorted) => DataType::Map(plain(entries), *is_sorted),
        kind => kind.clone(),
    };
    Arc::new(Field::new(field.name(), kind, field.is_nullable()))
}

//! Data files: rows to Parquet.
//!
//! A [`FileWriter`] takes rows of a table as they come and encodes them at once, so that when it is
//! time to commit only the last row group and the footer are missing. It keeps a file open per
//! partition and bucket it has seen, and closes one that has reached the target size. Files have
//! names of their own and are no part of the table before a commit says so; an abandoned one is
//! left to `vacuum`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch, UInt32Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, UInt32Type};
use arrow::error::ArrowError;
use bytes::Bytes;
use delta_kernel::engine::arrow_conversion::TryFromKernel;
use delta_kernel::schema::StructType;
use delta_kernel::table_features::ColumnMappingMode;
use delta_kernel::{KernelError, SnapshotRef};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties};

use crate::bucket::{self, Bucket, ClusterBy};
use crate::checkpoint::PartFileNames;
use crate::columns::{ColumnMap, retyped};
use crate::data_file::DataFile;
use crate::error::TableError;
use crate::partition::{self, PartitionKey};
use crate::statistics;
use crate::store::TableStore;
use crate::table::{ENGINE, Table};

/// Rows of a row group at most.
const ROW_GROUP_ROWS: usize = 1 << 20;
/// A row group is closed when its encoded columns have reached this.
const ROW_GROUP_BYTES: usize = 64 << 20;
/// Rows are encoded in pieces of about this many bytes, so that row groups and files of rows that
/// come at once, as of a window that closes, are as large as others: what is encoded is in memory.
const PIECE_BYTES: usize = 8 << 20;
/// A piece has so many rows at least.
const PIECE_ROWS_MIN: usize = 1_024;
/// Bounds of text and bytes are cut to this length; they stay bounds.
const BOUND_BYTES: usize = 32;

/// How data files are written.
#[derive(Clone, Debug)]
pub struct FileSettings {
    /// A file that has reached this many bytes is closed, and another begun.
    pub target_bytes: u64,
    /// The codec.
    pub compression: FileCompression,
    /// The rows of a value are kept together, in files of one bucket.
    pub cluster_by: Option<ClusterBy>,
}

/// The codec of data files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileCompression {
    /// Snappy, as Spark.
    #[default]
    Snappy,
    /// Zstandard, level 1.
    Zstd,
    /// None.
    None,
}

impl Default for FileSettings {
    fn default() -> Self {
        let compression = FileCompression::default();
        Self { target_bytes: 128 << 20, compression, cluster_by: None }
    }
}

impl FileCompression {
    fn codec(self) -> Compression {
        match self {
            Self::Snappy => Compression::SNAPPY,
            Self::Zstd => Compression::ZSTD(ZstdLevel::try_new(1).expect("1 is a level")),
            Self::None => Compression::UNCOMPRESSED,
        }
    }

    /// The codec that the name of a file tells, if it tells one.
    pub(crate) fn of_path(path: &str) -> Option<Self> {
        let codecs = [Self::Snappy, Self::Zstd];
        codecs.into_iter().find(|codec| path.ends_with(&format!("{}.parquet", codec.extension())))
    }

    /// What stands in a file's name before `.parquet`.
    fn extension(self) -> &'static str {
        match self {
            Self::Snappy => ".snappy",
            Self::Zstd => ".zstd",
            Self::None => "",
        }
    }
}

/// How rows of one query are written to a table: columns, partitions, statistics. Made once, by
/// the table's schema; clones are cheap.
#[derive(Clone)]
pub struct WritePlan {
    inner: Arc<PlanInner>,
}

struct PlanInner {
    /// The table's version that it was made by.
    version: u64,
    columns: ColumnMap,
    /// Columns in files, as they are called there.
    physical: SchemaRef,
    /// Where `physical`'s columns stand in the table's.
    in_files: Vec<usize>,
    partitions: Vec<partition::Column>,
    /// Where the column stands in the table's that rows are clustered by, and its buckets.
    cluster_by: Option<(usize, ClusterBy)>,
    statistics_of: Vec<Vec<String>>,
    settings: FileSettings,
}

/// What a file is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FileKey {
    partition: PartitionKey,
    /// The number of its bucket, in a table that is clustered.
    bucket: Option<u32>,
}

impl WritePlan {
    /// Whether the table has a rule that one of the query's `rows` breaks.
    pub fn refuses(&self, rows: &RecordBatch) -> bool {
        self.inner.parts(rows).is_err()
    }

    /// A plan for rows of `query`. Errors: they do not fit, or the table is not written here.
    pub fn new(table: &Table, query: &Schema, settings: FileSettings) -> Result<Self, TableError> {
        let snapshot = table.snapshot();
        Self::at(table, &snapshot, query, settings)
    }

    /// A plan for rows that are in files of `table` already, at the version of `snapshot`.
    pub(crate) fn of_files(
        table: &Table,
        snapshot: &SnapshotRef,
        settings: FileSettings,
    ) -> Result<Self, TableError> {
        let columns = table.schema_of(snapshot)?;
        Self::at(table, snapshot, &columns, settings)
    }

    fn at(
        table: &Table,
        snapshot: &SnapshotRef,
        query: &Schema,
        settings: FileSettings,
    ) -> Result<Self, TableError> {
        let failed = |error| table.kernel_error("written", error);
        let transaction = table.transaction(snapshot, true).map_err(failed)?;
        // Asked for its checks: column defaults and the like.
        transaction.write_state().map_err(failed)?;
        let logical = table.schema_of(snapshot)?;
        let columns = ColumnMap::new(query, &logical).map_err(|misfit| TableError::Mismatch {
            table: table.store().shown(),
            problem: misfit.to_string(),
        })?;
        let partition_by = transaction.logical_partition_columns().to_vec();
        let is_partition = |field: &Field| partition_by.contains(field.name());
        let mapping = snapshot.table_configuration().column_mapping_mode();
        let physical_name = |name: &str| {
            let field =
                snapshot.schema().field(name).map(|field| field.physical_name(mapping).to_owned());
            field.unwrap_or_else(|| name.to_owned())
        };
        let partitions = partition_by.iter().map(|name| partition::Column {
            index: logical.index_of(name).expect("a partition column is a column"),
            physical_name: physical_name(name),
        });
        let in_files =
            (0..logical.fields().len()).filter(|index| !is_partition(logical.field(*index)));
        let in_files: Vec<usize> = in_files.collect();
        let physical =
            physical_schema(&snapshot.schema(), &partition_by, mapping).map_err(failed)?;
        let statistics_of = transaction.stats_columns();
        let statistics_of =
            statistics_of.iter().map(|name| name.path().iter().map(ToString::to_string).collect());
        let cluster_by = settings.cluster_by.as_ref();
        let cluster_by = cluster_by.map(|wanted| clustered_by(wanted, &logical)).transpose();
        let cluster_by = cluster_by
            .map_err(|problem| TableError::Mismatch { table: table.store().shown(), problem })?;
        let inner = PlanInner {
            version: snapshot.version(),
            columns,
            physical,
            in_files,
            partitions: partitions.collect(),
            cluster_by,
            statistics_of: statistics_of.collect(),
            settings,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The table's version that the plan was made by: rows written by it fit the table as long as
    /// nobody has changed the schema since.
    pub fn version(&self) -> u64 {
        self.inner.version
    }

    /// What a file is for that has these values of the partition columns (by their names in the
    /// log), and this bucket.
    pub(crate) fn key(&self, values: &BTreeMap<String, String>, bucket: Option<u32>) -> FileKey {
        let partition = PartitionKey::of(values, &self.inner.partitions);
        FileKey { partition, bucket }
    }

    /// Rows that were read from a file, as the plan writes them.
    pub(crate) fn physical_of(&self, rows: &RecordBatch) -> Result<RecordBatch, KernelError> {
        let physical = &self.inner.physical;
        let columns = physical.fields().iter().map(|field| {
            let column = rows.column_by_name(field.name());
            let column = column.ok_or_else(|| KernelError::missing_column(field.name()))?;
            Ok(retyped(column, field.data_type())?)
        });
        let columns = columns.collect::<Result<Vec<_>, KernelError>>()?;
        Ok(RecordBatch::try_new(Arc::clone(physical), columns)?)
    }

    /// The table's columns.
    pub(crate) fn columns(&self) -> &SchemaRef {
        self.inner.columns.target()
    }

    /// Rows of the query as the table has them. Errors: the rule that one breaks.
    pub(crate) fn apply(&self, rows: &RecordBatch) -> Result<RecordBatch, String> {
        self.inner.columns.apply(rows)
    }

    /// Rows as the table has them by partition and bucket, with the numbers that they had among
    /// `rows`; `None` where all of them are of one, in order.
    pub(crate) fn parts(&self, rows: &RecordBatch) -> Result<Vec<NumberedPart>, String> {
        let plan = &self.inner;
        if plan.partitions.is_empty() && plan.cluster_by.is_none() {
            let key = FileKey { partition: PartitionKey::default(), bucket: None };
            return Ok(vec![(key, rows.clone(), None)]);
        }
        let count = u32::try_from(rows.num_rows()).map_err(|error| error.to_string())?;
        let number = Field::new("", DataType::UInt32, false);
        let schema = rows.schema();
        let fields = schema.fields().iter().cloned().chain([Arc::new(number)]);
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let numbers: ArrayRef = Arc::new(UInt32Array::from_iter_values(0..count));
        let columns = rows.columns().iter().cloned().chain([numbers]).collect();
        let numbered = RecordBatch::try_new(schema, columns).map_err(|error| error.to_string())?;
        let parts = plan.split(numbered)?.into_iter().map(|(key, mut rows)| {
            let numbers = rows.remove_column(rows.num_columns() - 1);
            let numbers = numbers.as_primitive::<UInt32Type>().values().to_vec();
            (key, rows, Some(numbers))
        });
        Ok(parts.collect())
    }
}

/// Rows of one file, and which rows of those that were split they are.
pub(crate) type NumberedPart = (FileKey, RecordBatch, Option<Vec<u32>>);

impl PlanInner {
    /// Rows of the query as the table has them, by partition and bucket. Errors: the rule that one
    /// breaks.
    fn parts(&self, rows: &RecordBatch) -> Result<Vec<(FileKey, RecordBatch)>, String> {
        self.split(self.columns.apply(rows)?)
    }

    /// Rows as the table has them, by partition and bucket.
    fn split(&self, rows: RecordBatch) -> Result<Vec<(FileKey, RecordBatch)>, String> {
        let parts = match self.partitions.as_slice() {
            [] => vec![(PartitionKey::default(), rows)],
            partitions => partition::split(&rows, partitions)?,
        };
        let mut keyed = Vec::with_capacity(parts.len());
        for (partition, rows) in parts {
            let Some((column, ClusterBy { buckets, .. })) = &self.cluster_by else {
                keyed.push((FileKey { partition, bucket: None }, rows));
                continue;
            };
            let buckets = bucket::split(&rows, *column, *buckets)?;
            keyed.extend(buckets.into_iter().map(|(bucket, rows)| {
                (FileKey { partition: partition.clone(), bucket: Some(bucket) }, rows)
            }));
        }
        Ok(keyed)
    }

    /// The columns of files, under their names there.
    fn physical_rows(&self, rows: &RecordBatch) -> Result<RecordBatch, ArrowError> {
        let fields = self.physical.fields().iter().zip(&self.in_files);
        let columns = fields.map(|(field, index)| retyped(rows.column(*index), field.data_type()));
        RecordBatch::try_new(Arc::clone(&self.physical), columns.collect::<Result<_, _>>()?)
    }
}

/// Where the column stands that rows are to be clustered by, under the name that it has in the
/// table. Errors: why they cannot be.
fn clustered_by(wanted: &ClusterBy, table: &Schema) -> Result<(usize, ClusterBy), String> {
    let is_it = |field: &&Arc<Field>| field.name().eq_ignore_ascii_case(&wanted.column);
    let found = table.fields().iter().enumerate().find(|(_, field)| is_it(field));
    let column = &wanted.column;
    let Some((index, field)) = found else {
        return Err(format!("'clusterBy' is {column}, which is no column of the table"));
    };
    if !bucket::can_hash(field.data_type()) || !bucket::can_name(field.name()) {
        return Err(format!("'clusterBy' is {column}, and rows cannot be clustered by it"));
    }
    Ok((index, ClusterBy { column: field.name().clone(), buckets: wanted.buckets }))
}

/// Columns as they are called in files, with the field ids that column mapping asks for.
fn physical_schema(
    logical: &StructType,
    partition_by: &[String],
    mapping: ColumnMappingMode,
) -> Result<SchemaRef, KernelError> {
    let fields = logical.fields().filter(|field| !partition_by.contains(field.name()));
    let physical = StructType::try_new(fields.cloned())?.make_physical(mapping)?;
    Ok(Arc::new(Schema::try_from_kernel(&physical)?))
}

/// Writes rows of one table, for one commit or several. Belongs to one thread.
pub struct FileWriter {
    plan: WritePlan,
    store: TableStore,
    open: BTreeMap<FileKey, OpenFile>,
    done: Vec<DataFile>,
    /// Names of files some of which the store has refused; others may be there.
    refused: Vec<String>,
    part_file_names: Option<PartFileNames>,
    /// Names that were told before the files were written, with their paths in the log.
    reserved: BTreeMap<FileKey, (String, String)>,
}

struct OpenFile {
    writer: ArrowWriter<Vec<u8>>,
    /// Columns that hold a NaN, by index in the file.
    with_nan: BTreeSet<usize>,
}

impl FileWriter {
    /// A writer by `plan`.
    pub fn new(plan: WritePlan, store: &TableStore) -> Self {
        let (store, open, done) = (store.clone(), BTreeMap::new(), Vec::new());
        let (refused, reserved) = (Vec::new(), BTreeMap::new());
        Self { plan, store, open, done, refused, part_file_names: None, reserved }
    }

    /// Draws names until one suits. The checkpoint's cost depends on how many of its parts new
    /// files fall into, and that on their names.
    pub fn name_with(&mut self, part_file_names: &PartFileNames) {
        self.part_file_names = Some(part_file_names.clone());
    }

    /// What it writes by.
    pub fn plan(&self) -> &WritePlan {
        &self.plan
    }

    /// Takes rows of the query. Encodes them, and puts a file that is large enough into the store.
    pub fn write(&mut self, rows: &RecordBatch) -> Result<(), TableError> {
        if rows.num_rows() == 0 {
            return Ok(());
        }
        let refused = |problem| TableError::Row { table: self.store.shown(), problem };
        let parts = self.plan.inner.parts(rows).map_err(refused)?;
        for (key, rows) in parts {
            for piece in pieces(&rows) {
                self.write_to(key.clone(), &piece)?;
            }
        }
        Ok(())
    }

    /// Takes rows as the table has them, all of them for `key`.
    pub(crate) fn write_to(&mut self, key: FileKey, rows: &RecordBatch) -> Result<(), TableError> {
        let physical = self.plan.inner.physical_rows(rows).map_err(|error| {
            let (table, cause) = (self.store.shown(), error.to_string());
            TableError::Encoding { table, cause }
        })?;
        self.write_physical(key, &physical)
    }

    /// The name that the next file for `key` will have.
    pub(crate) fn reserve(&mut self, key: &FileKey) -> String {
        let (name, path) = self.draw_name(key);
        self.reserved.insert(key.clone(), (name.clone(), path));
        name
    }

    /// Takes rows as they are in files ([`WritePlan::physical`]), all of them for `key`.
    pub(crate) fn write_physical(
        &mut self,
        key: FileKey,
        physical: &RecordBatch,
    ) -> Result<(), TableError> {
        let plan = self.plan.clone();
        let encoding = |error: &dyn std::fmt::Display| TableError::Encoding {
            table: self.store.shown(),
            cause: error.to_string(),
        };
        if !self.open.contains_key(&key) {
            let writer = writer(&plan).map_err(|error| encoding(&error))?;
            self.open.insert(key.clone(), OpenFile { writer, with_nan: BTreeSet::new() });
        }
        let file = self.open.get_mut(&key).expect("it was just put there");
        file.with_nan.extend(statistics::columns_with_nan(physical));
        file.writer.write(physical).map_err(|error| encoding(&error))?;
        if file.writer.in_progress_size() >= ROW_GROUP_BYTES {
            // A vector that grows by itself would have twice the file's size.
            let row_group = file.writer.in_progress_size();
            file.writer.inner_mut().reserve_exact(row_group);
            file.writer.flush().map_err(|error| encoding(&error))?;
        }
        let bytes = file.writer.bytes_written() + file.writer.in_progress_size();
        if bytes as u64 >= plan.inner.settings.target_bytes {
            let closed = self.closed(&key)?;
            self.put(closed.into_iter().collect())?;
        }
        Ok(())
    }

    /// Closes all files and gives those written since the last call. They are in the store.
    pub fn finish(&mut self) -> Result<Vec<DataFile>, TableError> {
        let mut closed = Vec::with_capacity(self.open.len());
        while let Some(key) = self.open.keys().next().cloned() {
            closed.extend(self.closed(&key)?);
        }
        self.put(closed)?;
        Ok(std::mem::take(&mut self.done))
    }

    /// Forgets what was not finished.
    pub fn abandon(&mut self) {
        self.open.clear();
        let mut names = std::mem::take(&mut self.refused);
        names.extend(self.done.drain(..).map(|file| file.name));
        // A file that stays is no part of the table; vacuum finds it.
        let _ = self.store.delete_many(&names);
    }

    /// Puts files into the store: a table of many partitions or buckets has as many in a commit.
    fn put(&mut self, closed: Vec<(DataFile, Bytes)>) -> Result<(), TableError> {
        let (files, contents): (Vec<DataFile>, Vec<Bytes>) = closed.into_iter().unzip();
        let names: Vec<String> = files.iter().map(|file| file.name.clone()).collect();
        let _turn = self.store.in_foreground();
        match self.store.put_many(names.iter().cloned().zip(contents).collect()) {
            Ok(()) => self.done.extend(files),
            Err(error) => {
                self.refused.extend(names);
                return Err(TableError::store("cannot write to", &self.store.shown(), &error));
            }
        }
        Ok(())
    }

    /// A file and what it has, if there is one for `key`.
    fn closed(&mut self, key: &FileKey) -> Result<Option<(DataFile, Bytes)>, TableError> {
        let Some(mut file) = self.open.remove(key) else { return Ok(None) };
        let encoding = |error: &dyn std::fmt::Display| TableError::Encoding {
            table: self.store.shown(),
            cause: error.to_string(),
        };
        let footer = file.writer.finish().map_err(|error| encoding(&error))?;
        let bytes = std::mem::take(file.writer.inner_mut());
        let reserved = self.reserved.remove(key);
        let (name, path) = reserved.unwrap_or_else(|| self.draw_name(key));
        let plan = &self.plan.inner;
        let size = bytes.len() as u64;
        let data_file = DataFile {
            path,
            partition_values: key.partition.values(&plan.partitions),
            size,
            modified_ms: self.store.env().now_ms(),
            rows: u64::try_from(footer.file_metadata().num_rows()).unwrap_or(0),
            statistics: statistics::of_file(
                &footer,
                &plan.physical,
                &plan.statistics_of,
                &file.with_nan,
            ),
            name,
        };
        Ok(Some((data_file, bytes.into())))
    }

    fn draw_name(&self, key: &FileKey) -> (String, String) {
        let plan = &self.plan.inner;
        let directory = key.partition.directory(&plan.partitions);
        let extension = plan.settings.compression.extension();
        let bucket = plan.cluster_by.as_ref().zip(key.bucket).map(|((_, cluster_by), number)| {
            let (of, column) = (cluster_by.buckets, cluster_by.column.clone());
            Bucket { number, of, column }.in_name()
        });
        let bucket = bucket.unwrap_or_default();
        loop {
            let unique = self.store.env().random_uuid();
            let name = format!("{directory}part-00000-{unique}-c000{bucket}{extension}.parquet");
            let path = encoded(&self.store, &name);
            if self
                .part_file_names
                .as_ref()
                .is_none_or(|part_file_names| part_file_names.wants(&path))
            {
                return (name, path);
            }
        }
    }
}

/// Slices of `rows` of about [`PIECE_BYTES`]. Of rows that are slices themselves they are smaller.
fn pieces(rows: &RecordBatch) -> impl Iterator<Item = RecordBatch> {
    let row_bytes = rows.get_array_memory_size() / rows.num_rows().max(1);
    let length = (PIECE_BYTES / row_bytes.max(1)).max(PIECE_ROWS_MIN);
    let starts = (0..rows.num_rows()).step_by(length);
    starts.map(move |start| rows.slice(start, length.min(rows.num_rows() - start)))
}

/// A name as the log has it.
fn encoded(store: &TableStore, name: &str) -> String {
    let (root, url) = (store.url().as_str().len(), store.file_url(name));
    url.as_str()[root..].to_owned()
}

fn writer(plan: &WritePlan) -> parquet::errors::Result<ArrowWriter<Vec<u8>>> {
    let properties = WriterProperties::builder()
        .set_compression(plan.inner.settings.compression.codec())
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_statistics_truncate_length(Some(BOUND_BYTES))
        .set_created_by(ENGINE.to_owned())
        .build();
    let options =
        ArrowWriterOptions::new().with_properties(properties).with_skip_arrow_metadata(true);
    ArrowWriter::try_new_with_options(Vec::new(), Arc::clone(&plan.inner.physical), options)
}

#[cfg(test)]
mod tests {
    use arrow::array::StringArray;

    use super::*;

    fn lengths(rows: usize, length: usize) -> Vec<usize> {
        let texts = StringArray::from_iter_values((0..rows).map(|_| "x".repeat(length)));
        let rows = RecordBatch::try_from_iter([("t", Arc::new(texts) as ArrayRef)]);
        pieces(&rows.expect("it is a column")).map(|piece| piece.num_rows()).collect()
    }

    #[test]
    fn many_rows_are_encoded_in_pieces() {
        let found = lengths(30_000, 1_000);
        assert!(found.len() > 3 && found.iter().all(|rows| *rows <= 9_000), "{found:?}");
        assert_eq!(found.iter().sum::<usize>(), 30_000);
        assert_eq!(lengths(5, 10), [5]);
        assert_eq!(lengths(2_000, 20_000), [1_024, 976]);
        assert!(lengths(0, 0).is_empty());
    }
}

//! A table at rest as DataFusion scans it.
//!
//! Where the table is made of plain Parquet files, a scan is DataFusion's own `DataSourceExec` over
//! the files that the table's log does not rule out: it reads only columns, row groups and pages
//! that are needed, it can be cut into byte ranges, and it can be sent to another process as it is.
//! Any other table (JSON, CSV, Delta tables with deletion vectors or mapped columns) is read by its
//! connector, in this process.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef};
use async_trait::async_trait;
use chrono::{DateTime, Utc};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{DataFusionError, Result, ScalarValue, plan_err};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::object_store::ObjectStoreUrl;
use datafusion::datasource::physical_plan::parquet::CachedParquetFileReaderFactory;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::{ExecutionPlan, Partitioning};
use millstream_engine::api::filter::Filter;
use millstream_engine::api::snapshot::{DataFile, DataFiles, Snapshot};
use millstream_engine::api::source::{Failure, StaticTable};
use millstream_engine::failures::into_datafusion;
use millstream_engine::plan::scanned_table::ScannedTable;
use millstream_sql::functions::{SessionZone, holds_moment};
use millstream_sql::query::file_metadata::{field_of, without_hidden};
use object_store::ObjectMeta;
use object_store::path::Path;
use tokio::sync::OnceCell;
use url::Url;

use super::{buckets, file_metadata, statistics};
use crate::cache::hash::stable_hash;

/// A table as it was when the query began.
pub struct LakeTable {
    name: String,
    schema: SchemaRef,
    /// The columns without those that say of which file a row is.
    own: SchemaRef,
    table: Arc<dyn StaticTable>,
    snapshot: Arc<dyn Snapshot>,
    /// How many scans of it the query has.
    scans: AtomicUsize,
    /// A scan may tell that its partitions are those of the table's buckets.
    tells_buckets: AtomicBool,
    /// Reads the snapshot where others cannot, for all scans of the query.
    scanned: OnceCell<Arc<ScannedTable>>,
}

impl LakeTable {
    /// `table` as it is now, with the columns `schema`.
    ///
    /// # Errors
    /// Those of its connector.
    pub async fn open(
        name: &str,
        schema: SchemaRef,
        table: Arc<dyn StaticTable>,
    ) -> Result<Self, Failure> {
        let (name, snapshot) = (name.to_owned(), table.snapshot().await?);
        let (scans, scanned) = (AtomicUsize::new(1), OnceCell::new());
        let tells_buckets = AtomicBool::new(false);
        let own = without_hidden(&schema);
        Ok(Self { name, schema, own, table, snapshot, scans, tells_buckets, scanned })
    }

    /// Says how many scans of it the query has, before the first is planned: rows that can be read
    /// once only are held in memory for several.
    pub fn expect_scans(&self, scans: usize) {
        self.scans.store(scans, Ordering::Relaxed);
    }

    /// Has scans that are planned from now on tell what buckets their rows are in, so that rows
    /// need not be shuffled to be grouped. Only for plans that [`buckets::may_be_told`] allows.
    pub fn tell_buckets(&self) {
        self.tells_buckets.store(true, Ordering::Relaxed);
    }

    /// The files of a scan by DataFusion itself, where that gives the table's rows: the table has
    /// still the columns that the query was planned with, and all files are in one store.
    async fn files(&self, filters: &[Filter]) -> Result<Option<DataFiles>, Failure> {
        if self.table.schema() != self.own {
            return Ok(None);
        }
        let found = self.snapshot.data_files(filters).await?;
        Ok(found.filter(|found| {
            let mut stores = found.files.iter().map(|file| store_of(&file.url).ok());
            let first = stores.next();
            stores.all(|store| Some(store) == first)
        }))
    }

    async fn scanned(&self) -> Result<&Arc<ScannedTable>, Failure> {
        let open = || async {
            let scanned = ScannedTable::empty(self.name.clone(), Arc::clone(&self.own));
            let (table, snapshot) = (Arc::clone(&self.table), Arc::clone(&self.snapshot));
            scanned.open_at(table, snapshot, self.scans.load(Ordering::Relaxed)).await?;
            Ok(scanned)
        };
        self.scanned.get_or_try_init(open).await
    }

    /// The columns of a scan that is not by DataFusion, which knows of no files.
    fn without_files(&self, projection: Option<&Vec<usize>>) -> Result<Option<Vec<usize>>> {
        let own = self.own.fields().len();
        if own == self.schema.fields().len() {
            return Ok(projection.cloned());
        }
        let all: Vec<usize> = (0..self.schema.fields().len()).collect();
        let wanted = projection.unwrap_or(&all);
        if wanted.iter().any(|column| *column >= own) {
            return plan_err!(
                "`_metadata` of `{}` is not known: its rows are not those of plain Parquet files",
                self.name
            );
        }
        Ok(Some(wanted.clone()))
    }

    /// A scan by DataFusion itself.
    async fn scan_files(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        found: &DataFiles,
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let hidden = self.schema.fields().iter().skip(self.own.fields().len());
        let hidden = hidden.map(|field| field.name().clone());
        let by_file: Vec<String> = found.partition_columns.iter().cloned().chain(hidden).collect();
        let columns = Columns::new(&self.schema, &by_file)?;
        check_zone(&self.name, &columns, found, state)?;
        let all: Vec<usize> = (0..self.schema.fields().len()).collect();
        let wanted = projection.unwrap_or(&all);
        let Some(first) = found.files.first() else {
            return Ok(Arc::new(EmptyExec::new(Arc::new(self.schema.project(wanted)?))));
        };
        let store = store_of(&first.url)?;
        let files = found.files.iter().map(|file| columns.file(file));
        let files = files.collect::<Result<Vec<_>>>()?;
        let object_store = state.runtime_env().object_store(&store)?;
        let in_files = columns.schema.file_schema();
        let files = statistics::add_footers(files, in_files, state, (&store, &object_store)).await;
        let known = statistics::of_all(&files, columns.schema.table_schema())?;
        let partitions = state.config().target_partitions();
        let buckets = match self.tells_buckets.load(Ordering::Relaxed) {
            true => {
                let schema = columns.schema.table_schema();
                buckets::grouped(&found.files, &files, schema, partitions)
            }
            false => None,
        };
        let (groups, partitioning) = match buckets {
            Some((column, groups)) => {
                let partitioning = columns.partitioned_by(&column, groups.len());
                (groups, Some(partitioning?))
            }
            None => (FileGroup::new(files).split_files(partitions), None),
        };
        let options = state.table_options().parquet.clone();
        let source = ParquetSource::new(columns.schema.clone()).with_table_parquet_options(options);
        let cache = state.runtime_env().cache_manager.get_file_metadata_cache();
        let reader = Arc::new(CachedParquetFileReaderFactory::new(object_store, cache));
        let source = Arc::new(source.with_parquet_file_reader_factory(reader));
        let projected = wanted.iter().map(|column| columns.places[*column]).collect();
        let config = FileScanConfigBuilder::new(store, source)
            .with_file_groups(groups)
            .with_projection_indices(Some(projected))?
            .with_statistics(known)
            .with_limit(limit)
            .with_output_partitioning(partitioning)
            .build();
        Ok(DataSourceExec::from_data_source(config))
    }
}

/// The scheme and the host of a file's URL, which say what store it is in.
fn store_of(url: &str) -> Result<ObjectStoreUrl> {
    let parsed = parse(url)?;
    ObjectStoreUrl::parse(&parsed[..url::Position::BeforePath])
}

fn parse(url: &str) -> Result<Url> {
    Url::parse(url).map_err(|error| DataFusionError::External(Box::new(error)))
}

/// Refuses values of partitions that are TIMESTAMPs without a zone, in a session of another zone
/// than UTC: Spark reads them in that.
fn check_zone(name: &str, columns: &Columns, found: &DataFiles, state: &dyn Session) -> Result<()> {
    let zone = state.config_options().extensions.get::<SessionZone>();
    let Some(zone) = zone.filter(|zone| !zone.is_utc()) else { return Ok(()) };
    let has_zone = |value: &str| value.ends_with('Z');
    for at in 0..found.partition_columns.len() {
        let is_moment =
            columns.partitions.get(at).is_some_and(|field| holds_moment(field.data_type()));
        let mut values = found.files.iter().filter_map(|file| file.partition_values.get(at));
        if is_moment && values.any(|value| value.as_deref().is_some_and(|text| !has_zone(text))) {
            return plan_err!(
                "`{name}` has partitions of TIMESTAMPs without a zone, which are not read where \
                 the session's time zone is {}; write SET TIME ZONE 'UTC'",
                zone.name()
            );
        }
    }
    Ok(())
}

/// A table's columns as scans have them: those in files first, then those of partitions.
struct Columns {
    schema: TableSchema,
    partitions: Vec<FieldRef>,
    /// By column of the table, its place in a scan.
    places: Vec<usize>,
}

impl Columns {
    fn new(table: &SchemaRef, partition_columns: &[String]) -> Result<Self> {
        let is_partition = |field: &&FieldRef| partition_columns.contains(field.name());
        let in_files: Vec<FieldRef> =
            table.fields().iter().filter(|field| !is_partition(field)).cloned().collect();
        let field = |name: &String| table.field_with_name(name).cloned().map(Arc::new);
        let partitions: Vec<FieldRef> =
            partition_columns.iter().map(field).collect::<Result<_, _>>()?;
        let order: Vec<&FieldRef> = in_files.iter().chain(&partitions).collect();
        let place = |field: &FieldRef| order.iter().position(|other| other.name() == field.name());
        let places = table.fields().iter().filter_map(place).collect();
        let schema = TableSchema::builder(Arc::new(Schema::new(in_files)))
            .with_table_partition_cols(partitions.clone())
            .build();
        Ok(Self { schema, partitions, places })
    }

    fn file(&self, file: &DataFile) -> Result<PartitionedFile> {
        let url = parse(&file.url)?;
        let path = Path::from_url_path(url.path());
        let path = path.map_err(|error| DataFusionError::External(Box::new(error)))?;
        let hidden = self.partitions.iter().filter(|field| field_of(field.name()).is_some());
        let hidden = hidden.map(|field| file_metadata::value(field.name(), &url, file));
        let hidden = hidden.collect::<Result<Vec<_>>>()?;
        let meta = ObjectMeta {
            location: path,
            last_modified: version_time(file, &url[..url::Position::BeforePath]),
            size: file.bytes,
            e_tag: None,
            version: None,
        };
        let values = self.partitions.iter().zip(&file.partition_values);
        let values = values.map(|(field, value)| match value {
            Some(text) => typed(text, field.data_type()),
            None => ScalarValue::try_new_null(field.data_type()),
        });
        let mut partitioned = PartitionedFile::new_from_meta(meta);
        partitioned.partition_values = values.collect::<Result<_>>()?;
        partitioned.partition_values.extend(hidden);
        Ok(match file.rows {
            Some(rows) => statistics::with_rows(partitioned, rows, self.schema.file_schema()),
            None => partitioned,
        })
    }

    /// That all rows with one value of a column are in one of `count` partitions.
    fn partitioned_by(&self, column: &str, count: usize) -> Result<Partitioning> {
        let column = Column::new_with_schema(column, self.schema.table_schema())?;
        Ok(Partitioning::Hash(vec![Arc::new(column)], count))
    }
}

/// When a file of `store` was written, with a mark of the store and of the version in place of what
/// is below a millisecond. DataFusion's cache of footers knows a file by its path, size and time
/// alone, and would give a file the footer of another that has all three in another store.
fn version_time(file: &DataFile, store: &str) -> DateTime<Utc> {
    const NS_PER_MS: i64 = 1_000_000;
    // Plans travel with nanoseconds in 64 bits, which end in the year 2262.
    const MS_MAX: i64 = i64::MAX / NS_PER_MS - 1;
    let version = file.e_tag.as_deref().unwrap_or_default();
    let mark = stable_hash([store.as_bytes(), version.as_bytes()]) % NS_PER_MS as u64;
    let ms = file.modified_ms.clamp(-MS_MAX, MS_MAX);
    DateTime::from_timestamp_nanos(ms * NS_PER_MS + mark as i64)
}

/// A partition's value, of the text that the log has.
///
/// Origin: Delta's protocol, "Partition Value Serialization".
fn typed(text: &str, data_type: &DataType) -> Result<ScalarValue> {
    match data_type {
        DataType::Binary => Ok(ScalarValue::Binary(Some(text.as_bytes().to_vec()))),
        data_type => ScalarValue::try_from_string(text.to_owned(), data_type),
    }
}

impl fmt::Debug for LakeTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LakeTable({})", self.name)
    }
}

#[async_trait]
impl TableProvider for LakeTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        // Files are left out by them, and rows are filtered above.
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        // The log of a table knows nothing of hidden columns.
        let is_own = |filter: &&Expr| {
            filter.column_refs().iter().all(|column| field_of(&column.name).is_none())
        };
        let known: Vec<Filter> = filters.iter().filter(is_own).filter_map(Filter::of).collect();
        match self.files(&known).await.map_err(into_datafusion)? {
            Some(found) => self.scan_files(state, projection, &found, limit).await,
            None => {
                let projection = self.without_files(projection)?;
                let scanned = self.scanned().await.map_err(into_datafusion)?;
                scanned.scan(state, projection.as_ref(), filters, limit).await
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scanned(url: &str, modified_ms: i64, e_tag: Option<&str>) -> ObjectMeta {
        let columns = Columns::new(&Arc::new(Schema::empty()), &[]).expect("no columns");
        let file = DataFile {
            url: url.to_owned(),
            bytes: 9,
            modified_ms,
            e_tag: e_tag.map(str::to_owned),
            rows: None,
            partition_values: Vec::new(),
            bucket: None,
        };
        columns.file(&file).expect("a file").object_meta
    }

    #[test]
    fn files_of_one_path_in_two_stores_or_versions_have_two_times() {
        let here = scanned("s3://one/a/b.parquet", 1_700_000_000_123, None);
        assert_eq!(here, scanned("s3://one/a/b.parquet", 1_700_000_000_123, None));
        let there = scanned("s3://two/a/b.parquet", 1_700_000_000_123, None);
        let later = scanned("s3://one/a/b.parquet", 1_700_000_000_123, Some("\"1\""));
        for other in [there, later] {
            assert_eq!(other.location, here.location);
            assert_ne!(other.last_modified, here.last_modified);
            let ms = other.last_modified.timestamp_millis();
            assert_eq!(ms, 1_700_000_000_123, "the millisecond stays");
        }
    }

    #[test]
    fn a_time_that_no_plan_can_travel_with_is_the_last_that_can() {
        for modified_ms in [i64::MIN, i64::MAX, 32_503_680_000_000] {
            let file = scanned("s3://one/a", modified_ms, None);
            assert!(file.last_modified.timestamp_nanos_opt().is_some(), "{modified_ms}");
        }
    }
}

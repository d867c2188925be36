//! A Delta table at rest: all rows at once, as the static side of a join, or record batch by record
//! batch, as the input of a batch query.

use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use millstream_engine::api::connector::{FlowContext, Table};
use millstream_engine::api::filter::{Comparison, Filter, Literal};
use millstream_engine::api::options::OptionError;
use millstream_engine::api::snapshot::{
    DataFile, DataFiles, FileBucket, RowStream, Snapshot, SnapshotPart, read_on_a_thread,
};
use millstream_engine::api::source::{Failure, StaticTable};
use millstream_lake::bucket::Bucket;
use millstream_lake::error::TableError;
use millstream_lake::read::{self, PlainFile, Predicate, TableReader, Value};
use millstream_lake::store::TableStore;
use millstream_store::env::Env;
use parking_lot::Mutex;

use super::options::{AsOf, ReadOptions};

/// A table that is read whole, but for files that cannot have what is asked for.
pub(super) struct DeltaTable {
    /// Kept open: from the version it knows a newer one is found without a listing.
    reader: Arc<Mutex<TableReader>>,
    is_newest: bool,
    schema: SchemaRef,
    env: Env,
}

impl DeltaTable {
    /// Opens the table. Blocks for a request or two.
    pub(super) fn open(options: &ReadOptions, context: &FlowContext) -> Result<Self, Failure> {
        let store = super::store(&options.path, &context.base_dir, &context.env)?;
        let (reader, schema) = open(&store, options)?;
        let (is_newest, env) = (options.version == AsOf::Newest, context.env.clone());
        Ok(Self { reader: Arc::new(Mutex::new(reader)), is_newest, schema, env })
    }
}

/// The table's columns, for planning; declared ones must be among them.
pub(super) fn columns(
    options: &ReadOptions,
    table: &Table,
    base_dir: &Path,
) -> Result<SchemaRef, OptionError> {
    let failed = |error: &dyn std::fmt::Display| {
        OptionError::table(format!("the table '{}' cannot be read: {error}", table.name), None)
    };
    let store =
        super::store(&options.path, base_dir, &Env::real()).map_err(|error| failed(&error))?;
    let (_, schema) = open(&store, options).map_err(|error| failed(&error))?;
    check_declared(table, &schema)?;
    Ok(schema)
}

/// Refuses declared columns that the table does not have.
pub(super) fn check_declared(table: &Table, schema: &SchemaRef) -> Result<(), OptionError> {
    for declared in table.columns.iter().flat_map(|columns| columns.fields()) {
        if schema.column_with_name(declared.name()).is_none() {
            let help = Some("leave the columns out: a Delta table knows its own".to_owned());
            let problem = format!("'{}' has no column {}", table.name, declared.name());
            return Err(OptionError::table(problem, help));
        }
    }
    Ok(())
}

/// Opens the table, on a thread that may block, whoever calls.
fn open(store: &TableStore, options: &ReadOptions) -> Result<(TableReader, SchemaRef), TableError> {
    store.env().blocking(|| {
        let newest = TableReader::open(store)?;
        let reader = match options.version {
            AsOf::Newest => newest,
            AsOf::Version(version) => newest.at_version(version)?,
            AsOf::Moment(ms) => newest.at_timestamp(ms)?,
        };
        let schema = reader.schema()?;
        Ok((reader, schema))
    })
}

#[async_trait]
impl StaticTable for DeltaTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    async fn fingerprint(&self) -> Result<String, Failure> {
        if !self.is_newest {
            return Ok("a version of the past does not change".to_owned());
        }
        let reader = Arc::clone(&self.reader);
        let ask = move || reader.lock().fingerprint();
        let fingerprint = self.env.spawn_blocking("delta-look", ask).join().await?;
        Ok(format!("{fingerprint:?}"))
    }

    async fn read(&self) -> Result<Vec<RecordBatch>, Failure> {
        self.read_where(&[]).await
    }

    async fn read_where(&self, filters: &[Filter]) -> Result<Vec<RecordBatch>, Failure> {
        let predicate = Predicate::And(filters.iter().map(predicate).collect());
        let (reader, is_newest) = (Arc::clone(&self.reader), self.is_newest);
        let reading = move || -> Result<Vec<RecordBatch>, TableError> {
            let mut reader = reader.lock();
            if is_newest {
                // Anew, since it may be another table by now; that is little beside its rows.
                *reader = TableReader::open(&reader.store().clone())?;
            }
            let mut rows = reader.read(None, Some(&predicate))?;
            let read = rows.by_ref().collect::<Result<Vec<_>, _>>()?;
            let facts = rows.facts();
            let (files, files_read) = (facts.files, facts.files_read);
            let table = reader.store().shown();
            tracing::debug!(table, files, files_read, rows = facts.rows, "read");
            Ok(read)
        };
        Ok(self.env.spawn_blocking("delta-read", reading).join().await?)
    }

    async fn snapshot(&self) -> Result<Arc<dyn Snapshot>, Failure> {
        let (reader, is_newest) = (Arc::clone(&self.reader), self.is_newest);
        let opening = move || -> Result<_, TableError> {
            let mut reader = reader.lock();
            if is_newest {
                *reader = TableReader::open(&reader.store().clone())?;
            }
            let reader = reader.at_version(reader.version())?;
            let rows_estimate = reader.rows_estimate()?;
            Ok((reader, rows_estimate))
        };
        let (reader, rows_estimate) = self.env.spawn_blocking("delta-open", opening).join().await?;
        let (schema, env) = (Arc::clone(&self.schema), self.env.clone());
        let reader = Arc::new(Mutex::new(reader));
        Ok(Arc::new(Version { reader, schema, rows_estimate, env }))
    }
}

/// The table at one version.
struct Version {
    reader: Arc<Mutex<TableReader>>,
    schema: SchemaRef,
    rows_estimate: u64,
    env: Env,
}

#[async_trait]
impl Snapshot for Version {
    async fn parts(&self, filters: &[Filter]) -> Result<Vec<Arc<dyn SnapshotPart>>, Failure> {
        let predicate = Predicate::And(filters.iter().map(predicate).collect());
        let (reader, schema) = (Arc::clone(&self.reader), Arc::clone(&self.schema));
        Ok(vec![Arc::new(SelectedFiles { reader, schema, predicate, env: self.env.clone() })])
    }

    async fn data_files(&self, filters: &[Filter]) -> Result<Option<DataFiles>, Failure> {
        let predicate = Predicate::And(filters.iter().map(predicate).collect());
        let (reader, schema) = (Arc::clone(&self.reader), Arc::clone(&self.schema));
        let listing = move || -> Result<_, TableError> {
            let reader = reader.lock();
            // Its own reader says which column is gone; others would take it for one of nulls.
            if reader.schema()? != schema {
                return Ok(None);
            }
            let Some(files) = reader.plain_files(Some(&predicate))? else { return Ok(None) };
            let partition_columns = reader.partition_columns();
            let files = files.into_iter().map(data_file).collect();
            Ok(Some(DataFiles { files, partition_columns }))
        };
        Ok(self.env.spawn_blocking("delta-files", listing).join().await?)
    }

    fn rows_estimate(&self) -> Option<u64> {
        Some(self.rows_estimate)
    }
}

fn data_file(file: PlainFile) -> DataFile {
    let PlainFile { url, bytes, modified_ms, rows, partition_values, bucket } = file;
    let bucket = bucket.map(|Bucket { number, of, column }| FileBucket { number, of, column });
    // Never written again, and so of one version.
    DataFile { url, bytes, modified_ms, e_tag: None, rows, partition_values, bucket }
}

/// The data files that may have rows for which a predicate holds. They are one part: their reader
/// decodes several of them at once.
struct SelectedFiles {
    reader: Arc<Mutex<TableReader>>,
    schema: SchemaRef,
    predicate: Predicate,
    env: Env,
}

impl SnapshotPart for SelectedFiles {
    fn read(&self, projection: &[usize]) -> RowStream {
        let column = |index: &usize| self.schema.field(*index).name().clone();
        let columns: Vec<String> = projection.iter().map(column).collect();
        let (reader, predicate) = (Arc::clone(&self.reader), self.predicate.clone());
        let open = move || {
            let reader = reader.lock();
            let rows = reader.read(Some(&columns), Some(&predicate))?;
            let (facts, table) = (rows.facts(), reader.store().shown());
            let (files, files_read) = (facts.files, facts.files_read);
            tracing::debug!(table, files, files_read, "reading");
            Ok(rows.map(|rows| Ok(rows?)))
        };
        read_on_a_thread(&self.env, "delta-read", open)
    }
}

fn predicate(filter: &Filter) -> Predicate {
    let all = |filters: &[Filter]| filters.iter().map(predicate).collect();
    match filter {
        Filter::Compare { column, comparison, value: literal } => {
            Predicate::compare(column, compared(*comparison), value(literal))
        }
        Filter::IsNull(column) => Predicate::IsNull(column.clone()),
        Filter::IsNotNull(column) => Predicate::IsNotNull(column.clone()),
        Filter::In { column, values } => {
            let values = values.iter().map(value).collect();
            Predicate::In { column: column.clone(), values }
        }
        Filter::And(filters) => Predicate::And(all(filters)),
        Filter::Or(filters) => Predicate::Or(all(filters)),
        Filter::Not(filter) => Predicate::Not(Box::new(predicate(filter))),
    }
}

fn compared(comparison: Comparison) -> read::Comparison {
    match comparison {
        Comparison::Equal => read::Comparison::Equal,
        Comparison::NotEqual => read::Comparison::NotEqual,
        Comparison::Less => read::Comparison::Less,
        Comparison::LessOrEqual => read::Comparison::LessOrEqual,
        Comparison::Greater => read::Comparison::Greater,
        Comparison::GreaterOrEqual => read::Comparison::GreaterOrEqual,
    }
}

fn value(literal: &Literal) -> Value {
    match literal {
        Literal::Integer(value) => Value::Integer(*value),
        Literal::Float(value) => Value::Float(*value),
        Literal::Text(value) => Value::Text(value.clone()),
        Literal::Boolean(value) => Value::Boolean(*value),
        Literal::Date(days) => Value::Date(*days),
        Literal::Timestamp(micros) => Value::Timestamp(*micros),
    }
}

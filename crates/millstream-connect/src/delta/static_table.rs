//! A Delta table at rest: the static side of a join, or the input of a batch query.

use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use millstream_engine::connector::{FlowContext, OptionError, Table};
use millstream_engine::source::{Comparison, Failure, Filter, Literal, StaticTable};
use millstream_lake::error::TableError;
use millstream_lake::read::{self, Predicate, TableReader, Value};
use millstream_lake::store::TableStore;
use millstream_store::env::Env;

use super::options::{AsOf, ReadOptions};

/// A table that is read whole, but for files that cannot have what is asked for.
pub(super) struct DeltaTable {
    options: ReadOptions,
    store: TableStore,
    schema: SchemaRef,
    env: Env,
}

impl DeltaTable {
    /// Opens the table. Blocks for a request or two.
    pub(super) fn open(options: ReadOptions, context: &FlowContext) -> Result<Self, Failure> {
        let store = super::store(&options.path, &context.base_dir, &context.env)?;
        let schema = blocking(&store, &options, |reader| reader.schema())?;
        Ok(Self { options, store, schema, env: context.env.clone() })
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
    let schema = blocking(&store, options, |reader| reader.schema());
    let schema = schema.map_err(|error| failed(&error))?;
    for declared in table.columns.iter().flat_map(|columns| columns.fields()) {
        if schema.column_with_name(declared.name()).is_none() {
            let help = Some("leave the columns out: a Delta table knows its own".to_owned());
            let problem = format!("'{}' has no column {}", table.name, declared.name());
            return Err(OptionError::table(problem, help));
        }
    }
    Ok(schema)
}

/// Asks the table, on a thread that may block, whoever calls.
fn blocking<T: Send>(
    store: &TableStore,
    options: &ReadOptions,
    ask: impl FnOnce(&TableReader) -> Result<T, TableError> + Send,
) -> Result<T, TableError> {
    store.env().blocking(|| ask(&reader(store, options)?))
}

fn reader(store: &TableStore, options: &ReadOptions) -> Result<TableReader, TableError> {
    let newest = TableReader::open(store)?;
    match options.version {
        AsOf::Newest => Ok(newest),
        AsOf::Version(version) => newest.at_version(version),
        AsOf::Moment(ms) => newest.at_timestamp(ms),
    }
}

#[async_trait]
impl StaticTable for DeltaTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    async fn fingerprint(&self) -> Result<String, Failure> {
        if self.options.version != AsOf::Newest {
            return Ok("a version of the past does not change".to_owned());
        }
        let store = self.store.clone();
        let ask = move || TableReader::open(&store)?.fingerprint();
        let fingerprint = self.env.spawn_blocking("delta-look", ask).join().await?;
        Ok(format!("{fingerprint:?}"))
    }

    async fn read(&self) -> Result<Vec<RecordBatch>, Failure> {
        self.read_where(&[]).await
    }

    async fn read_where(&self, filters: &[Filter]) -> Result<Vec<RecordBatch>, Failure> {
        let predicate = Predicate::And(filters.iter().map(predicate).collect());
        let (store, options) = (self.store.clone(), self.options.clone());
        let reading = move || -> Result<Vec<RecordBatch>, TableError> {
            let mut rows = reader(&store, &options)?.read(None, Some(&predicate))?;
            let read = rows.by_ref().collect::<Result<Vec<_>, _>>()?;
            let facts = rows.facts();
            let (files, files_read) = (facts.files, facts.files_read);
            tracing::debug!(table = store.shown(), files, files_read, rows = facts.rows, "read");
            Ok(read)
        };
        Ok(self.env.spawn_blocking("delta-read", reading).join().await?)
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

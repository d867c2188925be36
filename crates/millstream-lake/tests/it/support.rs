//! A table in a directory of its own.

use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use millstream_lake::data_file::DataFile;
use millstream_lake::file_writer::{FileSettings, FileWriter, WritePlan};
use millstream_lake::store::TableStore;
use millstream_lake::table::{Append, Appended, NewTable, Table};
use millstream_store::env::Env;
use tempfile::TempDir;

use crate::proxy_store::{Control, ProxyStore};

/// The world with a runtime behind it.
pub struct World {
    pub env: Env,
    pub directory: TempDir,
    _runtime: tokio::runtime::Runtime,
}

impl World {
    pub fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let env = {
            let _inside = runtime.enter();
            Env::real()
        };
        Self { env, directory: TempDir::new().expect("a directory"), _runtime: runtime }
    }

    /// The same table through a store that does as a test says.
    pub fn proxied(&self) -> (TableStore, Arc<Control>) {
        let control = Arc::new(Control::default());
        let ours = Arc::clone(&control);
        let store = self.store().wrapped(|inner| Arc::new(ProxyStore { inner, control: ours }));
        (store, control)
    }

    pub fn store(&self) -> TableStore {
        let path = self.directory.path().join("a table");
        TableStore::parse(path.to_str().expect("text"), &self.env).expect("a path")
    }
}

/// `id` and `name`.
pub fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, true),
        Field::new("name", DataType::Utf8, true),
    ]))
}

/// Rows `first..first + count`.
pub fn rows(first: i64, count: i64) -> RecordBatch {
    let ids = Int64Array::from_iter_values(first..first + count);
    let names = (first..first + count).map(|id| format!("name {id}"));
    let names = StringArray::from_iter_values(names);
    RecordBatch::try_new(schema(), vec![Arc::new(ids), Arc::new(names)]).expect("two columns")
}

pub fn create(store: &TableStore, partition_by: &[String]) -> Table {
    let new = NewTable { schema: &schema(), partition_by, properties: &[] };
    Table::create(store, &new).expect("a new table")
}

pub fn written(table: &Table, rows: &RecordBatch) -> Vec<DataFile> {
    let plan = WritePlan::new(table, &rows.schema(), FileSettings::default()).expect("they fit");
    let mut writer = FileWriter::new(plan, table.store());
    writer.write(rows).expect("written");
    writer.finish().expect("files")
}

pub fn append(
    table: &Table,
    application: &str,
    version: i64,
    rows: &RecordBatch,
) -> Option<Appended> {
    let (prepared_by, files) = (table.version(), written(table, rows));
    let note = r#"{"batch":1}"#;
    let append = Append { application, version, files: &files, prepared_by, note };
    table.append(&append).expect("an append")
}

//! `USING delta`: tables of Delta Lake.
//!
//! As a sink, micro-batches are gathered: their rows are encoded as they come, and every commit
//! interval one commit makes all of them visible, with the number of the last and how far the
//! sources were read ([`crate::gather`]). A micro-batch is acknowledged when the commit it is in is
//! published, so nothing that is not in the table is ever taken for done. After a crash the table
//! says which micro-batch came last ([`sink`]), and the checkpoint which table it was ([`memory`]).
//!
//! As a static table it is read at its newest version, or at another one, without the files that
//! the query's conditions rule out ([`static_table`]).
//!
//! What a commit is, and everything about the table's log, is `millstream-lake`'s.

mod error;
mod memory;
mod options;
mod sink;
mod static_table;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use arrow::datatypes::SchemaRef;
use millstream_engine::api::connector::{Connector, FlowContext, ReadMode, Table};
use millstream_engine::api::options::{OptionError, OptionSpec};
use millstream_engine::api::settings::OutputMode;
use millstream_engine::api::sink::{Failure, Sink};
use millstream_engine::api::source::{Source, StaticTable};
use millstream_lake::error::LocationError;
use millstream_lake::maintenance::LiveTable;
use millstream_lake::store::TableStore;
use millstream_store::env::Env;
use parking_lot::Mutex;

use options::{ReadOptions, WriteOptions};

/// The `delta` connector. Flows that write to one table share it, and so its commits' sequence.
pub struct Delta {
    tables: Arc<OpenTables>,
    /// Relative paths are relative to this directory while columns are found out.
    base_dir: PathBuf,
}

impl Delta {
    /// The connector, for pipelines whose paths are relative to `base_dir`.
    pub fn new(base_dir: &Path) -> Self {
        Self { tables: Arc::default(), base_dir: base_dir.to_owned() }
    }
}

/// The table at `path`, as written in a pipeline.
fn store(path: &str, base_dir: &Path, env: &Env) -> Result<TableStore, LocationError> {
    if path.contains("://") || path.starts_with("file:") {
        return TableStore::parse(path, env);
    }
    TableStore::parse(&crate::paths::resolve(base_dir, path).display().to_string(), env)
}

/// The tables that are open in this process, by URL.
#[derive(Default)]
struct OpenTables {
    tables: Mutex<HashMap<String, Weak<LiveTable>>>,
}

impl OpenTables {
    /// The table at `store`, opened by `open` unless it is already. Blocks.
    fn get(
        &self,
        store: &TableStore,
        open: impl FnOnce() -> Result<LiveTable, Failure>,
    ) -> Result<Arc<LiveTable>, Failure> {
        let url = store.url().to_string();
        // Held while it is opened: two flows that start together open it once.
        let mut tables = self.tables.lock();
        if let Some(table) = tables.get(&url).and_then(Weak::upgrade) {
            return Ok(table);
        }
        let table = Arc::new(open()?);
        tables.insert(url, Arc::downgrade(&table));
        Ok(table)
    }
}

fn no_stream(table: &Table) -> OptionError {
    OptionError::table(
        format!("the Delta table '{}' is read as a stream, which is not supported", table.name),
        Some(format!("read it as a whole: FROM {} without STREAM", table.name)),
    )
}

impl Connector for Delta {
    fn name(&self) -> &'static str {
        "delta"
    }

    fn output_modes(&self) -> &'static [OutputMode] {
        &[OutputMode::Append]
    }

    fn options(&self) -> &'static [OptionSpec] {
        options::KNOWN
    }

    fn check_source(&self, table: &Table, mode: ReadMode) -> Result<SchemaRef, OptionError> {
        if mode == ReadMode::Stream {
            return Err(no_stream(table));
        }
        let options = ReadOptions::parse(&table.options)?;
        static_table::columns(&options, table, &self.base_dir)
    }

    fn check_sink(&self, table: &Table, schema: &SchemaRef) -> Result<(), OptionError> {
        WriteOptions::parse(&table.options)?.check(schema)
    }

    fn source(
        &self,
        table: &Table,
        _mode: ReadMode,
        _context: &FlowContext,
    ) -> Result<Box<dyn Source>, Failure> {
        Err(no_stream(table).into())
    }

    fn sink(
        &self,
        table: &Table,
        schema: &SchemaRef,
        context: &FlowContext,
    ) -> Result<Box<dyn Sink>, Failure> {
        let options = WriteOptions::parse(&table.options)?;
        let sink = sink::DeltaSink::new(options, schema, Arc::clone(&self.tables), context)?;
        Ok(Box::new(sink))
    }

    fn static_table(
        &self,
        table: &Table,
        context: &FlowContext,
    ) -> Result<Option<Arc<dyn StaticTable>>, Failure> {
        let options = ReadOptions::parse(&table.options)?;
        Ok(Some(Arc::new(static_table::DeltaTable::open(&options, context)?)))
    }
}

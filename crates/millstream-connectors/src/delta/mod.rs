//! `USING delta`: tables of Delta Lake.
//!
//! As a sink, micro-batches are gathered: their rows are encoded as they come, and every commit
//! interval one commit makes all of them visible, with the number of the last and how far the
//! sources were read ([`crate::gather`]). A micro-batch is acknowledged when the commit it is in is
//! published, so nothing that is not in the table is ever taken for done. After a crash the table
//! says which micro-batch came last ([`sink`]), and the checkpoint which table it was ([`memory`]).
//!
//! As a source, the table's log is read as a stream: its rows, then those of each commit
//! ([`source`]). As a static table it is read at its newest version, or at another one, without
//! the files that the query's conditions rule out ([`static_table`]).
//!
//! What a commit is, and everything about the table's log, is `millstream-lake`'s.

mod error;
mod memory;
mod merge;
mod merge_options;
mod note;
mod options;
mod sink;
mod source;
mod static_table;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use arrow::datatypes::SchemaRef;
use millstream_engine::api::connector::{Connector, FlowContext, ReadMode, ReplacingKeys, Table};
use millstream_engine::api::needs::{Need, Role, Usage};
use millstream_engine::api::options::{OptionError, OptionSpec};
use millstream_engine::api::settings::OutputMode;
use millstream_engine::api::sink::{Failure, Sink};
use millstream_engine::api::source::{Source, StaticTable};
use millstream_lake::error::LocationError;
use millstream_lake::maintenance::LiveTable;
use millstream_lake::store::TableStore;
use millstream_store::env::Env;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::places::{self, Access};
use options::{ReadOptions, WriteOptions};
use source::StreamOptions;

/// The options of a Delta table.
const KNOWN: &[OptionSpec] = &all_options();

const ALL: usize = options::AT_REST.len() + source::KNOWN.len();

const fn all_options() -> [OptionSpec; ALL] {
    let mut all = [options::AT_REST[0]; ALL];
    let (mut at, at_rest) = (0, options::AT_REST.len());
    while at < ALL {
        all[at] = if at < at_rest { options::AT_REST[at] } else { source::KNOWN[at - at_rest] };
        at += 1;
    }
    all
}

/// The `delta` connector. Flows that write to one table share it, and so its commits' sequence.
pub struct Delta {
    tables: Arc<OpenTables>,
    /// Relative paths are relative to this directory while columns are found out.
    base_dir: PathBuf,
    /// By table, the columns that flows which read it as a stream are planned with.
    planned: Mutex<HashMap<String, SchemaRef>>,
}

impl Delta {
    /// The connector, for pipelines whose paths are relative to `base_dir`.
    pub fn new(base_dir: &Path) -> Self {
        Self { tables: Arc::default(), base_dir: base_dir.to_owned(), planned: Mutex::default() }
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
    /// Counts this process' commits, for whoever reads the table as a stream.
    commits: Mutex<HashMap<String, watch::Sender<u64>>>,
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

    /// Changes with each commit of this process to the table at `store`.
    fn commits(&self, store: &TableStore) -> watch::Sender<u64> {
        let mut commits = self.commits.lock();
        commits.entry(store.url().to_string()).or_insert_with(|| watch::Sender::new(0)).clone()
    }
}

impl Connector for Delta {
    fn name(&self) -> &'static str {
        "delta"
    }

    fn output_modes(&self, table: &Table) -> &'static [OutputMode] {
        match WriteOptions::parse(&table.options) {
            Ok(WriteOptions { merge: Some(_), .. }) => &[OutputMode::Append, OutputMode::Update],
            _ => &[OutputMode::Append],
        }
    }

    fn replacing_keys(&self, table: &Table, schema: &SchemaRef) -> Option<ReplacingKeys> {
        Some(WriteOptions::parse(&table.options).ok()?.merge?.replacing(schema))
    }

    fn output_mode_help(&self) -> &'static str {
        "leave outputMode out: rows are appended; or, for outputMode 'update', write 'mode' = \
         'merge' and 'keys' in the table's OPTIONS: a row then takes the place of the one with its \
         keys"
    }

    fn options(&self) -> &'static [OptionSpec] {
        KNOWN
    }

    fn check_source(&self, table: &Table, mode: ReadMode) -> Result<SchemaRef, OptionError> {
        if mode == ReadMode::Stream {
            let options = StreamOptions::parse(&table.options)?;
            let schema = source::columns(&options, table, &self.base_dir)?;
            self.planned.lock().insert(table.name.clone(), Arc::clone(&schema));
            return Ok(schema);
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
        context: &FlowContext,
    ) -> Result<Box<dyn Source>, Failure> {
        let options = StreamOptions::parse(&table.options)?;
        let planned = self.planned.lock().get(&table.name).map(Arc::clone);
        let store = store(&options.path, &context.base_dir, &context.env)?;
        let commits = self.tables.commits(&store).subscribe();
        let source = source::DeltaSource::new(options, planned.as_ref(), commits, context)?;
        Ok(Box::new(source))
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

    fn needs(&self, table: &Table, usage: &Usage<'_>) -> Result<Vec<Need>, OptionError> {
        let access = match usage.role {
            Role::Read(_) => Access::Read,
            Role::Written(_) => Access::Write,
        };
        Ok(places::needs(options::path(&table.options)?, &self.base_dir, access))
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

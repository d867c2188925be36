//! `USING cassandra`: rows into tables of Apache Cassandra, exactly once in effect, and rows by
//! their key, for a join with a stream.
//!
//! ```text
//! publish ──▶ rows, one for each key ──▶ the micro-batch's write time, durable in the checkpoint
//!                                          │
//!                                          ▼
//!             writer (a thread): requests, many at once, in any order ──▶ acknowledged
//! ```
//!
//! A row replaces the one with the same key, and which of two writes counts is decided by their
//! times. A replay repeats a micro-batch with its rows and its time, so it changes nothing that was
//! written, and nothing that came later.
//!
//! - [`types`]: columns of a query beside those of a table, and values as bytes.
//! - [`server`], [`options`]: what a table's options say. [`error`]: what goes wrong.
//! - [`table`]: the columns and the statements of the table.
//! - [`write_times`]: the times of micro-batches.
//! - [`rows`], [`requests`]: from record batches to what is sent.
//! - [`opening`]: what a start does first.
//! - [`writer`]: sends it. [`sink`]: what the driver sees.
//! - [`lookup`]: asks for rows by key.
//!
//! The names of options are those of Spark's connector, where it has them.

mod error;
mod lookup;
mod opening;
mod options;
mod repeat;
mod requests;
mod rows;
mod server;
mod sink;
mod table;
mod types;
mod write_times;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use millstream_engine::api::connector::{Connector, FlowContext, ReadMode, Table};
use millstream_engine::api::lookup::{LookupForm, LookupTable};
use millstream_engine::api::needs::{Need, Role, Usage};
use millstream_engine::api::options::{OptionError, OptionSpec};
use millstream_engine::api::sink::{Failure, Sink};

use lookup::{CassandraLookup, LookupOptions};
use options::{KEY_COLUMN, OPTIONS, SinkOptions};
use sink::CassandraSink;

/// The `cassandra` connector, whose relative paths are relative to a directory.
pub struct Cassandra {
    base_dir: PathBuf,
}

impl Cassandra {
    /// The connector for pipelines in `base_dir`.
    pub fn new(base_dir: &Path) -> Self {
        Self { base_dir: base_dir.to_owned() }
    }
}

impl Connector for Cassandra {
    fn name(&self) -> &'static str {
        "cassandra"
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn check_source(&self, table: &Table, mode: ReadMode) -> Result<SchemaRef, OptionError> {
        if mode == ReadMode::Batch
            && let Some(form) = self.lookup_form(table)?
        {
            return Ok(form.schema);
        }
        let name = &table.name;
        let problem =
            format!("'{name}' uses 'cassandra', of which rows are read by their key only");
        let help = format!(
            "join a stream with it: FROM STREAM s JOIN {name} ON ..., and name the key's columns: \
             'key.column' = 'id'"
        );
        Err(OptionError::table(problem, Some(help)))
    }

    fn lookup_form(&self, table: &Table) -> Result<Option<LookupForm>, OptionError> {
        if table.options.get(KEY_COLUMN).is_none() {
            return Ok(None);
        }
        Ok(Some(LookupOptions::parse(table, &self.base_dir)?.form))
    }

    fn lookup_table(
        &self,
        table: &Table,
        context: &FlowContext,
    ) -> Result<Arc<dyn LookupTable>, Failure> {
        Ok(Arc::new(CassandraLookup::new(table, &self.base_dir, context)?))
    }

    fn check_sink(&self, table: &Table, schema: &SchemaRef) -> Result<(), OptionError> {
        SinkOptions::parse(table, schema, &self.base_dir).map(drop)
    }

    fn needs(&self, table: &Table, usage: &Usage<'_>) -> Result<Vec<Need>, OptionError> {
        let Role::Written(schema) = usage.role else {
            let options = LookupOptions::parse(table, &self.base_dir)?;
            let mut needs = options.server().needs();
            let on = format!("table {}", options.shown());
            needs.push(Need::rights(&["SELECT"], on, "looking rows up"));
            return Ok(needs);
        };
        let options = SinkOptions::parse(table, schema, &self.base_dir)?;
        let mut needs = options.server.needs();
        let on = format!("table {}", options.shown());
        needs.push(Need::rights(&["MODIFY"], on, "the rows"));
        Ok(needs)
    }

    fn sink(
        &self,
        table: &Table,
        schema: &SchemaRef,
        context: &FlowContext,
    ) -> Result<Box<dyn Sink>, Failure> {
        Ok(Box::new(CassandraSink::new(table, schema, &self.base_dir, context)?))
    }
}

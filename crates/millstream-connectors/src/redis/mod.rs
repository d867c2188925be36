//! `USING redis`: rows into Redis and Valkey, exactly once, and their streams as a source.
//!
//! ```text
//! publish ──▶ pieces of rows ──▶ writer (a thread): one script, or several ──▶ acknowledged
//!                                     rows, and the query's progress last
//! ```
//!
//! Redis runs one script after the other and nothing in between, so a script that writes rows and
//! then the progress is a transaction as long as it does not fail in the middle: what could fail is
//! looked at first. What a start finds in the [`record`] of progress is where the query goes on.
//!
//! - [`options`], [`server`]: what a table's options say; where the server is.
//! - [`encode`]: rows as pieces, which scripts can read.
//! - [`scripts`]: what runs in the server. [`slots`]: rows by slots of a cluster.
//! - [`link`]: a connection, made again when it breaks.
//! - [`writer`]: a micro-batch into Redis. [`memory`]: what the checkpoint knows of that.
//! - [`sink`]: what the driver sees. [`source`] reads streams. [`lookup`] asks for rows by key.
//!
//! The names of options are those of spark-redis, where it has them.

mod encode;
mod error;
mod link;
mod lookup;
mod memory;
mod needs;
mod options;
mod record;
mod scripts;
mod server;
mod sink;
mod slots;
mod source;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use millstream_engine::api::connector::{Connector, FlowContext, ReadMode, Table};
use millstream_engine::api::lookup::{LookupForm, LookupTable};
use millstream_engine::api::needs::{Need, Usage};
use millstream_engine::api::options::{OptionError, OptionSpec};
use millstream_engine::api::sink::{Failure, Sink};
use millstream_engine::api::source::Source;

use lookup::RedisLookup;
use options::{OPTIONS, SinkOptions};
use sink::RedisSink;
use source::RedisSource;

/// The `redis` connector, whose relative paths are relative to a directory.
pub struct Redis {
    base_dir: PathBuf,
}

impl Redis {
    /// The connector for pipelines in `base_dir`.
    pub fn new(base_dir: &Path) -> Self {
        Self { base_dir: base_dir.to_owned() }
    }
}

impl Connector for Redis {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn check_sink(&self, table: &Table, schema: &SchemaRef) -> Result<(), OptionError> {
        SinkOptions::parse(table, schema, &self.base_dir).map(drop)
    }

    fn check_source(&self, table: &Table, mode: ReadMode) -> Result<SchemaRef, OptionError> {
        if mode == ReadMode::Batch
            && let Some(form) = self.lookup_form(table)?
        {
            return Ok(form.schema);
        }
        RedisSource::check(table, mode, &self.base_dir)
    }

    fn source(
        &self,
        table: &Table,
        mode: ReadMode,
        context: &FlowContext,
    ) -> Result<Box<dyn Source>, Failure> {
        Ok(Box::new(RedisSource::new(table, mode, &self.base_dir, context)?))
    }

    fn lookup_form(&self, table: &Table) -> Result<Option<LookupForm>, OptionError> {
        // Without the key's columns nothing can be looked up: it is a table of streams, or a list.
        if table.options.get("key.column").is_none() {
            return Ok(None);
        }
        Ok(Some(RedisLookup::check(table, &self.base_dir)?.form))
    }

    fn lookup_table(
        &self,
        table: &Table,
        context: &FlowContext,
    ) -> Result<Arc<dyn LookupTable>, Failure> {
        Ok(Arc::new(RedisLookup::new(table, &self.base_dir, context)?))
    }

    fn needs(&self, table: &Table, usage: &Usage<'_>) -> Result<Vec<Need>, OptionError> {
        needs::needs(table, usage, &self.base_dir)
    }

    fn sink(
        &self,
        table: &Table,
        schema: &SchemaRef,
        context: &FlowContext,
    ) -> Result<Box<dyn Sink>, Failure> {
        Ok(Box::new(RedisSink::new(table, schema, &self.base_dir, context)?))
    }
}

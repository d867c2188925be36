//! `USING cassandra`: rows into tables of Apache Cassandra, exactly once in effect.
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
//! - [`writer`]: sends it. [`sink`]: what the driver sees.
//!
//! The names of options are those of Spark's connector, where it has them.

mod error;
mod options;
mod requests;
mod rows;
mod server;
mod sink;
mod table;
mod types;
mod write_times;
mod writer;

use std::path::{Path, PathBuf};

use arrow::datatypes::SchemaRef;
use millstream_engine::api::connector::{Connector, FlowContext, Table};
use millstream_engine::api::options::{OptionError, OptionSpec};
use millstream_engine::api::sink::{Failure, Sink};

use options::{OPTIONS, SinkOptions};
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

    fn check_sink(&self, table: &Table, schema: &SchemaRef) -> Result<(), OptionError> {
        SinkOptions::parse(table, schema, &self.base_dir).map(drop)
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

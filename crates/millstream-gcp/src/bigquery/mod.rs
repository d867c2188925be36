//! `USING bigquery`: rows into tables of BigQuery, through its Storage Write API, exactly once.
//!
//! ```text
//! publish ──▶ messages of rows ──▶ lanes (a write stream each): appended, and not visible
//!                                    │ all answered
//!                                    ▼
//!                                  an entry in the checkpoint: published
//!                                    │
//!                                    ▼
//!                                  FlushRows: visible ──▶ acknowledged
//! ```
//!
//! - [`options`]: what a table's options say. [`error`]: what goes wrong.
//! - [`columns`], [`rest`]: the columns of a table, and how the service describes them.
//! - [`mapping`], [`rows`], [`message`]: from the query's columns to messages of Arrow.
//! - [`storage`]: calls of the Storage Write API. [`lane`]: a write stream.
//! - [`progress`]: the entries. [`writer`]: when rows go out, and when they count.
//! - [`sink`]: what the driver sees.

mod aside;
mod columns;
mod error;
mod lane;
mod mapping;
mod message;
mod options;
mod progress;
mod rest;
mod rows;
mod sink;
mod storage;
mod writer;

use std::path::{Path, PathBuf};

use arrow::datatypes::SchemaRef;
use millstream_engine::api::connector::{Connector, FlowContext, Table};
use millstream_engine::api::needs::{Need, Role, Usage};
use millstream_engine::api::options::{OptionError, OptionSpec};
use millstream_engine::api::settings::OutputMode;
use millstream_engine::api::sink::{Failure, Sink};

use options::{OPTIONS, SinkOptions};
use sink::BigQuerySink;

/// The `bigquery` connector, whose relative paths are relative to a directory.
pub struct BigQuery {
    base_dir: PathBuf,
}

impl BigQuery {
    /// The connector for pipelines in `base_dir`.
    pub fn new(base_dir: &Path) -> Self {
        Self { base_dir: base_dir.to_owned() }
    }
}

impl Connector for BigQuery {
    fn name(&self) -> &'static str {
        "bigquery"
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn check_sink(&self, table: &Table, schema: &SchemaRef) -> Result<(), OptionError> {
        SinkOptions::parse(table, schema, &self.base_dir).map(drop)
    }

    /// Rows are only added.
    fn output_modes(&self, _: &Table) -> &'static [OutputMode] {
        &[OutputMode::Append]
    }

    fn has_refused_rows(&self, _: &Table) -> bool {
        true
    }

    fn needs(&self, table: &Table, usage: &Usage<'_>) -> Result<Vec<Need>, OptionError> {
        let Role::Written(schema) = usage.role else { return Ok(Vec::new()) };
        Ok(SinkOptions::parse(table, schema, &self.base_dir)?.needs())
    }

    fn sink(
        &self,
        table: &Table,
        schema: &SchemaRef,
        context: &FlowContext,
    ) -> Result<Box<dyn Sink>, Failure> {
        Ok(Box::new(BigQuerySink::new(table, schema, &self.base_dir, context)?))
    }
}

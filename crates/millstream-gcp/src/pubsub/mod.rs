//! `USING pubsub`: messages of a subscription as a source.
//!
//! Pub/Sub has no offsets and forgets what is acknowledged. So messages go through the
//! [journal](millstream_store::journal), and are acknowledged when they are durable there; from
//! then on the journal is the source.
//!
//! ```text
//! streaming pull ──▶ journal, flushed ──▶ acknowledged
//!                        └──▶ buffer ──▶ micro-batches, whose offsets are positions in the journal
//! ```
//!
//! - [`options`]: what a table's options say. [`error`]: what goes wrong.
//! - [`client`]: calls, and when they are repeated.
//! - [`buffer`]: messages that wait for the driver.
//! - [`intake`]: receives, writes, acknowledges.
//! - [`rows`]: messages as columns.
//! - [`source`]: what the driver sees.
//!
//! The names of options and columns are those of Spark on Databricks, where it has them.

mod buffer;
mod client;
mod error;
mod intake;
mod options;
mod rows;
mod source;

use std::path::{Path, PathBuf};

use arrow::datatypes::SchemaRef;
use millstream_engine::api::connector::{Connector, FlowContext, ReadMode, Table};
use millstream_engine::api::needs::{Need, Role, Usage};
use millstream_engine::api::options::{OptionError, OptionSpec};
use millstream_engine::api::source::{Failure, Source};

pub use error::PubsubError;
use options::{OPTIONS, SourceOptions};
use source::PubsubSource;

/// The `pubsub` connector, whose relative paths are relative to a directory.
pub struct Pubsub {
    base_dir: PathBuf,
}

impl Pubsub {
    /// The connector for pipelines in `base_dir`.
    pub fn new(base_dir: &Path) -> Self {
        Self { base_dir: base_dir.to_owned() }
    }
}

impl Connector for Pubsub {
    fn name(&self) -> &'static str {
        "pubsub"
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn check_source(&self, table: &Table, mode: ReadMode) -> Result<SchemaRef, OptionError> {
        PubsubSource::check(table, mode, &self.base_dir)
    }

    fn needs(&self, table: &Table, usage: &Usage<'_>) -> Result<Vec<Need>, OptionError> {
        let Role::Read(mode) = usage.role else { return Ok(Vec::new()) };
        Ok(SourceOptions::parse(table, mode, &self.base_dir)?.needs())
    }

    fn source(
        &self,
        table: &Table,
        mode: ReadMode,
        context: &FlowContext,
    ) -> Result<Box<dyn Source>, Failure> {
        Ok(Box::new(PubsubSource::new(table, mode, context)?))
    }
}

//! `USING pulsar`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use millstream_engine::api::connector::{
    Connector, DeadLetterSupport, FlowContext, ReadMode, Table,
};
use millstream_engine::api::dead_letter::Payloads;
use millstream_engine::api::needs::{Need, Role, Usage};
use millstream_engine::api::options::{OptionError, OptionSpec};
use millstream_engine::api::sink::{Failure, Sink};
use millstream_engine::api::source::Source;

use crate::options::OPTIONS;
use crate::sink::{PulsarSink, SinkOptions};
use crate::source::{self, PulsarSource, Rows, ValuePayloads};

/// The `pulsar` connector, whose relative paths are relative to a directory.
pub struct Pulsar {
    base_dir: PathBuf,
}

impl Pulsar {
    /// The connector for pipelines in `base_dir`.
    pub fn new(base_dir: &Path) -> Self {
        Self { base_dir: base_dir.to_owned() }
    }
}

impl Connector for Pulsar {
    fn name(&self) -> &'static str {
        "pulsar"
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn check_source(&self, table: &Table, mode: ReadMode) -> Result<SchemaRef, OptionError> {
        source::check(table, mode, &self.base_dir).map(|rows| rows.schema)
    }

    fn check_sink(&self, table: &Table, schema: &SchemaRef) -> Result<(), OptionError> {
        SinkOptions::parse(table, schema, &self.base_dir).map(drop)
    }

    fn source(
        &self,
        table: &Table,
        mode: ReadMode,
        context: &FlowContext,
    ) -> Result<Box<dyn Source>, Failure> {
        Ok(Box::new(PulsarSource::new(table, mode, &self.base_dir, context)?))
    }

    fn sink(
        &self,
        table: &Table,
        schema: &SchemaRef,
        context: &FlowContext,
    ) -> Result<Box<dyn Sink>, Failure> {
        Ok(Box::new(PulsarSink::new(table, schema, &self.base_dir, context)?))
    }

    fn needs(&self, table: &Table, usage: &Usage<'_>) -> Result<Vec<Need>, OptionError> {
        Ok(match usage.role {
            Role::Read(mode) => source::needs(table, mode, &self.base_dir, usage)?,
            Role::Written(schema) => {
                SinkOptions::parse(table, schema, &self.base_dir)?.needs(usage)
            }
        })
    }

    fn dead_letters(&self) -> &dyn DeadLetterSupport {
        self
    }
}

impl DeadLetterSupport for Pulsar {
    fn payloads(
        &self,
        table: &Table,
        _context: &FlowContext,
    ) -> Result<Option<Arc<dyn Payloads>>, Failure> {
        Ok(Some(Arc::new(ValuePayloads(Arc::new(Rows::from_table(table)?)))))
    }
}

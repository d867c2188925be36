//! `USING kafka`: checks a table's options and columns, and makes its source, sink or static table.

use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use millstream_engine::api::connector::{
    Connector, DeadLetterSupport, FlowContext, ReadMode, Table,
};
use millstream_engine::api::dead_letter::{Form, Payloads};
use millstream_engine::api::needs::{Need, Role, Usage};
use millstream_engine::api::options::{OptionError, OptionSpec};
use millstream_engine::api::sink::{Failure, Sink};
use millstream_engine::api::source::{Source, StaticTable};
use millstream_formats::schema::Registries;

use crate::client::settings::{ClientSettings, Use};
use crate::known_options;
use crate::sink::{self, KafkaSink};
use crate::source::static_table::KafkaStaticTable;
use crate::source::{self, KafkaSource, dead_letters};

/// `USING kafka`.
#[derive(Clone, Debug)]
pub struct KafkaConnector {
    registries: Registries,
}

impl KafkaConnector {
    /// One for pipelines whose paths are relative to `base_dir`.
    pub fn new(base_dir: &Path) -> Self {
        Self { registries: Registries::new(base_dir) }
    }
}

impl Connector for KafkaConnector {
    fn name(&self) -> &'static str {
        "kafka"
    }

    fn options(&self) -> &'static [OptionSpec] {
        known_options::options()
    }

    fn check_source(&self, table: &Table, mode: ReadMode) -> Result<SchemaRef, OptionError> {
        source::parse(table, mode, &self.registries).map(|(_, rows)| rows.schema)
    }

    fn check_sink(&self, table: &Table, schema: &SchemaRef) -> Result<(), OptionError> {
        let (_, _, columns) = sink::parse(table, schema, &self.registries)?;
        columns.check()
    }

    fn source(
        &self,
        table: &Table,
        mode: ReadMode,
        context: &FlowContext,
    ) -> Result<Box<dyn Source>, Failure> {
        Ok(Box::new(KafkaSource::from_table(table, mode, context, &self.registries)?))
    }

    fn sink(
        &self,
        table: &Table,
        schema: &SchemaRef,
        context: &FlowContext,
    ) -> Result<Box<dyn Sink>, Failure> {
        Ok(Box::new(KafkaSink::from_table(table, schema, context, &self.registries)?))
    }

    fn static_table(
        &self,
        table: &Table,
        context: &FlowContext,
    ) -> Result<Option<Arc<dyn StaticTable>>, Failure> {
        let (options, rows) = source::parse(table, ReadMode::Batch, &self.registries)?;
        let whole =
            KafkaStaticTable::new(table, &options, rows.schema.clone(), context, &self.registries)?;
        Ok(Some(Arc::new(whole)))
    }

    fn needs(&self, table: &Table, usage: &Usage<'_>) -> Result<Vec<Need>, OptionError> {
        match usage.role {
            Role::Read(mode) => source::needs(table, mode, usage),
            Role::Written(schema) => sink::needs(table, schema, usage, &self.registries),
        }
    }

    fn dead_letters(&self) -> &dyn DeadLetterSupport {
        self
    }
}

impl DeadLetterSupport for KafkaConnector {
    fn form(&self) -> Form {
        Form::Record
    }

    fn readable(&self, table: &Table, _columns: &SchemaRef) -> Table {
        dead_letters::readable(table)
    }

    fn bytes_max(&self, table: &Table) -> Option<usize> {
        let settings = ClientSettings::parse(&table.options, Use::Producer).ok()?;
        Some(settings.record_bytes_max())
    }

    fn payloads(
        &self,
        table: &Table,
        _context: &FlowContext,
    ) -> Result<Option<Arc<dyn Payloads>>, Failure> {
        let (_, rows) = source::parse(table, ReadMode::Stream, &self.registries)?;
        Ok(Some(Arc::new(dead_letters::ValuePayloads(Arc::new(rows)))))
    }
}

#[cfg(test)]
mod tests;

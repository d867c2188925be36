//! `USING memory`: tables in this process, for tests.
//!
//! A [`MemoryTable`] is looked up by name, so that a test and a pipeline meet at the same one. As a
//! source it is a stream of the rows pushed into it, replayable because it keeps them all; as a
//! sink it keeps what is published, with the batch ids; as a static table it is all its rows.

mod sink;
mod source;
mod table;

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use millstream_engine::api::connector::{Connector, FlowContext, ReadMode, Table};
use millstream_engine::api::options::{OptionError, OptionSpec, Side};
use millstream_engine::api::sink::{Failure, Sink};
use millstream_engine::api::source::{Source, StaticTable};
pub use sink::MemorySink;
pub use source::MemorySource;
pub use table::{MemoryTable, Published};

/// The `memory` connector.
pub struct Memory;

const OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        name: "name",
        side: Side::Both,
        about: "name of the table in this process (default: the declared table's name)",
    },
    OptionSpec {
        name: "maxRowsPerTrigger",
        side: Side::Source,
        about: "rows in a micro-batch, at most (default: no limit)",
    },
];

fn handle(table: &Table) -> MemoryTable {
    MemoryTable::named(table.options.get("name").unwrap_or(&table.name))
}

fn rows_max(table: &Table) -> Result<Option<u64>, OptionError> {
    let wanted = "a whole number from 1";
    match table.options.parse("maxRowsPerTrigger", wanted)? {
        Some(0) => Err(OptionError::invalid("maxRowsPerTrigger", "0", wanted)),
        other => Ok(other),
    }
}

fn columns(table: &Table) -> Result<SchemaRef, OptionError> {
    table.columns.clone().or_else(|| handle(table).schema()).ok_or_else(|| {
        OptionError::table(
            format!("the columns of the memory table '{}' are not known", table.name),
            Some("declare them, or push rows before the query starts".into()),
        )
    })
}

impl Connector for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn check_source(&self, table: &Table, _mode: ReadMode) -> Result<SchemaRef, OptionError> {
        rows_max(table)?;
        columns(table)
    }

    fn check_sink(&self, _table: &Table, _schema: &SchemaRef) -> Result<(), OptionError> {
        Ok(())
    }

    fn source(
        &self,
        table: &Table,
        _mode: ReadMode,
        context: &FlowContext,
    ) -> Result<Box<dyn Source>, Failure> {
        let schema = columns(table)?;
        let rows_max = rows_max(table)?;
        Ok(Box::new(MemorySource::new(handle(table), schema, rows_max, context.env.clone())))
    }

    fn sink(
        &self,
        table: &Table,
        _schema: &SchemaRef,
        _context: &FlowContext,
    ) -> Result<Box<dyn Sink>, Failure> {
        Ok(Box::new(MemorySink::new(handle(table))))
    }

    fn static_table(
        &self,
        table: &Table,
        _context: &FlowContext,
    ) -> Result<Option<Arc<dyn StaticTable>>, Failure> {
        let schema = columns(table)?;
        Ok(Some(Arc::new(source::MemoryRows { table: handle(table), schema })))
    }
}

#[cfg(test)]
mod tests;

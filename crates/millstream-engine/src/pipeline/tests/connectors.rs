//! Connectors that check as real ones do, and make nothing.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use millstream_sql::types::timestamp;

use crate::api::connector::{Connector, FlowContext, ReadMode, Registry, Table};
use crate::api::options::{OptionError, OptionSpec, Side};
use crate::api::references::{Lookup, Reference};
use crate::api::sink::{Failure, Sink};
use crate::api::source::Source;

pub fn registry() -> Registry {
    Registry::new(vec![Arc::new(Kafka), Arc::new(Delta), Arc::new(Console)])
}

const fn option(name: &'static str, side: Side) -> OptionSpec {
    OptionSpec { name, side, about: "" }
}

macro_rules! makes_nothing {
    () => {
        fn source(
            &self,
            _table: &Table,
            _mode: ReadMode,
            _context: &FlowContext,
        ) -> Result<Box<dyn Source>, Failure> {
            unreachable!("these tests run nothing")
        }

        fn sink(
            &self,
            _table: &Table,
            _schema: &SchemaRef,
            _context: &FlowContext,
        ) -> Result<Box<dyn Sink>, Failure> {
            unreachable!("these tests run nothing")
        }
    };
}

struct Kafka;

impl Connector for Kafka {
    fn name(&self) -> &'static str {
        "kafka"
    }

    fn options(&self) -> &'static [OptionSpec] {
        const OPTIONS: &[OptionSpec] = &[
            option("kafka.*", Side::Both),
            option("subscribe", Side::Source),
            option("deadLetter", Side::Source),
            option("startingOffsets", Side::Source),
            option("maxOffsetsPerTrigger", Side::Source),
            option("value.format", Side::Both),
            option("topic", Side::Sink),
            option("delivery", Side::Sink),
        ];
        OPTIONS
    }

    fn check_source(&self, table: &Table, _mode: ReadMode) -> Result<SchemaRef, OptionError> {
        if table.options.get("subscribe").is_none() {
            return Err(OptionError::missing("subscribe", "name the topics to read"));
        }
        table.options.parse::<u64>("maxOffsetsPerTrigger", "a whole number")?;
        if let Some(columns) = &table.columns {
            return Ok(columns.clone());
        }
        Ok(Arc::new(Schema::new(vec![
            Field::new("key", DataType::Binary, true),
            Field::new("value", DataType::Binary, true),
            Field::new("topic", DataType::Utf8, true),
            Field::new("partition", DataType::Int32, true),
            Field::new("offset", DataType::Int64, true),
            Field::new("timestamp", timestamp(), true),
        ])))
    }

    fn check_sink(&self, table: &Table, schema: &SchemaRef) -> Result<(), OptionError> {
        if table.options.get("topic").is_none() {
            return Err(OptionError::missing("topic", "name the topic to write to"));
        }
        if schema.column_with_name("value").is_none() {
            let help = "give one column this name: to_json(struct(*)) AS value";
            return Err(OptionError::table("the rows have no column `value`", Some(help.into())));
        }
        Ok(())
    }

    makes_nothing!();
}

struct Delta;

impl Connector for Delta {
    fn name(&self) -> &'static str {
        "delta"
    }

    fn options(&self) -> &'static [OptionSpec] {
        const OPTIONS: &[OptionSpec] =
            &[option("path", Side::Both), option("partitionBy", Side::Sink)];
        OPTIONS
    }

    fn check_source(&self, table: &Table, _mode: ReadMode) -> Result<SchemaRef, OptionError> {
        let help = "list the columns in CREATE TABLE";
        let columns = table.columns.clone();
        columns.ok_or_else(|| OptionError::table("the columns are not known", Some(help.into())))
    }

    fn check_sink(&self, _table: &Table, _schema: &SchemaRef) -> Result<(), OptionError> {
        Ok(())
    }

    makes_nothing!();
}

struct Console;

impl Connector for Console {
    fn name(&self) -> &'static str {
        "console"
    }

    fn options(&self) -> &'static [OptionSpec] {
        const OPTIONS: &[OptionSpec] = &[option("numRows", Side::Sink)];
        OPTIONS
    }

    fn check_source(&self, _table: &Table, _mode: ReadMode) -> Result<SchemaRef, OptionError> {
        Err(OptionError::table("the console cannot be read", None))
    }

    fn check_sink(&self, _table: &Table, _schema: &SchemaRef) -> Result<(), OptionError> {
        Ok(())
    }

    makes_nothing!();
}

/// Variables `X1`, `X2` and so on are set, to `x1` and `x2`; files are not looked at.
pub struct Variables;

impl Lookup for Variables {
    fn look_up(&self, reference: &Reference) -> Result<Option<String>, String> {
        match reference {
            Reference::Env(name) if name.starts_with('X') => Ok(Some(name.to_lowercase())),
            Reference::Env(name) => Err(format!("the variable {name} is not set")),
            Reference::File(_) => Ok(None),
        }
    }
}

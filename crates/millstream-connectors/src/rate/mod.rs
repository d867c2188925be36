//! `USING rate`: rows on a clock.
//!
//! Row `n` has `value` = `n` and `timestamp` = the moment it was due, so the age of a row anywhere
//! downstream is `now - timestamp`, with no clock of the measuring side in it. Rows come due one by
//! one with microsecond pacing, not in steps of a second as with Spark. [`Pace`] is the arithmetic,
//! [`source`] the reader.
//!
//! The offset is the number of rows, `{"rows":120}`, and `sources/<id>/0` holds the creation time
//! as Spark writes it. Spark counts whole seconds instead, so neither can go on from a checkpoint
//! of the other.

mod pace;
mod source;

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use millstream_engine::api::connector::{Connector, FlowContext, Memory, ReadMode, Table};
use millstream_engine::api::options::{OptionError, OptionSpec, Options, Side};
use millstream_engine::api::sink::Failure;
use millstream_engine::api::source::Source;
pub use pace::Pace;
pub use source::RateSource;

use crate::duration;

/// More rows in a second than one machine can generate; keeps the pacing arithmetic exact.
const ROWS_PER_SECOND_MAX: u64 = 1_000_000_000;
/// A year: longer than anybody warms up; keeps the pacing arithmetic exact.
const RAMP_UP_US_MAX: u64 = 366 * 24 * 3_600 * 1_000_000;
const PARTITIONS_MAX: usize = 1_024;

/// The `rate` connector.
pub struct Rate;

const OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        name: "rowsPerSecond",
        side: Side::Source,
        about: "rows in each second, evenly spaced (default 1)",
    },
    OptionSpec {
        name: "rampUpTime",
        side: Side::Source,
        about: "how long the rate grows from nothing to rowsPerSecond (default 0s)",
    },
    OptionSpec {
        name: "numPartitions",
        side: Side::Source,
        about: "pieces of a micro-batch that are computed in parallel (default 1)",
    },
];

/// What a `rate` table's options say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateOptions {
    /// When each row is due.
    pub pace: Pace,
    /// Splits in a micro-batch, at most.
    pub partitions: usize,
}

impl RateOptions {
    /// Reads the options of a table.
    pub fn parse(options: &Options) -> Result<Self, OptionError> {
        let wanted = "a whole number from 1 to 1000000000";
        let rows_per_second = options.parse("rowsPerSecond", wanted)?.unwrap_or(1);
        if !(1..=ROWS_PER_SECOND_MAX).contains(&rows_per_second) {
            let text = rows_per_second.to_string();
            return Err(OptionError::invalid("rowsPerSecond", &text, wanted));
        }
        let ramp_up = duration::option(options, "rampUpTime")?.unwrap_or_default();
        let ramp_up_us = u64::try_from(ramp_up.as_micros()).unwrap_or(u64::MAX);
        if ramp_up_us > RAMP_UP_US_MAX {
            let text = options.get("rampUpTime").unwrap_or_default();
            return Err(OptionError::invalid("rampUpTime", text, "at most 366 days"));
        }
        let wanted = "a whole number from 1 to 1024";
        let partitions = options.parse("numPartitions", wanted)?.unwrap_or(1);
        if !(1..=PARTITIONS_MAX).contains(&partitions) {
            return Err(OptionError::invalid("numPartitions", &partitions.to_string(), wanted));
        }
        Ok(Self { pace: Pace::new(rows_per_second, ramp_up_us), partitions })
    }
}

/// The columns of every `rate` table: `timestamp` (microseconds, UTC) and `value`.
pub fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new(
            "timestamp",
            DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            false,
        ),
        Field::new("value", DataType::Int64, false),
    ]))
}

impl Connector for Rate {
    fn name(&self) -> &'static str {
        "rate"
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn check_source(&self, table: &Table, mode: ReadMode) -> Result<SchemaRef, OptionError> {
        if mode == ReadMode::Batch {
            return Err(OptionError::table(
                format!(
                    "'{}' uses 'rate', which has no end and can be read as a stream only",
                    table.name
                ),
                Some(format!("write FROM STREAM {}", table.name)),
            ));
        }
        RateOptions::parse(&table.options)?;
        let schema = schema();
        match &table.columns {
            Some(columns) if !same_columns(columns, &schema) => Err(OptionError::table(
                "the columns of a 'rate' table are timestamp TIMESTAMP and value BIGINT",
                Some("leave the columns out".into()),
            )),
            _ => Ok(schema),
        }
    }

    fn source(
        &self,
        table: &Table,
        _mode: ReadMode,
        context: &FlowContext,
    ) -> Result<Box<dyn Source>, Failure> {
        let options = RateOptions::parse(&table.options)?;
        Ok(Box::new(
            RateSource::new(options, context.env.clone())
                .holding(context.memory.map(Memory::read_ahead)),
        ))
    }
}

fn same_columns(declared: &Schema, ours: &Schema) -> bool {
    declared.fields().len() == ours.fields().len()
        && declared.fields().iter().zip(ours.fields()).all(|(declared, ours)| {
            declared.name().eq_ignore_ascii_case(ours.name())
                && declared.data_type() == ours.data_type()
        })
}

#[cfg(test)]
mod tests;

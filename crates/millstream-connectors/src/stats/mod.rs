//! `USING stats`: how old rows are when they are published.
//!
//! The age of a row is the time of publishing, after all computing, minus its timestamp column. No
//! row is left out: the ages go into a quantile sketch ([`LatencySketch`]), one per micro-batch,
//! merged into the report interval's and the whole run's. Fed by `rate`, whose timestamps are the
//! moments rows were due, this measures the engine without coordinated omission: a stall makes all
//! rows that came due meanwhile late.

mod sink;
mod sketch;

use std::path::PathBuf;
use std::time::Duration;

use arrow::datatypes::{DataType, Schema, SchemaRef};
use millstream_engine::api::connector::{Connector, FlowContext, Table};
use millstream_engine::api::options::{OptionError, OptionSpec, Options, Side};
use millstream_engine::api::sink::{Failure, Sink};
pub use sink::StatsSink;
pub use sketch::{LatencySketch, LatencySummary};

use crate::{duration, paths};

/// The `stats` connector.
pub struct Stats;

const OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        name: "timestampColumn",
        side: Side::Sink,
        about: "the column that ages count from (default: the first TIMESTAMP column)",
    },
    OptionSpec {
        name: "reportInterval",
        side: Side::Sink,
        about: "how often a line about the time since the last one is written (default: only at the end)",
    },
    OptionSpec {
        name: "output",
        side: Side::Sink,
        about: "'stdout' (default), 'stderr', or a file that lines are appended to",
    },
    OptionSpec { name: "path", side: Side::Sink, about: "a file that lines are appended to" },
];

/// Where report lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReportTarget {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// Appended to a file; relative to the pipeline's base directory.
    File(String),
}

/// What a `stats` table's options say about rows of a certain schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatsOptions {
    /// Index of the timestamp column.
    pub timestamp_column: usize,
    /// How often to report between start and end.
    pub report_interval: Option<Duration>,
    /// Where to.
    pub target: ReportTarget,
}

impl StatsOptions {
    /// Reads the options of a table that rows of `schema` are written to.
    pub fn parse(options: &Options, schema: &Schema) -> Result<Self, OptionError> {
        let report_interval = duration::option(options, "reportInterval")?;
        if report_interval == Some(Duration::ZERO) {
            let text = options.get("reportInterval").unwrap_or_default();
            return Err(OptionError::invalid("reportInterval", text, "longer than nothing"));
        }
        Ok(Self {
            timestamp_column: timestamp_column(options, schema)?,
            report_interval,
            target: target(options)?,
        })
    }
}

fn target(options: &Options) -> Result<ReportTarget, OptionError> {
    let file = |key: &str, path: &str| {
        paths::check_local(key, path)?;
        Ok(ReportTarget::File(path.to_owned()))
    };
    match (options.get("output"), options.get("path")) {
        (Some(_), Some(_)) => Err(OptionError::of(
            "output",
            "both 'output' and 'path' are given",
            Some("keep one".into()),
        )),
        (None, None) => Ok(ReportTarget::Stdout),
        (None, Some(path)) => file("path", path),
        (Some(output), None) => match output.trim().to_ascii_lowercase().as_str() {
            "stdout" => Ok(ReportTarget::Stdout),
            "stderr" => Ok(ReportTarget::Stderr),
            _ => file("output", output),
        },
    }
}

fn timestamp_column(options: &Options, schema: &Schema) -> Result<usize, OptionError> {
    let is_timestamp =
        |index: &usize| matches!(schema.field(*index).data_type(), DataType::Timestamp(_, _));
    let columns = 0..schema.fields().len();
    let Some(wanted) = options.get("timestampColumn") else {
        return columns.clone().find(is_timestamp).ok_or_else(|| {
            OptionError::table(
                "'stats' measures the age of a TIMESTAMP column, and the query has none",
                Some("select the timestamp of the source as one of the columns".into()),
            )
        });
    };
    let named = |index: &usize| schema.field(*index).name().eq_ignore_ascii_case(wanted);
    match columns.clone().find(named) {
        Some(index) if is_timestamp(&index) => Ok(index),
        Some(index) => Err(OptionError::of(
            "timestampColumn",
            format!("column '{wanted}' is {}, no TIMESTAMP", schema.field(index).data_type()),
            Some("cast it in the query".into()),
        )),
        None => {
            let names: Vec<&str> = schema.fields().iter().map(|field| &**field.name()).collect();
            Err(OptionError::of(
                "timestampColumn",
                format!("the query has no column '{wanted}'"),
                Some(format!("its columns are {}", names.join(", "))),
            ))
        }
    }
}

impl Connector for Stats {
    fn name(&self) -> &'static str {
        "stats"
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn check_sink(&self, table: &Table, schema: &SchemaRef) -> Result<(), OptionError> {
        StatsOptions::parse(&table.options, schema).map(|_| ())
    }

    fn sink(
        &self,
        table: &Table,
        schema: &SchemaRef,
        context: &FlowContext,
    ) -> Result<Box<dyn Sink>, Failure> {
        let options = StatsOptions::parse(&table.options, schema)?;
        let file: Option<PathBuf> = match &options.target {
            ReportTarget::File(path) => Some(paths::resolve(&context.base_dir, path)),
            ReportTarget::Stdout | ReportTarget::Stderr => None,
        };
        Ok(Box::new(StatsSink::new(options, file, context.env.clone())))
    }
}

#[cfg(test)]
mod tests;

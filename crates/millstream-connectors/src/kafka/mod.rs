//! Apache Kafka, as source and as sink. Option names, offsets and columns are Spark's; the client
//! is librdkafka.
//!
//! The way of a record: the client's socket thread receives it; the [`reader`] copies it into a
//! [`chunk`] of columns of its partition; it waits in [`read_ahead`] until the driver takes it; a
//! [`split`] decodes it with [`value`] while the query runs; the [`sink`] hands what came out to
//! the
//! client, and [`delivery`] tells the driver when the brokers have it. Nothing in that way asks a
//! broker what is new: [`cluster`] and [`watch`] do that aside, with a client of their own.
//!
//! Writing is exactly-once through [`transactions`], or at-least-once through [`sink`]; the option
//! `delivery` and the brokers decide ([`choice`]).
//!
//! Not here: schema registries.

mod admission;
mod choice;
mod chunk;
mod client;
mod cluster;
mod csv;
mod delivery;
mod error;
mod letters;
mod native;
mod offsets;
mod outbox;
mod poller;
mod read_ahead;
mod reader;
mod replay;
mod settings;
mod sink;
mod sink_columns;
mod source;
mod source_options;
mod split;
mod static_table;
mod transactions;
mod value;
mod watch;
mod wire;

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use millstream_engine::api::connector::{Connector, FlowContext, ReadMode, Table};
use millstream_engine::api::dead_letter::{Form, Payloads};
use millstream_engine::api::options::{OptionError, OptionSpec, Options, Side};
use millstream_engine::api::sink::{Failure, Kind, Sink};
use millstream_engine::api::source::{Source, StaticTable};

pub use error::{DataLoss, MalformedValue, SinkError, SourceError};

use choice::{KafkaSink, Wanted};
use settings::{ClientSettings, Use};
use sink_columns::SinkColumns;
use source_options::SourceOptions;
use value::Rows;

/// `USING kafka`.
#[derive(Clone, Copy, Debug, Default)]
pub struct KafkaConnector;

const fn of_source(name: &'static str, about: &'static str) -> OptionSpec {
    OptionSpec { name, side: Side::Source, about }
}

const fn of_sink(name: &'static str, about: &'static str) -> OptionSpec {
    OptionSpec { name, side: Side::Sink, about }
}

const fn of_both(name: &'static str, about: &'static str) -> OptionSpec {
    OptionSpec { name, side: Side::Both, about }
}

const OPTIONS: &[OptionSpec] = &[
    of_both("kafka.bootstrap.servers", "where the brokers are: host:port, divided by commas"),
    of_both(
        "kafka.*",
        "a setting of the Kafka client (librdkafka's names; common Java names are \
             translated)",
    ),
    of_source("subscribe", "topics to read, divided by commas"),
    of_source("subscribePattern", "a regular expression that the whole name of a topic matches"),
    of_source("assign", "partitions to read: {\"topic\":[0,1]}"),
    of_source(
        "startingOffsets",
        "where a new query starts: latest (default of a stream), earliest, \
               or {\"topic\":{\"0\":23,\"1\":-2}} with -2 for earliest and -1 for latest",
    ),
    of_source(
        "startingTimestamp",
        "where a new query starts: the first record not older than this, \
               in milliseconds since 1970; goes before the other starting options",
    ),
    of_source(
        "startingOffsetsByTimestamp",
        "as startingTimestamp, by partition; goes before \
               startingOffsets",
    ),
    of_source(
        "startingOffsetsByTimestampStrategy",
        "if no record is that new: error (default) or \
               latest",
    ),
    of_source(
        "endingOffsets",
        "where a batch query ends: latest (default), or offsets by partition",
    ),
    of_source("endingTimestamp", "where a batch query ends: the first record not older than this"),
    of_source("endingOffsetsByTimestamp", "as endingTimestamp, by partition"),
    of_source(
        "failOnDataLoss",
        "whether records that are gone before they were read are an error \
               (default true) or a warning",
    ),
    of_source("maxOffsetsPerTrigger", "about how many records a micro-batch takes at most"),
    of_source("minOffsetsPerTrigger", "how many records a micro-batch waits for"),
    of_source("maxTriggerDelay", "how long minOffsetsPerTrigger is waited for (default 15m)"),
    of_source("includeHeaders", "whether there is a column headers (default false)"),
    of_source(
        "groupIdPrefix",
        "the beginning of the consumer group that progress is committed to, \
               for lag monitors (default millstream)",
    ),
    of_source("minPartitions", "accepted, without effect: work is divided by rows anyway"),
    of_source("maxRecordsPerPartition", "accepted, without effect: work is divided by rows anyway"),
    of_source(
        "kafkaConsumer.pollTimeoutMs",
        "accepted, without effect: reading never polls in \
               vain",
    ),
    of_source(
        "fetchOffset.numRetries",
        "accepted, without effect: questions are repeated for 30 s",
    ),
    of_source("fetchOffset.retryIntervalMs", "accepted, without effect"),
    of_source(
        "value.format",
        "how declared columns are read from the value: json (default), csv or \
               raw",
    ),
    of_source(
        "mode",
        "malformed values: PERMISSIVE (default) gives nulls, DROPMALFORMED drops the \
               record, FAILFAST fails",
    ),
    of_source(
        "deadLetter",
        "the table that gets malformed records, instead of what mode says (default: none)",
    ),
    of_source(
        "columnNameOfCorruptRecord",
        "the column that gets malformed values (default \
               _corrupt_record), if it is declared",
    ),
    of_source("sep", "csv: the character between fields (default ,)"),
    of_source("delimiter", "csv: the same as sep"),
    of_source("quote", "csv: the character around fields that contain separators (default \")"),
    of_source("escape", "csv: the character before a quote within a field (default \\)"),
    of_source("nullValue", "csv: the text that means null (default: nothing)"),
    of_source("header", "csv: only false, since each record is one line"),
    of_sink("topic", "the topic of all rows; without it the column topic says it"),
    of_sink(
        "delivery",
        "exactly-once (default where the brokers allow transactions): micro-batches are \
             transactions; or at-least-once: a micro-batch may be written again after a crash",
    ),
];

impl Connector for KafkaConnector {
    fn name(&self) -> &'static str {
        "kafka"
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn check_source(&self, table: &Table, mode: ReadMode) -> Result<SchemaRef, OptionError> {
        parse_source(table, mode).map(|(_, rows)| rows.schema)
    }

    fn check_sink(&self, table: &Table, schema: &SchemaRef) -> Result<(), OptionError> {
        parse_sink(table, schema).map(drop)
    }

    fn source(
        &self,
        table: &Table,
        mode: ReadMode,
        context: &FlowContext,
    ) -> Result<Box<dyn Source>, Failure> {
        let (options, rows) = parse_source(table, mode).map_err(unchecked)?;
        Ok(Box::new(source::KafkaSource::new(options, mode, rows, &table.name, context)))
    }

    fn sink(
        &self,
        table: &Table,
        schema: &SchemaRef,
        context: &FlowContext,
    ) -> Result<Box<dyn Sink>, Failure> {
        let (wanted, settings, columns) = parse_sink(table, schema).map_err(unchecked)?;
        let (topic, name) = (topic(&table.options), &table.name);
        Ok(Box::new(KafkaSink::new(wanted, settings, columns, topic, name, context)))
    }

    fn static_table(
        &self,
        table: &Table,
        context: &FlowContext,
    ) -> Result<Option<Arc<dyn StaticTable>>, Failure> {
        let (options, rows) = parse_source(table, ReadMode::Batch).map_err(unchecked)?;
        let whole =
            static_table::KafkaStaticTable::new(table, &options, rows.schema.clone(), context)?;
        Ok(Some(Arc::new(whole)))
    }

    fn dead_letter_form(&self) -> Form {
        Form::Record
    }

    fn dead_letter_source(&self, table: &Table, _columns: &SchemaRef) -> Table {
        letters::readable(table)
    }

    fn dead_letter_bytes_max(&self, table: &Table) -> Option<usize> {
        let settings = ClientSettings::parse(&table.options, Use::Producer).ok()?;
        Some(settings.record_bytes_max())
    }

    fn payloads(
        &self,
        table: &Table,
        _context: &FlowContext,
    ) -> Result<Option<Arc<dyn Payloads>>, Failure> {
        let (_, rows) = parse_source(table, ReadMode::Stream).map_err(unchecked)?;
        Ok(Some(Arc::new(letters::ValuePayloads(Arc::new(rows)))))
    }
}

fn parse_source(table: &Table, mode: ReadMode) -> Result<(SourceOptions, Rows), OptionError> {
    let options = SourceOptions::parse(&table.options, mode)?;
    let rows = Rows::of_table(table, options.include_headers)?;
    Ok((options, rows))
}

fn parse_sink(
    table: &Table,
    schema: &SchemaRef,
) -> Result<(Wanted, ClientSettings, SinkColumns), OptionError> {
    let settings = ClientSettings::parse(&table.options, Use::Producer)?;
    let wanted = Wanted::parse(&table.options, &settings)?;
    let columns = SinkColumns::find(schema, topic(&table.options).is_some())?;
    Ok((wanted, settings, columns))
}

fn topic(options: &Options) -> Option<&str> {
    options.get("topic").map(str::trim).filter(|topic| !topic.is_empty())
}

/// The message of a table that was not checked before it was used.
fn unchecked(error: OptionError) -> Failure {
    let help = error.help.map(|help| format!(". {help}")).unwrap_or_default();
    Failure::new(Kind::Config, format!("{}{help}", error.problem))
}

#[cfg(test)]
mod tests;

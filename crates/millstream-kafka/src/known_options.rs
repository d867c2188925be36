//! The options of a Kafka table and what each is for, as messages and suggestions show them.

use std::sync::LazyLock;

use millstream_engine::api::options::{OptionSpec, Side};
use millstream_formats::schema;

const fn read_option(name: &'static str, about: &'static str) -> OptionSpec {
    OptionSpec { name, side: Side::Source, about }
}

const fn write_option(name: &'static str, about: &'static str) -> OptionSpec {
    OptionSpec { name, side: Side::Sink, about }
}

const fn shared_option(name: &'static str, about: &'static str) -> OptionSpec {
    OptionSpec { name, side: Side::Both, about }
}

/// All options of a Kafka table.
pub fn options() -> &'static [OptionSpec] {
    static ALL: LazyLock<Vec<OptionSpec>> =
        LazyLock::new(|| [OWN, schema::OPTIONS, schema::WRITE_OPTIONS].concat());
    &ALL
}

const OWN: &[OptionSpec] = &[
    shared_option(
        "kafka.bootstrap.servers",
        "where the brokers are: host:port, separated by commas",
    ),
    shared_option(
        "kafka.*",
        "a setting of the Kafka client (librdkafka's names; common Java names are \
             translated)",
    ),
    read_option("subscribe", "topics to read, separated by commas"),
    read_option("subscribePattern", "a regular expression that the whole name of a topic matches"),
    read_option("assign", "partitions to read: {\"topic\":[0,1]}"),
    read_option(
        "startingOffsets",
        "where a new query starts: latest (default of a stream), earliest, \
               or {\"topic\":{\"0\":23,\"1\":-2}} with -2 for earliest and -1 for latest",
    ),
    read_option(
        "startingTimestamp",
        "where a new query starts: the first record not older than this, \
               in milliseconds since 1970; overrides the other starting options",
    ),
    read_option(
        "startingOffsetsByTimestamp",
        "as startingTimestamp, by partition; overrides \
               startingOffsets",
    ),
    read_option(
        "startingOffsetsByTimestampStrategy",
        "if no record is that new: error (default) or \
               latest",
    ),
    read_option(
        "endingOffsets",
        "where a batch query ends: latest (default), or offsets by partition",
    ),
    read_option(
        "endingTimestamp",
        "where a batch query ends: the first record not older than this",
    ),
    read_option("endingOffsetsByTimestamp", "as endingTimestamp, by partition"),
    read_option(
        "failOnDataLoss",
        "whether records that are gone before they were read are an error \
               (default true) or a warning",
    ),
    read_option("maxOffsetsPerTrigger", "about how many records a micro-batch takes at most"),
    read_option("minOffsetsPerTrigger", "how many records a micro-batch waits for"),
    read_option("maxTriggerDelay", "how long minOffsetsPerTrigger is waited for (default 15m)"),
    read_option("includeHeaders", "whether there is a column headers (default false)"),
    read_option(
        "groupIdPrefix",
        "the beginning of the consumer group that progress is committed to, \
               for lag monitors (default millstream)",
    ),
    read_option("minPartitions", "accepted, without effect: work is split by rows anyway"),
    read_option("maxRecordsPerPartition", "accepted, without effect: work is split by rows anyway"),
    read_option(
        "kafkaConsumer.pollTimeoutMs",
        "accepted, without effect: reading never polls in \
               vain",
    ),
    read_option(
        "fetchOffset.numRetries",
        "accepted, without effect: questions are repeated for 30 s",
    ),
    read_option("fetchOffset.retryIntervalMs", "accepted, without effect"),
    shared_option(
        "value.format",
        "how columns are read from the value: json (default), csv, avro, protobuf, json-schema or \
               raw; or written to it: avro, protobuf, json-schema or raw (default)",
    ),
    write_option(
        "key.format",
        "how keys are written: avro, protobuf, json-schema or raw (default)",
    ),
    write_option("key.fields", "with key.format: the columns of the key, separated by commas"),
    read_option(
        "mode",
        "malformed values: PERMISSIVE (default) gives nulls, DROPMALFORMED drops the \
               record, FAILFAST fails",
    ),
    read_option(
        "deadLetter",
        "the table that gets malformed records, instead of what mode says (default: none)",
    ),
    read_option(
        "columnNameOfCorruptRecord",
        "the column that gets malformed values (default \
               _corrupt_record), if it is declared",
    ),
    read_option("sep", "csv: the character between fields (default ,)"),
    read_option("delimiter", "csv: the same as sep"),
    read_option("quote", "csv: the character around fields that contain separators (default \")"),
    read_option("escape", "csv: the character before a quote within a field (default \\)"),
    read_option("nullValue", "csv: the text that means null (default: nothing)"),
    read_option("header", "csv: only false, since each record is one line"),
    write_option("topic", "the topic of all rows; without it the column topic says it"),
    write_option(
        "delivery",
        "exactly-once (default where the brokers allow transactions): micro-batches are \
             transactions; or at-least-once: a micro-batch may be written again after a crash",
    ),
];

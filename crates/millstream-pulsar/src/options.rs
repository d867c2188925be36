//! The options of a Pulsar table and what each is for, as messages and suggestions show them.

use millstream_engine::api::options::{OptionSpec, Side};

const fn both(name: &'static str, about: &'static str) -> OptionSpec {
    OptionSpec { name, side: Side::Both, about }
}

const fn source(name: &'static str, about: &'static str) -> OptionSpec {
    OptionSpec { name, side: Side::Source, about }
}

const fn sink(name: &'static str, about: &'static str) -> OptionSpec {
    OptionSpec { name, side: Side::Sink, about }
}

/// All options.
pub(crate) const OPTIONS: &[OptionSpec] = &[
    both("service.url", "where the brokers are: pulsar://HOST:6650, pulsar+ssl:// with TLS"),
    both("admin.url", "accepted, without effect: everything is asked over service.url"),
    both("topic", "the topic: NAME, or persistent://TENANT/NAMESPACE/NAME"),
    both("pulsar.client.authPluginClassName", "AuthenticationToken or AuthenticationBasic"),
    both("pulsar.client.authParams", "token:..., file:///PATH, or as JSON userId and password"),
    both("pulsar.client.tlsTrustCertsFilePath", "a file in PEM with the authorities to trust"),
    both("pulsar.client.tlsCertificateFilePath", "a file in PEM with the client's certificate"),
    both("pulsar.client.tlsKeyFilePath", "a file in PEM with its key"),
    both("pulsar.client.operationTimeoutMs", "milliseconds that an answer may take (30000)"),
    both("failOnDataLoss", "whether to stop where Pulsar has lost messages (default true)"),
    source("topics", "several topics, separated by commas"),
    source("topicsPattern", "a regular expression that the whole name of a topic matches"),
    source("startingOffsets", "where a new query begins: latest (default), earliest, or as JSON"),
    source("endingOffsets", "where a batch query ends: only latest"),
    source("maxBytesPerTrigger", "bytes of a micro-batch, about (default: no limit)"),
    source("predefinedSubscription", "the name of the subscription that holds what is not read"),
    source("subscriptionPrefix", "what its name begins with (default millstream)"),
    source("pollTimeoutMs", "accepted, without effect: reading never polls in vain"),
    source("value.format", "how columns are read from the value: json (default), csv or raw"),
    source("mode", "malformed values: PERMISSIVE (default), DROPMALFORMED or FAILFAST"),
    source("deadLetter", "the table that gets malformed messages, instead of what mode says"),
    source("columnNameOfCorruptRecord", "the column that gets malformed values, if declared"),
    source("sep", "csv: the character between fields (default ,)"),
    source("delimiter", "csv: the same as sep"),
    source("quote", "csv: the character around fields with separators (default \")"),
    source("escape", "csv: the character before a quote within a field (default \\)"),
    source("nullValue", "csv: the text that means null (default: nothing)"),
    source("header", "csv: only false, since each message is one line"),
    sink("delivery", "exactly-once (default), or at-least-once"),
    sink("pulsar.producer.compressionType", "NONE (default), LZ4, ZLIB, ZSTD or SNAPPY"),
    sink("transactionTimeoutMs", "milliseconds that a transaction may be open (default 60000)"),
    sink("progressTopic", "the topic of the query's progress (default: one beside the topic)"),
];

//! `millstream-bench`: how fast, measured from outside.
//!
//! Each benchmark starts the engine as a user would, `millstream run` on a pipeline file in a
//! process of its own (the binary beside this one), and prints one JSON object a line on standard
//! output; a table for people goes to standard error.
//!
//! - [`kafka_to_kafka`] has a generator and a meter around two topics, and measures a bare relay
//!   beside the engine. Time counts from the moment a record was *due*, so that a stall shows in
//!   every record that had to wait for it.
//! - [`rate_to_stats`] needs no broker: the engine's own `rate` source and `stats` sink.
//! - [`offset_management`] runs both with the engine's progress kept in different ways.
//! - [`recovery`] ends the engine by `kill -9`, and times it until it has caught up.
//! - [`journal`] makes records durable, beside a bare file.
//! - [`log_length`] starts the engine on checkpoints of many micro-batches.
//! - [`delta`] appends to a large Delta table, with checkpoints and without. It calls what the sink
//!   calls, and starts no engine.
//! - [`delta_stream`] reads a Delta table as a stream.
//! - [`merge`] merges rows by key into a table of a million keys.
//! - [`compaction`] appends to a small table, with compaction beside it and without.
//! - [`kafka_throughput`] reads, copies and writes records of topics as fast as that goes, beside a
//!   bare client.
//! - [`map_only`] empties a topic into a Delta table or another topic, as fast as that goes, or
//!   measures latency at a fixed rate.
//! - [`cassandra`] writes a stream into a Cassandra, beside the bare driver.
//! - [`bigquery`] empties a topic into a fake of BigQuery; likewise.
//! - [`redis`] writes rows into a stream of Redis, beside a bare client.
//! - [`pulsar`] writes rows into a topic of Pulsar; likewise.
//! - [`windowed`] counts or gathers its messages by key and window, into a Delta table; likewise.
//! - [`nexmark`] runs the queries of a suite that others publish figures of.
//! - [`sinks`] writes a small stream into each sink for a long time, and tells what grows.
//! - [`freshness`] counts the rows of a table that is being written.
//! - [`operational`] measures the latency of alerts, by webhook, mail and topic.
//! - [`olap`] asks a cluster about events in an object store, with runners and without.
//! - [`peers`] runs Spark and Flink beside the engine and bare relays, on one broker.
//! - [`planning`] validates pipeline files.
//! - [`plot`] draws their lines as SVG.
//!
//! A benchmark does not tune the system under test: the engine runs with its defaults, unless the
//! user says otherwise, and every line names what was changed.

mod beside_client;
mod bigquery;
mod broker;
mod cassandra;
mod clock;
mod compaction;
mod delta;
mod delta_stream;
mod engine;
mod error;
mod freshness;
mod generator;
mod in_process;
mod journal;
mod kafka_throughput;
mod kafka_to_kafka;
mod live;
mod log_length;
mod map_only;
mod merge;
mod messages;
mod meter;
mod nexmark;
mod numbered;
mod offset_management;
mod offsets;
mod olap;
mod operational;
mod payload;
mod peers;
mod planning;
mod plot;
mod progress;
mod pulsar;
mod quantiles;
mod rate_to_stats;
mod read_back;
mod recovery;
mod redis;
mod relay;
mod report;
mod round;
mod schedule;
mod sender;
mod sending;
mod settings;
mod sinks;
mod state_size;
mod system;
mod testbed;
mod throughput;
mod turns;
mod windowed;
mod work_directory;

use std::process::ExitCode;

use clap::Parser as _;
use error::Error;
use millstream_store::env::{Env, STACK_BYTES, on_deep_stack};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::prelude::*;

/// Measures millstream; prints a JSON object per result on standard output.
#[derive(Debug, clap::Parser)]
#[command(name = "millstream-bench", version, subcommand_required = true)]
#[command(arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    name: Name,
}

#[derive(Debug, clap::Subcommand)]
enum Name {
    /// Latency from topic to topic, beside a bare relay on the same client and broker
    KafkaToKafka(kafka_to_kafka::Flags),
    /// Throughput of reading, copying and writing records, beside librdkafka alone
    KafkaThroughput(kafka_throughput::Flags),
    /// Latency of generated rows through SQL, no broker
    RateToStats(rate_to_stats::Flags),
    /// What keeping track of progress costs, over seven ways to do it
    OffsetManagement(offset_management::Flags),
    /// Time to catch up after `kill -9`, over the interval between two entries of progress
    Recovery(recovery::Flags),
    /// Latency of generated rows on checkpoints of ten and of a million micro-batches
    LogLength(log_length::Flags),
    /// Time until input is durable in a journal, beside a bare file
    Journal(journal::Flags),
    /// Commit time of a stream into a Delta table of many files, with and without checkpoints
    Delta(delta::Flags),
    /// Throughput and latency of a Delta table that is read as a stream
    DeltaStream(delta_stream::Flags),
    /// Commit time of a stream into a Delta table, and files, with compaction and without
    Compaction(compaction::Flags),
    /// Commit time of rows that are merged into a Delta table by key
    Merge(merge::Flags),
    /// Throughput from a topic into a Delta table, for each core that is kept busy
    MapOnly(map_only::Flags),
    /// Latency of micro-batches into Cassandra, beside the bare driver
    Cassandra(cassandra::Flags),
    /// Throughput from a topic into a table of BigQuery, for each core that is kept busy
    Bigquery(bigquery::Flags),
    /// Latency of generated rows into Pulsar, beside a bare client
    Pulsar(pulsar::Flags),
    /// Latency of generated rows into Redis, beside a bare client
    Redis(redis::Flags),
    /// Throughput of an aggregation by key and window, from a topic into a Delta table
    Windowed(windowed::Flags),
    /// Throughput of the queries of the Nexmark suite, for each core that is kept busy
    Nexmark(nexmark::Flags),
    /// Files, bytes, descriptors and memory of a small stream into each sink, minute by minute
    Sinks(sinks::Flags),
    /// From a record in a topic to its being counted by a query over the Delta table
    Freshness(freshness::Flags),
    /// Latency from an event in a topic to its alert by webhook, mail or topic
    Operational(operational::Flags),
    /// Queries over an object store, on a node alone and with runners
    Olap(olap::Flags),
    /// Latency from topic to topic beside Spark, Flink and bare relays
    Peers(peers::Flags),
    /// Time from a pipeline file's text to its plans
    Planning(planning::Flags),
    /// Draw result lines as an SVG chart
    Plot(plot::Flags),
    /// The engine that `--source in-process` starts
    #[command(hide = true)]
    InProcess(in_process::child::Flags),
    /// The client that cassandra starts
    #[command(hide = true)]
    CassandraClient(cassandra::ClientFlags),
    /// The client that redis starts
    #[command(hide = true)]
    RedisClient(redis::ClientFlags),
    /// The client that kafka-throughput starts
    #[command(hide = true)]
    KafkaClient(kafka_throughput::ClientFlags),
    /// The relay that kafka-to-kafka starts
    #[command(hide = true)]
    Relay(relay::Flags),
}

fn main() -> ExitCode {
    on_deep_stack(start)
}

/// Runs a benchmark. Failure: it could not be run, or records were lost.
fn start() -> ExitCode {
    let arguments = Arguments::parse();
    start_logging();
    millstream_testkit::kafka::run_as_in_production();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = match runtime.enable_all().thread_stack_size(STACK_BYTES).build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: the runtime cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    // The environment remembers the runtime that is current here. Benchmarks wait for requests in
    // place, so they run outside of it.
    let env = {
        let _entered = runtime.enter();
        Env::real()
    };
    match dispatch(&env, arguments.name) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!(
                "error: records were lost or doubled; see the field `missing` or `surplus_rows`"
            );
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Warnings on standard error. The protocol library of Delta tables logs each error that it
/// returns, which is the caller's to report.
fn start_logging() {
    let filter = "warn,delta_kernel=off".parse::<Targets>().expect("the filter is valid");
    let lines = fmt::layer().with_ansi(false).with_writer(std::io::stderr);
    tracing_subscriber::registry().with(lines.with_filter(filter)).init();
}

fn dispatch(env: &Env, name: Name) -> Result<bool, Error> {
    match name {
        Name::KafkaToKafka(flags) => kafka_to_kafka::run(env, &flags),
        Name::KafkaThroughput(flags) => kafka_throughput::run(env, &flags),
        Name::RateToStats(flags) => rate_to_stats::run(env, &flags),
        Name::OffsetManagement(flags) => offset_management::run(env, &flags),
        Name::Recovery(flags) => recovery::run(env, &flags),
        Name::LogLength(flags) => log_length::run(env, &flags),
        Name::Journal(flags) => journal::run(env, &flags),
        Name::Delta(flags) => delta::run(env, &flags),
        Name::DeltaStream(flags) => delta_stream::run(env, &flags),
        Name::Compaction(flags) => compaction::run(env, &flags),
        Name::Merge(flags) => merge::run(env, &flags),
        Name::MapOnly(flags) => map_only::run(env, &flags),
        Name::Cassandra(flags) => cassandra::run(env, &flags),
        Name::Bigquery(flags) => bigquery::run(env, &flags),
        Name::Pulsar(flags) => pulsar::run(env, &flags),
        Name::Redis(flags) => redis::run(env, &flags),
        Name::Windowed(flags) => windowed::run(env, &flags),
        Name::Nexmark(flags) => nexmark::run(env, &flags),
        Name::Sinks(flags) => sinks::run(env, &flags),
        Name::Freshness(flags) => freshness::run(env, &flags),
        Name::Operational(flags) => operational::run(env, &flags),
        Name::Olap(flags) => olap::run(env, &flags),
        Name::Peers(flags) => peers::run(env, &flags),
        Name::Planning(flags) => planning::run(env, &flags),
        Name::Plot(flags) => plot::run(&flags).map(|()| true),
        Name::InProcess(flags) => in_process::child::run(env, &flags).map(|()| true),
        Name::CassandraClient(flags) => cassandra::run_client(env, &flags).map(|()| true),
        Name::RedisClient(flags) => redis::run_client(env, &flags).map(|()| true),
        Name::KafkaClient(flags) => kafka_throughput::run_client(env, &flags).map(|()| true),
        Name::Relay(flags) => relay::run(&flags).map(|()| true),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Arguments::command().debug_assert();
    }
}

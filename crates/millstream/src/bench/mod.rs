//! `millstream bench`: how fast, measured from outside.
//!
//! Each benchmark starts the engine as a user would, `millstream run` on a pipeline file in a
//! process of its own, and prints one JSON object a line on standard output; a table for people
//! goes to standard error.
//!
//! - [`kafka_to_kafka`] has a generator and a meter around two topics, and measures a bare relay
//!   beside the engine. Time counts from the moment a record was *due*, so that a stall shows in
//!   every record that had to wait for it.
//! - [`rate_to_stats`] needs no broker: the engine's own `rate` source and `stats` sink.
//! - [`offset_management`] runs both with the engine's progress kept in different ways.
//! - [`log_length`] starts the engine on checkpoints of many micro-batches.
//! - [`delta`] appends to a large Delta table, with checkpoints and without. It calls what the sink
//!   calls, and starts no engine.
//! - [`map_only`] empties a topic into a Delta table or another topic, as fast as that goes, or
//!   measures latency at a fixed rate.
//! - [`windowed`] counts or gathers its messages by key and window, into a Delta table; likewise.
//! - [`nexmark`] runs the queries of a suite that others publish figures of.
//! - [`sinks`] writes a small stream into each sink for a long time, and tells what grows.
//! - [`peers`] runs Spark and Flink beside the engine and bare relays, on one broker.
//! - [`plot`] draws their lines as SVG.
//!
//! A benchmark does not tune the system under test: the engine runs with its defaults, unless the
//! user says otherwise, and every line names what was changed.

mod broker;
mod cache;
mod clock;
mod contender;
mod delta;
mod engine;
mod error;
mod generator;
mod ground;
mod in_process;
mod kafka_to_kafka;
mod live;
mod log_length;
mod map_only;
mod messages;
mod meter;
mod nexmark;
mod offset_management;
mod payload;
mod peers;
mod plot;
mod process;
mod progress;
mod quantiles;
mod rate_to_stats;
mod read_back;
mod relay;
mod report;
mod round;
mod schedule;
mod sender;
mod settings;
mod sinks;
mod state_size;
mod throughput;
mod topics;
mod windowed;
mod work_directory;

use std::process::ExitCode;

use millstream_store::env::Env;
use tokio::sync::oneshot;

/// Flags of `millstream bench`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    name: Name,
}

#[derive(Debug, clap::Subcommand)]
enum Name {
    /// Latency from topic to topic, beside a bare relay on the same client and broker
    KafkaToKafka(kafka_to_kafka::Flags),
    /// Latency of generated rows through SQL, no broker
    RateToStats(rate_to_stats::Flags),
    /// What keeping track of progress costs, over seven ways to do it
    OffsetManagement(offset_management::Flags),
    /// Latency of generated rows on checkpoints of ten and of a million micro-batches
    LogLength(log_length::Flags),
    /// Commit time of a stream into a Delta table of many files, with and without checkpoints
    Delta(delta::Flags),
    /// Throughput from a topic into a Delta table, for each core that is kept busy
    MapOnly(map_only::Flags),
    /// Throughput of an aggregation by key and window, from a topic into a Delta table
    Windowed(windowed::Flags),
    /// Throughput of the queries of the Nexmark suite, for each core that is kept busy
    Nexmark(nexmark::Flags),
    /// Files, bytes, descriptors and memory of a small stream into each sink, minute by minute
    Sinks(sinks::Flags),
    /// Latency from topic to topic beside Spark, Flink and bare relays
    Peers(peers::Flags),
    /// Draw result lines as an SVG chart
    Plot(plot::Flags),
    /// The engine that `--source in-process` starts
    #[command(hide = true)]
    InProcess(in_process::child::Flags),
    /// The relay that kafka-to-kafka starts
    #[command(hide = true)]
    Relay(relay::Flags),
}

/// Runs a benchmark. Failure: it could not be run, or records were lost.
pub async fn run(arguments: Arguments) -> ExitCode {
    let env = Env::real();
    let (report, result) = oneshot::channel();
    // Children die with the thread that starts them, and requests are waited for in place: a
    // thread of its own serves both and stays out of the way of the caller's runtime.
    let thread = env.clone().thread("bench", move || {
        // Nobody waits for the result if the caller was cancelled.
        let _ = report.send(dispatch(&env, arguments.name));
    });
    let done = result.await;
    drop(thread);
    match done {
        Ok(Ok(true)) => ExitCode::SUCCESS,
        Ok(Ok(false)) => {
            eprintln!(
                "error: records were lost or doubled; see the field `missing` or `surplus_rows`"
            );
            ExitCode::FAILURE
        }
        Ok(Err(error)) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
        // The thread panicked and has said so.
        Err(_) => ExitCode::FAILURE,
    }
}

fn dispatch(env: &Env, name: Name) -> Result<bool, error::Error> {
    match name {
        Name::KafkaToKafka(flags) => kafka_to_kafka::run(env, &flags),
        Name::RateToStats(flags) => rate_to_stats::run(env, &flags),
        Name::OffsetManagement(flags) => offset_management::run(env, &flags),
        Name::LogLength(flags) => log_length::run(env, &flags),
        Name::Delta(flags) => delta::run(env, &flags),
        Name::MapOnly(flags) => map_only::run(env, &flags),
        Name::Windowed(flags) => windowed::run(env, &flags),
        Name::Nexmark(flags) => nexmark::run(env, &flags),
        Name::Sinks(flags) => sinks::run(env, &flags),
        Name::Peers(flags) => peers::run(env, &flags),
        Name::Plot(flags) => plot::run(&flags).map(|()| true),
        Name::InProcess(flags) => in_process::child::run(env, &flags).map(|()| true),
        Name::Relay(flags) => relay::run(&flags).map(|()| true),
    }
}

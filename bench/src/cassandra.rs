//! `millstream-bench cassandra`: how soon a micro-batch counts as written, beside the bare driver.
//!
//! Rows of the `rate` source go into a table of a Cassandra on this machine. What the engine tells
//! of each micro-batch is taken: from the moment it began until the server had acknowledged all of
//! it, its intent and its write time being durable before. Then the driver alone writes as many
//! rows as the median micro-batch had, so many times, each with a request of its own, and waits for
//! all of them before it writes the next. The engine tells whole milliseconds, cut off.
//!
//! What every round wrote is counted: each row must be there.

use std::time::Duration;

use futures::future::try_join_all;
use millstream_store::env::Env;
use millstream_testkit::cassandra::Cassandra;
use millstream_testkit::wait;
use scylla::client::session_builder::SessionBuilder;
use serde::Serialize;

use crate::clock::Clock;
use crate::engine::{self, EngineOptions, sql_options};
use crate::error::Error;
use crate::progress::Told;
use crate::quantiles::{Latencies, Quantiles};
use crate::report::{Report, median};
use crate::work_directory::WorkDirectory;

/// Part of the micro-batches that are warm-up: connections, prepared statements, Java's compiler.
const WARM_UP: usize = 4;

/// Flags of `millstream-bench cassandra`.
#[derive(Debug, clap::Args)]
pub struct Flags {
    /// Rows a second
    #[arg(long, default_value_t = 1_000)]
    rate: u64,
    /// Seconds of each round, of which the first quarter is warm-up
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Rounds
    #[arg(long, default_value_t = 3)]
    repeat: u32,
    /// Option of the engine, handed to `run --set`
    #[arg(long, value_name = "K=V")]
    engine_option: Vec<String>,
}

/// One result line.
#[derive(Clone, Debug, Serialize)]
struct Line {
    configuration: &'static str,
    round: u32,
    rate: u64,
    seconds: u64,
    micro_batches: usize,
    /// Of the median micro-batch.
    rows: u64,
    #[serde(flatten)]
    latency: Quantiles,
    missing: i64,
}

/// Runs all rounds. True if every row was written.
pub fn run(env: &Env, flags: &Flags) -> Result<bool, Error> {
    if flags.rate == 0 || flags.seconds == 0 || flags.repeat == 0 {
        let problem = "--rate, --seconds and --repeat must be at least 1".to_owned();
        return Err(Error::Flags { problem });
    }
    let server = Cassandra::start();
    server.create_keyspace("bench");
    let (work, report) = (WorkDirectory::create()?, Report::new("cassandra", None));
    let mut all_there = true;
    for round in 1..=flags.repeat {
        let table = format!("engine_{round}");
        create(&server, &table);
        let directory = work.subdirectory(&table)?;
        let told = engine(env, flags, &server, &table, &directory)?;
        let rows = median(told.iter().map(|told| told.rows_out as f64)) as u64;
        let mut latencies = Latencies::new();
        told.iter().for_each(|told| latencies.add(told.took_us));
        let written: u64 = told.iter().map(|told| told.rows_all).max().unwrap_or(0);
        let missing = written.cast_signed() - count(&server, &table);
        let line = flags.line("millstream", round, told.len(), rows, &latencies, missing);
        all_there &= tell(&report, &line)?;

        let table = format!("driver_{round}");
        create(&server, &table);
        let times = told.len();
        let latencies = driver(env, &server, &table, rows, times)?;
        let missing = rows.cast_signed() * times as i64 - count(&server, &table);
        let line = flags.line("driver", round, times, rows, &latencies, missing);
        all_there &= tell(&report, &line)?;
    }
    Ok(all_there)
}

impl Flags {
    fn line(
        &self,
        configuration: &'static str,
        round: u32,
        micro_batches: usize,
        rows: u64,
        latencies: &Latencies,
        missing: i64,
    ) -> Line {
        let (rate, seconds, latency) = (self.rate, self.seconds, latencies.quantiles());
        Line { configuration, round, rate, seconds, micro_batches, rows, latency, missing }
    }
}

/// Whether all rows are there.
fn tell(report: &Report, line: &Line) -> Result<bool, Error> {
    report.line("round", line)?;
    let Quantiles { p50_ms, p90_ms, p99_ms, max_ms, .. } = line.latency;
    eprintln!(
        "{:10} round {}: p50 {p50_ms:.1}, p90 {p90_ms:.1}, p99 {p99_ms:.1}, max {max_ms:.1} ms; \
         {} micro-batches of {} rows; {} missing",
        line.configuration, line.round, line.micro_batches, line.rows, line.missing
    );
    Ok(line.missing == 0)
}

fn create(server: &Cassandra, table: &str) {
    server.ask(&format!("CREATE TABLE bench.{table} (id bigint PRIMARY KEY, words text)"));
}

fn count(server: &Cassandra, table: &str) -> i64 {
    let rows = server.ask(&format!("SELECT id FROM bench.{table}"));
    rows.len() as i64
}

/// A micro-batch behind the warm-up.
struct Measured {
    rows_out: u64,
    /// From its beginning until it was acknowledged.
    took_us: i64,
    /// Rows up to its end, from the first.
    rows_all: u64,
}

fn engine(
    env: &Env,
    flags: &Flags,
    server: &Cassandra,
    table: &str,
    directory: &std::path::Path,
) -> Result<Vec<Measured>, Error> {
    let options = EngineOptions::parse(&flags.engine_option)?;
    let (rate, port) = (flags.rate.to_string(), server.port().to_string());
    let own = [
        ("spark.cassandra.connection.host", "127.0.0.1"),
        ("spark.cassandra.connection.port", &*port),
        ("keyspace", "bench"),
        ("table", table),
    ];
    let pipeline = format!(
        "CREATE TABLE input USING rate OPTIONS ({});\n\
         CREATE TABLE output USING cassandra OPTIONS ({});\n\
         CREATE FLOW measure AS INSERT INTO output\n\
         SELECT value AS id, CAST(timestamp AS STRING) AS words FROM STREAM input;\n",
        sql_options(&[("rowsPerSecond", &rate)], &options.source),
        sql_options(&own, &[]),
    );
    let clock = Clock::new(env);
    let mut engine = engine::start_telling(env, &clock, &pipeline, &options, directory)?;
    wait::pause(Duration::from_secs(flags.seconds));
    let status = engine.process.stop()?;
    if !status.success() {
        let (process, log) = (engine.process.name().to_owned(), engine.process.log_tail());
        return Err(Error::Unclean { process, status, log });
    }
    let told: Vec<Told> = engine.progress.finish()?;
    let mut rows_all = 0;
    let measured = told.iter().map(|told| {
        rows_all += told.rows_out;
        let took_us = told.published_us - told.fired_us;
        Measured { rows_out: told.rows_out, took_us, rows_all }
    });
    let measured: Vec<Measured> = measured.filter(|it| it.rows_out > 0).collect();
    let warm_up = measured.len() / WARM_UP;
    Ok(measured.into_iter().skip(warm_up).collect())
}

/// The driver alone, one batch of rows after the other, behind a warm-up.
fn driver(
    env: &Env,
    server: &Cassandra,
    table: &str,
    rows: u64,
    times: usize,
) -> Result<Latencies, Error> {
    let failed = |error: &dyn std::fmt::Display| Error::InProcess { problem: error.to_string() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| failed(&error))?;
    runtime.block_on(async {
        let node = format!("127.0.0.1:{}", server.port());
        let session = SessionBuilder::new().known_node(node).build().await;
        let session = session.map_err(|error| failed(&error))?;
        let text = format!("INSERT INTO bench.{table} (id, words) VALUES (?, ?)");
        let insert = session.prepare(text).await.map_err(|error| failed(&error))?;
        let words = "2026-01-01 10:15:00.123456";
        let mut latencies = Latencies::new();
        let warm_up = times / WARM_UP;
        for nth in 0..times + warm_up {
            // The warm-up writes the rows of the first batch, again and again.
            let batch = nth.saturating_sub(warm_up);
            let first = batch as i64 * rows.cast_signed();
            let ids = first..first + rows.cast_signed();
            let began = env.monotonic();
            let writes = ids.map(|id| session.execute_unpaged(&insert, (id, words)));
            try_join_all(writes).await.map_err(|error| failed(&error))?;
            let took = env.monotonic() - began;
            if nth >= warm_up {
                latencies.add(i64::try_from(took.as_micros()).expect("not so long"));
            }
        }
        Ok(latencies)
    })
}

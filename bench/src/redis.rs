//! `millstream-bench redis`: the Redis sink beside a bare client that writes the same records, one
//! batch at a time.
//!
//! Rows are due at fixed moments: those of the engine's `rate` source, or of the client's own
//! schedule of the same rate. Each becomes an entry of a stream with the moment at which it was
//! due, and a meter reads the stream. The client takes all rows that are due, adds them in one
//! pipeline, waits for the answer, and takes the next. The engine writes each micro-batch with its
//! progress by a script, exactly once. Each is a process of its own, in turns, on a server of its
//! own.

use std::path::Path;
use std::time::Duration;

use millstream_store::env::Env;
use millstream_testkit::program::Process;
use millstream_testkit::redis::Redis;
use redis::streams::StreamReadReply;
use redis::{Client, Connection, Pipeline, cmd};
use serde::Serialize;

use crate::clock::Clock;
use crate::engine::{self, EngineOptions, sql_options};
use crate::error::Error;
use crate::quantiles::{Latencies, Quantiles};
use crate::report::{self, Report};
use crate::system;
use crate::work_directory::WorkDirectory;

const NAME: &str = "redis";
/// The stream that is written.
const STREAM: &str = "out";
/// How long the first entry may take: starting a process.
const START_MAX: Duration = Duration::from_secs(60);
/// How long the server holds an empty answer back.
const BLOCK_MS: u64 = 100;
/// Entries of one answer.
const ENTRIES_MAX: u64 = 5_000;
/// Rows of one of the client's batches: as many as one of the sink's scripts writes.
const BATCH_MAX: u64 = 1_000;

/// Flags of `millstream-bench redis`.
#[derive(Debug, clap::Args)]
pub struct Flags {
    /// Rows a second; several rates are measured one after the other
    #[arg(long, value_delimiter = ',', default_value = "1000,10000")]
    rate: Vec<u64>,
    /// Seconds measured in each run
    #[arg(long, default_value_t = 15)]
    seconds: u64,
    /// Seconds at the same rate before that, from the first entry on
    #[arg(long, default_value_t = 5)]
    warmup: u64,
    /// Runs of each at each rate
    #[arg(long, default_value_t = 3)]
    repeat: u32,
    /// Option of the engine: `source.NAME=V` stands in the pipeline's source table, anything else
    /// is handed to `run --set`
    #[arg(long, value_name = "K=V")]
    engine_option: Vec<String>,
}

/// Flags of the bare client's process.
#[derive(Debug, clap::Args)]
pub struct ClientFlags {
    /// Port of the server
    #[arg(long)]
    port: u16,
    /// Rows a second
    #[arg(long)]
    rate: u64,
}

/// What writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Writer {
    Client,
    Millstream,
}

/// One result line.
#[derive(Clone, Debug, Serialize)]
struct RedisLine {
    configuration: Writer,
    round: u32,
    rate: u64,
    seconds: u64,
    engine_options: Vec<String>,
    /// Entries that latency was measured on.
    records: u64,
    /// Of all rows up to the last one that was read, those that were not there.
    missing: u64,
    /// Entries beyond a row's first.
    duplicated: u64,
    /// Receipt minus the time a row was due.
    #[serde(flatten)]
    latency: Quantiles,
    cpu_seconds: f64,
    peak_rss_mb: f64,
}

/// The medians of a rate's rounds.
#[derive(Clone, Debug, Serialize)]
struct Summary {
    rate: u64,
    rounds: u32,
    client_p50_ms: f64,
    client_p99_ms: f64,
    millstream_p50_ms: f64,
    millstream_p99_ms: f64,
    /// The engine's over the client's.
    ratio_p50: f64,
    ratio_p99: f64,
}

/// Runs the whole benchmark. True if every row was there once.
pub fn run(env: &Env, flags: &Flags) -> Result<bool, Error> {
    if flags.rate.is_empty() || flags.rate.contains(&0) || flags.seconds == 0 || flags.repeat == 0 {
        let problem = "--rate, --seconds and --repeat must be at least 1".to_owned();
        return Err(Error::Flags { problem });
    }
    let bench = Bench {
        clock: Clock::new(env),
        flags,
        options: EngineOptions::parse(&flags.engine_option)?,
        work: WorkDirectory::create()?,
    };
    let report = Report::new(NAME, None);
    eprintln!("{}", table_head());
    let mut is_whole = true;
    for &rate in &flags.rate {
        let mut lines = Vec::new();
        for round in 1..=flags.repeat {
            for writer in [Writer::Client, Writer::Millstream] {
                let line = bench.round(writer, rate, round)?;
                report.line("round", &line)?;
                eprintln!("{}", table_row(&line));
                is_whole &= line.missing == 0 && line.duplicated == 0;
                lines.push(line);
            }
        }
        let summary = summary(&lines, flags.repeat);
        report.line("summary", &summary)?;
        eprintln!("{rate:>9}/s  p50 {:.2} times that of the client", summary.ratio_p50);
    }
    Ok(is_whole)
}

struct Bench<'a> {
    clock: Clock,
    flags: &'a Flags,
    options: EngineOptions,
    work: WorkDirectory,
}

impl Bench<'_> {
    fn round(&self, writer: Writer, rate: u64, round: u32) -> Result<RedisLine, Error> {
        let server = Redis::start();
        let mut connection = connect(server.port())?;
        let name = format!("{}-{rate}-{round}", configuration(writer));
        let directory = self.work.subdirectory(&name)?;
        let mut process = self.start(writer, rate, server.port(), &directory)?;
        let mut tally = Tally::default();
        let begun_us = self.clock.now_us();
        while tally.next == 0 {
            self.read(&mut connection, &mut tally)?;
            process.check()?;
            if self.clock.now_us() - begun_us > micros(START_MAX) {
                return Err(Error::Behind {
                    process: process.name().to_owned(),
                    waited_s: START_MAX.as_secs(),
                    log: process.log_tail(),
                });
            }
        }
        let second = |seconds: u64| micros(Duration::from_secs(seconds));
        let from_us = self.clock.now_us() + second(self.flags.warmup);
        self.read_until(from_us, &mut connection, &mut tally, &mut process)?;
        let before = process.usage();
        tally.from_us = Some(from_us);
        let until_us = from_us + second(self.flags.seconds);
        self.read_until(until_us, &mut connection, &mut tally, &mut process)?;
        let after = process.usage();
        let status = process.stop()?;
        if writer == Writer::Millstream && !status.success() {
            let (process, log) = (process.name().to_owned(), process.log_tail());
            return Err(Error::Unclean { process, status, log });
        }
        Ok(RedisLine {
            configuration: writer,
            round,
            rate,
            seconds: self.flags.seconds,
            engine_options: self.flags.engine_option.clone(),
            records: tally.latencies.count(),
            missing: tally.missing,
            duplicated: tally.duplicated,
            latency: tally.latencies.quantiles(),
            cpu_seconds: report::rounded(after.cpu_seconds - before.cpu_seconds, 2),
            peak_rss_mb: report::rounded(after.peak_rss_mb, 1),
        })
    }

    fn start(
        &self,
        writer: Writer,
        rate: u64,
        port: u16,
        directory: &Path,
    ) -> Result<Process, Error> {
        if writer == Writer::Millstream {
            let pipeline = pipeline(rate, port, &self.options);
            return engine::start(&pipeline, &self.options, directory);
        }
        let mut command = system::this_program()?;
        command.args(["redis-client", "--port", &port.to_string(), "--rate", &rate.to_string()]);
        Ok(Process::start("the client", command, &directory.join("client.log"))?)
    }

    fn read_until(
        &self,
        until_us: i64,
        connection: &mut Connection,
        tally: &mut Tally,
        process: &mut Process,
    ) -> Result<(), Error> {
        while self.clock.now_us() < until_us {
            self.read(connection, tally)?;
            process.check()?;
        }
        Ok(())
    }

    /// Reads what has come, or waits some time for the first of it.
    fn read(&self, connection: &mut Connection, tally: &mut Tally) -> Result<(), Error> {
        let mut read = cmd("XREAD");
        read.arg("COUNT").arg(ENTRIES_MAX).arg("BLOCK").arg(BLOCK_MS);
        read.arg("STREAMS").arg(STREAM).arg(&tally.last_id);
        let answer: Option<StreamReadReply> = read.query(connection).map_err(failed("reading"))?;
        let now_us = self.clock.now_us();
        for entry in answer.into_iter().flat_map(|answer| answer.keys).flat_map(|key| key.ids) {
            let (Some(due_us), Some(number)) = (entry.get("due"), entry.get("n")) else {
                let problem = format!("the entry {} is not one of those written", entry.id);
                return Err(Error::Fill { problem });
            };
            tally.add(number, due_us, now_us);
            tally.last_id = entry.id;
        }
        Ok(())
    }
}

/// What the meter has seen.
struct Tally {
    last_id: String,
    /// The number of the row that is to come.
    next: u64,
    missing: u64,
    duplicated: u64,
    /// Rows that are due from then on count.
    from_us: Option<i64>,
    latencies: Latencies,
}

impl Default for Tally {
    fn default() -> Self {
        let (last_id, latencies) = ("0".to_owned(), Latencies::new());
        Self { last_id, next: 0, missing: 0, duplicated: 0, from_us: None, latencies }
    }
}

impl Tally {
    /// Rows come in the order of their numbers.
    fn add(&mut self, number: u64, due_us: i64, now_us: i64) {
        if number < self.next {
            self.duplicated += 1;
            return;
        }
        self.missing += number - self.next;
        self.next = number + 1;
        if self.from_us.is_some_and(|from_us| due_us >= from_us) {
            self.latencies.add(now_us - due_us);
        }
    }
}

/// The bare client: adds rows that are due until the process is ended.
pub fn run_client(env: &Env, flags: &ClientFlags) -> Result<(), Error> {
    let clock = Clock::new(env);
    let mut connection = connect(flags.port)?;
    let (begun_us, mut written) = (clock.now_us(), 0);
    let due_us = |number: u64| {
        let offset_us = u128::from(number) * 1_000_000 / u128::from(flags.rate);
        begun_us + i64::try_from(offset_us).expect("a run ends")
    };
    loop {
        let now_us = clock.now_us();
        let mut batch = Pipeline::new();
        let first = written;
        while due_us(written) <= now_us && written - first < BATCH_MAX {
            let add = batch.cmd("XADD").arg(STREAM).arg("*");
            add.arg("due").arg(due_us(written)).arg("n").arg(written).ignore();
            written += 1;
        }
        if written > first {
            batch.query::<()>(&mut connection).map_err(failed("writing"))?;
        } else {
            let wait_us = u64::try_from(due_us(written) - now_us).unwrap_or_default();
            std::thread::sleep(Duration::from_micros(wait_us));
        }
    }
}

fn connect(port: u16) -> Result<Connection, Error> {
    let client = Client::open(format!("redis://127.0.0.1:{port}")).map_err(failed("connecting"))?;
    client.get_connection().map_err(failed("connecting"))
}

fn failed(what: &'static str) -> impl Fn(redis::RedisError) -> Error {
    move |error| Error::Fill { problem: format!("{what} to Redis, or from it: {error}") }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).expect("a benchmark ends")
}

/// Rows of the rate source as entries of the stream.
fn pipeline(rate: u64, port: u16, options: &EngineOptions) -> String {
    let (rate, port) = (rate.to_string(), port.to_string());
    let sink = [("port", &*port), ("model", "stream"), ("table", STREAM)];
    format!(
        "CREATE TABLE input USING rate OPTIONS ({});\n\
         CREATE TABLE output USING redis OPTIONS ({});\n\
         CREATE FLOW entries AS INSERT INTO output\n\
         SELECT unix_micros(timestamp) AS due, value AS n FROM STREAM input;\n",
        sql_options(&[("rowsPerSecond", &rate)], &options.source),
        sql_options(&sink, &[]),
    )
}

fn configuration(writer: Writer) -> &'static str {
    match writer {
        Writer::Client => "client",
        Writer::Millstream => "millstream",
    }
}

fn summary(lines: &[RedisLine], rounds: u32) -> Summary {
    let of = |writer: Writer, value: fn(&Quantiles) -> f64| {
        let lines = lines.iter().filter(|line| line.configuration == writer);
        report::median(lines.map(|line| value(&line.latency)))
    };
    let p50 = |writer| of(writer, |latency| latency.p50_ms);
    let p99 = |writer| of(writer, |latency| latency.p99_ms);
    let rate = lines.first().map_or(0, |line| line.rate);
    let (client, engine) = (Writer::Client, Writer::Millstream);
    Summary {
        rate,
        rounds,
        client_p50_ms: report::rounded(p50(client), 3),
        client_p99_ms: report::rounded(p99(client), 3),
        millstream_p50_ms: report::rounded(p50(engine), 3),
        millstream_p99_ms: report::rounded(p99(engine), 3),
        ratio_p50: report::rounded(p50(engine) / p50(client), 3),
        ratio_p99: report::rounded(p99(engine) / p99(client), 3),
    }
}

fn table_head() -> String {
    format!(
        "{:>9}    {:<12}{:>6} {:>9} {:>9} {:>9} {:>9} {:>8} {:>8} {:>7} {:>8}",
        "rate",
        "",
        "round",
        "p50 ms",
        "p99 ms",
        "p99.9 ms",
        "max ms",
        "missing",
        "doubled",
        "CPU s",
        "RSS MB"
    )
}

fn table_row(line: &RedisLine) -> String {
    let latency = &line.latency;
    format!(
        "{:>9}/s  {:<12}{:>6} {:>9.2} {:>9.2} {:>9.2} {:>9.2} {:>8} {:>8} {:>7.2} {:>8.1}",
        line.rate,
        configuration(line.configuration),
        line.round,
        latency.p50_ms,
        latency.p99_ms,
        latency.p999_ms,
        latency.max_ms,
        line.missing,
        line.duplicated,
        line.cpu_seconds,
        line.peak_rss_mb
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_are_missing_or_repeated_are_counted() {
        let mut tally = Tally { from_us: Some(100), ..Tally::default() };
        for (number, due_us) in [(0, 50), (1, 100), (3, 120), (3, 120), (2, 110), (4, 130)] {
            tally.add(number, due_us, due_us + 7);
        }
        assert_eq!((tally.missing, tally.duplicated, tally.next), (1, 2, 5));
        assert_eq!((tally.latencies.count(), tally.latencies.quantiles().max_ms), (3, 0.007));
    }
}

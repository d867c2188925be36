//! `millstream-bench pulsar`: the Pulsar sink beside a bare client that writes the same rows, one
//! micro-batch at a time.
//!
//! Rows are due at fixed moments: those of the engine's `rate` source, or of the client's own
//! schedule of the same rate. Each becomes a message with the moment at which it was due, and a
//! meter reads the topic. The client is Pulsar's own for Java: it takes all rows that are due,
//! sends them, waits until they are stored, and takes the next; exactly once, all of them are one
//! transaction. Both ways of delivery are measured, client and engine in turns, on one server.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command};
use std::sync::Arc;
use std::time::Duration;

use millstream_store::env::{Env, Thread};
use millstream_testkit::program::Process;
use millstream_testkit::pulsar::{self, Pulsar};
use millstream_testkit::wait;
use parking_lot::Mutex;
use serde::Serialize;

use crate::clock::Clock;
use crate::engine::{self, EngineOptions, sql_options};
use crate::error::Error;
use crate::quantiles::{Latencies, Quantiles};
use crate::report::{self, Report};
use crate::system;
use crate::work_directory::WorkDirectory;

const NAME: &str = "pulsar";
const CLIENT: &str = include_str!("../peers/PulsarClient.java");
/// How long the first message may take: starting two processes.
const START_MAX: Duration = Duration::from_secs(60);
/// Between two looks at processes and messages.
const LOOK: Duration = Duration::from_millis(20);

/// Flags of `millstream-bench pulsar`.
#[derive(Debug, clap::Args)]
pub struct Flags {
    /// Rows a second; several rates are measured one after the other
    #[arg(long, value_delimiter = ',', default_value = "1000,10000")]
    rate: Vec<u64>,
    /// Seconds measured in each run
    #[arg(long, default_value_t = 15)]
    seconds: u64,
    /// Seconds at the same rate before that, from the first message on
    #[arg(long, default_value_t = 10)]
    warmup: u64,
    /// Runs of each at each rate
    #[arg(long, default_value_t = 3)]
    repeat: u32,
    /// Option of the engine: `source.NAME=V` stands in the pipeline's source table, anything else
    /// is handed to `run --set`
    #[arg(long, value_name = "K=V")]
    engine_option: Vec<String>,
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
struct PulsarLine {
    configuration: Writer,
    delivery: &'static str,
    round: u32,
    rate: u64,
    seconds: u64,
    engine_options: Vec<String>,
    /// Messages that latency was measured on.
    records: u64,
    /// Of all rows up to the last one that was read, those that were not there.
    missing: u64,
    /// Messages beyond a row's first.
    duplicated: u64,
    /// Receipt minus the time a row was due.
    #[serde(flatten)]
    latency: Quantiles,
    cpu_seconds: f64,
    peak_rss_mb: f64,
}

/// The medians of the rounds of a rate and a delivery.
#[derive(Clone, Debug, Serialize)]
struct Summary {
    delivery: &'static str,
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
    let work = WorkDirectory::create()?;
    let directory = work.subdirectory("client")?;
    let bench = Bench {
        env,
        clock: Clock::new(env),
        flags,
        options: EngineOptions::parse(&flags.engine_option)?,
        client: system::write(&directory, "PulsarClient.java", CLIENT)?,
        work,
        server: Pulsar::start(),
    };
    let report = Report::new(NAME, None);
    eprintln!("{}", table_head());
    let mut is_whole = true;
    for delivery in ["exactly-once", "at-least-once"] {
        for &rate in &flags.rate {
            let mut lines = Vec::new();
            for round in 1..=flags.repeat {
                for writer in [Writer::Client, Writer::Millstream] {
                    let line = bench.round(writer, delivery, rate, round)?;
                    report.line("round", &line)?;
                    eprintln!("{}", table_row(&line));
                    is_whole &= line.missing == 0 && line.duplicated == 0;
                    lines.push(line);
                }
            }
            let summary = summary(&lines, flags.repeat);
            report.line("summary", &summary)?;
            let ratio = summary.ratio_p50;
            eprintln!("{rate:>9}/s  {delivery}: p50 {ratio:.2} times that of the client");
        }
    }
    Ok(is_whole)
}

struct Bench<'a> {
    env: &'a Env,
    clock: Clock,
    flags: &'a Flags,
    options: EngineOptions,
    /// The client's program.
    client: PathBuf,
    work: WorkDirectory,
    server: Pulsar,
}

impl Bench<'_> {
    fn round(
        &self,
        writer: Writer,
        delivery: &'static str,
        rate: u64,
        round: u32,
    ) -> Result<PulsarLine, Error> {
        let topic = format!("{}-{delivery}-{rate}-{round}", configuration(writer));
        self.server.create(&topic, 0);
        let directory = self.work.subdirectory(&topic)?;
        let (tally, mut meter) = self.start_meter(&topic, &directory)?;
        self.wait_for(&mut meter, &tally, |tally| tally.is_ready)?;
        let mut process = self.start(writer, delivery, rate, &topic, &directory)?;
        self.wait_for(&mut process, &tally, |tally| tally.next > 0)?;
        self.pause(self.flags.warmup, &mut process)?;
        let before = process.usage();
        tally.lock().from_us = Some(self.clock.now_us());
        self.pause(self.flags.seconds, &mut process)?;
        let after = process.usage();
        let tally = std::mem::take(&mut *tally.lock());
        let status = process.stop()?;
        if writer == Writer::Millstream && !status.success() {
            let (process, log) = (process.name().to_owned(), process.log_tail());
            return Err(Error::Unclean { process, status, log });
        }
        Ok(PulsarLine {
            configuration: writer,
            delivery,
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
        delivery: &str,
        rate: u64,
        topic: &str,
        directory: &Path,
    ) -> Result<Process, Error> {
        if writer == Writer::Millstream {
            let pipeline = pipeline(rate, &self.server.url(), topic, delivery, &self.options);
            return engine::start(&pipeline, &self.options, directory);
        }
        let mut command = self.client();
        command.args(["write", topic, &rate.to_string(), delivery]);
        Ok(Process::start("the client", command, &directory.join("client.log"))?)
    }

    fn start_meter(&self, topic: &str, directory: &Path) -> Result<(Metered, Process), Error> {
        let mut command = self.client();
        command.args(["meter", topic]);
        let log = directory.join("meter.log");
        let (process, output) = Process::start_piped("the meter", command, &log)?;
        let tally: Arc<Mutex<Tally>> = Arc::default();
        let theirs = Arc::clone(&tally);
        let thread = self.env.thread("bench-meter", move || read(output, &theirs));
        Ok((Metered { tally, _thread: thread }, process))
    }

    fn client(&self) -> Command {
        let mut client = pulsar::source_launch(&self.client);
        client.arg(self.server.url());
        client
    }

    fn wait_for(
        &self,
        process: &mut Process,
        tally: &Metered,
        is_there: impl Fn(&Tally) -> bool,
    ) -> Result<(), Error> {
        let begun_us = self.clock.now_us();
        while !is_there(&tally.lock()) {
            wait::pause(LOOK);
            process.check()?;
            let waited_us = self.clock.now_us() - begun_us;
            if waited_us > i64::try_from(START_MAX.as_micros()).expect("a minute") {
                return Err(Error::Behind {
                    process: process.name().to_owned(),
                    waited_s: START_MAX.as_secs(),
                    log: process.log_tail(),
                });
            }
        }
        Ok(())
    }

    fn pause(&self, seconds: u64, process: &mut Process) -> Result<(), Error> {
        wait::pause(Duration::from_secs(seconds));
        Ok(process.check()?)
    }
}

/// What a meter has seen, and the thread that reads what it prints. The thread ends with the meter,
/// which has to be dropped first.
struct Metered {
    tally: Arc<Mutex<Tally>>,
    _thread: Thread,
}

impl Metered {
    fn lock(&self) -> parking_lot::MutexGuard<'_, Tally> {
        self.tally.lock()
    }
}

struct Tally {
    is_ready: bool,
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
        let latencies = Latencies::new();
        Self { is_ready: false, next: 0, missing: 0, duplicated: 0, from_us: None, latencies }
    }
}

impl Tally {
    /// Rows come in the order of their numbers.
    fn add(&mut self, number: u64, due_us: i64, received_us: i64) {
        if number < self.next {
            self.duplicated += 1;
            return;
        }
        self.missing += number - self.next;
        self.next = number + 1;
        if self.from_us.is_some_and(|from_us| due_us >= from_us) {
            self.latencies.add(received_us - due_us);
        }
    }
}

/// Adds what the meter prints: `NUMBER DUE RECEIVED`, and besides what its client logs.
fn read(output: ChildStdout, tally: &Mutex<Tally>) {
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        if line == "ready" {
            tally.lock().is_ready = true;
        }
        let mut numbers = line.split(' ').map(str::parse::<i64>);
        if let (Some(Ok(number)), Some(Ok(due_us)), Some(Ok(received_us)), None) =
            (numbers.next(), numbers.next(), numbers.next(), numbers.next())
        {
            tally.lock().add(number.cast_unsigned(), due_us, received_us);
        }
    }
}

/// Rows of the rate source as messages.
fn pipeline(rate: u64, url: &str, topic: &str, delivery: &str, options: &EngineOptions) -> String {
    let rate = rate.to_string();
    let sink = [("service.url", url), ("topic", topic), ("delivery", delivery)];
    format!(
        "CREATE TABLE input USING rate OPTIONS ({});\n\
         CREATE TABLE output USING pulsar OPTIONS ({});\n\
         CREATE FLOW messages AS INSERT INTO output\n\
         SELECT concat_ws(' ', value, unix_micros(timestamp)) AS value FROM STREAM input;\n",
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

fn summary(lines: &[PulsarLine], rounds: u32) -> Summary {
    let of = |writer: Writer, value: fn(&Quantiles) -> f64| {
        let lines = lines.iter().filter(|line| line.configuration == writer);
        report::median(lines.map(|line| value(&line.latency)))
    };
    let p50 = |writer| of(writer, |latency| latency.p50_ms);
    let p99 = |writer| of(writer, |latency| latency.p99_ms);
    let (rate, delivery) = lines.first().map_or((0, ""), |line| (line.rate, line.delivery));
    let (client, engine) = (Writer::Client, Writer::Millstream);
    Summary {
        delivery,
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
        "{:>9}    {:<12}{:<15}{:>6} {:>9} {:>9} {:>9} {:>8} {:>8} {:>7} {:>8}",
        "rate",
        "",
        "",
        "round",
        "p50 ms",
        "p99 ms",
        "max ms",
        "missing",
        "doubled",
        "CPU s",
        "RSS MB"
    )
}

fn table_row(line: &PulsarLine) -> String {
    let latency = &line.latency;
    format!(
        "{:>9}/s  {:<12}{:<15}{:>6} {:>9.2} {:>9.2} {:>9.2} {:>8} {:>8} {:>7.2} {:>8.1}",
        line.rate,
        configuration(line.configuration),
        line.delivery,
        line.round,
        latency.p50_ms,
        latency.p99_ms,
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

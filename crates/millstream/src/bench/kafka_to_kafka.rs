//! `bench kafka-to-kafka`: how long a record takes from the moment it is due at the input topic to
//! its receipt from the output topic.
//!
//! One round of one system under test:
//! 1. an input and an output topic are made;
//! 2. the meter starts reading the output, then the system under test is started;
//! 3. probes are sent to every input partition until one of each has come out: from here on nothing
//!    of the start is measured, and no record can be lost to a reader that came too late;
//! 4. the generator sends the schedule, warm-up first;
//! 5. when all is received, or nothing has come for a while, the system is stopped and the topics
//!    deleted.
//!
//! Rounds of the relay and of the engine take turns, so that a slow drift of the machine meets
//! both.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use millstream_store::env::{Env, Thread};
use serde::{Deserialize, Serialize};

use super::broker::Broker;
use super::clock::Clock;
use super::error::Error;
use super::generator::{Generator, Sent};
use super::meter::{Measured, Meter, Tally};
use super::payload;
use super::process::{Process, Usage};
use super::quantiles::Quantiles;
use super::report::{self, Machine, Versions};
use super::schedule::Schedule;
use super::settings;
use super::system::{Delivery, EngineOptions, Route, System};
use super::work_directory::WorkDirectory;

const READY_LIMIT: Duration = Duration::from_secs(60);
const PROBE_EVERY: Duration = Duration::from_millis(250);
/// Probes still under way when the last awaited one came; they must not meet the first records.
const SETTLE: Duration = Duration::from_millis(500);
/// After the last record was sent, how long nothing may come before the rest counts as lost.
const SILENCE_MAX: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(20);
const PARTITIONS_MAX: i32 = 1_000;

/// Flags of `bench kafka-to-kafka`.
#[derive(Debug, clap::Args)]
pub struct Flags {
    /// Records a second; several rates are measured one after the other
    #[arg(long, value_delimiter = ',', default_value = "1000,10000,50000")]
    pub(super) rate: Vec<u64>,
    /// Bytes of a record's value
    #[arg(long, default_value_t = 100)]
    pub(super) size: usize,
    /// Partitions of both topics
    #[arg(long, default_value_t = 4)]
    pub(super) partitions: i32,
    /// Seconds measured in each round
    #[arg(long, default_value_t = 20)]
    pub(super) seconds: u64,
    /// Seconds at the same rate before that, not measured
    #[arg(long, default_value_t = 5)]
    pub(super) warmup: u64,
    /// Rounds at each rate, the relay and the engine taking turns
    #[arg(long, default_value_t = 3)]
    pub(super) repeat: u32,
    /// A broker that is running already, HOST:PORT; otherwise Apache Kafka is started
    #[arg(long, value_name = "HOST:PORT")]
    pub(super) brokers: Option<String>,
    /// Option of the engine: `source.NAME=V` stands in the pipeline's source table, anything else
    /// is handed to `run --set`
    #[arg(long, value_name = "K=V")]
    pub(super) engine_option: Vec<String>,
    /// What the engine's sink promises; the meter always reads committed records
    #[arg(long, value_enum, default_value_t)]
    pub(super) delivery: Delivery,
    /// Measure only one of the two
    #[arg(long)]
    pub(super) only: Option<System>,
}

/// Fields that tell which measurements may be compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// Records a second.
    pub rate: u64,
    /// Bytes of a value.
    pub size: usize,
    /// Partitions of each topic.
    pub partitions: i32,
    /// Seconds measured.
    pub seconds: u64,
    /// `linger.ms` of the generator, the same for every system.
    pub generator_linger_ms: u64,
    /// Options the engine was given.
    pub engine_options: Vec<String>,
    /// What the engine's sink promises.
    #[serde(default)]
    pub delivery: Delivery,
}

/// One result line: one system in one round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Line {
    bench: String,
    line: String,
    commit: Option<String>,
    configuration: System,
    round: u32,
    #[serde(flatten)]
    setup: Setup,
    /// From starting the process to the first record out of every partition.
    start_ms: u64,
    pub(super) records: u64,
    pub(super) missing: u64,
    pub(super) duplicated: u64,
    foreign: u64,
    #[serde(flatten)]
    pub(super) latency: Quantiles,
    pub(super) throughput_rows_per_s: f64,
    /// How late the generator itself was; part of every latency above.
    generator_late_p50_ms: f64,
    generator_late_p99_ms: f64,
    /// Of the system under test, in the measured seconds.
    pub(super) cpu_seconds: f64,
    pub(super) peak_rss_mb: f64,
    machine: Machine,
    versions: Versions,
}

/// Medians over the rounds at one rate.
#[derive(Clone, Debug, Serialize)]
struct Summary {
    bench: &'static str,
    line: &'static str,
    commit: Option<String>,
    #[serde(flatten)]
    setup: Setup,
    rounds: u32,
    missing: u64,
    duplicated: u64,
    relay: Option<Medians>,
    millstream: Option<Medians>,
    /// Engine over relay; 1 means that the engine costs nothing.
    ratio_p50: Option<f64>,
    ratio_p99: Option<f64>,
    machine: Machine,
    versions: Versions,
}

#[derive(Clone, Debug, Serialize)]
struct Medians {
    p50_ms: f64,
    p99_ms: f64,
    p999_ms: f64,
    /// Of the rounds' p99, so that a reader sees the spread.
    p99_ms_min: f64,
    p99_ms_max: f64,
    throughput_rows_per_s: f64,
    cpu_seconds: f64,
    peak_rss_mb: f64,
}

/// Runs the whole benchmark. True if no record was lost.
pub fn run(env: &Env, flags: &Flags) -> Result<bool, Error> {
    check(flags)?;
    let options =
        EngineOptions { delivery: flags.delivery, ..EngineOptions::parse(&flags.engine_option)? };
    // Made before the broker and so dropped after it: nobody writes there any more.
    let work = WorkDirectory::create()?;
    let broker = match &flags.brokers {
        Some(address) => Broker::external(env, address)?,
        None => Broker::start(env, &work)?,
    };
    let bench = Bench::new(env, flags, options, &work, &broker);
    eprintln!("{}", table_head());
    let mut complete = true;
    for &rate in &flags.rate {
        complete &= bench.rate(rate)?;
    }
    Ok(complete)
}

fn check(flags: &Flags) -> Result<(), Error> {
    let problem = if flags.rate.is_empty() || flags.rate.contains(&0) {
        "--rate must be at least 1".to_owned()
    } else if flags.size < payload::SIZE_MIN {
        format!("--size must be at least {}: time and number of a record", payload::SIZE_MIN)
    } else if !(1..=PARTITIONS_MAX).contains(&flags.partitions) {
        format!("--partitions must be from 1 to {PARTITIONS_MAX}")
    } else if flags.seconds == 0 || flags.repeat == 0 {
        "--seconds and --repeat must be at least 1".to_owned()
    } else {
        return Ok(());
    };
    Err(Error::Flags { problem })
}

pub(super) struct Bench<'a> {
    env: &'a Env,
    clock: Clock,
    flags: &'a Flags,
    options: EngineOptions,
    work: &'a WorkDirectory,
    broker: &'a Broker,
    commit: Option<String>,
    machine: Machine,
    versions: Versions,
}

impl<'a> Bench<'a> {
    /// Rounds with these flags and options, on this broker.
    pub(super) fn new(
        env: &'a Env,
        flags: &'a Flags,
        options: EngineOptions,
        work: &'a WorkDirectory,
        broker: &'a Broker,
    ) -> Self {
        Self {
            env,
            clock: Clock::new(env),
            flags,
            options,
            work,
            broker,
            commit: report::commit(),
            machine: Machine::this(),
            versions: Versions::with(Some(&broker.version)),
        }
    }

    fn rate(&self, rate: u64) -> Result<bool, Error> {
        let mut lines = Vec::new();
        for round in 1..=self.flags.repeat {
            for system in System::ALL {
                if self.flags.only.is_some_and(|only| only != system) {
                    continue;
                }
                let line = self.round(system, rate, round)?;
                report::line(&line)?;
                eprintln!("{}", table_row(&line));
                lines.push(line);
            }
        }
        let summary = self.summary(self.setup(rate), &lines);
        report::line(&summary)?;
        if let (Some(p50), Some(p99)) = (summary.ratio_p50, summary.ratio_p99) {
            eprintln!("{rate:>8}/s  millstream / relay: p50 x{p50:.2}, p99 x{p99:.2}");
        }
        Ok(summary.missing == 0)
    }

    fn setup(&self, rate: u64) -> Setup {
        Setup {
            rate,
            size: self.flags.size,
            partitions: self.flags.partitions,
            seconds: self.flags.seconds,
            generator_linger_ms: settings::generator_linger_ms(rate),
            engine_options: self.flags.engine_option.clone(),
            delivery: self.flags.delivery,
        }
    }

    pub(super) fn round(&self, system: System, rate: u64, round: u32) -> Result<Line, Error> {
        let name = format!("bench-{}-{system}-{rate}-{round}", std::process::id());
        let (from, to) = (format!("{name}-in"), format!("{name}-out"));
        self.broker.topics.create(&from, self.flags.partitions)?;
        self.broker.topics.create(&to, self.flags.partitions)?;
        let run = self.measure(system, rate, round, (&from, &to), &self.work.subdirectory(&name)?);
        self.broker.topics.delete(&[&from, &to])?;
        let run = run?;
        Ok(Line {
            bench: "kafka-to-kafka".into(),
            line: "round".into(),
            commit: self.commit.clone(),
            configuration: system,
            round,
            setup: self.setup(rate),
            start_ms: u64::try_from(run.started_in.as_millis()).unwrap_or(u64::MAX),
            records: run.measured.records,
            missing: run.measured.missing,
            duplicated: run.measured.duplicated,
            foreign: run.measured.foreign,
            latency: run.measured.latency,
            throughput_rows_per_s: report::rounded(run.measured.throughput_rows_per_s, 1),
            generator_late_p50_ms: run.sent.late.p50_ms,
            generator_late_p99_ms: run.sent.late.p99_ms,
            cpu_seconds: report::rounded(run.usage.cpu_seconds, 2),
            peak_rss_mb: report::rounded(run.usage.peak_rss_mb, 1),
            machine: self.machine.clone(),
            versions: self.versions.clone(),
        })
    }

    fn measure(
        &self,
        system: System,
        rate: u64,
        round: u32,
        (from, to): (&str, &str),
        directory: &Path,
    ) -> Result<Run, Error> {
        let (env, brokers) = (self.env, self.broker.address.as_str());
        let meter = Meter::start(env, &self.clock, brokers, to, self.flags.partitions)?;
        let generator = Generator::new(env, &self.clock, brokers, from, rate, self.flags.size)?;
        let started = env.monotonic();
        let route = Route { brokers, from, to };
        let mut process = system.start(route, &self.options, directory)?;
        self.wait_until_ready(&generator, &meter, &mut process)?;
        let started_in = env.monotonic() - started;
        std::thread::sleep(SETTLE);

        let start_us = self.clock.now_us() + 1_000;
        let warmup_us = i64::try_from(self.flags.warmup * 1_000_000).expect("a warm-up ends");
        let seconds = self.flags.warmup + self.flags.seconds;
        // A schedule of its own for each rate and round, the same for every system.
        let schedule = Schedule::new(start_us, rate, seconds, rate << 16 | u64::from(round));
        meter.expect(Tally::new(schedule.records(), start_us + warmup_us));
        let sending = Sending::start(env, generator, schedule);
        let (sent, usage) = self.watch(sending, start_us + warmup_us, &mut process)?;
        self.wait_until_received(&meter, sent.records, &mut process)?;
        // The relay has no orderly end; the engine's is part of what is tried here.
        let status = process.stop(env)?;
        if system == System::Millstream && !status.success() {
            let (process, log) = (process.name().to_owned(), process.log_tail());
            return Err(Error::Unclean { process, status, log });
        }
        Ok(Run { started_in, sent, usage, measured: meter.finish(sent.records)? })
    }

    fn wait_until_ready(
        &self,
        generator: &Generator,
        meter: &Meter,
        process: &mut Process,
    ) -> Result<(), Error> {
        let asked = self.env.monotonic();
        let mut probed_at = None;
        loop {
            let through = meter.probed();
            let all = 0..self.flags.partitions;
            let waiting: Vec<i32> = all.filter(|partition| !through.contains(partition)).collect();
            if waiting.is_empty() {
                return Ok(());
            }
            process.check()?;
            let now = self.env.monotonic();
            if now - asked > READY_LIMIT {
                return Err(Error::NotReady {
                    process: process.name().to_owned(),
                    partitions: waiting,
                    waited_s: READY_LIMIT.as_secs(),
                    log: process.log_tail(),
                });
            }
            if probed_at.is_none_or(|probed_at| now - probed_at > PROBE_EVERY) {
                generator.probe(waiting)?;
                probed_at = Some(now);
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// Waits for the generator; tells what the process used from `measured_from_us` to its end.
    fn watch(
        &self,
        sending: Sending,
        measured_from_us: i64,
        process: &mut Process,
    ) -> Result<(Sent, Usage), Error> {
        let mut before = None;
        loop {
            if before.is_none() && self.clock.now_us() >= measured_from_us {
                before = Some(process.usage());
            }
            if let Some(sent) = sending.wait(LOOK_AGAIN) {
                let (before, after) = (before.unwrap_or_default(), process.usage());
                let cpu_seconds = after.cpu_seconds - before.cpu_seconds;
                return Ok((sent?, Usage { cpu_seconds, peak_rss_mb: after.peak_rss_mb }));
            }
            process.check()?;
        }
    }

    /// Waits until every record has come or none comes any more.
    fn wait_until_received(
        &self,
        meter: &Meter,
        sent: u64,
        process: &mut Process,
    ) -> Result<(), Error> {
        let mut last = (meter.distinct(), self.env.monotonic());
        while last.0 < sent && self.env.monotonic() - last.1 < SILENCE_MAX {
            process.check()?;
            std::thread::sleep(LOOK_AGAIN);
            let distinct = meter.distinct();
            if distinct != last.0 {
                last = (distinct, self.env.monotonic());
            }
        }
        // A repeat would come right behind what it repeats.
        std::thread::sleep(SETTLE);
        Ok(())
    }

    fn summary(&self, setup: Setup, lines: &[Line]) -> Summary {
        let of = |system| lines.iter().filter(move |line: &&Line| line.configuration == system);
        let relay = Medians::of(of(System::Relay));
        let millstream = Medians::of(of(System::Millstream));
        let ratio = |value: fn(&Medians) -> f64| {
            let (engine, floor) = (value(millstream.as_ref()?), value(relay.as_ref()?));
            (floor > 0.0).then(|| report::rounded(engine / floor, 3))
        };
        Summary {
            bench: "kafka-to-kafka",
            line: "summary",
            commit: self.commit.clone(),
            setup,
            rounds: self.flags.repeat,
            missing: lines.iter().map(|line| line.missing).sum(),
            duplicated: lines.iter().map(|line| line.duplicated).sum(),
            ratio_p50: ratio(|medians| medians.p50_ms),
            ratio_p99: ratio(|medians| medians.p99_ms),
            relay,
            millstream,
            machine: self.machine.clone(),
            versions: self.versions.clone(),
        }
    }
}

/// What one round gave.
struct Run {
    started_in: Duration,
    sent: Sent,
    usage: Usage,
    measured: Measured,
}

/// The generator on a thread of its own, told to give up when dropped.
struct Sending {
    give_up: Arc<AtomicBool>,
    result: Receiver<Result<Sent, Error>>,
    _thread: Thread,
}

impl Sending {
    fn start(env: &Env, generator: Generator, schedule: Schedule) -> Self {
        let give_up = Arc::new(AtomicBool::new(false));
        let (report, result) = channel();
        let told = Arc::clone(&give_up);
        let thread = env.thread("bench-generator", move || {
            // Nobody listens only when the round has failed already.
            let _ = report.send(generator.run(schedule, &told));
        });
        Self { give_up, result, _thread: thread }
    }

    /// The result, if there is one within `limit`.
    fn wait(&self, limit: Duration) -> Option<Result<Sent, Error>> {
        match self.result.recv_timeout(limit) {
            Ok(sent) => Some(sent),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => panic!("the generator ended without a result"),
        }
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.give_up.store(true, Ordering::Relaxed);
    }
}

impl Medians {
    fn of<'a>(lines: impl Iterator<Item = &'a Line> + Clone) -> Option<Self> {
        lines.clone().next()?;
        let of =
            |value: fn(&Line) -> f64| report::rounded(report::median(lines.clone().map(value)), 3);
        let p99 = lines.clone().map(|line| line.latency.p99_ms);
        Some(Self {
            p50_ms: of(|line| line.latency.p50_ms),
            p99_ms: of(|line| line.latency.p99_ms),
            p999_ms: of(|line| line.latency.p999_ms),
            p99_ms_min: p99.clone().fold(f64::INFINITY, f64::min),
            p99_ms_max: p99.fold(0.0, f64::max),
            throughput_rows_per_s: of(|line| line.throughput_rows_per_s),
            cpu_seconds: of(|line| line.cpu_seconds),
            peak_rss_mb: of(|line| line.peak_rss_mb),
        })
    }
}

fn table_head() -> String {
    format!(
        "{:>8}    {:<11}{:>6} {:>9} {:>9} {:>9} {:>9} {:>9} {:>8} {:>8} {:>7} {:>8}",
        "rate",
        "",
        "round",
        "p50 ms",
        "p90 ms",
        "p99 ms",
        "p99.9 ms",
        "max ms",
        "missing",
        "doubled",
        "CPU s",
        "RSS MB"
    )
}

fn table_row(line: &Line) -> String {
    let latency = &line.latency;
    format!(
        "{:>8}/s  {:<11}{:>6} {:>9.2} {:>9.2} {:>9.2} {:>9.2} {:>9.2} {:>8} {:>8} {:>7.2} {:>8.1}",
        line.setup.rate,
        line.configuration.to_string(),
        line.round,
        latency.p50_ms,
        latency.p90_ms,
        latency.p99_ms,
        latency.p999_ms,
        latency.max_ms,
        line.missing,
        line.duplicated,
        line.cpu_seconds,
        line.peak_rss_mb
    )
}

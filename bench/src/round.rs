//! One round: records go into one topic, something carries them to another, and a meter receives
//! them there.
//!
//! 1. an input and an output topic are made;
//! 2. the meter starts reading the output, then the system under test is started;
//! 3. probes are sent to every input partition until one of each has come out: from here on nothing
//!    of the start is measured, and no record can be lost to a reader that came too late;
//! 4. the generator sends the schedule, warm-up first;
//! 5. when all is received, or nothing has come for a while, the system under test is stopped
//!    and the topics are deleted.

use std::path::Path;
use std::time::Duration;

use millstream_store::env::Env;
use millstream_testkit::program::{Process, Usage};
use serde::Serialize;

use crate::broker::Broker;
use crate::clock::Clock;
use crate::error::Error;
use crate::generator::{Generator, Sent};
use crate::meter::{Measured, Meter, Tally};
use crate::payload;
use crate::quantiles::Quantiles;
use crate::report;
use crate::schedule::Schedule;
use crate::sending::Sending;
use crate::system::{self, Relay, Route, SystemUnderTest};
use crate::work_directory::WorkDirectory;

/// A Java program on a busy machine takes half a minute from its start to its first record.
const READY_LIMIT: Duration = Duration::from_secs(120);
const PROBE_EVERY: Duration = Duration::from_millis(250);
/// Probes still under way when the last awaited one came; they must not meet the first records.
const SETTLE: Duration = Duration::from_millis(500);
/// After the last record was sent, how long nothing may come before the rest counts as lost.
const SILENCE_MAX: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(20);
const PARTITIONS_MAX: i32 = 1_000;
/// Records a second before anything is measured. More is more than a broker takes whose code is not
/// compiled yet.
const WARMUP_RATE: u64 = 5_000;

/// What is sent in a round.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Records a second.
    pub rate: u64,
    /// Bytes of a record's value.
    pub size: usize,
    /// Partitions of both topics.
    pub partitions: i32,
    /// Seconds measured.
    pub seconds: u64,
    /// Seconds at the same rate before that.
    pub warmup: u64,
}

impl Load {
    /// An error that names the flag if there can be no such round.
    pub fn check(&self) -> Result<(), Error> {
        let problem = if self.rate == 0 {
            "--rate must be at least 1".to_owned()
        } else if self.size < payload::SIZE_MIN {
            format!("--size must be at least {}: time and number of a record", payload::SIZE_MIN)
        } else if !(1..=PARTITIONS_MAX).contains(&self.partitions) {
            format!("--partitions must be from 1 to {PARTITIONS_MAX}")
        } else if self.seconds == 0 {
            "--seconds must be at least 1".to_owned()
        } else {
            return Ok(());
        };
        Err(Error::Flags { problem })
    }
}

/// What a round gave.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct RoundOutcome {
    /// From starting the process to the first record out of every partition.
    pub start_ms: u64,
    /// Records that latency was measured on, each once.
    pub records: u64,
    /// Records that never came, warm-up included.
    pub missing: u64,
    /// Receipts beyond a record's first, warm-up included.
    pub duplicated: u64,
    /// Receipts that the generator did not send.
    pub foreign: u64,
    /// Receipt minus the time a record was due.
    #[serde(flatten)]
    pub latency: Quantiles,
    /// Measured records over the time from first to last receipt.
    pub throughput_rows_per_s: f64,
    /// How late the generator itself was; part of every latency above.
    pub generator_late_p50_ms: f64,
    /// The same.
    pub generator_late_p99_ms: f64,
    /// Processor time of the system under test in the measured seconds.
    pub cpu_seconds: f64,
    /// The most memory the system under test had in RAM.
    pub peak_rss_mb: f64,
    /// Processor time of all brokers in the measured seconds, what generator and meter cost them
    /// included; `None` for brokers that the benchmark did not start.
    pub broker_cpu_seconds: Option<f64>,
}

/// What a line of a table says of a round.
#[derive(Clone, Copy, Debug)]
pub struct Shown {
    /// Receipt minus the time a record was due.
    pub latency: Quantiles,
    /// Records that never came.
    pub missing: u64,
    /// Receipts beyond a record's first.
    pub duplicated: u64,
    /// Processor time in the measured seconds.
    pub cpu_seconds: f64,
    /// The most memory, units of 1,000,000 bytes.
    pub peak_rss_mb: f64,
}

impl RoundOutcome {
    /// What a line of a table says of it.
    pub fn shown(&self) -> Shown {
        let Self { latency, missing, duplicated, cpu_seconds, peak_rss_mb, .. } = *self;
        Shown { latency, missing, duplicated, cpu_seconds, peak_rss_mb }
    }
}

/// Where rounds are run.
pub struct Stage<'a> {
    env: &'a Env,
    clock: Clock,
    work: &'a WorkDirectory,
    broker: &'a Broker,
}

impl<'a> Stage<'a> {
    /// Rounds on `broker`, with files in `work`.
    pub fn new(env: &'a Env, work: &'a WorkDirectory, broker: &'a Broker) -> Self {
        Self { env, clock: Clock::new(env), work, broker }
    }

    /// Runs `system` under `load`.
    ///
    /// `label` names the round among all on this stage. Rounds with the same `round` number send
    /// the same schedule.
    pub fn run(
        &self,
        system: &dyn SystemUnderTest,
        load: Load,
        label: &str,
        round: u32,
    ) -> Result<RoundOutcome, Error> {
        self.between_topics(label, load.partitions, |route, directory| {
            self.measure(system, load, round, route, directory)
        })
    }

    /// Does something between two new topics, with a directory for files. The topics are deleted
    /// afterwards.
    pub fn between_topics<T>(
        &self,
        label: &str,
        partitions: i32,
        work: impl FnOnce(Route<'_>, &Path) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let name = format!("bench-{}-{label}", std::process::id());
        let (from, to) = (format!("{name}-in"), format!("{name}-out"));
        self.broker.create(&from, partitions, &[])?;
        self.broker.create(&to, partitions, &[])?;
        let directory = self.work.subdirectory(&name)?;
        let route = Route { brokers: &self.broker.address, from: &from, to: &to };
        let outcome = work(route, &directory);
        self.broker.delete(&[&from, &to])?;
        outcome
    }

    /// Has the relay carry records before anything is measured, for so many seconds. A broker that
    /// has just started interprets its code, and the first round would be about that.
    pub fn warm_brokers_up(
        &self,
        seconds: u64,
        load: Load,
        transactions: bool,
    ) -> Result<(), Error> {
        let kind = if transactions { "transactional" } else { "plain" };
        self.warm_up_through(&Relay { transactions }, &format!("{kind} relay"), seconds, load)
    }

    /// The same with another system: what its requests have in them that the relay's have not is
    /// code of the brokers, too, which would be compiled while its first round is measured.
    pub fn warm_up_through(
        &self,
        system: &dyn SystemUnderTest,
        name: &str,
        seconds: u64,
        load: Load,
    ) -> Result<(), Error> {
        if seconds == 0 {
            return Ok(());
        }
        eprintln!("warming up: {seconds} s at {WARMUP_RATE}/s through the {name}");
        let load = Load { rate: WARMUP_RATE, seconds, warmup: 0, ..load };
        let label = format!("warmup-{}", name.replace(' ', "-"));
        self.run(system, load, &label, 0).map(drop)
    }

    fn measure(
        &self,
        system: &dyn SystemUnderTest,
        load: Load,
        round: u32,
        route: Route<'_>,
        directory: &Path,
    ) -> Result<RoundOutcome, Error> {
        let env = self.env;
        let (meter, generator) = self.ends(route, load)?;
        let started = env.monotonic();
        let mut process = system.start(route, directory)?;
        self.wait_until_ready(load.partitions, &generator, &meter, &mut process)?;
        let started_in = env.monotonic() - started;
        std::thread::sleep(SETTLE);

        let start_us = self.clock.now_us() + 1_000;
        let warmup_us = i64::try_from(load.warmup * 1_000_000).expect("a warm-up ends");
        let seconds = load.warmup + load.seconds;
        // A schedule of its own for each rate and round, the same for every system under test.
        let seed = load.rate << 16 | u64::from(round);
        let schedule = Schedule::new(start_us, load.rate, seconds, seed);
        meter.expect(Tally::new(schedule.records(), start_us + warmup_us));
        let sending = Sending::start(env, generator, schedule);
        let (sent, used) = self.watch(sending, start_us + warmup_us, &mut process)?;
        self.wait_until_received(&meter, sent.records, &mut process)?;
        if system.ends_well() {
            system::stop(&mut process)?;
        } else {
            process.stop()?;
        }
        Ok(outcome(started_in, sent, used, meter.finish(sent.records)?))
    }

    /// The meter at the end of a route, which reads from now on, and the generator at its
    /// beginning.
    pub fn ends(&self, route: Route<'_>, load: Load) -> Result<(Meter, Generator), Error> {
        let (env, clock, Route { brokers, from, to }) = (self.env, &self.clock, route);
        let meter = Meter::start(env, clock, brokers, to, load.partitions)?;
        let generator = Generator::new(env, clock, brokers, from, load.rate, load.size)?;
        Ok((meter, generator))
    }

    /// Sends probes until one has come out of every partition.
    pub fn wait_until_ready(
        &self,
        partitions: i32,
        generator: &Generator,
        meter: &Meter,
        process: &mut Process,
    ) -> Result<(), Error> {
        let asked = self.env.monotonic();
        let mut probed_at = None;
        loop {
            let through = meter.probed();
            let waiting: Vec<i32> =
                (0..partitions).filter(|partition| !through.contains(partition)).collect();
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

    /// Waits for the generator; tells what the process and the brokers used from `measured_from_us`
    /// to its end.
    fn watch(
        &self,
        sending: Sending,
        measured_from_us: i64,
        process: &mut Process,
    ) -> Result<(Sent, Used), Error> {
        let mut before = None;
        loop {
            if before.is_none() && self.clock.now_us() >= measured_from_us {
                before = Some(self.used(process));
            }
            if let Some(sent) = sending.wait(LOOK_AGAIN) {
                return Ok((sent?, self.used(process).since(&before.unwrap_or_default())));
            }
            process.check()?;
        }
    }

    fn used(&self, process: &Process) -> Used {
        Used { system: process.usage(), broker_cpu_seconds: self.broker.cpu_seconds() }
    }

    /// Waits until every record has come or none comes any more.
    pub fn wait_until_received(
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
}

/// What was used of the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Used {
    system: Usage,
    broker_cpu_seconds: Option<f64>,
}

impl Used {
    /// What was used since `before`. Memory stays the most there ever was.
    fn since(self, before: &Self) -> Self {
        let cpu_seconds = self.system.cpu_seconds - before.system.cpu_seconds;
        let broker_before = before.broker_cpu_seconds.unwrap_or_default();
        let broker_cpu_seconds = self.broker_cpu_seconds.map(|after| after - broker_before);
        Self { system: Usage { cpu_seconds, ..self.system }, broker_cpu_seconds }
    }
}

fn outcome(started_in: Duration, sent: Sent, used: Used, measured: Measured) -> RoundOutcome {
    RoundOutcome {
        start_ms: u64::try_from(started_in.as_millis()).unwrap_or(u64::MAX),
        records: measured.records,
        missing: measured.missing,
        duplicated: measured.duplicated,
        foreign: measured.foreign,
        latency: measured.latency,
        throughput_rows_per_s: report::rounded(measured.throughput_rows_per_s, 1),
        generator_late_p50_ms: sent.late.p50_ms,
        generator_late_p99_ms: sent.late.p99_ms,
        cpu_seconds: report::rounded(used.system.cpu_seconds, 2),
        peak_rss_mb: report::rounded(used.system.peak_rss_mb, 1),
        broker_cpu_seconds: used.broker_cpu_seconds.map(|seconds| report::rounded(seconds, 2)),
    }
}

/// Medians over rounds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Medians {
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
    /// Of the rounds' p99, so that a reader sees the spread.
    pub p99_ms_min: f64,
    pub p99_ms_max: f64,
    pub max_ms: f64,
    pub throughput_rows_per_s: f64,
    pub cpu_seconds: f64,
    pub peak_rss_mb: f64,
    /// `None` for brokers that the benchmark did not start.
    pub broker_cpu_seconds: Option<f64>,
}

impl Medians {
    /// `None` without a round.
    pub fn of<'o>(outcomes: impl Iterator<Item = &'o RoundOutcome> + Clone) -> Option<Self> {
        outcomes.clone().next()?;
        let of = |value: fn(&RoundOutcome) -> f64| {
            report::rounded(report::median(outcomes.clone().map(value)), 3)
        };
        let p99 = outcomes.clone().map(|outcome| outcome.latency.p99_ms);
        let of_brokers: Option<Vec<f64>> =
            outcomes.clone().map(|outcome| outcome.broker_cpu_seconds).collect();
        Some(Self {
            p50_ms: of(|outcome| outcome.latency.p50_ms),
            p99_ms: of(|outcome| outcome.latency.p99_ms),
            p999_ms: of(|outcome| outcome.latency.p999_ms),
            p99_ms_min: p99.clone().fold(f64::INFINITY, f64::min),
            p99_ms_max: p99.fold(0.0, f64::max),
            max_ms: of(|outcome| outcome.latency.max_ms),
            throughput_rows_per_s: of(|outcome| outcome.throughput_rows_per_s),
            cpu_seconds: of(|outcome| outcome.cpu_seconds),
            peak_rss_mb: of(|outcome| outcome.peak_rss_mb),
            broker_cpu_seconds: of_brokers
                .map(|seconds| report::rounded(report::median(seconds), 2)),
        })
    }
}

/// The heading of a table of rounds. Names have `width` characters.
pub fn table_head(width: usize) -> String {
    format!(
        "{:>8}    {:<width$}{:>6} {:>9} {:>9} {:>9} {:>9} {:>9} {:>8} {:>8} {:>7} {:>8}",
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

/// A line below it.
pub fn table_row(name: &str, width: usize, rate: u64, round: u32, shown: &Shown) -> String {
    let latency = &shown.latency;
    format!(
        "{rate:>8}/s  {name:<width$}{round:>6} {:>9.2} {:>9.2} {:>9.2} {:>9.2} {:>9.2} {:>8} {:>8} \
         {:>7.2} {:>8.1}",
        latency.p50_ms,
        latency.p90_ms,
        latency.p99_ms,
        latency.p999_ms,
        latency.max_ms,
        shown.missing,
        shown.duplicated,
        shown.cpu_seconds,
        shown.peak_rss_mb
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_that_of_the_measured_seconds_and_memory_the_most_ever() {
        let used = |cpu_seconds, peak_rss_mb, broker_cpu_seconds| Used {
            system: Usage { cpu_seconds, peak_rss_mb },
            broker_cpu_seconds,
        };
        let since = used(5.0, 80.0, Some(9.0)).since(&used(3.0, 70.0, Some(4.0)));
        assert_eq!(since, used(2.0, 80.0, Some(5.0)));
        let beside_another = used(5.0, 80.0, None).since(&used(3.0, 70.0, None));
        assert_eq!(beside_another.broker_cpu_seconds, None);
    }
}

//! `millstream-bench recovery`: what a rare entry of progress costs when the process dies.
//!
//! Records go from topic to topic through the engine, at least once, with asynchronous progress
//! tracking, which writes an entry at most once in an interval. At a random moment the process is
//! ended by `kill -9`, and a moment later started again, as by a supervisor. What it had done since
//! the last entry it does again, so the output has these records twice, and what became due
//! meanwhile has to wait. A meter of the output tells
//!
//! - `rows_again`: records that came more than once. What was processed again and had not come out
//!   before the kill is not among them, as no reader notices it;
//! - `first_ms`: from the kill to the first record that had not come before;
//! - `caught_up_ms`: from the kill until all records had come that were due so many milliseconds
//!   ago (`--behind`).
//!
//! The moment is drawn from as long a time as the interval has, at least a second, so that the age
//! of the last entry is as likely to be short as long. The figures are those of one kill; the
//! medians are over `--repeat` of them, in turns with the other intervals.

mod backlog;

use std::path::Path;
use std::time::Duration;

use millstream_store::env::{Env, Rng as _, SeededRng};
use millstream_testkit::program::Process;
use serde::Serialize;

use self::backlog::{Backlog, Supply};
use crate::broker::Broker;
use crate::clock::Clock;
use crate::engine::{EngineOptions, Millstream};
use crate::error::Error;
use crate::meter::{Meter, Tally};
use crate::report::{self, Report};
use crate::round::{Load, Stage};
use crate::schedule::Schedule;
use crate::sending::Sending;
use crate::system::{self, Route, SystemUnderTest as _};
use crate::turns;
use crate::work_directory::WorkDirectory;

const TRACKING: (&str, &str) = ("asyncProgressTrackingEnabled", "true");
const INTERVAL: &str = "asyncProgressTrackingCheckpointIntervalMs";
/// From which the moment of a kill is drawn at least, microseconds.
const DRAWN_FROM_MIN_US: u64 = 1_000_000;
/// How long records go on to come after the kill, seconds. A backlog that takes longer is caught up
/// when the last of them has come.
const AFTER_S: u64 = 120;
/// From catching up to the end: what is read again must have come, too.
const GO_ON: Duration = Duration::from_secs(1);
/// How long nothing may come after a restart before the run fails.
const SILENCE_MAX: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Flags of `millstream-bench recovery`.
#[derive(Debug, clap::Args)]
pub struct Flags {
    /// Milliseconds from one entry of progress to the next; several are measured in turns, 0 is an
    /// entry for each micro-batch
    #[arg(long, value_delimiter = ',', default_value = "100,1000,10000,60000", value_name = "MS")]
    interval: Vec<u64>,
    /// Records a second
    #[arg(long, default_value_t = 10_000)]
    rate: u64,
    /// Bytes of a record's value
    #[arg(long, default_value_t = 100)]
    size: usize,
    /// Partitions of both topics
    #[arg(long, default_value_t = 4)]
    partitions: i32,
    /// Seconds before the process is ended at the earliest
    #[arg(long, default_value_t = 5)]
    warmup: u64,
    /// How long it stays ended, in ms
    #[arg(long, default_value_t = 100, value_name = "MS")]
    down: u64,
    /// How old what is missing may be where all is caught up, in ms
    #[arg(long, default_value_t = 100, value_name = "MS")]
    behind: u64,
    /// Kills at each interval
    #[arg(long, default_value_t = 5)]
    repeat: u32,
    /// A broker that is running already, HOST:PORT; otherwise Apache Kafka is started
    #[arg(long, value_name = "HOST:PORT")]
    brokers: Option<String>,
    /// Option of the engine: `source.NAME=V` stands in the pipeline's source table, anything else
    /// is handed to `run --set`
    #[arg(long, value_name = "K=V")]
    engine_option: Vec<String>,
}

/// What is the same in all kills at an interval.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Setup {
    interval_ms: u64,
    rate: u64,
    size: usize,
    partitions: i32,
    down_ms: u64,
    behind_ms: u64,
    engine_options: Vec<String>,
}

/// One kill.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Recovered {
    /// From the first record to the kill.
    killed_after_ms: f64,
    rows_again: u64,
    /// How long it takes until so many are due.
    again_ms: f64,
    first_ms: f64,
    caught_up_ms: f64,
    /// The most records that were due and had not come.
    backlog_rows: u64,
    records: u64,
    missing: u64,
}

#[derive(Clone, Debug, Serialize)]
struct Line<'a> {
    round: u32,
    #[serde(flatten)]
    setup: &'a Setup,
    #[serde(flatten)]
    recovered: Recovered,
}

/// Medians over the kills at an interval, and the worst.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Summary {
    #[serde(flatten)]
    setup: Setup,
    rounds: usize,
    missing: u64,
    rows_again: f64,
    again_ms: f64,
    first_ms: f64,
    caught_up_ms: f64,
    again_ms_max: f64,
    caught_up_ms_max: f64,
    backlog_rows: f64,
}

/// Runs the whole benchmark. True if no record was lost.
pub fn run(env: &Env, flags: &Flags) -> Result<bool, Error> {
    flags.check()?;
    let options = EngineOptions::parse(&flags.engine_option)?;
    let work = WorkDirectory::create()?;
    let broker = Broker::of(&work, flags.brokers.as_deref())?;
    let stage = Stage::new(env, &work, &broker);
    let bench = Bench { env, clock: Clock::new(env), flags, options, stage };
    let report = Report::new("recovery", Some(&broker));
    eprintln!("{}", table_head());
    let mut kills: Vec<(u64, Recovered)> = Vec::new();
    for round in 1..=flags.repeat {
        for interval_ms in turns::of_round(&flags.interval, round) {
            let recovered = bench.kill(interval_ms, round)?;
            let setup = flags.setup(interval_ms);
            report.line("round", &Line { round, setup: &setup, recovered })?;
            eprintln!("{}", table_row(interval_ms, round, recovered));
            kills.push((interval_ms, recovered));
        }
    }
    for &interval_ms in &flags.interval {
        let of_it = kills.iter().filter(|(of, _)| *of == interval_ms);
        let of_it: Vec<_> = of_it.map(|(_, recovered)| *recovered).collect();
        let summary = Summary::of(flags.setup(interval_ms), &of_it);
        report.line("summary", &summary)?;
        eprintln!(
            "an entry each {interval_ms} ms: {:.0} ms of records again, caught up after {:.0} ms",
            summary.again_ms, summary.caught_up_ms
        );
    }
    Ok(kills.iter().all(|(_, recovered)| recovered.missing == 0))
}

impl Flags {
    fn check(&self) -> Result<(), Error> {
        if self.repeat == 0 {
            return Err(Error::Flags { problem: "--repeat must be at least 1".to_owned() });
        }
        let mut intervals = self.interval.clone();
        intervals.sort_unstable();
        intervals.dedup();
        if intervals.len() != self.interval.len() {
            let problem = "--interval: name each interval once".to_owned();
            return Err(Error::Flags { problem });
        }
        Load { seconds: AFTER_S, ..self.load() }.check()
    }

    fn load(&self) -> Load {
        let Self { rate, size, partitions, warmup, .. } = *self;
        Load { rate, size, partitions, seconds: 0, warmup }
    }

    fn setup(&self, interval_ms: u64) -> Setup {
        Setup {
            interval_ms,
            rate: self.rate,
            size: self.size,
            partitions: self.partitions,
            down_ms: self.down,
            behind_ms: self.behind,
            engine_options: self.engine_option.clone(),
        }
    }
}

struct Bench<'a> {
    env: &'a Env,
    clock: Clock,
    flags: &'a Flags,
    options: EngineOptions,
    stage: Stage<'a>,
}

impl Bench<'_> {
    /// Runs until it is killed, and again until it has caught up.
    fn kill(&self, interval_ms: u64, round: u32) -> Result<Recovered, Error> {
        let label = format!("recovery-{interval_ms}-{round}");
        let partitions = self.flags.partitions;
        self.stage.between_topics(&label, partitions, |route, directory| {
            self.measure(interval_ms, round, route, directory)
        })
    }

    fn measure(
        &self,
        interval_ms: u64,
        round: u32,
        route: Route<'_>,
        directory: &Path,
    ) -> Result<Recovered, Error> {
        let load = self.flags.load();
        let engine = Millstream { options: with_interval(&self.options, interval_ms) };
        let (meter, generator) = self.stage.ends(route, load)?;
        let mut process = engine.start(route, directory)?;
        self.stage.wait_until_ready(load.partitions, &generator, &meter, &mut process)?;

        let killed_after_us = load.warmup * 1_000_000 + drawn_us(interval_ms, round);
        let seconds = killed_after_us.div_ceil(1_000_000) + AFTER_S;
        let start_us = self.clock.now_us() + 1_000;
        let schedule = Schedule::new(start_us, load.rate, seconds, u64::from(round));
        let supply = Supply { start_us, rate: load.rate, records: schedule.records() };
        meter.expect(Tally::new(schedule.records(), start_us));
        let sending = Sending::start(self.env, generator, schedule);
        self.run_until(start_us + micros(killed_after_us), &mut process)?;
        let killed_us = self.clock.now_us();
        // Which ends it by SIGKILL.
        drop(process);
        std::thread::sleep(Duration::from_millis(self.flags.down));
        let mut backlog = Backlog::new(supply, micros(self.flags.behind * 1_000), meter.distinct());
        let mut process = engine.start(route, directory)?;
        self.watch(&mut backlog, &meter, &mut process)?;
        std::thread::sleep(GO_ON);
        let sent = sending.finish()?;
        self.stage.wait_until_received(&meter, sent.records, &mut process)?;
        system::stop(&mut process)?;
        let measured = meter.finish(sent.records)?;
        let seen = backlog.seen();
        let since_ms = |at_us: Option<i64>| ms(at_us.expect("it has caught up") - killed_us);
        Ok(Recovered {
            killed_after_ms: ms(killed_us - start_us),
            rows_again: measured.duplicated,
            again_ms: again_ms(measured.duplicated, load.rate),
            first_ms: since_ms(seen.first_us),
            caught_up_ms: since_ms(seen.caught_up_us),
            backlog_rows: seen.rows_max,
            records: sent.records,
            missing: measured.missing,
        })
    }

    /// Waits for a moment. Errors if the process ends before.
    fn run_until(&self, at_us: i64, process: &mut Process) -> Result<(), Error> {
        while self.clock.now_us() < at_us {
            process.check()?;
            std::thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }

    /// Waits until all is caught up. Errors if nothing comes for long.
    fn watch(
        &self,
        backlog: &mut Backlog,
        meter: &Meter,
        process: &mut Process,
    ) -> Result<(), Error> {
        let mut last = (meter.distinct(), self.env.monotonic());
        loop {
            let received = meter.distinct();
            backlog.see(received, self.clock.now_us());
            if backlog.seen().caught_up_us.is_some() {
                return Ok(());
            }
            process.check()?;
            let now = self.env.monotonic();
            if received != last.0 {
                last = (received, now);
            } else if now - last.1 > SILENCE_MAX {
                return Err(system::behind(process, SILENCE_MAX));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }
}

impl Summary {
    fn of(setup: Setup, kills: &[Recovered]) -> Self {
        let median = |value: fn(&Recovered) -> f64| {
            report::rounded(report::median(kills.iter().map(value)), 1)
        };
        let most = |value: fn(&Recovered) -> f64| kills.iter().map(value).fold(0.0, f64::max);
        Self {
            setup,
            rounds: kills.len(),
            missing: kills.iter().map(|kill| kill.missing).sum(),
            rows_again: median(|kill| kill.rows_again as f64),
            again_ms: median(|kill| kill.again_ms),
            first_ms: median(|kill| kill.first_ms),
            caught_up_ms: median(|kill| kill.caught_up_ms),
            again_ms_max: most(|kill| kill.again_ms),
            caught_up_ms_max: most(|kill| kill.caught_up_ms),
            backlog_rows: median(|kill| kill.backlog_rows as f64),
        }
    }
}

/// What the engine is given at an interval; what the user has given stands behind it and counts.
fn with_interval(given: &EngineOptions, interval_ms: u64) -> EngineOptions {
    let interval = interval_ms.to_string();
    let own = [TRACKING, (INTERVAL, interval.as_str())];
    let own = own.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let set = own.into_iter().chain(given.set.iter().cloned()).collect();
    EngineOptions { set, ..given.clone() }
}

/// When the process is ended, microseconds behind the warm-up.
fn drawn_us(interval_ms: u64, round: u32) -> u64 {
    let rng = SeededRng::new(interval_ms << 16 | u64::from(round));
    rng.next_u64() % (interval_ms * 1_000).max(DRAWN_FROM_MIN_US)
}

/// Records as the time in which they become due, in ms.
fn again_ms(rows: u64, rate: u64) -> f64 {
    report::rounded(rows as f64 * 1_000.0 / rate as f64, 1)
}

fn micros(time: u64) -> i64 {
    i64::try_from(time).expect("a run is shorter than an age")
}

fn ms(time_us: i64) -> f64 {
    report::rounded(time_us as f64 / 1_000.0, 1)
}

fn table_head() -> String {
    format!(
        "{:>12} {:>6} {:>15} {:>11} {:>9} {:>10} {:>13} {:>9} {:>8}",
        "entry each",
        "round",
        "killed after ms",
        "rows again",
        "again ms",
        "first ms",
        "caught up ms",
        "backlog",
        "missing"
    )
}

fn table_row(interval_ms: u64, round: u32, recovered: Recovered) -> String {
    let interval = format!("{interval_ms} ms");
    format!(
        "{interval:>12} {round:>6} {:>15.0} {:>11} {:>9.0} {:>10.0} {:>13.0} {:>9} {:>8}",
        recovered.killed_after_ms,
        recovered.rows_again,
        recovered.again_ms,
        recovered.first_ms,
        recovered.caught_up_ms,
        recovered.backlog_rows,
        recovered.missing
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_moment_is_within_the_interval_and_another_in_each_round() {
        for interval_ms in [0, 100, 1_000, 60_000] {
            let moments: Vec<_> = (1..=100).map(|round| drawn_us(interval_ms, round)).collect();
            let span_us = (interval_ms * 1_000).max(DRAWN_FROM_MIN_US);
            assert!(moments.iter().all(|moment| *moment < span_us), "{interval_ms}");
            // A hundred draws lie in both halves.
            let late = moments.iter().filter(|moment| **moment >= span_us / 2).count();
            assert!((20..=80).contains(&late), "{interval_ms}: {late}");
            assert_eq!(moments[0], drawn_us(interval_ms, 1));
        }
    }

    #[test]
    fn the_engine_is_told_of_the_interval_and_knows_the_options() {
        let given = EngineOptions::parse(&["logPurge=blocking".to_owned()]).expect("it is right");
        let options = with_interval(&given, 100);
        let names: Vec<_> = options.set.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(names, ["asyncProgressTrackingEnabled", INTERVAL, "logPurge"]);
        assert_eq!(options.set[1].1, "100");
        let known = millstream_engine::pipeline::WRITER_OPTIONS.to_vec();
        assert!(names.iter().all(|name| known.contains(name)), "{names:?}");
    }

    #[test]
    fn a_summary_has_the_medians_and_the_worst() {
        let kill = |rows_again, caught_up_ms| Recovered {
            killed_after_ms: 1.0,
            rows_again,
            again_ms: again_ms(rows_again, 2_000),
            first_ms: 300.0,
            caught_up_ms,
            backlog_rows: 40,
            records: 9,
            missing: 0,
        };
        let setup = Setup {
            interval_ms: 1_000,
            rate: 2_000,
            size: 100,
            partitions: 4,
            down_ms: 100,
            behind_ms: 100,
            engine_options: Vec::new(),
        };
        let summary = Summary::of(setup, &[kill(500, 420.0), kill(3_000, 900.0), kill(900, 450.0)]);
        assert_eq!((summary.rows_again, summary.again_ms), (900.0, 450.0));
        assert_eq!((summary.caught_up_ms, summary.caught_up_ms_max), (450.0, 900.0));
        assert_eq!((summary.again_ms_max, summary.missing, summary.rounds), (1_500.0, 0, 3));
        let line = serde_json::to_value(&summary).expect("plain values");
        assert_eq!(line["interval_ms"], 1_000);
        assert_eq!(line["again_ms"], 450.0);
    }
}

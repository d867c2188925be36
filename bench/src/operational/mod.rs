//! `millstream-bench operational`: the latency of alerts.
//!
//! Four small pipelines read events from a topic. Each looks for those that its users need to know
//! of, and sends alerts in the way that they need ([`Case`]): a surge of traffic from one source,
//! found by counting in windows; personal data in logs; an emergency in an elevator, whose building
//! is looked up; a generator that is too hot. Events come at a fixed rate, most of them ordinary.
//!
//! Latency is measured from outside: from the moment at which the event that causes an alert was
//! due, until the receiver has the alert, which is a request by HTTP, a mail or a record that is
//! committed. An event of a surge is the request with which the source reaches the threshold. Each
//! alert has to come: `missing` and `foreign` fail the run.

mod alerts;
mod case;
mod events;
mod inbox;
mod mail;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use millstream_store::env::Env;
use millstream_testkit::program::{Process, Usage};
use parking_lot::Mutex;
use rdkafka::producer::BaseRecord;
use serde::Serialize;

use self::alerts::{Alerts, Received};
use self::case::{Case, Place, Target};
use self::events::{Event, Events};
use self::inbox::Inbox;
use crate::clock::Clock;
use crate::error::Error;
use crate::quantiles::{Latencies, Quantiles};
use crate::report::{self, Report};
use crate::schedule::Schedule;
use crate::sender::Sender;
use crate::testbed::{TestBed, TopicFlags};
use crate::{engine, system};

/// From the start of the process until an alert about each partition has come.
const READY_LIMIT: Duration = Duration::from_secs(120);
/// After the last event, how long an alert may take before it counts as lost.
const SILENCE_MAX: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// From the first alerts to the measurement.
const SETTLE_US: i64 = 500_000;
const SECOND_US: i64 = 1_000_000;

/// Flags of `millstream-bench operational`.
#[derive(Debug, clap::Args)]
pub struct Flags {
    #[command(flatten)]
    topic: TopicFlags,
    /// Which cases; all of them if not given
    #[arg(long, value_enum, value_delimiter = ',')]
    case: Vec<Case>,
    /// Events a second
    #[arg(long, default_value_t = 1_000)]
    rate: u64,
    /// One event in so many causes an alert; of a surge the rate alone decides
    #[arg(long, default_value_t = 100)]
    share: u64,
    /// Seconds measured in each round
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Seconds at the same rate before that
    #[arg(long, default_value_t = 5)]
    warmup: u64,
}

/// What is the same in all rounds of a case.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Setup {
    case: Case,
    target: Target,
    rate: u64,
    share: u64,
    seconds: u64,
    partitions: i32,
    engine_options: Vec<String>,
}

/// One round.
#[derive(Clone, Debug, Serialize)]
struct Line {
    round: u32,
    #[serde(flatten)]
    setup: Setup,
    /// Alerts that latency was measured on.
    alerts: u64,
    missing: u64,
    repeated: u64,
    foreign: u64,
    #[serde(flatten)]
    latency: Quantiles,
    /// How late the generator itself was; part of every latency.
    generator_late_p50_ms: f64,
    generator_late_p99_ms: f64,
    cpu_seconds: f64,
    peak_rss_mb: f64,
}

/// Medians over the rounds of a case.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Summary {
    #[serde(flatten)]
    setup: Setup,
    rounds: usize,
    /// Of all rounds.
    alerts: u64,
    missing: u64,
    foreign: u64,
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
    cpu_seconds: f64,
}

/// Runs all rounds. True if every alert came, and nothing else.
pub fn run(env: &Env, flags: &Flags) -> Result<bool, Error> {
    flags.check()?;
    let testbed = TestBed::open(env, "operational", &flags.topic)?;
    let report = Report::new("operational", Some(&testbed.broker));
    let bench = Bench { clock: Clock::new(env), testbed: &testbed, flags };
    eprintln!("{}", table_head());
    let mut lines: Vec<Line> = Vec::new();
    for round in 1..=flags.topic.repeat {
        for case in flags.cases() {
            let line = bench.round(case, round)?;
            report.line("round", &line)?;
            eprintln!("{}", table_row(&line));
            lines.push(line);
        }
    }
    for case in flags.cases() {
        let of_it: Vec<_> = lines.iter().filter(|line| line.setup.case == case).collect();
        report.line("summary", &Summary::of(flags.setup(case), &of_it))?;
    }
    Ok(lines.iter().all(|line| line.missing == 0 && line.foreign == 0))
}

impl Flags {
    fn check(&self) -> Result<(), Error> {
        let problem = if self.rate == 0 || self.seconds == 0 || self.share == 0 {
            "--rate, --seconds and --share must be at least 1"
        } else if self.case.iter().enumerate().any(|(at, case)| self.case[..at].contains(case)) {
            "--case: name each case once"
        } else {
            return Ok(());
        };
        Err(Error::Flags { problem: problem.to_owned() })
    }

    fn cases(&self) -> Vec<Case> {
        if self.case.is_empty() { Case::value_variants().to_vec() } else { self.case.clone() }
    }

    fn setup(&self, case: Case) -> Setup {
        Setup {
            case,
            target: case.target(),
            rate: self.rate,
            share: self.share,
            seconds: self.seconds,
            partitions: self.topic.partitions,
            engine_options: self.topic.engine_option.clone(),
        }
    }
}

struct Bench<'a> {
    clock: Clock,
    testbed: &'a TestBed,
    flags: &'a Flags,
}

impl Bench<'_> {
    fn round(&self, case: Case, round: u32) -> Result<Line, Error> {
        let (testbed, label) = (self.testbed, format!("{}-{round}", report::name(&case)));
        testbed.with_topic(&label, self.flags.topic.partitions, |input| {
            testbed.with_topic(&format!("{label}-alerts"), 1, |output| {
                testbed.with_directory(&label, |directory| {
                    self.measure(case, round, (input, output), directory)
                })
            })
        })
    }

    fn measure(
        &self,
        case: Case,
        round: u32,
        (input, output): (&str, &str),
        directory: &Path,
    ) -> Result<Line, Error> {
        let (testbed, Flags { rate, share, .. }) = (self.testbed, self.flags);
        let (env, broker) = (&testbed.env, &testbed.broker);
        let alerts = Arc::new(Mutex::new(Alerts::new()));
        let inbox = Inbox::open(env, &self.clock, broker, output, case, &alerts)?;
        let options = inbox.options();
        let receiver = options.iter().map(|(key, value)| (*key, value.as_str())).collect();
        let source = testbed.source(input);
        let place = Place { source: &source, receiver, directory };
        let pipeline = case.pipeline(&place)?;
        let sender = Sender::new(env, &self.clock, &broker.address, input, *rate)?;
        let events = Events::new(case, *rate, *share);
        let mut feed = Feed { sender, events, alerts: Arc::clone(&alerts) };
        let mut process = engine::start(&pipeline, &testbed.options, directory)?;
        self.wait_until_ready(&mut feed, &inbox, &mut process)?;
        let (late, used) = self.send(&mut feed, round, &mut process)?;
        self.wait_for_alerts(&alerts, &inbox, SILENCE_MAX, &mut process)?;
        system::stop(&mut process)?;
        inbox.check()?;
        let received = alerts.lock().received();
        Ok(line(self.flags.setup(case), round, received, late, used))
    }

    /// Sends what makes an alert into each partition, and waits until these have come.
    fn wait_until_ready(
        &self,
        feed: &mut Feed,
        inbox: &Inbox,
        process: &mut Process,
    ) -> Result<(), Error> {
        for partition in 0..self.flags.topic.partitions {
            let now_us = self.clock.now_us();
            for event in feed.events.probe(partition, now_us) {
                feed.send(&event, now_us, Some(partition))?;
            }
        }
        feed.sender.flush()?;
        let alerts = Arc::clone(&feed.alerts);
        self.wait_for_alerts(&alerts, inbox, READY_LIMIT, process)?;
        if alerts.lock().missing() > 0 {
            return Err(system::behind(process, READY_LIMIT));
        }
        Ok(())
    }

    /// Sends all events; gives how late they were, and what the engine used behind the warm-up.
    fn send(
        &self,
        feed: &mut Feed,
        round: u32,
        process: &mut Process,
    ) -> Result<(Quantiles, Usage), Error> {
        let Flags { rate, seconds, warmup, .. } = *self.flags;
        let start_us = self.clock.now_us() + SETTLE_US;
        let measured_from_us =
            start_us + SECOND_US * i64::try_from(warmup).expect("a warm-up ends");
        feed.alerts.lock().measure_from(measured_from_us);
        let schedule =
            Schedule::new(start_us, rate, warmup + seconds, rate << 16 | u64::from(round));
        let (mut late, mut before) = (Latencies::new(), None);
        for due in schedule {
            feed.sender.wait_until(due.due_us);
            let event = feed.events.make(due.number, due.due_us);
            feed.send(&event, due.due_us, None)?;
            late.add(self.clock.now_us() - due.due_us);
            if due.number % rate == 0 {
                process.check()?;
            }
            if due.due_us >= measured_from_us {
                before.get_or_insert_with(|| process.usage());
            }
        }
        feed.sender.flush()?;
        let (before, after) = (before.unwrap_or_default(), process.usage());
        let cpu_seconds = after.cpu_seconds - before.cpu_seconds;
        Ok((late.quantiles(), Usage { cpu_seconds, ..after }))
    }

    /// Waits until all alerts have come, or none has for so long.
    fn wait_for_alerts(
        &self,
        alerts: &Mutex<Alerts>,
        inbox: &Inbox,
        limit: Duration,
        process: &mut Process,
    ) -> Result<(), Error> {
        let env = &self.testbed.env;
        let mut last = (alerts.lock().missing(), env.monotonic());
        while last.0 > 0 && env.monotonic() - last.1 < limit {
            process.check()?;
            inbox.check()?;
            std::thread::sleep(LOOK_AGAIN);
            let missing = alerts.lock().missing();
            if missing != last.0 {
                last = (missing, env.monotonic());
            }
        }
        Ok(())
    }
}

/// Sends events, and notes beforehand which alerts they cause.
struct Feed {
    sender: Sender,
    events: Events,
    alerts: Arc<Mutex<Alerts>>,
}

impl Feed {
    /// Into a partition, or into that of its key.
    fn send(&self, event: &Event, due_us: i64, partition: Option<i32>) -> Result<(), Error> {
        if let Some(alert) = event.alert {
            self.alerts.lock().expect(alert, due_us);
        }
        let mut record = BaseRecord::to(self.sender.topic()).key(event.key.as_str());
        record.partition = partition;
        self.sender.send(record.payload(event.value.as_bytes()))
    }
}

fn line(setup: Setup, round: u32, received: Received, late: Quantiles, used: Usage) -> Line {
    let Received { alerts, missing, repeated, foreign, latency } = received;
    Line {
        round,
        setup,
        alerts,
        missing,
        repeated,
        foreign,
        latency,
        generator_late_p50_ms: late.p50_ms,
        generator_late_p99_ms: late.p99_ms,
        cpu_seconds: report::rounded(used.cpu_seconds, 2),
        peak_rss_mb: report::rounded(used.peak_rss_mb, 1),
    }
}

impl Summary {
    fn of(setup: Setup, lines: &[&Line]) -> Self {
        let median = |value: fn(&Line) -> f64| {
            report::rounded(report::median(lines.iter().map(|line| value(line))), 3)
        };
        let sum = |value: fn(&Line) -> u64| lines.iter().map(|line| value(line)).sum::<u64>();
        Self {
            setup,
            rounds: lines.len(),
            alerts: sum(|line| line.alerts),
            missing: sum(|line| line.missing),
            foreign: sum(|line| line.foreign),
            p50_ms: median(|line| line.latency.p50_ms),
            p99_ms: median(|line| line.latency.p99_ms),
            max_ms: median(|line| line.latency.max_ms),
            cpu_seconds: median(|line| line.cpu_seconds),
        }
    }
}

fn table_head() -> String {
    format!(
        "{:<12} {:<8} {:>6} {:>9} {:>8} {:>9} {:>9} {:>9} {:>8} {:>8} {:>8} {:>7}",
        "case",
        "to",
        "round",
        "rate",
        "alerts",
        "p50 ms",
        "p99 ms",
        "max ms",
        "missing",
        "repeated",
        "foreign",
        "CPU s"
    )
}

fn table_row(line: &Line) -> String {
    let Line { setup, latency, .. } = line;
    format!(
        "{:<12} {:<8} {:>6} {:>7}/s {:>8} {:>9.2} {:>9.2} {:>9.2} {:>8} {:>8} {:>8} {:>7.2}",
        report::name(&setup.case),
        format!("{:?}", setup.target).to_lowercase(),
        line.round,
        setup.rate,
        line.alerts,
        latency.p50_ms,
        latency.p99_ms,
        latency.max_ms,
        line.missing,
        line.repeated,
        line.foreign,
        line.cpu_seconds
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup() -> Setup {
        Setup {
            case: Case::Leak,
            target: Target::Email,
            rate: 1_000,
            share: 100,
            seconds: 20,
            partitions: 4,
            engine_options: Vec::new(),
        }
    }

    fn round(p99_ms: f64, missing: u64) -> Line {
        let latency = Quantiles { p50_ms: p99_ms / 2.0, p99_ms, ..Quantiles::default() };
        let received = Received { alerts: 200, missing, repeated: 0, foreign: 0, latency };
        let used = Usage { cpu_seconds: 1.5, peak_rss_mb: 80.0 };
        line(setup(), 1, received, Quantiles::default(), used)
    }

    #[test]
    fn a_summary_has_medians_and_all_that_was_lost() {
        let rounds = [round(30.0, 0), round(50.0, 2), round(10.0, 1)];
        let summary = Summary::of(setup(), &rounds.iter().collect::<Vec<_>>());
        assert_eq!((summary.p50_ms, summary.p99_ms), (15.0, 30.0));
        assert_eq!((summary.alerts, summary.missing, summary.rounds), (600, 3, 3));
        let line = serde_json::to_value(&summary).expect("plain values");
        assert_eq!(line["case"], "leak");
        assert_eq!(line["target"], "email");
    }

    #[test]
    fn a_round_tells_its_quantiles_beside_its_setup() {
        let line = serde_json::to_value(round(30.0, 0)).expect("plain values");
        assert_eq!(line["p99_ms"], 30.0);
        assert_eq!(line["rate"], 1_000);
        assert_eq!(line["share"], 100);
    }
}

//! `millstream-bench map-only --latency`: how long a message takes from its moment until it is
//! published, at a fixed rate.

use std::path::Path;

use serde::Serialize;

use super::{Flags, System, WIDTH, found_in_table, found_in_topic, into_table, into_topic};
use crate::error::Error;
use crate::live::{Live, Load};
use crate::messages::MessagesFound;
use crate::quantiles::OfStage;
use crate::report::{self, Report};
use crate::testbed::TestBed;

/// What is published for a cluster: P50, P95 and P99 in milliseconds, all stages together.
const PUBLISHED_EXACTLY_ONCE: [f64; 3] = [800.0, 2_000.0, 2_800.0];
const PUBLISHED_AT_LEAST_ONCE: [f64; 3] = [160.0, 250.0, 410.0];

/// One result line.
#[derive(Clone, Debug, Serialize)]
struct LatencyLine {
    configuration: String,
    round: u32,
    #[serde(flatten)]
    load: Load,
    /// Of a Delta table.
    commit_interval: Option<String>,
    /// Messages that latency was measured on.
    records: u64,
    /// From the moment a message was due until the sink had acknowledged it.
    #[serde(flatten)]
    latency: OfStage,
    surplus_rows: i64,
}

/// Medians of a system's rounds, beside what is published.
#[derive(Clone, Debug, Serialize)]
struct Summary {
    configuration: String,
    rounds: usize,
    rate: u64,
    p50_ms: f64,
    p95_ms: f64,
    p99_ms: f64,
    published_p50_ms: f64,
    published_p95_ms: f64,
    published_p99_ms: f64,
}

/// Runs all rounds. True if every message was written once in every round.
pub fn run(flags: &Flags, testbed: &TestBed, report: &Report) -> Result<bool, Error> {
    let interval = &flags.live.commit_interval;
    if flags.systems().all(|system| system == System::Client) {
        let problem = "--latency: the client alone publishes nothing; choose another with --only";
        return Err(Error::Flags { problem: problem.to_owned() });
    }
    eprintln!("{} messages/s; the table commits every {interval}", flags.live.rate);
    eprintln!("{}", table_head());
    let systems = || flags.systems().filter(|system| *system != System::Client);
    let mut lines = Vec::new();
    for round in 1..=flags.topic.repeat {
        for system in systems() {
            let line = Round { flags, testbed, system, round }.run()?;
            report.line("latency", &line)?;
            eprintln!("{}", table_row(&line));
            lines.push(line);
        }
    }
    for system in systems() {
        let summary = summary(system, flags.live.rate, &lines);
        report.line("summary", &summary)?;
        eprintln!("{}", beside_published(&summary));
    }
    Ok(lines.iter().all(|line| line.surplus_rows == 0))
}

struct Round<'a> {
    flags: &'a Flags,
    testbed: &'a TestBed,
    system: System,
    round: u32,
}

impl Round<'_> {
    fn run(&self) -> Result<LatencyLine, Error> {
        let label = format!("{}-{}", report::name(&self.system), self.round);
        let (testbed, partitions) = (self.testbed, self.flags.topic.partitions);
        testbed.with_topic(&format!("{label}-live"), partitions, |input| {
            testbed.with_directory(&label, |directory| match self.system {
                System::Client | System::Delta => {
                    let table = directory.join("table");
                    let source = testbed.source(input);
                    let gather = [("commitInterval", self.flags.live.commit_interval.as_str())];
                    let pipeline = into_table(&source, &table, &gather);
                    self.measure(input, &pipeline, directory, &table, || {
                        found_in_table(&testbed.env, &table)
                    })
                }
                System::KafkaExactlyOnce | System::KafkaAtLeastOnce => {
                    testbed.with_topic(&format!("{label}-out"), partitions, |output| {
                        self.write_topic(input, output, directory)
                    })
                }
            })
        })
    }

    fn write_topic(
        &self,
        input: &str,
        output: &str,
        directory: &Path,
    ) -> Result<LatencyLine, Error> {
        let (brokers, source) = (&self.testbed.broker.address, self.testbed.source(input));
        let delivery = self.system.delivery().unwrap_or_default();
        let pipeline = into_topic(&source, brokers, output, delivery, &[]);
        self.measure(input, &pipeline, directory, Path::new(output), || {
            found_in_topic(brokers, output, self.flags.topic.partitions)
        })
    }

    fn measure(
        &self,
        input: &str,
        pipeline: &str,
        directory: &Path,
        place: &Path,
        found: impl FnOnce() -> Result<MessagesFound, Error>,
    ) -> Result<LatencyLine, Error> {
        let Self { flags, testbed, system, round } = *self;
        let live = Live {
            testbed,
            flags: &flags.live,
            topic: input,
            partitions: flags.topic.partitions,
            keys: None,
            round,
            closing: None,
        };
        let mut sent = MessagesFound::default();
        let ran = live.run(pipeline, directory, |id, _| sent.add(id))?;
        let latencies = ran.plan.latencies(&ran.told, |told| told.published_us);
        let gathers = system == System::Delta;
        Ok(LatencyLine {
            configuration: report::name(&system),
            round,
            load: ran.load(&flags.topic.engine_option),
            commit_interval: gathers.then(|| flags.live.commit_interval.clone()),
            records: latencies.count(),
            latency: latencies.of_stage(),
            surplus_rows: found()?.surplus(&sent, place)?,
        })
    }
}

fn summary(system: System, rate: u64, lines: &[LatencyLine]) -> Summary {
    let configuration = report::name(&system);
    let lines: Vec<_> = lines.iter().filter(|line| line.configuration == configuration).collect();
    let of = |value: fn(&OfStage) -> f64| {
        report::rounded(report::median(lines.iter().map(|line| value(&line.latency))), 1)
    };
    let [published_p50_ms, published_p95_ms, published_p99_ms] = match system {
        System::KafkaAtLeastOnce => PUBLISHED_AT_LEAST_ONCE,
        _ => PUBLISHED_EXACTLY_ONCE,
    };
    Summary {
        configuration,
        rounds: lines.len(),
        rate,
        p50_ms: of(|latency| latency.p50_ms),
        p95_ms: of(|latency| latency.p95_ms),
        p99_ms: of(|latency| latency.p99_ms),
        published_p50_ms,
        published_p95_ms,
        published_p99_ms,
    }
}

fn beside_published(summary: &Summary) -> String {
    format!(
        "{:<WIDTH$} p50 {:.1}, p95 {:.1}, p99 {:.1} ms (published: {}, {}, {})",
        summary.configuration,
        summary.p50_ms,
        summary.p95_ms,
        summary.p99_ms,
        summary.published_p50_ms,
        summary.published_p95_ms,
        summary.published_p99_ms
    )
}

fn table_head() -> String {
    format!(
        "{:<WIDTH$} {:>6} {:>9} {:>9} {:>9} {:>9}",
        "", "round", "p50 ms", "p95 ms", "p99 ms", "max ms"
    )
}

fn table_row(line: &LatencyLine) -> String {
    let OfStage { p50_ms, p95_ms, p99_ms, max_ms } = line.latency;
    let surplus = Some(line.surplus_rows).filter(|rows| *rows != 0);
    let surplus = surplus.map(|rows| format!("  {rows:+} rows")).unwrap_or_default();
    format!(
        "{:<WIDTH$} {:>6} {p50_ms:>9.1} {p95_ms:>9.1} {p99_ms:>9.1} {max_ms:>9.1}{surplus}",
        line.configuration, line.round
    )
}

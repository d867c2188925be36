//! `millstream-bench offset-management`: what keeping track of progress costs.
//!
//! Every configuration writes the same files in the same format; they differ in who waits for them.
//! `plain`, `async-purge`, `async-progress` and `async-both` are the four that Spark can be run in,
//! `default` is ours, `none` writes next to nothing and is the floor, and `exactly-once` puts each
//! micro-batch into a Kafka transaction. They run over two routes:
//!
//! - `rate-to-stats`: generated rows to the stats sink, the engine alone;
//! - `kafka-to-kafka`: between two topics, measured by a reader of committed records.
//!
//! The checkpoint is on local disk, or in memory with a delay before each write, as an object store
//! has it. Configurations take turns within a round, so that a slow drift of the machine meets all.

use std::fs;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use millstream_store::env::Env;
use serde::Serialize;

use crate::broker::Broker;
use crate::engine::{Delivery, EngineOptions, Millstream};
use crate::error::Error;
use crate::plot::{Chart, Sample};
use crate::quantiles::Quantiles;
use crate::rate_to_stats::{self, KEPT_UP, Measured};
use crate::report::{self, Report};
use crate::round::{Load, Stage};
use crate::work_directory::WorkDirectory;

/// Bytes of a record's value.
const RECORD_BYTES: usize = 100;
/// How close to the highest rate the search comes.
const SEARCH_FACTOR_MIN: f64 = 1.15;
const SEARCH_RATE_MAX: u64 = 64_000_000;

/// Flags of `millstream-bench offset-management`.
#[derive(Debug, clap::Args)]
pub struct Flags {
    /// Rows a second; several rates are measured one after the other
    #[arg(long, value_delimiter = ',', default_value = "100000,500000,1000000")]
    rate: Vec<u64>,
    /// Partitions of the source and of the topics
    #[arg(long, value_delimiter = ',', default_value = "1,40")]
    partitions: Vec<i32>,
    /// How long a write to the checkpoint takes, in ms; 0 means the local disk as it is
    #[arg(long, value_delimiter = ',', default_value = "0,30,100")]
    put_latency: Vec<u64>,
    /// Which routes
    #[arg(long, value_enum, value_delimiter = ',', default_value = "rate-to-stats,kafka-to-kafka")]
    route: Vec<Route>,
    /// Which configurations; all of them if not given
    #[arg(long, value_enum, value_delimiter = ',')]
    configuration: Vec<Configuration>,
    /// Seconds measured in each round
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Rounds of each measurement
    #[arg(long, default_value_t = 3)]
    repeat: u32,
    /// Also search the highest rate that the machine holds on each route
    #[arg(long)]
    highest: bool,
    /// Where to write a chart for each route, rate and number of partitions
    #[arg(long, value_name = "DIRECTORY")]
    charts: Option<PathBuf>,
    /// A broker that is running already, HOST:PORT; otherwise Apache Kafka is started
    #[arg(long, value_name = "HOST:PORT")]
    brokers: Option<String>,
}

/// Where rows come from and go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Route {
    /// Generated rows to the stats sink.
    RateToStats,
    /// Topic to topic.
    KafkaToKafka,
}

/// Who waits for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Configuration {
    /// Hardly any progress is written.
    None,
    /// Each micro-batch waits for both entries and for the deletion of old ones.
    Plain,
    /// As plain, old entries are deleted aside.
    AsyncPurge,
    /// An entry a second, not waited for; deletion is waited for.
    AsyncProgress,
    /// An entry a second, nothing is waited for.
    AsyncBoth,
    /// Entries for each micro-batch, written beside the work.
    Default,
    /// The default, with a Kafka transaction for each micro-batch.
    ExactlyOnce,
}

const BLOCKING_PROGRESS: (&str, &str) = ("progressLogging", "blocking");
const BLOCKING_PURGE: (&str, &str) = ("logPurge", "blocking");
const ASYNC: (&str, &str) = ("asyncProgressTrackingEnabled", "true");
const HARDLY_EVER: (&str, &str) = ("asyncProgressTrackingCheckpointIntervalMs", "86400000");

impl Configuration {
    fn options(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::None => &[ASYNC, HARDLY_EVER],
            Self::Plain => &[BLOCKING_PROGRESS, BLOCKING_PURGE],
            Self::AsyncPurge => &[BLOCKING_PROGRESS],
            Self::AsyncProgress => &[ASYNC, BLOCKING_PURGE],
            Self::AsyncBoth => &[ASYNC],
            Self::Default | Self::ExactlyOnce => &[],
        }
    }

    fn exists_on(self, route: Route) -> bool {
        self != Self::ExactlyOnce || route == Route::KafkaToKafka
    }
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Setup {
    route: Route,
    rate: u64,
    partitions: i32,
    put_latency_ms: u64,
    configuration: Configuration,
    seconds: u64,
}

impl Setup {
    /// Names one of its rounds, in files and topics.
    fn label(&self, round: u32) -> String {
        let Self { rate, partitions, put_latency_ms, configuration, .. } = self;
        format!("{rate}-{partitions}-{put_latency_ms}-{}-{round}", report::name(configuration))
    }
}

/// What one round of it gave.
#[derive(Clone, Copy, Debug, Serialize)]
struct OffsetManagementOutcome {
    records: u64,
    missing: u64,
    #[serde(flatten)]
    latency: Quantiles,
    throughput_rows_per_s: f64,
    /// Whether the rate asked for was reached; if not, latency grows for as long as it runs.
    kept_up: bool,
    cpu_seconds: f64,
    peak_rss_mb: f64,
}

#[derive(Serialize)]
struct OffsetManagementLine {
    round: u32,
    #[serde(flatten)]
    setup: Setup,
    #[serde(flatten)]
    result: OffsetManagementOutcome,
}

#[derive(Serialize)]
struct Highest {
    route: Route,
    partitions: i32,
    /// Rows a second that were reached, in the default configuration.
    highest_rate: u64,
}

/// Runs the whole benchmark. True if no record was lost.
pub fn run(env: &Env, flags: &Flags) -> Result<bool, Error> {
    check(flags)?;
    let work = WorkDirectory::create()?;
    let is_needed = flags.route.contains(&Route::KafkaToKafka);
    let broker = is_needed.then(|| Broker::of(&work, flags.brokers.as_deref())).transpose()?;
    let report = Report::new("offset-management", broker.as_ref());
    let bench = Bench { env, flags, broker, work, report };
    eprintln!("{}", table_head());
    let mut complete = true;
    for &route in &flags.route {
        for &partitions in &flags.partitions {
            if flags.highest {
                bench.highest(route, partitions)?;
            }
            for &rate in &flags.rate {
                complete &= bench.rate(route, partitions, rate)?;
            }
        }
    }
    Ok(complete)
}

fn check(flags: &Flags) -> Result<(), Error> {
    let zero = flags.rate.contains(&0) || flags.seconds == 0 || flags.repeat == 0;
    if zero || flags.partitions.iter().any(|partitions| *partitions < 1) {
        let problem = "--rate, --partitions, --seconds and --repeat must be at least 1".to_owned();
        return Err(Error::Flags { problem });
    }
    Ok(())
}

struct Bench<'a> {
    env: &'a Env,
    flags: &'a Flags,
    broker: Option<Broker>,
    // Behind the broker and so dropped after it: nobody writes there any more.
    work: WorkDirectory,
    report: Report,
}

impl Bench<'_> {
    /// All configurations at one rate, and their chart.
    fn rate(&self, route: Route, partitions: i32, rate: u64) -> Result<bool, Error> {
        let (mut samples, mut complete) = (Vec::new(), true);
        for &put_latency_ms in &self.flags.put_latency {
            for round in 1..=self.flags.repeat {
                for configuration in self.configurations(route) {
                    let seconds = self.flags.seconds;
                    let setup =
                        Setup { route, rate, partitions, put_latency_ms, configuration, seconds };
                    let result = self.measure(setup, round)?;
                    complete &= result.missing == 0;
                    eprintln!("{}", table_row(setup, round, result));
                    self.report.line("round", &OffsetManagementLine { round, setup, result })?;
                    samples.push(sample(setup, result));
                }
            }
        }
        if let Some(directory) = &self.flags.charts {
            draw(directory, (route, rate, partitions), &samples)?;
        }
        Ok(complete)
    }

    fn configurations(&self, route: Route) -> impl Iterator<Item = Configuration> {
        let wanted = &self.flags.configuration;
        let all = Configuration::value_variants().iter().copied();
        all.filter(move |configuration| {
            configuration.exists_on(route) && (wanted.is_empty() || wanted.contains(configuration))
        })
    }

    fn measure(&self, setup: Setup, round: u32) -> Result<OffsetManagementOutcome, Error> {
        match setup.route {
            Route::RateToStats => self.rate_to_stats(setup, round),
            Route::KafkaToKafka => self.kafka_to_kafka(setup, round),
        }
    }

    fn rate_to_stats(&self, setup: Setup, round: u32) -> Result<OffsetManagementOutcome, Error> {
        let mut options = engine_options(setup);
        options.source.push(("numPartitions".to_owned(), setup.partitions.to_string()));
        let directory = self.work.subdirectory(&format!("rate-{}", setup.label(round)))?;
        let Setup { rate, seconds, .. } = setup;
        let load = rate_to_stats::Load { rate, seconds, warm_up_intervals: 1 };
        let Measured { stats, usage, .. } =
            rate_to_stats::measure(self.env, load, &options, &directory)?;
        Ok(OffsetManagementOutcome {
            records: stats.count,
            missing: 0,
            latency: stats.latency,
            throughput_rows_per_s: report::rounded(stats.rows_per_second, 1),
            kept_up: stats.rows_per_second >= setup.rate as f64 * KEPT_UP,
            cpu_seconds: report::rounded(usage.cpu_seconds, 2),
            peak_rss_mb: report::rounded(usage.peak_rss_mb, 1),
        })
    }

    fn kafka_to_kafka(&self, setup: Setup, round: u32) -> Result<OffsetManagementOutcome, Error> {
        let broker = self.broker.as_ref().expect("it was started for this route");
        let load = Load {
            rate: setup.rate,
            size: RECORD_BYTES,
            partitions: setup.partitions,
            seconds: setup.seconds,
            warmup: setup.seconds.div_ceil(2),
        };
        let engine = Millstream { options: engine_options(setup) };
        let stage = Stage::new(self.env, &self.work, broker);
        let measured = stage.run(&engine, load, &setup.label(round), round)?;
        Ok(OffsetManagementOutcome {
            records: measured.records,
            missing: measured.missing,
            latency: measured.latency,
            throughput_rows_per_s: measured.throughput_rows_per_s,
            kept_up: measured.throughput_rows_per_s >= setup.rate as f64 * KEPT_UP,
            cpu_seconds: measured.cpu_seconds,
            peak_rss_mb: measured.peak_rss_mb,
        })
    }

    /// Searches the highest rate at which the default configuration keeps up.
    fn highest(&self, route: Route, partitions: i32) -> Result<(), Error> {
        let mut round = 0;
        let mut keeps_up = |rate: u64| -> Result<bool, Error> {
            round += 1;
            let configuration = Configuration::Default;
            let (put_latency_ms, seconds) = (0, 3);
            let setup = Setup { route, rate, partitions, put_latency_ms, configuration, seconds };
            Ok(self.measure(setup, 100 + round)?.kept_up)
        };
        let highest_rate = search_highest(&mut keeps_up)?;
        eprintln!(
            "{}, {partitions} partitions: the highest rate held is {highest_rate}/s",
            name_of(&route)
        );
        self.report.line("highest", &Highest { route, partitions, highest_rate })
    }
}

/// Doubles from 50,000 as long as the rate is held, then halves the interval.
fn search_highest(keeps_up: &mut impl FnMut(u64) -> Result<bool, Error>) -> Result<u64, Error> {
    let (mut held, mut rate) = (0, 50_000);
    while rate <= SEARCH_RATE_MAX && keeps_up(rate)? {
        held = rate;
        rate *= 2;
    }
    let mut missed = rate;
    while missed as f64 > held.max(1) as f64 * SEARCH_FACTOR_MIN && missed > 1_000 {
        let middle = held.midpoint(missed);
        if keeps_up(middle)? {
            held = middle;
        } else {
            missed = middle;
        }
    }
    Ok(held)
}

fn engine_options(setup: Setup) -> EngineOptions {
    let set = setup.configuration.options().iter();
    let set = set.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let delivery = match setup.configuration {
        Configuration::ExactlyOnce => Delivery::ExactlyOnce,
        _ => Delivery::AtLeastOnce,
    };
    let checkpoint = (setup.put_latency_ms > 0)
        .then(|| format!("memory:///?put_latency_ms={}", setup.put_latency_ms));
    EngineOptions { set, delivery, checkpoint, ..EngineOptions::default() }
}

/// Writes the chart of one route, rate and number of partitions.
fn draw(
    directory: &Path,
    (route, rate, partitions): (Route, u64, i32),
    samples: &[Sample],
) -> Result<(), Error> {
    let count = if partitions == 1 { "1 partition" } else { &format!("{partitions} partitions") };
    let title = format!("{}, {rate} rows/s, {count}", name_of(&route));
    let path = directory.join(format!("{}-{rate}-{partitions}.svg", report::name(&route)));
    fs::create_dir_all(directory).map_err(Error::file("create", directory))?;
    let svg = Chart::from_samples(title, samples).svg();
    fs::write(&path, svg).map_err(Error::file("write", &path))
}

fn sample(setup: Setup, result: OffsetManagementOutcome) -> Sample {
    let group = match setup.put_latency_ms {
        0 => "local disk".to_owned(),
        latency_ms => format!("puts of {latency_ms} ms"),
    };
    Sample {
        group: (setup.put_latency_ms, group),
        configuration: report::name(&setup.configuration),
        p50_ms: result.latency.p50_ms,
        p99_ms: result.latency.p99_ms,
    }
}

fn name_of(route: &Route) -> &'static str {
    match route {
        Route::RateToStats => "rate to stats",
        Route::KafkaToKafka => "Kafka to Kafka",
    }
}

fn table_head() -> String {
    format!(
        "{:<15}{:>9} {:>5} {:>7}  {:<15}{:>6} {:>9} {:>9} {:>9} {:>10} {:>7}",
        "route",
        "rate",
        "parts",
        "put ms",
        "",
        "round",
        "p50 ms",
        "p99 ms",
        "p99.9 ms",
        "rows/s",
        "CPU s"
    )
}

fn table_row(setup: Setup, round: u32, result: OffsetManagementOutcome) -> String {
    format!(
        "{:<15}{:>9} {:>5} {:>7}  {:<15}{:>6} {:>9.2} {:>9.2} {:>9.2} {:>10.0} {:>7.2}{}",
        report::name(&setup.route),
        setup.rate,
        setup.partitions,
        setup.put_latency_ms,
        report::name(&setup.configuration),
        round,
        result.latency.p50_ms,
        result.latency.p99_ms,
        result.latency.p999_ms,
        result.throughput_rows_per_s,
        result.cpu_seconds,
        if result.kept_up { "" } else { "  did not keep up" }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_rate_is_found() {
        for limit in [900_000_u64, 70_000, 30_000, 4_000_000] {
            let mut asked = 0;
            let found = search_highest(&mut |rate| {
                asked += 1;
                Ok(rate <= limit)
            });
            let found = found.expect("nothing fails here");
            assert!(found <= limit && found as f64 * 1.16 > limit as f64, "{limit}: {found}");
            assert!(asked < 16, "{limit}: {asked} runs");
        }
    }

    #[test]
    fn each_configuration_has_options_that_the_engine_knows() {
        let known: Vec<_> = millstream_engine::pipeline::WRITER_OPTIONS.to_vec();
        for configuration in Configuration::value_variants() {
            for (key, _) in configuration.options() {
                assert!(known.contains(key), "{configuration:?}: {key}");
            }
        }
    }
}

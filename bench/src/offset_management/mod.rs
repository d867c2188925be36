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
//! The checkpoint is on local disk, or in memory with a delay before each write, and before each
//! listing and deletion, as an object store has it. A purge consists of the latter two, so without
//! them it costs nothing wherever it runs; and nothing is deleted before a log has more entries
//! than it retains. Configurations take turns within a round, so that a slow drift of the machine
//! meets all.

mod setup;

use std::fs;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use millstream_store::env::Env;
use serde::Serialize;

use crate::broker::Broker;
use crate::engine::Millstream;
use crate::error::Error;
use crate::plot::{Chart, Sample};
use crate::quantiles::Quantiles;
use crate::rate_to_stats::{self, KEPT_UP, Measured};
use crate::report::{self, Report};
use crate::round::{Load, Stage};
use crate::work_directory::WorkDirectory;
use setup::{Configuration, Route, Setup, engine_options};

/// Bytes of a record's value.
const RECORD_BYTES: usize = 100;
/// How close to the highest rate the search comes.
const SEARCH_FACTOR_MIN: f64 = 1.15;
const SEARCH_RATE_MAX: u64 = 64_000_000;
const SEARCH_SECONDS: u64 = 3;
/// Of `minBatchesToRetain`.
const RETAIN_MIN: u64 = 2;

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
    /// How long a listing of the checkpoint takes, in ms; only where writes take some time
    #[arg(long, default_value_t = 0, value_name = "MS")]
    list_latency: u64,
    /// How long deleting entries takes, in ms, however many they are; likewise
    #[arg(long, default_value_t = 0, value_name = "MS")]
    delete_latency: u64,
    /// Entries that each log keeps (`minBatchesToRetain`); the engine's default if not given
    #[arg(long, value_name = "ENTRIES")]
    retain: Option<u64>,
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
    /// Start three brokers instead of one, with a replication factor of 3 and 2 as
    /// min.insync.replicas
    #[arg(long, conflicts_with = "brokers")]
    cluster: bool,
    /// Seconds before the first round in which the relay warms the brokers up, at 5,000 records/s;
    /// as long again with transactions, if they are measured
    #[arg(long, default_value_t = 0, value_name = "SECONDS")]
    broker_warmup: u64,
}

/// What one round of it gave.
#[derive(Clone, Copy, Debug, Serialize)]
struct OffsetManagementOutcome {
    records: u64,
    missing: u64,
    #[serde(flatten)]
    latency: Quantiles,
    throughput_rows_per_s: f64,
    /// Whether the rate asked for was reached, but for a micro-batch's wait for the checkpoint; if
    /// not, latency grows for as long as it runs.
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
    let broker = is_needed.then(|| flags.start_brokers(&work)).transpose()?;
    let report = Report::new("offset-management", broker.as_ref());
    let bench = Bench { env, flags, broker, work, report };
    bench.warm_brokers_up()?;
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
    let is_kafka = flags.route.contains(&Route::KafkaToKafka);
    let problem = if flags.put_latency.is_empty() || flags.partitions.is_empty() {
        "--put-latency and --partitions need a value"
    } else if flags.retain.is_some_and(|entries| entries < RETAIN_MIN) {
        "--retain: recovery needs two entries, so it must be at least 2"
    } else if flags.delays_others() && flags.put_latency.contains(&0) {
        "--list-latency and --delete-latency are of a checkpoint in memory: give --put-latency \
         values above 0 only"
    } else if (flags.cluster || flags.broker_warmup > 0) && !is_kafka {
        "--cluster and --broker-warmup are for the route kafka-to-kafka"
    } else {
        return Ok(());
    };
    Err(Error::Flags { problem: problem.to_owned() })
}

impl Flags {
    /// Whether more than writes is delayed.
    fn delays_others(&self) -> bool {
        self.list_latency > 0 || self.delete_latency > 0
    }

    fn start_brokers(&self, work: &WorkDirectory) -> Result<Broker, Error> {
        if self.cluster {
            return Broker::start_cluster(work).map(|(broker, _)| broker);
        }
        Broker::of(work, self.brokers.as_deref())
    }
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
    /// Sends records before anything is measured, in both ways if both are measured.
    fn warm_brokers_up(&self) -> Result<(), Error> {
        let Some(broker) = &self.broker else { return Ok(()) };
        let stage = Stage::new(self.env, &self.work, broker);
        let partitions = self.flags.partitions[0];
        let load = Load { rate: 1, size: RECORD_BYTES, partitions, seconds: 0, warmup: 0 };
        let mut configurations = self.configurations(Route::KafkaToKafka);
        let has_transactions = configurations.any(|it| it == Configuration::ExactlyOnce);
        for transactions in [false, true].into_iter().filter(|it| !it || has_transactions) {
            stage.warm_brokers_up(self.flags.broker_warmup, load, transactions)?;
        }
        Ok(())
    }

    /// All configurations at one rate, and their chart.
    fn rate(&self, route: Route, partitions: i32, rate: u64) -> Result<bool, Error> {
        let (mut samples, mut complete) = (Vec::new(), true);
        for &put_latency_ms in &self.flags.put_latency {
            for round in 1..=self.flags.repeat {
                for configuration in self.configurations(route) {
                    let seconds = self.flags.seconds;
                    let setup = self.setup((route, partitions), rate, put_latency_ms, seconds);
                    let setup = Setup { configuration, ..setup };
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

    /// Of the default configuration.
    fn setup(
        &self,
        (route, partitions): (Route, i32),
        rate: u64,
        put_latency_ms: u64,
        seconds: u64,
    ) -> Setup {
        let broker = self.broker.as_ref().filter(|_| route == Route::KafkaToKafka);
        Setup {
            route,
            rate,
            partitions,
            put_latency_ms,
            list_latency_ms: self.flags.list_latency,
            delete_latency_ms: self.flags.delete_latency,
            min_batches_to_retain: self.flags.retain,
            configuration: Configuration::Default,
            seconds,
            replication: broker.map(|broker| broker.replication),
        }
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
            kept_up: setup.is_reached(measured.records, measured.throughput_rows_per_s),
            cpu_seconds: measured.cpu_seconds,
            peak_rss_mb: measured.peak_rss_mb,
        })
    }

    /// Searches the highest rate at which the default configuration keeps up.
    fn highest(&self, route: Route, partitions: i32) -> Result<(), Error> {
        let mut round = 0;
        let mut keeps_up = |rate: u64| -> Result<bool, Error> {
            round += 1;
            let setup = self.setup((route, partitions), rate, 0, SEARCH_SECONDS);
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
    use clap::Parser as _;

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

    /// The flags of a command line.
    fn flags(arguments: &[&str]) -> Flags {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            flags: Flags,
        }
        Line::try_parse_from([&["offset-management"][..], arguments].concat())
            .expect("it is right")
            .flags
    }

    #[test]
    fn flags_that_would_measure_nothing_are_refused() {
        check(&flags(&[])).expect("the defaults are right");
        let delays = ["--delete-latency", "50", "--put-latency"];
        check(&flags(&[&delays[..], &["50"]].concat())).expect("all is delayed");
        assert!(check(&flags(&[&delays[..], &["0,50"]].concat())).is_err());
        assert!(check(&flags(&["--retain", "1"])).is_err());
        check(&flags(&["--cluster"])).expect("both routes are measured");
        assert!(check(&flags(&["--cluster", "--route", "rate-to-stats"])).is_err());
    }
}

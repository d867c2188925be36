//! `bench peers`: the engine beside what people run today, on one broker, taking turns.
//!
//! Every contender carries the same records between topics of its own, with settings that its own
//! documentation gives for low latency. All are measured by the same reader of committed records.
//! The relays are the floors: one Kafka client, without and with transactions.

mod flink;
mod spark;

use millstream_store::env::Env;
use serde::Serialize;

use super::broker::Broker;
use super::contender::{Contender, Millstream, Relay};
use super::engine::{Delivery, EngineOptions};
use super::error::Error;
use super::report::{self, Machine, Versions};
use super::round::{self, Load, Medians, Outcome, Stage};
use super::work_directory::WorkDirectory;
use flink::Flink;
use spark::Spark;

/// Characters of the longest name.
const NAME_WIDTH: usize = 25;

/// Flags of `bench peers`.
#[derive(Debug, clap::Args)]
pub struct Flags {
    /// Records a second; several rates are measured one after the other
    #[arg(long, value_delimiter = ',', default_value = "1000")]
    rate: Vec<u64>,
    /// Bytes of a record's value
    #[arg(long, default_value_t = 100)]
    size: usize,
    /// Partitions of both topics
    #[arg(long, default_value_t = 4)]
    partitions: i32,
    /// Seconds measured in each round
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Seconds at the same rate before that, not measured; Java programs need some
    #[arg(long, default_value_t = 20)]
    warmup: u64,
    /// Rounds at each rate, all contenders taking turns
    #[arg(long, default_value_t = 3)]
    repeat: u32,
    /// A broker that is running already, HOST:PORT; otherwise Apache Kafka is started
    #[arg(long, value_name = "HOST:PORT")]
    brokers: Option<String>,
    /// Which contenders; all of them if not given
    #[arg(long, value_enum, value_delimiter = ',')]
    contender: Vec<Peer>,
}

/// Who takes part, in the order of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Peer {
    /// The Kafka client alone.
    Relay,
    /// The Kafka client alone, with transactions.
    RelayTransactions,
    /// The engine, at least once.
    Millstream,
    /// The engine, exactly once.
    MillstreamExactlyOnce,
    /// Flink 2.2, at least once, a checkpoint a second.
    Flink,
    /// Flink 2.2, exactly once, a checkpoint each 100 ms.
    #[value(name = "flink-exactly-once-100ms")]
    FlinkExactlyOnce100Ms,
    /// Flink 2.2, exactly once, a checkpoint a second.
    #[value(name = "flink-exactly-once-1s")]
    FlinkExactlyOnce1S,
    /// Spark 4.2 in micro-batches, at least once.
    SparkMicroBatch,
    /// The same with asynchronous progress tracking.
    SparkAsync,
    /// Spark 4.2 in Real-Time Mode, with its default of a checkpoint each 5 minutes.
    SparkRealTime,
    /// The same with a checkpoint each 10 seconds.
    #[value(name = "spark-real-time-10s")]
    SparkRealTime10S,
}

impl Peer {
    const ALL: [Self; 11] = [
        Self::Relay,
        Self::RelayTransactions,
        Self::Millstream,
        Self::MillstreamExactlyOnce,
        Self::Flink,
        Self::FlinkExactlyOnce100Ms,
        Self::FlinkExactlyOnce1S,
        Self::SparkMicroBatch,
        Self::SparkAsync,
        Self::SparkRealTime,
        Self::SparkRealTime10S,
    ];

    /// Downloads what it needs, if need be.
    fn contender(self, partitions: i32) -> Result<Box<dyn Contender>, Error> {
        let millstream = |name, delivery| {
            let options = EngineOptions { delivery, ..EngineOptions::default() };
            Box::new(Millstream { name, options })
        };
        let flink = |name, delivery, checkpoints| -> Result<Box<dyn Contender>, Error> {
            Ok(Box::new(Flink::new(name, delivery, checkpoints)?))
        };
        let spark = |name, mode| -> Result<Box<dyn Contender>, Error> {
            Ok(Box::new(Spark::new(name, mode, partitions)?))
        };
        let (at_least, exactly) = (Delivery::AtLeastOnce, Delivery::ExactlyOnce);
        match self {
            Self::Relay => Ok(Box::new(Relay { transactions: false })),
            Self::RelayTransactions => Ok(Box::new(Relay { transactions: true })),
            Self::Millstream => Ok(millstream("millstream", at_least)),
            Self::MillstreamExactlyOnce => Ok(millstream("millstream-exactly-once", exactly)),
            Self::Flink => flink("flink", at_least, "1 s"),
            Self::FlinkExactlyOnce100Ms => flink("flink-exactly-once-100ms", exactly, "100 ms"),
            Self::FlinkExactlyOnce1S => flink("flink-exactly-once-1s", exactly, "1 s"),
            Self::SparkMicroBatch => spark("spark-micro-batch", "micro-batch"),
            Self::SparkAsync => spark("spark-async", "async"),
            Self::SparkRealTime => spark("spark-real-time", "real-time:5 minutes"),
            Self::SparkRealTime10S => spark("spark-real-time-10s", "real-time:10 seconds"),
        }
    }
}

#[derive(Serialize)]
struct Line<'a> {
    bench: &'static str,
    line: &'static str,
    commit: Option<&'a str>,
    configuration: &'a str,
    round: u32,
    rate: u64,
    size: usize,
    partitions: i32,
    seconds: u64,
    warmup: u64,
    #[serde(flatten)]
    outcome: Outcome,
    machine: &'a Machine,
    versions: &'a Versions,
}

#[derive(Serialize)]
struct Summary<'a> {
    bench: &'static str,
    line: &'static str,
    commit: Option<&'a str>,
    configuration: &'a str,
    rate: u64,
    rounds: u32,
    missing: u64,
    duplicated: u64,
    #[serde(flatten)]
    medians: Medians,
    machine: &'a Machine,
    versions: &'a Versions,
}

/// Runs the whole benchmark. True if no record was lost.
pub fn run(env: &Env, flags: &Flags) -> Result<bool, Error> {
    if flags.repeat == 0 {
        return Err(Error::Flags { problem: "--repeat must be at least 1".to_owned() });
    }
    flags.rate.iter().try_for_each(|rate| flags.load(*rate).check())?;
    let wanted = Peer::ALL.into_iter();
    let wanted = wanted.filter(|peer| flags.contender.is_empty() || flags.contender.contains(peer));
    let contenders: Result<Vec<_>, Error> =
        wanted.map(|peer| peer.contender(flags.partitions)).collect();
    let work = WorkDirectory::create()?;
    let broker = match &flags.brokers {
        Some(address) => Broker::external(env, address)?,
        None => Broker::start(env, &work)?,
    };
    let bench = Bench {
        flags,
        contenders: contenders?,
        stage: Stage::new(env, &work, &broker),
        commit: report::commit(),
        machine: Machine::this(),
        versions: Versions::with(Some(&broker.version)),
    };
    let mut complete = true;
    for &rate in &flags.rate {
        complete &= bench.rate(rate)?;
    }
    Ok(complete)
}

impl Flags {
    fn load(&self, rate: u64) -> Load {
        let Self { size, partitions, seconds, warmup, .. } = *self;
        Load { rate, size, partitions, seconds, warmup }
    }
}

struct Bench<'a> {
    flags: &'a Flags,
    contenders: Vec<Box<dyn Contender>>,
    stage: Stage<'a>,
    commit: Option<String>,
    machine: Machine,
    versions: Versions,
}

impl Bench<'_> {
    fn rate(&self, rate: u64) -> Result<bool, Error> {
        let mut outcomes = vec![Vec::new(); self.contenders.len()];
        eprintln!("{}", round::table_head(NAME_WIDTH));
        for round in 1..=self.flags.repeat {
            for (contender, outcomes) in self.contenders.iter().zip(&mut outcomes) {
                let name = contender.name();
                let label = format!("{name}-{rate}-{round}");
                let load = self.flags.load(rate);
                let outcome = self.stage.run(contender.as_ref(), load, &label, round)?;
                eprintln!("{}", round::table_row(&name, NAME_WIDTH, rate, round, &outcome));
                self.report(&name, load, round, outcome)?;
                outcomes.push(outcome);
            }
        }
        self.summarize(rate, &outcomes)?;
        Ok(outcomes.iter().flatten().all(|outcome| outcome.missing == 0))
    }

    fn report(
        &self,
        configuration: &str,
        load: Load,
        round: u32,
        outcome: Outcome,
    ) -> Result<(), Error> {
        let Load { rate, size, partitions, seconds, warmup } = load;
        report::line(&Line {
            bench: "peers",
            line: "round",
            commit: self.commit.as_deref(),
            configuration,
            round,
            rate,
            size,
            partitions,
            seconds,
            warmup,
            outcome,
            machine: &self.machine,
            versions: &self.versions,
        })
    }

    /// One table: medians over the rounds, and how many times the floor they are.
    fn summarize(&self, rate: u64, outcomes: &[Vec<Outcome>]) -> Result<(), Error> {
        let medians: Vec<_> =
            outcomes.iter().filter_map(|outcomes| Medians::of(outcomes.iter())).collect();
        let floor = medians.first().filter(|_| self.contenders[0].name() == "relay");
        eprintln!("\n{}", summary_head(rate));
        for ((contender, outcomes), medians) in self.contenders.iter().zip(outcomes).zip(&medians) {
            let count = |of: fn(&Outcome) -> u64| outcomes.iter().map(of).sum();
            let summary = Summary {
                bench: "peers",
                line: "summary",
                commit: self.commit.as_deref(),
                configuration: &contender.name(),
                rate,
                rounds: self.flags.repeat,
                missing: count(|outcome| outcome.missing),
                duplicated: count(|outcome| outcome.duplicated),
                medians: *medians,
                machine: &self.machine,
                versions: &self.versions,
            };
            eprintln!("{}", summary_row(&summary, floor));
            report::line(&summary)?;
        }
        Ok(())
    }
}

fn summary_head(rate: u64) -> String {
    format!(
        "{:<NAME_WIDTH$}{:>9} {:>8} {:>9} {:>8} {:>8} {:>8} {:>7} {:>8}",
        format!("medians at {rate}/s"),
        "p50 ms",
        "x relay",
        "p99 ms",
        "x relay",
        "missing",
        "doubled",
        "CPU s",
        "RSS MB"
    )
}

fn summary_row(summary: &Summary<'_>, floor: Option<&Medians>) -> String {
    let Summary { configuration, missing, duplicated, medians, .. } = summary;
    let ratio = |of: fn(&Medians) -> f64| {
        floor.map_or_else(String::new, |floor| format!("x{:.1}", of(medians) / of(floor)))
    };
    format!(
        "{configuration:<NAME_WIDTH$}{:>9.2} {:>8} {:>9.2} {:>8} {missing:>8} {duplicated:>8} {:>7.2} \
         {:>8.1}",
        medians.p50_ms,
        ratio(|medians| medians.p50_ms),
        medians.p99_ms,
        ratio(|medians| medians.p99_ms),
        medians.cpu_seconds,
        medians.peak_rss_mb
    )
}

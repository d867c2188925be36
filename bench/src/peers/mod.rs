//! `millstream-bench peers`: the engine beside what people run today, on one broker, taking turns.
//!
//! Every system under test carries the same records between topics of its own, with settings that
//! its documentation gives for low latency. All are measured by the same reader of committed
//! records. The relays are the floors: one Kafka client, without and with transactions.

mod flink;
mod peer;
mod spark;

use millstream_store::env::Env;
use serde::Serialize;

use crate::broker::{Broker, ClientOptions};
use crate::error::Error;
use crate::report::{self, Report};
use crate::round::{self, Load, Medians, RoundOutcome, Stage};
use crate::system::SystemUnderTest;
use crate::turns;
use crate::work_directory::WorkDirectory;
use peer::Peer;

/// Characters of the longest name.
const NAME_WIDTH: usize = 36;

/// Flags of `millstream-bench peers`.
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
    /// Seconds before the first round in which the relays warm the brokers up, at 5,000 records/s:
    /// without transactions, and as long again with them, if a system has them; and half as long
    /// through Millstream
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    broker_warmup: u64,
    /// Rounds at each rate, all systems taking turns; each round begins with the next one
    #[arg(long, default_value_t = 3)]
    repeat: u32,
    /// A broker that is running already, HOST:PORT; otherwise Apache Kafka is started
    #[arg(long, value_name = "HOST:PORT")]
    brokers: Option<String>,
    /// Three brokers and as many replicas, of the benchmark's own
    #[arg(long, conflicts_with = "brokers")]
    cluster: bool,
    /// Which systems; all of them if not given
    #[arg(long, value_enum, value_delimiter = ',')]
    system: Vec<Peer>,
}

#[derive(Serialize)]
struct PeerLine<'a> {
    configuration: &'a str,
    round: u32,
    rate: u64,
    size: usize,
    partitions: i32,
    seconds: u64,
    warmup: u64,
    broker_warmup_seconds: u64,
    #[serde(flatten)]
    outcome: RoundOutcome,
}

#[derive(Serialize)]
struct Summary {
    configuration: String,
    rate: u64,
    partitions: i32,
    broker_warmup_seconds: u64,
    rounds: u32,
    missing: u64,
    duplicated: u64,
    #[serde(flatten)]
    medians: Medians,
}

/// Runs the whole benchmark. True if no record was lost.
pub fn run(env: &Env, flags: &Flags) -> Result<bool, Error> {
    if flags.rate.is_empty() || flags.repeat == 0 {
        let problem = "--rate and --repeat must be at least 1".to_owned();
        return Err(Error::Flags { problem });
    }
    flags.rate.iter().try_for_each(|rate| flags.load(*rate).check())?;
    let work = WorkDirectory::create()?;
    let (broker, by_tls) = flags.start_brokers(&work)?;
    let entrants = flags.entrants(&by_tls)?;
    let bench = Bench {
        flags,
        entrants,
        stage: Stage::new(env, &work, &broker),
        report: Report::new("peers", Some(&broker)),
    };
    bench.warm_brokers_up()?;
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

    /// Where somebody else's broker is named, nobody is there by TLS: its client is not known.
    fn peers(&self) -> Result<Vec<Peer>, Error> {
        let mut peers = Peer::chosen(&self.system);
        if self.brokers.is_some() {
            if self.system.iter().any(|peer| peer.is_by_tls()) {
                let problem = "--brokers: for a system by TLS the benchmark starts brokers of its \
                               own; leave one of them out";
                return Err(Error::Flags { problem: problem.to_owned() });
            }
            peers.retain(|peer| !peer.is_by_tls());
        }
        Ok(peers)
    }

    fn entrants(&self, by_tls: &ClientOptions) -> Result<Vec<Entrant>, Error> {
        let peers = self.peers()?.into_iter();
        peers.map(|peer| Ok((peer, peer.system_under_test(self.partitions, by_tls)?))).collect()
    }

    /// The brokers, and the options of a client that reaches them by TLS, if they speak it.
    fn start_brokers(&self, work: &WorkDirectory) -> Result<(Broker, ClientOptions), Error> {
        let by_tls = self.peers()?.iter().any(|peer| peer.is_by_tls());
        match (self.cluster, by_tls) {
            (true, _) => Broker::start_cluster(work),
            (false, true) => Broker::start_secure(work),
            (false, false) => {
                Ok((Broker::of(work, self.brokers.as_deref())?, ClientOptions::new()))
            }
        }
    }
}

/// Who, and how it is started.
type Entrant = (Peer, Box<dyn SystemUnderTest>);

struct Bench<'a> {
    flags: &'a Flags,
    entrants: Vec<Entrant>,
    stage: Stage<'a>,
    report: Report,
}

impl Bench<'_> {
    fn warm_brokers_up(&self) -> Result<(), Error> {
        let (seconds, load) = (self.flags.broker_warmup, self.flags.load(self.flags.rate[0]));
        let warm_up = |transactions| self.stage.warm_brokers_up(seconds, load, transactions);
        let with_transactions = self.entrants.iter().any(|(peer, _)| peer.has_transactions());
        warm_up(false)?;
        if with_transactions {
            warm_up(true)?;
        }
        // Java programs have seconds of their own before each round, for their own sake.
        for (peer, system) in self.entrants.iter().filter(|(peer, _)| peer.is_engine()) {
            let name = report::name(peer);
            self.stage.warm_up_through(system.as_ref(), &name, seconds / 2, load)?;
        }
        Ok(())
    }

    fn rate(&self, rate: u64) -> Result<bool, Error> {
        let mut outcomes = vec![Vec::new(); self.entrants.len()];
        eprintln!("{}", round::table_head(NAME_WIDTH));
        let all: Vec<_> = (0..self.entrants.len()).collect();
        for round in 1..=self.flags.repeat {
            for index in turns::of_round(&all, round) {
                outcomes[index].push(self.round(&self.entrants[index], rate, round)?);
            }
        }
        self.summarize(rate, &outcomes)?;
        Ok(outcomes.iter().flatten().all(|outcome| outcome.missing == 0))
    }

    fn round(&self, entrant: &Entrant, rate: u64, round: u32) -> Result<RoundOutcome, Error> {
        let (peer, system) = entrant;
        let configuration = &report::name(peer);
        let label = format!("{configuration}-{rate}-{round}");
        let load = self.flags.load(rate);
        let outcome = self.stage.run(system.as_ref(), load, &label, round)?;
        eprintln!("{}", round::table_row(configuration, NAME_WIDTH, rate, round, &outcome.shown()));
        let Load { size, partitions, seconds, warmup, .. } = load;
        let broker_warmup_seconds = self.flags.broker_warmup;
        let line = PeerLine {
            configuration,
            round,
            rate,
            size,
            partitions,
            seconds,
            warmup,
            broker_warmup_seconds,
            outcome,
        };
        self.report.line("round", &line)?;
        Ok(outcome)
    }

    /// One table: medians over the rounds, and how many times the floor they are.
    fn summarize(&self, rate: u64, outcomes: &[Vec<RoundOutcome>]) -> Result<(), Error> {
        let medians: Vec<_> =
            outcomes.iter().filter_map(|outcomes| Medians::of(outcomes.iter())).collect();
        let floor = medians.first().filter(|_| self.entrants[0].0 == Peer::Relay);
        eprintln!("\n{}", summary_head(rate));
        for (((peer, _), outcomes), medians) in self.entrants.iter().zip(outcomes).zip(&medians) {
            let count = |of: fn(&RoundOutcome) -> u64| outcomes.iter().map(of).sum();
            let summary = Summary {
                configuration: report::name(peer),
                rate,
                partitions: self.flags.partitions,
                broker_warmup_seconds: self.flags.broker_warmup,
                rounds: self.flags.repeat,
                missing: count(|outcome| outcome.missing),
                duplicated: count(|outcome| outcome.duplicated),
                medians: *medians,
            };
            eprintln!("{}", summary_row(&summary, floor));
            self.report.line("summary", &summary)?;
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

fn summary_row(summary: &Summary, floor: Option<&Medians>) -> String {
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

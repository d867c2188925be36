//! `millstream-bench kafka-to-kafka`: how long a record takes from the moment it is due at the
//! input topic to its receipt from the output topic.
//!
//! Rounds of the relay and of the engine take turns, so that a slow drift of the machine meets
//! both, and each round begins with another one.

mod summary;
mod systems;

use millstream_store::env::Env;
use serde::Serialize;

use crate::broker::{Broker, ClientOptions, Replication};
use crate::engine::{Delivery, EngineOptions};
use crate::error::Error;
use crate::report::{self, Report};
use crate::round::{self, Load, RoundOutcome, Stage};
use crate::work_directory::WorkDirectory;
use crate::{settings, turns};
use summary::Summary;
use systems::System;

/// Characters of the summary's title.
const TITLE_WIDTH: usize = 18;

/// Flags of `millstream-bench kafka-to-kafka`.
#[derive(Debug, clap::Args)]
pub struct Flags {
    /// Records a second; several rates are measured one after the other
    #[arg(long, value_delimiter = ',', default_value = "1000,10000,50000")]
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
    /// Seconds at the same rate before that, not measured
    #[arg(long, default_value_t = 5)]
    warmup: u64,
    /// Seconds before the first round in which the relay warms the brokers up, at 5,000 records/s;
    /// as long again with transactions, if they are measured, and half as long through each other
    /// system
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    broker_warmup: u64,
    /// Rounds at each rate, the relay and the engine taking turns
    #[arg(long, default_value_t = 3)]
    repeat: u32,
    /// A broker that is running already, HOST:PORT; otherwise Apache Kafka is started
    #[arg(long, value_name = "HOST:PORT")]
    brokers: Option<String>,
    /// Start three brokers instead of one, with a replication factor of 3 and 2 as
    /// min.insync.replicas
    #[arg(long, conflicts_with = "brokers")]
    cluster: bool,
    /// Option of the engine: `source.NAME=V` stands in the pipeline's source table, anything else
    /// is handed to `run --set`
    #[arg(long, value_name = "K=V")]
    engine_option: Vec<String>,
    /// What the engine's sink promises; the meter always reads committed records
    #[arg(long, value_enum, default_value_t)]
    delivery: Delivery,
    /// Measure the engine by TLS, with a user by SCRAM and with zstd, too
    #[arg(long, conflicts_with = "brokers")]
    secure: bool,
    /// What is measured, in the order of the first round; relay and millstream if not given
    #[arg(long, value_enum, value_delimiter = ',', conflicts_with = "only")]
    systems: Vec<System>,
    /// Measure only one of them
    #[arg(long)]
    only: Option<System>,
}

/// Fields that tell which measurements may be compared.
#[derive(Clone, Debug, PartialEq, Serialize)]
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
    /// Seconds in which the brokers were warmed up.
    pub broker_warmup_seconds: u64,
    /// Options the engine was given.
    pub engine_options: Vec<String>,
    /// What the engine's sink promises; of a system that has one of its own, that.
    pub delivery: Delivery,
    /// How many brokers keep a record.
    #[serde(flatten)]
    pub replication: Replication,
}

/// One result line: one system in one round.
#[derive(Clone, Debug, Serialize)]
pub struct KafkaToKafkaLine {
    configuration: String,
    round: u32,
    #[serde(flatten)]
    setup: Setup,
    #[serde(flatten)]
    outcome: RoundOutcome,
}

/// Runs the whole benchmark. True if no record was lost.
pub fn run(env: &Env, flags: &Flags) -> Result<bool, Error> {
    check(flags)?;
    let options =
        EngineOptions { delivery: flags.delivery, ..EngineOptions::parse(&flags.engine_option)? };
    // Made before the broker and so dropped after it: nobody writes there any more.
    let work = WorkDirectory::create()?;
    let (broker, by_tls) = flags.start_brokers(&work)?;
    let systems = flags.systems();
    let names = systems.iter().map(|system| report::name(system).len());
    let bench = Bench {
        flags,
        options,
        by_tls,
        name_width: names.fold(TITLE_WIDTH, usize::max),
        systems,
        replication: broker.replication,
        stage: Stage::new(env, &work, &broker),
        report: Report::new("kafka-to-kafka", Some(&broker)),
    };
    bench.warm_brokers_up()?;
    eprintln!("{}", round::table_head(bench.name_width));
    let mut complete = true;
    for &rate in &flags.rate {
        complete &= bench.rate(rate)?;
    }
    Ok(complete)
}

fn check(flags: &Flags) -> Result<(), Error> {
    if flags.rate.is_empty() || flags.repeat == 0 {
        let problem = "--rate and --repeat must be at least 1".to_owned();
        return Err(Error::Flags { problem });
    }
    if flags.is_secure() && flags.brokers.is_some() {
        let problem = "--brokers: for the system `secure` the benchmark starts brokers of its own; \
                       leave one of them out";
        return Err(Error::Flags { problem: problem.to_owned() });
    }
    flags.rate.iter().try_for_each(|rate| flags.load(*rate).check())
}

impl Flags {
    fn load(&self, rate: u64) -> Load {
        let Self { size, partitions, seconds, warmup, .. } = *self;
        Load { rate, size, partitions, seconds, warmup }
    }

    fn systems(&self) -> Vec<System> {
        systems::chosen(&self.systems, self.only, self.secure)
    }

    fn is_secure(&self) -> bool {
        self.systems().contains(&System::Secure)
    }

    /// The brokers, and the options of a client that reaches them by TLS, if they speak it.
    fn start_brokers(&self, work: &WorkDirectory) -> Result<(Broker, ClientOptions), Error> {
        match (self.cluster, self.is_secure()) {
            (true, _) => Broker::start_cluster(work),
            (false, true) => Broker::start_secure(work),
            (false, false) => Ok((Broker::of(work, self.brokers.as_deref())?, Vec::new())),
        }
    }
}

struct Bench<'a> {
    flags: &'a Flags,
    options: EngineOptions,
    /// Options of a client by TLS.
    by_tls: ClientOptions,
    systems: Vec<System>,
    /// Characters of the longest name.
    name_width: usize,
    replication: Replication,
    stage: Stage<'a>,
    report: Report,
}

impl Bench<'_> {
    /// Sends records before anything is measured, in both ways if both are measured.
    fn warm_brokers_up(&self) -> Result<(), Error> {
        let Flags { broker_warmup: seconds, delivery, .. } = *self.flags;
        let load = self.flags.load(self.flags.rate[0]);
        let with_transactions = self.systems.iter().any(|system| system.has_transactions(delivery));
        for transactions in [false, true].into_iter().filter(|it| !it || with_transactions) {
            self.stage.warm_brokers_up(seconds, load, transactions)?;
        }
        let others = self.systems.iter().filter(|system| !system.is_relay());
        for system in others {
            let under_test = system.system_under_test(&self.options, &self.by_tls);
            let name = report::name(system);
            self.stage.warm_up_through(under_test.as_ref(), &name, seconds / 2, load)?;
        }
        Ok(())
    }

    fn rate(&self, rate: u64) -> Result<bool, Error> {
        let mut lines = Vec::new();
        for round in 1..=self.flags.repeat {
            for system in turns::of_round(&self.systems, round) {
                let line = self.round(system, rate, round)?;
                self.report.line("round", &line)?;
                let (name, width) = (&line.configuration, self.name_width);
                eprintln!("{}", round::table_row(name, width, rate, round, &line.outcome.shown()));
                lines.push(line);
            }
        }
        let setup = self.setup(rate, self.flags.delivery);
        let summary = Summary::of(setup, self.flags.repeat, &self.systems, &lines);
        self.report.line("summary", &summary)?;
        eprintln!("\n{}\n", summary.table(self.name_width));
        Ok(summary.missing == 0)
    }

    fn setup(&self, rate: u64, delivery: Delivery) -> Setup {
        Setup {
            rate,
            size: self.flags.size,
            partitions: self.flags.partitions,
            seconds: self.flags.seconds,
            generator_linger_ms: settings::generator_linger_ms(rate),
            broker_warmup_seconds: self.flags.broker_warmup,
            engine_options: self.flags.engine_option.clone(),
            delivery,
            replication: self.replication,
        }
    }

    fn round(&self, system: System, rate: u64, round: u32) -> Result<KafkaToKafkaLine, Error> {
        let configuration = report::name(&system);
        let label = format!("{configuration}-{rate}-{round}");
        let system_under_test = system.system_under_test(&self.options, &self.by_tls);
        let load = self.flags.load(rate);
        Ok(KafkaToKafkaLine {
            configuration,
            round,
            setup: self.setup(rate, system.delivery(self.flags.delivery)),
            outcome: self.stage.run(system_under_test.as_ref(), load, &label, round)?,
        })
    }
}

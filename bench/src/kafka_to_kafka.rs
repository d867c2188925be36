//! `millstream-bench kafka-to-kafka`: how long a record takes from the moment it is due at the
//! input topic to its receipt from the output topic.
//!
//! Rounds of the relay and of the engine take turns, so that a slow drift of the machine meets
//! both.

use clap::ValueEnum;
use millstream_store::env::Env;
use serde::Serialize;

use crate::broker::Broker;
use crate::engine::{Delivery, EngineOptions, Millstream};
use crate::error::Error;
use crate::report::{self, Report};
use crate::round::{self, Load, Medians, RoundOutcome, Stage};
use crate::settings;
use crate::system::{Relay, SystemUnderTest};
use crate::work_directory::WorkDirectory;

/// Characters of the longest name.
const NAME_WIDTH: usize = 11;

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
    /// Rounds at each rate, the relay and the engine taking turns
    #[arg(long, default_value_t = 3)]
    repeat: u32,
    /// A broker that is running already, HOST:PORT; otherwise Apache Kafka is started
    #[arg(long, value_name = "HOST:PORT")]
    brokers: Option<String>,
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
    /// Measure only one of them
    #[arg(long)]
    only: Option<System>,
}

/// What is measured, in the order of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum System {
    /// The Kafka client alone.
    Relay,
    /// `millstream run`.
    Millstream,
    /// The same by TLS, with a user and with compression.
    Secure,
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
    /// Options the engine was given.
    pub engine_options: Vec<String>,
    /// What the engine's sink promises.
    pub delivery: Delivery,
}

/// One result line: one system in one round.
#[derive(Clone, Debug, Serialize)]
struct KafkaToKafkaLine {
    configuration: String,
    round: u32,
    #[serde(flatten)]
    setup: Setup,
    #[serde(flatten)]
    outcome: RoundOutcome,
}

/// Medians over the rounds at one rate.
#[derive(Clone, Debug, Serialize)]
struct Summary {
    #[serde(flatten)]
    setup: Setup,
    rounds: u32,
    missing: u64,
    duplicated: u64,
    relay: Option<Medians>,
    millstream: Option<Medians>,
    secure: Option<Medians>,
    /// Engine over relay; 1 means that the engine costs nothing.
    ratio_p50: Option<f64>,
    ratio_p99: Option<f64>,
    /// The engine by TLS over the engine in plain text.
    secure_ratio_p50: Option<f64>,
    secure_ratio_p99: Option<f64>,
}

/// Runs the whole benchmark. True if no record was lost.
pub fn run(env: &Env, flags: &Flags) -> Result<bool, Error> {
    check(flags)?;
    let options =
        EngineOptions { delivery: flags.delivery, ..EngineOptions::parse(&flags.engine_option)? };
    // Made before the broker and so dropped after it: nobody writes there any more.
    let work = WorkDirectory::create()?;
    let (broker, client) = match flags.secure {
        true => Broker::start_secure(&work)?,
        false => (Broker::of(&work, flags.brokers.as_deref())?, Vec::new()),
    };
    let bench = Bench {
        flags,
        options,
        client,
        stage: Stage::new(env, &work, &broker),
        report: Report::new("kafka-to-kafka", Some(&broker)),
    };
    eprintln!("{}", round::table_head(NAME_WIDTH));
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
    flags.rate.iter().try_for_each(|rate| flags.load(*rate).check())
}

impl Flags {
    fn load(&self, rate: u64) -> Load {
        let Self { size, partitions, seconds, warmup, .. } = *self;
        Load { rate, size, partitions, seconds, warmup }
    }

    fn systems(&self) -> impl Iterator<Item = System> {
        let systems = System::value_variants().iter().copied();
        let is_asked = |system: &System| self.secure || *system != System::Secure;
        systems.filter(is_asked).filter(|system| self.only.is_none_or(|only| only == *system))
    }
}

struct Bench<'a> {
    flags: &'a Flags,
    options: EngineOptions,
    /// Options of a client by TLS.
    client: Vec<(String, String)>,
    stage: Stage<'a>,
    report: Report,
}

impl Bench<'_> {
    fn rate(&self, rate: u64) -> Result<bool, Error> {
        let mut lines = Vec::new();
        for round in 1..=self.flags.repeat {
            for system in self.flags.systems() {
                let line = self.round(system, rate, round)?;
                self.report.line("round", &line)?;
                let name = &line.configuration;
                eprintln!(
                    "{}",
                    round::table_row(name, NAME_WIDTH, rate, round, &line.outcome.shown())
                );
                lines.push(line);
            }
        }
        let summary = self.summary(self.setup(rate), &lines);
        self.report.line("summary", &summary)?;
        if let (Some(p50), Some(p99)) = (summary.ratio_p50, summary.ratio_p99) {
            eprintln!("{rate:>8}/s  millstream / relay: p50 x{p50:.2}, p99 x{p99:.2}");
        }
        if let (Some(p50), Some(p99)) = (summary.secure_ratio_p50, summary.secure_ratio_p99) {
            eprintln!("{rate:>8}/s  secure / millstream: p50 x{p50:.2}, p99 x{p99:.2}");
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

    fn round(&self, system: System, rate: u64, round: u32) -> Result<KafkaToKafkaLine, Error> {
        let configuration = report::name(&system);
        let label = format!("{configuration}-{rate}-{round}");
        let system_under_test = self.system_under_test(system);
        Ok(KafkaToKafkaLine {
            configuration,
            round,
            setup: self.setup(rate),
            outcome: self.stage.run(
                system_under_test.as_ref(),
                self.flags.load(rate),
                &label,
                round,
            )?,
        })
    }

    fn system_under_test(&self, system: System) -> Box<dyn SystemUnderTest> {
        match system {
            System::Relay => Box::new(Relay { transactions: false }),
            System::Millstream => Box::new(Millstream { options: self.options.clone() }),
            System::Secure => {
                let (client, options) = (self.client.clone(), self.options.clone());
                Box::new(Millstream { options: EngineOptions { client, ..options } })
            }
        }
    }

    fn summary(&self, setup: Setup, lines: &[KafkaToKafkaLine]) -> Summary {
        let medians = |system: System| {
            let name = report::name(&system);
            let of_it = lines.iter().filter(|line| line.configuration == name);
            Medians::of(of_it.map(|line| &line.outcome))
        };
        let (relay, millstream) = (medians(System::Relay), medians(System::Millstream));
        let secure = medians(System::Secure);
        let over = |of: &Option<Medians>, floor: &Option<Medians>, value: fn(&Medians) -> f64| {
            let (of, floor) = (value(of.as_ref()?), value(floor.as_ref()?));
            (floor > 0.0).then(|| report::rounded(of / floor, 3))
        };
        let p50 = |medians: &Medians| medians.p50_ms;
        let p99 = |medians: &Medians| medians.p99_ms;
        Summary {
            setup,
            rounds: self.flags.repeat,
            missing: lines.iter().map(|line| line.outcome.missing).sum(),
            duplicated: lines.iter().map(|line| line.outcome.duplicated).sum(),
            ratio_p50: over(&millstream, &relay, p50),
            ratio_p99: over(&millstream, &relay, p99),
            secure_ratio_p50: over(&secure, &millstream, p50),
            secure_ratio_p99: over(&secure, &millstream, p99),
            relay,
            millstream,
            secure,
        }
    }
}

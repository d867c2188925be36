//! `millstream-bench kafka-throughput`: how many bytes of records a second, and for each second of
//! processor time, the engine reads from a topic, copies to another and writes, with its own client
//! and with librdkafka, beside librdkafka alone.
//!
//! For each size a topic is filled first, and read once so that it is in memory and the broker's
//! code is compiled. Then the contenders take turns. Each is a process of its own, which reads the
//! topic from its beginning and ends when it has dealt with all of it; what counts is the time from
//! its start to its end, and its processor time.
//!
//! No source of the engine gives rows as fast as a topic takes them but one in its own process
//! ([`in_process`]): `rate` makes each row when it is due. So where only writing is measured, the
//! engine runs in a program of the benchmark's, on records that are in memory; the bare client gets
//! the same ones from there, and both are measured from where they begin.
//!
//! What was copied or written is read back: each record must be there once.

mod alone;
mod bare;
mod batches;
#[cfg(feature = "confluent")]
mod confluent;
mod line;
mod pipelines;

use std::path::Path;

use clap::ValueEnum;
use millstream_store::env::Env;
use rdkafka::Message as _;
use rdkafka::producer::BaseRecord;

pub use alone::Flags as ClientFlags;
pub use bare::run as run_client;

use crate::engine::EngineOptions;
use crate::error::Error;
use crate::in_process::{self, Input};
use crate::messages::MessagesFound;
use crate::numbered::{self, Numbered};
use crate::report::{self, Report};
use crate::testbed::{TestBed, TopicFlags};
use crate::throughput::{Throughput, Took};
use crate::{payload, read_back, system, turns};
use alone::Client;
use line::{Line, Summary};
use pipelines::Kafka;

const NAME: &str = "kafka-throughput";
/// A chunk of records in memory is one array, whose offsets end at 2 GiB.
const SIZE_MAX: usize = 200_000;

/// Flags of `millstream-bench kafka-throughput`.
#[derive(Debug, clap::Args)]
pub struct Flags {
    /// Records of the topic
    #[arg(long, default_value_t = 1_000_000)]
    messages: u64,
    /// Bytes of a record's value; several sizes are measured one after the other
    #[arg(long, value_delimiter = ',', default_value = "100,1024")]
    size: Vec<usize>,
    /// What is measured
    #[arg(long, value_enum, value_delimiter = ',', default_value = "read,copy,write")]
    route: Vec<Route>,
    /// What takes part, in the order of the first round
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "librdkafka,millstream,millstream-librdkafka"
    )]
    systems: Vec<Contender>,
    /// Setting of librdkafka where it is alone
    #[arg(long, value_name = "K=V")]
    client_option: Vec<String>,
    #[command(flatten)]
    topic: TopicFlags,
}

/// What becomes of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Route {
    /// From a topic into nothing.
    Read,
    /// From a topic to another, at least once.
    Copy,
    /// From memory to a topic, at least once.
    Write,
}

/// Who deals with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Contender {
    /// librdkafka alone.
    Librdkafka,
    /// Confluent's own client for Rust, alone.
    #[cfg(feature = "confluent")]
    Confluent,
    /// The engine, with its own client.
    Millstream,
    /// The engine, with librdkafka.
    MillstreamLibrdkafka,
}

/// Runs the whole benchmark. True if every record was there once in every round.
pub fn run(env: &Env, flags: &Flags) -> Result<bool, Error> {
    flags.check()?;
    let testbed = TestBed::open(env, NAME, &flags.topic)?;
    let report = Report::new(NAME, Some(&testbed.broker));
    let mut complete = true;
    for &size in &flags.size {
        complete &= testbed.with_topic(&format!("in-{size}"), flags.topic.partitions, |topic| {
            Bench { flags, testbed: &testbed, report: &report, size, topic }.run()
        })?;
    }
    Ok(complete)
}

impl Flags {
    fn check(&self) -> Result<(), Error> {
        self.topic.check()?;
        self.client_option.iter().try_for_each(|text| alone::option(text).map(drop))?;
        let sizes = payload::SIZE_MIN..=SIZE_MAX;
        let problem = if self.messages == 0 {
            "--messages must be at least 1".to_owned()
        } else if self.size.iter().any(|size| !sizes.contains(size)) {
            format!("--size must be from {} to {SIZE_MAX}", payload::SIZE_MIN)
        } else {
            return Ok(());
        };
        Err(Error::Flags { problem })
    }
}

struct Bench<'a> {
    flags: &'a Flags,
    testbed: &'a TestBed,
    report: &'a Report,
    size: usize,
    /// The topic that is read.
    topic: &'a str,
}

/// One run of one contender.
#[derive(Clone, Copy)]
struct Run {
    route: Route,
    contender: Contender,
    round: u32,
}

impl Run {
    fn label(&self, size: usize) -> String {
        let Self { route, contender, round } = self;
        format!("{}-{size}-{}-{round}", report::name(route), report::name(contender))
    }
}

impl Bench<'_> {
    fn run(&self) -> Result<bool, Error> {
        let Flags { messages, ref route, .. } = *self.flags;
        eprintln!("filling a topic with {messages} records of {} bytes", self.size);
        let sent = self.fill()?;
        self.testbed.with_directory("warmup", |directory| {
            self.bare(Client::Librdkafka, Route::Read, "", directory).map(drop)
        })?;
        let mut complete = true;
        for &route in route {
            complete &= self.route(route, &sent)?;
        }
        Ok(complete)
    }

    /// Gives what was sent.
    fn fill(&self) -> Result<MessagesFound, Error> {
        let sender = self.testbed.open_topic(self.topic)?;
        let (mut sent, mut numbered) = (MessagesFound::default(), Numbered::new(self.size));
        for number in 0..self.flags.messages {
            let (key, value) = numbered.make(number);
            let record = BaseRecord::<[u8], [u8]>::to(sender.topic()).key(key).payload(value);
            sender.send(record)?;
            sent.add(number);
        }
        sender.flush()?;
        Ok(sent)
    }

    fn route(&self, route: Route, sent: &MessagesFound) -> Result<bool, Error> {
        eprintln!("\n{}, {} bytes", report::name(&route), self.size);
        eprintln!("{}", Throughput::table_head(line::NAME_WIDTH));
        let mut lines = Vec::new();
        for round in 1..=self.flags.topic.repeat {
            for contender in turns::of_round(&self.flags.systems, round) {
                let line = self.measure(Run { route, contender, round }, sent)?;
                self.report.line("round", &line)?;
                eprintln!("{}", line.table_row());
                lines.push(line);
            }
        }
        let names = self.flags.systems.iter().map(report::name);
        let summaries = Summary::of_all(names, &report::name(&Contender::Librdkafka), &lines);
        eprintln!("\n{}", line::summary_head());
        for summary in &summaries {
            self.report.line("summary", summary)?;
            eprintln!("{}", summary.table_row());
        }
        Ok(lines.iter().all(Line::is_whole))
    }

    fn measure(&self, run: Run, sent: &MessagesFound) -> Result<Line, Error> {
        let (testbed, label) = (self.testbed, run.label(self.size));
        let broker = &testbed.broker;
        let before = broker.cpu_seconds();
        let measured = testbed.with_directory(&label, |directory| match run.route {
            Route::Read => {
                let (took, rows) = self.run_one(run, "", directory)?;
                Ok((took, rows, broker.cpu_seconds()))
            }
            Route::Copy | Route::Write => {
                testbed.with_topic(&label, self.flags.topic.partitions, |output| {
                    let (took, _) = self.run_one(run, output, directory)?;
                    let after = broker.cpu_seconds();
                    let found =
                        found_in_topic(&broker.address, output, self.flags.topic.partitions)?;
                    Ok((took, Some(found.surplus(sent, Path::new(output))?), after))
                })
            }
        });
        let (took, surplus_rows, after) = measured?;
        let TopicFlags { partitions, engine_option, .. } = &self.flags.topic;
        let messages = self.flags.messages;
        Ok(Line {
            route: report::name(&run.route),
            configuration: report::name(&run.contender),
            round: run.round,
            client_options: self.flags.client_option.clone(),
            messages_per_s: report::rounded(messages as f64 / took.elapsed.as_secs_f64(), 0),
            throughput: Throughput::of_size(messages, self.size, *partitions, engine_option, &took),
            broker_cpu_seconds: before
                .zip(after)
                .map(|(before, after)| report::rounded(after - before, 2)),
            surplus_rows,
        })
    }

    /// What it took, and how many rows too many it has seen, if it tells.
    fn run_one(
        &self,
        run: Run,
        output: &str,
        directory: &Path,
    ) -> Result<(Took, Option<i64>), Error> {
        let alone = |client| Ok((self.bare(client, run.route, output, directory)?, None));
        let librdkafka = match run.contender {
            Contender::Librdkafka => return alone(Client::Librdkafka),
            #[cfg(feature = "confluent")]
            Contender::Confluent => return alone(Client::Confluent),
            Contender::Millstream => false,
            Contender::MillstreamLibrdkafka => true,
        };
        let kafka = Kafka { brokers: &self.testbed.broker.address, librdkafka };
        let of_source = &self.testbed.options.source;
        let pipeline = match run.route {
            Route::Read => pipelines::read(&kafka.source(self.topic, of_source)),
            Route::Copy => {
                pipelines::write(&kafka.source(self.topic, of_source), &kafka.sink(output))
            }
            Route::Write => pipelines::write(in_process::CONNECTOR, &kafka.sink(output)),
        };
        let messages = self.flags.messages;
        if run.route == Route::Write {
            return Ok((self.in_process(&pipeline, directory)?, None));
        }
        let (took, told) = self.testbed.run_to_end(&pipeline, directory, messages)?;
        let signed = |count: u64| i64::try_from(count).expect("records are few");
        let rows: u64 = told.iter().map(|told| told.rows_in).sum();
        Ok((took, Some(signed(rows) - signed(messages))))
    }

    fn in_process(&self, pipeline: &str, directory: &Path) -> Result<Took, Error> {
        let input = Input {
            messages: self.flags.messages,
            partitions: self.flags.topic.partitions,
            windows: 0,
            keys: None,
            size: Some(self.size),
        };
        let options: &EngineOptions = &self.testbed.options;
        in_process::run(pipeline, &input, options, directory).map(|(took, _)| took)
    }

    fn bare(
        &self,
        client: Client,
        route: Route,
        output: &str,
        directory: &Path,
    ) -> Result<Took, Error> {
        let Flags { messages, ref client_option, ref topic, .. } = *self.flags;
        let mut command = system::this_program()?;
        command.args(["kafka-client", "--client", &report::name(&client)]);
        command.args(["--route", &report::name(&route)]);
        command.args(["--brokers", &self.testbed.broker.address]);
        command.args(["--from", self.topic, "--to", output]);
        command.args(["--messages", &messages.to_string(), "--size", &self.size.to_string()]);
        command.args(["--partitions", &topic.partitions.to_string()]);
        for option in client_option {
            command.args(["--client-option", option]);
        }
        match route {
            Route::Read | Route::Copy => {
                self.testbed.run_command("the bare client", command, directory, messages)
            }
            Route::Write => {
                in_process::outcome_of("running the bare client", command).map(|(took, _)| took)
            }
        }
    }
}

fn found_in_topic(brokers: &str, topic: &str, partitions: i32) -> Result<MessagesFound, Error> {
    let mut found = MessagesFound::default();
    read_back::topic(brokers, topic, partitions, |record| {
        // What is none of ours makes the sums wrong.
        found.add(record.payload().and_then(numbered::number_of).unwrap_or(u64::MAX));
    })?;
    Ok(found)
}

//! `millstream-bench map-only`: messages of a topic, decoded and written elsewhere, each by itself.
//!
//! A topic is filled first. Each round then starts the engine on it as a user would, with the
//! trigger `availableNow`, and lets it run to its end; beside it stands the Kafka client alone,
//! which reads the same records and drops them. What counts is the processor time that the engine's
//! process used, start and end included: broker and generator are other processes.
//!
//! Delta tables are always written exactly once, so a topic is the sink that shows what
//! exactly-once costs.
//!
//! `--source in-process` measures without a broker: see [`in_process`](crate::in_process).
//! `--latency` sends messages at a fixed rate instead, while the engine runs: see [`latency`].
//!
//! What every round wrote is read back: each message must be there once.

mod in_memory;
mod latency;

use std::path::Path;
use std::time::Duration;

use arrow::array::AsArray;
use clap::ValueEnum;
use millstream_store::env::Env;
use millstream_testkit::program::{self, Usage};
use rdkafka::Message as _;
use rdkafka::consumer::{BaseConsumer, Consumer};
use serde::Serialize;

use crate::engine::{Delivery, sql_options};
use crate::error::Error;
use crate::in_process::InputKind;
use crate::live::LiveFlags;
use crate::messages::{Messages, MessagesFound};
use crate::report::{self, Report};
use crate::testbed::{TestBed, TopicFlags};
use crate::throughput::{Medians, Throughput, Took};
use crate::{offsets, read_back, settings};

const NAME: &str = "map-only";
const POLL: Duration = Duration::from_millis(100);
/// Characters of a configuration's name.
const WIDTH: usize = 20;

/// Flags of `millstream-bench map-only`.
#[derive(Debug, clap::Args)]
pub struct Flags {
    /// Messages of 1,005 bytes in the topic
    #[arg(long, default_value_t = 1_000_000)]
    messages: u64,
    /// What the sink promises; a Delta table is written exactly once only
    #[arg(long, value_delimiter = ',', default_value = "exactly-once,at-least-once")]
    delivery: Vec<Delivery>,
    /// Measure only one of them
    #[arg(long)]
    only: Option<System>,
    /// Measure latency at a fixed rate instead of throughput
    #[arg(long)]
    latency: bool,
    /// Where messages come from
    #[arg(long, default_value = "kafka", conflicts_with = "latency")]
    source: InputKind,
    #[command(flatten)]
    live: LiveFlags,
    #[command(flatten)]
    topic: TopicFlags,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum System {
    /// The Kafka client alone: records are read and dropped.
    Client,
    /// `millstream run` into a Delta table, exactly once.
    Delta,
    /// Into another topic, exactly once.
    KafkaExactlyOnce,
    /// Into another topic, at least once.
    KafkaAtLeastOnce,
}

/// One result line.
#[derive(Clone, Debug, Serialize)]
struct MapOnlyLine {
    configuration: String,
    round: u32,
    #[serde(flatten)]
    throughput: Throughput,
    /// Rows written less messages; `None` where nothing is written.
    surplus_rows: Option<i64>,
}

/// Medians of a system's rounds.
#[derive(Clone, Debug, Serialize)]
struct Summary {
    configuration: String,
    #[serde(flatten)]
    medians: Medians,
}

/// Runs the whole benchmark. True if every message was written once in every round.
pub fn run(env: &Env, flags: &Flags) -> Result<bool, Error> {
    if flags.messages == 0 {
        return Err(Error::Flags { problem: "--messages must be at least 1".to_owned() });
    }
    flags.live.check()?;
    if flags.source == InputKind::InProcess {
        return in_memory::run(env, flags);
    }
    if flags.systems().next().is_none() {
        let problem = "--only and --delivery leave nothing to measure".to_owned();
        return Err(Error::Flags { problem });
    }
    let testbed = TestBed::open(env, NAME, &flags.topic)?;
    let report = Report::new(NAME, Some(&testbed.broker));
    if flags.latency {
        return latency::run(flags, &testbed, &report);
    }
    testbed.with_topic("in", flags.topic.partitions, |topic| {
        Bench { flags, testbed: &testbed, topic }.run(&report)
    })
}

impl Flags {
    fn systems(&self) -> impl Iterator<Item = System> {
        let wanted = |system: &System| {
            let promised =
                system.delivery().is_none_or(|delivery| self.delivery.contains(&delivery));
            promised && self.only.is_none_or(|only| only == *system)
        };
        System::value_variants().iter().copied().filter(wanted)
    }
}

impl System {
    /// What it promises; `None` for the client, which writes nothing.
    fn delivery(self) -> Option<Delivery> {
        match self {
            Self::Client => None,
            Self::Delta | Self::KafkaExactlyOnce => Some(Delivery::ExactlyOnce),
            Self::KafkaAtLeastOnce => Some(Delivery::AtLeastOnce),
        }
    }
}

struct Bench<'a> {
    flags: &'a Flags,
    testbed: &'a TestBed,
    topic: &'a str,
}

impl Bench<'_> {
    fn run(&self, report: &Report) -> Result<bool, Error> {
        eprintln!("filling a topic with {} messages", self.flags.messages);
        let sent = self.fill()?;
        eprintln!("{}", Throughput::table_head(WIDTH));
        let mut lines = Vec::new();
        for round in 1..=self.flags.topic.repeat {
            for system in self.flags.systems() {
                let line = self.round(system, round, &sent)?;
                report.line("round", &line)?;
                eprintln!("{}", table_row(&line));
                lines.push(line);
            }
        }
        for system in self.flags.systems() {
            let configuration = report::name(&system);
            let of = lines.iter().filter(|line| line.configuration == configuration);
            let medians = Medians::of(of.map(|line| &line.throughput));
            report.line("summary", &Summary { configuration, medians })?;
        }
        Ok(lines.iter().all(|line| line.surplus_rows.unwrap_or(0) == 0))
    }

    /// Gives what was sent.
    fn fill(&self) -> Result<MessagesFound, Error> {
        let topic = self.testbed.open_topic(self.topic)?;
        let (mut sent, mut messages) = (MessagesFound::default(), Messages::new(None));
        for _ in 0..self.flags.messages {
            let message = messages.make()?;
            sent.add(message.id);
            topic.write(message.bytes, None, None)?;
        }
        topic.flush()?;
        Ok(sent)
    }

    fn round(
        &self,
        system: System,
        round: u32,
        sent: &MessagesFound,
    ) -> Result<MapOnlyLine, Error> {
        let configuration = report::name(&system);
        let label = format!("{configuration}-{round}");
        let (took, surplus_rows) = match system.delivery() {
            None => (self.client()?, None),
            Some(_) if system == System::Delta => {
                let (took, surplus) = self.write_table(&label, sent)?;
                (took, Some(surplus))
            }
            Some(delivery) => {
                let (took, surplus) = self.write_topic(&label, delivery, sent)?;
                (took, Some(surplus))
            }
        };
        let TopicFlags { partitions, engine_option, .. } = &self.flags.topic;
        let throughput = Throughput::new(self.flags.messages, *partitions, engine_option, &took);
        Ok(MapOnlyLine { configuration, round, throughput, surplus_rows })
    }

    /// In this process: the client needs no more than a loop.
    fn client(&self) -> Result<Took, Error> {
        let env = &self.testbed.env;
        let (began, before) = (env.monotonic(), program::own_usage());
        let consumer: BaseConsumer = settings::relay_consumer(&self.testbed.broker.address)
            .create()
            .map_err(Error::kafka("starting a consumer"))?;
        let reading = || Error::kafka(format!("reading {}", self.topic));
        let beginnings = offsets::beginnings(self.topic, self.flags.topic.partitions);
        consumer.assign(&beginnings).map_err(reading())?;
        let mut read = 0;
        while read < self.flags.messages {
            if let Some(message) = consumer.poll(POLL) {
                // The words are made only for an error: not for each record.
                message.map_err(|error| reading()(error))?;
                read += 1;
            }
        }
        let (elapsed, after) = (env.monotonic() - began, program::own_usage());
        let usage = Usage { cpu_seconds: after.cpu_seconds - before.cpu_seconds, ..after };
        Ok(Took { elapsed, usage })
    }

    fn write_table(&self, label: &str, sent: &MessagesFound) -> Result<(Took, i64), Error> {
        self.testbed.with_directory(label, |directory| {
            let table = directory.join("table");
            let pipeline = into_table(&self.testbed.source(self.topic), &table, NOW);
            let (took, _) = self.testbed.run_to_end(&pipeline, directory, self.flags.messages)?;
            Ok((took, found_in_table(&self.testbed.env, &table)?.surplus(sent, &table)?))
        })
    }

    fn write_topic(
        &self,
        label: &str,
        delivery: Delivery,
        sent: &MessagesFound,
    ) -> Result<(Took, i64), Error> {
        let partitions = self.flags.topic.partitions;
        self.testbed.with_topic(label, partitions, |output| {
            self.testbed.with_directory(label, |directory| {
                let source = self.testbed.source(self.topic);
                let brokers = &self.testbed.broker.address;
                let pipeline = into_topic(&source, brokers, output, delivery, NOW);
                let (took, _) =
                    self.testbed.run_to_end(&pipeline, directory, self.flags.messages)?;
                let found = found_in_topic(brokers, output, partitions)?;
                Ok((took, found.surplus(sent, Path::new(output))?))
            })
        })
    }
}

/// A writer's option: the run ends when the topic's end at its start is reached.
const NOW: &[(&str, &str)] = &[("trigger", "availableNow")];

/// A pipeline from what `source` is into a Delta table; `of_writer` are more options of the sink.
fn into_table(source: &str, table: &Path, of_writer: &[(&str, &str)]) -> String {
    let table = table.display().to_string();
    let options: Vec<_> =
        [("path", table.as_str())].into_iter().chain(of_writer.to_vec()).collect();
    pipeline(source, &format!("delta OPTIONS ({})", sql_options(&options, &[])))
}

/// A pipeline that keeps both columns as they are.
fn pipeline(source: &str, sink: &str) -> String {
    format!(
        "CREATE TABLE input (logStreamId STRING, message STRING) USING {source};\n\
         CREATE TABLE output USING {sink};\n\
         CREATE FLOW map_only AS INSERT INTO output\n\
         SELECT logStreamId, message FROM STREAM input;\n"
    )
}

/// A pipeline into a topic.
fn into_topic(
    source: &str,
    brokers: &str,
    topic: &str,
    delivery: Delivery,
    of_writer: &[(&str, &str)],
) -> String {
    let delivery = report::name(&delivery);
    let own = [("kafka.bootstrap.servers", brokers), ("topic", topic), ("delivery", &delivery)];
    let options: Vec<_> = own.into_iter().chain(of_writer.to_vec()).collect();
    format!(
        "CREATE TABLE input (logStreamId STRING, message STRING) USING {source};\n\
         CREATE TABLE output USING kafka OPTIONS ({});\n\
         CREATE FLOW map_only AS INSERT INTO output BY NAME\n\
         SELECT logStreamId AS key, message AS value FROM STREAM input;\n",
        sql_options(&options, &[]),
    )
}

fn found_in_table(env: &Env, table: &Path) -> Result<MessagesFound, Error> {
    let mut found = MessagesFound::default();
    read_back::table(env, table, &["logStreamId"], |rows| {
        rows.column(0).as_string::<i32>().iter().for_each(|id| found.add_text(id));
    })?;
    Ok(found)
}

fn found_in_topic(brokers: &str, topic: &str, partitions: i32) -> Result<MessagesFound, Error> {
    let mut found = MessagesFound::default();
    read_back::topic(brokers, topic, partitions, |record| {
        found.add_text(record.key().and_then(|key| std::str::from_utf8(key).ok()));
    })?;
    Ok(found)
}

fn table_row(line: &MapOnlyLine) -> String {
    let surplus = line.surplus_rows.filter(|rows| *rows != 0);
    let surplus = surplus.map(|rows| format!("  {rows:+} rows")).unwrap_or_default();
    format!("{}{surplus}", line.throughput.table_row(&line.configuration, WIDTH, line.round))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_is_written_as_promised() {
        let delivery = Delivery::AtLeastOnce;
        let pipeline =
            into_topic("kafka OPTIONS ('subscribe' = 'in')", "h:1", "out", delivery, NOW);
        assert_eq!(
            pipeline,
            "CREATE TABLE input (logStreamId STRING, message STRING) USING kafka OPTIONS \
             ('subscribe' = 'in');\n\
             CREATE TABLE output USING kafka OPTIONS ('kafka.bootstrap.servers' = 'h:1', \
             'topic' = 'out', 'delivery' = 'at-least-once', 'trigger' = 'availableNow');\n\
             CREATE FLOW map_only AS INSERT INTO output BY NAME\n\
             SELECT logStreamId AS key, message AS value FROM STREAM input;\n"
        );
    }
}

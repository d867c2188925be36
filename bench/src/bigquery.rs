//! `millstream-bench bigquery`: messages of a topic of Kafka, or of a subscription of Pub/Sub, into
//! a table of BigQuery, as fast as that goes.
//!
//! The services are fakes on this machine: one counts rows and keeps none, the other sends the same
//! messages again and again. What counts is the processor time that the engine's process used,
//! start and end included. Broker and fakes are other processes, and so many cores fewer are left
//! for the engine: the rate on the clock is that of the fakes more than that of the engine, and
//! with Pub/Sub the end of a run waits a second for more. There is no TLS and no distance.
//!
//! What every round wrote is counted: there must be as many rows as messages.

use millstream_store::env::Env;
use millstream_testkit::bigquery::BigQuery;
use millstream_testkit::pubsub::Pubsub;
use serde::Serialize;
use serde_json::json;

use crate::engine::{Delivery, sql_options};
use crate::error::Error;
use crate::messages::Messages;
use crate::report::{self, Report};
use crate::testbed::{TestBed, TopicFlags};
use crate::throughput::{Medians, Throughput};

const NAME: &str = "bigquery";
/// Characters of a configuration's name.
const WIDTH: usize = 22;
/// Messages that a subscription repeats.
const SAMPLES: usize = 5_000;
const TABLE: &str = "d.output";

/// Flags of `millstream-bench bigquery`.
#[derive(Debug, clap::Args)]
pub struct Flags {
    /// Messages of 1,005 bytes in the topic
    #[arg(long, default_value_t = 1_000_000)]
    messages: u64,
    /// Where messages come from
    #[arg(long, value_delimiter = ',', default_value = "kafka,pubsub")]
    source: Vec<From>,
    /// What the sink promises
    #[arg(long, value_delimiter = ',', default_value = "exactly-once,at-least-once")]
    delivery: Vec<Delivery>,
    #[command(flatten)]
    topic: TopicFlags,
}

/// Where messages come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
enum From {
    /// A topic.
    Kafka,
    /// A subscription.
    Pubsub,
}

/// One result line.
#[derive(Clone, Debug, Serialize)]
struct BigQueryLine {
    configuration: String,
    round: u32,
    #[serde(flatten)]
    throughput: Throughput,
    /// Rows written less messages.
    surplus_rows: i64,
}

/// Medians of a configuration's rounds.
#[derive(Clone, Debug, Serialize)]
struct Summary {
    configuration: String,
    #[serde(flatten)]
    medians: Medians,
}

/// Runs the whole benchmark. True if every round wrote as many rows as there are messages.
pub fn run(env: &Env, flags: &Flags) -> Result<bool, Error> {
    if flags.messages == 0 {
        return Err(Error::Flags { problem: "--messages must be at least 1".to_owned() });
    }
    let testbed = TestBed::open(env, NAME, &flags.topic)?;
    let report = Report::new(NAME, Some(&testbed.broker));
    testbed.with_topic("in", flags.topic.partitions, |topic| {
        let samples = samples()?;
        Bench { flags, testbed: &testbed, topic, samples }.run(&report)
    })
}

struct Bench<'a> {
    flags: &'a Flags,
    testbed: &'a TestBed,
    topic: &'a str,
    /// Messages that the subscription repeats.
    samples: Vec<String>,
}

impl Bench<'_> {
    fn run(&self, report: &Report) -> Result<bool, Error> {
        if self.flags.source.contains(&From::Kafka) {
            eprintln!("filling a topic with {} messages", self.flags.messages);
            self.fill()?;
        }
        eprintln!("{}", Throughput::table_head(WIDTH));
        let mut lines = Vec::new();
        for round in 1..=self.flags.topic.repeat {
            for (source, delivery) in self.configurations() {
                let line = self.round(source, delivery, round)?;
                report.line("round", &line)?;
                eprintln!("{}", line.throughput.table_row(&line.configuration, WIDTH, round));
                lines.push(line);
            }
        }
        for (source, delivery) in self.configurations() {
            let configuration = name(source, delivery);
            let of = lines.iter().filter(|line| line.configuration == configuration);
            let medians = Medians::of(of.map(|line| &line.throughput));
            report.line("summary", &Summary { configuration, medians })?;
        }
        Ok(lines.iter().all(|line| line.surplus_rows == 0))
    }

    fn configurations(&self) -> impl Iterator<Item = (From, Delivery)> {
        let Flags { source, delivery, .. } = self.flags;
        source.iter().flat_map(|source| delivery.iter().map(|delivery| (*source, *delivery)))
    }

    fn fill(&self) -> Result<(), Error> {
        let topic = self.testbed.open_topic(self.topic)?;
        let mut messages = Messages::new(None);
        for _ in 0..self.flags.messages {
            topic.write(messages.make()?.bytes, None, None)?;
        }
        topic.flush()
    }

    fn round(&self, source: From, delivery: Delivery, round: u32) -> Result<BigQueryLine, Error> {
        let configuration = name(source, delivery);
        let server = BigQuery::start_fake(&["--discard"]);
        let text = |name: &str| json!({"name": name, "type": "STRING"});
        server.create_fake_table(TABLE, &json!([text("logStreamId"), text("message")]));
        let pubsub = (source == From::Pubsub).then(Pubsub::start);
        let input = match &pubsub {
            Some(pubsub) => {
                pubsub.flood(self.flags.messages, &self.samples);
                of_pubsub(pubsub.address(), self.testbed)
            }
            None => of_kafka(&self.testbed.source(self.topic)),
        };
        let pipeline = pipeline(&input, &server, &report::name(&delivery));
        let messages = self.flags.messages;
        let took =
            self.testbed.with_directory(&format!("{configuration}-{round}"), |directory| {
                self.testbed.run_to_end(&pipeline, directory, messages).map(|(took, _)| took)
            })?;
        let TopicFlags { partitions, engine_option, .. } = &self.flags.topic;
        let throughput = Throughput::new(messages, *partitions, engine_option, &took);
        let surplus_rows = server.count(TABLE).cast_signed() - messages.cast_signed();
        Ok(BigQueryLine { configuration, round, throughput, surplus_rows })
    }
}

fn name(source: From, delivery: Delivery) -> String {
    match source {
        From::Kafka => report::name(&delivery),
        From::Pubsub => format!("pubsub-{}", report::name(&delivery)),
    }
}

fn samples() -> Result<Vec<String>, Error> {
    let mut messages = Messages::new(None);
    let sample = |_| {
        let message = messages.make()?;
        Ok(String::from_utf8(message.bytes.to_vec()).expect("messages are JSON"))
    };
    (0..SAMPLES).map(sample).collect()
}

/// A table and a query of both columns of a topic's messages.
fn of_kafka(source: &str) -> Input {
    Input {
        table: format!("CREATE TABLE input (logStreamId STRING, message STRING) USING {source}"),
        query: "SELECT logStreamId, message FROM STREAM input",
    }
}

/// The same of a subscription's.
fn of_pubsub(address: &str, testbed: &TestBed) -> Input {
    let endpoint = format!("http://{address}");
    let own = [
        ("projectId", "p"),
        ("subscriptionId", "s"),
        ("endpoint", &*endpoint),
        ("maxFetchPeriod", "1s"),
    ];
    let options = sql_options(&own, &testbed.options.source);
    Input {
        table: format!("CREATE TABLE input (payload STRING) USING pubsub OPTIONS ({options})"),
        query: "SELECT o.logStreamId, o.message FROM (SELECT from_json(payload, \
                'logStreamId STRING, message STRING') AS o FROM STREAM input)",
    }
}

struct Input {
    table: String,
    query: &'static str,
}

/// A pipeline that keeps both columns as they are, until the input's end at its start.
fn pipeline(input: &Input, server: &BigQuery, delivery: &str) -> String {
    let (grpc, rest) = (server.grpc_url(), server.rest_url());
    let options = [
        ("project", "p"),
        ("table", TABLE),
        ("bigQueryStorageGrpcEndpoint", &*grpc),
        ("bigQueryHttpEndpoint", &rest),
        ("delivery", delivery),
        ("trigger", "availableNow"),
    ];
    format!(
        "{};\n\
         CREATE TABLE output USING bigquery OPTIONS ({});\n\
         CREATE FLOW map_only AS INSERT INTO output\n\
         {};\n",
        input.table,
        sql_options(&options, &[]),
        input.query,
    )
}

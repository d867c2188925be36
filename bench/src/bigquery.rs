//! `millstream-bench bigquery`: messages of a topic into a table of BigQuery, as fast as that goes.
//!
//! The service is a fake on this machine, which counts rows and keeps none; what counts is the
//! processor time that the engine's process used, start and end included. Broker and fake are
//! other processes, and so many cores fewer are left for the engine: the rate on the clock is that
//! of the fake more than that of the engine. There is no TLS and no distance.
//!
//! What every round wrote is counted: each message must be there once.

use millstream_store::env::Env;
use millstream_testkit::bigquery::BigQuery;
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
const WIDTH: usize = 20;
const TABLE: &str = "d.output";

/// Flags of `millstream-bench bigquery`.
#[derive(Debug, clap::Args)]
pub struct Flags {
    /// Messages of 1,005 bytes in the topic
    #[arg(long, default_value_t = 1_000_000)]
    messages: u64,
    /// What the sink promises
    #[arg(long, value_delimiter = ',', default_value = "exactly-once,at-least-once")]
    delivery: Vec<Delivery>,
    #[command(flatten)]
    topic: TopicFlags,
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

/// Runs the whole benchmark. True if every message was written once in every round.
pub fn run(env: &Env, flags: &Flags) -> Result<bool, Error> {
    if flags.messages == 0 {
        return Err(Error::Flags { problem: "--messages must be at least 1".to_owned() });
    }
    let testbed = TestBed::open(env, NAME, &flags.topic)?;
    let report = Report::new(NAME, Some(&testbed.broker));
    testbed.with_topic("in", flags.topic.partitions, |topic| {
        Bench { flags, testbed: &testbed, topic }.run(&report)
    })
}

struct Bench<'a> {
    flags: &'a Flags,
    testbed: &'a TestBed,
    topic: &'a str,
}

impl Bench<'_> {
    fn run(&self, report: &Report) -> Result<bool, Error> {
        eprintln!("filling a topic with {} messages", self.flags.messages);
        self.fill()?;
        eprintln!("{}", Throughput::table_head(WIDTH));
        let mut lines = Vec::new();
        for round in 1..=self.flags.topic.repeat {
            for delivery in &self.flags.delivery {
                let line = self.round(*delivery, round)?;
                report.line("round", &line)?;
                eprintln!("{}", line.throughput.table_row(&line.configuration, WIDTH, round));
                lines.push(line);
            }
        }
        for delivery in &self.flags.delivery {
            let configuration = report::name(delivery);
            let of = lines.iter().filter(|line| line.configuration == configuration);
            let medians = Medians::of(of.map(|line| &line.throughput));
            report.line("summary", &Summary { configuration, medians })?;
        }
        Ok(lines.iter().all(|line| line.surplus_rows == 0))
    }

    fn fill(&self) -> Result<(), Error> {
        let topic = self.testbed.open_topic(self.topic)?;
        let mut messages = Messages::new(None);
        for _ in 0..self.flags.messages {
            topic.write(messages.make()?.bytes, None, None)?;
        }
        topic.flush()
    }

    fn round(&self, delivery: Delivery, round: u32) -> Result<BigQueryLine, Error> {
        let configuration = report::name(&delivery);
        let server = BigQuery::start_fake(&["--discard"]);
        let text = |name: &str| json!({"name": name, "type": "STRING"});
        server.create_fake_table(TABLE, &json!([text("logStreamId"), text("message")]));
        let pipeline = pipeline(&self.testbed.source(self.topic), &server, &configuration);
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

/// A pipeline that keeps both columns as they are, until the topic's end at its start.
fn pipeline(source: &str, server: &BigQuery, delivery: &str) -> String {
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
        "CREATE TABLE input (logStreamId STRING, message STRING) USING {source};\n\
         CREATE TABLE output USING bigquery OPTIONS ({});\n\
         CREATE FLOW map_only AS INSERT INTO output\n\
         SELECT logStreamId, message FROM STREAM input;\n",
        sql_options(&options, &[]),
    )
}

//! `bench map-only`: messages of a topic into a Delta table, as fast as the engine takes them.
//!
//! A topic is filled first. Each round then starts the engine on it as a user would, with the
//! trigger `availableNow`, and lets it run to its end; beside it stands the Kafka client alone,
//! which reads the same records and drops them. What counts is the processor time that the engine's
//! process used, start and end included: broker and generator are other processes.
//!
//! The table of every round is read back: each message must be in it once.

use std::path::Path;
use std::time::Duration;

use arrow::array::{AsArray, RecordBatch};
use clap::ValueEnum;
use millstream_generate::{Generator, Template};
use millstream_lake::read::TableReader;
use millstream_lake::store::TableStore;
use millstream_store::env::Env;
use rdkafka::consumer::{BaseConsumer, Consumer};
use serde::Serialize;

use super::broker::Broker;
use super::engine::{self, EngineOptions, sql_options};
use super::error::Error;
use super::process::{self, Usage};
use super::report::{self, Report};
use super::work_directory::WorkDirectory;
use super::{settings, topics};
use crate::generate::output::Output;
use crate::generate::topic::Topic;

const TOPIC: &str = "messages";
/// Messages of [`MESSAGE_BYTES`], with 999,999 different ids.
pub(super) const TEMPLATE: &str =
    r#"{ "logStreamId": "{{integer(1000001,2000000)}}", "message": "{{alphaNumeric(962)}}" }"#;
pub(super) const MESSAGE_BYTES: usize = 1_005;
/// Every run has the same messages.
pub(super) const SEED: u64 = 1;
/// A run that takes longer than this much for each message hangs.
const PATIENCE_PER_MESSAGE: Duration = Duration::from_micros(500);
const PATIENCE: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(100);

/// Flags of `bench map-only`.
#[derive(Debug, clap::Args)]
pub struct Flags {
    /// Messages of 1,005 bytes in the topic
    #[arg(long, default_value_t = 1_000_000)]
    messages: u64,
    /// Partitions of the topic
    #[arg(long, default_value_t = 4)]
    partitions: i32,
    /// Rounds of each measurement
    #[arg(long, default_value_t = 3)]
    repeat: u32,
    /// A broker that is running already, HOST:PORT; otherwise Apache Kafka is started
    #[arg(long, value_name = "HOST:PORT")]
    brokers: Option<String>,
    /// Option of the engine: `source.NAME=V` stands in the pipeline's source table, anything else
    /// is handed to `run --set`
    #[arg(long, value_name = "K=V")]
    engine_option: Vec<String>,
    /// Measure only one of the two
    #[arg(long)]
    only: Option<System>,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum System {
    /// The Kafka client alone: records are read and dropped.
    Client,
    /// `millstream run` into a Delta table, exactly once.
    Delta,
}

/// One result line.
#[derive(Clone, Debug, Serialize)]
struct Line {
    configuration: String,
    round: u32,
    messages: u64,
    message_bytes: usize,
    partitions: i32,
    engine_options: Vec<String>,
    seconds: f64,
    cpu_seconds: f64,
    peak_rss_mb: f64,
    mb_per_s: f64,
    /// Million bytes of messages for each second of processor time.
    mb_per_busy_core_second: f64,
    /// Rows of the table less messages; `None` where there is no table.
    surplus_rows: Option<i64>,
}

/// Medians of a system's rounds.
#[derive(Clone, Debug, Serialize)]
struct Summary {
    configuration: String,
    rounds: usize,
    messages: u64,
    mb_per_s: f64,
    mb_per_busy_core_second: f64,
    peak_rss_mb: f64,
}

/// Runs the whole benchmark. True if every message was in every table once.
pub fn run(env: &Env, flags: &Flags) -> Result<bool, Error> {
    if flags.messages == 0 || flags.partitions < 1 || flags.repeat == 0 {
        let problem = "--messages, --partitions and --repeat must be at least 1".to_owned();
        return Err(Error::Flags { problem });
    }
    let options = EngineOptions::parse(&flags.engine_option)?;
    // Made before the broker and so dropped after it: nobody writes there any more.
    let work = WorkDirectory::create()?;
    let broker = Broker::of(env, &work, flags.brokers.as_deref())?;
    let topic = format!("{TOPIC}-{}", std::process::id());
    broker.topics.create(&topic, flags.partitions)?;
    let bench = Bench { env, flags, options, broker: &broker, topic: &topic, work: &work };
    let outcome = bench.run();
    broker.topics.delete(&[&topic])?;
    outcome
}

struct Bench<'a> {
    env: &'a Env,
    flags: &'a Flags,
    options: EngineOptions,
    broker: &'a Broker,
    topic: &'a str,
    work: &'a WorkDirectory,
}

/// What one run took.
struct Took {
    elapsed: Duration,
    usage: Usage,
    surplus_rows: Option<i64>,
}

impl Bench<'_> {
    fn run(&self) -> Result<bool, Error> {
        eprintln!("filling a topic with {} messages", self.flags.messages);
        let sent = self.fill()?;
        let report = Report::new("map-only", Some(self.broker));
        eprintln!(
            "{:<8} {:>6} {:>9} {:>9} {:>9} {:>18} {:>8}",
            "", "round", "s", "CPU s", "MB/s", "MB/s per busy core", "RSS MB"
        );
        let mut lines = Vec::new();
        for round in 1..=self.flags.repeat {
            for system in self.systems() {
                let took = match system {
                    System::Client => self.client()?,
                    System::Delta => self.delta(round, &sent)?,
                };
                let line = self.line(system, round, &took);
                report.line("round", &line)?;
                eprintln!("{}", table_row(&line));
                lines.push(line);
            }
        }
        for system in self.systems() {
            report.line("summary", &summary(&report::name(&system), &lines))?;
        }
        Ok(lines.iter().all(|line| line.surplus_rows.unwrap_or(0) == 0))
    }

    fn systems(&self) -> impl Iterator<Item = System> {
        let systems = System::value_variants().iter().copied();
        let only = self.flags.only;
        systems.filter(move |system| only.is_none_or(|only| only == *system))
    }

    /// Gives what was sent.
    fn fill(&self) -> Result<Found, Error> {
        let failed = |error: &dyn std::fmt::Display| Error::Fill { problem: error.to_string() };
        let template = Template::parse(TEMPLATE).expect("it is a template");
        let mut generator = Generator::new(&template, SEED, self.env.now_ms());
        let mut topic =
            Topic::open(&self.broker.address, self.topic).map_err(|error| failed(&error))?;
        let (mut sent, mut message) = (Found::default(), Vec::with_capacity(MESSAGE_BYTES));
        for _ in 0..self.flags.messages {
            message.clear();
            generator.write_message(&mut message).map_err(|error| failed(&error))?;
            assert_eq!(message.len(), MESSAGE_BYTES, "the template says so");
            sent.add_id(id_of(&message));
            topic.write(&message).map_err(|error| failed(&error))?;
        }
        topic.finish().map_err(|error| failed(&error))?;
        Ok(sent)
    }

    /// In this process: the client needs no more than a loop.
    fn client(&self) -> Result<Took, Error> {
        let (began, before) = (self.env.monotonic(), process::own_usage());
        let consumer: BaseConsumer = settings::relay_consumer(&self.broker.address)
            .create()
            .map_err(Error::kafka("starting a consumer"))?;
        let reading = || Error::kafka(format!("reading {}", self.topic));
        let beginnings = topics::beginnings(self.topic, self.flags.partitions);
        consumer.assign(&beginnings).map_err(reading())?;
        let mut read = 0;
        while read < self.flags.messages {
            if let Some(message) = consumer.poll(POLL) {
                message.map_err(reading())?;
                read += 1;
            }
        }
        let (elapsed, after) = (self.env.monotonic() - began, process::own_usage());
        let usage = Usage { cpu_seconds: after.cpu_seconds - before.cpu_seconds, ..after };
        Ok(Took { elapsed, usage, surplus_rows: None })
    }

    fn delta(&self, round: u32, sent: &Found) -> Result<Took, Error> {
        let directory = self.work.subdirectory(&format!("delta-{round}"))?;
        let table = directory.join("table");
        let began = self.env.monotonic();
        let mut engine = engine::start(&self.pipeline(&table), &self.options, &directory)?;
        let patience = PATIENCE
            + PATIENCE_PER_MESSAGE * u32::try_from(self.flags.messages).unwrap_or(u32::MAX);
        let usage = engine.wait(self.env, patience)?;
        let elapsed = self.env.monotonic() - began;
        let surplus_rows = Some(self.surplus_rows(&table, sent)?);
        // The next round needs the room.
        std::fs::remove_dir_all(&directory).map_err(Error::file("remove", &directory))?;
        Ok(Took { elapsed, usage, surplus_rows })
    }

    fn pipeline(&self, table: &Path) -> String {
        let source = [
            ("kafka.bootstrap.servers", self.broker.address.as_str()),
            ("subscribe", self.topic),
            ("startingOffsets", "earliest"),
        ];
        let table = table.display().to_string();
        format!(
            "CREATE TABLE input (logStreamId STRING, message STRING) USING kafka OPTIONS ({});\n\
             CREATE TABLE output USING delta OPTIONS ({});\n\
             CREATE FLOW map_only AS INSERT INTO output\n\
             SELECT logStreamId, message FROM STREAM input;\n",
            sql_options(&source, &self.options.source),
            sql_options(&[("path", &table), ("trigger", "availableNow")], &[]),
        )
    }

    /// Reads the table back. Errors if it has other messages than the topic, or some twice.
    fn surplus_rows(&self, table: &Path, sent: &Found) -> Result<i64, Error> {
        let store = TableStore::parse(&table.display().to_string(), self.env);
        let store = store.map_err(Error::table("finding the table"))?;
        let reader = TableReader::open(&store).map_err(Error::table("opening the table"))?;
        let columns = ["logStreamId".to_owned()];
        let rows = reader.read(Some(&columns), None).map_err(Error::table("reading the table"))?;
        let mut found = Found::default();
        for rows in rows {
            found.add(&rows.map_err(Error::table("reading the table"))?);
        }
        if found.rows == sent.rows && found.ids != sent.ids {
            let problem = "as many rows as messages, but not the same".to_owned();
            return Err(Error::Result { path: table.to_owned(), problem });
        }
        Ok(found.rows - sent.rows)
    }

    fn line(&self, system: System, round: u32, took: &Took) -> Line {
        let megabytes = self.flags.messages as f64 * MESSAGE_BYTES as f64 / 1e6;
        let (seconds, cpu_seconds) = (took.elapsed.as_secs_f64(), took.usage.cpu_seconds);
        Line {
            configuration: report::name(&system),
            round,
            messages: self.flags.messages,
            message_bytes: MESSAGE_BYTES,
            partitions: self.flags.partitions,
            engine_options: self.flags.engine_option.clone(),
            seconds: report::rounded(seconds, 3),
            cpu_seconds: report::rounded(cpu_seconds, 3),
            peak_rss_mb: report::rounded(took.usage.peak_rss_mb, 1),
            mb_per_s: report::rounded(megabytes / seconds, 1),
            mb_per_busy_core_second: report::rounded(megabytes / cpu_seconds, 1),
            surplus_rows: took.surplus_rows,
        }
    }
}

/// Rows, and the sums of their ids and of the ids' squares: what is lost or doubled changes them.
#[derive(Default)]
struct Found {
    rows: i64,
    ids: (u64, u64),
}

impl Found {
    fn add(&mut self, rows: &RecordBatch) {
        for id in rows.column(0).as_string::<i32>() {
            self.add_id(id.and_then(|id| id.parse().ok()).unwrap_or(0));
        }
    }

    fn add_id(&mut self, id: u64) {
        self.rows += 1;
        let (sum, squares) = self.ids;
        self.ids = (sum.wrapping_add(id), squares.wrapping_add(id.wrapping_mul(id)));
    }
}

/// The number between the third and the fourth quotation mark.
pub(super) fn id_of(message: &[u8]) -> u64 {
    let id = message.split(|byte| *byte == b'"').nth(3);
    let id = id.and_then(|id| std::str::from_utf8(id).ok()?.parse().ok());
    id.expect("the template has it there")
}

fn summary(configuration: &str, lines: &[Line]) -> Summary {
    let lines: Vec<_> = lines.iter().filter(|line| line.configuration == configuration).collect();
    let of = |value: fn(&Line) -> f64| {
        report::rounded(report::median(lines.iter().map(|line| value(line))), 1)
    };
    Summary {
        configuration: configuration.to_owned(),
        rounds: lines.len(),
        messages: lines.first().map_or(0, |line| line.messages),
        mb_per_s: of(|line| line.mb_per_s),
        mb_per_busy_core_second: of(|line| line.mb_per_busy_core_second),
        peak_rss_mb: of(|line| line.peak_rss_mb),
    }
}

fn table_row(line: &Line) -> String {
    let surplus = line.surplus_rows.filter(|rows| *rows != 0);
    let surplus = surplus.map(|rows| format!("  {rows:+} rows")).unwrap_or_default();
    format!(
        "{:<8} {:>6} {:>9.2} {:>9.2} {:>9.1} {:>18.1} {:>8.1}{surplus}",
        line.configuration,
        line.round,
        line.seconds,
        line.cpu_seconds,
        line.mb_per_s,
        line.mb_per_busy_core_second,
        line.peak_rss_mb
    )
}

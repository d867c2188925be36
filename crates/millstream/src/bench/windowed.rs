//! `bench windowed`: messages of a topic, counted or gathered by key and window, into a table.
//!
//! A topic is filled first: the records' times spread evenly over the windows, and a last record of
//! each partition lies behind the last window, so that all of them close. Each round starts the
//! engine on it with the trigger `availableNow`. What counts is the processor time that the
//! engine's process used, start and end included.
//!
//! The table of every round is read back: the messages of all its groups together must be those of
//! the topic, and there must be as many groups as the generator made.

use std::path::Path;
use std::time::Duration;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use clap::ValueEnum;
use millstream_generate::{Generator, Template};
use millstream_lake::read::TableReader;
use millstream_lake::store::TableStore;
use millstream_store::env::Env;
use serde::Serialize;

use super::broker::Broker;
use super::engine::{self, EngineOptions, sql_options};
use super::error::Error;
use super::map_only::{MESSAGE_BYTES, SEED, TEMPLATE, id_of};
use super::process::Usage;
use super::report::{self, Report};
use super::work_directory::WorkDirectory;
use crate::generate::output::Output;
use crate::generate::topic::Topic;

const TOPIC: &str = "windowed";
/// Ids in the messages are from here on, 999,999 of them.
const FIRST_ID: u64 = 1_000_001;
const IDS: usize = 999_999;
/// The first window; any moment would do.
const FIRST_WINDOW_MS: i64 = 1_767_225_600_000;
const WINDOW_MS: i64 = 60_000;
/// A run that takes longer than this much for each message hangs.
const PATIENCE_PER_MESSAGE: Duration = Duration::from_millis(1);
const PATIENCE: Duration = Duration::from_secs(120);
/// What is published for a cluster of two-core workers: million bytes a second for each, and the
/// part of the cores that is busy.
const PUBLISHED_MB_PER_S: f64 = 6.0;
const PUBLISHED_BUSY: f64 = 0.8;
const PUBLISHED_CORES: f64 = 2.0;
const GIB: f64 = 1_073.741_824;

/// Flags of `bench windowed`.
#[derive(Debug, clap::Args)]
pub struct Flags {
    /// Messages of 1,005 bytes in the topic
    #[arg(long, default_value_t = 2_000_000)]
    messages: u64,
    /// Windows of a minute that they spread over
    #[arg(long, default_value_t = 2)]
    windows: u32,
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
    /// Measure only one form
    #[arg(long)]
    only: Option<Form>,
}

/// What is made of the messages of a key in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// How many there are, and the sum of their lengths.
    Count,
    /// A list of them.
    List,
}

/// One result line.
#[derive(Clone, Debug, Serialize)]
struct Line {
    configuration: String,
    round: u32,
    messages: u64,
    message_bytes: usize,
    windows: u32,
    groups: u64,
    partitions: i32,
    engine_options: Vec<String>,
    seconds: f64,
    cpu_seconds: f64,
    peak_rss_mb: f64,
    mb_per_s: f64,
    /// Million bytes of messages for each second of processor time.
    mb_per_busy_core_second: f64,
    /// Messages in all groups of the table less those of the topic.
    surplus_rows: i64,
}

/// Medians of a form's rounds, beside what is published.
#[derive(Clone, Debug, Serialize)]
struct Summary {
    configuration: String,
    rounds: usize,
    messages: u64,
    groups: u64,
    mb_per_s: f64,
    mb_per_busy_core_second: f64,
    peak_rss_mb: f64,
    /// Cores that are busy to 80 %, for 1 GiB/s of messages.
    cores_for_1_gib_per_s: f64,
    published_mb_per_busy_core_second: f64,
    published_cores_for_1_gib_per_s: f64,
}

/// Runs the whole benchmark. True if every message was in every table once.
pub fn run(env: &Env, flags: &Flags) -> Result<bool, Error> {
    if flags.messages == 0 || flags.partitions < 1 || flags.repeat == 0 || flags.windows == 0 {
        let problem = "--messages, --windows, --partitions and --repeat must be at least 1";
        return Err(Error::Flags { problem: problem.to_owned() });
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

/// What is in a topic or in a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Found {
    messages: u64,
    /// The sum of their ids.
    ids: u64,
    groups: u64,
}

impl Bench<'_> {
    fn run(&self) -> Result<bool, Error> {
        let (messages, windows) = (self.flags.messages, self.flags.windows);
        eprintln!("filling a topic with {messages} messages of {windows} windows");
        let sent = self.fill()?;
        let report = Report::new("windowed", Some(self.broker));
        eprintln!(
            "{:<8} {:>6} {:>9} {:>9} {:>9} {:>18} {:>8} {:>10}",
            "", "round", "s", "CPU s", "MB/s", "MB/s per busy core", "RSS MB", "groups"
        );
        let mut lines = Vec::new();
        for round in 1..=self.flags.repeat {
            for form in self.forms() {
                let line = self.round(form, round, &sent)?;
                report.line("round", &line)?;
                eprintln!("{}", table_row(&line));
                lines.push(line);
            }
        }
        for form in self.forms() {
            let summary = summary(&report::name(&form), &lines);
            report.line("summary", &summary)?;
            eprintln!("{}", beside_published(&summary));
        }
        Ok(lines.iter().all(|line| line.surplus_rows == 0))
    }

    fn forms(&self) -> impl Iterator<Item = Form> {
        let only = self.flags.only;
        let forms = Form::value_variants().iter().copied();
        forms.filter(move |form| only.is_none_or(|only| only == *form))
    }

    /// Gives what was sent.
    fn fill(&self) -> Result<Found, Error> {
        let failed = |error: &dyn std::fmt::Display| Error::Fill { problem: error.to_string() };
        let template = Template::parse(TEMPLATE).expect("it is a template");
        let mut generator = Generator::new(&template, SEED, self.env.now_ms());
        let topic = Topic::open(&self.broker.address, self.topic);
        let mut topic = topic.map_err(|error| failed(&error))?;
        let windows = self.flags.windows as usize;
        let (mut sent, mut message) = (Found::default(), Vec::with_capacity(MESSAGE_BYTES));
        let mut seen = vec![false; windows * IDS];
        for number in 0..self.flags.messages {
            message.clear();
            generator.write_message(&mut message).map_err(|error| failed(&error))?;
            let id = id_of(&message);
            let span_ms = i128::from(WINDOW_MS) * windows as i128;
            let into_ms = span_ms * i128::from(number) / i128::from(self.flags.messages);
            let into_ms = i64::try_from(into_ms).expect("it is within the span");
            let window = usize::try_from(into_ms / WINDOW_MS).expect("it is not negative");
            let group = window * IDS + usize::try_from(id - FIRST_ID).expect("a small number");
            sent.groups += u64::from(!std::mem::replace(&mut seen[group], true));
            sent.messages += 1;
            sent.ids = sent.ids.wrapping_add(id);
            topic.write_at(&message, FIRST_WINDOW_MS + into_ms).map_err(|error| failed(&error))?;
        }
        let end_ms = FIRST_WINDOW_MS + WINDOW_MS * i64::from(self.flags.windows);
        for partition in 0..self.flags.partitions {
            topic.write_to(partition, &message, end_ms).map_err(|error| failed(&error))?;
        }
        topic.finish().map_err(|error| failed(&error))?;
        Ok(sent)
    }

    fn round(&self, form: Form, round: u32, sent: &Found) -> Result<Line, Error> {
        let directory = self.work.subdirectory(&format!("{}-{round}", report::name(&form)))?;
        let table = directory.join("table");
        let began = self.env.monotonic();
        let pipeline = self.pipeline(form, &table);
        let mut engine = engine::start(&pipeline, &self.options, &directory)?;
        let patience = PATIENCE
            + PATIENCE_PER_MESSAGE * u32::try_from(self.flags.messages).unwrap_or(u32::MAX);
        let usage = engine.wait(self.env, patience)?;
        let elapsed = self.env.monotonic() - began;
        let found = self.read(&table)?;
        if found.messages == sent.messages && found != *sent {
            let problem = format!("it has {found:?}, but the topic {sent:?}");
            return Err(Error::Result { path: table, problem });
        }
        // The next round needs the room.
        std::fs::remove_dir_all(&directory).map_err(Error::file("remove", &directory))?;
        Ok(self.line(form, round, (elapsed, &usage), (sent, &found)))
    }

    fn pipeline(&self, form: Form, table: &Path) -> String {
        let source = [
            ("kafka.bootstrap.servers", self.broker.address.as_str()),
            ("subscribe", self.topic),
            ("startingOffsets", "earliest"),
        ];
        let table = table.display().to_string();
        let made = match form {
            Form::Count => "count(*) AS messages, sum(length(value)) AS bytes",
            Form::List => "count(*) AS messages, collect_list(value) AS list",
        };
        format!(
            "CREATE TABLE input USING kafka OPTIONS ({});\n\
             CREATE TABLE output USING delta OPTIONS ({});\n\
             CREATE FLOW windowed AS INSERT INTO output\n\
             SELECT window.start AS start, id, {made} FROM (\n\
             SELECT timestamp, get_json_object(value, '$.logStreamId') AS id, value FROM (\n\
             SELECT timestamp, CAST(value AS STRING) AS value\n\
             FROM STREAM input WATERMARK timestamp DELAY OF INTERVAL 0 SECONDS))\n\
             GROUP BY window(timestamp, '1 minute'), id;\n",
            sql_options(&source, &self.options.source),
            sql_options(&[("path", &table), ("trigger", "availableNow")], &[]),
        )
    }

    fn read(&self, table: &Path) -> Result<Found, Error> {
        let store = TableStore::parse(&table.display().to_string(), self.env);
        let store = store.map_err(Error::table("finding the table"))?;
        let reader = TableReader::open(&store).map_err(Error::table("opening the table"))?;
        let columns = ["id".to_owned(), "messages".to_owned()];
        let rows = reader.read(Some(&columns), None).map_err(Error::table("reading the table"))?;
        let mut found = Found::default();
        for rows in rows {
            found.add(&rows.map_err(Error::table("reading the table"))?);
        }
        Ok(found)
    }

    fn line(
        &self,
        form: Form,
        round: u32,
        (elapsed, usage): (Duration, &Usage),
        (sent, found): (&Found, &Found),
    ) -> Line {
        let megabytes = self.flags.messages as f64 * MESSAGE_BYTES as f64 / 1e6;
        let (seconds, cpu_seconds) = (elapsed.as_secs_f64(), usage.cpu_seconds);
        let signed = |count: u64| i64::try_from(count).expect("messages are few");
        Line {
            configuration: report::name(&form),
            round,
            messages: self.flags.messages,
            message_bytes: MESSAGE_BYTES,
            windows: self.flags.windows,
            groups: found.groups,
            partitions: self.flags.partitions,
            engine_options: self.flags.engine_option.clone(),
            seconds: report::rounded(seconds, 3),
            cpu_seconds: report::rounded(cpu_seconds, 3),
            peak_rss_mb: report::rounded(usage.peak_rss_mb, 1),
            mb_per_s: report::rounded(megabytes / seconds, 1),
            mb_per_busy_core_second: report::rounded(megabytes / cpu_seconds, 1),
            surplus_rows: signed(found.messages) - signed(sent.messages),
        }
    }
}

impl Found {
    fn add(&mut self, rows: &RecordBatch) {
        let counts = rows.column(1).as_primitive::<Int64Type>().values();
        for (id, count) in rows.column(0).as_string::<i32>().iter().zip(counts) {
            let id: u64 = id.and_then(|id| id.parse().ok()).unwrap_or(0);
            let count = u64::try_from(*count).unwrap_or(0);
            self.groups += 1;
            self.messages += count;
            self.ids = self.ids.wrapping_add(id.wrapping_mul(count));
        }
    }
}

fn summary(configuration: &str, lines: &[Line]) -> Summary {
    let lines: Vec<_> = lines.iter().filter(|line| line.configuration == configuration).collect();
    let of = |value: fn(&Line) -> f64| {
        report::rounded(report::median(lines.iter().map(|line| value(line))), 1)
    };
    let busy = of(|line| line.mb_per_busy_core_second);
    let published = PUBLISHED_MB_PER_S / PUBLISHED_CORES / PUBLISHED_BUSY;
    let cores = |busy: f64| report::rounded(GIB / (busy * PUBLISHED_BUSY), 1);
    Summary {
        configuration: configuration.to_owned(),
        rounds: lines.len(),
        messages: lines.first().map_or(0, |line| line.messages),
        groups: lines.first().map_or(0, |line| line.groups),
        mb_per_s: of(|line| line.mb_per_s),
        mb_per_busy_core_second: busy,
        peak_rss_mb: of(|line| line.peak_rss_mb),
        cores_for_1_gib_per_s: cores(busy),
        published_mb_per_busy_core_second: report::rounded(published, 2),
        published_cores_for_1_gib_per_s: cores(published),
    }
}

fn beside_published(summary: &Summary) -> String {
    format!(
        "{:<8} {:.1} MB/s per busy core, {} cores for 1 GiB/s (published, with lists: {:.2} and {})",
        summary.configuration,
        summary.mb_per_busy_core_second,
        summary.cores_for_1_gib_per_s,
        summary.published_mb_per_busy_core_second,
        summary.published_cores_for_1_gib_per_s
    )
}

fn table_row(line: &Line) -> String {
    let surplus = Some(line.surplus_rows).filter(|rows| *rows != 0);
    let surplus = surplus.map(|rows| format!("  {rows:+} messages")).unwrap_or_default();
    format!(
        "{:<8} {:>6} {:>9.2} {:>9.2} {:>9.1} {:>18.1} {:>8.1} {:>10}{surplus}",
        line.configuration,
        line.round,
        line.seconds,
        line.cpu_seconds,
        line.mb_per_s,
        line.mb_per_busy_core_second,
        line.peak_rss_mb,
        line.groups
    )
}

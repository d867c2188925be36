//! `millstream-bench windowed`: messages of a topic, counted or gathered by key and window, into a
//! table.
//!
//! A topic is filled first: the records' times spread evenly over the windows, and a last record of
//! each partition lies behind the last window, so that all of them close. Each round starts the
//! engine on it with the trigger `availableNow`. What counts is the processor time that the
//! engine's process used, start and end included.
//!
//! `--source in-process` measures without a broker: see [`in_process`](crate::in_process).
//! `--latency`, `--snapshots` and `--curve` send messages at a fixed rate instead, while the engine
//! runs: see [`live`].
//!
//! The table of every round is read back: the messages of all its groups together must be those of
//! the topic, and there must be as many groups as the generator made.

mod curve;
mod in_memory;
mod latency;
mod live;
mod query;
mod snapshots;
mod soak;

use std::path::Path;

use clap::ValueEnum;
use millstream_store::env::Env;
use serde::Serialize;

use crate::error::Error;
use crate::in_process::InputKind;
use crate::live::LiveFlags;
use crate::messages::{IDS, Messages, Spread, WINDOW_S};
use crate::report::{self, Report};
use crate::state_size::StateSize;
use crate::testbed::{TestBed, TopicFlags};
use crate::throughput::{Medians, Throughput};
use query::{Form, Query, RowsFound, Sent};

const NAME: &str = "windowed";
/// Characters of a configuration's name.
const WIDTH: usize = 8;
/// What is published for a cluster of two-core workers: million bytes a second for each, and the
/// part of the cores that is busy.
const PUBLISHED_MB_PER_S: f64 = 6.0;
const PUBLISHED_BUSY: f64 = 0.8;
const PUBLISHED_CORES: f64 = 2.0;
const GIB: f64 = 1_073.741_824;

/// Flags of `millstream-bench windowed`.
#[derive(Debug, clap::Args)]
pub struct Flags {
    /// Messages of 1,005 bytes in the topic
    #[arg(long, default_value_t = 2_000_000)]
    messages: u64,
    /// Windows of a minute that they spread over
    #[arg(long, default_value_t = 2)]
    windows: u32,
    /// Measure only one form
    #[arg(long)]
    only: Option<Form>,
    /// Different ids of the messages, up to 999999; all of them if it is not given
    #[arg(long)]
    keys: Option<u64>,
    /// Measure latency at a fixed rate instead of throughput
    #[arg(long)]
    latency: bool,
    /// Measure latency with snapshots of the state, and without
    #[arg(long, conflicts_with = "latency")]
    snapshots: bool,
    /// Measure throughput and latency with more and more keys
    #[arg(long, conflicts_with_all = ["latency", "snapshots"])]
    curve: bool,
    /// Run for --seconds once, and tell of each minute
    #[arg(long, conflicts_with_all = ["latency", "snapshots", "curve"])]
    soak: bool,
    /// The most memory for the state, such as 64mb; the rest goes to files
    #[arg(long, value_name = "SIZE")]
    memory_limit: Option<String>,
    /// How many keys, for --curve
    #[arg(long, value_delimiter = ',', default_value = "1000,10000,100000,999999")]
    curve_keys: Vec<u64>,
    /// Live: length of a window
    #[arg(long, default_value_t = 5)]
    window_seconds: u32,
    /// Live: how far the watermark is behind the newest message
    #[arg(long, default_value_t = 1)]
    delay_seconds: u32,
    /// Where messages come from
    #[arg(long, default_value = "kafka", conflicts_with_all = ["latency", "snapshots", "curve", "soak"])]
    source: InputKind,
    #[command(flatten)]
    live: LiveFlags,
    #[command(flatten)]
    topic: TopicFlags,
}

/// One result line.
#[derive(Clone, Debug, Serialize)]
struct WindowedLine {
    configuration: String,
    round: u32,
    windows: u32,
    groups: u64,
    #[serde(flatten)]
    throughput: Throughput,
    #[serde(flatten)]
    state: StateSize,
    /// Messages in all groups of the table less those of the topic.
    surplus_rows: i64,
}

/// Medians of a form's rounds, beside what is published.
#[derive(Clone, Debug, Serialize)]
struct Summary {
    configuration: String,
    groups: u64,
    #[serde(flatten)]
    medians: Medians,
    /// Cores that are busy to 80 %, for 1 GiB/s of messages.
    cores_for_1_gib_per_s: f64,
    published_mb_per_busy_core_second: f64,
    published_cores_for_1_gib_per_s: f64,
}

/// Runs the whole benchmark. True if every message was in every table once.
pub fn run(env: &Env, flags: &Flags) -> Result<bool, Error> {
    if flags.messages == 0 || flags.windows == 0 {
        let problem = "--messages and --windows must be at least 1".to_owned();
        return Err(Error::Flags { problem });
    }
    flags.check_live()?;
    if flags.source == InputKind::InProcess {
        return in_memory::run(env, flags);
    }
    let testbed = TestBed::open(env, NAME, &flags.topic)?;
    let report = Report::new(NAME, Some(&testbed.broker));
    if flags.latency {
        return latency::run(flags, &testbed, &report);
    }
    if flags.curve {
        return curve::run(flags, &testbed, &report);
    }
    if flags.snapshots {
        return snapshots::run(flags, &testbed, &report);
    }
    if flags.soak {
        return soak::run(flags, &testbed, &report);
    }
    testbed.with_topic("in", flags.topic.partitions, |topic| {
        Bench { flags, testbed: &testbed, topic, keys: flags.keys }.run(&report)
    })
}

impl Flags {
    fn check_live(&self) -> Result<(), Error> {
        self.live.check()?;
        let mut keys = self.keys.iter().chain(&self.curve_keys);
        let problem = if self.window_seconds == 0 {
            "--window-seconds must be at least 1".to_owned()
        } else if !keys.all(|keys| (1..=IDS as u64).contains(keys)) {
            format!("--keys and --curve-keys must be from 1 to {IDS}")
        } else {
            return Ok(());
        };
        Err(Error::Flags { problem })
    }

    fn spread(&self) -> Spread {
        Spread { messages: self.messages, windows: self.windows }
    }

    /// What a reader of the table should know.
    fn live_settings(&self) -> String {
        format!(
            "{} messages/s; windows of {} s, watermark {} s behind; the table commits every {}",
            self.live.rate, self.window_seconds, self.delay_seconds, self.live.commit_interval
        )
    }

    /// Options of the sink that the user asked for.
    fn of_writer(&self) -> Vec<(&str, &str)> {
        self.memory_limit.iter().map(|limit| ("memoryLimit", limit.as_str())).collect()
    }

    fn forms(&self) -> impl Iterator<Item = Form> {
        let forms = Form::value_variants().iter().copied();
        forms.filter(move |form| self.only.is_none_or(|only| only == *form))
    }
}

struct Bench<'a> {
    flags: &'a Flags,
    testbed: &'a TestBed,
    topic: &'a str,
    /// Different ids of the messages; `None` for all.
    keys: Option<u64>,
}

impl Bench<'_> {
    fn run(&self, report: &Report) -> Result<bool, Error> {
        let (messages, windows) = (self.flags.messages, self.flags.windows);
        eprintln!("filling a topic with {messages} messages of {windows} windows");
        let sent = self.fill()?;
        eprintln!("{} {:>10} {:>9}", Throughput::table_head(WIDTH), "groups", "state MB");
        let mut lines = Vec::new();
        for round in 1..=self.flags.topic.repeat {
            for form in self.flags.forms() {
                let line = self.round(form, round, &sent)?;
                report.line("round", &line)?;
                eprintln!("{}", table_row(&line));
                lines.push(line);
            }
        }
        for form in self.flags.forms() {
            let summary = summary(report::name(&form), &lines);
            report.line("summary", &summary)?;
            eprintln!("{}", beside_published(&summary));
        }
        Ok(lines.iter().all(|line| line.surplus_rows == 0))
    }

    /// Gives what was sent.
    fn fill(&self) -> Result<RowsFound, Error> {
        let topic = self.testbed.open_topic(self.topic)?;
        let (mut sent, mut messages) = (Sent::default(), Messages::new(self.keys));
        let windows = self.flags.spread();
        for number in 0..self.flags.messages {
            let message = messages.make()?;
            let (window, time_ms) = windows.of(number);
            sent.add(window, message.id);
            topic.write(message.bytes, None, Some(time_ms))?;
        }
        let last = messages.make()?;
        for partition in 0..self.flags.topic.partitions {
            topic.write(last.bytes, Some(partition), Some(windows.end_ms()))?;
        }
        topic.flush()?;
        Ok(sent.found)
    }

    fn round(&self, form: Form, round: u32, sent: &RowsFound) -> Result<WindowedLine, Error> {
        let configuration = report::name(&form);
        self.testbed.with_directory(&format!("{configuration}-{round}"), |directory| {
            let table = directory.join("table");
            let (took, told) = self.testbed.run_to_end(
                &self.pipeline(form, &table),
                directory,
                self.flags.messages,
            )?;
            let found = query::read(&self.testbed.env, &table)?;
            let TopicFlags { partitions, engine_option, .. } = &self.flags.topic;
            Ok(WindowedLine {
                configuration,
                round,
                windows: self.flags.windows,
                groups: found.groups,
                throughput: Throughput::new(self.flags.messages, *partitions, engine_option, &took),
                state: StateSize::of(&told),
                surplus_rows: found.surplus(sent, &table)?,
            })
        })
    }

    fn pipeline(&self, form: Form, table: &Path) -> String {
        let source = self.testbed.source(self.topic);
        let mut of_writer = self.flags.of_writer();
        of_writer.push(("trigger", "availableNow"));
        Query {
            form,
            source: &source,
            table: Some(table),
            window_s: WINDOW_S,
            delay_s: 0,
            of_writer: &of_writer,
        }
        .pipeline()
    }
}

fn summary(configuration: String, lines: &[WindowedLine]) -> Summary {
    let lines: Vec<_> = lines.iter().filter(|line| line.configuration == configuration).collect();
    let medians = Medians::of(lines.iter().map(|line| &line.throughput));
    let published = PUBLISHED_MB_PER_S / PUBLISHED_CORES / PUBLISHED_BUSY;
    let cores = |busy: f64| report::rounded(GIB / (busy * PUBLISHED_BUSY), 1);
    Summary {
        configuration,
        groups: lines.first().map_or(0, |line| line.groups),
        cores_for_1_gib_per_s: cores(medians.mb_per_busy_core_second),
        medians,
        published_mb_per_busy_core_second: report::rounded(published, 2),
        published_cores_for_1_gib_per_s: cores(published),
    }
}

fn beside_published(summary: &Summary) -> String {
    format!(
        "{:<8} {:.1} MB/s per busy core, {} cores for 1 GiB/s (published, with lists: {:.2} and \
         {})",
        summary.configuration,
        summary.medians.mb_per_busy_core_second,
        summary.cores_for_1_gib_per_s,
        summary.published_mb_per_busy_core_second,
        summary.published_cores_for_1_gib_per_s
    )
}

fn table_row(line: &WindowedLine) -> String {
    let surplus = Some(line.surplus_rows).filter(|rows| *rows != 0);
    let surplus = surplus.map(|rows| format!("  {rows:+} messages")).unwrap_or_default();
    let row = line.throughput.table_row(&line.configuration, WIDTH, line.round);
    format!("{row} {:>10} {:>9.1}{surplus}", line.groups, line.state.mb())
}

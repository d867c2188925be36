//! Live windows: messages come at a fixed rate, are counted by key and window, and windows close
//! meanwhile.
//!
//! Their times are the moments they were due. The wait for a window's end belongs to the query and
//! not to the engine, so it is in no figure. What is measured are two stages:
//!
//! - *aggregated*: from the moment a message was due until it is in the state. *Acknowledged* is
//!   the same until the engine tells of its micro-batch: then the change of the state has survived,
//!   but the engine tells in steps of some milliseconds, and in order, behind results that wait for
//!   their table's commit.
//! - *results*: from the moment that the first message was due which takes the watermark past a
//!   window's end, to the moment that all results of that window are published.
//!
//! The sum of both is what is told as latency as a whole, in the way of the published figures.

use std::path::Path;

use serde::Serialize;

use super::query::{self, Form, Query, Sent};
use crate::error::Error;
use crate::live::{Closing, Live, LiveFlags, Load, Ran};
use crate::quantiles::{Latencies, OfStage};
use crate::report;
use crate::state_size::StateSize;
use crate::testbed::{TestBed, TopicFlags};

/// A live run of one query.
pub struct LiveWindows<'a> {
    pub testbed: &'a TestBed,
    pub live: &'a LiveFlags,
    pub topic: &'a TopicFlags,
    /// What tells it apart in result lines, and in names of topics.
    pub configuration: String,
    pub form: Form,
    /// Different ids; `None` for all.
    pub keys: Option<u64>,
    pub window_s: u32,
    pub delay_s: u32,
    pub round: u32,
    /// More options of the sink.
    pub of_writer: &'a [(&'a str, &'a str)],
}

/// The result line.
#[derive(Clone, Debug, Serialize)]
pub struct LiveLine {
    pub configuration: String,
    round: u32,
    /// Different ids that messages can have.
    pub keys: u64,
    window_s: u32,
    delay_s: u32,
    commit_interval: String,
    #[serde(flatten)]
    load: Load,
    #[serde(flatten)]
    pub state: StateSize,
    /// Groups in the table.
    groups: u64,
    /// Messages that the first stage was measured on.
    records: u64,
    pub aggregated: OfStage,
    pub acknowledged: OfStage,
    /// Windows that the second stage was measured on.
    windows: u64,
    pub results: OfStage,
    /// The sums of both stages' quantiles, as published figures are made.
    #[serde(flatten)]
    pub total: OfStage,
    /// Messages in all groups of the table less those sent.
    pub surplus_rows: i64,
}

impl LiveWindows<'_> {
    /// Runs it. `look` gets the directory of the checkpoint at the end, and what the run gave.
    pub fn run(
        &self,
        look: impl FnOnce(&Path, &Ran) -> Result<(), Error>,
    ) -> Result<LiveLine, Error> {
        let label = format!("{}-{}-live", self.configuration, self.round);
        self.testbed.with_live_topic(&label, self.topic.partitions, |topic| {
            self.testbed.with_directory(&label, |directory| {
                let (line, ran) = self.measure(topic, directory)?;
                look(&directory.join("checkpoint"), &ran)?;
                Ok(line)
            })
        })
    }

    fn measure(&self, topic: &str, directory: &Path) -> Result<(LiveLine, Ran), Error> {
        let testbed = self.testbed;
        let (window_ms, delay_ms) = (ms(self.window_s), ms(self.delay_s));
        let closing = |last_ms: i64| {
            let watermark_ms = (last_ms / window_ms + 1) * window_ms;
            Closing { time_ms: watermark_ms + delay_ms, watermark_ms }
        };
        let live = Live {
            testbed,
            flags: self.live,
            topic,
            partitions: self.topic.partitions,
            keys: self.keys,
            round: self.round,
            closing: Some(&closing),
        };
        let table = directory.join("table");
        let (mut sent, mut first_ms) = (Sent::default(), None);
        let ran = live.run(&self.pipeline(topic, &table), directory, |id, time_ms| {
            let window = time_ms / window_ms;
            let first = *first_ms.get_or_insert(window);
            sent.add(usize::try_from(window - first).expect("time goes on"), id);
        })?;
        let found = query::read(&testbed.env, &table)?;
        let surplus_rows = found.surplus(&sent.found, &table)?;
        let line = self.line(&ran, (window_ms, delay_ms), found.groups, surplus_rows, &table)?;
        Ok((line, ran))
    }

    fn pipeline(&self, topic: &str, table: &Path) -> String {
        let source = self.testbed.source(topic);
        let gather = [("commitInterval", self.live.commit_interval.as_str())];
        let of_writer: Vec<_> = gather.into_iter().chain(self.of_writer.to_vec()).collect();
        let Self { form, window_s, delay_s, .. } = *self;
        let of_writer = &of_writer;
        Query { form, source: &source, table: Some(table), window_s, delay_s, of_writer }.pipeline()
    }

    fn line(
        &self,
        ran: &Ran,
        (window_ms, delay_ms): (i64, i64),
        groups: u64,
        surplus_rows: i64,
        table: &Path,
    ) -> Result<LiveLine, Error> {
        let aggregated = ran.plan.latencies(&ran.told, |told| told.computed_us);
        let acknowledged = ran.plan.latencies(&ran.told, |told| told.told_us);
        let mut results = Latencies::new();
        for closed in ran.plan.closed(&ran.told, window_ms, delay_ms) {
            if closed.rows == 0 {
                let problem = "the watermark passed a window's end, and nothing was published";
                let problem = problem.to_owned();
                return Err(Error::Result { path: table.to_owned(), problem });
            }
            results.add(closed.latency_us);
        }
        let records = aggregated.count();
        let (of_aggregated, of_results) = (aggregated.of_stage(), results.of_stage());
        Ok(LiveLine {
            configuration: self.configuration.clone(),
            round: self.round,
            keys: self.keys.unwrap_or(crate::messages::IDS as u64),
            window_s: self.window_s,
            delay_s: self.delay_s,
            commit_interval: self.live.commit_interval.clone(),
            load: ran.load(&self.topic.engine_option),
            state: StateSize::of(&ran.told),
            groups,
            records,
            aggregated: of_aggregated,
            acknowledged: acknowledged.of_stage(),
            windows: results.count(),
            results: of_results,
            total: sum(of_aggregated, of_results),
            surplus_rows,
        })
    }
}

fn ms(seconds: u32) -> i64 {
    i64::from(seconds) * 1_000
}

fn sum(one: OfStage, other: OfStage) -> OfStage {
    let sum = |one: f64, other: f64| report::rounded(one + other, 3);
    OfStage {
        p50_ms: sum(one.p50_ms, other.p50_ms),
        p95_ms: sum(one.p95_ms, other.p95_ms),
        p99_ms: sum(one.p99_ms, other.p99_ms),
        max_ms: sum(one.max_ms, other.max_ms),
    }
}

/// The heading of a table of live windows.
pub fn table_head(width: usize) -> String {
    format!(
        "{:<width$} {:>6} {:>9} {:>15} {:>15} {:>19} {:>9} {:>8}",
        "",
        "round",
        "keys",
        "aggregated ms",
        "acknowledged",
        "results ms (count)",
        "state MB",
        "RSS MB"
    )
}

/// A row below it: p50 and p99 of each.
pub fn table_row(line: &LiveLine, width: usize) -> String {
    let surplus = Some(line.surplus_rows).filter(|rows| *rows != 0);
    let surplus = surplus.map(|rows| format!("  {rows:+} messages")).unwrap_or_default();
    let pair = |stage: &OfStage| format!("{:.1} {:.1}", stage.p50_ms, stage.p99_ms);
    format!(
        "{:<width$} {:>6} {:>9} {:>15} {:>15} {:>19} {:>9.1} {:>8.1}{surplus}",
        line.configuration,
        line.round,
        line.keys,
        pair(&line.aggregated),
        pair(&line.acknowledged),
        format!("{} ({})", pair(&line.results), line.windows),
        line.state.mb(),
        line.load.peak_rss_mb()
    )
}

/// The median over rounds of what `value` takes from a line.
pub fn median(lines: &[&LiveLine], value: impl Fn(&LiveLine) -> f64) -> f64 {
    report::rounded(report::median(lines.iter().map(|line| value(line))), 1)
}

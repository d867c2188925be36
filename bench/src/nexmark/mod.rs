//! `millstream-bench nexmark`: the queries of the Nexmark suite, how many events a second each
//! takes for each core that it keeps busy.
//!
//! A topic is filled with the events. Each query is run over them once into a Delta table, which is
//! read back and compared with what a plain computation gives; then it is timed, and its rows are
//! counted: into `noop`, as others publish it, or with `--sink delta` into a table. A query whose
//! result is wrong, or that wrote nothing while it was timed, fails the benchmark, when all others
//! have been run. One that the engine refuses is reported with the engine's words.
//!
//! What is counted are all events of the topic, also those of kinds that a query passes over, as
//! the suite does.

mod by_clock;
mod events;
mod expected;
mod queries;
mod rows;

use std::path::{Path, PathBuf};

use millstream_store::env::Env;
use millstream_testkit::{error as kit, program};
use serde::Serialize;

use crate::engine::sql_options;
use crate::error::Error;
use crate::report::{self, Report};
use crate::testbed::{TestBed, TopicFlags};
use crate::throughput::Took;
use crate::{read_back, system};
use expected::{Expected, Run, expected};
use queries::{QUERIES, Query};
use rows::Rows;

const NAME: &str = "nexmark";
/// The status of a program whose pipeline file is wrong.
const REFUSED: i32 = 2;
/// How the writer takes what is there, and ends.
const ONCE: &[(&str, &str)] = &[("trigger", "availableNow")];
/// Characters of a query's name.
const WIDTH: usize = 16;

/// Flags of `millstream-bench nexmark`.
#[derive(Debug, clap::Args)]
pub struct Flags {
    /// Events in the topic
    #[arg(long, default_value_t = 2_000_000)]
    events: u64,
    /// Only these queries; all of them if it is not given
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    query: Vec<String>,
    /// What the timed runs write into; queries by the clock update their rows, so they have `noop`
    #[arg(long, value_enum, default_value_t = Sink::Noop)]
    sink: Sink,
    #[command(flatten)]
    topic: TopicFlags,
}

/// What timed runs write into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Sink {
    /// Rows are dropped.
    Noop,
    /// A table of Delta on this machine's disk.
    Delta,
}

/// One timed run.
#[derive(Clone, Debug, Serialize)]
struct NexmarkLine {
    configuration: &'static str,
    sink: Sink,
    round: u32,
    events: u64,
    partitions: i32,
    engine_options: Vec<String>,
    seconds: f64,
    cpu_seconds: f64,
    peak_rss_mb: f64,
    events_per_s: f64,
    /// Events for each second of processor time.
    events_per_busy_core_second: f64,
    rows_out: u64,
}

/// Medians of a query's rounds, beside what is published.
#[derive(Clone, Debug, Serialize)]
struct Summary {
    configuration: &'static str,
    sink: Option<Sink>,
    rounds: usize,
    events: u64,
    events_per_s: f64,
    events_per_busy_core_second: f64,
    peak_rss_mb: f64,
    /// Of the round that wrote the fewest.
    rows_out_min: u64,
    published_flink_1_per_core: Option<f64>,
    published_flink_2_per_core: Option<f64>,
    published_risingwave_per_core: Option<f64>,
}

/// Why there is no figure: the engine refuses the query, or its result is wrong.
#[derive(Clone, Debug, Serialize)]
struct Problem {
    configuration: &'static str,
    problem: String,
}

/// Runs the whole benchmark. Errors if a query's result is wrong; else always true.
pub fn run(env: &Env, flags: &Flags) -> Result<bool, Error> {
    let queries = flags.queries()?;
    let testbed = TestBed::open(env, NAME, &flags.topic)?;
    let report = Report::new(NAME, Some(&testbed.broker));
    testbed.with_topic("in", flags.topic.partitions, |topic| {
        Bench { flags, testbed: &testbed, topic, report: &report }.run(&queries)
    })
}

impl Flags {
    fn queries(&self) -> Result<Vec<&'static Query>, Error> {
        let problem = if self.events == 0 {
            Some("--events must be at least 1".to_owned())
        } else {
            let is_known = |name: &String| QUERIES.iter().any(|query| query.name == name);
            let unknown = self.query.iter().find(|name| !is_known(name));
            let known = || QUERIES.iter().map(|query| query.name).collect::<Vec<_>>().join(", ");
            unknown.map(|name| format!("--query {name}: there are {}", known()))
        };
        if let Some(problem) = problem {
            return Err(Error::Flags { problem });
        }
        let is_wanted = |query: &&Query| {
            self.query.is_empty() || self.query.iter().any(|name| name == query.name)
        };
        Ok(QUERIES.iter().filter(is_wanted).collect())
    }
}

struct Bench<'a> {
    flags: &'a Flags,
    testbed: &'a TestBed,
    topic: &'a str,
    report: &'a Report,
}

impl Bench<'_> {
    fn run(&self, queries: &[&'static Query]) -> Result<bool, Error> {
        eprintln!("filling a topic with {} events", self.flags.events);
        self.fill()?;
        eprintln!("{}", table_head());
        let mut wrong = Vec::new();
        for query in queries {
            match self.query(query) {
                Ok(()) => {}
                Err(Error::Result { path, problem }) => {
                    eprintln!("{:<WIDTH$} wrong: {problem}", query.name);
                    self.report.line("wrong", &Problem { configuration: query.name, problem })?;
                    wrong.push((path, query.name));
                }
                Err(error) => return Err(error),
            }
        }
        match wrong.first() {
            None => Ok(true),
            Some((path, _)) => {
                let names: Vec<_> = wrong.iter().map(|(_, name)| *name).collect();
                let problem = format!("the results of {} are wrong", names.join(", "));
                Err(Error::Result { path: path.clone(), problem })
            }
        }
    }

    fn fill(&self) -> Result<(), Error> {
        let topic = self.testbed.open_topic(self.topic)?;
        let (run, mut json) = (self.events(), Vec::new());
        for (number, event) in events::events(run.count, run.partitions).enumerate() {
            json.clear();
            events::write_json(&event, &mut json);
            let partition = i32::try_from(number % run.partitions).expect("partitions are few");
            let time_ms = i64::try_from(event.timestamp()).expect("it is not in a far future");
            topic.write(&json, Some(partition), Some(time_ms))?;
        }
        topic.flush()
    }

    fn events(&self) -> Run {
        let partitions = usize::try_from(self.flags.topic.partitions).expect("it is at least 1");
        Run { count: self.flags.events, partitions }
    }

    /// Checks and times a query. Errors with [`Error::Result`] if its result is wrong.
    fn query(&self, query: &'static Query) -> Result<(), Error> {
        if let Some(problem) = self.refused(query)? {
            eprintln!("{:<WIDTH$} not supported: {problem}", query.name);
            return self
                .report
                .line("not-supported", &Problem { configuration: query.name, problem });
        }
        let rows = self.check(query)?;
        let mut lines = Vec::new();
        for round in 1..=self.flags.topic.repeat {
            let line = self.round(query, round, rows)?;
            self.report.line("round", &line)?;
            lines.push(line);
        }
        let summary = summary(query, &lines);
        self.report.line("summary", &summary)?;
        eprintln!("{}", table_row(&summary));
        Ok(())
    }

    /// Why the engine refuses a query, if it does.
    fn refused(&self, query: &Query) -> Result<Option<String>, Error> {
        self.testbed.with_directory("validate", |directory| {
            let pipeline = self.noop_pipeline(query);
            let file = system::write(directory, "pipeline.sql", &pipeline)?;
            let mut command = system::millstream()?;
            command.arg("validate").arg(&file);
            match program::output("validating a query", command, "") {
                Ok(_) => Ok(None),
                Err(kit::Error::Failed { status, output, .. })
                    if status.code() == Some(REFUSED) =>
                {
                    let first = output.lines().next().unwrap_or_default();
                    Ok(Some(first.strip_prefix("error: ").unwrap_or(first).to_owned()))
                }
                Err(error) => Err(error.into()),
            }
        })
    }

    /// Runs a query into a table and compares that; gives how many rows there should be, where that
    /// is known.
    fn check(&self, query: &Query) -> Result<Option<u64>, Error> {
        self.testbed.with_directory(query.name, |directory| {
            let table = directory.join("table");
            let own = if query.is_by_clock() { by_clock::SINK } else { ONCE };
            let pipeline = self.delta_pipeline(query, own, &table);
            match expected(query.name, self.events()) {
                Expected::Rows(rows) => {
                    self.testbed.run_to_end(&pipeline, directory, self.flags.events)?;
                    self.compare_rows(&table, rows).map(|()| Some(rows.count))
                }
                Expected::Bids(bids) => {
                    by_clock::check(self.testbed, &pipeline, directory, &table, bids)?;
                    Ok(None)
                }
            }
        })
    }

    fn compare_rows(&self, table: &Path, expected: Rows) -> Result<(), Error> {
        let wrong = |problem| Error::Result { path: PathBuf::from(table), problem };
        let (mut found, mut unknown) = (Rows::default(), Ok(()));
        read_back::table(&self.testbed.env, table, &[], |rows| {
            let added = found.add_batch(rows);
            unknown = std::mem::replace(&mut unknown, Ok(())).and(added);
        })?;
        unknown.map_err(wrong)?;
        if found.count != expected.count {
            return Err(wrong(format!("{} rows, but {} expected", found.count, expected.count)));
        }
        if found != expected {
            return Err(wrong(format!("{} rows as expected, but others", found.count)));
        }
        Ok(())
    }

    fn sink_of(&self, query: &Query) -> Sink {
        if query.is_by_clock() { Sink::Noop } else { self.flags.sink }
    }

    fn delta_pipeline(&self, query: &Query, own: &[(&str, &str)], table: &Path) -> String {
        let path = table.display().to_string();
        let options = sql_options(&[own, &[("path", path.as_str())]].concat(), &[]);
        query.pipeline(&self.testbed.source(self.topic), &format!("delta OPTIONS ({options})"))
    }

    fn noop_pipeline(&self, query: &Query) -> String {
        let source = self.testbed.source(self.topic);
        let update: &[_] = if query.is_by_clock() { &[("outputMode", "update")] } else { &[] };
        let options = sql_options(&[ONCE, update].concat(), &[]);
        query.pipeline(&source, &format!("noop OPTIONS ({options})"))
    }

    fn round(
        &self,
        query: &'static Query,
        round: u32,
        rows: Option<u64>,
    ) -> Result<NexmarkLine, Error> {
        let label = format!("{}-{round}", query.name);
        let (took, told) = self.testbed.with_directory(&label, |directory| {
            let pipeline = match self.sink_of(query) {
                Sink::Noop => self.noop_pipeline(query),
                Sink::Delta => self.delta_pipeline(query, ONCE, &directory.join("table")),
            };
            self.testbed.run_to_end(&pipeline, directory, self.flags.events)
        })?;
        let rows_out = told.iter().map(|told| told.rows_out).sum();
        if let Some(problem) = wrong_rows(round, rows_out, rows) {
            return Err(Error::Result { path: PathBuf::from("the timed run"), problem });
        }
        Ok(self.line(query, round, &took, rows_out))
    }

    fn line(&self, query: &'static Query, round: u32, took: &Took, rows_out: u64) -> NexmarkLine {
        let (events, seconds) = (self.flags.events, took.elapsed.as_secs_f64());
        NexmarkLine {
            configuration: query.name,
            sink: self.sink_of(query),
            round,
            events,
            partitions: self.flags.topic.partitions,
            engine_options: self.flags.topic.engine_option.clone(),
            seconds: report::rounded(seconds, 3),
            cpu_seconds: report::rounded(took.usage.cpu_seconds, 3),
            peak_rss_mb: report::rounded(took.usage.peak_rss_mb, 1),
            events_per_s: report::rounded(events as f64 / seconds, 0),
            events_per_busy_core_second: report::rounded(events as f64 / took.usage.cpu_seconds, 0),
            rows_out,
        }
    }
}

/// What is wrong with the number of rows of a round. A query that wrote nothing has not been timed.
fn wrong_rows(round: u32, rows_out: u64, expected: Option<u64>) -> Option<String> {
    if rows_out == 0 {
        return Some(format!("no rows in round {round}"));
    }
    let expected = expected.filter(|rows| *rows != rows_out)?;
    Some(format!("{rows_out} rows in round {round}, but {expected} expected"))
}

fn summary(query: &'static Query, lines: &[NexmarkLine]) -> Summary {
    let of = |value: fn(&NexmarkLine) -> f64, decimals| {
        report::rounded(report::median(lines.iter().map(value)), decimals)
    };
    let thousands = |published: Option<f64>| published.map(|thousands| thousands * 1e3);
    Summary {
        configuration: query.name,
        sink: lines.first().map(|line| line.sink),
        rounds: lines.len(),
        events: lines.first().map_or(0, |line| line.events),
        events_per_s: of(|line| line.events_per_s, 0),
        events_per_busy_core_second: of(|line| line.events_per_busy_core_second, 0),
        peak_rss_mb: of(|line| line.peak_rss_mb, 1),
        rows_out_min: lines.iter().map(|line| line.rows_out).min().unwrap_or_default(),
        published_flink_1_per_core: thousands(query.published.flink_1),
        published_flink_2_per_core: thousands(query.published.flink_2),
        published_risingwave_per_core: thousands(query.published.risingwave),
    }
}

fn table_head() -> String {
    format!(
        "{:<WIDTH$} {:>9} {:>17} {:>9} {:>9}   published, k/s per core: {:>8} {:>9} {:>10}",
        "", "k/s", "k/s per busy core", "RSS MB", "rows out", "Flink 1", "Flink 2", "RisingWave"
    )
}

fn table_row(summary: &Summary) -> String {
    let k = |events: f64| format!("{:.1}", events / 1e3);
    let published = |events: Option<f64>| events.map_or_else(|| "-".to_owned(), k);
    format!(
        "{:<WIDTH$} {:>9} {:>17} {:>9.1} {:>9}   {:<24} {:>8} {:>9} {:>10}",
        summary.configuration,
        k(summary.events_per_s),
        k(summary.events_per_busy_core_second),
        summary.peak_rss_mb,
        summary.rows_out_min,
        "",
        published(summary.published_flink_1_per_core),
        published(summary.published_flink_2_per_core),
        published(summary.published_risingwave_per_core)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_that_wrote_nothing_or_other_rows_is_wrong() {
        let said = |rows_out, expected| wrong_rows(2, rows_out, expected).unwrap_or_default();
        assert_eq!(said(0, None), "no rows in round 2");
        assert_eq!(said(0, Some(0)), "no rows in round 2");
        assert_eq!(said(7, Some(8)), "7 rows in round 2, but 8 expected");
        assert_eq!((said(7, None), said(7, Some(7))), (String::new(), String::new()));
    }
}

//! `millstream-bench rate-to-stats`: the engine alone. Rows of the `rate` source, due at fixed
//! moments, go through SQL to the `stats` sink, which reports how old each row was when it was
//! published. The checkpoint is on local disk, as in production.
//!
//! The sink reports at intervals as long as the measurement: the first interval is the warm-up, the
//! second the measurement. Other benchmarks that go this way may warm up for more than one.

use std::fs;
use std::path::Path;
use std::time::Duration;

use millstream_store::env::Env;
use millstream_testkit::program::{Process, Usage};
use serde::{Deserialize, Serialize};

use crate::engine::{self, EngineOptions, sql_options};
use crate::error::Error;
use crate::quantiles::Quantiles;
use crate::report::{self, Report};
use crate::system;
use crate::work_directory::WorkDirectory;

/// How long an interval may be overdue: starting the process, or an engine that cannot keep up.
const OVERDUE_MAX: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Below this part of the rate asked for, the engine did not keep up.
pub const KEPT_UP: f64 = 0.98;

/// Flags of `millstream-bench rate-to-stats`.
#[derive(Debug, clap::Args)]
pub struct Flags {
    /// Rows a second; several rates are measured one after the other
    #[arg(long, value_delimiter = ',', default_value = "100000,500000,1000000")]
    rate: Vec<u64>,
    /// Seconds measured in each run, after as many of warm-up
    #[arg(long, default_value_t = 15)]
    seconds: u64,
    /// Runs at each rate
    #[arg(long, default_value_t = 3)]
    repeat: u32,
    /// Option of the engine: `source.NAME=V` stands in the pipeline's source table, anything else
    /// is handed to `run --set`
    #[arg(long, value_name = "K=V")]
    engine_option: Vec<String>,
}

/// A line that the `stats` sink writes; what else it says is not needed here.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct StatsLine {
    stats: String,
    pub(super) count: u64,
    #[serde(flatten)]
    pub(super) latency: Quantiles,
    pub(super) micro_batches: u64,
    /// What it is about; the first line, from the first micro-batch on.
    seconds: f64,
    pub(super) rows_per_second: f64,
}

/// What one run is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// Rows a second.
    pub(super) rate: u64,
    /// Length of an interval, and of the measurement.
    pub(super) seconds: u64,
    /// How many intervals come before the measurement, 1 or more.
    pub(super) warm_up_intervals: usize,
}

/// What one run gave.
pub(super) struct Measured {
    /// The measured interval.
    pub(super) stats: StatsLine,
    /// What the process used in it.
    pub(super) usage: Usage,
    /// From starting the process until its first micro-batch was published.
    pub(super) start: Duration,
}

#[derive(Clone, Debug, Serialize)]
struct RateToStatsLine {
    configuration: &'static str,
    round: u32,
    rate: u64,
    seconds: u64,
    engine_options: Vec<String>,
    records: u64,
    micro_batches: u64,
    #[serde(flatten)]
    latency: Quantiles,
    throughput_rows_per_s: f64,
    /// Whether the rate asked for was reached; if not, latency grows for as long as it runs.
    kept_up: bool,
    cpu_seconds: f64,
    peak_rss_mb: f64,
}

#[derive(Clone, Debug, Serialize)]
struct Summary {
    rate: u64,
    seconds: u64,
    engine_options: Vec<String>,
    rounds: usize,
    p50_ms: f64,
    p99_ms: f64,
    p99_ms_min: f64,
    p99_ms_max: f64,
    p999_ms: f64,
    throughput_rows_per_s: f64,
    kept_up: bool,
    cpu_seconds: f64,
    peak_rss_mb: f64,
}

/// Runs the whole benchmark. Always true: nothing is counted as lost here.
pub fn run(env: &Env, flags: &Flags) -> Result<bool, Error> {
    if flags.rate.is_empty() || flags.rate.contains(&0) || flags.seconds == 0 || flags.repeat == 0 {
        let problem = "--rate, --seconds and --repeat must be at least 1".to_owned();
        return Err(Error::Flags { problem });
    }
    let options = EngineOptions::parse(&flags.engine_option)?;
    let work = WorkDirectory::create()?;
    let report = Report::new("rate-to-stats", None);
    eprintln!("{}", table_head());
    for &rate in &flags.rate {
        let mut lines = Vec::new();
        for round in 1..=flags.repeat {
            let directory = work.subdirectory(&format!("rate-{rate}-{round}"))?;
            let load = Load { rate, seconds: flags.seconds, warm_up_intervals: 1 };
            let measured = measure(env, load, &options, &directory)?;
            let line = flags.line(rate, round, &measured);
            report.line("round", &line)?;
            eprintln!("{}", table_row(&line));
            lines.push(line);
        }
        report.line("summary", &summary(&lines))?;
    }
    Ok(true)
}

impl Flags {
    fn line(&self, rate: u64, round: u32, measured: &Measured) -> RateToStatsLine {
        let Measured { stats, usage, .. } = measured;
        RateToStatsLine {
            configuration: "millstream",
            round,
            rate,
            seconds: self.seconds,
            engine_options: self.engine_option.clone(),
            records: stats.count,
            micro_batches: stats.micro_batches,
            latency: stats.latency,
            throughput_rows_per_s: report::rounded(stats.rows_per_second, 1),
            kept_up: stats.rows_per_second >= rate as f64 * KEPT_UP,
            cpu_seconds: report::rounded(usage.cpu_seconds, 2),
            peak_rss_mb: report::rounded(usage.peak_rss_mb, 1),
        }
    }
}

/// One run, on the checkpoint that `options` name or a new one in `directory`.
pub(super) fn measure(
    env: &Env,
    load: Load,
    options: &EngineOptions,
    directory: &Path,
) -> Result<Measured, Error> {
    let Load { rate, seconds, warm_up_intervals } = load;
    let report = directory.join("stats.jsonl");
    let pipeline = pipeline(rate, seconds, &report, options);
    let started = env.monotonic();
    let mut process = engine::start(&pipeline, options, directory)?;
    let limit = Duration::from_secs(seconds) + OVERDUE_MAX;
    let first = intervals(env, &report, 1, limit, &mut process)?[0].seconds;
    let took = env.monotonic() - started;
    let warm_up = Duration::from_secs(seconds * warm_up_intervals as u64);
    intervals(env, &report, warm_up_intervals, limit + warm_up, &mut process)?;
    let before = process.usage();
    let lines = intervals(env, &report, warm_up_intervals + 1, limit, &mut process)?;
    let after = process.usage();
    system::stop(&mut process)?;
    let usage = Usage { cpu_seconds: after.cpu_seconds - before.cpu_seconds, ..after };
    let start = took.saturating_sub(Duration::from_secs_f64(first));
    Ok(Measured { stats: lines[warm_up_intervals].clone(), usage, start })
}

fn pipeline(rate: u64, seconds: u64, report: &Path, options: &EngineOptions) -> String {
    let (rate, report) = (rate.to_string(), report.display().to_string());
    let interval = format!("{seconds} seconds");
    format!(
        "CREATE TABLE input USING rate OPTIONS ({});\n\
         CREATE TABLE latency USING stats OPTIONS ({});\n\
         CREATE FLOW measure AS INSERT INTO latency\n\
         SELECT timestamp, value FROM STREAM input;\n",
        sql_options(&[("rowsPerSecond", &rate)], &options.source),
        sql_options(&[("path", &report), ("reportInterval", &interval)], &[]),
    )
}

/// Waits until the sink has reported `count` intervals, and gives them.
pub(super) fn intervals(
    env: &Env,
    report: &Path,
    count: usize,
    limit: Duration,
    process: &mut Process,
) -> Result<Vec<StatsLine>, Error> {
    let asked = env.monotonic();
    loop {
        let text = fs::read_to_string(report).unwrap_or_default();
        let lines = parse(&text).map_err(|error| Error::Result {
            path: report.to_owned(),
            problem: format!("not what the stats sink should write: {error}"),
        })?;
        if lines.len() >= count {
            return Ok(lines);
        }
        process.check()?;
        if env.monotonic() - asked > limit {
            let waited_s = limit.as_secs();
            let log = process.log_tail();
            let problem = format!(
                "{} of {count} intervals reported after {waited_s} s; the end of the engine's \
                 output:\n{log}",
                lines.len()
            );
            return Err(Error::Result { path: report.to_owned(), problem });
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// The interval lines of a report. A last line without its line break is still being written.
fn parse(text: &str) -> Result<Vec<StatsLine>, serde_json::Error> {
    let (complete, _) = text.rsplit_once('\n').unwrap_or_default();
    let lines = complete.lines().map(serde_json::from_str::<StatsLine>);
    lines.filter(|line| !line.as_ref().is_ok_and(|line| line.stats != "interval")).collect()
}

fn summary(lines: &[RateToStatsLine]) -> Summary {
    let of = |value: fn(&RateToStatsLine) -> f64| {
        report::rounded(report::median(lines.iter().map(value)), 3)
    };
    let p99 = lines.iter().map(|line| line.latency.p99_ms);
    let first = lines.first().expect("at least one round was run");
    Summary {
        rate: first.rate,
        seconds: first.seconds,
        engine_options: first.engine_options.clone(),
        rounds: lines.len(),
        p50_ms: of(|line| line.latency.p50_ms),
        p99_ms: of(|line| line.latency.p99_ms),
        p99_ms_min: p99.clone().fold(f64::INFINITY, f64::min),
        p99_ms_max: p99.fold(0.0, f64::max),
        p999_ms: of(|line| line.latency.p999_ms),
        throughput_rows_per_s: of(|line| line.throughput_rows_per_s),
        kept_up: lines.iter().all(|line| line.kept_up),
        cpu_seconds: of(|line| line.cpu_seconds),
        peak_rss_mb: of(|line| line.peak_rss_mb),
    }
}

fn table_head() -> String {
    format!(
        "{:>9}    {:>6} {:>9} {:>9} {:>9} {:>9} {:>9} {:>11} {:>7} {:>8}",
        "rate",
        "round",
        "p50 ms",
        "p90 ms",
        "p99 ms",
        "p99.9 ms",
        "max ms",
        "rows/s",
        "CPU s",
        "RSS MB"
    )
}

fn table_row(line: &RateToStatsLine) -> String {
    let latency = &line.latency;
    format!(
        "{:>9}/s  {:>6} {:>9.2} {:>9.2} {:>9.2} {:>9.2} {:>9.2} {:>11.0} {:>7.2} {:>8.1}{}",
        line.rate,
        line.round,
        latency.p50_ms,
        latency.p90_ms,
        latency.p99_ms,
        latency.p999_ms,
        latency.max_ms,
        line.throughput_rows_per_s,
        line.cpu_seconds,
        line.peak_rss_mb,
        if line.kept_up { "" } else { "  did not keep up" }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: &str = r#"{"stats":"interval","count":1500,"p50_ms":1.5,"p90_ms":2.0,"p99_ms":3.0,"p999_ms":4.0,"max_ms":5.5,"nulls":0,"micro_batches":900,"seconds":15.0,"rows_per_second":100.0}"#;

    #[test]
    fn reads_what_the_sink_writes() {
        let overall = INTERVAL.replace("interval", "overall");
        let text = format!("{INTERVAL}\n{INTERVAL}\n{overall}\n{{\"stats\":\"inter");
        let lines = parse(&text).expect("it is what the sink writes");
        assert_eq!(lines.len(), 2);
        assert_eq!((lines[1].count, lines[1].micro_batches), (1_500, 900));
        assert_eq!((lines[1].latency.p50_ms, lines[1].latency.max_ms), (1.5, 5.5));
        assert!(parse("").expect("nothing yet").is_empty());
        assert!(parse("rows: 5\n").is_err());
    }

    #[test]
    fn pipeline_has_the_options_given() {
        let options = EngineOptions::parse(&["source.numPartitions=2".to_owned()]);
        let text = pipeline(5, 15, Path::new("/tmp/x"), &options.expect("it is right"));
        assert_eq!(
            text,
            "CREATE TABLE input USING rate OPTIONS ('rowsPerSecond' = '5', 'numPartitions' = '2');\n\
             CREATE TABLE latency USING stats OPTIONS ('path' = '/tmp/x', \
             'reportInterval' = '15 seconds');\n\
             CREATE FLOW measure AS INSERT INTO latency\n\
             SELECT timestamp, value FROM STREAM input;\n"
        );
    }
}

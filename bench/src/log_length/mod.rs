//! `millstream-bench log-length`: latency does not grow with the number of micro-batches before.
//!
//! Each round begins a checkpoint, makes it look as after micro-batch N, and measures how the
//! engine goes on from there, on the route of [`rate_to_stats`]: with the logs as the defaults
//! leave them, and with an entry for each of the N. Lengths and configurations take turns within
//! a round, so that a slow drift of the machine meets all.

mod lengthen;

use std::fs;
use std::ops::Range;

use clap::ValueEnum;
use millstream_store::env::Env;
use millstream_store::log_writer::RETAINED_ENTRIES_MIN;
use serde::Serialize;

use self::lengthen::Older;
use crate::engine::EngineOptions;
use crate::error::Error;
use crate::quantiles::Quantiles;
use crate::rate_to_stats::{self, KEPT_UP, Load, Measured};
use crate::report::{self, Report};
use crate::work_directory::WorkDirectory;

/// How long the young checkpoint is run, twice: long enough for entries.
const BEGIN_SECONDS: u64 = 1;
/// More than a benchmark ever has.
const RETAIN_ALL: (&str, &str) = ("minBatchesToRetain", "1000000000000");

/// Flags of `millstream-bench log-length`.
#[derive(Debug, clap::Args)]
pub struct Flags {
    /// Micro-batches that the checkpoint has behind it; several are measured in turns
    #[arg(long, value_delimiter = ',', default_value = "10,10000,1000000")]
    length: Vec<u64>,
    /// Which configurations; all of them if not given
    #[arg(long, value_enum, value_delimiter = ',')]
    configuration: Vec<Configuration>,
    /// Rows a second
    #[arg(long, default_value_t = 100_000)]
    rate: u64,
    /// Seconds measured in each run
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Seconds of each run before that, at least; a whole multiple of those measured is taken
    #[arg(long, default_value_t = 10)]
    warmup: u64,
    /// Rounds of each measurement
    #[arg(long, default_value_t = 3)]
    repeat: u32,
}

/// What of the logs is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Configuration {
    /// The defaults: old entries are deleted.
    Purged,
    /// Every entry since the first micro-batch.
    Kept,
}

impl Configuration {
    fn options(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Purged => &[],
            Self::Kept => &[RETAIN_ALL],
        }
    }

    /// The entries that are there after micro-batch `length`.
    fn entries(self, length: u64) -> Range<u64> {
        let first = match self {
            Self::Purged => (length + 1).saturating_sub(RETAINED_ENTRIES_MIN),
            Self::Kept => 0,
        };
        first..length + 1
    }

    fn older(self) -> Older {
        match self {
            Self::Purged => Older::Copies,
            Self::Kept => Older::Links,
        }
    }
}

#[derive(Clone, Debug, Serialize)]
struct LogLengthLine {
    configuration: Configuration,
    /// Number of the last micro-batch before the run.
    length: u64,
    round: u32,
    rate: u64,
    seconds: u64,
    records: u64,
    micro_batches: u64,
    #[serde(flatten)]
    latency: Quantiles,
    throughput_rows_per_s: f64,
    /// Whether as many rows were published as came due: neither fewer nor, from a backlog, more.
    kept_up: bool,
    /// From starting the process until its first micro-batch was published.
    start_ms: f64,
    cpu_seconds: f64,
    peak_rss_mb: f64,
}

/// Medians of the longest logs beside those of the shortest.
#[derive(Clone, Debug, Serialize)]
struct Summary {
    configuration: Configuration,
    rate: u64,
    seconds: u64,
    rounds: u32,
    shortest: u64,
    longest: u64,
    p50_ms_shortest: f64,
    p50_ms_longest: f64,
    p99_ms_shortest: f64,
    p99_ms_longest: f64,
    ratio_p50: f64,
    ratio_p99: f64,
    start_ms_shortest: f64,
    start_ms_longest: f64,
    kept_up: bool,
}

/// Runs the whole benchmark. Always true: nothing is counted as lost here.
pub fn run(env: &Env, flags: &Flags) -> Result<bool, Error> {
    check(flags)?;
    let bench = Bench {
        env,
        flags,
        work: WorkDirectory::create()?,
        report: Report::new("log-length", None),
    };
    eprintln!("{}", table_head());
    let mut lines = Vec::new();
    for round in 1..=flags.repeat {
        for &length in &flags.length {
            for configuration in bench.configurations() {
                let line = bench.measure(configuration, length, round)?;
                eprintln!("{}", table_row(&line));
                bench.report.line("round", &line)?;
                lines.push(line);
            }
        }
    }
    for configuration in bench.configurations() {
        let summary = bench.summary(configuration, &lines);
        eprintln!("{}", in_words(&summary));
        bench.report.line("summary", &summary)?;
    }
    Ok(true)
}

fn check(flags: &Flags) -> Result<(), Error> {
    if flags.rate == 0 || flags.seconds == 0 || flags.repeat == 0 {
        let problem = "--rate, --seconds and --repeat must be at least 1".to_owned();
        return Err(Error::Flags { problem });
    }
    if flags.length.is_empty() || flags.length.contains(&0) {
        let problem = "--length must be at least 1: a restart reads two entries".to_owned();
        return Err(Error::Flags { problem });
    }
    Ok(())
}

struct Bench<'a> {
    env: &'a Env,
    flags: &'a Flags,
    work: WorkDirectory,
    report: Report,
}

impl Bench<'_> {
    fn configurations(&self) -> impl Iterator<Item = Configuration> {
        let wanted = &self.flags.configuration;
        let is_wanted = move |one: &Configuration| wanted.is_empty() || wanted.contains(one);
        Configuration::value_variants().iter().copied().filter(is_wanted)
    }

    fn warm_up_intervals(&self) -> usize {
        let intervals = self.flags.warmup.div_ceil(self.flags.seconds).max(1);
        usize::try_from(intervals).unwrap_or(usize::MAX)
    }

    fn measure(
        &self,
        configuration: Configuration,
        length: u64,
        round: u32,
    ) -> Result<LogLengthLine, Error> {
        let Flags { rate, seconds, .. } = *self.flags;
        let name = report::name(&configuration);
        let directory = self.work.subdirectory(&format!("{name}-{length}-{round}"))?;
        let begin = self.work.subdirectory(&format!("{name}-{length}-{round}/begin"))?;
        let checkpoint = directory.join("checkpoint");
        let options = EngineOptions {
            set: configuration.options().iter().copied().map(owned).collect(),
            checkpoint: Some(checkpoint.display().to_string()),
            ..EngineOptions::default()
        };
        let young = Load { rate, seconds: BEGIN_SECONDS, warm_up_intervals: 1 };
        rate_to_stats::measure(self.env, young, &options, &begin)?;
        lengthen::lengthen(&checkpoint, configuration.entries(length), configuration.older())?;
        lengthen::forget_pause(&checkpoint, rate, self.env)?;
        let load = Load { rate, seconds, warm_up_intervals: self.warm_up_intervals() };
        let measured = rate_to_stats::measure(self.env, load, &options, &directory)?;
        // Two million files would fill the disk's table of names before the last round.
        fs::remove_dir_all(&directory).map_err(Error::file("remove", &directory))?;
        Ok(self.line(configuration, length, round, &measured))
    }

    fn line(
        &self,
        configuration: Configuration,
        length: u64,
        round: u32,
        measured: &Measured,
    ) -> LogLengthLine {
        let Measured { stats, usage, start } = measured;
        let Flags { rate, seconds, .. } = *self.flags;
        LogLengthLine {
            configuration,
            length,
            round,
            rate,
            seconds,
            records: stats.count,
            micro_batches: stats.micro_batches,
            latency: stats.latency,
            throughput_rows_per_s: report::rounded(stats.rows_per_second, 1),
            kept_up: is_kept_up(stats.rows_per_second / rate as f64),
            start_ms: report::rounded(start.as_secs_f64() * 1_000.0, 0),
            cpu_seconds: report::rounded(usage.cpu_seconds, 2),
            peak_rss_mb: report::rounded(usage.peak_rss_mb, 1),
        }
    }

    fn summary(&self, configuration: Configuration, lines: &[LogLengthLine]) -> Summary {
        let lengths = &self.flags.length;
        let shortest = *lengths.iter().min().expect("there is a length");
        let longest = *lengths.iter().max().expect("there is a length");
        let of = |length: u64, value: fn(&LogLengthLine) -> f64| {
            let is_of = |line: &&LogLengthLine| {
                line.configuration == configuration && line.length == length
            };
            report::rounded(report::median(lines.iter().filter(is_of).map(value)), 3)
        };
        let [p50, p99, start]: [fn(&LogLengthLine) -> f64; 3] =
            [|line| line.latency.p50_ms, |line| line.latency.p99_ms, |line| line.start_ms];
        let ratio = |value| report::rounded(of(longest, value) / of(shortest, value), 3);
        let mut own = lines.iter().filter(|line| line.configuration == configuration);
        Summary {
            configuration,
            rate: self.flags.rate,
            seconds: self.flags.seconds,
            rounds: self.flags.repeat,
            shortest,
            longest,
            p50_ms_shortest: of(shortest, p50),
            p50_ms_longest: of(longest, p50),
            p99_ms_shortest: of(shortest, p99),
            p99_ms_longest: of(longest, p99),
            ratio_p50: ratio(p50),
            ratio_p99: ratio(p99),
            start_ms_shortest: of(shortest, start),
            start_ms_longest: of(longest, start),
            kept_up: own.all(|line| line.kept_up),
        }
    }
}

/// `share` is what was published of what came due.
fn is_kept_up(share: f64) -> bool {
    (KEPT_UP..=2.0 - KEPT_UP).contains(&share)
}

fn owned((key, value): (&str, &str)) -> (String, String) {
    (key.to_owned(), value.to_owned())
}

fn table_head() -> String {
    format!(
        "{:<8}{:>9} {:>6} {:>9} {:>9} {:>9} {:>9} {:>9} {:>8} {:>7} {:>8}",
        "",
        "length",
        "round",
        "p50 ms",
        "p99 ms",
        "p99.9 ms",
        "max ms",
        "rows/s",
        "start ms",
        "CPU s",
        "RSS MB"
    )
}

fn table_row(line: &LogLengthLine) -> String {
    format!(
        "{:<8}{:>9} {:>6} {:>9.2} {:>9.2} {:>9.2} {:>9.2} {:>9.0} {:>8.0} {:>7.2} {:>8.1}{}",
        report::name(&line.configuration),
        line.length,
        line.round,
        line.latency.p50_ms,
        line.latency.p99_ms,
        line.latency.p999_ms,
        line.latency.max_ms,
        line.throughput_rows_per_s,
        line.start_ms,
        line.cpu_seconds,
        line.peak_rss_mb,
        if line.kept_up { "" } else { "  did not keep up" }
    )
}

fn in_words(summary: &Summary) -> String {
    let Summary { longest, shortest, ratio_p50, ratio_p99, .. } = summary;
    let name = report::name(&summary.configuration);
    format!(
        "{name}: {longest} beside {shortest}: p50 times {ratio_p50:.2}, p99 times {ratio_p99:.2}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_configuration_has_options_that_the_engine_knows() {
        let known = millstream_engine::pipeline::WRITER_OPTIONS;
        for configuration in Configuration::value_variants() {
            for (key, _) in configuration.options() {
                assert!(known.contains(key), "{configuration:?}: {key}");
            }
        }
    }

    #[test]
    fn a_backlog_that_is_worked_off_is_not_keeping_up() {
        assert!(is_kept_up(1.0) && is_kept_up(0.985) && is_kept_up(1.015));
        assert!(!is_kept_up(0.97) && !is_kept_up(1.03));
    }

    #[test]
    fn entries_are_what_the_purge_leaves_or_all() {
        assert_eq!(Configuration::Kept.entries(1_000), 0..1_001);
        assert_eq!(Configuration::Purged.entries(1_000), 901..1_001);
        assert_eq!(Configuration::Purged.entries(10), 0..11);
    }
}

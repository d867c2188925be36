//! A sink beside a bare client that writes the same rows, in turns: what benchmarks of sinks have
//! in common, whose meters read what was written.

use std::time::Duration;

use millstream_testkit::program::Process;
use serde::Serialize;

use crate::error::Error;
use crate::quantiles::{Latencies, Quantiles};
use crate::report::{self, Report};
use crate::round::{self, Shown};
use crate::system;

/// Characters of a writer and a delivery.
const NAME_WIDTH: usize = 24;

/// What writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Writer {
    /// A client of the server that is written to, and nothing else.
    Client,
    /// `millstream run`.
    Millstream,
}

impl Writer {
    /// Its name in lines.
    pub fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Millstream => "millstream",
        }
    }

    /// Stops its process. Errors if it is the engine and did not end well; the client just ends.
    pub fn stop(self, process: &mut Process) -> Result<(), Error> {
        match self {
            Self::Client => process.stop().map(drop).map_err(Error::from),
            Self::Millstream => system::stop(process),
        }
    }
}

/// When a row is due, microseconds after the first, at `rate` rows a second.
pub fn due_us(number: u64, rate: u64) -> i64 {
    let offset_us = u128::from(number) * 1_000_000 / u128::from(rate);
    i64::try_from(offset_us).expect("a run ends")
}

/// Microseconds.
pub fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).expect("a benchmark ends")
}

/// What is measured in one round.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// What writes.
    pub writer: Writer,
    /// How the rows are delivered, where the benchmark has several ways.
    pub delivery: Option<&'static str>,
    /// Rows a second.
    pub rate: u64,
    /// Which of the rounds, from 1.
    pub number: u32,
}

/// One result line.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    configuration: Writer,
    #[serde(skip_serializing_if = "Option::is_none")]
    delivery: Option<&'static str>,
    round: u32,
    rate: u64,
    seconds: u64,
    engine_options: Vec<String>,
    /// Rows that latency was measured on.
    records: u64,
    /// Of all rows up to the last one that was read, those that were not there.
    missing: u64,
    /// What was read beyond a row's first.
    duplicated: u64,
    /// Receipt minus the time a row was due.
    #[serde(flatten)]
    latency: Quantiles,
    cpu_seconds: f64,
    peak_rss_mb: f64,
}

impl Line {
    fn table_row(&self) -> String {
        let name = [self.configuration.name(), self.delivery.unwrap_or_default()].join(" ");
        let Self { latency, missing, duplicated, cpu_seconds, peak_rss_mb, .. } = *self;
        let shown = Shown { latency, missing, duplicated, cpu_seconds, peak_rss_mb };
        round::table_row(&name, NAME_WIDTH, self.rate, self.round, &shown)
    }
}

/// The medians of the rounds of a rate.
#[derive(Clone, Debug, Serialize)]
struct Summary {
    #[serde(skip_serializing_if = "Option::is_none")]
    delivery: Option<&'static str>,
    rate: u64,
    rounds: u32,
    client_p50_ms: f64,
    client_p99_ms: f64,
    millstream_p50_ms: f64,
    millstream_p99_ms: f64,
    /// The engine's over the client's.
    ratio_p50: f64,
    ratio_p99: f64,
}

/// What a meter has seen.
pub struct Tally {
    /// The number of the row that is to come.
    pub next: u64,
    missing: u64,
    duplicated: u64,
    /// Rows that are due from then on count, microseconds of the benchmark's clock.
    pub from_us: Option<i64>,
    latencies: Latencies,
}

impl Default for Tally {
    fn default() -> Self {
        let latencies = Latencies::new();
        Self { next: 0, missing: 0, duplicated: 0, from_us: None, latencies }
    }
}

impl Tally {
    /// Adds a row. Rows come in the order of their numbers.
    pub fn add(&mut self, number: u64, due_us: i64, received_us: i64) {
        if number < self.next {
            self.duplicated += 1;
            return;
        }
        self.missing += number - self.next;
        self.next = number + 1;
        if self.from_us.is_some_and(|from_us| due_us >= from_us) {
            self.latencies.add(received_us - due_us);
        }
    }

    /// Counts so many rows as missing, which a look at the target did not find.
    pub fn lacks(&mut self, rows: u64) {
        self.missing += rows;
    }

    /// What came of a round, whose process used `cpu_seconds` while it was measured.
    pub fn line(&self, round: Round, setup: &Setup<'_>, used: Used) -> Line {
        Line {
            configuration: round.writer,
            delivery: round.delivery,
            round: round.number,
            rate: round.rate,
            seconds: setup.seconds,
            engine_options: setup.engine_options.to_vec(),
            records: self.latencies.count(),
            missing: self.missing,
            duplicated: self.duplicated,
            latency: self.latencies.quantiles(),
            cpu_seconds: report::rounded(used.cpu_seconds, 2),
            peak_rss_mb: report::rounded(used.peak_rss_mb, 1),
        }
    }
}

/// What a process used.
#[derive(Clone, Copy, Debug)]
pub struct Used {
    /// Seconds of processor time while it was measured.
    pub cpu_seconds: f64,
    /// Its memory at the most, units of 1,000,000 bytes.
    pub peak_rss_mb: f64,
}

/// How often what is measured.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    /// Rows a second, one after the other.
    pub rates: &'a [u64],
    /// Seconds measured in each round.
    pub seconds: u64,
    /// Rounds of each writer at each rate.
    pub repeat: u32,
    /// What the engine was given.
    pub engine_options: &'a [String],
}

impl Setup<'_> {
    /// Errors: a number is 0.
    pub fn check(&self) -> Result<(), Error> {
        let is_empty = self.rates.is_empty() || self.rates.contains(&0);
        if is_empty || self.seconds == 0 || self.repeat == 0 {
            let problem = "--rate, --seconds and --repeat must be at least 1".to_owned();
            return Err(Error::Flags { problem });
        }
        Ok(())
    }

    /// Measures all rounds, the writers in turns, and reports them. True if every row was there
    /// once.
    pub fn run(
        &self,
        report: &Report,
        deliveries: &[Option<&'static str>],
        mut measure: impl FnMut(Round) -> Result<Line, Error>,
    ) -> Result<bool, Error> {
        eprintln!("{}", round::table_head(NAME_WIDTH));
        let mut is_whole = true;
        for &delivery in deliveries {
            for &rate in self.rates {
                let mut lines = Vec::new();
                for number in 1..=self.repeat {
                    for writer in [Writer::Client, Writer::Millstream] {
                        let line = measure(Round { writer, delivery, rate, number })?;
                        report.line("round", &line)?;
                        eprintln!("{}", line.table_row());
                        is_whole &= line.missing == 0 && line.duplicated == 0;
                        lines.push(line);
                    }
                }
                let summary = self.summary(&lines, delivery, rate);
                report.line("summary", &summary)?;
                eprintln!("{rate:>9}/s  p50 {:.2} times that of the client", summary.ratio_p50);
            }
        }
        Ok(is_whole)
    }

    fn summary(&self, lines: &[Line], delivery: Option<&'static str>, rate: u64) -> Summary {
        let of = |writer: Writer, value: fn(&Quantiles) -> f64| {
            let lines = lines.iter().filter(|line| line.configuration == writer);
            report::median(lines.map(|line| value(&line.latency)))
        };
        let p50 = |writer| of(writer, |latency| latency.p50_ms);
        let p99 = |writer| of(writer, |latency| latency.p99_ms);
        let (client, engine) = (Writer::Client, Writer::Millstream);
        Summary {
            delivery,
            rate,
            rounds: self.repeat,
            client_p50_ms: report::rounded(p50(client), 3),
            client_p99_ms: report::rounded(p99(client), 3),
            millstream_p50_ms: report::rounded(p50(engine), 3),
            millstream_p99_ms: report::rounded(p99(engine), 3),
            ratio_p50: report::rounded(p50(engine) / p50(client), 3),
            ratio_p99: report::rounded(p99(engine) / p99(client), 3),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_due_at_their_rate() {
        assert_eq!([0, 1, 3].map(|row| due_us(row, 3)), [0, 333_333, 1_000_000]);
    }

    #[test]
    fn rows_that_are_missing_or_repeated_are_counted() {
        let mut tally = Tally { from_us: Some(100), ..Tally::default() };
        for (number, due_us) in [(0, 50), (1, 100), (3, 120), (3, 120), (2, 110), (4, 130)] {
            tally.add(number, due_us, due_us + 7);
        }
        assert_eq!((tally.missing, tally.duplicated, tally.next), (1, 2, 5));
        assert_eq!((tally.latencies.count(), tally.latencies.quantiles().max_ms), (3, 0.007));
    }
}

//! Measures micro-batches and writes report lines.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, TimeUnit, TimestampMicrosecondType};
use async_trait::async_trait;
use millstream_engine::api::error::ArrowBug;
use millstream_engine::api::sink::{
    Acknowledgement, Classified, Delivery, Failure, Kind, Output, Published, Sink,
};
use millstream_store::env::Env;
use serde::Serialize;
use thiserror::Error;

use super::sketch::{LatencySketch, LatencySummary};
use super::{ReportTarget, StatsOptions};

/// Why the report cannot be written.
#[derive(Debug, Error)]
enum ReportError {
    /// Its file cannot be opened.
    #[error(
        "the stats report {} cannot be opened: {error}; check that its directory exists and may \
         be written",
        path.display()
    )]
    Open { path: PathBuf, error: io::Error },
    /// A line of it cannot be written.
    #[error("the stats report cannot be written to {place}: {error}")]
    Write { place: String, error: io::Error },
    /// A line of it is not JSON.
    #[error("{0}")]
    Encode(serde_json::Error),
}

impl Classified for ReportError {
    fn kind(&self) -> Kind {
        match self {
            Self::Open { .. } | Self::Write { .. } => Kind::Config,
            Self::Encode(_) => Kind::Bug,
        }
    }
}

/// One line of the report.
#[derive(Serialize)]
struct StatsLine {
    /// `interval` or `overall`.
    stats: &'static str,
    #[serde(flatten)]
    latency: LatencySummary,
    /// Rows without a timestamp, which have no age.
    nulls: u64,
    micro_batches: u64,
    /// Time the line is about, from the first micro-batch or the last line.
    seconds: f64,
    rows_per_second: f64,
}

/// What was seen since some moment.
struct Window {
    latencies: LatencySketch,
    nulls: u64,
    micro_batches: u64,
    since: Duration,
}

impl Window {
    fn new(since: Duration) -> Self {
        Self { latencies: LatencySketch::new(), nulls: 0, micro_batches: 0, since }
    }

    fn add(&mut self, latencies: &LatencySketch, nulls: u64) {
        self.latencies.merge(latencies);
        self.nulls += nulls;
        self.micro_batches += 1;
    }

    /// The report line, or `None` where no row had a timestamp.
    fn line(&self, stats: &'static str, now: Duration) -> Option<StatsLine> {
        let latency = self.latencies.summary()?;
        let seconds = now.saturating_sub(self.since).as_secs_f64();
        let rows = (latency.count + self.nulls) as f64;
        let rows_per_second = if seconds > 0.0 { rows / seconds } else { 0.0 };
        let (nulls, micro_batches) = (self.nulls, self.micro_batches);
        Some(StatsLine { stats, latency, nulls, micro_batches, seconds, rows_per_second })
    }
}

/// Measures how old rows are when they are published.
pub struct StatsSink {
    options: StatsOptions,
    file: Option<PathBuf>,
    env: Env,
    micro_batch: LatencySketch,
    interval: Option<Window>,
    overall: Option<Window>,
}

impl StatsSink {
    /// A sink that reports to `file`, or where `options` say.
    pub fn new(options: StatsOptions, file: Option<PathBuf>, env: Env) -> Self {
        let micro_batch = LatencySketch::new();
        Self { options, file, env, micro_batch, interval: None, overall: None }
    }

    /// Ages of the last micro-batch that had rows.
    pub fn last_micro_batch(&self) -> &LatencySketch {
        &self.micro_batch
    }

    /// Ages of all rows so far.
    pub fn overall(&self) -> Option<&LatencySketch> {
        self.overall.as_ref().map(|overall| &overall.latencies)
    }

    fn measure(&mut self, output: &Output, now_us: i64) -> Result<u64, Failure> {
        self.micro_batch.reset();
        let mut nulls = 0;
        for rows in output.record_batches() {
            let column = micros(rows.column(self.options.timestamp_column))?;
            let times = column.as_primitive::<TimestampMicrosecondType>();
            nulls += times.null_count() as u64;
            if times.null_count() == 0 {
                times.values().iter().for_each(|time| self.micro_batch.record_us(now_us - time));
            } else {
                times.iter().flatten().for_each(|time| self.micro_batch.record_us(now_us - time));
            }
        }
        Ok(nulls)
    }

    fn report_interval(&mut self, now: Duration) -> Result<(), Failure> {
        let (Some(every), Some(interval)) = (self.options.report_interval, &self.interval) else {
            return Ok(());
        };
        if now.saturating_sub(interval.since) < every {
            return Ok(());
        }
        let line = interval.line("interval", now);
        self.interval = Some(Window::new(now));
        line.map_or(Ok(()), |line| self.write(&line))
    }

    fn write(&self, line: &StatsLine) -> Result<(), Failure> {
        let mut text = serde_json::to_string(line).map_err(ReportError::Encode)?;
        text.push('\n');
        let written = match (&self.options.target, &self.file) {
            (_, Some(path)) => OpenOptions::new()
                .append(true)
                .create(true)
                .open(path)
                .and_then(|mut file| file.write_all(text.as_bytes())),
            (ReportTarget::Stderr, None) => io::stderr().write_all(text.as_bytes()),
            (_, None) => io::stdout().write_all(text.as_bytes()),
        };
        written.map_err(|error| {
            let place = self.file.as_ref().map(|path| path.display().to_string());
            let place = place.unwrap_or_else(|| "the terminal".into());
            ReportError::Write { place, error }.into()
        })
    }
}

fn micros(column: &ArrayRef) -> Result<ArrayRef, Failure> {
    if let DataType::Timestamp(TimeUnit::Microsecond, _) = column.data_type() {
        return Ok(column.clone());
    }
    let micros = DataType::Timestamp(TimeUnit::Microsecond, None);
    cast(column, &micros).map_err(|error| ArrowBug(error).into())
}

#[async_trait]
impl Sink for StatsSink {
    fn description(&self) -> String {
        "stats".into()
    }

    fn delivery(&self) -> Delivery {
        Delivery::AtLeastOnce
    }

    async fn open(&mut self) -> Result<Option<Published>, Failure> {
        if let Some(path) = &self.file {
            // Found out now rather than at the end of a long run.
            let opened = OpenOptions::new().append(true).create(true).open(path);
            opened.map_err(|error| ReportError::Open { path: path.clone(), error })?;
        }
        Ok(None)
    }

    async fn publish(&mut self, output: Output) -> Result<Acknowledgement, Failure> {
        let (now_us, now) = (self.env.now_us(), self.env.monotonic());
        if output.rows() > 0 {
            let nulls = self.measure(&output, now_us)?;
            let overall = self.overall.get_or_insert_with(|| Window::new(now));
            overall.add(&self.micro_batch, nulls);
            if self.options.report_interval.is_some() {
                let interval = self.interval.get_or_insert_with(|| Window::new(now));
                interval.add(&self.micro_batch, nulls);
            }
        }
        self.report_interval(now)?;
        Ok(Acknowledgement::Done)
    }

    async fn close(&mut self) -> Result<(), Failure> {
        let now = self.env.monotonic();
        let line = self.overall.as_ref().and_then(|overall| overall.line("overall", now));
        line.map_or(Ok(()), |line| self.write(&line))
    }
}

//! Result lines: what every benchmark says about where and with what it ran.
//!
//! Lines go to standard output, one JSON object each; what is for a person goes to standard error.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use serde::Serialize;

use crate::broker::Broker;
use crate::error::Error;

/// Where a benchmark ran.
#[derive(Debug, Serialize)]
struct Machine {
    /// Processors the process may use.
    cores: usize,
    /// The processor's name.
    cpu: String,
    /// RAM.
    memory_mb: u64,
}

/// What ran.
#[derive(Debug, Serialize)]
struct Versions {
    /// This program.
    millstream: String,
    /// `release`, or `debug`: numbers of that are good for nothing but trying the benchmark out.
    build: String,
    /// The Kafka client library; `None` where Kafka has no part.
    librdkafka: Option<String>,
    /// The broker; `None` where Kafka has no part.
    broker: Option<String>,
}

impl Machine {
    /// This machine.
    fn this() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let memory_kib = proc_field("/proc/meminfo", "MemTotal")
            .and_then(|text| text.strip_suffix("kB")?.trim().parse::<u64>().ok());
        let cpu = proc_field("/proc/cpuinfo", "model name");
        Self {
            cores,
            cpu: cpu.unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            memory_mb: memory_kib.unwrap_or_default() / 1024,
        }
    }
}

impl Versions {
    /// This program, with a broker if it needs one.
    fn with(broker: Option<&str>) -> Self {
        Self {
            millstream: env!("CARGO_PKG_VERSION").to_owned(),
            build: if cfg!(debug_assertions) { "debug" } else { "release" }.to_owned(),
            librdkafka: broker.map(|_| rdkafka::util::get_rdkafka_version().1),
            broker: broker.map(str::to_owned),
        }
    }
}

/// The commit that was measured: `MILLSTREAM_COMMIT`, else what git says of the current directory
/// if that is a checkout of this project. `None` if neither knows.
fn commit() -> Option<String> {
    if let Some(commit) = std::env::var("MILLSTREAM_COMMIT").ok().filter(|text| !text.is_empty()) {
        return Some(commit);
    }
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).stdin(Stdio::null()).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    // Another project's checkout does not have this file.
    git(&["cat-file", "-e", "HEAD:crates/millstream/Cargo.toml"])?;
    git(&["describe", "--always", "--dirty", "--tags"])
}

/// Prints a benchmark's result lines, each with what ran and where.
pub struct Report {
    bench: &'static str,
    commit: Option<String>,
    machine: Machine,
    versions: Versions,
}

impl Report {
    /// Of the benchmark `bench`, with a broker if it needs one.
    pub fn new(bench: &'static str, broker: Option<&Broker>) -> Self {
        let versions = Versions::with(broker.map(|broker| broker.version.as_str()));
        Self { bench, commit: commit(), machine: Machine::this(), versions }
    }

    /// Prints one line. `line` says what kind of line it is: `round`, `summary`.
    pub fn line(&self, line: &'static str, result: &impl Serialize) -> Result<(), Error> {
        #[derive(Serialize)]
        struct ReportLine<'a, R> {
            bench: &'static str,
            line: &'static str,
            commit: Option<&'a str>,
            #[serde(flatten)]
            result: &'a R,
            machine: &'a Machine,
            versions: &'a Versions,
        }
        let Self { bench, commit, machine, versions } = self;
        let line = ReportLine { bench, line, commit: commit.as_deref(), result, machine, versions };
        let mut text = serde_json::to_string(&line).expect("results are plain values");
        text.push('\n');
        let mut out = std::io::stdout().lock();
        let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        written.map_err(|source| Error::Output { source })
    }
}

/// A value's name, as on the command line.
pub fn name(value: &impl clap::ValueEnum) -> String {
    let value = value.to_possible_value().expect("none is skipped");
    value.get_name().to_owned()
}

/// The middle value, or the mean of the two middle ones.
///
/// # Panics
/// Without values: a median of nothing is not a number.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    assert!(!values.is_empty(), "a median needs a value");
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}

/// `value` with as many decimals as a reader can use.
pub fn rounded(value: f64, decimals: i32) -> f64 {
    let scale = 10_f64.powi(decimals);
    (value * scale).round() / scale
}

fn proc_field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| {
        let (field, value) = line.split_once(':')?;
        (field.trim() == name).then(|| value.trim().to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median([3.0]), 3.0);
        assert_eq!(median([9.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([9.0, 1.0, 2.0, 4.0]), 3.0);
    }

    #[test]
    fn this_machine_is_known() {
        let machine = Machine::this();
        assert!(machine.cores > 0 && machine.memory_mb > 0 && !machine.cpu.is_empty());
    }
}

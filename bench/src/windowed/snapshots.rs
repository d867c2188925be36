//! `millstream-bench windowed --snapshots`: what snapshots of the state do to latency. Runs without
//! any and runs with one each second take turns.

use std::path::Path;

use serde::Serialize;

use super::Flags;
use super::live::{LiveLine, LiveWindows, median, table_head, table_row};
use super::query::Form;
use crate::error::Error;
use crate::report::{self, Report};
use crate::testbed::TestBed;

/// Characters of a configuration's name.
const WIDTH: usize = 22;

/// A configuration: what its name ends with, and options of the sink.
type Variant = (&'static str, &'static [(&'static str, &'static str)]);

const WITHOUT: Variant = ("no-snapshots", &[("stateSnapshotBytes", "1000000000000")]);
const OFTEN: Variant = ("snapshots", &[("stateSnapshotInterval", "1 second")]);

/// With snapshots over without, of medians over the rounds.
#[derive(Clone, Debug, Serialize)]
struct Summary {
    configuration: String,
    rounds: usize,
    rate: u64,
    ratio_aggregated_p50: f64,
    ratio_aggregated_p99: f64,
    ratio_acknowledged_p99: f64,
    ratio_results_p50: f64,
}

/// Runs all rounds. True if every message was in every table once.
pub fn run(flags: &Flags, testbed: &TestBed, report: &Report) -> Result<bool, Error> {
    eprintln!("{}", flags.live_settings());
    eprintln!("{}", table_head(WIDTH));
    let mut lines = Vec::new();
    for round in 1..=flags.topic.repeat {
        for form in flags.forms() {
            for variant in [WITHOUT, OFTEN] {
                let line = measure(flags, testbed, form, round, variant)?;
                report.line("latency", &line)?;
                eprintln!("{}", table_row(&line, WIDTH));
                lines.push(line);
            }
        }
    }
    for form in flags.forms() {
        let summary = summary(form, flags.live.rate, &lines);
        report.line("summary", &summary)?;
        eprintln!(
            "{:<WIDTH$} with snapshots over without: aggregated p50 x{:.2}, p99 x{:.2}; \
             acknowledged p99 x{:.2}; results p50 x{:.2}",
            summary.configuration,
            summary.ratio_aggregated_p50,
            summary.ratio_aggregated_p99,
            summary.ratio_acknowledged_p99,
            summary.ratio_results_p50
        );
    }
    Ok(lines.iter().all(|line| line.surplus_rows == 0))
}

fn measure(
    flags: &Flags,
    testbed: &TestBed,
    form: Form,
    round: u32,
    variant: Variant,
) -> Result<LiveLine, Error> {
    let (name, of_writer) = variant;
    let run = LiveWindows {
        testbed,
        live: &flags.live,
        topic: &flags.topic,
        configuration: configuration(form, variant),
        form,
        keys: flags.keys,
        window_s: flags.window_seconds,
        delay_s: flags.delay_seconds,
        round,
        of_writer: &[&flags.of_writer(), of_writer].concat(),
    };
    run.run(|checkpoint, _| expect_snapshots(checkpoint, name == OFTEN.0))
}

fn configuration(form: Form, (name, _): Variant) -> String {
    format!("{}-{name}", report::name(&form))
}

/// Errors if there are snapshots where none should be, or the other way round.
fn expect_snapshots(checkpoint: &Path, expected: bool) -> Result<(), Error> {
    let state = checkpoint.join("state");
    let entries = std::fs::read_dir(&state).map_err(Error::file("list", &state))?;
    let names = entries.flatten().map(|entry| entry.file_name());
    let found = names.filter(|name| name.to_string_lossy().starts_with("snapshot-")).count();
    if (found > 0) == expected {
        return Ok(());
    }
    let problem = format!("{found} snapshots are there");
    Err(Error::Result { path: state, problem })
}

fn summary(form: Form, rate: u64, lines: &[LiveLine]) -> Summary {
    let of = |variant: Variant| {
        let name = configuration(form, variant);
        lines.iter().filter(|line| line.configuration == name).collect::<Vec<_>>()
    };
    let (without, often) = (of(WITHOUT), of(OFTEN));
    let ratio = |value: fn(&LiveLine) -> f64| {
        report::rounded(median(&often, value) / median(&without, value), 3)
    };
    Summary {
        configuration: report::name(&form),
        rounds: often.len(),
        rate,
        ratio_aggregated_p50: ratio(|line| line.aggregated.p50_ms),
        ratio_aggregated_p99: ratio(|line| line.aggregated.p99_ms),
        ratio_acknowledged_p99: ratio(|line| line.acknowledged.p99_ms),
        ratio_results_p50: ratio(|line| line.results.p50_ms),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_are_looked_for() {
        let directory = tempfile::tempdir().expect("a directory");
        let state = directory.path().join("state");
        std::fs::create_dir(&state).expect("writable");
        std::fs::write(state.join("log-1"), "x").expect("writable");
        assert!(expect_snapshots(directory.path(), false).is_ok());
        assert!(expect_snapshots(directory.path(), true).is_err());
        std::fs::write(state.join("snapshot-7"), "x").expect("writable");
        assert!(expect_snapshots(directory.path(), false).is_err());
        assert!(expect_snapshots(directory.path(), true).is_ok());
    }
}

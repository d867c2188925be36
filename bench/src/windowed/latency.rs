//! `millstream-bench windowed --latency`: both stages of live windows, beside what is published.

use serde::Serialize;

use super::live::{LiveLine, LiveWindows, median, table_head, table_row};
use super::{Flags, WIDTH};
use crate::error::Error;
use crate::report::{self, Report};
use crate::testbed::TestBed;

/// What is published for a cluster, windows of a minute: P50, P95 and P99 in milliseconds, all
/// stages together.
const PUBLISHED: [f64; 3] = [3_400.0, 13_000.0, 25_000.0];

/// Medians of a form's rounds.
#[derive(Clone, Debug, Serialize)]
struct Summary {
    configuration: String,
    rounds: usize,
    rate: u64,
    aggregated_p50_ms: f64,
    aggregated_p99_ms: f64,
    acknowledged_p99_ms: f64,
    results_p50_ms: f64,
    results_p99_ms: f64,
    p50_ms: f64,
    p95_ms: f64,
    p99_ms: f64,
    published_p50_ms: f64,
    published_p95_ms: f64,
    published_p99_ms: f64,
}

/// Runs all rounds. True if every message was in every table once.
pub fn run(flags: &Flags, testbed: &TestBed, report: &Report) -> Result<bool, Error> {
    eprintln!("{}", flags.live_settings());
    eprintln!("{}", table_head(WIDTH));
    let mut lines = Vec::new();
    for round in 1..=flags.topic.repeat {
        for form in flags.forms() {
            let run = LiveWindows {
                testbed,
                live: &flags.live,
                topic: &flags.topic,
                configuration: report::name(&form),
                form,
                keys: flags.keys,
                window_s: flags.window_seconds,
                delay_s: flags.delay_seconds,
                round,
                of_writer: &flags.of_writer(),
            };
            let line = run.run(|_, _| Ok(()))?;
            report.line("latency", &line)?;
            eprintln!("{}", table_row(&line, WIDTH));
            lines.push(line);
        }
    }
    for form in flags.forms() {
        let summary = summary(report::name(&form), flags.live.rate, &lines);
        report.line("summary", &summary)?;
        eprintln!("{}", beside_published(&summary));
    }
    Ok(lines.iter().all(|line| line.surplus_rows == 0))
}

fn summary(configuration: String, rate: u64, lines: &[LiveLine]) -> Summary {
    let lines: Vec<_> = lines.iter().filter(|line| line.configuration == configuration).collect();
    let [published_p50_ms, published_p95_ms, published_p99_ms] = PUBLISHED;
    Summary {
        configuration,
        rounds: lines.len(),
        rate,
        aggregated_p50_ms: median(&lines, |line| line.aggregated.p50_ms),
        aggregated_p99_ms: median(&lines, |line| line.aggregated.p99_ms),
        acknowledged_p99_ms: median(&lines, |line| line.acknowledged.p99_ms),
        results_p50_ms: median(&lines, |line| line.results.p50_ms),
        results_p99_ms: median(&lines, |line| line.results.p99_ms),
        p50_ms: median(&lines, |line| line.total.p50_ms),
        p95_ms: median(&lines, |line| line.total.p95_ms),
        p99_ms: median(&lines, |line| line.total.p99_ms),
        published_p50_ms,
        published_p95_ms,
        published_p99_ms,
    }
}

fn beside_published(summary: &Summary) -> String {
    format!(
        "{:<WIDTH$} window results published within {:.0} ms (p50) and {:.0} ms (p99) of the \
         watermark passing\n\
         {:<WIDTH$} all stages: p50 {:.0}, p95 {:.0}, p99 {:.0} ms (published, with lists: {}, {}, \
         {})",
        summary.configuration,
        summary.results_p50_ms,
        summary.results_p99_ms,
        "",
        summary.p50_ms,
        summary.p95_ms,
        summary.p99_ms,
        summary.published_p50_ms,
        summary.published_p95_ms,
        summary.published_p99_ms
    )
}

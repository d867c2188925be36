//! `millstream-bench windowed --soak`: one long run, and what each minute of it was like.
//!
//! What grows with time shows here: memory that is not given back, files that nobody deletes, and
//! latency behind them.

use serde::Serialize;

use super::live::{LiveLine, LiveWindows};
use super::query::Form;
use super::{Flags, WIDTH};
use crate::error::Error;
use crate::live::Ran;
use crate::quantiles::{Latencies, OfStage};
use crate::report::{self, Report};
use crate::testbed::TestBed;

const MINUTE_S: u64 = 60;

/// One minute.
#[derive(Clone, Debug, Serialize)]
struct Minute {
    configuration: String,
    minute: usize,
    rate: u64,
    records: u64,
    aggregated: OfStage,
    acknowledged: OfStage,
    windows: u64,
    results: OfStage,
    /// The most memory that the engine had in RAM in this minute.
    rss_mb: f64,
}

/// The last third of the minutes beside the first, as medians, and the run as a whole.
#[derive(Clone, Debug, Serialize)]
struct Summary {
    #[serde(flatten)]
    line: LiveLine,
    minutes: usize,
    first_third: Third,
    last_third: Third,
    ratio_aggregated_p99: f64,
    ratio_results_p99: f64,
    ratio_rss: f64,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Third {
    aggregated_p99_ms: f64,
    acknowledged_p99_ms: f64,
    results_p99_ms: f64,
    rss_mb: f64,
}

/// Runs it for each form. True if every message was in the table once.
pub fn run(flags: &Flags, testbed: &TestBed, report: &Report) -> Result<bool, Error> {
    eprintln!("{}", flags.live_settings());
    let mut is_complete = true;
    for form in flags.forms() {
        is_complete &= soak(flags, testbed, report, form)?;
    }
    Ok(is_complete)
}

fn soak(flags: &Flags, testbed: &TestBed, report: &Report, form: Form) -> Result<bool, Error> {
    let configuration: String = report::name(&form);
    let run = LiveWindows {
        testbed,
        live: &flags.live,
        topic: &flags.topic,
        configuration: configuration.clone(),
        form,
        keys: flags.keys,
        window_s: flags.window_seconds,
        delay_s: flags.delay_seconds,
        round: 1,
        of_writer: &flags.of_writer(),
    };
    let mut minutes = Vec::new();
    let line = run.run(|_, ran| {
        minutes = minutes_of(flags, &configuration, ran);
        Ok(())
    })?;
    eprintln!(
        "{:<WIDTH$} {:>6} {:>15} {:>15} {:>19} {:>8}",
        "", "minute", "aggregated ms", "acknowledged", "results ms (count)", "RSS MB"
    );
    for minute in &minutes {
        report.line("minute", minute)?;
        eprintln!("{}", table_row(minute));
    }
    let summary = summary(line, &minutes);
    report.line("summary", &summary)?;
    eprintln!(
        "{configuration:<WIDTH$} last third over first: aggregated p99 x{:.2}, results p99 x{:.2}, \
         memory x{:.2}; {:+} messages",
        summary.ratio_aggregated_p99,
        summary.ratio_results_p99,
        summary.ratio_rss,
        summary.line.surplus_rows
    );
    Ok(summary.line.surplus_rows == 0)
}

fn minutes_of(flags: &Flags, configuration: &str, ran: &Ran) -> Vec<Minute> {
    let plan = &ran.plan;
    let aggregated = plan.slices(&ran.told, MINUTE_S, |told| told.computed_us);
    let acknowledged = plan.slices(&ran.told, MINUTE_S, |told| told.told_us);
    let mut results: Vec<Latencies> = aggregated.iter().map(|_| Latencies::new()).collect();
    let (window_ms, delay_ms) = (flags.window_seconds, flags.delay_seconds);
    let ms = |seconds: u32| i64::from(seconds) * 1_000;
    for closed in plan.closed(&ran.told, ms(window_ms), ms(delay_ms)) {
        let slice = plan.slice(closed.due_us, MINUTE_S);
        if let Some(results) = slice.and_then(|slice| results.get_mut(slice)) {
            results.add(closed.latency_us);
        }
    }
    let mut rss_mb = vec![0.0_f64; aggregated.len()];
    for (at_us, mb) in &ran.resident {
        let slice = plan.slice(*at_us, MINUTE_S);
        if let Some(most) = slice.and_then(|slice| rss_mb.get_mut(slice)) {
            *most = most.max(*mb);
        }
    }
    let stages = aggregated.iter().zip(&acknowledged).zip(&results).zip(rss_mb);
    let minutes =
        stages.enumerate().map(|(at, (((aggregated, acknowledged), results), rss_mb))| Minute {
            configuration: configuration.to_owned(),
            minute: at + 1,
            rate: plan.rate,
            records: aggregated.count(),
            aggregated: aggregated.of_stage(),
            acknowledged: acknowledged.of_stage(),
            windows: results.count(),
            results: results.of_stage(),
            rss_mb: report::rounded(rss_mb, 1),
        });
    minutes.collect()
}

fn summary(line: LiveLine, minutes: &[Minute]) -> Summary {
    let third = minutes.len().div_ceil(3);
    let first_third = Third::of(&minutes[..third]);
    let last_third = Third::of(&minutes[minutes.len() - third..]);
    let ratio =
        |value: fn(&Third) -> f64| report::rounded(value(&last_third) / value(&first_third), 3);
    Summary {
        line,
        minutes: minutes.len(),
        first_third,
        last_third,
        ratio_aggregated_p99: ratio(|third| third.aggregated_p99_ms),
        ratio_results_p99: ratio(|third| third.results_p99_ms),
        ratio_rss: ratio(|third| third.rss_mb),
    }
}

impl Third {
    fn of(minutes: &[Minute]) -> Self {
        let median = |value: fn(&Minute) -> f64| {
            report::rounded(report::median(minutes.iter().map(value)), 2)
        };
        Self {
            aggregated_p99_ms: median(|minute| minute.aggregated.p99_ms),
            acknowledged_p99_ms: median(|minute| minute.acknowledged.p99_ms),
            results_p99_ms: median(|minute| minute.results.p99_ms),
            rss_mb: median(|minute| minute.rss_mb),
        }
    }
}

fn table_row(minute: &Minute) -> String {
    let pair = |stage: &OfStage| format!("{:.1} {:.1}", stage.p50_ms, stage.p99_ms);
    format!(
        "{:<WIDTH$} {:>6} {:>15} {:>15} {:>19} {:>8.1}",
        minute.configuration,
        minute.minute,
        pair(&minute.aggregated),
        pair(&minute.acknowledged),
        format!("{} ({})", pair(&minute.results), minute.windows),
        minute.rss_mb
    )
}

//! `millstream bench rate-to-stats`: rows of the `rate` source, due at fixed moments, go through
//! SQL to the `stats` sink, which reports how old each row was when it was published.
//!
//! The sink reports at intervals as long as the measurement: the first interval is the warm-up, the
//! second is the result.

use std::fs;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Flow, directory, sql_options};
use crate::app::App;
use crate::stopping;

/// The first interval begins a little after the start; the second must be over.
const GRACE: Duration = Duration::from_secs(2);
/// Below this part of the rate, the engine did not keep up.
const KEPT_UP: f64 = 0.98;

/// Flags of the check.
#[derive(clap::Args)]
pub struct Flags {
    /// Rows a second.
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    rate: u64,
    /// Seconds measured, after as many of warm-up.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
}

/// Runs the check.
pub async fn run(flags: &Flags, app: &App) -> Result<ExitCode, ExitCode> {
    let directory = directory(app)?;
    let report = directory.path().join("stats.jsonl");
    let flow = Flow::plan(pipeline(flags, &report.to_string_lossy()), &directory, app).await?;
    let length = Duration::from_secs(2 * flags.seconds) + GRACE;
    stopping::after(&app.env, length, flow.stopper.clone());
    flow.run(app).await?;
    let text = fs::read_to_string(&report).unwrap_or_default();
    let line = measured(&text);
    let line = line.ok_or_else(|| app.failed("the check was stopped before its end"))?;
    let result = json!({
        "bench": "rate-to-stats",
        "rate": flags.rate,
        "seconds": flags.seconds,
        "rows": line["count"],
        "p50_ms": line["p50_ms"],
        "p99_ms": line["p99_ms"],
        "max_ms": line["max_ms"],
        "kept_up": line["rows_per_second"].as_f64() >= Some(flags.rate as f64 * KEPT_UP),
        "version": env!("CARGO_PKG_VERSION"),
    });
    Ok(app.print(&format!("{result}\n")))
}

fn pipeline(flags: &Flags, report: &str) -> String {
    let (rate, interval) = (flags.rate.to_string(), format!("{} seconds", flags.seconds));
    format!(
        "CREATE TABLE input USING rate OPTIONS ({});\n\
         CREATE TABLE latency USING stats OPTIONS ({});\n\
         CREATE FLOW measure AS INSERT INTO latency\n\
         SELECT timestamp, value FROM STREAM input;\n",
        sql_options([("rowsPerSecond", rate.as_str())]),
        sql_options([("path", report), ("reportInterval", &interval)]),
    )
}

/// The second interval that the sink has reported.
fn measured(report: &str) -> Option<Value> {
    let lines = report.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["stats"] == "interval").nth(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_interval_is_the_result() {
        let line = |count: u32| format!("{{\"stats\":\"interval\",\"count\":{count}}}\n");
        let report = line(1) + "{\"stats\":\"overall\"}\n" + &line(2) + &line(3);
        assert_eq!(measured(&report).unwrap()["count"], 2);
        assert_eq!(measured(&line(1)), None);
    }
}

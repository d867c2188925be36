//! Golden tests: pipeline files in, diagnostics, summaries or rows out.
//!
//! Cases stand in `testdata/*.txt`: a line `### name`, the file's text, a line `---`, what comes
//! out. `UPDATE_GOLDEN=1 cargo test -p millstream-engine pipeline` rewrites what comes out.

mod connectors;
mod golden;
mod rows;

use std::fmt::Write as _;
use std::sync::Arc;

use datafusion::datasource::empty::EmptyTable;
use datafusion::prelude::{SessionConfig, SessionContext};
use millstream_sql::diagnostic::Diagnostics;
use millstream_sql::functions::BatchClock;
use millstream_sql::types::spark_schema;

use super::flows::{Flow, Pipeline};
use crate::api::connector::ReadMode;
use crate::api::references::Lookup;
use crate::api::settings::ProgressTracking;

/// Reads `text`; lines `--! set key=value` are overrides.
fn load(text: &str) -> Result<Pipeline, Diagnostics> {
    let overrides = text.lines().filter_map(|line| line.strip_prefix("--! set "));
    let overrides: Vec<(String, String)> = overrides
        .filter_map(|line| line.split_once('='))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    let lookup: Arc<dyn Lookup> = Arc::new(connectors::Variables);
    Pipeline::load("p.sql", text, &connectors::registry(), &overrides, &lookup)
}

/// A session in which the flow's tables are there but empty.
fn empty_session(flow: &Flow) -> SessionContext {
    let session = session();
    for read in flow.reads() {
        let table = Arc::new(EmptyTable::new(read.schema.clone()));
        session.register_table(quoted(&read.registered_as), table).expect("names are unique");
    }
    session
}

fn session() -> SessionContext {
    let mut config = SessionConfig::new().with_target_partitions(1);
    config.options_mut().execution.time_zone = Some("UTC".into());
    millstream_sql::session::session(config, &BatchClock::default())
}

/// A name that DataFusion takes as it is.
fn quoted(name: &str) -> String {
    format!("\"{name}\"")
}

/// What a file says, in a few lines; with the plan where it asks for it by `--! plan`.
fn summary(text: &str) -> Result<String, Diagnostics> {
    let pipeline = load(text)?;
    let mut out = String::new();
    for table in &pipeline.tables {
        let _ = write!(out, "table {} using {}", table.table.name, table.connector.name());
        if let Some(columns) = &table.table.columns {
            let _ = write!(out, " ({})", spark_schema(columns));
        }
        for (key, value) in table.table.options.iter() {
            let _ = write!(out, "\n  {key} = {value}");
        }
        out.push('\n');
    }
    let mut found = Diagnostics::default();
    for flow in &pipeline.flows {
        let kind = if flow.is_stream { "stream" } else { "batch" };
        let sinks: Vec<_> = flow.branches.iter().map(|branch| &*branch.sink.name).collect();
        let _ = writeln!(out, "flow {} into {} ({kind})", flow.name, sinks.join(", "));
        for read in flow.reads() {
            let mode = if read.mode == ReadMode::Stream { "stream" } else { "batch" };
            let _ = write!(out, "  reads {} as {mode} `{}`", read.table, read.registered_as);
            if let Some(watermark) = &read.watermark {
                let _ = write!(out, ", {} late {:?}", watermark.column.text, watermark.delay);
            }
            out.push('\n');
        }
        for letters in &flow.dead_letters {
            let of = letters.sources.join(", ");
            let _ = writeln!(out, "  dead letters to {}, of [{of}]", letters.sink.name);
        }
        let writer = &flow.writer;
        let _ = writeln!(out, "  {:?}, checkpoint {}", writer.trigger, flow.checkpoint);
        if let ProgressTracking::Interval(interval) = writer.logging.tracking {
            let _ = writeln!(out, "  async progress every {interval:?}");
        }
        for branch in &flow.branches {
            let Some(plan) = found.take(branch.plan(&empty_session(flow).state())) else {
                continue;
            };
            let _ = writeln!(out, "  columns {}", spark_schema(plan.schema().as_arrow()));
            if text.contains("--! plan") {
                let plan = plan.display_indent().to_string();
                let _ = writeln!(out, "    {}", plan.replace('\n', "\n    "));
            }
        }
    }
    found.forget_repeats();
    found.into_result()?;
    Ok(out)
}

fn outcome(text: &str) -> String {
    match summary(text) {
        Ok(summary) => summary,
        Err(found) => found.plain("p.sql", text),
    }
}

#[test]
fn statements() {
    golden::check("statements.txt", outcome);
}

#[test]
fn options() {
    golden::check("options.txt", outcome);
}

#[test]
fn streams() {
    golden::check("streams.txt", outcome);
}

#[test]
fn queries() {
    golden::check("queries.txt", outcome);
}

#[test]
fn branches() {
    golden::check("branches.txt", outcome);
}

#[test]
fn dead_letters() {
    golden::check("dead_letters.txt", outcome);
}

#[test]
fn inserts() {
    golden::check("inserts.txt", outcome);
}

#[test]
fn rows() {
    golden::check("rows.txt", rows::outcome);
}

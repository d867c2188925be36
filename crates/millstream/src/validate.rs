//! `millstream validate`: what a pipeline file means, without touching anything.

use std::fmt::Write as _;
use std::process::ExitCode;

use millstream_engine::api::connector::ReadMode;
use millstream_engine::api::trigger::Trigger;
use millstream_engine::flow::SourceFacts;
use millstream_sql::types::spark_schema;

use crate::app::App;
use crate::cli::ValidateArguments;
use crate::load::{Changes, LoadError, Loaded, PipelineFile, TableNeeds, Values};
use crate::lookup;

/// Runs the command.
pub async fn run(arguments: ValidateArguments, app: &App) -> ExitCode {
    let loaded = match load(&arguments, app).await {
        Ok(loaded) => loaded,
        Err(error) => return app.not_loaded(error),
    };
    let mut flows = Vec::with_capacity(loaded.len());
    for flow in &loaded {
        match flow.planner.outside(&flow.plan) {
            Ok(outside) => flows.push(describe(flow, &outside)),
            // The tables passed their checks, so this is none that a flow's user can cause.
            Err(error) => return app.not_loaded(LoadError::Wrong(error.to_string())),
        }
    }
    app.print(&flows.join("\n"))
}

async fn load(arguments: &ValidateArguments, app: &App) -> Result<Vec<Loaded>, LoadError> {
    let file = PipelineFile::read(&arguments.file).map_err(LoadError::Wrong)?;
    let flow = arguments.flow.as_deref();
    let (settings, values) = (arguments.settings.clone(), Values::MayBeMissing);
    let changes = Changes { settings, flow, checkpoint: None, values };
    file.load(millstream_connectors::registry(file.base_dir()), &app.env, &changes).await
}

fn describe(loaded: &Loaded, outside: &[TableNeeds]) -> String {
    let Loaded { flow, plan, checkpoint, needs, .. } = loaded;
    let mut text = format!("flow {}\n", plan.name());
    for source in plan.sources() {
        text.push_str(&describe_source(&source));
    }
    let branches = plan.branches();
    for branch in &branches {
        let _ = writeln!(text, "  sink        {} ({})", branch.table, branch.connector);
        push_columns(&mut text, &spark_schema(&branch.schema));
    }
    for letters in &flow.dead_letters {
        let (table, connector) = (&letters.sink.name, letters.connector.name());
        let of = letters.sources.join(", ");
        let _ = writeln!(text, "  dead letters {table} ({connector}), of {of}");
        push_columns(&mut text, &spark_schema(letters.layout.schema()));
    }
    if plan.is_stream() {
        let _ = writeln!(text, "  trigger     {}", describe_trigger(&flow.writer.trigger));
        let _ = writeln!(text, "  checkpoint  {checkpoint}");
    }
    for need in needs {
        let missing = if lookup::is_missing(need) { " (not set here)" } else { "" };
        let _ = writeln!(text, "  needs       {need}{missing}");
    }
    for of_table in outside.iter().filter(|of_table| !of_table.needs.is_empty()) {
        push_needs(&mut text, of_table);
    }
    for branch in &branches {
        let of = if branches.len() > 1 { format!(" of {}", branch.table) } else { String::new() };
        push_plan(&mut text, &format!("logical plan{of}"), &branch.logical);
        push_plan(&mut text, &format!("physical plan{of}"), &branch.physical);
    }
    text
}

fn describe_source(source: &SourceFacts) -> String {
    let how = match source.mode {
        ReadMode::Stream => "stream",
        ReadMode::Batch => "table at rest",
    };
    let mut text = format!("  source      {} ({}, {how})\n", source.table, source.connector);
    push_columns(&mut text, &spark_schema(&source.schema));
    text
}

fn push_columns(text: &mut String, columns: &str) {
    let _ = writeln!(text, "              {columns}");
}

fn describe_trigger(trigger: &Trigger) -> String {
    match trigger {
        Trigger::BackToBack => "as soon as there is input".into(),
        Trigger::Interval(interval) => format!("every {interval:?}"),
        Trigger::Once => "once: one micro-batch with all there is".into(),
        Trigger::AvailableNow => "availableNow: what there is at the start".into(),
    }
}

fn push_needs(text: &mut String, outside: &TableNeeds) {
    let TableNeeds { table, connector, needs } = outside;
    let _ = writeln!(text, "  outside     {table} ({connector})");
    for need in needs {
        let _ = writeln!(text, "              {need}");
    }
}

fn push_plan(text: &mut String, title: &str, plan: &str) {
    let _ = writeln!(text, "  {title}");
    for line in plan.trim_end().lines() {
        let _ = writeln!(text, "    {line}");
    }
}

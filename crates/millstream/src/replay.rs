//! `millstream replay`: dead letters fed to their flow once more.

use std::process::ExitCode;
use std::sync::Arc;

use millstream_engine::api::progress::Silent;
use millstream_engine::api::settings::Logging;
use millstream_engine::api::trigger::Trigger;
use millstream_engine::dead_letters::Tally;
use millstream_engine::driver::stop::stop_pair;
use millstream_engine::flow::RunSettings;
use millstream_engine::flow::replay::Replay;

use crate::app::App;
use crate::cli::ReplayArguments;
use crate::load::{Changes, LoadError, Loaded, PipelineFile, Values};
use crate::run::siblings;
use crate::{human, report, stopping};

/// Runs the command.
pub async fn run(arguments: ReplayArguments, app: &App) -> ExitCode {
    let loaded = match load(&arguments, app).await.and_then(|loaded| choose(loaded, &arguments)) {
        Ok(loaded) => loaded,
        Err(error) => return app.not_loaded(error),
    };
    let (stopper, stop) = stop_pair();
    if let Err(error) = stopping::on_signals(&app.env, stopper, app.screen.clone()) {
        return app.failed(&format!("signals cannot be heard: {error}"));
    }
    let siblings = siblings(std::slice::from_ref(&loaded), app).await;
    let Loaded { flow, plan, checkpoint, .. } = loaded;
    let settings = RunSettings {
        checkpoint,
        trigger: Trigger::AvailableNow,
        logging: Logging::default(),
        listener: Arc::new(Silent),
        stop,
        siblings,
        adopt: None,
    };
    let ReplayArguments { from, condition, dry_run: is_dry, .. } = arguments;
    match plan.replay(Replay { from, condition, is_dry, settings }).await {
        Ok(tally) => {
            app.screen.say(&told(&flow.name, tally, is_dry));
            app.done()
        }
        Err(failure) => {
            app.screen.say(&report::failure(&flow.name, &failure));
            ExitCode::from(1)
        }
    }
}

async fn load(arguments: &ReplayArguments, app: &App) -> Result<Vec<Loaded>, LoadError> {
    let file = PipelineFile::read(&arguments.file).map_err(LoadError::Wrong)?;
    let changes = Changes {
        settings: arguments.settings.clone(),
        flow: arguments.flow.as_deref(),
        checkpoint: arguments.checkpoint.as_deref(),
        values: Values::AreLookedUp,
    };
    file.load(millstream_connectors::registry(file.base_dir()), &app.env, &changes).await
}

/// The only flow whose sources send letters to the table.
fn choose(loaded: Vec<Loaded>, arguments: &ReplayArguments) -> Result<Loaded, LoadError> {
    let from = &arguments.from;
    if arguments.flow.is_some() {
        return loaded.into_iter().next().ok_or_else(|| LoadError::Wrong("no flow".to_owned()));
    }
    let sends = |loaded: &Loaded| {
        let mut tables = loaded.flow.dead_letters.iter();
        tables.any(|of| of.sink.name.eq_ignore_ascii_case(from) && !of.sources.is_empty())
    };
    let mut sending: Vec<Loaded> = loaded.into_iter().filter(sends).collect();
    let names: Vec<&str> = sending.iter().map(|loaded| loaded.flow.name.as_str()).collect();
    match names.len() {
        0 => Err(LoadError::Wrong(format!(
            "no source of a flow sends dead letters to '{from}': name the table that its option \
             'deadLetter' has"
        ))),
        1 => Ok(sending.remove(0)),
        _ => Err(LoadError::Wrong(format!(
            "several flows send dead letters to '{from}': choose one with --flow ({})",
            names.join(", ")
        ))),
    }
}

fn told(flow: &str, tally: Tally, is_dry: bool) -> String {
    let Tally { fed, fed_before, malformed, not_whole } = tally;
    let verb = if is_dry { "to replay" } else { "replayed" };
    let letters = human::counted(fed, "letter");
    let not_whole = match not_whole {
        0 => String::new(),
        some => format!(", {some} left out as their table does not have the record's own bytes"),
    };
    format!(
        "{flow}: {letters} {verb}, {fed_before} replayed before, {malformed} still malformed\
         {not_whole}"
    )
}

//! `millstream demo`: the first minute. No broker, no set-up, ends by itself.
//!
//! Two ordinary pipeline files, written to a directory where they can be looked at and run again,
//! read generated rows and write alerts to files; a third sends them to a webhook, if there is one.
//! What is special is only that alerts are shown as
//! they are published ([`alerts`]) and that the end is a summary ([`closing`]).

mod alerts;
mod closing;

use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use millstream_engine::api::progress::Listener;
use millstream_engine::driver::start::Siblings;
use millstream_engine::driver::stop::stop_pair;
use millstream_engine::flow::RunSettings;

use crate::app::App;
use crate::cli::DemoArguments;
use crate::load::{Changes, LoadError, Loaded, PipelineFile};
use crate::restart::Policy;
use crate::stopping;
use crate::supervise::{self, Job};
use crate::terminal::LiveLines;
use crate::watch::FlowWatch;
use alerts::Alerts;
use closing::FlowResult;

/// The pipeline files, by name.
const PIPELINES: [(&str, &str); 2] =
    [("pii.sql", include_str!("pii.sql")), ("temperature.sql", include_str!("temperature.sql"))];

/// The one that sends alerts to a webhook. The URL, which may be a secret, is not written to it.
const NOTIFY: (&str, &str) = ("notify.sql", include_str!("notify.sql"));
/// What overrides the URL in it.
const NOTIFY_URL: &str = "hook.url";
/// The directory that it reads, which must be there before the first alert is.
const NOTIFY_FROM: &str = "leaks";

/// Runs the command.
pub async fn run(arguments: DemoArguments, app: &App) -> ExitCode {
    let directory = match prepare(arguments.dir, app) {
        Ok(directory) => directory,
        Err(problem) => return app.wrong(&problem),
    };
    let alerts = Alerts::start(&app.env, &app.screen);
    let webhook = arguments.webhook.as_deref();
    let loaded = match load(&directory, &alerts, webhook, app).await {
        Ok(loaded) => loaded,
        Err(error) => return app.not_loaded(error),
    };
    show(app, &opening(&directory, &format!("{:?}", arguments.run_for), webhook.is_some()));

    let (stopper, stop) = stop_pair();
    if let Err(error) = stopping::on_signals(&app.env, stopper.clone(), app.screen.clone()) {
        return app.failed(&format!("signals cannot be heard: {error}"));
    }
    let watches: Vec<_> = loaded.iter().map(|_| FlowWatch::new(app.env.clone())).collect();
    let names = loaded.iter().map(|flow| flow.plan.name().to_owned());
    let live = app.screen.is_terminal().then(|| {
        LiveLines::start(&app.env, &app.screen, names.zip(watches.iter().cloned()).collect())
    });
    let siblings = Siblings::default();
    let jobs = loaded.into_iter().zip(&watches).map(|(loaded, watch)| Job {
        plan: loaded.plan,
        planner: loaded.planner,
        restart: Policy::Never,
        settings: RunSettings {
            checkpoint: loaded.checkpoint,
            trigger: loaded.flow.writer.trigger,
            logging: loaded.flow.writer.logging,
            listener: Arc::clone(watch) as Arc<dyn Listener>,
            stop: stop.clone(),
            siblings: siblings.clone(),
            adopt: None,
        },
    });
    stopping::after(&app.env, arguments.run_for, stopper.clone());
    let outcomes = supervise::side_by_side(app, jobs.collect(), &stopper).await;
    drop(live);
    alerts.finish();

    if outcomes.iter().any(|outcome| outcome.finished.is_none()) {
        return ExitCode::from(1);
    }
    let results = outcomes.into_iter().zip(&watches).filter_map(|(outcome, watch)| {
        let finished = outcome.finished?;
        let latencies = watch.latencies();
        Some(FlowResult { flow: outcome.flow, finished, took: outcome.took, latencies })
    });
    show(app, &closing::text(&directory, &program(), &results.collect::<Vec<_>>()));
    app.done()
}

/// Makes the directory and writes the pipeline files into it.
fn prepare(wanted: Option<PathBuf>, app: &App) -> Result<PathBuf, String> {
    let directory = wanted.unwrap_or_else(|| {
        let unique = app.env.random_u64() & 0xFFFF_FFFF;
        std::env::temp_dir().join(format!("millstream-demo-{unique:08x}"))
    });
    let failed = |error: io::Error| format!("{} cannot be written: {error}", directory.display());
    if directory.exists() && directory.read_dir().map_err(failed)?.next().is_some() {
        return Err(format!(
            "{} is not empty; the demo writes into a new directory",
            directory.display()
        ));
    }
    std::fs::create_dir_all(&directory).map_err(failed)?;
    for (name, text) in PIPELINES.into_iter().chain([NOTIFY]) {
        std::fs::write(directory.join(name), text).map_err(failed)?;
    }
    std::fs::create_dir(directory.join(NOTIFY_FROM)).map_err(failed)?;
    Ok(directory)
}

async fn load(
    directory: &Path,
    alerts: &Alerts,
    webhook: Option<&str>,
    app: &App,
) -> Result<Vec<Loaded>, LoadError> {
    let registry = alerts.registry(&millstream_connectors::registry(directory));
    let mut loaded = Vec::new();
    for (name, _) in PIPELINES {
        let file = PipelineFile::read(&directory.join(name)).map_err(LoadError::Failed)?;
        loaded.extend(file.load(registry.clone(), &app.env, &Changes::default()).await?);
    }
    if let Some(url) = webhook {
        let file = PipelineFile::read(&directory.join(NOTIFY.0)).map_err(LoadError::Failed)?;
        let settings = vec![(NOTIFY_URL.to_owned(), url.to_owned())];
        let changes = Changes { settings, ..Changes::default() };
        loaded.extend(file.load(registry, &app.env, &changes).await?);
    }
    Ok(loaded)
}

fn opening(directory: &Path, length: &str, notifies: bool) -> String {
    let directory = directory.display();
    let mut text = format!(
        "Two Spark SQL pipelines run side by side for {length}: one finds personal data in log \
         lines,\none generators that are too hot. This is all they are:\n\n"
    );
    let shown = PIPELINES.into_iter().chain(notifies.then_some(NOTIFY));
    for (_, sql) in shown {
        let flow = sql.find("CREATE FLOW").expect("each pipeline has a flow");
        for line in sql[flow..].lines() {
            text.push_str(&format!("    {line}\n"));
        }
        text.push('\n');
    }
    text.push_str(&format!(
        "The whole files are in {directory}.\nAlerts, as they are written:\n\n"
    ));
    text
}

/// How the user would call this program again.
fn program() -> String {
    std::env::args().next().unwrap_or_else(|| "millstream".into())
}

/// Prints on standard output, above the live lines.
fn show(app: &App, text: &str) {
    app.screen.above(|| {
        // A reader that has gone away has seen enough.
        let _ = io::stdout().write_all(text.as_bytes());
    });
}

/// Whether to colour what goes to standard output.
fn colours() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_opening_shows_what_runs() {
        let text = opening(Path::new("/there"), "20 s", false);
        assert!(!text.contains("CREATE FLOW notify"), "{text}");
        assert!(opening(Path::new("/there"), "20 s", true).contains("CREATE FLOW notify"));
        assert!(text.contains("CREATE FLOW pii"), "{text}");
        assert!(text.contains("CREATE FLOW temperature"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }

    #[test]
    fn a_directory_in_use_is_refused() {
        let app = App::new(0);
        let unique = app.env.random_u64();
        let directory = std::env::temp_dir().join(format!("millstream-test-{unique:x}"));
        assert_eq!(prepare(Some(directory.clone()), &app), Ok(directory.clone()));
        assert!(directory.join("pii.sql").exists());
        let refused = prepare(Some(directory.clone()), &app).unwrap_err();
        assert!(refused.contains("not empty"), "{refused}");
        std::fs::remove_dir_all(directory).unwrap();
    }
}

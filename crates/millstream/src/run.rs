//! `millstream run`: every flow of a pipeline file, side by side.

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::sync::Arc;

use millstream_engine::api::progress::Listener;
use millstream_engine::api::settings::Logging;
use millstream_engine::driver::start::Siblings;
use millstream_engine::driver::stop::{Stop, Stopper, stop_pair};
use millstream_engine::flow::RunSettings;
use millstream_store::checkpoint::query_ids;

use crate::announce::Announcer;
use crate::app::App;
use crate::cli::{ProgressStyle, RunArguments};
use crate::load::{Changes, LoadError, Loaded, PipelineFile, Values};
use crate::metrics::Metrics;
use crate::metrics_server::MetricsServer;
use crate::progress_json::ProgressWriter;
use crate::supervise::{self, FlowOutcome, Job};
use crate::terminal::LiveLines;
use crate::watch::{FlowWatch, Listeners};
use crate::{descriptors, report, stopping};

/// Runs the command.
pub async fn run(arguments: RunArguments, app: &App) -> ExitCode {
    let loaded = match load(&arguments, app).await {
        Ok(loaded) => loaded,
        Err(error) => return app.not_loaded(error),
    };
    if let Err(problem) = descriptors::provide(&loaded) {
        return app.failed(&problem);
    }
    let (stopper, stop) = stop_pair();
    let showing = match Showing::start(&arguments, app, &loaded, &stopper).await {
        Ok(showing) => showing,
        Err(problem) => return app.failed(&problem),
    };
    if let Err(error) = stopping::on_signals(&app.env, stopper.clone(), app.screen.clone()) {
        return app.failed(&format!("signals cannot be heard: {error}"));
    }
    if let Some(run_for) = arguments.run_for {
        stopping::after(&app.env, run_for, stopper.clone());
    }
    introduce(app, &loaded);
    let adopted = match adopted(&arguments.adopt, &loaded) {
        Ok(adopted) => adopted,
        Err(problem) => return app.wrong(&problem),
    };
    let siblings = siblings(&loaded, app).await;
    let shares_threads = supervise::share_threads(loaded.len());
    let jobs = loaded.into_iter().zip(adopted).zip(&showing.listeners);
    let jobs = jobs.map(|((loaded, adopt), listener)| Job {
        plan: loaded.plan,
        planner: loaded.planner,
        restart: arguments.restart,
        settings: RunSettings {
            checkpoint: loaded.checkpoint,
            trigger: loaded.flow.writer.trigger,
            logging: Logging { shares_threads, ..loaded.flow.writer.logging },
            listener: Arc::clone(listener),
            stop: stop.clone(),
            siblings: siblings.clone(),
            adopt,
        },
    });
    let jobs = jobs.collect();
    let outcomes = supervise::side_by_side(app, jobs, &stopper).await;
    let watches = showing.end();
    conclude(app, &outcomes, &watches, &stop)
}

async fn load(arguments: &RunArguments, app: &App) -> Result<Vec<Loaded>, LoadError> {
    let file = PipelineFile::read(&arguments.file).map_err(LoadError::Wrong)?;
    let trigger = arguments.trigger.iter().map(|trigger| ("trigger".to_owned(), trigger.clone()));
    let changes = Changes {
        settings: arguments.settings.iter().cloned().chain(trigger).collect(),
        flow: arguments.flow.as_deref(),
        checkpoint: arguments.checkpoint.as_deref(),
        values: Values::AreLookedUp,
    };
    file.load(millstream_connectors::registry(file.base_dir()), &app.env, &changes).await
}

/// By flow, the query that it goes on as.
fn adopted(flags: &[String], loaded: &[Loaded]) -> Result<Vec<Option<String>>, String> {
    let mut adopted = vec![None; loaded.len()];
    for flag in flags {
        let (place, id) = match flag.split_once('=') {
            Some((name, id)) => {
                let mut names = loaded.iter().map(|flow| flow.plan.name());
                let place = names.position(|flow| flow.eq_ignore_ascii_case(name));
                (place.ok_or_else(|| format!("--adopt {flag}: no flow '{name}' runs here"))?, id)
            }
            None if loaded.len() == 1 => (0, flag.as_str()),
            None => {
                let name = loaded.first().map_or("flow", |flow| flow.plan.name());
                return Err(format!(
                    "--adopt {flag}: several flows run here; say which, as in --adopt {name}={flag}"
                ));
            }
        };
        adopted[place] = Some(id.to_owned());
    }
    Ok(adopted)
}

/// The queries of the file as far as they have run, here or elsewhere.
pub async fn siblings(loaded: &[Loaded], app: &App) -> Siblings {
    let siblings = Siblings::default();
    for location in loaded.iter().take(1).flat_map(|flow| flow.family.iter()) {
        for id in query_ids(location, &app.env).await {
            siblings.add(&id);
        }
    }
    siblings
}

/// Says what runs and where its checkpoint is, if somebody may be reading.
fn introduce(app: &App, loaded: &[Loaded]) {
    if !app.is_watched() {
        return;
    }
    for flow in loaded {
        let name = flow.plan.name();
        if flow.plan.is_stream() {
            app.screen.say(&format!("{name}: checkpoint {}", flow.checkpoint))
        } else {
            app.screen.say(&format!("{name}: reads tables at rest, once"))
        }
    }
}

fn conclude(
    app: &App,
    outcomes: &[FlowOutcome],
    watches: &[Arc<FlowWatch>],
    stop: &Stop,
) -> ExitCode {
    for (FlowOutcome { flow, finished, took }, watch) in outcomes.iter().zip(watches) {
        if let Some(finished) = finished {
            app.screen.say(&report::totals(flow, finished, *took, stop.is_requested()));
            for constraint in watch.constraints() {
                app.screen.say(&report::constraint(flow, &constraint));
            }
        }
    }
    if outcomes.iter().all(|outcome| outcome.finished.is_some()) {
        app.done()
    } else {
        ExitCode::from(1)
    }
}

/// All that shows what the flows do.
struct Showing {
    listeners: Vec<Arc<dyn Listener>>,
    /// By flow, as listeners are.
    watches: Vec<Arc<FlowWatch>>,
    json: Option<ProgressWriter>,
    _live: Option<LiveLines>,
    _server: Option<MetricsServer>,
}

impl Showing {
    async fn start(
        arguments: &RunArguments,
        app: &App,
        loaded: &[Loaded],
        stopper: &Stopper,
    ) -> Result<Self, String> {
        let json = (arguments.progress == Some(ProgressStyle::Json))
            .then(|| ProgressWriter::start(&app.env, io::stdout(), stopper.clone()));
        let metrics = arguments.metrics.map(|address| (address, Metrics::new()));
        let (mut listeners, mut watches) = (Vec::new(), Vec::new());
        for flow in loaded {
            let name = flow.plan.name();
            let watch = FlowWatch::new(app.env.clone());
            watches.push((name.to_owned(), Arc::clone(&watch)));
            let announcer = Announcer::listener(name, &flow.checkpoint, &app.screen);
            let mut all: Vec<Arc<dyn Listener>> = vec![watch, announcer];
            if let Some(json) = &json {
                all.push(json.listener(name));
            }
            if let Some((_, metrics)) = &metrics {
                all.push(metrics.listener(name));
            }
            listeners.push(Arc::new(Listeners(all)) as Arc<dyn Listener>);
        }
        let server = match metrics {
            Some((address, metrics)) => {
                let (names, handle) = (&arguments.metrics_hosts, metrics.handle());
                let server = MetricsServer::start(&app.env, address, names, handle).await;
                let server = server
                    .map_err(|error| format!("metrics cannot be served on {address}: {error}"))?;
                if address.port() == 0 || app.is_watched() {
                    app.screen.say(&format!("metrics: http://{}/metrics", server.address()));
                }
                Some(server)
            }
            None => None,
        };
        let of_flows = watches.iter().map(|(_, watch)| Arc::clone(watch)).collect();
        let live = live_lines_fit(arguments, app, loaded)
            .then(|| LiveLines::start(&app.env, &app.screen, watches));
        Ok(Self { listeners, watches: of_flows, json, _live: live, _server: server })
    }

    /// Takes the live lines away and writes what is left to write; gives what was counted.
    fn end(self) -> Vec<Arc<FlowWatch>> {
        let Self { listeners, watches, json, .. } = self;
        drop(listeners);
        if let Some(json) = json {
            json.finish();
        }
        watches
    }
}

/// Live lines and rows of the console sink would overwrite each other on one terminal.
fn live_lines_fit(arguments: &RunArguments, app: &App, loaded: &[Loaded]) -> bool {
    let mut branches = loaded.iter().flat_map(|flow| &flow.flow.branches);
    let prints = branches.any(|branch| branch.connector.name() == "console");
    app.screen.is_terminal()
        && arguments.progress.is_none()
        && !(prints && io::stdout().is_terminal())
}

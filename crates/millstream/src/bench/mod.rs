//! `millstream bench`: a self-check of this machine, and of the user's brokers. It measures how
//! long rows take through a flow, and prints a JSON object.
//!
//! The flow runs in this process, on a pipeline that is written for the check; its checkpoint is in
//! a temporary directory that is removed afterwards. Experiments that compare the engine with other
//! programs are a program of their own, `millstream-bench`.

mod clients;
mod kafka_to_kafka;
mod rate_to_stats;
mod records;

use std::process::ExitCode;
use std::sync::Arc;

use millstream_engine::api::progress::Silent;
use millstream_engine::driver::start::Siblings;
use millstream_engine::driver::stop::{Stop, Stopper, stop_pair};
use millstream_engine::flow::RunSettings;
use millstream_store::error::{Failure, Kind};
use tempfile::TempDir;

use crate::app::App;
use crate::load::{Changes, PipelineFile};
use crate::restart::Policy;
use crate::stopping;
use crate::supervise::{self, Job};

/// `millstream bench`
#[derive(clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    check: Check,
}

#[derive(clap::Subcommand)]
enum Check {
    /// Latency of generated rows through SQL; needs nothing else.
    RateToStats(rate_to_stats::Flags),
    /// Latency of records from one topic to another, on your own brokers.
    KafkaToKafka(kafka_to_kafka::Flags),
}

/// Runs the command.
pub async fn run(arguments: Arguments, app: &App) -> ExitCode {
    let result = match arguments.check {
        Check::RateToStats(flags) => rate_to_stats::run(&flags, app).await,
        Check::KafkaToKafka(flags) => kafka_to_kafka::run(flags, app).await,
    };
    result.unwrap_or_else(|status| status)
}

/// Reports why a check cannot go on.
fn failed(app: &App, failure: &Failure) -> ExitCode {
    match failure.kind() {
        Kind::Config => app.wrong(&failure.to_string()),
        _ => app.failed(&failure.to_string()),
    }
}

/// A directory for files of a check, removed when dropped.
fn directory(app: &App) -> Result<TempDir, ExitCode> {
    let made = tempfile::Builder::new().prefix("millstream-bench-").tempdir();
    made.map_err(|error| app.failed(&format!("a temporary directory cannot be made: {error}")))
}

/// The flow of a check, ready to run.
struct Flow {
    job: Job,
    stopper: Stopper,
    stop: Stop,
}

impl Flow {
    /// Plans `pipeline`, with its files in `directory`. Failures are reported here.
    async fn plan(text: String, directory: &TempDir, app: &App) -> Result<Self, ExitCode> {
        let base_dir = directory.path().to_owned();
        let checkpoint = base_dir.join("checkpoint").display().to_string();
        let registry = millstream_connectors::registry(&base_dir);
        let file = PipelineFile { name: "the check's pipeline".to_owned(), text, base_dir };
        let changes = Changes { checkpoint: Some(&checkpoint), ..Changes::default() };
        let loaded = file.load(registry, &app.env, &changes).await;
        let loaded = loaded.map_err(|error| app.not_loaded(error))?.pop();
        let loaded = loaded.expect("a pipeline without a flow does not load");
        let (stopper, stop) = stop_pair();
        stopping::on_signals(&app.env, stopper.clone(), app.screen.clone())
            .map_err(|error| app.failed(&format!("signals cannot be heard: {error}")))?;
        let settings = RunSettings {
            checkpoint: loaded.checkpoint,
            trigger: loaded.flow.writer.trigger,
            logging: loaded.flow.writer.logging,
            listener: Arc::new(Silent),
            stop: stop.clone(),
            siblings: Siblings::default(),
            adopt: None,
        };
        let (plan, planner) = (loaded.plan, loaded.planner);
        let job = Job { plan, planner, restart: Policy::Never, settings };
        Ok(Self { job, stopper, stop })
    }

    /// Runs it until it is stopped. Its failure has been reported when this returns.
    async fn run(self, app: &App) -> Result<(), ExitCode> {
        let outcomes = supervise::side_by_side(app, vec![self.job], &self.stopper).await;
        let is_well = outcomes.iter().all(|outcome| outcome.finished.is_some());
        if is_well { Ok(()) } else { Err(ExitCode::FAILURE) }
    }
}

/// `'key' = 'value', ...`, as a pipeline file has options.
fn sql_options<'a>(options: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
    let pair = |(key, value)| format!("{} = {}", quoted(key), quoted(value));
    options.into_iter().map(pair).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_quoted_as_sql() {
        assert_eq!(sql_options([("a", "it's"), ("b", "c=d")]), "'a' = 'it''s', 'b' = 'c=d'");
    }
}

//! The `millstream` command: parse, load, wire, run.
//!
//! Only this crate knows flags, signals, the terminal and the environment. What happens in a
//! micro-batch is `millstream_engine::driver`; what touches the world is `millstream_connectors`.
//!
//! - [`cli`] says what can be asked for, [`load`] turns a pipeline file into planned flows;
//! - [`run`], [`query`], [`replay`], [`validate`], [`demo`], [`mod@bench`], [`generate`],
//!   [`table`], [`checkpoint_show`] and those of a [`cluster`] are the commands;
//! - [`watch`] counts what a flow does, and [`terminal`], [`progress_json`] and [`metrics`] show
//!   it; [`announce`] and [`report`] have the words for what happens and how a flow ended;
//! - [`supervise`] runs flows side by side, and starts those again that [`restart`] allows.

mod allocator;
mod announce;
mod app;
mod bench;
mod checkpoint_show;
mod checkpoints;
mod cli;
mod client_error;
mod cluster;
mod credentials;
mod demo;
mod descriptors;
mod generate;
mod hiding;
mod histogram;
mod human;
mod key_value;
mod large_state;
mod load;
mod logging;
mod lookup;
mod metrics;
mod metrics_server;
mod progress_json;
mod query;
mod render;
mod replay;
mod report;
mod restart;
mod run;
mod screen;
mod stopping;
mod supervise;
mod table;
mod terminal;
#[cfg(test)]
mod tests;
mod validate;
mod watch;

use std::process::ExitCode;
use std::time::Duration;

use app::App;
use clap::Parser as _;
use cli::{CheckpointCommand, Cli, Command};
use millstream_store::env::{STACK_BYTES, on_deep_stack};

/// How long tasks that are left over (a client library's, say) may take to end.
const SHUTDOWN_PATIENCE: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    on_deep_stack(start)
}

fn start() -> ExitCode {
    hiding::in_panics();
    hiding::hide_environment();
    let cli = match Cli::try_parse_from(cli::arguments(std::env::args_os())) {
        Ok(cli) => cli,
        Err(error) => return hiding::said(&error),
    };
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = match runtime.enable_all().thread_stack_size(STACK_BYTES).build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: the runtime cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    // The environment made with the app remembers this runtime for work that cores share.
    let entered = runtime.enter();
    let app = App::new(cli.verbose);
    if let Err(problem) = logging::start(app.verbose, &app.screen) {
        return app.wrong(&problem);
    }
    let status = runtime.block_on(dispatch(cli.command, &app));
    drop(entered);
    runtime.shutdown_timeout(SHUTDOWN_PATIENCE);
    status
}

async fn dispatch(command: Command, app: &App) -> ExitCode {
    if matches!(command, Command::Query(_) | Command::Coordinator(_) | Command::Node(_)) {
        allocator::keep_memory();
    }
    match command {
        Command::Run(arguments) => run::run(arguments, app).await,
        Command::Query(arguments) => query::run(arguments, app).await,
        Command::Coordinator(arguments) => cluster::coordinator(arguments, app).await,
        Command::Node(arguments) => cluster::node(arguments, app).await,
        Command::Runner(arguments) => cluster::runner(arguments, app).await,
        Command::Replay(arguments) => replay::run(arguments, app).await,
        Command::Validate(arguments) => validate::run(arguments, app).await,
        Command::Demo(arguments) => demo::run(arguments, app).await,
        Command::Bench(arguments) => bench::run(arguments, app).await,
        Command::Generate(arguments) => generate::run(arguments, app).await,
        Command::Checkpoint(CheckpointCommand::Show { directory }) => {
            checkpoint_show::run(&directory, app).await
        }
        Command::Table(command) => table::run(command, app).await,
    }
}

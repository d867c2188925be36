//! `millstream coordinator`, `millstream node` and `millstream runner`: the parts of a cluster.
//!
//! Each says where it listens on standard error once it does, and ends at Ctrl-C or SIGTERM. The
//! token that all of them know is in a file or in the variable `MILLSTREAM_TOKEN`.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread::available_parallelism;

use millstream_query::cache::blocks::BlockCache;
use millstream_query::cluster::coordinator::Coordinator;
use millstream_query::cluster::error::ClusterError;
use millstream_query::cluster::lambda::function::{self, FunctionSettings};
use millstream_query::cluster::node::{self, Listeners, NodeSettings};
use millstream_query::cluster::remote::{Reached, Runners};
use millstream_query::cluster::runner::{self, Runner, RunnerSettings};
use millstream_query::cluster::security::Security;
use millstream_query::cluster::tls::TlsFiles;
use millstream_query::error::QueryError;
use millstream_query::flight_sql::FlightSql;
use millstream_query::state::Limits;
use millstream_store::error::{Failure, Kind};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::app::App;
use crate::cli::{CoordinatorArguments, NodeArguments, RunnerArguments, SecurityArguments};
use crate::credentials;
use crate::query::{declare_tables_of, limits, memory_of_machine, new_session};

/// What the tasks of a runner may use together if nothing else is said.
const RUNNER_MEMORY_BYTES: u64 = 1_000_000_000;

/// Runs a coordinator.
pub async fn coordinator(arguments: CoordinatorArguments, app: &App) -> ExitCode {
    let limits = limits(&arguments.limits);
    let session = new_session(&limits, app).and_then(|session| {
        let declared = arguments.tables.as_deref();
        let declared = declared.map(|file| declare_tables_of(file, &arguments.settings, &session));
        declared.transpose().map(|_| session)
    });
    let session = match session {
        Ok(session) => session,
        Err(refused) => return refused.report(app),
    };
    let serving = async {
        let security = security(&arguments.security)?;
        check_listens(&security, arguments.listen)?;
        let listener = listen(arguments.listen).await?;
        say(app, "coordinator", &listener);
        let coordinator = Coordinator::new(&app.env, arguments.listen, &security).await?;
        let nodes = coordinator.in_process(&app.env);
        let front = FlightSql::new(&app.env, session, Some(nodes), security);
        Ok(coordinator.serve(listener, Some(front.routes())).await?)
    };
    until_stopped(serving, app).await
}

/// Runs a node.
pub async fn node(arguments: NodeArguments, app: &App) -> ExitCode {
    let serving = async {
        let (directory, _temporary) = directory(arguments.dir.as_ref(), "node")?;
        let security = security(&arguments.security)?;
        let ip = arguments.host;
        check_listens(&security, SocketAddr::new(ip, 0))?;
        let files = listen(SocketAddr::new(ip, 0)).await?;
        let proxy = listen(SocketAddr::new(ip, 0)).await?;
        let inbox = match arguments.no_push {
            true => None,
            false => Some(listen(SocketAddr::new(ip, 0)).await?),
        };
        say(app, "node", &files);
        let runners = Runners {
            addresses: arguments.runners.clone(),
            security: security.clone(),
            inline_bytes_max: None,
            reached: Reached::default(),
        };
        let at_once = arguments.remote_tasks as usize;
        let memory = arguments.memory.or_else(|| memory_of_machine().map(|bytes| bytes / 2));
        let cores = available_parallelism().map_or(1, usize::from);
        let settings = NodeSettings {
            coordinator: arguments.coordinator.clone(),
            limits: Limits {
                partitions: arguments.cores.map_or(cores, |cores| cores as usize),
                memory_bytes: memory.and_then(|bytes| usize::try_from(bytes).ok()),
                spill_directory: None,
            },
            directory,
            host: ip.to_string(),
            security,
            runners: (!arguments.runners.is_empty()).then_some((runners, at_once)),
            cache: cache(&arguments, app)?,
        };
        let _node = node::start(&app.env, settings, Listeners { files, proxy, inbox }).await?;
        std::future::pending::<()>().await;
        Ok(())
    };
    until_stopped(serving, app).await
}

/// Runs a runner.
pub async fn runner(arguments: RunnerArguments, app: &App) -> ExitCode {
    let serving = async {
        if arguments.lambda {
            let variable = |name: &str| std::env::var(name).ok();
            let SecurityArguments { token_file, tls_ca, .. } = arguments.security;
            let token = token_file.as_deref().map(credentials::token).transpose()?;
            let security = function::security(token, tls_ca, variable)?;
            let (memory_bytes, directory) = (arguments.memory, arguments.dir);
            let settings = FunctionSettings { memory_bytes, directory, security };
            return function::run(&app.env, settings, variable).await;
        }
        let security = security(&arguments.security)?;
        check_listens(&security, arguments.listen)?;
        let (directory, _temporary) = directory(arguments.dir.as_ref(), "runner")?;
        let memory = arguments.memory.unwrap_or(RUNNER_MEMORY_BYTES);
        let settings = RunnerSettings {
            limits: Limits {
                partitions: 1,
                memory_bytes: usize::try_from(memory).ok(),
                spill_directory: None,
            },
            tasks: arguments.tasks as usize,
            directory,
            security,
        };
        let runner = Arc::new(Runner::new(app.env.clone(), settings)?);
        let listener = listen(arguments.listen).await?;
        say(app, "runner", &listener);
        Ok(runner::serve(listener, runner).await?)
    };
    until_stopped(serving, app).await
}

fn security(arguments: &SecurityArguments) -> Result<Security, ClusterError> {
    let SecurityArguments { token_file, tls_cert, tls_key, tls_ca } = arguments;
    let (cert, key, ca) = (tls_cert.clone(), tls_key.clone(), tls_ca.clone());
    credentials::security(token_file.as_deref(), &TlsFiles { cert, key, ca })
}

/// Refuses to listen at an address that would be open to everybody, and warns of one that is not
/// encrypted.
fn check_listens(security: &Security, address: SocketAddr) -> Result<(), ClusterError> {
    security.check_listens(address)?;
    security.warn_unencrypted(address);
    Ok(())
}

/// Where a node keeps what it reads from object stores.
fn cache(arguments: &NodeArguments, app: &App) -> Result<Option<Arc<BlockCache>>, QueryError> {
    let Some(directory) = &arguments.cache else { return Ok(None) };
    let opened = BlockCache::open(app.env.clone(), directory, arguments.cache_size);
    Ok(Some(Arc::new(opened.map_err(|error| QueryError::Failure(error.into()))?)))
}

async fn listen(address: SocketAddr) -> Result<TcpListener, ClusterError> {
    let failed = |error| ClusterError::Listen { address: address.to_string(), error };
    TcpListener::bind(address).await.map_err(failed)
}

fn say(app: &App, what: &str, listener: &TcpListener) {
    if let Ok(address) = listener.local_addr() {
        app.screen.say(&format!("The {what} listens at {address}."));
    }
}

/// The directory that was asked for, or a new one that is gone when the process ends.
fn directory(
    asked: Option<&PathBuf>,
    what: &str,
) -> Result<(PathBuf, Option<TempDir>), ClusterError> {
    if let Some(asked) = asked {
        let failed =
            |error: io::Error| ClusterError::Directory { path: asked.display().to_string(), error };
        std::fs::create_dir_all(asked).map_err(failed)?;
        return Ok((asked.clone(), None));
    }
    let made = tempfile::Builder::new().prefix(&format!("millstream-{what}-")).tempdir();
    let made = made.map_err(|error| {
        let path = std::env::temp_dir().display().to_string();
        ClusterError::Directory { path, error }
    })?;
    Ok((made.path().to_owned(), Some(made)))
}

/// Waits for `serving`, which ends only by an error, or for a signal.
async fn until_stopped(
    serving: impl Future<Output = Result<(), QueryError>>,
    app: &App,
) -> ExitCode {
    let mut terminations = match signal(SignalKind::terminate()) {
        Ok(terminations) => terminations,
        Err(error) => return app.failed(&format!("signals cannot be heard: {error}")),
    };
    tokio::select! {
        served = serving => match served {
            Ok(()) => app.done(),
            Err(QueryError::Failure(failure)) => reported(&failure, app),
            Err(QueryError::Sql(found)) => app.failed(&found.to_string()),
        },
        _ = terminations.recv() => app.done(),
        _ = tokio::signal::ctrl_c() => app.done(),
    }
}

fn reported(failure: &Failure, app: &App) -> ExitCode {
    match failure.kind() {
        Kind::Config | Kind::Credentials => app.wrong(&failure.to_string()),
        _ => app.failed(&failure.to_string()),
    }
}

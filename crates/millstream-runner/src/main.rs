//! A runner that is a function of AWS Lambda and nothing else.
//!
//! What `millstream runner --lambda` does, without all that runners have no use for: Kafka, the
//! writers of tables, the shell, the coordinator. So its package is smaller, and Lambda starts it
//! sooner. It takes no arguments; its settings are variables of the environment:
//!
//! - `MILLSTREAM_TOKEN`: the token of the cluster;
//! - `MILLSTREAM_TLS_CA`: the file with the certificates that nodes are checked against.

use std::process::ExitCode;

use millstream_query::cluster::lambda::function::{self, FunctionSettings};
use millstream_query::error::QueryError;
use millstream_store::env::{Env, STACK_BYTES, on_deep_stack};

fn main() -> ExitCode {
    on_deep_stack(start)
}

fn start() -> ExitCode {
    let failed = |problem: String| {
        eprintln!("error: {problem}");
        ExitCode::FAILURE
    };
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = match runtime.enable_all().thread_stack_size(STACK_BYTES).build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(format!("the runtime cannot start: {error}")),
    };
    let lines = tracing_subscriber::fmt().with_ansi(false).with_writer(std::io::stderr);
    lines.with_max_level(tracing_subscriber::filter::LevelFilter::WARN).init();
    let _entered = runtime.enter();
    match runtime.block_on(run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(QueryError::Failure(failure)) => failed(failure.to_string()),
        Err(QueryError::Sql(found)) => failed(found.to_string()),
    }
}

async fn run() -> Result<(), QueryError> {
    let security = function::security(None, None, variable)?;
    let settings = FunctionSettings { security, ..FunctionSettings::default() };
    function::run(&Env::real(), settings, variable).await
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

//! The function's side: a runner that asks Lambda's runtime API for events, one after the other.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::{HeaderMap, Method, StatusCode};
use millstream_store::env::Env;

use super::{Event, FunctionError, Outcome, PAYLOAD_BYTES_MAX, TOO_LONG, decoded, encoded};
use crate::cluster::ending::End;
use crate::cluster::error::ClusterError;
use crate::cluster::http::{self, Answer, Asked};
use crate::cluster::runner::{RunError, Runner};

/// What all paths of the runtime API begin with.
const VERSION: &str = "/2018-06-01/runtime";
/// The longest event that is read; Lambda's are shorter.
const EVENT_BYTES_MAX: usize = 2 * PAYLOAD_BYTES_MAX;
/// How long to wait before the runtime API is asked again that has failed.
const PAUSE: Duration = Duration::from_millis(100);
/// How often in a row it may fail.
const FAILURES_MAX: u32 = 50;

/// Runs tasks that the runtime API at `address` gives, until the process ends.
///
/// # Errors
/// [`ClusterError::Lambda`]: the runtime API does not answer.
pub async fn serve(env: &Env, address: &str, runner: Arc<Runner>) -> Result<(), ClusterError> {
    let mut failures = 0;
    loop {
        match next(env, address, &runner).await {
            Ok(()) => failures = 0,
            Err(error) => {
                failures += 1;
                tracing::warn!(%error, "Lambda's runtime API fails");
                if failures > FAILURES_MAX {
                    let problem = format!("the runtime API at {address} fails: {error}");
                    return Err(ClusterError::Lambda { problem });
                }
                env.sleep(PAUSE).await;
            }
        }
    }
}

/// Waits for an event, and answers it.
async fn next(env: &Env, address: &str, runner: &Runner) -> io::Result<()> {
    let path = format!("{VERSION}/invocation/next");
    let empty = Asked::post(address, &path, Bytes::new());
    let mut answer = http::ask(env, Asked { method: Method::GET, ..empty }).await?;
    expect(&mut answer, StatusCode::OK).await?;
    let invocation = header(&answer.headers, "lambda-runtime-aws-request-id")?;
    let event = answer.whole(EVENT_BYTES_MAX).await?;
    drop(answer);
    let (path, outcome) = match run(runner, &event).await {
        Ok(outcome) => ("response", outcome),
        Err(error) => {
            tracing::warn!(error = %error.error_message, "the task has failed");
            ("error", serde_json::to_vec(&error)?)
        }
    };
    let path = format!("{VERSION}/invocation/{invocation}/{path}");
    let mut answer = http::ask(env, Asked::post(address, &path, outcome.into())).await?;
    expect(&mut answer, StatusCode::ACCEPTED).await
}

/// What is given back for `event`.
async fn run(runner: &Runner, event: &[u8]) -> Result<Vec<u8>, FunctionError> {
    let failed = |kind: &str, error: &dyn std::fmt::Display| FunctionError {
        error_type: kind.to_owned(),
        error_message: error.to_string(),
    };
    let no_event = |error: &dyn std::fmt::Display| failed("Millstream.NoTask", error);
    let event: Event = serde_json::from_slice(event).map_err(|error| no_event(&error))?;
    if !runner.admits(|name| {
        let value = event.authorization.as_ref().filter(|_| name == "authorization");
        value.map(|value| value.as_bytes())
    }) {
        return Err(no_event(&"the token is missing or wrong"));
    }
    let task = decoded(&event.task).map_err(|error| no_event(&error))?;
    // Lambda does not say that nobody waits for the task any more.
    let reply = runner.run(&task, &End::default()).await.map_err(|error| match &error {
        RunError::TooLong { .. } => failed(TOO_LONG, &error),
        RunError::Failed(_) => failed("Millstream.Failed", &error),
    })?;
    let answer = reply.whole().await.map_err(|error| failed("Millstream.Failed", &error))?;
    let outcome = Outcome { answer: encoded(&answer) };
    serde_json::to_vec(&outcome).map_err(|error| failed("Millstream.Failed", &error))
}

async fn expect(answer: &mut Answer, status: StatusCode) -> io::Result<()> {
    if answer.status == status {
        return Ok(());
    }
    let (status, problem) = (answer.status, answer.problem().await);
    Err(io::Error::other(format!("the runtime API answers {status}: {problem}")))
}

fn header(headers: &HeaderMap, name: &str) -> io::Result<String> {
    let value = headers.get(name).and_then(|value| value.to_str().ok());
    let missing = || io::Error::other(format!("the runtime API gives no {name}"));
    Ok(value.ok_or_else(missing)?.to_owned())
}

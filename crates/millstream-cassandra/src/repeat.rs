//! Requests that are made again until the cluster answers.

use std::time::Duration;

use millstream_engine::api::contact::ContactWith;
use millstream_store::env::Env;
use scylla::errors::ExecutionError;

use crate::error::{CassandraProblem, later_refusal, may_pass};
use crate::server::Server;

/// How long a request is repeated while a flow runs; after that the flow is started again.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Before something is repeated; each further wait is twice as long.
const WAIT: Duration = Duration::from_millis(20);
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Waits between attempts.
pub(crate) struct Waits<'a> {
    env: &'a Env,
    begun: Duration,
    next: Duration,
}

impl<'a> Waits<'a> {
    /// From now on.
    pub(crate) fn begin(env: &'a Env) -> Self {
        Self { env, begun: env.monotonic(), next: WAIT }
    }

    /// How long it has been.
    pub(crate) fn waited(&self) -> Duration {
        self.env.monotonic().saturating_sub(self.begun)
    }

    /// Waits before the next attempt.
    pub(crate) async fn pause(&mut self) {
        self.env.sleep(self.next).await;
        self.next = (self.next * 2).min(WAIT_MAX);
    }
}

/// Who asks what.
pub(crate) struct Asking<'a> {
    pub(crate) server: &'a Server,
    pub(crate) contact: &'a ContactWith,
    pub(crate) env: &'a Env,
    /// As in: the server refuses to ...
    pub(crate) what: &'static str,
}

impl Asking<'_> {
    /// Asks until there is an answer. Asking twice must be the same as asking once.
    ///
    /// # Errors
    /// The server refuses what is asked, or the user; what `silent` makes of it where there is no
    /// answer for [`PATIENCE`].
    pub(crate) async fn until_answered<T, F>(
        &self,
        ask: impl Fn() -> F,
        silent: impl FnOnce(Duration, Box<ExecutionError>) -> CassandraProblem,
    ) -> Result<T, CassandraProblem>
    where
        F: Future<Output = Result<T, ExecutionError>>,
    {
        let Self { server, contact, env, what } = *self;
        let (mut waits, begun_ms) = (Waits::begin(env), env.now_ms());
        loop {
            let error = match ask().await {
                Ok(answer) => {
                    contact.answered();
                    return Ok(answer);
                }
                Err(error) => error,
            };
            if let Some(reason) = later_refusal(&error) {
                return Err(CassandraProblem::Login { server: server.shown(), reason });
            }
            let error = Box::new(error);
            if !may_pass(&error) {
                let server = server.shown();
                return Err(CassandraProblem::Refused { server, what, error });
            }
            let waited = waits.waited();
            if waited >= PATIENCE {
                return Err(silent(waited, error));
            }
            tracing::debug!(server = server.shown(), what, %error, "Cassandra is asked again");
            contact.unanswered(begun_ms);
            waits.pause().await;
        }
    }
}

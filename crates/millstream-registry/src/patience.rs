//! How long a caller waits.

use std::time::Duration;

use millstream_store::env::Env;

/// How often it is looked whether a caller still wants to wait.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How long a caller waits for a registry that is away, and what lets it give up earlier.
#[derive(Clone, Copy)]
pub struct Patience<'a> {
    limit: Duration,
    cancelled: Option<&'a dyn Fn() -> bool>,
}

impl<'a> Patience<'a> {
    /// Waits for `limit` at most, and then for the attempts that are under way: at least one
    /// is made at each URL. Zero is: do not try again.
    pub fn new(limit: Duration) -> Self {
        Self { limit, cancelled: None }
    }

    /// Gives up once `cancelled` says so. It is asked some twenty times a second, on the caller's
    /// thread.
    #[must_use]
    pub fn unless(self, cancelled: &'a dyn Fn() -> bool) -> Self {
        Self { cancelled: Some(cancelled), ..self }
    }
}

impl std::fmt::Debug for Patience<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Patience({:?})", self.limit)
    }
}

/// Patience that has begun to run out.
pub(crate) struct Wait<'a> {
    env: &'a Env,
    /// On the monotonic clock.
    ends_at: Duration,
    cancelled: Option<&'a dyn Fn() -> bool>,
}

impl<'a> Wait<'a> {
    pub(crate) fn begin(env: &'a Env, patience: &Patience<'a>) -> Self {
        let ends_at = env.monotonic().saturating_add(patience.limit);
        Self { env, ends_at, cancelled: patience.cancelled }
    }

    /// How much of it is left.
    pub(crate) fn left(&self) -> Duration {
        self.ends_at.saturating_sub(self.env.monotonic())
    }

    /// Completes once the caller does not want to wait any longer, whatever is left.
    pub(crate) async fn given_up(&self) {
        let Some(cancelled) = self.cancelled else { return std::future::pending().await };
        while !cancelled() {
            self.env.sleep(LOOK_EVERY).await;
        }
    }
}

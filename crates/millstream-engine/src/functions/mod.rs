//! functions
pub(crate) mod calendar;
pub(crate) mod java_text;
pub(crate) mod types;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use datafusion::execution::SessionState;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::prelude::SessionConfig;

/// The time of the micro-batch in hand, microseconds since the epoch.
#[derive(Clone, Debug, Default)]
pub struct BatchClock { now_us: Arc<AtomicI64> }

impl BatchClock {
    /// Sets the time for the micro-batch that runs next.
    pub fn set(&self, now_us: i64) { self.now_us.store(now_us, Ordering::Relaxed); }
}

/// A session with all functions.
pub fn session(config: SessionConfig, _clock: &BatchClock) -> SessionState {
    SessionStateBuilder::new().with_config(config).with_default_features().build()
}

//! A clock that tests move by hand.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use millstream_store::env::{Clock, Env, SeededRng};
use tokio::sync::watch;

/// Stands still until a test moves it.
#[derive(Clone)]
pub(crate) struct ManualClock {
    now_us: Arc<watch::Sender<i64>>,
}

impl ManualClock {
    /// A clock that shows `now_us`.
    pub(crate) fn at(now_us: i64) -> Self {
        Self { now_us: Arc::new(watch::Sender::new(now_us)) }
    }

    /// Moves the clock to `now_us` and wakes sleepers.
    pub(crate) fn set(&self, now_us: i64) {
        self.now_us.send_replace(now_us);
    }

    /// Moves the clock on.
    pub(crate) fn advance_us(&self, by_us: i64) {
        self.now_us.send_modify(|now_us| *now_us += by_us);
    }

    /// An environment with this clock.
    pub(crate) fn env(&self) -> Env {
        Env::new(Arc::new(self.clone()), Arc::new(SeededRng::new(7)))
    }
}

impl Clock for ManualClock {
    fn now_us(&self) -> i64 {
        *self.now_us.borrow()
    }

    fn monotonic(&self) -> Duration {
        Duration::from_micros(self.now_us().unsigned_abs())
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let until_us = self.now_us().saturating_add_unsigned(duration.as_micros() as u64);
        let mut now = self.now_us.subscribe();
        Box::pin(async move {
            // The sender lives as long as the clock; a test that drops it has ended.
            let _ = now.wait_for(|now_us| *now_us >= until_us).await;
        })
    }
}

//! How far the logs are written, for all who wait for that.
//!
//! They are woken in the order in which they began to wait. (A `tokio::sync::watch` spreads its
//! waiters over several lists by chance; the same schedule could not be run twice with it.)

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::WriteError;
use crate::offset::BatchId;

/// How far the logs are written.
#[derive(Clone, Default)]
pub(super) struct Progress {
    /// How many entries of each lane.
    pub written: [u64; 2],
    /// The last intent written.
    pub intent: Option<BatchId>,
    /// The first failure; nothing is written after it.
    pub failure: Option<Arc<WriteError>>,
}

/// A [`Progress`] that changes.
#[derive(Default)]
pub(super) struct Progressing {
    now: Mutex<Progress>,
    changed: Notify,
}

impl Progressing {
    /// What is known now.
    pub fn now(&self) -> Progress {
        self.now.lock().clone()
    }

    /// Changes it, and wakes everybody who waits.
    pub fn change(&self, change: impl FnOnce(&mut Progress)) {
        change(&mut self.now.lock());
        self.changed.notify_waiters();
    }

    /// Waits until `condition` holds; gives what was known then.
    pub async fn wait_for(&self, condition: impl Fn(&Progress) -> bool) -> Progress {
        loop {
            // Begun before looking, so that a change in between is not missed.
            let changed = self.changed.notified();
            let now = self.now();
            if condition(&now) {
                return now;
            }
            changed.await;
        }
    }
}

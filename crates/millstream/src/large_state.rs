//! Memory that a flow with much state has given back to the allocator, and the allocator not to the
//! kernel.
//!
//! Windows of lists grow by arrays of some megabytes and go all at once, and between them the
//! arrays of each micro-batch come and go. glibc keeps what is free in between: a flow with 1.3 GB
//! of state had 2.7 GB in use and 5 GB of memory. Asking the kernel for each array instead costs a
//! third of the throughput of flows that have no state at all. So a flow is watched: where its
//! process has far more memory than its state, now and then what is free goes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millstream_engine::api::progress::{Listener, Progress};
use millstream_store::env::{Env, Task};
use parking_lot::Mutex;

use crate::allocator;

/// A flow that never had more state than this is not looked at.
const STATE_BYTES_MIN: u64 = 256 << 20;
/// So much more than was left the last time is worth giving back.
const WORTH_BYTES: u64 = 128 << 20;
/// How often the memory is looked at: giving it back takes some milliseconds. A micro-batch that
/// closes a window of a gigabyte takes seconds, in which all that the window held is freed while
/// its result grows, so that looking after each micro-batch would be too late.
const INTERVAL: Duration = Duration::from_millis(100);

/// Has memory given back once a flow has had much state.
pub struct LargeState {
    env: Env,
    /// Of the newest micro-batch.
    state_bytes: Arc<AtomicU64>,
    /// `None` while the flow has not had much state.
    looks: Mutex<Option<Task<()>>>,
}

impl LargeState {
    /// For one flow.
    pub fn new(env: &Env) -> Self {
        Self { env: env.clone(), state_bytes: Arc::default(), looks: Mutex::default() }
    }
}

impl Listener for LargeState {
    fn published(&self, progress: &Progress) {
        let state_bytes: u64 = progress.state.iter().map(|operator| operator.bytes).sum();
        self.state_bytes.store(state_bytes, Ordering::Relaxed);
        if state_bytes >= STATE_BYTES_MIN {
            let start = || self.env.spawn("give-back", watch(self.env.clone(), &self.state_bytes));
            self.looks.lock().get_or_insert_with(start);
        }
    }
}

/// Looks at the memory until the flow is gone.
fn watch(env: Env, state_bytes: &Arc<AtomicU64>) -> impl Future<Output = ()> + use<> {
    let state_bytes = Arc::downgrade(state_bytes);
    // What the process had beside the state when memory had last gone back, or less if it has had
    // less since.
    let left_bytes = Arc::new(AtomicU64::default());
    async move {
        while let Some(bytes) = state_bytes.upgrade().map(|bytes| bytes.load(Ordering::Relaxed)) {
            let left_bytes = Arc::clone(&left_bytes);
            // Not here: the flow has tasks on this thread.
            env.spawn_blocking("give-back", move || look(bytes, &left_bytes)).join().await;
            env.sleep(INTERVAL).await;
        }
    }
}

fn look(state_bytes: u64, left_bytes: &AtomicU64) {
    let beside = || Some(allocator::resident_bytes()?.saturating_sub(state_bytes));
    let Some(found) = beside() else { return };
    let left = left(found, left_bytes.load(Ordering::Relaxed), || {
        allocator::give_back();
        beside().unwrap_or(found)
    });
    left_bytes.store(left, Ordering::Relaxed);
}

/// What is left beside the state, of which `found` bytes are there and `left` were before.
fn left(found: u64, left: u64, give_back: impl FnOnce() -> u64) -> u64 {
    if found > left + WORTH_BYTES { give_back() } else { left.min(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_goes_back_where_there_is_more_than_was_left() {
        let worth = |times: u64| times * WORTH_BYTES;
        let kept = || panic!("it is not worth it");
        assert_eq!(left(worth(1), 0, kept), 0);
        assert_eq!(left(worth(4), 0, || worth(3)), worth(3));
        // What could not go back is in use: nothing is tried again for it.
        assert_eq!(left(worth(4), worth(3), kept), worth(3));
        assert_eq!(left(worth(1), worth(3), kept), worth(1));
        // The state has gone, and its memory is free.
        assert_eq!(left(worth(6), worth(1), || worth(1) / 2), worth(1) / 2);
    }
}

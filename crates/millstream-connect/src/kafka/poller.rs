//! The thread that serves a producer client's events: delivery reports, log lines, errors.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use millstream_store::env::{Env, Thread};

use super::native::ProducerClient;

/// How long it waits for an event; how soon it notices that it should end.
const POLL: Duration = Duration::from_millis(100);

/// The running thread. Dropping it ends the thread, and lets go of its share of the client.
pub struct Poller {
    stop: Arc<AtomicBool>,
    thread: Option<Thread>,
}

impl Poller {
    /// Serves `client` on a thread called `name`.
    pub fn start(env: &Env, name: &str, client: Arc<ProducerClient>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = env.thread(name, move || {
            while !stopped.load(Ordering::Acquire) {
                client.poll(POLL);
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        drop(self.thread.take());
    }
}

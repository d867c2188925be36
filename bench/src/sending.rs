//! The generator while something else is watched.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use millstream_store::env::{Env, Thread};

use crate::error::Error;
use crate::generator::{Generator, Sent};
use crate::schedule::Schedule;

/// The generator on a thread of its own, told to give up when dropped.
pub struct Sending {
    give_up: Arc<AtomicBool>,
    result: Receiver<Result<Sent, Error>>,
    _thread: Thread,
}

impl Sending {
    /// Starts sending `schedule`.
    pub fn start(env: &Env, generator: Generator, schedule: Schedule) -> Self {
        let give_up = Arc::new(AtomicBool::new(false));
        let (report, result) = channel();
        let told = Arc::clone(&give_up);
        let thread = env.thread("bench-generator", move || {
            // Nobody listens only when the round has failed already.
            let _ = report.send(generator.run(schedule, &told));
        });
        Self { give_up, result, _thread: thread }
    }

    /// The result, if there is one within `limit`.
    pub fn wait(&self, limit: Duration) -> Option<Result<Sent, Error>> {
        match self.result.recv_timeout(limit) {
            Ok(sent) => Some(sent),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => panic!("the generator ended without a result"),
        }
    }

    /// Sends nothing any more; gives what was sent.
    pub fn finish(self) -> Result<Sent, Error> {
        self.give_up.store(true, Ordering::Relaxed);
        self.result.recv().expect("the generator tells what it did before it ends")
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.give_up.store(true, Ordering::Relaxed);
    }
}

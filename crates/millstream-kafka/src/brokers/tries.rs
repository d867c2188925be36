//! Requests that are sent again: how often, and how soon.

use std::time::Duration;

use millstream_engine::api::contact::ContactWith;
use millstream_store::env::Env;

use super::request_error::RequestError;

/// The pause before a third attempt; the second follows the first at once.
const PAUSE: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// How often something was tried.
pub struct Tries {
    /// How often it has failed.
    pub failed: u32,
    asked_ms: i64,
}

impl Tries {
    /// Of something that is tried for the first time now.
    pub fn new(env: &Env) -> Self {
        Self { failed: 0, asked_ms: env.now_ms() }
    }

    /// Notes a failure, and whether the brokers answered: a refusal is an answer too. Waits before
    /// the next attempt, but not after the first one.
    pub fn failed(&mut self, problem: &RequestError, contact: &ContactWith) {
        match problem.code() {
            Some(_) => contact.answered(),
            None => contact.unanswered(self.asked_ms),
        }
        self.failed += 1;
        if self.failed > 1 {
            let pause = PAUSE.saturating_mul(1 << (self.failed - 2).min(10));
            std::thread::sleep(pause.min(PAUSE_MAX));
        }
    }
}

//! One clock for generator and meter.

use millstream_store::env::Env;

/// Microseconds since the epoch that never run backwards: the wall clock is read once, and from
/// then on only elapsed time is added, so that a clock being set during a run changes no latency.
#[derive(Clone)]
pub struct Clock {
    env: Env,
    base_us: i64,
}

impl Clock {
    /// A clock that is right now and steady from now on.
    pub fn new(env: &Env) -> Self {
        let base_us = env.now_us() - elapsed_us(env);
        Self { env: env.clone(), base_us }
    }

    /// Microseconds since the epoch.
    pub fn now_us(&self) -> i64 {
        self.base_us + elapsed_us(&self.env)
    }
}

fn elapsed_us(env: &Env) -> i64 {
    i64::try_from(env.monotonic().as_micros()).expect("a process is younger than an age")
}

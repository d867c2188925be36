//! What ends a run from outside: time, Ctrl-C and SIGTERM.
//!
//! Time and the first signal ask flows to stop after the micro-batch in hand; the second signal
//! ends the process at once.

use std::io;
use std::time::Duration;

use millstream_engine::driver::stop::Stopper;
use millstream_store::env::Env;
use tokio::signal::unix::{SignalKind, signal};

use crate::screen::Screen;

/// Stops the run after a while.
pub fn after(env: &Env, length: Duration, stopper: Stopper) {
    let clock = env.clone();
    env.spawn("stop-after", async move {
        clock.sleep(length).await;
        stopper.stop();
    });
}

/// Hears signals from here on, until the process ends.
pub fn on_signals(env: &Env, stopper: Stopper, screen: Screen) -> io::Result<()> {
    let mut interrupts = signal(SignalKind::interrupt())?;
    let mut terminations = signal(SignalKind::terminate())?;
    env.spawn("signals", async move {
        let mut next = async || {
            tokio::select! {
                _ = interrupts.recv() => SignalKind::interrupt(),
                _ = terminations.recv() => SignalKind::terminate(),
            }
        };
        next().await;
        stopper.stop();
        if screen.is_terminal() {
            screen.say("Stopping after the current micro-batch; Ctrl-C again stops at once.");
        }
        let signal = next().await;
        // What a shell reports for a process that a signal has ended.
        std::process::exit(128 + signal.as_raw_value());
    });
    Ok(())
}

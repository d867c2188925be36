//! Ctrl-C and SIGTERM: the first asks flows to stop after the micro-batch in hand, the second ends
//! the process at once.

use std::io;

use millstream_engine::driver::stop::Stopper;
use millstream_store::env::Env;
use tokio::signal::unix::{SignalKind, signal};

use crate::screen::Screen;

/// Hears signals from here on, until the process ends.
pub fn watch(env: &Env, stopper: Stopper, screen: Screen) -> io::Result<()> {
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
            screen.say("Stopping after the micro-batch in hand; Ctrl-C again stops at once.");
        }
        let signal = next().await;
        // What a shell reports for a process that a signal has ended.
        std::process::exit(128 + signal.as_raw_value());
    });
    Ok(())
}
